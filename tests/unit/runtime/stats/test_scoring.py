from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepack_runtime.stats import intervals as stats
from edgepack_runtime.stats import metrics, scoring
from edgepack_runtime.stats.metrics import LABEL_METRICS, Answer
from edgepack_runtime.stats.scoring import Counts
from edgepack_runtime.util.spans import Span

F1S = ("macro_f1", "micro_f1", "f1", "entity_f1")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer resamples, for tests that look at values and not at ends."""
    monkeypatch.setattr(scoring, "resamples_for", lambda confidence: 20)


def labels(seed: int, n: int, wrong: float, positive_share: float = 0.5) -> tuple[list[str], list[str]]:
    """Truths and answers of two labels; each answer is wrong with the same probability."""
    source = random.Random(seed)
    truths = ["1" if source.random() < positive_share else "0" for _ in range(n)]
    turned = {"0": "1", "1": "0"}
    return truths, [turned[truth] if source.random() < wrong else truth for truth in truths]


def test_rows_are_counted_by_the_errors_of_two_models() -> None:
    assert scoring.count([0, 0, 0, 0, 1, 1], [0, 1, 1, 1, 0, 1]) == Counts(n=6, lost=3, won=1)
    assert scoring.count([0.5, 0.25], [0.5, 0.75]) == Counts(2, lost=1, won=0)
    with pytest.raises(ValueError, match="2 and 1"):
        scoring.count([0, 0], [0])


def test_accuracy_keeps_its_formulas() -> None:
    truths, answers = labels(1, 200, 0.1)
    _, others = labels(2, 200, 0.5)
    right = sum(map(metrics.same, truths, answers))
    assert scoring.interval("accuracy", truths, answers, 0.95) == stats.proportion(right, 200, 0.95)
    counts = scoring.count(*(list(map(operator.ne, truths, said)) for said in (answers, others)))
    expected = stats.paired_drop(counts.lost, counts.won, 200, 0.95)
    assert scoring.drop("accuracy", truths, answers, others, 0.95) == expected


def test_micro_f1_of_one_label_is_about_as_certain_as_accuracy() -> None:
    truths, answers = labels(3, 400, 0.1)
    _, others = labels(4, 400, 0.05)
    for function in (scoring.interval, scoring.drop):
        given = (truths, answers) if function is scoring.interval else (truths, answers, others)
        one: Callable[..., stats.Interval] = function
        assert one("micro_f1", *given, 0.95) == pytest.approx(one("accuracy", *given, 0.95), abs=0.01)


@pytest.mark.parametrize("metric", F1S)
def test_answers_without_an_error_are_no_certainty(metric: str) -> None:
    """The bootstrap alone would give an interval without a width."""
    truths: list[Answer] = [(Span(0, 1, "1"),)] * 20 if metric == "entity_f1" else ["0", "1"] * 20
    interval = scoring.interval(metric, truths, truths, 0.95, "1", ["0", "1"])
    assert interval.value == interval.high == 1.0 and 0.8 < interval.low < 0.96
    drop = scoring.drop(metric, truths, truths, truths, 0.95, "1", ["0", "1"])
    assert drop.value == 0.0 and -0.2 < drop.low < -0.04 and 0.04 < drop.high < 0.2


def test_a_rare_class_is_known_as_badly_as_its_own_rows_say() -> None:
    few, many = ["1"] * 20 + ["0"] * 480, ["1"] * 250 + ["0"] * 250
    rare = scoring.interval("f1", few, few, 0.95, "1")
    share = stats.proportion(20, 20, 0.95).low
    assert rare.low == pytest.approx(2 * share / (1 + share), abs=0.01), "as F1 follows from the share that is found"
    assert scoring.interval("f1", many, many, 0.95, "1").low > 0.98
    assert scoring.interval("f1", few, few, 0.95, "0").low > 0.99


@pytest.mark.parametrize("metric", F1S)
@pytest.mark.parametrize("answers", [[()], [(), ()]])
def test_nothing_to_find_says_nothing(metric: str, answers: list[Answer]) -> None:
    assert scoring.interval(metric, answers, answers, 0.95, "1", ["0", "1"]) == (0.0, 0.0, 1.0)
    assert scoring.drop(metric, answers, answers, answers, 0.95, "1", ["0", "1"]) == (0.0, -1.0, 1.0)


def test_a_class_that_no_row_has_is_anything() -> None:
    truths = ["a", "b"] * 100
    known = scoring.interval("macro_f1", truths, truths, 0.95, classes=["a", "b"])
    one, two = (scoring.interval("macro_f1", truths, truths, 0.95, classes=classes) for classes in ("abc", "abcd"))
    assert known.value == one.value == two.value == 1.0 == one.high
    assert one.low == pytest.approx(known.low * 2 / 3, abs=0.002) and two.low == pytest.approx(known.low / 2, abs=0.002)
    drop, further = (scoring.drop("macro_f1", truths, truths, truths, 0.95, classes=names) for names in ("ab", "abc"))
    assert further.value == 0.0 and further.high == pytest.approx(drop.high * 2 / 3 + 1 / 3, abs=0.002)
    assert further.low == pytest.approx(-further.high, abs=0.002)


def test_answers_that_gave_a_class_wrongly_leave_it_less_room() -> None:
    """Without a row of it its F1 is 0; what it will be is the more uncertain, the fewer answers gave it."""
    truths = ["a"] * 200
    highs = []
    for wrong in (1, 20, 100):
        found = scoring.interval("macro_f1", truths, ["b"] * wrong + ["a"] * (200 - wrong), 0.95, classes="ab")
        assert found.low < found.value < found.high
        highs.append(found.high)
    assert highs[0] > 0.9 and highs == sorted(highs, reverse=True) and highs[2] < 0.5
    drop = scoring.drop("macro_f1", truths, truths, ["b"] * 20 + ["a"] * 180, 0.95, classes="ab")
    assert drop.value == pytest.approx(1 - (2 * 180 / 380) / 2) and drop.low < 0.1 and drop.high > drop.value


@pytest.mark.parametrize("classes", [None, []])
def test_a_macro_f1_needs_the_classes_of_the_model(classes: list[str] | None) -> None:
    with pytest.raises(ValueError, match="macro_f1 needs the classes of the model, and there are none"):
        scoring.interval("macro_f1", ["a"], ["a"], 0.95, classes=classes)
    with pytest.raises(ValueError, match="macro_f1 needs the classes of the model, and there are none"):
        scoring.drop("macro_f1", ["a"], ["a"], ["a"], 0.95, classes=classes)


def test_errors_that_come_together_widen_the_interval() -> None:
    """Ten rows of ten spans that are all missed are ten errors and not a hundred."""
    spans = tuple(Span(i, i + 1, "x") for i in range(10))
    truths: list[Answer] = [spans] * 200
    together: list[Answer] = [()] * 10 + [spans] * 190
    apart: list[Answer] = [spans[1:]] * 100 + [spans] * 100
    wide, narrow = (scoring.interval("entity_f1", truths, found, 0.95) for found in (together, apart))
    assert wide.value == narrow.value
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_a_label_that_only_one_model_says_is_a_class_too() -> None:
    drop = scoring.drop("f1", ["0"] * 9, ["0"] * 9, ["1"] + ["0"] * 8, 0.95, "1")
    assert drop.value == 0.0 and drop.low <= -0.5
    drop = scoring.drop("macro_f1", ["0"] * 9, ["0"] * 9, ["1"] + ["0"] * 8, 0.95, classes=["0", "1"])
    assert drop.value == pytest.approx(1 - (2 * 8 / 17 + 0) / 2)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_f1_of_one_label_misses_as_seldom_as_it_says(confidence: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every outcome of eight rows with its chance, so that nothing is left to luck, for models of many kinds."""
    monkeypatch.setattr(scoring, "resamples_for", lambda confidence: 1000)
    rows = 8
    outcomes = [
        (found, false, missed, rows - found - false - missed)
        for found in range(rows + 1)
        for false in range(rows + 1 - found)
        for missed in range(rows + 1 - found - false)
    ]
    intervals = {}
    for found, false, missed, left in outcomes:
        truths = ["1"] * (found + missed) + ["0"] * (false + left)
        answers = ["1"] * found + ["0"] * missed + ["1"] * false + ["0"] * left
        intervals[found, false, missed, left] = scoring.interval("f1", truths, answers, confidence, "1")
    for share, recall, specificity in itertools.product((0.05, 0.2, 0.5, 0.9), (0.1, 0.5, 0.9), (0.3, 0.8, 0.98)):
        chances = (share * recall, (1 - share) * (1 - specificity), share * (1 - recall), (1 - share) * specificity)
        true = 2 * chances[0] / (2 * chances[0] + chances[1] + chances[2])
        ways = {one: math.factorial(rows) / math.prod(map(math.factorial, one)) for one in outcomes}
        likely = {one: ways[one] * math.prod(map(pow, chances, one)) for one in outcomes}
        too_low = sum(likely[one] for one in outcomes if intervals[one].high < true)
        too_high = sum(likely[one] for one in outcomes if intervals[one].low > true)
        assert max(too_low, too_high) <= (1 - confidence) / 2 + 0.002, (share, recall, specificity)


