"""The device's metrics against the libraries that define them: seqeval for entities, scikit-learn for classes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sweeps import examples

from edgepack_runtime.stats import metrics
from edgepack_runtime.util.spans import token_spans

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, on import
    from seqeval.metrics.sequence_labeling import get_entities
    from seqeval.metrics.sequence_labeling import precision_recall_fscore_support as entity_scores
    from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, precision_recall_fscore_support
    from sklearn.preprocessing import MultiLabelBinarizer

pytestmark = pytest.mark.integration

TAGS = st.sampled_from(["O", *(f"{form}-{name}" for form in "BIES" for name in ("PER", "LOC", "a-b"))])
SENTENCES = st.lists(
    st.integers(1, 8).flatmap(lambda n: st.tuples(*[st.lists(TAGS, min_size=n, max_size=n)] * 2)),
    min_size=1,
    max_size=6,
)
LABELS = st.sampled_from("abcd")


@settings(max_examples=examples(300))
@given(st.lists(TAGS, max_size=12))
def test_spans_are_those_of_seqeval(tags: list[str]) -> None:
    """Broken sequences among them."""
    theirs = [(start, end + 1, name) for name, start, end in get_entities(tags)]
    assert sorted(token_spans(tags)) == sorted(theirs)


@settings(max_examples=examples(200))
@given(SENTENCES)
def test_entities_are_scored_as_by_seqeval(sentences: Sequence[tuple[list[str], list[str]]]) -> None:
    truths, answers = ([pair[side] for pair in sentences] for side in (0, 1))
    pairs: list[metrics.Pair] = [(token_spans(truth), token_spans(found)) for truth, found in sentences]
    tallies = metrics.class_tallies(pairs)
    pooled = metrics.pooled(tallies.values())
    micro = entity_scores(truths, answers, average="micro", zero_division=0)
    assert (pooled.precision, pooled.recall, pooled.f1, pooled.support) == pytest.approx(micro)
    if tallies:
        macro = entity_scores(truths, answers, average="macro", zero_division=0)
        assert metrics.macro_f1(tallies) == pytest.approx(macro[2])
        _same_classes(tallies, entity_scores(truths, answers, average=None, zero_division=0))


@pytest.mark.filterwarnings("ignore:A single label was found")
@settings(max_examples=examples(200))
@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=30))
def test_labels_are_scored_as_by_scikit_learn(pairs: list[metrics.Pair]) -> None:
    truths, answers = ([pair[side] for pair in pairs] for side in (0, 1))
    tallies = metrics.class_tallies(pairs)
    assert metrics.accuracy(pairs) == pytest.approx(accuracy_score(truths, answers))
    assert metrics.micro_f1(tallies) == pytest.approx(f1_score(truths, answers, average="micro", zero_division=0))
    assert metrics.macro_f1(tallies) == pytest.approx(f1_score(truths, answers, average="macro", zero_division=0))
    _same_classes(tallies, precision_recall_fscore_support(truths, answers, zero_division=0))
    matrix = confusion_matrix(truths, answers, labels=sorted(tallies)).tolist()
    found = metrics.confusion(pairs)
    assert [[found.get(row, {}).get(column, 0) for column in tallies] for row in tallies] == matrix


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(*[st.lists(LABELS, unique=True).map(tuple)] * 2), min_size=1, max_size=20))
def test_several_labels_are_scored_as_by_scikit_learn(pairs: list[metrics.Pair]) -> None:
    tallies = metrics.class_tallies(pairs)
    table = MultiLabelBinarizer(classes=list("abcd"))
    truths, answers = (table.fit_transform([pair[side] for pair in pairs]) for side in (0, 1))
    assert metrics.accuracy(pairs) == pytest.approx(accuracy_score(truths, answers))
    assert metrics.micro_f1(tallies) == pytest.approx(f1_score(truths, answers, average="micro", zero_division=0))
    occurring = ["abcd".index(name) for name in tallies]  # scikit-learn counts the columns of all others as 0
    scores = f1_score(truths, answers, average=None, zero_division=0)[occurring]
    assert metrics.macro_f1(tallies) == pytest.approx(scores.mean() if occurring else 0.0)


def _same_classes(tallies: dict[str, metrics.Tally], theirs: Sequence[Any]) -> None:
    ours = [(t.precision, t.recall, t.f1, t.support) for t in tallies.values()]
    assert ours == [pytest.approx(row) for row in zip(*theirs, strict=True)]
