"""The options that all operators of ``tether run`` share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tether.cli.choosing import choose, default_slots, show_derivation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tether.cli.choosing import Chosen
    from tether.operator import Operator


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The values of the shared options."""

    policy: Annotated[
        str, typer.Option("--policy", help="For example approximate:max_state_error=1000.")
    ] = "no-tolerance"
    backup: Annotated[
        str | None, typer.Option("--backup", help="Directory or URL of the backups.")
    ] = None
    checkpoint: Annotated[
        str | None, typer.Option("--checkpoint", help="Spark's checkpoint directory.")
    ] = None
    slots: Annotated[
        int | None, typer.Option("--slots", help="Parallel copies of the operator.")
    ] = None
    master: Annotated[str, typer.Option("--master", help="Spark's master URL.")] = "local[2,4]"
    files_per_epoch: Annotated[
        int, typer.Option("--files-per-epoch", help="Files read in one epoch.")
    ] = 1
    answer: Annotated[
        Path | None, typer.Option("--answer", help="Write the answer here, as Parquet.")
    ] = None
    arena_scope: Annotated[str, typer.Option("--arena-scope", help="node or executor.")] = "node"
    accept_damage: Annotated[
        bool,
        typer.Option(
            "--accept-damage",
            help="Go on though commit records of the backup are missing, with an infinite bound.",
        ),
    ] = False
    accuracy: Annotated[
        str | None,
        typer.Option(
            "--accuracy",
            help="An accuracy instead of a policy, for example absolute:max_error=100,of=key.",
        ),
    ] = None
    explain: Annotated[
        bool, typer.Option("--explain", help="Print how the thresholds are derived; run nothing.")
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False
    story: Annotated[
        bool,
        typer.Option("--story", help="With --json: every event of the story, backups included."),
    ] = False

    def choose(self, only: str | None = None) -> Chosen:
        """The policy: the one that is named, or that of an accuracy."""
        return choose(self.policy, self.accuracy, only=only)

    def show(self, chosen: Chosen, operator: Operator, key: list[str]) -> None:
        """Print how the thresholds of an operator are derived."""
        slots = self.slots or default_slots(self.master)
        show_derivation(chosen, operator, key, slots, as_json=self.as_json)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options, and call it with their values in its first argument."""
    first, *own = signature(command, eval_str=True).parameters.values()
    shared = signature(RunOptions, eval_str=True).parameters

    @wraps(command)
    def called(**given: Any) -> None:
        options = RunOptions(**{name: given.pop(name) for name in shared})
        command(**{first.name: options}, **given)

    parameters: list[Parameter] = [*own, *shared.values()]
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    return called
