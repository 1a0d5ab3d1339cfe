"""The floors of classes: one bad class fails the gate, and many good ones do not fail it by chance."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.synthetic_models import one_each

from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.gate import accuracy
from edgepack_runtime.schema.gates import Floors
from edgepack_runtime.schema.receipt import GateCheck
from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.metrics import Tally

CLASSES = ("负面", "正面", "中性")


def check(
    figure: str, every: float | None, tallies: Mapping[str, Tally], named: Mapping[str, float] | None = None
) -> GateCheck:
    return checked(tallies, {figure: Floors(every, named or {})}, CLASSES)


def checked(tallies: Mapping[str, Tally], floors: Mapping[str, Floors], classes: Sequence[str]) -> GateCheck:
    """Of rows that have no class twice."""
    (found,) = accuracy.class_checks({name: one_each(tally) for name, tally in tallies.items()}, floors, classes, 0.95)
    return found


def test_every_class_has_to_show_that_it_is_good_enough() -> None:
    good = {"负面": Tally(96, 4, 4), "正面": Tally(198, 2, 2), "中性": Tally(95, 5, 5)}
    found = check("recall", 0.85, good)
    assert (found.gate, found.verdict, found.n, found.limit) == ("accuracy.per_class.recall", "pass", 100, 0.85)
    assert found.detail == "lowest of 3 classes: 中性: 95 right of 100 in the golden rows"
    assert found.value == 0.95 and found.low == round(intervals.proportion(95, 100, 0.95).low, 6)


@pytest.mark.parametrize(
    ("figure", "floor", "worst", "verdict", "n", "value", "detail"),
    [
        ("recall", 0.85, Tally(60, 4, 40), "fail", 100, 0.6, "负面: 60 right of 100 in the golden rows"),
        ("precision", 0.9, Tally(90, 30, 10), "fail", 120, 0.75, "90 right of 120 answers"),
        ("f1", 0.9, Tally(90, 30, 10), "fail", 130, 0.818182, "90 right of 130 in the golden rows or the answers"),
        ("recall", 0.5, Tally(0, 0, 0), "inconclusive", 0, 0, "0 right of 0 in the golden rows; no golden row has "),
        ("precision", 0.5, Tally(0, 0, 49), "inconclusive", 0, 0, "0 right of 0 answers; no answer has this class; "),
    ],
)
def test_the_worst_class_decides(
    figure: str, floor: float, worst: Tally, verdict: str, n: int, value: float, detail: str
) -> None:
    known = {"正面": Tally(900, 10, 10), "中性": Tally(900, 10, 10)}
    found = check(figure, floor, {**known, "负面": worst} if any(worst) else known)
    assert (found.verdict, found.n, found.value) == (verdict, n, value)
    assert detail in found.detail
    if n == 0:  # nothing is known of it
        assert (found.low, found.high) == (0.0, 1.0)


def test_too_few_rows_say_how_many_would_do() -> None:
    found = check("recall", 0.8, {"负面": Tally(9, 0, 1), "正面": Tally(900, 0, 0), "中性": Tally(900, 0, 0)})
    assert found.verdict == "inconclusive"
    wanted = intervals.n_for_proportion(0.9, 0.8, 0.95)
    assert f"负面: 9 right of 10 in the golden rows; about {wanted} rows of 负面 would decide; " in found.detail
    assert found.detail.endswith("the high end allows for 3 classes")


def test_rows_that_decide_a_fail_are_counted_as_the_fail_is() -> None:
    """A fail among fifty classes takes an interval that is wider than that of one."""
    labels = tuple(f"c{number}" for number in range(50))
    for right, n, more in ((25, 40, 71), (200, 275, 366)):
        tallies = {**dict.fromkeys(labels, Tally(100, 0, 0)), "c0": Tally(right, 0, n - right)}
        found = checked(tallies, {"recall": Floors(0.8, {})}, labels)
        assert found.verdict == "inconclusive" and f"about {more} rows of c0 would decide" in found.detail
        assert found.low is not None and found.high is not None and found.low < 0.8 <= found.high


@given(
    st.lists(st.tuples(*[st.integers(0, 120)] * 3).map(lambda numbers: Tally(*numbers)), min_size=1, max_size=20),
    st.sampled_from(["recall", "precision", "f1"]),
    st.sampled_from([0.3, 0.5, 0.8, 0.95, 1.0]),
)
def test_the_verdict_follows_from_what_is_told(tallies: list[Tally], figure: str, floor: float) -> None:
    labels = tuple(map(str, range(len(tallies))))
    found = checked(dict(zip(labels, tallies, strict=True)), {figure: Floors(floor, {})}, labels)
    assert found.value is not None and found.low is not None and found.high is not None
    assert found.low <= found.value <= found.high
    strict = 1 - 0.05 / len(tallies)
    shares = [accuracy.class_share(figure, one_each(tally)) for tally in tallies]
    each = [accuracy.class_interval(figure, share, 0.95, strict) for share in shares]
    assert found.verdict == intervals.overall([intervals.verdict_at_least(one, floor) for one in each])
    assert any((found.low, found.high) == (round(one.low, 6), round(one.high, 6)) for one in each)
    decides = re.search(r"about (\d+) (rows|answers) of", found.detail)
    assert decides is None or (found.verdict == "inconclusive" and int(decides[1]) > found.n)


def test_the_number_of_rows_that_would_decide_an_f1_is_counted_as_its_share() -> None:
    found = check("f1", 0.9, {"负面": Tally(9, 1, 0), "正面": Tally(900, 0, 0), "中性": Tally(900, 0, 0)})
    wanted = intervals.n_for_proportion(0.9, 0.9 / 1.1, 0.95)
    assert wanted is not None
    assert found.verdict == "inconclusive" and f"about {wanted} rows of 负面" in found.detail
    share = 0.9 * wanted
    assert 2 / (1 + 1 / intervals.proportion(share, wanted, 0.95).low) >= 0.9


def test_a_named_class_has_a_floor_of_its_own() -> None:
    tallies = {"负面": Tally(80, 0, 20), "正面": Tally(99, 0, 1), "中性": Tally(98, 0, 2)}
    assert check("recall", 0.9, tallies, {"负面": 0.7}).verdict == "pass"
    assert check("recall", 0.9, tallies).verdict == "fail"
    alone = check("recall", None, tallies, {"正面": 0.9})
    assert alone.verdict == "pass" and alone.detail == "正面: 99 right of 100 in the golden rows"
    once = check("precision", None, {"正面": Tally(1, 0, 0)}, {"正面": 0.9})
    assert once.detail.startswith("正面: 1 right of 1 answer; ")


def test_more_than_three_bad_classes_are_counted() -> None:
    labels = tuple(map(str, range(6)))
    found = checked(dict.fromkeys(labels, Tally(10, 0, 90)), {"recall": Floors(0.8, {})}, labels)
    assert found.verdict == "fail" and "in the golden rows; and 3 more of 6 classes; the high end" in found.detail


def test_of_many_classes_at_their_floor_few_gates_fail() -> None:
    """Without the correction a model of fifty classes, each as good as its floor, would fail in most cases."""
    source, labels = random.Random(5), tuple(map(str, range(50)))
    verdicts, uncorrected = [], 0
    for _ in range(400):
        right = {label: sum(source.random() < 0.8 for _ in range(60)) for label in labels}
        tallies = {label: Tally(count, 0, 60 - count) for label, count in right.items()}
        found = checked(tallies, {"recall": Floors(0.8, {})}, labels)
        verdicts.append(found.verdict)
        uncorrected += any(intervals.proportion(count, 60, 0.95).high < 0.8 for count in right.values())
    assert verdicts.count("fail") <= 400 * 0.025 + 4 * math.sqrt(400 * 0.025 * 0.975)
    assert verdicts.count("pass") == 0
    assert uncorrected > 100


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300), st.sampled_from(["recall", "precision", "f1"]))
def test_an_interval_holds_its_figure(tp: int, fp: int, fn: int, figure: str) -> None:
    tally = Tally(tp, fp, fn)
    found = accuracy.class_interval(figure, accuracy.class_share(figure, one_each(tally)), 0.95, 0.99)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.value == pytest.approx(getattr(tally, figure))


def test_a_floor_for_a_class_that_the_model_lacks_is_refused() -> None:
    config = ModelConfig("text-classification", CLASSES, 128, "int8")
    assert accuracy.model_classes(config, {"recall": Floors(0.5, {"负面": 0.9})}) == CLASSES
    with pytest.raises(BundleInvalidError, match="a class that the model does not have") as caught:
        accuracy.model_classes(config, {"recall": Floors(None, {"负": 0.9})})
    assert caught.value.why == "accuracy.per_class names 负; there are 负面, 正面, 中性"
    tokens = ModelConfig("token-classification", ("O", "B-地名", "I-地名"), 128, "int8")
    assert accuracy.model_classes(tokens, {"f1": Floors(None, {"地名": 0.5})}) == ("地名",)


def test_spans_that_come_together_count_for_fewer() -> None:
    """Five spans a text, all of them right or none: 40 texts, and not 200 spans."""
    rows = {"负面": {Tally(5, 0, 0): 36, Tally(0, 0, 5): 4}}
    share = accuracy.class_share("recall", rows["负面"])
    assert (share.right, share.n) == (180, 200) and share.worth == pytest.approx(40)
    (found,) = accuracy.class_checks(rows, {"recall": Floors(0.8, {})}, ("负面",), 0.95)
    assert found.verdict == "inconclusive" and found.n == 200
    assert found.low == round(intervals.proportion(36, 40, 0.95).low, 6)
    assert "180 right of 200 in the golden rows, worth 40 since some share a text; about " in found.detail
    texts = intervals.n_for_proportion(0.9, 0.8, 0.95)
    assert texts is not None and f"about {5 * texts} spans of 负面 would decide" in found.detail
    (alone,) = accuracy.class_checks(
        {"负面": one_each(Tally(180, 0, 20))}, {"recall": Floors(0.8, {})}, ("负面",), 0.95
    )
    assert alone.verdict == "pass"
