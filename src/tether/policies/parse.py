"""Policies from a line of text, as the CLI takes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tether.core.errors import BadValueError
from tether.core.windows import Decaying, Hopping, Sliding, Unit, Window
from tether.policies.approximate import Approximate
from tether.policies.barrier import Barrier
from tether.policies.mini_batch import MiniBatch
from tether.policies.no_tolerance import NoTolerance
from tether.policies.partially_active import PartiallyActive
from tether.policies.upstream_backup import UpstreamBackup

if TYPE_CHECKING:
    from tether.policies.policy import Policy

_KINDS: dict[str, type[Hopping | Sliding | Decaying]] = {
    "hopping": Hopping,
    "sliding": Sliding,
    "decaying": Decaying,
}
_UNITS: dict[str, Unit] = {
    "s": "seconds",
    "seconds": "seconds",
    "items": "items",
    "epochs": "epochs",
}
_WINDOW = re.compile(r"(?P<kind>[a-z]+):(?P<length>[0-9.eE+]+?)(?P<unit>s|seconds|items|epochs)")
_NUMBERS = (
    *("max_state_error", "max_lost_items", "max_unacked_items"),
    *("early", "backup_target", "rounding"),
)
_SAMPLE = "approximate:max_state_error=1000,window=hopping:60s"
_INTERVAL = re.compile(r"(?P<length>[0-9.eE+]+?)(?P<unit>s|seconds|epochs|)")
_SETTINGS = {
    "approximate": (*_NUMBERS, "window", "heal", "heal_on"),
    "barrier": ("interval", "mode", "patience", "meanwhile", "strategy"),
    "partially-active": (
        *("copies", "share", "planner", "standby", "adapt"),
        *("interval", "mode", "patience", "meanwhile", "strategy"),
    ),
    "upstream-backup": ("state_every", "of_items", "most_items"),
}


def parse_policy(text: str) -> Policy:
    """Read a policy from ``name`` or ``name:setting=value,setting=value``.

    Names: ``no-tolerance`` (or ``none``), ``mini-batch``, ``upstream-backup``, ``barrier``,
    ``partially-active`` (with the barrier's interval, mode and patience), ``approximate``. The
    settings are those of the policy's class. A window is ``hopping:60s``, ``sliding:5000items``,
    ``decaying:20epochs`` or ``none``; a barrier's interval ``10epochs`` or ``2s``; ``heal`` of an
    approximate one, the interval at which exact states are saved, too.

    Example:
        >>> parse_policy("approximate:max_state_error=1e3,window=sliding:20epochs").budget
        Budget(max_state_error=1000.0, max_lost_items=0.0, max_unacked_items=0.0)
        >>> parse_policy("mini-batch")
        MiniBatch()
        >>> parse_policy("barrier:interval=2s,mode=sync").describe()["interval"]
        2.0
        >>> parse_policy("barrier:interval=10epochs,meanwhile=stale").meanwhile
        'stale'
        >>> parse_policy("approximate:max_state_error=9,heal=30epochs").heal.interval
        30
        >>> parse_policy("aproximate:max_state_error=1")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        tether.core.errors.BadValueError: 'aproximate' is no policy. Why: ...
    """
    name, _, rest = text.strip().partition(":")
    settings = parse_settings(rest)
    if name in ("no-tolerance", "none", "mini-batch"):
        if settings:
            raise BadValueError(
                f"{name} does not take {', '.join(settings)}.",
                why="This policy has no settings.",
                do=f"Write just {name}, or see {_SAMPLE}.",
            )
        return MiniBatch() if name == "mini-batch" else NoTolerance()
    if name not in _SETTINGS:
        raise BadValueError(
            f"{name!r} is no policy.",
            why="The policies are approximate, mini-batch, upstream-backup, barrier, "
            "partially-active and no-tolerance.",
            do=f"Write for example {_SAMPLE}.",
        )
    if name == "approximate" and "max_state_error" not in settings:
        raise BadValueError(
            "approximate needs max_state_error.",
            why="Without it there is no bound to keep; no default would fit every state.",
            do=f"Write for example {_SAMPLE}.",
        )
    values: dict[str, Any] = {}
    for key, value in settings.items():
        values |= _value(name, key, value)
    if name == "barrier":
        return Barrier(**values)
    if name == "partially-active":
        return _partially_active(values)
    return UpstreamBackup(**values) if name == "upstream-backup" else Approximate(**values)


def _partially_active(values: dict[str, Any]) -> PartiallyActive:
    copies = values.pop("copies", None)
    chosen: dict[str, Any] = {
        name: values.pop(name) for name in ("share", "planner", "adapt") if name in values
    }
    standby = values.pop("standby", None)
    for name, number in (("copies", copies), ("standby", standby)):
        if number is not None:
            chosen[name] = int(number) if float(number).is_integer() else number
    return PartiallyActive(**chosen, snapshots=Barrier(**values))


def parse_settings(text: str) -> dict[str, str]:
    """``name=value,name=value`` as a dictionary of texts."""
    found: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise BadValueError(
                f"{part!r} is no setting.",
                why="A setting is written name=value.",
                do=f"Write for example {_SAMPLE}.",
            )
        if key in found:
            raise BadValueError(
                f"{key} is given twice.", why="Only one can count.", do="Leave one of them out."
            )
        found[key] = value
    return found


def _value(policy: str, key: str, text: str) -> dict[str, Any]:
    known = _SETTINGS[policy]
    if key not in known:
        raise BadValueError(
            f"{policy} has no setting {key!r}.",
            why=f"Its settings are {', '.join(known[:-1])} and {known[-1]}.",
            do=f"Write for example {_SAMPLE}.",
        )
    if key == "window":
        return {key: _window(text)}
    if key == "interval":
        return _interval(text)
    if key == "heal":
        return {key: Barrier(**_interval(text))}
    words = ("mode", "meanwhile", "strategy", "planner", "heal_on")
    return {key: text if key in words else parse_number(key, text)}


def _interval(text: str) -> dict[str, Any]:
    match = _INTERVAL.fullmatch(text)
    if match is None:
        raise BadValueError(
            f"{text!r} is no interval.",
            why="An interval is a length and a unit.",
            do="Write for example 10epochs or 2s.",
        )
    by = "seconds" if match["unit"].startswith("s") else "epochs"
    return {"interval": parse_number("interval", match["length"]), "by": by}


def parse_number(key: str, text: str) -> float:
    """A decimal number, or the error that names the setting."""
    try:
        return float(text)
    except ValueError:
        raise BadValueError(
            f"{key}={text} is not a number.",
            why="It is read as a decimal number.",
            do="Write for example 1000, 1e6, 0.5 or inf.",
        ) from None


def _window(text: str) -> Window | None:
    if text == "none":
        return None
    match = _WINDOW.fullmatch(text)
    if match is None or match["kind"] not in _KINDS:
        raise BadValueError(
            f"{text!r} is no window.",
            why="A window is a kind, a length and a unit.",
            do="Write for example hopping:60s, sliding:5000items or decaying:20epochs.",
        )
    return _KINDS[match["kind"]](parse_number("window", match["length"]), _UNITS[match["unit"]])
