"""The manifest: to which query and program a backup belongs.

Stored state can be used only by the program that it belongs to. The manifest keeps a fingerprint of
program, state schema, slot counts, policy and keys in named parts. So a changed program gets an error
that says what changed and what to do, instead of wrong state. It is JSON that people can read. It has a
checksum, because an unnoticed change of ``first_epoch``, for example, would change the state.
"""

import time
from collections.abc import Collection, Mapping
from importlib import metadata
from typing import Any

import msgspec

from tether.backup.sealed import seal, unseal
from tether.core.errors import BackupUnreadableError, BadValueError, ChangedProgramError
from tether.core.ids import Epoch

FORMAT = 3
"""The layout of a store that this version of Tether reads and writes. Older layouts did not contain the
cost of each loss, and missing records could not be noticed, so no correct bound could be computed from
them."""

ADVICE = {
    "program": "If the new code means the same by its state, allow the change of 'program'.",
    "state": "The stored state does not fit the new schema: undo it, or start in an empty directory.",
    "slots": "State is placed by key in slots: restore the old parallelism, or allow the change of "
    "'slots' and it is split by key.",
    "policy": "If the new bound is meant, allow the change of 'policy'.",
    "keys": "State was placed by the old keys: restore them, or start in an empty directory.",
}
"""What to do about each part of a fingerprint that has changed."""

_LONGEST_SHOWN = 120


class StoredOperator(msgspec.Struct, frozen=True, kw_only=True):
    """What must be known of an operator to divide its state while no program runs."""

    refused: str
    """Why its state cannot be divided by key; empty if it can."""
    recovery: str
    """Name of the policy's recovery strategy."""
    senders: tuple[str, ...] = ()
    """Operators whose rows reach it, directly or through others."""
    alike: dict[str, str] = {}
    """Numbers that are merged over all slots when the number of slots changes, each by "max" or
    "min"."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of a store.

    Example:
        >>> manifest = Manifest.new(query_id="q", first_epoch=0, fingerprint={"slots": {"sum": 4}})
        >>> decode_manifest(encode_manifest(manifest)) == manifest
        True
    """

    format: int
    tether_version: str
    """Version of Tether that created the store."""
    query_id: str
    first_epoch: Epoch
    """First epoch that the query ever ran on this store."""
    created_at: float
    """Unix seconds."""
    fingerprint: dict[str, Any]
    """Plain JSON values by part: ``program``, ``state``, ``slots``, ``policy``, ``keys``."""
    operators: dict[str, StoredOperator] = {}
    moved: dict[str, int] = {}
    """The current number of slots of operators whose number was changed by a command. The fingerprint
    contains the program's number."""
    moving: dict[str, int] = {}
    """The new numbers of a change that has begun; the commit log shows whether it is finished."""

    @classmethod
    def new(
        cls, *, query_id: str, first_epoch: Epoch, fingerprint: Mapping[str, Any]
    ) -> "Manifest":
        """A manifest for a store that is created now.

        Raises:
            BadValueError: the fingerprint holds values that JSON has no form for.
        """
        return cls(
            format=FORMAT,
            tether_version=_tether_version(),
            query_id=query_id,
            first_epoch=first_epoch,
            created_at=time.time(),
            fingerprint=_plain(fingerprint),
        )


class _FormatOnly(msgspec.Struct):
    format: int


def encode_manifest(manifest: Manifest) -> bytes:
    """Indented JSON with a checksum, and a newline at its end."""
    return seal(manifest)


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest.

    Raises:
        BackupUnreadableError: not a manifest, or one of a newer format.
    """
    try:
        # First the format alone: a newer one may have any other fields.
        found = msgspec.json.decode(data, type=_FormatOnly).format
        manifest = msgspec.convert(unseal(data), Manifest) if found == FORMAT else None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BackupUnreadableError(
            "The manifest of the backup directory cannot be read.",
            why=f"It is damaged or is not a manifest: {error}.",
            do="Restore manifest.json from a copy, or start again in an empty backup directory.",
        ) from error
    if manifest is None:
        older = found < FORMAT
        raise BackupUnreadableError(
            f"The backup directory has format {found}.",
            why=f"This version of Tether ({_tether_version()}) reads format {FORMAT} only."
            + " An older one does not say what each loss cost, nor whether it is all there."
            * older,
            do="Use the version of Tether that wrote it, or start with an empty backup directory "
            "and Spark checkpoint."
            if older
            else "Use the version of Tether that wrote it, or a newer one.",
        )
    return manifest


def check_manifest(
    stored: Manifest, wanted: Manifest | Mapping[str, Any], allow: Collection[str] = ()
) -> None:
    """Refuse to continue with another program's state.

    Args:
        stored: The manifest in the store.
        wanted: The manifest, or just the fingerprint, of the program about to run.
        allow: Parts whose change the user has declared harmless.

    Raises:
        ChangedProgramError: names each part that changed, old → new, and what to do.
        BadValueError: ``allow`` names a part that does not exist.

    Example:
        >>> stored = Manifest.new(query_id="q", first_epoch=0, fingerprint={"slots": {"count": 4}})
        >>> check_manifest(stored, {"slots": {"count": 4}})
        >>> check_manifest(stored, {"slots": {"count": 8}})
        Traceback (most recent call last):
        ...
        tether.core.errors.ChangedProgramError: The backup was written by a program that differs \
in: slots. Why: slots.count: 4 → 8. What to do: State is placed by key in slots: restore the old \
parallelism, or allow the change of 'slots' and it is split by key. Or start with an empty backup \
directory and Spark checkpoint.
    """
    old = stored.fingerprint
    new = _plain(wanted.fingerprint if isinstance(wanted, Manifest) else wanted)
    unknown = sorted(set(allow) - old.keys() - new.keys() - ADVICE.keys())
    if unknown:
        raise BadValueError(
            f"There is no part {', '.join(map(repr, unknown))} of a program to allow changes of.",
            do=f"Use names out of: {', '.join(sorted(old.keys() | new.keys() | ADVICE.keys()))}.",
        )
    changed = [
        part
        for part in sorted(old.keys() | new.keys())
        if part not in allow and old.get(part) != new.get(part)
    ]
    if changed:
        differences = [line for part in changed for line in _differences(part, old, new)]
        advice = [ADVICE[part] for part in changed if part in ADVICE]
        raise ChangedProgramError(
            f"The backup was written by a program that differs in: {', '.join(changed)}.",
            why="; ".join(differences) + ".",
            do=" ".join([*advice, "Or start with an empty backup directory and Spark checkpoint."]),
        )


def _differences(part: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, after = old.get(part), new.get(part)
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
        return [f"{part}.{key}: {_shown(before, key)} → {_shown(after, key)}" for key in keys]
    return [f"{part}: {_shown(old, part)} → {_shown(new, part)}"]


def _shown(values: Mapping[str, Any], key: str) -> str:
    if key not in values:
        return "absent"
    text = msgspec.json.encode(values[key]).decode()
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def _plain(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    # As JSON returns it, so that a tuple equals the list that was stored.
    try:
        return msgspec.json.decode(msgspec.json.encode(dict(fingerprint)), type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise BadValueError(
            "The fingerprint of the program cannot be stored.",
            why=str(error),
            do="Describe operators, states and policies by plain numbers, texts and lists.",
        ) from error


def _tether_version() -> str:
    try:
        return metadata.version("tether")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "unknown"
