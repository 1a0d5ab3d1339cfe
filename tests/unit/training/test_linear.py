"""The linear model as it is trained: scikit-learn beside the runtime's reader."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from edgepack import evaluation
from edgepack.artifacts import NO_SCALE, Row
from edgepack.tasks.registry import training_task
from edgepack.tasks.task import TrainingTask
from edgepack.training import linear
from edgepack_runtime.inference import linear as linear_runtime
from edgepack_runtime.inference.linear import LinearModel
from edgepack_runtime.tasks.registry import NUMBER_OF_PAIR, ONE_TEXT, task_by_name
from edgepack_runtime.tasks.task import Task

ONE, SEVERAL = (task_by_name(ONE_TEXT, multi_label=several) for several in (False, True))
WORDS = {"酒店": ("房间", "早餐", "前台"), "美食": ("好吃", "味道", "菜量"), "交通": ("地铁", "堵车", "打车")}


def rows(count: int, seed: int) -> list[Row]:
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        label = draw.choice(sorted(WORDS))
        text = "，".join(draw.choices(WORDS[label], k=2) + draw.choices(["不错", "一般", "还行"], k=2))
        made.append(Row(text, label))
    return made


def learner(labels: Sequence[str], task: Task = ONE) -> TrainingTask:
    return training_task(task, tuple(labels), NO_SCALE)


def accuracy(model: LinearModel, test: list[Row], labels: list[str]) -> float:
    answers = evaluation.linear_answers(model, test, labels, ONE)
    return evaluation.value(ONE, test, answers, labels)


@pytest.mark.parametrize("labels", [["交通", "酒店"], ["交通", "美食", "酒店"]])
def test_it_learns_labels_of_which_a_text_has_one(labels: list[str]) -> None:
    train, dev, test = ([row for row in rows(200, seed) if row.label in labels] for seed in range(3))
    model = LinearModel(linear.fit(learner(labels), train, dev).document)
    assert accuracy(model, test, labels) == 1.0


def test_it_learns_several_labels_of_a_text() -> None:
    labels = sorted(WORDS)
    several = []
    for seed in range(3):
        pairs = zip(rows(200, seed), rows(200, seed + 9), strict=True)
        several.append([Row(a.text + b.text, tuple(sorted({str(a.label), str(b.label)}))) for a, b in pairs])
    model = LinearModel(linear.fit(learner(labels, SEVERAL), several[0], several[1]).document)
    answers = evaluation.linear_answers(model, several[2], labels, SEVERAL)
    assert evaluation.value(SEVERAL, several[2], answers, labels) > 0.99


def test_it_learns_how_alike_two_texts_are() -> None:
    """From what both have, not from which words they are: those of dev and test never occur in training."""
    task = task_by_name(NUMBER_OF_PAIR)
    draw = random.Random(0)

    def pairs(first: int) -> list[Row]:
        made = []
        for number in range(first, first + 200):
            words = [chr(0x4E00 + 40 * number % 4000 + place) for place in range(10)]
            shared = number % 11
            other = [chr(0x6000 + draw.randrange(2000)) for _ in range(10 - shared)]
            made.append(Row("".join(words), 10.0 * shared, "".join(words[:shared] + other)))
        return made

    train, dev, test = pairs(0), pairs(1000), pairs(2000)
    model = LinearModel(linear.fit(training_task(task, ("value",), NO_SCALE), train, dev).document)
    answers = evaluation.linear_answers(model, test, ("value",), task)
    assert evaluation.value(task, test, answers, ()) > 0.95  # Spearman's correlation
    assert max(abs(row.label - answer) for row, answer in zip(test, answers, strict=True)) < 30


def test_a_label_without_rows_is_never_given() -> None:
    labels = [*sorted(WORDS), "无"]
    model = LinearModel(linear.fit(learner(labels), rows(200, 0), rows(100, 1)).document)
    assert accuracy(model, rows(200, 2), labels) == 1.0


def test_the_same_rows_give_the_same_model_with_the_largest_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    train, dev, labels = rows(200, 0), rows(100, 1), sorted(WORDS)
    whole = linear.fit(learner(labels), train, dev)
    assert whole == linear.fit(learner(labels), train, dev)
    monkeypatch.setattr(linear, "MOST_NGRAMS", 20)
    few = linear.fit(learner(labels), train, dev)
    assert (few.ngrams, len(few.document["ngrams"])) == (20, 20) and whole.ngrams > 20
    assert accuracy(LinearModel(few.document), rows(200, 2), labels) > 0.95


def test_a_sample_is_all_rows_or_as_many_as_asked() -> None:
    all_rows = rows(50, 0)
    assert linear.sample(all_rows, 50) == all_rows
    some = linear.sample(all_rows, 50, 10)
    assert len(some) == 10 and some == linear.sample(all_rows, 50, 10)


def test_two_rows_are_enough_but_many_have_to_share_something() -> None:
    few, labels = [Row("甲", "a"), Row("乙", "b")], ["a", "b"]
    model = LinearModel(linear.fit(learner(labels), few, few).document)
    assert accuracy(model, few, labels) == 1.0
    many = [Row(chr(0x4E00 + number), labels[number % 2]) for number in range(linear.FEW_ROWS)]
    with pytest.raises(ValueError):
        linear.fit(learner(labels), many, few)


def test_the_order_of_sets_in_a_process_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = linear.fit(learner(sorted(WORDS)), rows(200, 0), rows(100, 1))
    of_text = linear_runtime.ngrams
    monkeypatch.setattr(linear_runtime, "ngrams", lambda text: sorted(of_text(text), reverse=True))
    assert whole == linear.fit(learner(sorted(WORDS)), rows(200, 0), rows(100, 1))


def test_thousands_of_labels_leave_fewer_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    train, dev = rows(200, 0), rows(200, 1)
    monkeypatch.setattr(linear, "MOST_NUMBERS", 3 * 40)
    found = linear.fit(learner(sorted(WORDS)), train, dev)
    assert found.ngrams == 40