def test_a_class_that_is_hardly_ever_found_may_be_known_better_in_a_macro_f1() -> None:
    """Of nine rows none was found, and two were answered wrongly: up to 28.5 % of such may be right, an F1 of 44 %."""
    truths, answers = ["0"] * 90 + ["1"] * 9, ["0"] * 88 + ["1"] * 2 + ["0"] * 9
    found = scoring.interval("macro_f1", truths, answers, 0.95, classes=["0", "1"])
    most = stats.f1_of_share(stats.proportion(0, 11, 0.95)).high
    assert most == pytest.approx(0.44, abs=0.01) and found.high - found.value >= most / 2


@pytest.mark.parametrize("metric", ["f1", "macro_f1", "micro_f1"])
def test_where_f1_is_low_a_lost_answer_costs_more_than_its_share(metric: str) -> None:
    """Of 40 rows with a label twelve are found, of which four are lost: by shares of the units, F1 might lose less."""
    truths = [frozenset(["1"])] * 40 + [frozenset()] * 360
    first = [frozenset(["1"])] * 12 + [frozenset()] * 388
    second = [frozenset(["1"])] * 8 + [frozenset()] * 392
    given: tuple[list[Answer], ...] = ([*truths], [*first], [*second])
    found = scoring.drop(metric, *given, 0.95, "1", ["1"])
    paired = stats.paired_drop(4, 0, 40, 0.95)
    cost = (2 - 2 * 8 / 48) * 40 / 48  # dF1 = (2 - F1) / (2 tp + fp + fn), of 40 units
    assert cost > 1.3 and found.value == pytest.approx(2 * 12 / 52 - 2 * 8 / 48)
    assert found.high - found.value >= 0.9 * cost * (paired.high - paired.value)


