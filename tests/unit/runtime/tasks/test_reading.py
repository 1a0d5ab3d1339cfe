"""Answers in a text: from the logits of windows to an answer."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.tasks.reading import MOST_TOKENS, OR_NONE, START_END
from edgepack_runtime.tasks.registry import READING, task_by_name
from edgepack_runtime.tasks.task import Part, unlearned, unlearned_score
from edgepack_runtime.util.spans import Span

TASK = task_by_name(READING)
ITEM = ("谁？", "张三来了")
OFFSETS = ((0, 0), (0, 0), (0, 0), (0, 1), (1, 2), (2, 3), (3, 4), (0, 0))  # [CLS] 谁 [SEP] 张三来了 [SEP]


def part(starts: dict[int, float], ends: dict[int, float], offsets: tuple[tuple[int, int], ...] = OFFSETS) -> Part:
    rows = [[starts.get(token, 0.0), ends.get(token, 0.0)] for token in range(len(offsets))]
    return Part(rows, 1, offsets)


def test_the_span_with_the_highest_sum_is_the_answer() -> None:
    found = TASK.predict(OR_NONE, [part({3: 5.0}, {4: 4.0})], ITEM)
    assert found.answer == (Span(0, 2, "张三"),)
    start, end = (math.exp(top) / (math.exp(top) + 4) for top in (5, 4))  # the four other tokens that may be one
    assert found.as_json(with_scores=True) == {
        "answer": "张三", "start": 0, "end": 2, "score": pytest.approx(start * end, abs=1e-6),
    }  # fmt: skip
    assert [one.name for one in TASK.outputs(START_END)] == list(found.as_json(with_scores=False))


@pytest.mark.parametrize(
    "logits",
    [
        part({0: 5.0, 3: 4.0}, {0: 5.0, 4: 4.0}),  # [CLS] has more
        part({1: 9.0, 2: 9.0}, {1: 9.0, 7: 9.0}),  # of the question and of special tokens
        part({6: 3.0}, {3: 3.0}, ((0, 0), (0, 0))),  # a text without a token
    ],
)
def test_there_may_be_no_answer(logits: Part) -> None:
    found = TASK.predict(OR_NONE, [logits], ITEM)
    assert found.answer == ()
    assert (found.as_json(with_scores=False)["answer"], found.start, found.end) == ("", 0, 0)  # type: ignore[attr-defined]


def test_a_model_that_knows_no_question_without_an_answer_always_gives_one() -> None:
    none = part({0: 9.0, 3: 1.0}, {0: 9.0, 4: 1.0})
    assert TASK.predict(OR_NONE, [none], ITEM).answer == ()
    found = TASK.predict(START_END, [none], ITEM)
    assert found.answer == (Span(0, 2, "张三"),)
    assert found.score == pytest.approx((math.e / (math.e + 3)) ** 2)  # type: ignore[attr-defined]
    assert TASK.predict(START_END, [part({}, {}, ((0, 0), (0, 0)))], ITEM).answer == ()
    assert (
        TASK.model_labels(TASK.classes(OR_NONE)) == OR_NONE and TASK.model_labels(TASK.classes(START_END)) == START_END
    )
    assert TASK.classes_of(()) == ("none",) and TASK.classes_of(found.answer) == ()


def test_an_end_is_never_before_its_start() -> None:
    found = TASK.predict(START_END, [part({6: 9.0, 3: 1.0}, {3: 9.0, 6: 2.0})], ITEM)
    assert found.answer == (Span(3, 4, "了"),)


def test_of_windows_the_one_that_leads_most_over_none_has_the_answer() -> None:
    far = ((0, 0), (0, 0), (0, 0), (9, 10), (10, 11), (0, 0))
    first, second = part({3: 9.0, 0: 8.0}, {3: 9.0, 0: 8.0}), part({3: 3.0}, {4: 3.0}, far)
    found = TASK.predict(START_END, [first, second], ("谁？", "0123456789李四"))
    assert found.answer == (Span(9, 11, "9李"),)


@given(
    st.lists(st.tuples(st.floats(-9, 9, width=32), st.floats(-9, 9, width=32)), min_size=4, max_size=40),
)
def test_the_answer_is_that_of_all_pairs_of_tokens(logits: list[tuple[float, float]]) -> None:
    offsets = ((0, 0), *((place, place + 1) for place in range(len(logits) - 2)), (0, 0))
    text = "".join(chr(0x4E00 + place) for place in range(len(logits)))
    found = TASK.predict(OR_NONE, [Part([list(row) for row in logits], 1, offsets)], ("q", text))
    inside = range(1, len(logits) - 1)
    best = max(logits[i][0] + logits[j][1] for i, j in itertools.product(inside, inside) if i <= j)
    if best > logits[0][0] + logits[0][1]:
        [span] = found.answer
        assert logits[span.start + 1][0] + logits[span.end][1] == best
    else:
        assert found.answer == ()


def test_an_answer_has_a_limit_of_tokens() -> None:
    n = MOST_TOKENS + 10
    offsets = ((0, 0), *((place, place + 1) for place in range(n)), (0, 0))
    found = TASK.predict(START_END, [part({1: 9.0, 5: 1.0}, {n: 9.0}, offsets)], ("q", "x" * n))
    [span] = found.answer
    assert span.end - span.start <= MOST_TOKENS


def test_a_logit_that_is_no_number_is_an_error() -> None:
    with pytest.raises(StageFailedError, match="not finite"):
        TASK.predict(START_END, [part({3: math.nan}, {})], ITEM)


def test_an_answer_comes_back_as_it_was_written() -> None:
    answer = (Span(0, 2, "张三"), Span(0, 1, "张"))
    value = [[0, 2, "张三"], [0, 1, "张"]]
    assert TASK.answer_of(value) == answer
    assert set(TASK.parse_answer(value, frozenset(), 4) or ()) == set(answer)
    assert TASK.words(answer, "x") == "张三 / 张"
    assert TASK.parse_answer([], frozenset(), 4) == ()
    assert TASK.words(answer, None) == "0-2 / 0-1"  # where texts stay at home


@pytest.mark.parametrize(
    ("cell", "texts"),
    [
        (" 张三 ", ("张三",)),
        ('["张三", "张"]', ("张三", "张")),
        ('[{"text": "张三", "answer_start": 7}]', ("张三",)),
        ('{"text": ["张三"], "answer_start": [7]}', ("张三",)),
        ("[]", ()),
        ("", ()),
    ],
)
def test_a_cell_has_answers_in_the_forms_of_training(cell: str, texts: tuple[str, ...]) -> None:
    assert tuple(span.label for span in TASK.answer_in(cell) or ()) == texts
    assert TASK.answer_in('[{"answer": "张三"}]') is None


@pytest.mark.parametrize(
    "value", ["张三", [["张三"]], [[0, 9, "张三"]], [[2, 1, "张"]], [[0, 1, ""]], [[0, 1, 5]], None]
)
def test_what_is_no_answer_is_none(value: object) -> None:
    assert TASK.parse_answer(value, frozenset(), 4) is None


def test_a_constant_answer_is_the_most_frequent_one() -> None:
    truths = [(Span(0, 1, "甲"),), (Span(3, 4, "甲"),), (Span(0, 1, "乙"),), ()]
    assert unlearned_score(TASK, [("", "")] * len(truths), truths) == 0.5
    assert unlearned_score(TASK, [("", "")] * len([(), ()]), [(), ()]) is None
    assert TASK.error(truths[0], (Span(8, 9, "甲"),)) == 0.0
    assert TASK.error(truths[0], (Span(8, 10, "甲乙"),)) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("question", "text", "sentence"),
    [
        ("张三住几号房？", "今天下雨。张三住在12号房。李四也来了。", "张三住在12号房"),
        ("谁", "没有别的", "没有别的"),
        ("谁", " ！", ""),
        ("早餐", "早餐好；早餐差", "早餐好"),
    ],
)
def test_the_rule_takes_the_sentence_that_is_most_like_the_question(question: str, text: str, sentence: str) -> None:
    found = TASK.rule_answer((question, text))
    assert ([span.label for span in found or ()] or [""]) == [sentence]
    assert all(text[span.start : span.end] == span.label for span in found or ())


def test_a_model_must_be_better_than_the_rule() -> None:
    items = [(f"第{n}人住几号房", f"第{n}人来了，住{n}号房。没有别的。") for n in range(40)]
    truths = [(Span(text.index("住") + 1, text.index("号"), str(n)),) for n, (_, text) in enumerate(items)]
    same, answers = unlearned(TASK, items, truths, "character_f1", ())
    assert same is None and answers[3] == TASK.rule_answer(items[3])
    same, answers = unlearned(TASK, items, [(Span(0, 1, "甲"),)] * 40, "character_f1", ())
    assert same == (Span(0, 1, "甲"),) and set(answers) == {same}
