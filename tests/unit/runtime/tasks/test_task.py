"""What all tasks have in common: the answer that needs no learning, whatever the metric."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.stats.metrics import NUMBER_METRICS, metric_of
from edgepack_runtime.tasks.registry import TASKS
from edgepack_runtime.tasks.task import Task, unlearned_score
from edgepack_runtime.util.spans import Span

_SPANS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from("ab")).map(lambda one: Span(one[0], one[0] + 1, one[1])),
    max_size=3,
    unique=True,
).map(lambda spans: tuple(sorted(spans)))
_TRUTHS: dict[str, st.SearchStrategy[Any]] = {
    "label": st.sampled_from("01"),
    "labels": st.lists(st.sampled_from("abc"), unique=True, max_size=3).map(lambda labels: tuple(sorted(labels))),
    "spans": _SPANS,
    "intent": st.tuples(st.sampled_from(["intent=a", "intent=b"]), _SPANS).map(lambda one: (one[0], *one[1])),
    "value": st.integers(-3, 3).map(float),
    "answers": st.sampled_from(["甲", "乙", "甲乙", ""]).map(lambda text: (Span(0, len(text), text),) if text else ()),
}


@pytest.mark.parametrize("task", [task for task in TASKS if task.name.count("pair") == 0], ids=lambda task: task.name)
@given(data=st.data())
def test_no_constant_answer_is_better_than_the_one_a_gate_compares_with(task: Task, data: st.DataObject) -> None:
    answers = _TRUTHS[task.answer_key]
    truths = data.draw(st.lists(answers, min_size=1, max_size=8))
    classes = {"label": "01", "labels": "abc", "spans": "ab", "intent": ["intent=a", "intent=b", "a", "b"]}.get(
        task.answer_key, ()
    )
    tried = list(truths)
    if task.answer_key != "answers":  # of which any text may be one, also two answers together
        tried += [data.draw(answers), data.draw(answers)]
    if task.answer_key in ("spans", "labels"):  # those of several rows together
        tried += [tuple(sorted({*one, *other})) for one, other in itertools.combinations(truths, 2)]
    for metric in task.metric_names:
        if task.unfit(metric, len(classes)) is not None:
            continue
        best = task.constant_answer(truths, metric, classes)

        def value(answer: Any, metric: str = metric) -> float:
            found = task.values([(truth, answer) for truth in truths], classes)[metric]
            return found if metric_of(metric).more_is_better else -found

        if metric in NUMBER_METRICS[:2]:
            assert value(best) == 0  # as each of them
        else:
            assert all(value(best) >= value(answer) - 1e-12 for answer in tried)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.name}-{task.answer_key}")
def test_what_is_always_right_leaves_nothing_to_learn(task: Task) -> None:
    truth = {
        "label": "a", "labels": ("a",), "spans": (Span(0, 1, "a"),), "intent": ("intent=a",), "value": 2.0,
        "answers": (Span(0, 1, "甲"),),
    }[task.answer_key]  # fmt: skip
    assert unlearned_score(task, [("", "")] * len([truth, truth]), [truth, truth]) is None
