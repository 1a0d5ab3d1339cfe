"""Which rows a report shows of what a model gets wrong."""

from __future__ import annotations

from typing import Any

import pytest

from edgepack.artifacts import MAX_EXAMPLES, Examples
from edgepack.bundle import report_rows
from edgepack_runtime.tasks.labelled_spans import SpanPrediction, SpansPrediction
from edgepack_runtime.tasks.one_label import LabelPrediction
from edgepack_runtime.tasks.registry import ONE_TEXT, TOKENS, task_by_name
from edgepack_runtime.tasks.several_labels import LabelsPrediction
from edgepack_runtime.util.spans import Span

ONE = task_by_name(ONE_TEXT)


def choose_examples(task: Any, texts: Any, truths: Any, float_answers: Any, shipped: Any) -> Examples:
    """Of the predictions of the shipped model."""
    probabilities = [task.probability(prediction, truth) for prediction, truth in zip(shipped, truths, strict=False)]
    answers = [prediction.answer for prediction in shipped]
    return report_rows.choose_examples(task, texts, truths, float_answers, answers, probabilities)


def said(label: str, good: float) -> LabelPrediction:
    return LabelPrediction(label, max(good, 1 - good), {"bad": 1 - good, "good": good})


def test_what_changed_is_counted_and_losses_come_first() -> None:
    truths = ["good", "good", "bad", "bad", "good"]
    before = ["good", "bad", "good", "bad", "bad"]
    after = [said("bad", 0.4), said("good", 0.9), said("bad", 0.2), said("bad", 0.1), said("bad", 0.25)]
    found = choose_examples(ONE, [(f"text {n}",) for n in range(5)], truths, before, after)
    assert (found.rows, found.lost, found.won, found.other) == (5, 1, 2, 0)
    assert [one.text for one in found.changed] == ["text 0", "text 1", "text 2"]
    lost = found.changed[0]
    assert (lost.truth, lost.float_answer, lost.answer, lost.score) == ("good", "good", "bad", 0.4)
    assert [(one.text, one.score) for one in found.wrong] == [("text 4", 0.25), ("text 0", 0.4)]  # the most wrong first


def test_an_answer_may_change_and_stay_wrong() -> None:
    scores = {"a": 0.1, "b": 0.2, "c": 0.7}
    found = choose_examples(ONE, [("x",)], ["a"], ["b"], [LabelPrediction("c", 0.7, scores)])
    assert (found.lost, found.won, found.other) == (0, 0, 1)
    assert found.changed == found.wrong


def test_a_row_without_its_text_is_shown_by_its_number() -> None:
    truths = [(), (Span(0, 2, "地名"),)]
    wrong = SpansPrediction((SpanPrediction(1, 2, "地名", 0.9, "京"),))
    (one,) = choose_examples(task_by_name(TOKENS), [None, None], truths, truths, [SpansPrediction(()), wrong]).wrong
    assert (one.text, one.truth, one.answer) == ("#2", "0-2 = 地名", "1-2 = 地名")


def test_both_texts_of_a_pair_are_shown_and_long_ones_cut() -> None:
    found = choose_examples(ONE, [("长" * 400, "短")], ["good"], ["good"], [said("bad", 0.1)])
    assert found.wrong[0].text == "长" * 299 + "… ⁄ 短"


def test_of_several_labels_the_least_right_one_tells_how_wrong_it_is() -> None:
    scores = {"快": 0.9, "便宜": 0.3, "新": 0.6}
    prediction = LabelsPrediction(("快", "新"), scores)
    found = choose_examples(task_by_name(ONE_TEXT, multi_label=True), [("x",)], [("便宜", "快")], [()], [prediction])
    (one,) = found.wrong
    assert (one.truth, one.float_answer, one.answer, one.score) == ("便宜, 快", "-", "快, 新", 0.3)
    all_right = choose_examples(
        task_by_name(ONE_TEXT, multi_label=True), [("x",)], [("快", "新")], [("快", "新")], [prediction]
    )
    assert all_right.wrong == () and all_right.changed == ()


def test_spans_are_shown_by_their_texts_and_ranked_by_their_number() -> None:
    def spans(*found: tuple[int, int, str]) -> SpansPrediction:
        return SpansPrediction(tuple(SpanPrediction(start, end, label, 0.9, "") for start, end, label in found))

    truths = [(Span(0, 2, "地名"),), (Span(0, 2, "地名"), Span(2, 4, "人名"))]
    found = choose_examples(
        task_by_name(TOKENS),
        [("北京王五",), ("上海李四",)],
        truths,
        truths,
        [spans((0, 1, "地名")), spans((1, 2, "人名"))],
    )
    assert [(one.truth, one.answer, one.score) for one in found.wrong] == [
        ("上海 = 地名, 李四 = 人名", "海 = 人名", None),
        ("北京 = 地名", "北 = 地名", None),
    ]


def test_no_more_is_chosen_than_a_page_can_show_and_every_row_has_its_answers() -> None:
    count = 3 * MAX_EXAMPLES
    found = choose_examples(ONE, [("x",)] * count, ["good"] * count, ["good"] * count, [said("bad", 0.3)] * count)
    assert (len(found.changed), len(found.wrong), found.lost) == (MAX_EXAMPLES, MAX_EXAMPLES, count)
    with pytest.raises(ValueError):
        choose_examples(ONE, [("x",)], ["good"], [], [])


def test_without_a_float_model_nothing_changed() -> None:
    found = choose_examples(ONE, [("x",), ("y",)], ["good", "good"], None, [said("bad", 0.3), said("good", 0.9)])
    assert (found.compared, found.changed, found.lost, found.rows) == (False, (), 0, 2)
    assert [(one.text, one.float_answer) for one in found.wrong] == [("x", None)]
