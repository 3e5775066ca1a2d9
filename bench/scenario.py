"""A scenario file: everything that an experiment with peers depends on, in one TOML document.

A file says what is computed, over which data, by whom, and how often it is measured; values that make
no sense are refused before anything runs. Its table ``[quick]`` holds what ``--quick`` changes, and
``[vary]`` names one field with a list of values, each of which makes a variant.
"""

from __future__ import annotations

import math
import tomllib
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from tether.core.errors import BadValueError

if TYPE_CHECKING:
    from pathlib import Path

Positive = Annotated[int, msgspec.Meta(ge=1)]
LOADED_AT_ONCE = 1_000_000
"""Keys that one loading epoch brings in."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One workload, and the contenders that it is measured with.

    Args:
        name: Shown in reports; unique among scenarios.
        algorithm: What is computed; see ``bench.questions``.
        contenders: Ids out of ``bench.contenders``, in the order of the first round.
        rows: Rows in a measured epoch.
        keys: Keys (words, flows) there are; all of them are resident before the measuring begins.
        touched: Distinct keys that an epoch draws its rows from; 0: from all. Uniform data only.
        distribution: How often each key comes.
        skew: Of the Zipf distribution.
        columns: Value columns to sum, or features of a model.
        k: Items that top-k asks for.
        panes: Length of top-k's window, in epochs.
        slots: Slots, shuffle partitions, or parallelism of a peer.
        epochs: Measured epochs.
        warm_up: Epochs before them, not counted.
        budget: Θ of the operators, as a number of epochs' whole drift; ``inf`` never backs up. Half
            of it is for the first failure, so the default makes a backup due every third epoch: a
            run that never backs up would measure no tolerance at all. Heavy hitters, join and
            logistic regression have their papers' Θ instead.
        changed_rows: Θ of the bounded state store, in changed rows.
        interval: Seconds between checkpoints of a peer that has such a setting.
        store_latency: Seconds that each request to the backup or checkpoint directory takes longer.
        python_share: Part of the rows that contenders with a Python call for each row or key get;
            what is compared is the time per row.
        repeats: Rounds.
        seed: Of the data; the command's ``--seed`` is added to it.

    Example:
        >>> Scenario(name="small", algorithm="keyed-sum", contenders=["polars"], rows=10).slots
        2
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[\w .,×-]+$")]
    algorithm: Literal[
        "keyed-sum", "word-count", "heavy-hitters", "top-k", "join", "logistic-regression"
    ]
    contenders: Annotated[list[str], msgspec.Meta(min_length=1)]
    rows: Positive
    keys: Positive = 100_000
    touched: Annotated[int, msgspec.Meta(ge=0)] = 0
    distribution: Literal["uniform", "zipf"] = "uniform"
    skew: Annotated[float, msgspec.Meta(gt=0, le=4)] = 1.0
    columns: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    k: Positive = 100
    panes: Positive = 6
    slots: Positive = 2
    epochs: Positive = 12
    warm_up: Annotated[int, msgspec.Meta(ge=0)] = 2
    budget: Annotated[float, msgspec.Meta(gt=0)] = 6.0
    changed_rows: Annotated[float, msgspec.Meta(ge=0)] = 500_000.0
    interval: Annotated[float, msgspec.Meta(ge=0.1, le=600)] = 1.0
    store_latency: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.0
    python_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.1
    repeats: Positive = 3
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        if self.touched > self.keys:
            raise ValueError(f"touched={self.touched} is more than there are keys ({self.keys})")
        if self.touched and self.distribution != "uniform":
            raise ValueError("touched goes with the uniform distribution only")
        if len(set(self.contenders)) != len(self.contenders):
            raise ValueError("a contender is named twice")

    @property
    def loading(self) -> int:
        """Epochs that bring in every key before the warm-up; only a keyed sum has them."""
        return max(2, -(-self.keys // LOADED_AT_ONCE)) if self.algorithm == "keyed-sum" else 0

    @property
    def uncounted(self) -> int:
        """Epochs before the first measured one."""
        return self.loading + self.warm_up

    @property
    def total_epochs(self) -> int:
        """All epochs: loading, warm-up, measured."""
        return self.uncounted + self.epochs

    def plain(self) -> dict[str, Any]:
        """For reports, and to recognise results of the same scenario."""
        return {name: _shown(value) for name, value in msgspec.to_builtins(self).items()}


def _shown(value: Any) -> Any:
    # JSON has no infinity.
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def read_scenarios(path: Path, *, quick: bool = False) -> list[Scenario]:
    """The scenario of a file; several where it varies a field.

    Args:
        path: A TOML file.
        quick: Apply its table ``[quick]``.

    Raises:
        BadValueError: The file is not there, is no TOML, or holds a value that makes no sense.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        known = ", ".join(sorted(p.name for p in path.parent.glob("*.toml"))) or "none"
        raise BadValueError(
            f"The scenario {path} cannot be read.",
            why=f"{error.strerror}.",
            do=f"Name a TOML file; beside it are: {known}.",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValueError(f"The scenario {path} is no TOML file.", why=f"{error}.") from error
    short, vary = content.pop("quick", {}), content.pop("vary", {})
    if not isinstance(short, dict) or not isinstance(vary, dict):
        raise _refused(path, "quick and vary are tables")
    if quick:
        vary |= short.pop("vary", {})
        content |= short
    try:
        return [msgspec.convert(one, Scenario) for one in _variants(content, vary)]
    except (msgspec.ValidationError, ValueError) as error:
        raise _refused(path, str(error)) from error


def _variants(content: dict[str, Any], vary: dict[str, Any]) -> list[dict[str, Any]]:
    if not vary:
        return [content]
    if len(vary) != 1 or not isinstance(next(iter(vary.values())), list):
        raise ValueError("vary holds one field with a list of values")
    ((field, values),) = vary.items()
    base = content.get("name", "")
    return [{**content, field: value, "name": f"{base}, {field} {value}"} for value in values]


def _refused(path: Path, why: str) -> BadValueError:
    fields = ", ".join(Scenario.__struct_fields__)
    return BadValueError(
        f"The scenario {path.name} is not valid.",
        why=f"{why}.",
        do=f"Correct it. Fields are: {fields}; tables are: quick, vary.",
    )
