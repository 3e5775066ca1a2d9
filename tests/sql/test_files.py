"""The files of a store on a local disk: for their owner alone, and on the disk when a commit returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.sql.direct import Provider

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def commit_one(spark: SparkSession, folder: Path) -> Path:
    """A store with one committed version; gives the folder of its files."""
    store = Provider(spark, folder, theta=0).at(0)
    store.put(b"a", b"1")
    store.commit()
    return folder / "0" / "0"


def test_nobody_else_can_read_them(spark: SparkSession, tmp_path: Path) -> None:
    files = commit_one(spark, tmp_path / "state")
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in files.iterdir()}
    assert modes == {".delta": 0o600, ".terms": 0o600}
    assert [path.stat().st_mode & 0o777 for path in (files, files.parent)] == [0o700, 0o700]


def test_they_and_their_names_are_forced_to_the_disk(spark: SparkSession, tmp_path: Path) -> None:
    session: Any = spark
    jvm = session.sparkContext._jvm
    recording = jvm.jdk.jfr.Recording()  # Java's own flight recorder sees what is forced
    recording.enable("jdk.FileForce").withoutThreshold()
    recording.start()
    commit_one(spark, tmp_path)
    dumped = jvm.java.io.File(str(tmp_path / "recording.jfr")).toPath()
    recording.dump(dumped)
    recording.close()
    times = [
        (event.getStartTime(), str(event.getString("path")))
        for event in jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(dumped)
    ]
    events = sorted((at.getEpochSecond(), at.getNano(), path) for at, path in times)
    forced = [path.removeprefix(str(tmp_path)) for *_, path in events if str(tmp_path) in path]
    kinds = [path if path in ("", "/0", "/0/0") else path.split(".")[-2] for path in forced]
    # The folders that were made; then each file, and after it the folder that has its name.
    assert sorted(kinds[:2]) == ["", "/0"]
    assert kinds[2:] == ["terms", "/0/0", "delta", "/0/0"]
