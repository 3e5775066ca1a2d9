"""Sending rows to a gateway, from any Python program: needs neither Spark nor Java.

Example:
    >>> import pathlib, tempfile
    >>> import pyarrow as pa
    >>> from tether.producer import Producer
    >>> from tether.sources.gateway.config import GatewayConfig
    >>> from tether.sources.gateway.server import GatewayServer
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "store"
    >>> server = GatewayServer(GatewayConfig(store=folder, listen="127.0.0.1:0"))
    >>> with Producer(server.flight_address, "clicks", pa.schema({"user": pa.int64()})) as clicks:
    ...     clicks.send({"user": 7})
    ...     clicks.flush()
    ...     clicks.acked
    1
    >>> server.stop()
"""

from tether.producer.held import Report
from tether.producer.producer import Producer

__all__ = ["Producer", "Report"]
