"""Exact match and character F1 of answers in a text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.stats import reading
from edgepack_runtime.util.spans import Span


def said(*texts: str) -> tuple[Span, ...]:
    return tuple(Span(0, len(text), text) for text in texts)


@pytest.mark.parametrize(
    ("truth", "answer", "exact", "f1"),
    [
        (("重庆武隆县",), ("重庆武隆县",), 1.0, 1.0),
        (("《霍元甲》",), ("霍元甲",), 1.0, 1.0),  # punctuation counts for nothing
        (("1997年",), ("在1997年",), 0.0, 0.8),  # 1997 is one unit: 2 of 3 and of 2
        (("辐鳍鱼纲", "鱼纲"), ("鱼纲",), 1.0, 1.0),  # the best of several
        (("New York City",), ("new york",), 0.0, 0.8),  # words of other letters
        (("甲乙丙丁",), ("甲乙x丙丁",), 0.0, 4 / 9),  # the longest run, not all common characters
        (("甲",), ("乙",), 0.0, 0.0),
        (("甲",), (), 0.0, 0.0),
        ((), ("甲",), 0.0, 0.0),
        ((), (), 1.0, 1.0),
        (("！",), ("？",), 0.0, 0.0),  # what is punctuation alone is compared as it is
        (("+",), ("-",), 0.0, 0.0),
        (("-28",), ("28",), 0.0, 0.0),  # a sign tells numbers apart
        (("1/2", "12:30"), ("12",), 0.0, 0.0),
        (("温度：28",), ("温度28",), 1.0, 1.0),  # and this is none
        (("80-95cm",), ("80-95c",), 0.0, 0.0),  # one word
        (("4.9", "4,900元"), ("4,900元",), 1.0, 1.0),
        (("出现在《甲（乙）丙》",), ("甲乙丙",), 0.0, 2 * 3 / 9),
    ],
)
def test_scores_of_an_answer(truth: tuple[str, ...], answer: tuple[str, ...], exact: float, f1: float) -> None:
    assert reading.exact_match(said(*truth), said(*answer)) == exact
    assert reading.character_f1(said(*truth), said(*answer)) == pytest.approx(f1)


@given(st.text(max_size=12), st.text(max_size=12))
def test_f1_is_symmetric_within_bounds_and_1_for_a_match(first: str, second: str) -> None:
    one, other = said(first), said(second)
    found = reading.character_f1(one, other)
    assert 0 <= found <= 1 and found == reading.character_f1(other, one)
    if reading.units(first) == reading.units(second) != ():
        assert found == 1
    if reading.plain(first) == reading.plain(second):
        assert reading.exact_match(one, other) == 1


ROWS: list[tuple[Any, Any]] = [(said("甲乙"), said("甲乙")), (said("甲乙"), said("甲")), ((), said("丙")), ((), ())]


@pytest.mark.parametrize(("metric", "value"), [("exact_match", 0.5), ("character_f1", (1 + 2 / 3 + 0 + 1) / 4)])
def test_metrics_have_intervals_and_paired_drops(metric: str, value: float) -> None:
    truths, answers = zip(*ROWS, strict=True)
    assert reading.values(ROWS)[metric] == pytest.approx(value)
    found = reading.interval(metric, truths, answers, 0.95)
    assert found.value == pytest.approx(value) and found.low < value < found.high
    assert reading.drop(metric, truths, truths, answers, 0.95).value == pytest.approx(1 - value)


def test_another_metric_or_other_rows_are_an_error() -> None:
    with pytest.raises(ValueError, match="unknown metric"):
        reading.scores("mae", ROWS, ROWS)
    with pytest.raises(ValueError, match="1 answers for 2 rows"):
        reading.scores("exact_match", [(), ()], [()])


@given(st.text("甲乙ab1", max_size=14), st.text("甲乙ab1", max_size=14))
def test_the_longest_run_is_that_of_all_runs(first: str, second: str) -> None:
    left, right = reading.units(first), reading.units(second)
    runs = {left[i:j] for i in range(len(left)) for j in range(i + 1, len(left) + 1)}
    longest = max((len(run) for run in runs if run in {right[i : i + len(run)] for i in range(len(right))}), default=0)
    wanted = 2 * longest / max(1, len(left) + len(right))
    assert reading.character_f1(said(first), said(second)) == pytest.approx(wanted)


def test_long_answers_are_compared_at_once() -> None:
    """Each unit with each, these took a minute."""
    texts = ["".join(chr(0x4E00 + (7 * n * n + k) % 5000) for n in range(4_000)) for k in range(6)]
    assert all(0 <= reading.character_f1(said(one), said(other)) <= 1 for one in texts for other in texts)
