"""What shows when three splits lie side by side."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import assert_golden

from edgepack.artifacts import Row
from edgepack.data.split_checks import MAX_IMBALANCE, MIN_LABEL_ROWS, OneApart, check_splits, rows_to_drop
from edgepack.data.split_stats import SplitFacts, gather_facts, read_facts
from edgepack.recipe.finding_log import FindingLog
from edgepack.recipe.findings import Finding
from edgepack.recipe.model import Choice, Columns, SplitName
from edgepack_runtime.schema.maxima import MAX_LABELS
from edgepack_runtime.util.spans import Span

GOLDEN = Path(__file__).parents[1] / "golden" / "splits"
CASES = sorted(folder.name for folder in GOLDEN.iterdir())
_CLEAN: dict[SplitName, int] = {"train": 40, "dev": 2, "test": 3}
NAMES: tuple[SplitName, ...] = ("train", "dev", "test")


def facts(name: SplitName, *rows: str) -> SplitFacts:
    """Rows as `label text`, from line 2 on."""
    file = Path(f"{name}.tsv")
    made = [Row(row.split(" ", 1)[1], row.split(" ", 1)[0]) for row in rows]
    return gather_facts(SplitFacts(name, file, FindingLog(file)), enumerate(made, start=2))


def numbered(name: SplitName, count: int, written: str = "{} {}") -> SplitFacts:
    """Rows of two labels, each text once."""
    return facts(name, *(f"{index % 2} " + written.format(name, index) for index in range(count)))


def check(leaks: Choice = "drop", repeats: Choice = "drop", **other: SplitFacts) -> list[Finding]:
    """Findings of clean splits, of which those named are replaced."""
    return check_splits(splits(**other), leaks, repeats)


def splits(**other: SplitFacts) -> dict[SplitName, SplitFacts]:
    clean: dict[SplitName, SplitFacts] = {name: numbered(name, rows) for name, rows in _CLEAN.items()}
    return clean | {split.name: split for split in other.values()}


def said(findings: list[Finding]) -> list[str]:
    return [f"{finding.place}: {finding.severity}" for finding in findings]


@pytest.mark.parametrize("case", CASES)
def test_findings_are_those_of_the_golden_file(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / case)
    read = {name: read_facts(name, Path(f"{name}.tsv"), Columns()) for name in NAMES}
    found = "".join(f"{finding}\n" for finding in check_splits(read))
    assert_golden(found, Path("found.txt"))


@pytest.mark.parametrize(("leaks", "severity"), [("drop", "warning"), ("error", "error"), ("keep", "warning")])
@pytest.mark.parametrize("source", ["train", "dev"])
def test_the_recipe_decides_about_leaks(leaks: Choice, severity: str, source: SplitName) -> None:
    texts = [f"{source} 0", *(f"test {i}" for i in range(1, 200))]
    test = facts("test", *(f"{i % 2} {text}" for i, text in enumerate(texts)))
    (found,) = check(leaks, **{source: numbered(source, 50), "test": test})
    assert said([found]) == [f"test.tsv:2: {severity}"]
    assert ("left out of" in found.reason) == (leaks == "drop")


def test_rows_that_leak_leave_the_split_that_matters_less() -> None:
    test = facts("test", "0 a", "1 这家酒店的房间很大")
    dev = facts("dev", "0 b", "1 a", "0 c")
    train = facts("train", "0 a", "0 b", "1 这家酒店的房间，很大！", "1 d", "1 d", "0 d", "0 e")
    found = rows_to_drop({"train": train, "dev": dev, "test": test}, "drop", "drop")
    leaked, repeated = found["train"]
    assert leaked.tolist() == [True, True, True, False, False, False, False]
    assert repeated.tolist() == [False, False, False, False, True, False, False]
    assert found["dev"][0].tolist() == [False, True, False]
    assert "test" not in found
    assert list(rows_to_drop({"train": train, "dev": dev, "test": test}, "keep", "drop")) == ["train"]
    assert rows_to_drop({"train": train, "dev": dev, "test": test}, "keep", "error") == {}


def test_the_recipe_decides_about_repeated_rows() -> None:
    rows = [*(f"{i % 2} {i}" for i in range(40)), "0 0", "1 1", "1 2"]
    assert [finding.reason for finding in check(train=facts("train", *rows))] == [
        "2 train rows with the text and the answer of an earlier row: left out: lines 42, 43",
        "the same text has the label `0` on line 4",
    ]
    choices: tuple[tuple[Choice, str], ...] = (("error", "error"), ("keep", "warning"))
    for repeats, severity in choices:
        found = said(check(repeats=repeats, train=facts("train", *rows)))
        repeated = 2 if severity == "error" else 1
        assert found == [f"train.tsv:{42 + i}: {severity}" for i in range(repeated)] + ["train.tsv:44: warning"]


def test_a_near_leak_never_stops_and_is_counted_apart() -> None:
    train = numbered("train", 40, "酒店的房间{}很大{}")
    written = ["酒店的房间train很大1", "酒店的房间, TRAIN 很大 2!", "酒店的房间ｔｒａｉｎ很大３"]
    test = facts("test", *(f"{i % 2} {text}" for i, text in enumerate(written)))
    found = check("error", train=train, test=test)
    assert said(found) == ["test.tsv:2: error", "test.tsv:3: warning"]
    assert "1 of 3 test rows" in found[0].reason
    assert "2 of 3 test rows" in found[1].reason
    assert "line 3 is train.tsv:4, line 4 is train.tsv:5" in found[1].reason
    short = facts("train", *(f"{i % 2} 很好{i}！" for i in range(40)))
    assert check(train=short, test=facts("test", "0 很好1。", "1 好")) == []


@given(st.lists(st.text(max_size=12).filter(str.strip), min_size=1, max_size=30), st.data())
def test_leaks_are_those_a_comparison_of_the_texts_finds(texts: list[str], data: st.DataObject) -> None:
    held = data.draw(st.lists(st.sampled_from([*texts, "something else"]), min_size=1, max_size=30))
    train, test = (
        gather_facts(SplitFacts(name, Path(name), FindingLog(Path(name))), ((1, Row(text, "x")) for text in rows))
        for name, rows in (("train", texts), ("test", held))
    )
    expected = sum(text.strip() in {other.strip() for other in texts} for text in held)
    found = [f.reason for f in check(train=train, test=test) if "are in train too" in f.reason]
    assert [reason.split()[0] for reason in found] == ([str(expected)] if expected else [])


@pytest.mark.parametrize(
    ("rare", "common", "warned"),
    [
        (MIN_LABEL_ROWS - 1, 20, True),
        (MIN_LABEL_ROWS, 20, False),
        (MIN_LABEL_ROWS, MIN_LABEL_ROWS * MAX_IMBALANCE, False),
        (MIN_LABEL_ROWS, MIN_LABEL_ROWS * MAX_IMBALANCE + 1, True),
    ],
)
def test_a_rare_label_is_a_warning(rare: int, common: int, warned: bool) -> None:
    rows = [*(f"1 rare {i}" for i in range(rare)), *(f"0 common {i}" for i in range(common))]
    found = check(train=facts("train", *rows))
    assert said(found) == (["train.tsv: warning"] if warned else [])
    assert not warned or f"`0` {common}, `1` {rare}" in found[0].reason


def test_a_file_with_errors_is_not_judged_by_its_labels_and_size() -> None:
    """Rows that could not be read are missing: their labels and number cannot be judged."""
    train = facts("train", "1 a")
    train.log.add("rows without a label", "error", 3, "the label is empty", "give it one")
    assert said(check(train=train)) == ["train.tsv:3: error"]


def test_a_column_of_texts_is_no_column_of_labels() -> None:
    """The labels are held in memory: there must be an end to them."""
    train = facts("train", *(f"{i} text {i}" for i in range(MAX_LABELS + 5)))
    assert len(train) == MAX_LABELS
    assert said(check(train=train)) == [f"train.tsv:{MAX_LABELS + 2}: error"]


PAIRS, MANY, SPANS = Columns(text_pair="text_pair"), Columns(labels="labels"), Columns(spans="spans")


def of(name: SplitName, columns: Columns, *rows: Row) -> SplitFacts:
    file = Path(f"{name}.tsv")
    return gather_facts(SplitFacts(name, file, FindingLog(file), columns), enumerate(rows, start=2))


def pairs(name: SplitName, count: int) -> SplitFacts:
    return of(name, PAIRS, *(Row(f"{name} 第 {n} 问", str(n % 2), f"{name} 第 {n} 答") for n in range(count)))


def test_a_pair_leaks_as_a_whole() -> None:
    train = pairs("train", 40)
    seen = of("test", PAIRS, Row("train 第 1 问", "1", "另外一个"), Row("train 第 2 问", "0", " train 第 2 答 "))
    found = check(train=train, dev=pairs("dev", 4), test=seen)
    assert said(found) == ["test.tsv:3: warning"]
    near = of("test", PAIRS, Row("train 第 1 答", "1", "train 第 1 问"), Row("Train 第 2 问？", "0", "train，第2答"))
    found = check(train=train, dev=pairs("dev", 4), test=near)
    assert said(found) == ["test.tsv:2: warning"]  # the other order leaks, too
    assert "2 of 2" in found[0].reason


def many(name: SplitName, count: int) -> SplitFacts:
    return of(name, MANY, *(Row(f"{name} 第 {n} 条", ((), ("a",), ("a", "b"))[n % 3]) for n in range(count)))


def spanned(name: SplitName, count: int) -> SplitFacts:
    return of(name, SPANS, *(Row(f"{name} 第 {n} 条", (Span(0, 2, "x"),) if n % 2 else ()) for n in range(count)))


def test_every_name_of_a_row_counts_and_one_is_enough_where_rows_may_have_none() -> None:
    train = many("train", 60)
    assert train.label_rows == {"a": 40, "b": 20}
    assert train.label_lines == {"a": 3, "b": 4}
    odd = of("test", MANY, Row("第一条", ("a", "c")), Row("第二条", ("b",)), Row("第三条", ("c",)))
    found = check(train=train, dev=many("dev", 6), test=odd)
    assert said(found) == ["test.tsv:2: error"]
    assert "the label `c` (2 rows, the first here) is not in the train split" in found[0].reason
    assert check(train=spanned("train", 40), dev=spanned("dev", 6), test=spanned("test", 6)) == []


@pytest.mark.parametrize(
    ("split", "columns", "reason"),
    [
        ("train", SPANS, "no row of the train split has any spans: there is nothing to learn"),
        ("test", SPANS, "no row of the test split has any spans: a model that always answers it would pass the gate"),
        ("dev", MANY, "no row of the dev split has any labels: selection among models rests on one answer"),
    ],
)
def test_a_split_without_any_label_or_span_is_a_finding(split: SplitName, columns: Columns, reason: str) -> None:
    make = spanned if columns is SPANS else many
    splits: dict[str, SplitFacts] = {name: make(name, 40 if name == "train" else 6) for name in NAMES}
    found = check(**{**splits, split: of(split, columns, *(Row(f"{split} 之 {n}", ()) for n in range(6)))})
    assert reason in [finding.reason for finding in found]


def test_labels_that_are_never_several_may_want_another_separator() -> None:
    train = of("train", MANY, *(Row(f"第 {n} 条", ("a,b" if n % 2 else "a",)) for n in range(40)))
    splits = {
        name: of(name, MANY, *(Row(f"{name} {n}", ("a",) if n else ("a,b",)) for n in range(3))) for name in NAMES[1:]
    }
    found = check(train=train, **splits)
    assert [finding.reason for finding in found] == [
        "no row of train has more than one label, and `data.columns.labels` is for any number of them"
    ]


def test_a_text_with_two_answers_is_named() -> None:
    rows = [Row(f"第 {n} 条", (Span(0, 1, "x"),)) for n in range(40)]
    train = of("train", SPANS, *rows, Row("第 3 条", (Span(0, 2, "x"),)), Row("第 4 条", (Span(0, 1, "x"),)))
    found = check(repeats="keep", train=train, dev=spanned("dev", 6), test=spanned("test", 6))
    assert sorted(f"{finding.line}: {finding.reason}" for finding in found) == [
        "42: the same text has other spans on line 5",
        "43: this train row repeats line 6",
    ]


def test_measurements_as_labels_are_a_warning() -> None:
    train = facts("train", *(f"{n % 30}.5 第{n}条训练文本" for n in range(300)))
    held = {name: facts(name, *(f"{n}.5 {name}之{n}" for n in range(30))) for name in NAMES[1:]}
    (finding,) = check(train=train, **held)
    assert finding.severity == "warning"
    assert finding.reason.startswith("`label` holds many different numbers")


@pytest.mark.parametrize(
    ("one", "other"), [("正面", "负面"), ("c", "c++"), ("B", "8"), ("\u200b\u200b", "\ufeff"), ("a-b", "a_b")]
)
def test_labels_that_look_different_are_not_named(one: str, other: str) -> None:
    train = facts("train", *(f"{one if n % 2 else other} 训练第{n}条文本" for n in range(40)))
    held = {name: facts(name, f"{one} {name}甲", f"{other} {name}乙") for name in NAMES[1:]}
    assert check(train=train, **held) == []


def test_labels_by_the_thousand_are_compared_at_once() -> None:
    """Each with each other, these would take minutes: `\ufdfa` is 18 characters once it is folded."""
    usual, rare = OneApart(), [f"{'甲' * 30}{n:05d}乙" for n in range(20_000)]
    for label in (*(f"{'甲' * 30}{n:05d}" for n in range(10_000)), *(f"\ufdfa{'x' * 150}{n}" for n in range(10_000))):
        usual.add(label)
    assert [usual.near(label) for label in rare] == [*(label[:-1] for label in rare[:10_000]), *[None] * 10_000]


@pytest.mark.parametrize(
    ("left", "right", "apart"),
    [
        ("负面", "负而", True),
        ("体育", "体育类", True),
        ("sport", "sprt", True),
        ("sport", "spport", True),
        ("sport", "sprot", False),
        ("体育", "财经", False),
        ("好", "坏", False),
        ("sport", "Sport", False),  # they look alike, which is another warning
    ],
)
def test_labels_that_may_be_typos(left: str, right: str, apart: bool) -> None:
    for usual, rare in ((left, right), (right, left)):
        rows = [*(f"{'other' if i % 2 else usual} {i}" for i in range(40)), f"{rare} 40"]
        dev, test = facts("dev", f"{usual} a", "other b"), facts("test", f"{usual} c", "other d")
        said = [found.reason for found in check(train=facts("train", *rows), dev=dev, test=test)]
        asked = f"the label `{rare}` occurs once, and `{usual}` 22 times: a typo?"
        assert (asked in said) is apart
        assert any("typo" in reason for reason in said) is apart


@pytest.mark.parametrize(
    ("labels", "warned"),
    [
        ([str(n) for n in range(30)], True),
        ([f"{n / 2}" for n in range(11)], True),
        ([str(n) for n in range(10)], False),
        ([f"{n}.0" for n in range(10)], False),
        (["1", "1.5", "2", "2.5", "3"], False),
        ([f"c{n}" for n in range(30)], False),
    ],
)
def test_many_numbers_as_labels_are_a_warning(labels: list[str], warned: bool) -> None:
    splits = {
        name: facts(name, *(f"{label} {name}第{n}条文本{label}" for n in range(10) for label in labels))
        for name in NAMES
    }
    found = [one.reason for one in check(**splits) if "look like measurements" in one.reason]
    assert len(found) == warned
    if warned:
        assert found[0].startswith(f"`label` holds {len(labels)} different numbers, such as ")


def test_few_labels_that_train_lacks_count_as_wrong_and_many_are_another_labelling() -> None:
    rows = [f"{index % 2} test {index}" for index in range(59)]
    found = check(test=facts("test", *rows, "other test 60"))
    assert said(found) == ["test.tsv:61: warning"] and found[0].fix is not None and "counts as wrong" in found[0].fix
    found = check(test=facts("test", *rows[:9], "other test 60"))
    assert said(found) == ["test.tsv:11: error"]


def test_labels_that_no_model_can_have_are_found_before_a_training() -> None:
    columns = Columns(intent="intent", slots="slots")

    def rows(name: SplitName, count: int) -> SplitFacts:
        return of(name, columns, *(Row(f"{name} {n}", ("intent=only", Span(0, 1, f"s{n % 2}"))) for n in range(count)))

    found = check(train=rows("train", 40), dev=rows("dev", 4), test=rows("test", 4))
    assert any("no model can have the labels" in finding.reason for finding in found)


def test_a_number_far_from_the_others_is_named() -> None:
    columns = Columns(value="value")

    def rows(name: SplitName, count: int, *more: float) -> SplitFacts:
        numbers = [*(float(n % 5) for n in range(count)), *more]
        return of(name, columns, *(Row(f"{name} {place}", number) for place, number in enumerate(numbers)))

    clean = check(train=rows("train", 40), dev=rows("dev", 40), test=rows("test", 40))
    assert clean == []
    [found] = check(train=rows("train", 40), dev=rows("dev", 40), test=rows("test", 40, 1e6))
    assert (found.severity, found.line) == ("warning", 42) and "such as 1e+06" in found.reason
