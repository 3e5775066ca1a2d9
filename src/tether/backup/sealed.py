"""Small JSON files with a checksum: people can read them, and any change is noticed."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec

CHECKSUM = "checksum"


def seal(value: object) -> bytes:
    """An object as indented JSON, with a checksum as its last field and a newline at its end.

    Example:
        >>> print(seal({"number": 7}).decode().strip())
        {
          "number": 7,
          "checksum": "947f087c"
        }
    """
    plain = msgspec.to_builtins(value)
    return msgspec.json.format(msgspec.json.encode(plain | {CHECKSUM: _checksum(plain)})) + b"\n"


def unseal(data: bytes) -> dict[str, Any]:
    """The fields of a sealed object, without the checksum.

    Raises:
        ValueError: it is not JSON, or not as it was written.

    Example:
        >>> unseal(seal({"number": 7}))
        {'number': 7}
        >>> unseal(seal({"number": 7}).replace(b"7,", b"8,"))
        Traceback (most recent call last):
        ...
        ValueError: its checksum does not match
    """
    try:
        plain = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if plain.pop(CHECKSUM, None) != _checksum(plain):
        raise ValueError("its checksum does not match")
    return plain


def _checksum(plain: dict[str, Any]) -> str:
    return f"{crc32(msgspec.json.encode(plain)):08x}"
