"""Data sets of the machine, where it has them."""

from __future__ import annotations

import pytest

from tether.data import DataFolder


@pytest.fixture(scope="session")
def data() -> DataFolder:
    folder = DataFolder()
    if not folder.has("covtype"):
        pytest.skip("no data sets here: set TETHER_DATA to their folder")
    return folder
