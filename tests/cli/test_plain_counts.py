"""What the drill and the demo are judged by: counts from the files themselves."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tether.cli.plain_counts import answer_of, measure_of, together, true_counts, values_of
from tether.testing.epochs import write_epochs
from tether.testing.judge import Measure

ROWS = pa.table({"k": [1, 2, 1, None], "v": [0.5, 4.0, None, 1.0]})
COUNTS = {(1,): 2, (2,): 1, (None,): 1}


@pytest.fixture
def arguments(tmp_path):
    write_epochs(tmp_path, [ROWS.slice(0, 3), ROWS.slice(3)])
    return ["counts", "--input", str(tmp_path), "--key", "k", "--sum=v"]


def test_counts_and_sums_of_files(arguments):
    sums = {(1,): 0.5, (2,): 4.0, (None,): 1.0}
    assert true_counts(arguments) == {"count": COUNTS, "sum(v)": sums}


def test_other_formats_of_files_give_the_same(tmp_path):
    (tmp_path / "a.csv").write_text("k,v\n1,0.5\n2,4\n")
    (tmp_path / "b.csv").write_text("k,v\n1,\n")
    found = true_counts(["counts", "--input", str(tmp_path), "--key=k"])
    assert found == {"count": {(1,): 2, (2,): 1}}


def test_words_of_text_files(tmp_path):
    (tmp_path / "a.txt").write_text("To be\tor not\n to BE\n\n")
    (tmp_path / "_SUCCESS").write_text("no words")
    found = true_counts(["wordcount", "--input", str(tmp_path)])
    assert found == {"count": {("to",): 2, ("be",): 2, ("or",): 1, ("not",): 1}}


def test_an_answer_is_compared_as_a_whole_or_for_the_keys_that_it_has(arguments):
    table = pa.table({"k": [1, None], "count": [1, 1], "sum(v)": [0.5, None]})
    answer = answer_of(table, arguments)
    assert answer == {"count": {(1,): 1, (None,): 1}, "sum(v)": {(1,): 0.5}}
    right, measure = true_counts(arguments), measure_of(arguments)
    whole = measure.distance(together(right)[""], together(answer)[""])
    assert whole == (2 - 1) + 1 + 4.0 + 1.0  # k=2 is missing, with its sum; and a sum of nulls
    keys = answer["count"].keys()
    some = measure.distance(together(right, keys)[""], together(answer, keys)[""])
    assert some == (2 - 1) + 1.0


@pytest.mark.parametrize(
    ("arguments", "norm"),
    [
        (["counts"], "l1"),
        (["counts", "--divergence", "l2"], "l2"),
        (["counts", "--divergence=max"], "max"),
        (["counts", "--accuracy", "absolute:max_error=100,of=key"], "max"),
        (["wordcount"], "max"),
    ],
)
def test_the_measure_is_that_of_the_bound(arguments, norm):
    assert measure_of(arguments) == Measure(norm)
    assert values_of("--key", arguments) == []