def test_false_spans_of_a_class_without_a_row_count_for_as_many_as_they_are_worth() -> None:
    """Ten in two texts tell less about what a class will be than ten in ten."""
    other = [Span(0, 1, "a")]
    truths: list[Answer] = [frozenset(other)] * 200
    in_two, in_ten = (
        [frozenset([*other, *(Span(2 + n, 3 + n, "b") for n in range(each))])] * (10 // each)
        + [frozenset(other)] * (200 - 10 // each)
        for each in (5, 1)
    )
    lumped, spread = (
        scoring.interval("macro_f1", truths, [*answers], 0.95, classes=["a", "b"]) for answers in (in_two, in_ten)
    )
    assert lumped.value == spread.value and lumped.high > spread.high + 0.1
    dropped, less = (
        scoring.drop("macro_f1", truths, [*answers], truths, 0.95, classes=["a", "b"]) for answers in (in_two, in_ten)
    )
    assert dropped.high > less.high + 0.1


def test_a_better_second_model_is_a_negative_drop() -> None:
    truths, worse = labels(5, 300, 0.3)
    drop = scoring.drop("macro_f1", truths, worse, truths, 0.95, classes=["0", "1"])
    value = scoring.interval("macro_f1", truths, worse, 0.95, classes=["0", "1"]).value
    assert drop.high < 0 and drop.value == pytest.approx(value - 1)


@pytest.mark.parametrize("metric", ["f1", "macro_f1"])
def test_the_truth_is_missed_as_seldom_as_it_says(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On each side in 2.5 % of the cases; 200 seeded trials leave room for 6 % where it were really 2.5 %."""
    monkeypatch.setattr(scoring, "resamples_for", lambda confidence: 200)
    big = labels(6, 200_000, 0.3, 0.5)
    truth = metrics.values(list(zip(*big, strict=True)), "1")[metric]
    found = [scoring.interval(metric, *labels(seed, 150, 0.3, 0.5), 0.95, "1", ["0", "1"]) for seed in range(200)]
    assert sum(interval.high < truth for interval in found) <= 12
    assert sum(interval.low > truth for interval in found) <= 12
    assert sum(not interval.low <= truth <= interval.high for interval in found) >= 1  # and it is not for free


ANSWERS: dict[str, st.SearchStrategy[Answer]] = {
    "one": st.sampled_from(["0", "1"]),
    "several": st.lists(st.sampled_from("abc"), unique=True, max_size=3).map(lambda found: tuple(sorted(found))),
    "spans": st.lists(
        st.builds(lambda start, label: Span(start, start + 1, label), st.integers(0, 3), st.sampled_from("xy")),
        unique_by=lambda span: span.start,
        max_size=3,
    ).map(lambda found: tuple(sorted(found))),
}


@pytest.mark.usefixtures("quick")
@settings(max_examples=60)
@given(data=st.data(), kind=st.sampled_from(sorted(ANSWERS)), metric=st.sampled_from(LABEL_METRICS))
def test_the_value_lies_in_its_interval(data: st.DataObject, kind: str, metric: str) -> None:
    rows = data.draw(st.lists(st.tuples(*[ANSWERS[kind]] * 3), min_size=1, max_size=12))
    truths, first, second = (list(column) for column in zip(*rows, strict=True))

    def value(answers: Sequence[Answer]) -> float:
        values = metrics.values(list(zip(truths, answers, strict=True)), "1")
        return values[metric]

    classes = data.draw(st.sampled_from([["z"], ["0", "1", "a", "b", "c", "x", "y"], ["a", "0", "x"]]))
    one = scoring.interval(metric, truths, second, 0.95, "1", classes)
    assert one.value == pytest.approx(value(second), abs=1e-12)
    assert 0 <= one.low <= one.value <= one.high <= 1
    drop = scoring.drop(metric, truths, first, second, 0.95, "1", classes)
    assert drop.value == pytest.approx(value(first) - value(second), abs=1e-12)
    assert -1 <= drop.low <= drop.value <= drop.high <= 1


@pytest.mark.parametrize("metric", LABEL_METRICS)
def test_rows_and_answers_must_be_as_many(metric: str) -> None:
    with pytest.raises(ValueError, match="0 answers for 0 rows"):
        scoring.interval(metric, [], [], 0.95, "1")
    with pytest.raises(ValueError, match="1 answers for 2 rows"):
        scoring.interval(metric, ["1", "0"], ["1"], 0.95, "1")
    with pytest.raises(ValueError, match="2 and 1 answers for 2 rows"):
        scoring.drop(metric, ["1", "0"], ["1", "0"], ["1"], 0.95, "1")
    with pytest.raises(ValueError, match="unknown metric 'auc'"):
        scoring.interval("auc", ["1"], ["1"], 0.95)


@pytest.mark.parametrize(("right", "wrong"), [(20, 0), (0, 20), (180, 20), (3, 7)])
def test_the_ends_of_a_micro_f1_are_those_of_the_exact_interval(right: int, wrong: int) -> None:
    """Rows that miss one label each: F1 follows from the share that is found, which is a proportion."""
    truths: list[Answer] = [("a",)] * (right + wrong)
    found = scoring.interval("micro_f1", truths, [("a",)] * right + [()] * wrong, 0.95)
    exact = stats.f1_of_share(stats.clopper_pearson(right, right + wrong, 0.95))
    assert found == pytest.approx(exact, abs=0.015)
    assert found == scoring.interval("micro_f1", truths, [("a",)] * right + [()] * wrong, 0.95), "seeded"


@pytest.mark.parametrize(
    ("confidence", "resamples"),
    [(0.5, 2000), (0.95, 2000), (0.99, 2000), (0.995, 4000), (0.998, 10_000), (0.999, 20_000)],
)
def test_ten_resamples_lie_beyond_each_end(confidence: float, resamples: int) -> None:
    assert scoring.resamples_for(confidence) == resamples
    assert resamples * (1 - confidence) / 2 >= 10 - 1e-9


def test_two_models_that_are_wrong_on_the_same_rows_differ_by_little() -> None:
    truths, answers = labels(7, 500, 0.4)
    same, apart = (
        scoring.drop("macro_f1", truths, answers, second, 0.95, classes=["0", "1"])
        for second in (answers, labels(8, 500, 0.4)[1])
    )
    assert same.value == 0 and same.high - same.low < 0.03
    assert apart.high - apart.low > 3 * (same.high - same.low)
