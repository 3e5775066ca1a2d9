from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

import fsspec
import pytest

from tether.backup import StoreAddress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, Any]]:
    """A real server that speaks S3, on loopback, with a bucket in it."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    moto_server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "fake", "secret": "fake", "endpoint_url": f"http://{host}:{port}"}
    fsspec.filesystem("s3", **options).mkdir("backups")
    yield options
    server.stop()


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
