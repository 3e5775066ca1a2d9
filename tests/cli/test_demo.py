"""The demo's pieces: a job follows its stream, figures are made of ends of epochs, words of figures."""

from __future__ import annotations

import copy
import io
import json
import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import pytest

from tether.cli import demo_job, demo_view
from tether.cli.demo import _judged
from tether.cli.demo_picture import picture
from tether.cli.demo_said import in_words
from tether.cli.demo_side import WARM_UP, figures
from tether.cli.demo_talk import EpochEnd


class Query:
    """Runs an epoch between two looks; its twin is still at work, or it has failed."""

    def __init__(self, failure: Exception | None = None):
        self._failure, self._done = failure, 0

    def _report(self, number: int) -> dict[str, Any]:
        return {
            "batchId": number,
            "timestamp": "2026-01-01T00:00:01.000Z",
            "numInputRows": 5,
            "durationMs": {"triggerExecution": 400},
            # The first epoch has two files.
            "sources": [{"endOffset": f'{{"logOffset":{number + 1}}}'}],
        }

    @property
    def lastProgress(self):  # noqa: N802 - Spark's name
        self._done += 2
        return self._report(self._done - 1)

    @property
    def recentProgress(self):  # noqa: N802 - Spark's name
        return [self._report(number) for number in range(self._done)]

    feed = SimpleNamespace(
        history=SimpleNamespace(
            newest=SimpleNamespace(fullness=0.5, spent=0.0, state="healing"),
        )
    )

    def story(self):
        return []

    def exception(self):
        return self._failure


def test_a_job_is_followed_until_all_files_are_in_and_no_epoch_is_missed(capsys, monkeypatch):
    monkeypatch.setattr(demo_job, "LOOK_SECONDS", 0)
    demo_job.follow(Query(), 6)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["files"] for one in told] == [3, 5, 7]
    assert [end[0] for one in told for end in one["ends"]] == [0, 1, 2, 3, 4, 5]
    assert (told[0]["fullness"], told[0]["healing"]) == (0.5, True)


def test_a_job_fails_with_its_query(monkeypatch):
    monkeypatch.setattr(demo_job, "LOOK_SECONDS", 0)
    with pytest.raises(ZeroDivisionError):
        demo_job.follow(Query(ZeroDivisionError()), 6)


def ends(count: int, ms: float, pause: float, kill: int) -> list[EpochEnd]:
    """Epochs of equal length; the one after the kill waits."""
    at, found = 100.0, []
    for number in range(count):
        took = ms / 1e3 + (pause if number == kill else 0)
        at += took
        found.append(EpochEnd(number, at, took * 1e3))
    return found


def test_figures_are_those_of_the_epochs_before_the_kill():
    told = ends(12, 500, 4, 8)
    killed = told[7].at + 0.1
    slow_first = [told[0]._replace(ms=9_000.0), *told[1:]]
    found = figures(slow_first, killed, 3.0, 1_000, 7.5, 123)
    assert found.epoch_ms == 500
    assert found.rows_per_second == 2_000
    assert found.pause == pytest.approx(4.4)
    assert WARM_UP < 8


def result() -> dict[str, Any]:
    def side(ms: float, pause: float, written: int) -> dict[str, Any]:
        told = ends(24, ms, pause, 18)
        return {
            "rows_per_second": 160_000 / ms * 1e3,
            "epoch_ms": ms,
            "requests_per_epoch": ms / 50,
            "bytes_written": written,
            "pause": pause,
            "up_again": 1.0,
            "started": 100.0,
            "killed": told[17].at + 0.01,
            "ends": [list(one) for one in told],
        }

    ours = {
        "spent": 1000.0,
        "promised": 4000.0,
        "theta": 500.0,
        "worst_error": 996,
        "outside": [],
        "healing_when_counted": True,
    }
    return {
        "words": 3_840_000,
        "epochs": 24,
        "latency_ms": 50.0,
        "tether": side(500, 1.5, 4_000_000) | ours,
        "spark": side(1_000, 6, 20_000_000) | {"worst_error": 0},
        "healed": {"spent": 0.0, "worst_error": 0, "outside": [], "whole": True, "seconds": 8.25},
    }


