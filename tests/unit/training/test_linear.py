"""The linear model as it is trained: scikit-learn beside the runtime's reader."""

from __future__ import annotations

import random

import pytest

from edgepack import evaluation
from edgepack.artifacts import Row
from edgepack.training import linear
from edgepack_runtime.inference import linear as linear_runtime
from edgepack_runtime.inference.linear import LinearModel
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name

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


def accuracy(model: LinearModel, test: list[Row], labels: list[str]) -> float:
    answers = evaluation.linear_answers(model, test, labels, ONE)
    return evaluation.value(ONE, test, answers, labels)


@pytest.mark.parametrize("labels", [["交通", "酒店"], ["交通", "美食", "酒店"]])
def test_it_learns_labels_of_which_a_text_has_one(labels: list[str]) -> None:
    train, dev, test = ([row for row in rows(200, seed) if row.label in labels] for seed in range(3))
    model = LinearModel(linear.fit(train, dev, labels, multi_label=False).document)
    assert accuracy(model, test, labels) == 1.0


def test_it_learns_several_labels_of_a_text() -> None:
    labels = sorted(WORDS)
    several = []
    for seed in range(3):
        pairs = zip(rows(200, seed), rows(200, seed + 9), strict=True)
        several.append([Row(a.text + b.text, tuple(sorted({str(a.label), str(b.label)}))) for a, b in pairs])
    model = LinearModel(linear.fit(several[0], several[1], labels, multi_label=True).document)
    answers = evaluation.linear_answers(model, several[2], labels, SEVERAL)
    assert evaluation.value(SEVERAL, several[2], answers, labels) > 0.99


def test_a_label_without_rows_is_never_given() -> None:
    labels = [*sorted(WORDS), "无"]
    model = LinearModel(linear.fit(rows(200, 0), rows(100, 1), labels, multi_label=False).document)
    assert accuracy(model, rows(200, 2), labels) == 1.0


def test_the_same_rows_give_the_same_model_with_the_largest_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    train, dev, labels = rows(200, 0), rows(100, 1), sorted(WORDS)
    whole = linear.fit(train, dev, labels, multi_label=False)
    assert whole == linear.fit(train, dev, labels, multi_label=False)
    monkeypatch.setattr(linear, "MOST_NGRAMS", 20)
    few = linear.fit(train, dev, labels, multi_label=False)
    assert (few.ngrams, len(few.document["ngrams"])) == (20, 20) and whole.ngrams > 20
    assert accuracy(LinearModel(few.document), rows(200, 2), labels) > 0.95


def test_a_sample_is_all_rows_or_as_many_as_asked() -> None:
    all_rows = rows(50, 0)
    assert linear.sample(all_rows, 50) == all_rows
    some = linear.sample(all_rows, 50, 10)
    assert len(some) == 10 and some == linear.sample(all_rows, 50, 10)


def test_two_rows_are_enough_but_many_have_to_share_something() -> None:
    few, labels = [Row("甲", "a"), Row("乙", "b")], ["a", "b"]
    model = LinearModel(linear.fit(few, few, labels, multi_label=False).document)
    assert accuracy(model, few, labels) == 1.0
    many = [Row(chr(0x4E00 + number), labels[number % 2]) for number in range(linear.FEW_ROWS)]
    with pytest.raises(ValueError):
        linear.fit(many, few, labels, multi_label=False)


def test_the_order_of_sets_in_a_process_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = linear.fit(rows(200, 0), rows(100, 1), sorted(WORDS), multi_label=False)
    of_text = linear_runtime.ngrams
    monkeypatch.setattr(linear_runtime, "ngrams", lambda text: sorted(of_text(text), reverse=True))
    assert whole == linear.fit(rows(200, 0), rows(100, 1), sorted(WORDS), multi_label=False)


def test_thousands_of_labels_leave_fewer_ngrams(monkeypatch: pytest.MonkeyPatch) -> None:
    train, dev = rows(200, 0), rows(200, 1)
    monkeypatch.setattr(linear, "MOST_NUMBERS", 3 * 40)
    found = linear.fit(train, dev, sorted(WORDS), multi_label=False)
    assert found.ngrams == 40
