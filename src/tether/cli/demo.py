"""``tether demo``: why a bound. One stream on a slow store, under Tether and on Spark's own state."""

from __future__ import annotations

import importlib.util
import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pyarrow.parquet as pq
import typer

from tether.cli.demo_data import write_words
from tether.cli.demo_picture import picture
from tether.cli.demo_said import in_words
from tether.cli.demo_side import Job
from tether.cli.demo_talk import SLOTS, Side, scratch
from tether.cli.demo_view import DemoView
from tether.core.errors import BadValueError, TetherError
from tether.testing.judge import Failure, Measure, Told, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tether.testing.judge import Outside

FEWEST = 12
"""Epochs: some to warm up, some to measure, some after the kill."""
WHAT = "the whole job, driver and all"


def demo(
    epochs: Annotated[int, typer.Option(help="Micro-batches to run.")] = 16,
    words: Annotated[int, typer.Option(help="Words in each.")] = 100_000,
    bound: Annotated[
        float, typer.Option(help="Most that any word's count may be wrong by.")
    ] = 4000,
    latency: Annotated[
        float, typer.Option(help="Milliseconds that each request to the store takes.")
    ] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the generated text.")] = 1,
    into: Annotated[Path, typer.Option("--picture", help="Where to save the picture.")] = Path(
        "tether-demo.svg"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count words on a slow store, and kill it half way; see what a bound is good for."""
    if epochs < FEWEST:
        raise BadValueError(f"{epochs} epochs are too few.", do=f"Give at least {FEWEST}.")
    from tether.testing.cluster import free_port  # noqa: PLC0415 - needs PySpark, which most commands do not

    began = time.monotonic()
    with scratch() as name, DemoView(quiet=as_json) as view:
        work = Path(name)
        port = free_port("127.0.0.1") if importlib.util.find_spec("uvicorn") else None
        view.opening(port, epochs * words, epochs, latency)
        truth = write_words(work / "in", epochs=epochs, words_per_epoch=words, seed=seed)
        side = Side(
            name="tether",
            source=str(work / "in"),
            work=str(work / "tether"),
            epochs=epochs,
            latency=latency / 1e3,
            bound=bound,
            # The kill finds an exact state that is some epochs old: so there is something to heal.
            snapshot_every=epochs // 2 - 2,
            port=port,
        )
        result: dict[str, Any] = {
            "words": epochs * words,
            "distinct": truth.num_rows,
            "epochs": epochs,
            "latency_ms": latency,
            "seed": seed,
            "killed": WHAT,
            **_both(side, words, view),
        }
        view.verdict(work, truth, result)
    result["said"] = in_words(result)
    result["picture"] = _saved(into, picture(result))
    result["seconds"] = round(time.monotonic() - began, 1)
    view.closing(result)
    if as_json:
        print(json.dumps(result))
    if outside := [*result["tether"]["outside"], *result["healed"]["outside"]]:
        raise TetherError(
            f"An answer was outside its bound: {outside}.",
            do="Please report it: the bound must hold.",
        )


def _both(side: Side, words: int, view: DemoView) -> dict[str, Any]:
    """Run the stream on one store, then on the other; the answers lie in the jobs' folders."""
    kill_after = side.epochs * 3 // 4
    others = {"name": "spark", "work": str(Path(side.work).parent / "spark"), "port": None}
    view.say(
        f"[bold]1. Tether[/bold], any word wrong by at most {side.bound:,.0f}, and healing. θ is how "
        "far a slot may drift before it is backed up."
    )
    with Job(side, view) as ours:
        figures, counted = ours.survive(kill_after, words)
        view.say("  all words are counted; what was lost is read again …")
        while (event := ours.next("healing", "healed"))["event"] == "healing":
            view.healing(event)
        tether = {
            **msgspec.to_builtins(figures),
            **{name: counted[name] for name in ("spent", "promised", "theta")},
            "healing_when_counted": counted["healing"],
            "recoveries": ours.recoveries,
        }
        # The page stays; its process gives all else back while the other side starts.
        view.say("[bold]2. Spark's own state store[/bold], RocksDB with its changelog")
        with Job(msgspec.structs.replace(side, **others), view) as theirs:
            spark, _ = theirs.survive(kill_after, words)
            theirs.next("done")
        true = _counted(Path(side.source))
        judged = _judged(Path(side.source), true, ours.work / "answer.parquet", tether)
        after = {"spent": event["spent"], "promised": counted["promised"]}
        healed = _judged(Path(side.source), true, ours.work / "healed.parquet", after)
    exact = _answer(theirs.work / "answer.parquet")
    return {
        "tether": tether | judged,
        "healed": after
        | healed
        | {"whole": event["whole"], "seconds": event["at"] - figures.killed},
        "spark": {**msgspec.to_builtins(spark), "worst_error": _error(true, exact)},
    }


def _counted(source: Path) -> Counter[str]:
    """The truth, from the rows themselves."""
    counted: Counter[str] = Counter()
    for file in sorted(source.glob("*.parquet")):
        counted.update(pq.read_table(file)["word"].to_pylist())
    return counted


def _answer(file: Path) -> dict[str, int]:
    answer = pq.read_table(file)
    return dict(zip(answer["word"].to_pylist(), answer["count"].to_pylist(), strict=True))


def _error(true: Mapping[str, int], found: Mapping[str, int]) -> int:
    return int(Measure("max").distance(true, found))


def _judged(
    source: Path, true: Mapping[str, int], file: Path, told: Mapping[str, float]
) -> dict[str, Any]:
    """The worst error of any word, and what a judge that shares no code with the job has against it."""
    found = _answer(file)
    said = Told(epoch=0, answer={"": found}, spent=told["spent"], ceiling=float(told["promised"]))
    lost = [Failure(epoch=0, what=WHAT)] * SLOTS
    outside: list[Outside] = judge(
        [source], lambda _: [{"": dict(true)}], lost, [said], {"": Measure("max")}
    ).outside
    return {"worst_error": _error(true, found), "outside": [str(one) for one in outside]}


def _saved(into: Path, text: str) -> str | None:
    """Where the picture is; None where nothing can be written."""
    try:
        into.write_text(text, encoding="utf-8")
    except OSError:
        return None
    return str(into)
