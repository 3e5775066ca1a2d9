"""Cutting Spark's logs back, on directories like those that Spark 4.3 leaves, and restarting."""

from __future__ import annotations

import json
import threading

import pytest

from tether.core.errors import TetherError
from tether.engine.deadline import Deadline
from tether.spark.epoch_sink import to_epochs
from tether.spark.logs.checkpoint import SparkCheckpoint
from tether.spark.running.outcome import Outcome
from tether.spark.running.supervision import Supervisor

# The supervisor's thread is one of Spark's own kind, which asks for a context.
pytestmark = pytest.mark.usefixtures("spark")


def entry(folder, name, text="v1\n"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    (folder / f".{name}.crc").write_bytes(b"crc")


def spark_like(root, epochs, committed, *, compact_every=10):
    """A stream of files, one an epoch, and of a topic beside it."""
    for epoch in range(epochs):
        offsets = [json.dumps({"logOffset": epoch}), json.dumps({"topic": {"0": 10 * epoch}})]
        entry(root / "offsets", str(epoch), "\n".join(["v1", "{}", *offsets]))
        compact = ".compact" if (epoch + 1) % compact_every == 0 else ""
        entry(root / "sources" / "0", f"{epoch}{compact}")
    entry(root / "sources" / "1", "0")
    for epoch in range(committed):
        entry(root / "commits", str(epoch))
    return root


def names(folder):
    return sorted(
        (p.name for p in folder.iterdir() if p.name[0] != "."), key=lambda n: int(n.split(".")[0])
    )


def test_spark_will_run_that_epoch_again_and_has_forgotten_what_came_after(tmp_path):
    spark_like(tmp_path, 14, 13)
    SparkCheckpoint(str(tmp_path)).go_back(6)
    assert names(tmp_path / "offsets")[-1] == "6"
    assert names(tmp_path / "commits")[-1] == "5"
    assert names(tmp_path / "sources" / "0")[-1] == "6"
    assert names(tmp_path / "sources" / "1") == ["0"]
    left = [p.name for p in (tmp_path / "offsets").iterdir()]
    assert ".6.crc" in left
    assert ".7.crc" not in left


def test_it_can_be_done_twice_and_to_the_start(tmp_path):
    spark_like(tmp_path, 5, 4)
    checkpoint = SparkCheckpoint(f"file://{tmp_path}")
    for _ in range(2):
        checkpoint.check(0)
        checkpoint.go_back(0)
    assert names(tmp_path / "offsets") == ["0"]
    assert names(tmp_path / "commits") == []
    assert names(tmp_path / "sources" / "0") == ["0"]


def test_a_list_of_files_that_would_not_be_whole_is_left_as_it_is(tmp_path):
    """Spark has summed the entries up and deleted them: cut back, it would know no file at all."""
    spark_like(tmp_path, 14, 13)
    for number in range(9):
        (tmp_path / "sources" / "0" / str(number)).unlink()
        (tmp_path / "sources" / "0" / f".{number}.crc").unlink()
    before = names(tmp_path / "sources" / "0")
    SparkCheckpoint(str(tmp_path)).go_back(6)
    assert names(tmp_path / "sources" / "0") == before
    assert names(tmp_path / "offsets")[-1] == "6"


def test_what_spark_has_forgotten_cannot_be_gone_back_to(tmp_path):
    spark_like(tmp_path, 14, 13)
    for number in range(6):
        (tmp_path / "offsets" / str(number)).unlink()
        (tmp_path / "offsets" / f".{number}.crc").unlink()
    checkpoint = SparkCheckpoint(str(tmp_path))
    checkpoint.check(7)
    with pytest.raises(TetherError, match="cannot go back to epoch 6"):
        checkpoint.check(6)


def test_what_is_being_done_is_known_to_the_next_driver(tmp_path):
    spark_like(tmp_path, 5, 4)
    SparkCheckpoint(str(tmp_path)).announce(3)
    later = SparkCheckpoint(str(tmp_path))
    assert later.announced() == 3
    later.go_back(3)
    later.done()
    assert later.announced() is None


def test_a_sink_of_epochs_takes_back_what_will_come_again(tmp_path):
    for epoch in (0, 1, 2, 10):
        (tmp_path / f"epoch={epoch}").mkdir()
    (tmp_path / "_writing-3").mkdir()
    to_epochs(str(tmp_path)).take_back(2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["_writing-3", "epoch=0", "epoch=1"]
    to_epochs(str(tmp_path / "not-there")).take_back(0)


class FakeQuery:
    """Ends when told to, with an error or without."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error = None

    def awaitTermination(self):  # noqa: N802 - Spark's name
        assert self.ended.wait(120)
        if self.error is not None:
            raise self.error

    def end(self, error=None):
        self.error = error
        self.ended.set()

    def stop(self):
        self.end()


class FakeDriver:
    def __init__(self, rewind_error=None) -> None:
        self.outcome, self.rewind_wanted, self.rewinds = Outcome(), False, 0
        self.rewind_error = rewind_error

    def rewind(self):
        if self.rewind_error is not None:
            raise self.rewind_error
        self.rewinds += 1
        self.rewind_wanted = False


def supervised(driver):
    made = []

    def start():
        made.append(FakeQuery())
        return made[-1]

    supervisor = Supervisor(driver, start)
    supervisor.watch()
    return supervisor, made


def test_a_query_that_asks_for_it_is_begun_anew_and_another_is_not():
    driver = FakeDriver()
    supervisor, made = supervised(driver)
    driver.rewind_wanted = True
    made[0].end(RuntimeError("LostStateError"))
    assert supervisor.settle(made[0])
    assert supervisor.current is made[1]
    assert (driver.rewinds, supervisor.past) == (1, [made[0]])
    assert supervisor.goes_on(made[0])
    made[1].end(RuntimeError("the operator is broken"))
    assert not supervisor.settle(made[1])
    assert not supervisor.goes_on(made[1])
    assert len(made) == 2


def test_a_rewind_that_fails_ends_the_query_with_its_reason():
    error = TetherError("Spark has forgotten.")
    driver = FakeDriver(error)
    supervisor, made = supervised(driver)
    driver.rewind_wanted = True
    made[0].end(RuntimeError("LostStateError"))
    assert not supervisor.settle(made[0])
    assert driver.outcome.failure is error


def test_a_query_that_is_being_stopped_is_not_begun_anew():
    driver = FakeDriver()
    supervisor, made = supervised(driver)
    driver.rewind_wanted = True
    supervisor.stop(Deadline(60))
    assert len(made) == 1
    assert not supervisor.goes_on(made[0])
