"""A real Kafka broker on loopback for tests and examples, and Spark's connector to it.

``jars`` fetches both with the Ivy that PySpark carries; ``broker`` starts a single KRaft node from them.
"""

from tether.testing.kafka.broker import Broker, running_broker
from tether.testing.kafka.jars import CONNECTOR, UnreachableError, broker_jars, connector_jars

__all__ = [
    "CONNECTOR",
    "Broker",
    "UnreachableError",
    "broker_jars",
    "connector_jars",
    "running_broker",
]
