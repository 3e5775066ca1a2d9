"""Any arguments: our own errors or the parser's, never a trace, and nothing is started by mistake."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tether.cli.app import app
from tether.cli.run import _faults
from tether.core.errors import BadValueError, TetherError
from tether.policies.parse import parse_policy
from tether.policies.parse_accuracy import parse_accuracy

RUNNER = CliRunner()
NAMES = ["approximate", "barrier", "mini-batch", "upstream-backup", "none", "absolute", "relative"]
PIECES = st.one_of(
    st.sampled_from(
        [*NAMES, ":", "=", ",", "max_state_error", "interval", "window", "mode", "async", "epochs"]
    ),
    st.sampled_from(["hopping:60s", "state_every", "max_error", "of", "key", "inf", "nan", "-1"]),
    st.floats(allow_nan=True).map(str),
    st.text(max_size=6),
)
POLICY_TEXT = st.lists(PIECES, max_size=8).map("".join)
WORDS = st.one_of(
    st.sampled_from(
        ["--json", "--key", "k", "--slots", "2", "--policy", "--accuracy", "--divergence", "l1"]
    ),
    st.sampled_from(["counts", "wordcount", "--sum", "--master", "local[2]", "--", "-", "", "0"]),
    POLICY_TEXT,
)


def invoke(arguments: list[str]) -> None:
    """Run the command in this process; anything but an orderly end is a defect."""
    result = RUNNER.invoke(app, arguments)
    error = result.exception
    assert error is None or isinstance(error, (SystemExit, TetherError)), (arguments, error)
    assert result.exit_code in (0, 1, 2), (arguments, result.output)


@settings(max_examples=300)
@given(POLICY_TEXT)
def test_a_policy_is_read_or_refused(text: str) -> None:
    for parse in (parse_policy, parse_accuracy):
        try:
            parse(text)
        except BadValueError:
            continue


@settings(max_examples=30)
@given(st.lists(WORDS, max_size=8))
def test_run_with_any_arguments(words: list[str]) -> None:
    # Explained only: whatever gets through the checks must not start Spark here.
    invoke(["run", "counts", "--input", "nowhere", "--explain", *words])


@settings(max_examples=30)
@given(
    path=st.text(max_size=30).filter(lambda text: "://" not in text and "::" not in text),
    options=st.one_of(
        st.text(max_size=10), st.recursive(st.integers() | st.text(), st.lists).map(json.dumps)
    ),
)
def test_inspect_of_any_path_with_any_options(tmp_path_factory, path: str, options: str) -> None:
    root = tmp_path_factory.getbasetemp()
    invoke(["inspect", f"{root}/{path}", "--json"])
    invoke(["inspect", f"{root}/{path}", "--options", options])


@settings(max_examples=20)
@given(st.lists(WORDS, max_size=6), st.sampled_from(["run", "strike", "nothing"]))
def test_drill_with_any_arguments(words: list[str], which: str) -> None:
    # Such a fault there is not, so a drill whose other arguments are right ends there.
    invoke(["drill", which, "--fault", "meteor", *words])


@settings(max_examples=20)
@given(st.text(max_size=12).filter(lambda name: not name.startswith("-")))
def test_bench_of_any_name(name: str) -> None:
    invoke(["bench", f"no-{name}"])


@settings(max_examples=25)
@given(
    numbers=st.lists(st.integers(-3, 6), min_size=3, max_size=3),
    error=st.floats(allow_nan=True, allow_infinity=True),
)
def test_simulate_with_any_numbers(numbers: list[int], error: float) -> None:
    slots, failures, operators = numbers
    arguments = ["--slots", slots, "--failures", failures, "--operators", operators]
    arguments += ["--rounds", 2, "--max-state-error", error, "--json"]
    invoke(["simulate", *map(str, arguments)])


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"point": "nowhere"}]', '[{"marker": 3}]'])
def test_faults_that_are_none_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TETHER_FAULTS", text)
    with pytest.raises(BadValueError, match="TETHER_FAULTS"):
        _faults()


@pytest.mark.parametrize(
    "options", ["[]", "3", '"text"', "null", '{"no_such_option": 1}', '{"": {}}']
)
def test_options_that_are_no_options_are_refused(tmp_path, options: str) -> None:
    invoke(["inspect", str(tmp_path), "--options", options])