def test_words_say_what_was_measured():
    speed, written, pause, error, healing = in_words(result())
    assert "2.0 times as fast" in speed
    assert "4.0 MB, 5.0 times less" in written
    assert "Spark's stream stood still for 6.0 s, Tether's for 1.5 s: 4.0 times shorter" in pause
    assert "wrong by 996" in error
    assert "at most 1,000 now, and never by more than 4,000. The bound held." in error
    assert "Spark's was exact." in error
    assert "8.2 s after the kill" in healing
    assert "error 0, bound 0" in healing


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        ({"tether": {"rows_per_second": 1.0}}, 0, "times slower"),
        ({"tether": {"bytes_written": 20_100_000}}, 1, "about the same"),
        ({"tether": {"pause": 60.0}}, 2, "10.0 times longer"),
        ({"tether": {"outside": ["epoch 3"]}}, 3, "OUTSIDE ITS BOUND"),
        ({"spark": {"worst_error": 5}}, 3, "Spark's was wrong by 5"),
        ({"healed": {"whole": False}}, 4, "not been read again in time"),
        ({"healed": {"worst_error": 3}}, 4, "an error of 3"),
        ({"tether": {"healing_when_counted": False}}, 4, "before the last epoch"),
    ],
)
def test_words_say_it_too_where_it_went_badly(change, line, said):
    told = copy.deepcopy(result())
    for part, values in change.items():
        told[part] |= values
    assert said in in_words(told)[line]


def test_the_picture_has_both_sides_and_is_well_formed():
    drawn = ET.fromstring(picture(result()))
    kinds = [one.get("class") for one in drawn.iter()]
    assert kinds.count("ours") == kinds.count("theirs") == 2  # a line, and its key
    assert kinds.count("pause") == kinds.count("kill") == 2
    said = " ".join("".join(one.itertext()) for one in drawn.iter())
    assert "silent for 6.0 s" in said
    assert "wrong by 996 (told: at most 1,000), healed: 0" in said


@pytest.mark.parametrize(("width", "terminal"), [(56, True), (120, True), (80, False)])
def test_every_line_fits_the_terminal_and_no_word_of_a_table_is_cut(
    width, terminal, tmp_path, monkeypatch
):
    import pyarrow as pa
    import pyarrow.parquet as pq
    from rich.console import Console

    truth = pa.table({"word": ["ka", "lokami"], "count": [123_456, 5]})
    for name in ("tether/answer", "tether/healed", "spark/answer"):
        file = tmp_path / f"{name}.parquet"
        file.parent.mkdir(exist_ok=True)
        pq.write_table(truth, file)
    out = io.StringIO()
    monkeypatch.setattr(
        demo_view, "Console", lambda **_: Console(file=out, width=width, force_terminal=terminal)
    )
    told = result() | {"picture": "demo.svg", "seconds": 99.0}
    view = demo_view.DemoView(quiet=False)
    with view:
        view.opening(4060, told["words"], told["epochs"], told["latency_ms"])
        now = {"files": 3, "fullness": 0.5, "spent": 0.0, "written": 1_200_000, "healing": False}
        view.progress("tether", now, 24, 160_000)
        view.verdict(tmp_path, truth, told)
        view.closing(told | {"said": in_words(told)})
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n")
    assert "wrong by at most 0" in said
    assert "0k words" not in said  # no rate is known before a second look
    assert "123,456" in said
    assert "exact" in said
    if terminal:
        assert max(map(len, said.splitlines())) <= width
        assert "…" not in said.partition("true")[2]
    else:
        assert "\x1b" not in out.getvalue()


def test_a_pause_is_no_part_of_the_pace(monkeypatch):
    view = demo_view.DemoView(quiet=True)
    for killed, done, at in ((False, 3, 1), (False, 4, 2), (True, 5, 40), (False, 6, 41)):
        monkeypatch.setattr(demo_view.time, "monotonic", lambda at=at: float(at))
        if killed:
            view.killing(4)
        rate = view._rate(done)
    assert rate == 1.0


def test_an_answer_beyond_what_was_told_is_found(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    answer = pa.table({"word": ["a", "b"], "count": [7, 5]})
    pq.write_table(answer, tmp_path / "answer.parquet")
    true = {"a": 10, "b": 5}
    within = {"spent": 3.0, "promised": 4.0}
    assert _judged(tmp_path, true, tmp_path / "answer.parquet", within) == {
        "worst_error": 3,
        "outside": [],
    }
    told = {"spent": 2.0, "promised": 4.0}
    assert _judged(tmp_path, true, tmp_path / "answer.parquet", told)["outside"]
