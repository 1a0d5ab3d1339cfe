"""Labelled spans of a text, and their BIO or BIOES tags.

Tags are those of the BIO and BIOES schemes: `O` outside, `B-x` the first token of an x, `I-x` one inside it; BIOES
has `E-x` for the last token and `S-x` for an x of one token.
"""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Sequence, Tuple

OUTSIDE = "O"
SCHEMES = ("BIO", "BIOES")
_STARTS = ("B", "S")  # always the first token of a span
_ENDS = ("E", "S")  # always the last
_FORMS = ("B", "I", "E", "S")


class Span(NamedTuple):
    """A `label` for the characters `start` to `end` (exclusive; indices of a Python str) of a text."""

    start: int
    end: int
    label: str


def split_tag(tag: str) -> Tuple[str, str]:
    """The form (`B`, `I`, `E`, `S` or `O`) and the type of a tag; the type of `O` is empty.

    Raises:
        ValueError: it is not a tag of BIO or BIOES.
    """
    if tag == OUTSIDE:
        return tag, ""
    form, dash, name = tag.partition("-")
    if form not in _FORMS or not dash or not name:
        raise ValueError(f"{tag!r} is not a tag: it should be O, B-TYPE, I-TYPE, E-TYPE or S-TYPE")
    return form, name


def tag_names(types: Iterable[str]) -> Tuple[str, ...]:
    """The BIO tags of `types`, in the order of a model's labels: `O` first, then `B-x`, `I-x` by sorted type."""
    return (OUTSIDE, *(f"{form}-{name}" for name in sorted(set(types)) for form in ("B", "I")))


def types_of(tags: Iterable[str]) -> Tuple[str, ...]:
    """The types in `tags`, sorted. Raises as `split_tag`."""
    return tuple(sorted({split_tag(tag)[1] for tag in tags} - {""}))


def token_spans(tags: Sequence[str]) -> Tuple[Span, ...]:
    """The spans in `tags`, in tokens: token `start` to token `end` (exclusive).

    Invalid sequences are read as conlleval and seqeval's default mode read them. An `I-x` or `E-x` without an open x
    starts a span. An open span ends before `O`, before a start tag and before another type.
    Source: https://www.cnts.ua.ac.be/conll2000/chunking/output.html.

    Raises:
        ValueError: an item is not a tag of BIO or BIOES.
    """
    found: List[Span] = []
    begin, open_type, ended = 0, "", True  # `ended`: the last span is complete
    for index, tag in enumerate(tags):
        form, name = split_tag(tag)
        starts = bool(name) and (form in _STARTS or ended or name != open_type)
        if open_type and (starts or not name):
            found.append(Span(begin, index, open_type))
        if starts:
            begin = index
        open_type, ended = name, not name or form in _ENDS
    if open_type:
        found.append(Span(begin, len(tags), open_type))
    return tuple(found)


def spans_of_tags(tags: Sequence[str], offsets: Sequence[Tuple[int, int]]) -> Tuple[Span, ...]:
    """The spans of a text from the tags of its tokens, sorted.

    Args:
        tags: one for each token; invalid sequences are read as in `token_spans`.
        offsets: characters (start, end exclusive) of each token. A token without characters, such as [CLS] with
            (0, 0), is ignored.

    Raises:
        ValueError: the lengths differ, or an item is not a tag of BIO or BIOES.
    """
    if len(tags) != len(offsets):
        raise ValueError(f"{len(tags)} tags for {len(offsets)} tokens")
    kept = [(tag, start, end) for tag, (start, end) in zip(tags, offsets) if start < end]
    runs = token_spans([tag for tag, _, _ in kept])
    return tuple(sorted(Span(kept[run.start][1], kept[run.end - 1][2], run.label) for run in runs))


def tags_of_spans(spans: Sequence[Span], offsets: Sequence[Tuple[int, int]], scheme: str = "BIO") -> Tuple[str, ...]:
    """One tag for each token; the inverse of `spans_of_tags` if spans begin and end at token boundaries.

    A token belongs to the first span that it shares a character with. A span without tokens (the text was cut before
    it) has no tags.

    Args:
        spans: in any order.
        offsets: characters (start, end exclusive) of each token, in reading order. A token without characters is `O`.
        scheme: one of `SCHEMES`.

    Raises:
        ValueError: the scheme is unknown.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"unknown scheme {scheme!r}; known: {', '.join(SCHEMES)}")
    tags = [OUTSIDE] * len(offsets)
    ordered = sorted(spans)
    owned: List[List[int]] = [[] for _ in ordered]
    first = 0  # earlier spans end before the current token
    for token, (start, end) in enumerate(offsets):
        while first < len(ordered) and start < end and ordered[first].end <= start:
            first += 1
        for number in range(first, len(ordered)):
            span = ordered[number]
            if end <= span.start or start >= end:
                break
            if start < span.end:
                owned[number].append(token)
                break
    for span, tokens in zip(ordered, owned):
        for place, token in enumerate(tokens):
            tags[token] = f"{_form(place, len(tokens), scheme)}-{span.label}"
    return tuple(tags)


def _form(place: int, n: int, scheme: str) -> str:
    """The form of the tag of token number `place` in a span of `n` tokens."""
    if scheme == "BIOES" and place == n - 1:
        return "S" if n == 1 else "E"
    return "B" if place == 0 else "I"
