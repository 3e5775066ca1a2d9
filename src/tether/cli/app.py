"""The command's entry: one subcommand a module, errors as one clear paragraph."""

from __future__ import annotations

import sys

try:
    import typer
except ModuleNotFoundError:  # pragma: no cover - depends on how the package was installed
    sys.exit("The tether command needs its extra: pip install 'tether[cli,spark]'")

from tether import __version__
from tether.cli.bench import bench
from tether.cli.demo import demo
from tether.cli.drill import drill
from tether.cli.gateway import gateway
from tether.cli.inspect import inspect
from tether.cli.plan import plan
from tether.cli.replica import replica
from tether.cli.rescale import rescale
from tether.cli.run import run
from tether.cli.simulate import simulate
from tether.cli.ui import ui
from tether.core.errors import TetherError

app = typer.Typer(
    help="Bounded-error fault tolerance for Spark streams.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.add_typer(run, name="run")
app.command()(inspect)
app.add_typer(drill, name="drill")
app.command()(bench)
app.command()(plan)
app.command()(rescale)
app.command()(simulate)
app.command()(gateway)
app.command()(replica)
app.command()(ui)


@app.command()
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """Run the command; a deliberate error is printed without a trace and ends with status 1."""
    try:
        app()
    except TetherError as error:
        print(f"error [{error.code}]: {error.what}", file=sys.stderr)
        if error.why:
            print(f"  why: {error.why}", file=sys.stderr)
        if error.do:
            print(f"  what to do: {error.do}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
