"""The built-in reviews: deterministic, balanced, disjoint, and not to be solved by counting characters."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from itertools import combinations
from random import Random

import pytest

from edgepack.artifacts import Row, Split
from edgepack.data.synthetic import reviews_zh as reviews
from edgepack.data.synthetic.lexicon import BAD_VERDICTS, CLAUSE_FORMS, GOOD_VERDICTS, TEMPLATES

SMALL: dict[Split, int] = {"train": 400, "dev": 60, "test": 120}


@pytest.fixture(scope="module")
def drawn() -> dict[str, list[tuple[Row, str]]]:
    return reviews.generate_with_templates(0)


def digest(seed: int) -> str:
    rows = reviews.generate(seed, SMALL)
    return hashlib.sha256(repr(sorted(rows.items())).encode()).hexdigest()


def test_default_sizes_and_labels(drawn: dict[str, list[tuple[Row, str]]]) -> None:
    for split, size in reviews.DEFAULT_SIZES.items():
        labels = Counter(row.label for row, _ in drawn[split])
        assert labels.total() == size
        assert set(labels) == {"正面", "负面"}
        assert 0.43 < labels["正面"] / size < 0.57


def test_no_template_and_no_text_is_in_two_splits(drawn: dict[str, list[tuple[Row, str]]]) -> None:
    for one, other in combinations(drawn, 2):
        assert not {template for _, template in drawn[one]} & {template for _, template in drawn[other]}
    assert max(Counter(row.text for rows in drawn.values() for row, _ in rows).values()) == 1


def test_every_template_belongs_to_exactly_one_split() -> None:
    parts = reviews.template_ids()
    every = [f"{family}/{pattern}" for family, patterns in TEMPLATES.items() for pattern in patterns]
    assert sorted(every) == sorted(template for ids in parts.values() for template in ids)
    assert len(set(every)) == len(every)
    for ids in parts.values():
        assert {template.partition("/")[0] for template in ids} == set(TEMPLATES)


def test_the_same_seed_gives_the_same_rows_in_a_process_with_another_hash_seed() -> None:
    code = (
        "import hashlib; from edgepack.data.synthetic import reviews_zh as r; "
        f"print(hashlib.sha256(repr(sorted(r.generate(3, {SMALL!r}).items())).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest(3) != digest(1)


def test_asking_for_one_split_fewer_or_in_another_order_keeps_train() -> None:
    assert reviews.generate(5, {"train": 50})["train"] == reviews.generate(5, SMALL)["train"][:50]
    assert reviews.generate(5, dict(reversed(list(SMALL.items())))) == reviews.generate(5, SMALL)


def test_texts_are_short_and_hold_no_unfilled_slot(drawn: dict[str, list[tuple[Row, str]]]) -> None:
    texts = [row.text for rows in drawn.values() for row, _ in rows]
    assert not [text for text in texts if "{" in text or "}" in text or "*" in text or text != text.strip()]
    assert sum(8 <= len(text) <= 28 for text in texts) > 0.9 * len(texts)
    assert max(map(len, texts)) <= 36


def test_a_size_that_cannot_be_filled_and_an_unknown_split_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no split calibration"):
        reviews.generate(0, {"calibration": 1})
    with pytest.raises(ValueError, match="negative"):
        reviews.generate(0, {"dev": -1})
    monkeypatch.setattr(reviews, "_DRAWS_PER_ROW", 1)  # as many draws as rows: the first repeated text leaves it short
    with pytest.raises(ValueError, match="distinct texts for dev"):
        reviews.generate(0, {"dev": 5000})


@pytest.mark.parametrize(
    ("pattern", "ending"),
    [("虽然{o}，但是{M}", None), ("{o}，{s}，总的来说{v}", GOOD_VERDICTS), ("即使{o}，我也{v}", GOOD_VERDICTS)],
)
def test_the_deciding_part_agrees_with_the_label(pattern: str, ending: tuple[str, ...] | None) -> None:
    for seed in range(60):
        text = reviews._Writer(Random(seed), positive=True).fill(pattern)
        clauses = text.rstrip("。！").split("，")
        if ending:
            assert clauses[-1].endswith(ending)
            assert not clauses[-1].endswith(tuple("不" + verdict for verdict in ending))
        else:
            assert polarity(clauses[-1].removeprefix("但是")) == "正面"
        assert polarity(clauses[0].removeprefix("虽然").removeprefix("即使")) == "负面"


def polarity(clause: str) -> str:
    """An independent reading of one clause: the predicate's polarity, turned over if a negation governs it."""
    good = ("干净", "安静", "好吃", "快", "好", "新", "热情", "细心", "舒服", "好看", "便宜")
    bad = ("脏", "吵", "难吃", "慢", "差", "旧", "冷淡", "马虎", "难受", "难看", "贵")
    predicate = max((w for w in good + bad if w in clause), key=lambda w: (clause.rfind(w) + len(w), len(w)))
    body = clause.replace("不得不", "").replace("不过", "").replace("不如", "不")
    turns = body.count("不") + body.count("没有")
    return "正面" if (predicate in good) == (turns % 2 == 0) else "负面"


def test_independent_reading_of_every_clause_form() -> None:
    for form in CLAUSE_FORMS:
        for word, praises in (("干净", True), ("脏", False)):
            if form.words in ("any", "good" if praises else "bad"):
                clause = form.pattern.format(a="房间", x=word, ref="上次")
                assert polarity(clause) == ("正面" if praises == form.keeps else "负面"), clause


def test_typos_spare_what_negates_or_contrasts() -> None:
    text = "虽然房间不脏，但是服务没有上次热情，不过我很满意"
    changed = {reviews._with_typo(Random(seed), text) for seed in range(3000)} - {text}
    assert len(changed) >= 5
    for typo in changed:
        for mark in ("虽然", "不脏", "但是", "没有上次", "不过"):
            assert mark in typo
    assert not set(GOOD_VERDICTS) & set(BAD_VERDICTS)
