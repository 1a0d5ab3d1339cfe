"""Questions, texts and answers as rows, and what a network learns of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgepack.artifacts import NO_SCALE, Row
from edgepack.recipe.finding_log import FindingLog
from edgepack.tasks.reading import Reading, answers_in
from edgepack.tasks.task import NO_UNIT, UNLABELLED, Encoded
from edgepack_runtime.tasks.reading import START_END
from edgepack_runtime.util.spans import Span

TEXT = "张三在北京，李四也在北京"
BEIJING, LATER = Span(3, 5, "北京"), Span(10, 12, "北京")


@pytest.mark.parametrize(
    ("value", "spans"),
    [
        ("北京", (BEIJING,)),
        ('["北京", "张三"]', (BEIJING, Span(0, 2, "张三"))),
        ([{"text": "北京", "answer_start": 10}], (LATER,)),
        ([{"text": "北京", "answer_start": 9}], (LATER,)),  # off by one, as in public data
        ([{"text": "北京", "start": 3}], (BEIJING,)),
        ({"text": ["北京"], "answer_start": [10]}, (LATER,)),
        ({"text": [], "answer_start": []}, ()),
        ({"text": "北京", "answer_start": 10}, (LATER,)),
        ([{"text": " 北京", "answer_start": 9}], (LATER,)),
        (["张三", "北京", "北京"], (BEIJING, Span(0, 2, "张三"))),  # the most frequent comes first
        ([], ()),
        ("", ()),
        (None, ()),
        (["北京", "上海"], (BEIJING,)),  # with a warning
    ],
)
def test_answers_of_a_cell(value: object, spans: tuple[Span, ...]) -> None:
    log = FindingLog(Path("a.jsonl"))
    assert answers_in(1, TEXT, value, log) == spans
    assert [one.severity for one in log.findings()] == (["warning"] if value == ["北京", "上海"] else [])


@pytest.mark.parametrize(
    "value",
    [
        "上海",
        [3.5, True],
        [{"answer": "北京"}],
        {"text": ["北京"], "answer_start": [1, 2]},
        [{"text": "北京", "answer_start": "3"}],
        ["北京"] * 257,
        ["北京", "x" * 5000],
    ],
)
def test_what_is_no_answer_is_an_error(value: object) -> None:
    log = FindingLog(Path("a.jsonl"))
    assert answers_in(1, TEXT, value, log) is None
    [found] = log.findings()
    assert (found.severity, found.line) == ("error", 1)


def test_values_are_read_back() -> None:
    answer = (LATER, Span(0, 2, "张三"))
    log = FindingLog(Path("a.jsonl"))
    assert answers_in(1, TEXT, Reading.values(answer)["answers"], log) == answer


TASK = Reading(START_END, NO_SCALE)
ROW = Row("在哪里？", (Span(3, 5, "北京"),), "张三在北京")


def encoded(*places: tuple[int, int]) -> Encoded:
    """[CLS], a token of the question, [SEP], tokens of the text, [SEP]."""
    offsets = ((0, 0), (0, 0), (0, 0), *places, (0, 0))
    return Encoded([1] * len(offsets), [0] * len(offsets), offsets)


@pytest.mark.parametrize(
    ("places", "start", "end"),
    [
        ([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], 6, 7),
        ([(0, 2), (2, 5)], 4, 4),  # a token that has more than the answer
        ([(0, 1), (1, 2), (2, 3), (3, 4)], 0, 0),  # a window that ends within the answer
        ([(4, 5)], 0, 0),  # and one that begins there
        ([], 0, 0),
    ],
)
def test_a_window_learns_the_answer_or_that_it_has_none(places: Any, start: int, end: int) -> None:
    target = TASK.target(ROW, encoded(*places))
    assert target.argmax(axis=0).tolist() == [start, end]
    allowed = [0, *range(3, 3 + len(places))]
    assert (target[allowed] >= 0).all() and target.sum(where=target > 0) == 2
    assert (np.delete(target, allowed, axis=0) == NO_UNIT).all()


def test_a_row_without_a_label_has_no_target() -> None:
    target = TASK.unlabelled(encoded((0, 1), (1, 2)))
    assert sorted(set(target.ravel().tolist())) == [NO_UNIT, UNLABELLED]


def test_divergence_is_over_tokens() -> None:
    logits = np.array([[[0.0, 1.0], [2.0, 0.0], [1.0, 1.0]]], np.float32)  # (1, T, 2)
    assert TASK.divergence([logits], [logits + 5]) == pytest.approx(0)  # every logit of a side alike: no change
    other = logits.copy()
    other[0, 0, 0] += 3
    assert TASK.divergence([logits], [other]) > 0.1


def test_a_row_is_learnt_from_the_windows_with_its_answer_and_one_other() -> None:
    windows = [encoded((0, 1), (1, 2)), encoded((2, 3), (3, 4), (4, 5)), encoded((3, 4), (4, 5)), encoded((4, 5))]
    assert TASK.learnt(ROW, windows, 0) == windows[:3]
    assert TASK.learnt(ROW, windows, 1) == windows[1:]
    assert TASK.learnt(ROW, windows[1:3], 0) == windows[1:3]
    assert TASK.learnt(Row("谁", (), "张三在北京"), windows, 2) == [windows[2]]
    far = Row("在哪里？", (Span(0, 5, "张三在北京"),), "张三在北京")
    assert TASK.learnt(far, windows, 0) == []  # no window has it whole: it is not taught as none


def test_an_answer_in_a_text_of_one_character_is_found_at_once() -> None:
    """Searched backwards, it took two hours."""
    n = 4_000_000
    log = FindingLog(Path("a.jsonl"))
    answers = [{"text": "ab" + "a" * 4000, "answer_start": n - 2000}, {"text": "a" * 4000, "answer_start": n - 4100}]
    [found] = answers_in(1, "a" * n, answers, log) or ()
    assert found.start == n - 4100
