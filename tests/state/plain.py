"""Every primitive as a plain dict with all its operations: what the real ones are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

Content = dict[Any, dict[str, Any]]
"""Values by column, by key: as ``tether.testing.oracle.content`` gives them."""
Items = list[tuple[Any, dict[str, Any]]]
"""A key and the values given for it, one item after the other."""


class Plain:
    """What one primitive means: how its content changes, and what its backups hold.

    It keeps nothing: contents go in and come out, so that several can be taken along side by side.

    Args:
        spec: The primitive's stored description.
        size: Number of values of a vector or matrix.
    """

    def __init__(self, spec: Mapping[str, Any], size: int = 0) -> None:
        self._kind, self._size = spec["kind"], size
        kinds = spec.get("values", {})
        self._starts = {
            name: float(text) if kinds[name] == "float64" else int(text)
            for name, text in {**dict.fromkeys(kinds, "0"), **spec.get("starts", {})}.items()
        }
        self._flags = {name for name, kind in kinds.items() if kind == "uint8"}

    def empty(self) -> Content:
        """What it holds at first."""
        if self._kind in ("number", "object"):
            return {(): {"value": 0}}
        return {at: {"value": 0} for at in range(self._size)}

    def changed(self, content: Content, operation: str, items: Items) -> Content:
        """What an operation makes of a content."""
        after = {key: dict(row) for key, row in content.items()}
        for key, given in items:
            if operation == "discard":
                after.pop(key, None)
                continue
            row = after.setdefault(key, dict(self._starts))
            for name, value in given.items():
                row[name] = self._combined(operation, name, row.get(name, 0), value)
        return after

    def _combined(self, operation: str, name: str, old: Any, value: Any) -> Any:
        if operation == "put":
            return value
        if operation == "minimum":
            return min(old, value)
        if operation == "maximum" or name in self._flags:
            return max(old, value)
        return old + value

    def written(self, backup: Content, batches: list[pa.RecordBatch]) -> Content:
        """What backups hold of it once a further part of them is written."""
        content = self.empty() if is_full(batches) else dict(backup)
        for batch in batches:
            for at, row in enumerate(batch.to_pylist()):
                self._take(content, at, row)
        return content

    def _take(self, content: Content, at: int, row: dict[str, Any]) -> None:
        if self._kind == "number":
            content[()] = row
        elif self._kind == "object":
            content[()] = {"value": int(row["image"])}
        elif self._size:
            content[row.get("index", at)] = {"value": row["value"]}
        elif self._kind == "set":
            if row.get("member", True):
                content[row["k"],] = {"member": 1}
            else:
                content.pop((row["k"],), None)
        else:
            content[row.pop("k"),] = row


def is_full(batches: list[pa.RecordBatch]) -> bool:
    """Whether a part of a backup says that it replaces all earlier ones."""
    return bool(batches[0].schema.metadata[b"tether.part"] == b"full")
