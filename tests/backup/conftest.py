from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tether.backup import StoreAddress

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["local", "memory", "s3"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    """Where a store of each kind is to be made."""
    if request.param == "local":
        return StoreAddress(url=str(tmp_path / "store"))
    return _object_address(request)


@pytest.fixture(params=["memory", "s3"])
def object_address(request: pytest.FixtureRequest) -> StoreAddress:
    """Where an object store of each kind is to be made."""
    return _object_address(request)


def _object_address(request: pytest.FixtureRequest) -> StoreAddress:
    name = uuid.uuid4().hex
    if request.param == "memory":
        return StoreAddress(url=f"memory://{name}")
    options = request.getfixturevalue("s3_options")
    return StoreAddress(url=f"s3://backups/{name}", storage_options=options)
