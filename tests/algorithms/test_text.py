from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tether import Approximate
from tether.algorithms.grep import Grep, MergedLines
from tether.algorithms.word_count import MergedCounts, PartialCounts
from tether.core.errors import BadValueError
from tether.data import zipf_text
from tether.testing.local import LocalPipeline, Stage

LINES = [*zipf_text(6, 500, words=300, seed=3)]


def word_count(tolerance: Any = None) -> LocalPipeline:
    return LocalPipeline(
        [Stage(PartialCounts(), parallelism=2), Stage(MergedCounts(), key=["word"], parallelism=2)],
        tolerance=tolerance,
    )


def test_grep_finds_what_a_regular_expression_finds() -> None:
    tested = LocalPipeline([Stage(Grep("ba(de)+ "), parallelism=2), Stage(MergedLines())])
    found = [line for rows in LINES for line in tested.run(rows)["value"].to_pylist()]
    lines = [line for rows in LINES for line in rows["value"].to_pylist()]
    assert sorted(found) == sorted(line for line in lines if re.search("ba(de)+ ", line))
    assert found


def test_grep_may_ignore_case_and_null_lines_match_nothing() -> None:
    rows = pa.table({"value": ["Whale", None, "whale", "shark"]})
    tested = LocalPipeline([Stage(Grep("WHALE", ignore_case=True))])
    assert tested.run(rows)["value"].to_pylist() == ["Whale", "whale"]


@pytest.mark.parametrize("operator", [Grep("a", "text"), PartialCounts("text")])
def test_a_missing_text_column_is_named(operator: Any) -> None:
    with pytest.raises(BadValueError, match="'text' is not in the input"):
        LocalPipeline([Stage(operator)]).run(LINES[0])


def test_numbers_are_no_text() -> None:
    with pytest.raises(BadValueError, match="not text"):
        LocalPipeline([Stage(Grep("a"))]).run(pa.table({"value": [1]}))


def test_a_broken_pattern_is_refused_at_once() -> None:
    with pytest.raises(BadValueError, match="regular expression"):
        Grep("a(")


def test_two_stages_count_words() -> None:
    tested = word_count()
    counts: dict[str, int] = {}
    for rows in LINES:
        answer = tested.run(rows)
        counts |= dict(zip(answer["word"].to_pylist(), answer["count"].to_pylist(), strict=True))
    lines = [line for rows in LINES for line in rows["value"].to_pylist()]
    assert counts == Counter(word for line in lines for word in line.split())


def test_words_are_lower_case_and_never_empty() -> None:
    answer = word_count().run(pa.table({"value": [" To be\tor  not ", "", None, "TO BE"]}))
    counted = dict(zip(answer["word"].to_pylist(), answer["count"].to_pylist(), strict=True))
    assert counted == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_after_losses_no_word_is_off_by_more_than_the_bound() -> None:
    tested = word_count(Approximate(200.0))
    counts: dict[str, int] = {}
    for number, rows in enumerate(LINES):
        if number in (2, 3, 5):
            tested.lose_all()
        answer = tested.run(rows)
        counts |= dict(zip(answer["word"].to_pylist(), answer["count"].to_pylist(), strict=True))
    lines = [line for rows in LINES for line in rows["value"].to_pylist()]
    truth = Counter(word for line in lines for word in line.split())
    errors = [truth[word] - counts.get(word, 0) for word in truth]
    assert 0 < max(errors) <= 200
    assert min(errors) >= 0
