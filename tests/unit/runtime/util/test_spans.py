from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.util import spans as module
from edgepack_runtime.util.spans import SCHEMES, Span, spans_of_tags, split_tag, tags_of_spans, token_spans

TAGS = st.sampled_from(["O", *(f"{form}-{name}" for form in "BIES" for name in ("PER", "LOC"))])


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-PER I-PER O B-LOC", [(0, 2, "PER"), (3, 4, "LOC")]),  # the example of seqeval's get_entities
        ("B-PER B-PER I-PER", [(0, 1, "PER"), (1, 3, "PER")]),
        ("I-PER I-PER", [(0, 2, "PER")]),  # conlleval: what goes on where nothing is open starts
        ("O I-PER O", [(1, 2, "PER")]),
        ("B-PER I-LOC", [(0, 1, "PER"), (1, 2, "LOC")]),
        ("S-PER I-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("B-PER E-PER I-PER", [(0, 2, "PER"), (2, 3, "PER")]),
        ("B-PER I-PER E-PER S-PER O E-LOC", [(0, 3, "PER"), (3, 4, "PER"), (5, 6, "LOC")]),
        ("B-a-b I-a-b", [(0, 2, "a-b")]),
        ("", []),
        ("O O", []),
    ],
)
def test_spans_of_tags(tags: str, spans: list[tuple[int, int, str]]) -> None:
    assert list(token_spans(tags.split())) == spans


@pytest.mark.parametrize("tag", ["", "B", "I-", "X-PER", "PER-B", "o", "b-PER", "B_PER"])
def test_invalid_tags_are_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="is not a tag"):
        split_tag(tag)
    with pytest.raises(ValueError, match="is not a tag"):
        token_spans(["O", tag])


def test_spans_have_the_characters_of_their_tokens() -> None:
    offsets = [(0, 0), (0, 1), (1, 3), (5, 9), (0, 0)]  # [CLS] ... [SEP]; a blank is in no token
    assert spans_of_tags(["O", "B-x", "I-x", "I-x", "O"], offsets) == (Span(0, 9, "x"),)
    assert spans_of_tags(["B-x", "I-x", "B-y", "O", "B-y"], offsets) == (Span(0, 1, "x"), Span(1, 3, "y"))
    with pytest.raises(ValueError, match="2 tags for 1 tokens"):
        spans_of_tags(["O", "O"], [(0, 1)])


def test_spans_put_tags_on_their_tokens() -> None:
    offsets = [(0, 0), (0, 2), (2, 3), (4, 6), (6, 7), (0, 0)]
    spans = [Span(4, 7, "b"), Span(1, 3, "a")]  # begins inside a token, and not in their order
    assert tags_of_spans(spans, offsets) == ("O", "B-a", "I-a", "B-b", "I-b", "O")
    assert tags_of_spans(spans, offsets, "BIOES") == ("O", "B-a", "E-a", "B-b", "E-b", "O")
    assert tags_of_spans([Span(2, 3, "a")], offsets, "BIOES") == ("O", "O", "S-a", "O", "O", "O")
    assert tags_of_spans([Span(3, 4, "a"), Span(7, 9, "a")], offsets) == ("O",) * 6  # between tokens, behind them
    with pytest.raises(ValueError, match="scheme"):
        tags_of_spans(spans, offsets, "IOB1")
    offsets = [(0, 4), (4, 5), (5, 6)]  # a token of two spans belongs to the first
    assert tags_of_spans([Span(0, 2, "a"), Span(2, 5, "b")], offsets) == ("B-a", "B-b", "O")
    assert tags_of_spans([Span(0, 6, "a"), Span(1, 5, "b")], offsets) == ("B-a", "I-a", "I-a")


@st.composite
def tokens_and_spans(draw: st.DrawFn) -> tuple[list[tuple[int, int]], tuple[Span, ...]]:
    """Tokens with or without blanks between, and spans that begin and end with tokens and do not overlap."""
    offsets, place = [], 0
    for blank, length in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=12)):
        offsets.append((place + blank, place + blank + length))
        place += blank + length
    cuts = draw(st.lists(st.integers(0, len(offsets)), max_size=8, unique=True).map(sorted))
    spans = [
        Span(offsets[first][0], offsets[after - 1][1], draw(st.sampled_from("xy")))
        for first, after in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    return [(0, 0), *offsets, (0, 0)], tuple(spans)


@given(tokens_and_spans(), st.sampled_from(SCHEMES))
def test_spans_round_trip_through_tags(case: tuple[list[tuple[int, int]], tuple[Span, ...]], scheme: str) -> None:
    offsets, spans = case
    assert spans_of_tags(tags_of_spans(spans, offsets, scheme), offsets) == spans


@given(st.lists(TAGS, max_size=12))
def test_every_tag_but_o_is_in_one_span(tags: list[str]) -> None:
    spans = token_spans(tags)
    inside = [token for span in spans for token in range(span.start, span.end)]
    assert inside == [token for token, tag in enumerate(tags) if tag != "O"]
    assert all(split_tag(tags[token])[1] == span.label for span in spans for token in range(span.start, span.end))


def test_a_model_has_its_tags_in_one_order() -> None:
    assert module.tag_names(["b", "a", "b"]) == ("O", "B-a", "I-a", "B-b", "I-b")
    assert module.types_of(module.tag_names(["b", "a"])) == ("a", "b")
    assert module.tag_names([]) == ("O",) and module.types_of(["O"]) == ()
