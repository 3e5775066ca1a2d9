"""Streams to try things on: seeded generators of any size, and loaders of public data sets."""

from tether.data.generate import (
    click_log,
    dense_examples,
    incident_reports,
    locations,
    packets,
    requests,
    zipf_text,
)
from tether.data.load import DataFolder, in_epochs
from tether.data.parse import Loaded

__all__ = [
    "DataFolder",
    "Loaded",
    "click_log",
    "dense_examples",
    "in_epochs",
    "incident_reports",
    "locations",
    "packets",
    "requests",
    "zipf_text",
]
