from __future__ import annotations

import pytest

from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.metrics import Answer, Pair, Tally
from edgepack_runtime.util.spans import Span, token_spans


def pairs(truths: str, answers: str) -> list[Pair]:
    return list(zip(truths.split(), answers.split(), strict=True))


# scikit-learn 1.5, f1_score(average="macro"): 0.26667 for these (its own documentation's example)
SINGLE = pairs("0 1 2 0 1 2", "0 2 1 0 0 1")
# seqeval's own example: F1 0.5 micro and macro; precision, recall, F1, support: MISC 0 0 0 1, PER 1 1 1 1
TAGS = [("O O O B-MISC I-MISC I-MISC O", "O O B-MISC I-MISC I-MISC I-MISC O"), ("B-PER I-PER O", "B-PER I-PER O")]
SPANS: list[Pair] = [(token_spans(truth.split()), token_spans(found.split())) for truth, found in TAGS]
LABELS: list[Pair] = [(("a", "b"), ("b", "a")), (("a",), ()), ((), ("c",)), ((), ())]


def test_classes_of_one_label() -> None:
    tallies = metrics.class_tallies(SINGLE)
    assert tallies == {"0": Tally(2, 1, 0), "1": Tally(0, 2, 2), "2": Tally(0, 1, 2)}
    assert metrics.macro_f1(tallies) == pytest.approx(0.26667, abs=1e-5)
    assert metrics.micro_f1(tallies) == metrics.accuracy(SINGLE) == pytest.approx(2 / 6)
    assert (tallies["0"].precision, tallies["0"].recall, tallies["0"].support) == (2 / 3, 1.0, 2)


def test_entities_count_with_exact_ends() -> None:
    tallies = metrics.class_tallies(SPANS)
    assert tallies == {"MISC": Tally(0, 1, 1), "PER": Tally(1, 0, 0)}
    assert metrics.micro_f1(tallies) == metrics.macro_f1(tallies) == 0.5
    assert metrics.accuracy(SPANS) == 0.5
    other = [((Span(0, 2, "PER"),), (Span(0, 2, "LOC"),))]
    assert metrics.class_tallies(other) == {"LOC": Tally(0, 1, 0), "PER": Tally(0, 0, 1)}


def test_several_labels_count_one_by_one() -> None:
    tallies = metrics.class_tallies(LABELS)
    assert tallies == {"a": Tally(1, 0, 1), "b": Tally(1, 0, 0), "c": Tally(0, 1, 0)}
    assert metrics.accuracy(LABELS) == 0.5  # the order of labels is nothing, and none at all can be right
    assert metrics.micro_f1(tallies) == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert metrics.macro_f1(tallies) == pytest.approx((2 / 3 + 1 + 0) / 3)


def test_nothing_to_find_and_nothing_found_is_no_success() -> None:
    nothing: list[Pair] = [((), ())]
    assert metrics.class_tallies(nothing) == {}
    assert metrics.micro_f1({}) == metrics.macro_f1({}) == 0.0
    assert metrics.values(nothing)["entity_f1"] == 0.0
    assert Tally(0, 0, 0).precision == Tally(0, 0, 0).recall == Tally(0, 0, 0).f1 == 0.0
    with pytest.raises(ValueError, match="no rows"):
        metrics.accuracy([])


def test_values_are_all_metrics() -> None:
    found = metrics.values(pairs("1 1 0 0", "1 0 1 0"), "1")
    assert found == dict.fromkeys(metrics.LABEL_METRICS, 0.5)
    assert metrics.values(pairs("0 0", "0 0"), "1")["f1"] == 0.0
    assert metrics.values(SPANS)["entity_f1"] == 0.5
    assert metrics.F1 not in metrics.values(SINGLE)


@pytest.mark.parametrize(
    ("labels", "truths", "positive"),
    [
        ("0 1", "1 1 1 0", "1"),  # AFQMC, whatever is rarer
        ("no yes", "no no yes", "yes"),
        ("no yes", "yes yes no", "no"),
        ("no yes", "yes no", "yes"),
        ("yes no", "yes no", "yes"),
        ("no yes", "no no", "yes"),
    ],
)
def test_which_of_two_labels_is_the_positive_one(labels: str, truths: str, positive: str) -> None:
    assert metrics.positive_label(labels.split(), truths.split()) == positive
    with pytest.raises(ValueError, match="3 labels"):
        metrics.positive_label(["0", "1", "2"], ["1"])


def test_worst_classes_come_first() -> None:
    tallies = {"good": Tally(9, 1, 0), "rare": Tally(0, 0, 1), "bad": Tally(0, 4, 5), "odd": Tally(0, 0, 1)}
    assert metrics.worst(tallies, 3) == ["bad", "odd", "rare"]


def test_confusion_is_of_one_label_or_of_spans_with_the_same_ends() -> None:
    assert metrics.confusion(SINGLE) == {"0": {"0": 2}, "1": {"0": 1, "2": 1}, "2": {"1": 2}}
    truth = (Span(0, 1, "a"), Span(2, 3, "a"), Span(4, 5, "b"))
    found = (Span(0, 1, "a"), Span(2, 3, "b"), Span(4, 6, "b"))
    assert metrics.confusion([(truth, found), ((), ())]) == {"O": {"b": 1}, "a": {"a": 1, "b": 1}, "b": {"O": 1}}


@pytest.mark.parametrize("pair", [(("a",), ("b",)), (("a",), ()), ("a", ()), (("a",), "a")])
def test_several_labels_have_no_confusion(pair: tuple[Answer, Answer]) -> None:
    with pytest.raises(ValueError, match="not made of spans"):
        metrics.confusion([pair])


@pytest.mark.parametrize(
    ("label", "names"),
    [
        ("1", ("1",)),
        (("a", "b"), ("a", "b")),
        ((), ()),
        ((Span(0, 1, "y"), Span(1, 2, "x"), Span(2, 3, "y")), ("x", "y")),
    ],
)
def test_an_answer_has_the_classes_of_its_labels_or_spans(label: metrics.Label, names: tuple[str, ...]) -> None:
    assert metrics.classes_of(label) == list(names)
