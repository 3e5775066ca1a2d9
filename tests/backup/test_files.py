"""Reading and writing plain files, where the kernel does less than it was asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tether.backup.files import read_exactly

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_read_that_the_kernel_cuts_short_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, into, offset: whole(file, [into[0][:3]], offset))
    content = bytes(range(10))
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file:
        target = bytearray(8)
        assert read_exactly(file.fileno(), memoryview(target), 1) == 8
        assert target == content[1:9]
        assert read_exactly(file.fileno(), memoryview(target), 6) == 4  # the file ends there
        assert target[:4] == content[6:]
