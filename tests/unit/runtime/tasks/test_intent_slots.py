"""Intent and slots: from logits to answers, and the metrics of each part."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.tasks.intent_slots import IntentPrediction
from edgepack_runtime.tasks.labelled_spans import SpanPrediction
from edgepack_runtime.tasks.registry import INTENT_SLOTS, task_by_answer_key, task_by_name
from edgepack_runtime.tasks.task import Part, unlearned_score
from edgepack_runtime.util.spans import Span

TASK = task_by_name(INTENT_SLOTS)
LABELS = ("intent=play", "intent=stop", "O", "B-song", "I-song")
OFFSETS = [(0, 0), (0, 1), (1, 2), (2, 3), (0, 0)]
PLAY, STOP = [4.0, 1.0, 9.0, 9.0, 9.0], [0.0, 2.0, 9.0, 9.0, 9.0]  # [CLS]: what it has for tags says nothing
OUT, BEGIN, INSIDE = ([9.0, 9.0, *(3.0 * (place == at) for place in range(3))] for at in range(3))


def test_the_intent_is_that_of_cls_and_the_slots_are_those_of_the_tokens() -> None:
    found = TASK.predict(LABELS, [Part([PLAY, OUT, BEGIN, INSIDE, OUT], 1, OFFSETS)], "放晴天")
    assert found.answer == ("intent=play", Span(1, 3, "song"))
    score = 1 / (1 + math.exp(-3))
    assert found.as_json(with_scores=True)["score"] == pytest.approx(score, abs=1e-6)
    [slot] = found.as_json(with_scores=False)["slots"]
    assert (slot["start"], slot["end"], slot["label"], slot["text"]) == (1, 3, "song", "晴天")
    assert [one.name for one in TASK.outputs(LABELS)] == list(found.as_json(with_scores=False))
    assert TASK.outputs(LABELS)[0].schema["enum"] == ["play", "stop"]
    none = TASK.predict(LABELS, [Part([STOP, OUT, OUT, OUT, OUT], 1, OFFSETS)], "停下来")
    assert none.answer == ("intent=stop",)


@pytest.mark.parametrize("row", [0, 2])
def test_a_logit_that_is_no_number_is_an_error(row: int) -> None:
    logits = [list(PLAY), list(OUT), list(OUT), list(OUT), list(OUT)]
    logits[row] = [math.nan] * 5
    with pytest.raises(StageFailedError, match="not finite"):
        TASK.predict(LABELS, [Part(logits, 1, OFFSETS)], "放晴天")


def test_classes_and_labels_are_each_others_inverse_in_any_order() -> None:
    classes = TASK.classes(LABELS)
    assert classes == ("intent=play", "intent=stop", "song")
    assert TASK.model_labels(sorted(classes, reverse=True)) == ("intent=stop", "intent=play", *LABELS[2:])
    assert TASK.model_labels(("intent=play", "intent=stop")) == ("intent=play", "intent=stop", "O")


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (LABELS, None),
        (LABELS[1:], "has 1 intents"),
        (("intent=a", "intent=b"), "has no 'O'"),
        (("intent=a", "O", "intent=b"), "has an intent behind a tag"),
        (("intent=a", "intent=b", "O", "song"), "holds 'song'"),
    ],
)
def test_labels_that_fit_no_model(labels: tuple[str, ...], problem: str | None) -> None:
    found = TASK.label_problem(labels)
    assert found == problem if problem is None else found is not None and found.startswith(problem)


def test_an_answer_comes_back_as_it_was_written() -> None:
    answer = ("intent=play", Span(1, 3, "song"))
    value = ["intent=play", [1, 3, "song"]]
    assert TASK.answer_of(value) == answer
    assert TASK.parse_answer(value, frozenset(TASK.classes(LABELS)), 3) == answer
    assert TASK.words(answer, "放晴天") == "play: 晴天 = song"
    assert TASK.words(answer[:1], "x") == "play"
    assert task_by_answer_key("intent", pairs=False) is TASK


@pytest.mark.parametrize(
    "value", [[], ["song"], ["intent=sing"], "intent=play", ["intent=play", [1, 9, "song"]], ["intent=play", [1, 3]]]
)
def test_what_is_no_answer_is_none(value: object) -> None:
    assert TASK.parse_answer(value, frozenset(TASK.classes(LABELS)), 3) is None


ROWS = [
    (("intent=play", Span(1, 3, "song")), ("intent=play", Span(1, 3, "song"))),
    (("intent=play", Span(0, 2, "song")), ("intent=play", Span(0, 1, "song"))),
    (("intent=stop",), ("intent=play",)),
    (("intent=stop",), ("intent=stop",)),
]


def test_each_part_has_its_metric_and_interval() -> None:
    classes = TASK.classes(LABELS)
    values = TASK.values(ROWS, classes)
    assert values == {"accuracy": 0.5, "intent_accuracy": 0.75, "entity_f1": 0.5}
    truths, answers = zip(*ROWS, strict=True)
    for metric, value in values.items():
        found = TASK.interval(metric, truths, answers, 0.95, classes)
        assert found.value == pytest.approx(value) and found.low < value < found.high
        assert TASK.drop(metric, truths, truths, answers, 0.95, classes).value == pytest.approx(1 - value)
    assert TASK.confusion(ROWS) == {
        "intent=play": {"intent=play": 2},
        "intent=stop": {"intent=play": 1, "intent=stop": 1},
    }
    assert unlearned_score(TASK, [""] * len(truths), truths) == 0.5
    assert TASK.unfit("macro_f1", 3) == "use accuracy or intent_accuracy or entity_f1"
    assert TASK.classes_of(truths[0]) == ["intent=play", "song"]


@given(st.lists(st.floats(-5, 5, width=32), min_size=5, max_size=5), st.floats(0, 1))
def test_what_leads_in_either_part_must_stay(wanted: list[float], tolerance: float) -> None:
    assert 0 <= TASK.settled(LABELS, wanted, wanted, tolerance) <= 2
    swapped = [wanted[1], wanted[0], *wanted[2:]]
    if abs(wanted[0] - wanted[1]) > tolerance:
        with pytest.raises(ValueError, match="should be 'intent="):
            TASK.settled(LABELS, wanted, swapped, tolerance)


def test_a_prediction_without_slots() -> None:
    assert IntentPrediction("stop", 0.5, ()).as_json(with_scores=False) == {"intent": "stop", "score": 0.5, "slots": []}
    slot = SpanPrediction(0, 1, "song", 0.9, "晴")
    assert IntentPrediction("play", 0.5, (slot,)).answer == ("intent=play", Span(0, 1, "song"))
