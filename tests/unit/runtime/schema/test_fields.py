"""Documents are read by the fields that their dataclasses declare."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.schema.fields import Document, Exact, Problem, field, parse, read, to_json, valid


@dataclasses.dataclass(frozen=True)
class Part(Document):
    ONE_OF = ("low", "high")

    low: float | None = field("Low.", None, gt=0, le=10)
    high: float | None = field("High.", None, ge=0)

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        if self.low is not None and self.high is not None and self.low > self.high:
            yield Problem(("low",), "is above `high`", "swap them")


@dataclasses.dataclass(frozen=True)
class Whole(Document):
    name: str = field(min_length=1)
    number: int = field("A number.", 1, lt=5)
    kind: Literal["a", "b"] = field("A kind.", "a")
    parts: tuple[Part, ...] = field("Parts.", (), max_length=2)
    shares: Mapping[str, float] = field("Shares.", {}, values={"gt": 0, "lt": 1})
    more: Mapping[str, Any] = field("Anything.", {})
    note: str | None = field("A note.", None, optional=True)


GOOD: Any = {"name": "x", "number": 3, "kind": "b", "parts": [{"low": 1}], "shares": {"a": 0.5}, "more": {"b": [1]}}


def test_a_document_is_read_and_written() -> None:
    made, problems = read(Whole, GOOD)
    assert problems == []
    assert made == Whole("x", 3, "b", (Part(1.0),), {"a": 0.5}, {"b": [1]})
    assert to_json(made) == {**GOOD, "parts": [{"low": 1.0, "high": None}]}
    assert to_json(dataclasses.replace(made, note="y"))["note"] == "y"


def test_null_stands_for_the_default() -> None:
    assert read(Whole, {**dict.fromkeys(GOOD), "name": "x"}) == (Whole("x"), [])


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"name": None}, ("name",)),
        ({"name": ""}, ("name",)),
        ({"name": 3}, ("name",)),
        ({"number": True}, ("number",)),
        ({"number": 3.0}, ("number",)),
        ({"number": 5}, ("number",)),
        ({"kind": "c"}, ("kind",)),
        ({"kind": ["a"]}, ("kind",)),
        ({"parts": {}}, ("parts",)),
        ({"parts": [{"low": 1}] * 3}, ("parts",)),
        ({"parts": [3]}, ("parts", 0)),
        ({"parts": [{}]}, ("parts", 0)),
        ({"parts": [{"low": 10.5}]}, ("parts", 0, "low")),
        ({"parts": [{"low": float("nan")}]}, ("parts", 0, "low")),
        ({"parts": [{"high": float("inf")}]}, ("parts", 0, "high")),
        ({"parts": [{"high": 10**400}]}, ("parts", 0, "high")),
        ({"parts": [{"low": 2, "high": 1}]}, ("parts", 0, "low")),
        ({"shares": [1]}, ("shares",)),
        ({"shares": {"a": 1.0}}, ("shares", "a")),
        ({"more": "x"}, ("more",)),
        ({"x": 1}, ("x",)),
    ],
)
def test_each_problem_has_the_path_of_its_value(change: dict[str, Any], path: tuple[str | int, ...]) -> None:
    _, [problem] = read(Whole, {**GOOD, **change})
    assert problem.path == path


def test_a_newer_document_may_have_more_keys() -> None:
    assert parse(Whole, {**GOOD, "x": 1, "parts": [{"low": 1, "y": 2}]}) == read(Whole, GOOD)[0]
    with pytest.raises(ValueError, match=r"^`parts\[0\]\.low` is -1$"):
        parse(Whole, {**GOOD, "parts": [{"low": -1}]})
    with pytest.raises(ValueError, match=r"^the document is not an object$"):
        parse(Whole, [])


def test_a_message_quotes_a_long_value_in_part() -> None:
    _, [problem] = read(Whole, {**GOOD, "number": "x" * 10_000})
    assert len(problem.reason()) < 200


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*GOOD, "low", "x"]), inner),
    max_leaves=8,
)


@given(values)
def test_any_value_is_a_document_or_has_problems(document: Any) -> None:
    read(Whole, document)


@dataclasses.dataclass(frozen=True)
class Complete(Exact):
    mode: str = field(default="a", one_of=("a", "b"))
    names: tuple[str, ...] | None = field(default=None, values={"one_of": ("c", "d")})


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"mode": "b"}, "the document should be an object with the keys ['mode', 'names'], not ['mode']"),
        ({"mode": "b", "names": None, "more": 1}, "the document should be an object with the keys"),
        ([], "the document should be an object with the keys ['mode', 'names'], not list"),
        ({"mode": None, "names": None}, "mode is null"),
        ({"mode": "c", "names": None}, "mode is 'c'; this runtime supports ['a', 'b']"),
        ({"mode": "b", "names": ["c", "e"]}, "names[1] is 'e'; this runtime supports ['c', 'd']"),
    ],
)
def test_an_exact_document_has_each_field(document: Any, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        valid(Complete, document, ValueError)


def test_an_exact_document_of_a_newer_version_may_have_more() -> None:
    assert valid(Complete, {"mode": "b", "names": ["c"]}, ValueError) == Complete("b", ("c",))
    assert parse(Complete, {"mode": "b", "names": None, "more": 1}) == Complete("b")
    with pytest.raises(ValueError, match="should be an object"):
        parse(Complete, {"mode": "b"})
