"""What a machine may refuse to tests: small disks, network namespaces."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar

import pytest

from tether.core.errors import TetherError

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


@contextmanager
def or_skip(needed: AbstractContextManager[T]) -> Iterator[T]:
    """Enter what the machine may refuse; skip the test, with its reason, where it does.

    Only entering may skip: an error inside, or at the end, is the test's.
    """
    with ExitStack() as stack:
        try:
            entered = stack.enter_context(needed)
        except TetherError as error:
            pytest.skip(str(error))
        yield entered
