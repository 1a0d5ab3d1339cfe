"""One set of rows in three."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.artifacts import Row
from edgepack.data.draft.split import DEV, IN_HELD_OUT, REPEATED, TEST, TRAIN, assign, held_out_share
from edgepack.data.split_stats import SplitFacts, gather_facts
from edgepack.recipe.finding_log import FindingLog
from edgepack.util.text_digests import MIN_NORMALISED, normalise

ROWS = st.lists(
    st.builds(Row, st.text("甲乙丙丁aAbB！ ", min_size=1, max_size=9).filter(str.strip), st.sampled_from("123")),
    min_size=1,
    max_size=60,
)


def facts(rows: list[Row]) -> SplitFacts:
    return gather_facts(SplitFacts("train", Path("a.tsv"), FindingLog(Path("a.tsv"))), enumerate(rows, start=2))


def many(*counts: int) -> list[Row]:
    return [Row(f"文本编号 {label} 之 {n}", str(label)) for label, count in enumerate(counts) for n in range(count)]


def test_every_label_is_split_in_the_same_shares() -> None:
    rows = many(700, 300, 40)
    codes = assign(facts(rows), ["dev", "test"])
    shares = {
        label: Counter(int(code) for row, code in zip(rows, codes, strict=True) if row.label == label)
        for label in "012"
    }
    assert shares == {
        "0": {TRAIN: 560, DEV: 70, TEST: 70},
        "1": {TRAIN: 240, DEV: 30, TEST: 30},
        "2": {TRAIN: 32, DEV: 4, TEST: 4},
    }


def test_rare_labels_are_held_out_once_and_rarer_ones_are_trained_on() -> None:
    codes = assign(facts(many(50, 3, 2)), ["dev", "test"])
    assert sorted(codes[50:53].tolist()) == [TRAIN, DEV, TEST]
    assert codes[53:].tolist() == [TRAIN, TRAIN]


def test_one_split_alone_can_be_held_out_and_a_text_that_fills_one_is_trained_on() -> None:
    assert Counter(assign(facts(many(1000, 1000)), ["test"]).tolist()) == {TRAIN: 1800, TEST: 200}
    assert Counter(assign(facts(many(100, 100)), []).tolist()) == {TRAIN: 200}
    rows = [Row(f"总是同一句评论{'！' * n}", "1") for n in range(50)] + many(25, 25)
    codes = assign(facts(rows), ["dev", "test"])
    assert set(codes[:50].tolist()) == {TRAIN}


def test_a_row_that_repeats_an_earlier_one_is_in_no_split() -> None:
    rows = many(40, 20)
    again = [rows[3], Row(f" {rows[50].text}", rows[50].label), Row(rows[5].text, "1")]
    codes = assign(facts([*rows, *again]), ["dev", "test"])
    assert np.flatnonzero(codes == REPEATED).tolist() == [60, 61]
    assert codes[62] == codes[5]  # the same text with another label is for a person to decide


@pytest.mark.parametrize(
    ("rows", "dev", "test"),
    [(100, 15, 30), (300, 45, 90), (400, 50, 100), (600, 60, 100), (1000, 100, 100), (5000, 500, 500)],
)
def test_of_few_rows_more_are_held_out(rows: int, dev: int, test: int) -> None:
    assert [round(held_out_share("dev", rows) * rows), round(held_out_share("test", rows) * rows)] == [dev, test]
    found = Counter(assign(facts(many(rows * 7 // 10, rows * 3 // 10)), ["dev", "test"]).tolist())
    assert abs(found[DEV] - dev) <= 1 and abs(found[TEST] - test) <= 1


def test_what_other_splits_hold_is_left_out() -> None:
    rows = many(20, 20)
    test = facts([Row(rows[3].text + "！", "0"), Row("something else", "1")])
    codes = assign(facts(rows), ["dev"], [test])
    assert np.flatnonzero(codes == IN_HELD_OUT).tolist() == [3]


def test_the_order_of_the_rows_does_not_matter() -> None:
    rows = many(60, 40)
    there, back = assign(facts(rows), ["dev", "test"]), assign(facts(rows[::-1]), ["dev", "test"])
    assert there.tolist() == back[::-1].tolist()


@given(ROWS)
def test_alike_texts_are_on_one_side(rows: list[Row]) -> None:
    codes = assign(facts(rows), ["dev", "test"])
    assert len(codes) == len(rows)
    sides: dict[str, set[int]] = {}
    for row, code in zip(rows, codes, strict=True):
        if code == REPEATED:
            continue
        normalised = normalise(row.text)
        key = normalised if len(normalised) >= MIN_NORMALISED else row.text.strip()
        sides.setdefault(key, set()).add(int(code))
    assert all(len(found) == 1 for found in sides.values())
    assert TRAIN in codes


def test_rows_of_several_labels_are_split_by_the_first_of_them() -> None:
    rows = [Row(f"文本编号 {n}", ((), ("b", "c"), ("a", "c"), ("b",))[n % 4]) for n in range(1200)]
    codes = assign(facts(rows), ["dev", "test"])
    first = [tuple(row.label[:1]) for row in rows]
    shares = {
        name: Counter(int(code) for code, other in zip(codes, first, strict=True) if other == name) for name in first
    }
    assert shares == {
        (): {TRAIN: 240, DEV: 30, TEST: 30},
        ("a",): {TRAIN: 240, DEV: 30, TEST: 30},
        ("b",): {TRAIN: 480, DEV: 60, TEST: 60},
    }


def test_alike_pairs_are_on_one_side() -> None:
    rows = [Row(f"第 {n // 2} 个问题怎么办", "1", f"第 {n // 2} 个回答{'！' * (n % 2)}") for n in range(200)]
    codes = assign(facts(rows), ["dev", "test"])
    assert all(codes[n] == codes[n + 1] for n in range(0, 200, 2))
    assert {TRAIN, DEV, TEST} == set(codes.tolist())
