"""Settings, the jar and the story, without Spark."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tether.cli.inspect import inspect
from tether.core.errors import BadValueError, QueryRefusedError
from tether.sql import Bound, bound, rewind
from tether.sql import jar as jar_module
from tether.sql.checkpoint import MAGIC
from tether.sql.jar import JarError, build, built_from, digest, own_sources
from tether.sql.progress import INFINITE, bounds_of
from tether.sql.settings import PREFIX, check_session, store_settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"max_state_error": -1}, "is negative"),
        ({"max_state_error": float("nan")}, "is NaN"),
        ({"max_state_error": 1, "divergence": "l3"}, "'l3' is not known"),
        ({"max_state_error": 1, "columns": ("sum",)}, "mean nothing for divergence='count'"),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        Bound(**bad)


def test_settings_name_the_store_and_each_operators_own_bound() -> None:
    own = Bound(max_state_error=2, divergence="l1", columns=("sum", "n"))
    found = store_settings(Bound(max_state_error=float("inf")), {3: own}, replay_every=10)
    assert found[PREFIX + "maxStateError"] == "inf"
    assert found[PREFIX + "operator.3.columns"] == "sum,n"
    assert found[PREFIX + "alignedEvery"] == "10"
    with pytest.raises(BadValueError, match="replay_every=0 cannot be used"):
        store_settings(own, replay_every=0)


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (SimpleNamespace(version="4.2.1"), "does not run on Spark 4.2.1"),
        (SimpleNamespace(version="4.30.0"), "does not run on Spark 4.30.0"),
        (SimpleNamespace(version="4.3.0", conf={}), "Connect server does not have"),
        (
            SimpleNamespace(version="4.3.1", _jsparkSession=0, conf={"spark.speculation": "true"}),
            "Speculative execution is on",
        ),
    ],
)
def test_sessions_that_cannot_keep_the_bound_are_refused(session: Any, message: str) -> None:
    with pytest.raises(QueryRefusedError, match=message):
        check_session(session)


def test_a_query_without_our_store_has_no_bound() -> None:
    with pytest.raises(BadValueError, match="finished no batch yet"):
        bound(SimpleNamespace(lastProgress=None))  # type: ignore[arg-type]
    other: Any = SimpleNamespace(lastProgress={"stateOperators": [{"customMetrics": {}}]})
    with pytest.raises(BadValueError, match="None of its operators"):
        bound(other)


def test_an_infinite_amount_comes_back_as_one() -> None:
    metrics = {"tetherBound": 0, "tetherDivergence": 7, "tetherThreshold": 2 * INFINITE}
    (one,) = bounds_of([{"operatorName": "dedupe", "customMetrics": metrics}])
    assert one.threshold == float("inf")
    assert one.worst_now == 7


def test_a_checkpoint_is_shown_with_its_losses_and_its_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("offsets", "commits", "state/0/1"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "commits" / "6").touch()
    store = tmp_path / "state" / "0" / "1"
    loss = {"wanted": 6, "got": 4, "atMost": "30.0", "extra": "2.0"}
    terms = {"sequence": 2, "theta": "7.5", "maxStateError": "60.0", "divergence": "l1"}
    text = json.dumps(terms | {"losses": [loss]})
    (store / "00000002-1-ab.terms").write_text(f"{text}\n{zlib.crc32(text.encode()):08x}\n")
    body = MAGIC + b"rows"
    good = body + zlib.crc32(body).to_bytes(8, "big") + MAGIC
    (store / "000000000004-0001-ab_30.0.delta").write_bytes(good)
    (store / "000000000005-0001-ac_9.5.delta").write_bytes(good.replace(b"row", b"cow"))
    inspect(str(tmp_path), verify=True, frames=False, options="{}", as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["last_batch"], shown["spent"]) == (6, 32)
    (found,) = shown["stores"]
    assert (found["partition"], found["theta"], found["newest_version"]) == (1, 7.5, 5)
    assert found["damage"] == ["000000000005-0001-ac_9.5.delta: its checksum does not match"]
    inspect(str(tmp_path), verify=True, frames=False, options="{}", as_json=False)
    assert "lost so far: 32" in capsys.readouterr().out


def test_only_a_checkpoint_can_be_rewound(tmp_path: Path) -> None:
    with pytest.raises(BadValueError, match="is no checkpoint of a stateful query"):
        rewind(str(tmp_path))


def test_the_digest_follows_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar_module, "SOURCES", tmp_path)
    source = tmp_path / "A.scala"
    source.write_text("class A")
    before = digest([source], tmp_path)
    assert digest([source], tmp_path) == before
    source.write_text("class B")
    assert digest([source], tmp_path) != before


def installed(top: Path, folder: str) -> Path:
    """A package below a folder, and a ``jvm`` folder where a checkout would have one."""
    package = top / folder / "tether"
    package.mkdir(parents=True)
    source = top / "jvm" / "src" / "tether" / "A.scala"
    source.parent.mkdir(parents=True)
    source.write_text("class A")
    return package


def test_sources_are_compiled_only_from_a_checkout(tmp_path: Path) -> None:
    for number, folder in enumerate(["deps", "lib/site-packages", "src"]):
        assert own_sources(installed(tmp_path / str(number), folder)) == []
    (tmp_path / "2" / "pyproject.toml").touch()
    (found,) = own_sources(tmp_path / "2" / "src" / "tether")
    assert found.name == "A.scala"


@pytest.mark.parametrize("place", [".", "jvm", "jvm/src/tether", "jvm/src/tether/A.scala"])
def test_sources_that_everybody_may_write_are_not_compiled(tmp_path: Path, place: str) -> None:
    """As where a package was installed with ``--target`` into a folder below /tmp."""
    package = installed(tmp_path, "src")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / place).chmod(0o777)
    with pytest.raises(JarError, match="may have changed its sources"):
        own_sources(package)


def test_sources_behind_a_link_are_not_compiled(tmp_path: Path) -> None:
    package = installed(tmp_path / "mine", "src")
    (tmp_path / "mine" / "pyproject.toml").touch()
    (tmp_path / "mine" / "jvm").rename(tmp_path / "theirs")
    (tmp_path / "mine" / "jvm").symlink_to(tmp_path / "theirs")
    with pytest.raises(JarError, match="is a link"):
        own_sources(package)


def test_sources_of_another_user_are_not_compiled(tmp_path: Path) -> None:
    package = installed(tmp_path, "src")
    (tmp_path / "pyproject.toml").touch()
    assert own_sources(package)
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(tmp_path / "jvm" / "src", 4711, -1)
    with pytest.raises(JarError, match="another user"):
        own_sources(package)


def test_a_torn_jar_is_no_jar(tmp_path: Path) -> None:
    jar = tmp_path / "some.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("A.class", b"0" * 100)
        archive.comment = b"built from this"
    assert built_from(jar) == "built from this"
    jar.write_bytes(jar.read_bytes()[:50])
    assert built_from(jar) == ""
    assert built_from(tmp_path / "none.jar") == ""


def test_without_java_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarError, match="There is no Java"):
        build([tmp_path / "A.scala"], tmp_path, tmp_path / "a.jar", "x")
    assert list(tmp_path.iterdir()) == []


def test_what_the_compiler_says_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'A.scala:1: error: no such thing' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    with pytest.raises(JarError, match="no such thing"):
        build([tmp_path / "A.scala"], tmp_path, tmp_path / "a.jar", "x")
    assert not (tmp_path / "a.jar").exists()
