"""All streams of one gateway, and the folder that they live in."""

from __future__ import annotations

import os
import re
import threading
import uuid
import zlib
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tether.backup.files import check_private, make_folder, open_file, replace_durably, try_lock
from tether.sources.ddl import arrow_schema
from tether.sources.gateway.errors import (
    BadRowsError,
    BusyError,
    GatewayError,
    StoreFailedError,
    UnknownStreamError,
)
from tether.sources.gateway.rows import plain_schema, same_schema
from tether.sources.gateway.stream import GatewayStream

if TYPE_CHECKING:
    from tether.sources.gateway.config import GatewayConfig

FORMAT = 1
LONGEST_ID = 1000
"""Characters of a producer's id, which each mark and each saved run names."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")


def check_id(producer: str) -> None:
    """Refuse an id that is too long to be written beside every batch."""
    if len(producer) > LONGEST_ID:
        raise BadRowsError(
            f"A producer's id of {len(producer)} characters is too long.",
            do=f"Give it at most {LONGEST_ID}.",
        )


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    store: str


class Gateway:
    """The streams of one store; a gateway that is opened holds the store's lock.

    Args:
        config: Its settings.

    Raises:
        GatewayError: Another gateway holds the store, or its format is not known.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._streams: dict[str, GatewayStream] = {}
        self.peers: tuple[str, ...] = ()
        """Addresses of all processes of the gateway, this one among them; none: it is alone."""
        try:
            make_folder(config.store)
            check_private(config.store)
            if (config.store / "parts.json").is_file():
                parts = (config.store / "parts.json").read_text(encoding="utf-8")
                raise GatewayError(
                    f"The store {config.store} was made by several processes.",
                    why="Each producer's numbers are with one of them.",
                    do=f"Start it with --processes {parts}, or name another folder.",
                )
            self._held = open_file(config.store / "lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StoreFailedError(
                f"The store {config.store} cannot be used.",
                why=str(error),
                do="Name a folder that this user may write to.",
            ) from error
        if not try_lock(self._held):
            raise GatewayError(
                f"Another gateway uses the store {config.store}.",
                why="Two would give the same numbers to different items.",
                do="Stop that one, or name another folder.",
            )
        self.store = self._identify()
        for folder in sorted((config.store / "streams").glob("*")):
            if (folder / "schema").is_file():
                self._open(
                    folder.name, pa.ipc.read_schema(pa.py_buffer((folder / "schema").read_bytes()))
                )
        for name, text in config.streams.items():
            self.create(name, arrow_schema(text))

    def _identify(self) -> str:
        path = self.config.store / "gateway.json"
        if not path.is_file():
            manifest = _Manifest(format=FORMAT, store=uuid.uuid4().hex)
            replace_durably(path, msgspec.json.encode(manifest))
            return manifest.store
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=_Manifest)
        except msgspec.DecodeError as error:
            raise GatewayError(
                f"{path} cannot be read.", why=str(error), do="Put it back as it was."
            ) from error
        if manifest.format != FORMAT:
            raise GatewayError(
                f"The store {self.config.store} has format {manifest.format}.",
                why=f"This version reads format {FORMAT}.",
                do="Use the version that wrote it.",
            )
        return manifest.store

    def create(self, name: str, schema: pa.Schema) -> GatewayStream:
        """A stream of this name and schema; one that is there must have the same schema."""
        if not _NAME.match(name):
            raise BadRowsError(
                f"{name!r} cannot be the name of a stream.",
                do="Use up to 100 letters, digits, dots, hyphens and underscores.",
            )
        schema = plain_schema(schema)
        with self._lock:
            if name in self._streams:
                same_schema(name, self._streams[name].schema, schema)
                return self._streams[name]
            folder = self.config.store / "streams" / name
            make_folder(folder)
            # Only now is it a stream: a crash before this leaves an empty folder.
            replace_durably(folder / "schema", schema.serialize().to_pybytes())
            return self._open(name, schema)

    def _open(self, name: str, schema: pa.Schema) -> GatewayStream:
        folder = self.config.store / "streams" / name
        self._streams[name] = GatewayStream(name, schema, folder, self.config, self.store)
        return self._streams[name]

    def stream(self, name: str) -> GatewayStream:
        """A stream that is there.

        Raises:
            UnknownStreamError: There is none of this name.
        """
        try:
            return self._streams[name]
        except KeyError:
            known = ", ".join(sorted(self._streams)) or "none"
            raise UnknownStreamError(
                f"There is no stream {name!r}.",
                why=f"Known are: {known}.",
                do="Start the gateway with --stream 'name=column type, …', or send Arrow rows first.",
            ) from None

    def stream_for(self, name: str, schema: pa.Schema) -> GatewayStream:
        """The stream that rows of a schema go to; a new one where that is allowed."""
        if name in self._streams or not self.config.open:
            stream = self.stream(name)
            same_schema(name, stream.schema, schema)
            return stream
        return self.create(name, schema)

    def owner_of(self, producer: str) -> str | None:
        """Address of the process that has a producer's numbers; None: this one."""
        if self.config.parts == 1:
            return None
        if not self.peers:
            raise BusyError("The gateway is being started.", do="Connect again in a moment.")
        part = zlib.crc32(producer.encode()) % self.config.parts
        return None if part == self.config.part else self.peers[part]

    def streams(self) -> list[GatewayStream]:
        """All streams, by name."""
        return [self._streams[name] for name in sorted(self._streams)]

    def close(self) -> None:
        """End in good order: nothing is at risk afterwards.

        Raises:
            StoreFailedError: A stream's items could not be made durable; all other streams' are.
        """
        failed: StoreFailedError | None = None
        with self._lock:
            for stream in self._streams.values():
                try:
                    stream.close()
                except StoreFailedError as error:
                    failed = error
            os.close(self._held)
        if failed is not None:
            raise failed
