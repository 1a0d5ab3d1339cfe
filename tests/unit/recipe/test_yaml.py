"""YAML text to plain data with lines; whatever the bytes, an answer and never an exception."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.recipe import yaml as parser
from edgepack.recipe.yaml import Document, KeyPath, decode, parse

FILE = Path("recipe.yaml")


def document(text: str) -> Document:
    parsed, findings = parse(text.encode(), FILE)
    assert parsed is not None
    assert findings == []
    return parsed


def finding(raw: bytes) -> str:
    _, findings = parse(raw, FILE)
    assert len(findings) == 1
    assert findings[0].severity == "error"
    return f"{findings[0].line}: {findings[0].reason}"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("3e-5", 3e-5),
        ("3.0", 3.0),
        (".5", 0.5),
        ("-7", -7),
        ("010", 10),
        ("0x1F", 31),
        ("1_000", 1000),
        ("12:30:00", "12:30:00"),
        ("2024-01-01", "2024-01-01"),
        ("1.2.0", "1.2.0"),
        ('"3"', "3"),
        ("[1, a]", [1, "a"]),
        ("{b: 1}", {"b": 1}),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    found = document(f"key: {text}\n").data["key"]
    assert found == value
    assert type(found) is type(value)


def test_every_key_and_item_has_its_line_and_what_was_written() -> None:
    parsed = document("a: 1.20\nb:\n  c: [x,\n    y]\n  d: {e: 2}\n")
    expected: dict[KeyPath, tuple[int, int]] = {
        (): (1, 1), ("a",): (1, 1), ("b",): (2, 1), ("b", "c"): (3, 3), ("b", "c", 0): (3, 7), ("b", "c", 1): (4, 5),
        ("b", "d"): (5, 3), ("b", "d", "e"): (5, 7),
    }  # fmt: skip
    assert {path: (place.line, place.column) for path, place in parsed.places.items()} == expected
    assert parsed.places[("a",)].raw == "1.20"
    assert parsed.error(("b", "c", 7, "z"), "", "").line == 3
    assert parsed.get("b", "c", 1) == "y"
    assert parsed.get("b", "c", 2) is None
    assert parsed.get("b", "x", "y") is None


def test_anchors_and_merges_give_the_values_with_their_lines() -> None:
    parsed = document("t: &t {epochs: 3, seed: 1}\ns:\n  <<: *t\n  seed: 2\nlist: *t\n")
    assert parsed.data["s"] == {"epochs": 3, "seed": 2}
    assert parsed.data["list"] == {"epochs": 3, "seed": 1}
    assert parsed.places[("s", "epochs")].line == 1
    assert parsed.places[("s", "seed")].line == 4


@pytest.mark.parametrize("value", [".inf", "-.inf", ".nan", "1e999"])
def test_only_finite_numbers_are_numbers(value: str) -> None:
    assert finding(f"a: {value}\n".encode()) == f"1: `{value}` is not a finite number"


@pytest.mark.parametrize("value", ["0b" + "1" * 20_000, "0x" + "f" * 5_000, "9" * 5_000])
def test_a_number_of_thousands_of_digits_is_a_finding(value: str) -> None:
    assert f"is a number of {len(value)} characters" in finding(f"a: {value}\n".encode())


@pytest.mark.parametrize("raw", [b"a: " + b"[" * 2000, b"- " * 2000, b"a: " + b"[" * 40 + b"]" * 40, b"a: &a [*a]"])
def test_nesting_beyond_any_recipe_is_a_finding(raw: bytes) -> None:
    assert finding(raw) == "None: it is nested too deeply, or an anchor contains itself"


def repeated(name: str, alias: str, many: int) -> str:
    return f"{name}: &{name} [{', '.join([f'*{alias}'] * many)}]\n"


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1]\n" + "".join(repeated(name, alias, 10) for alias, name in itertools.pairwise("abcdefghi")),
        "a: &a {k: 1}\n" + repeated("b", "a", 300) + "".join(f"c{i}: {{<<: *b}}\n" for i in range(300)),
        "a: &a {" + "k: 1, " * 300 + "}\n" + repeated("b", "a", 300),
        f"a: &a {'x' * 1000}\n" + repeated("b", "a", 300),
    ],
    ids=["aliases of aliases", "merges", "a key that stands twice", "a long text"],
)
def test_aliases_do_not_multiply_a_recipe(text: str) -> None:
    assert finding(text.encode()).endswith(": aliases repeat too many values")


def test_a_recipe_may_be_full_of_values() -> None:
    for text in ("a: [" + "1," * 2000 + "]", "{" + ",".join(map(str, range(2000))) + "}", "a: " + "x" * 100_000):
        document(text)
    document("a: &a [1, 2]\nb: [" + "*a, " * 1000 + "]\n")


def test_a_file_that_is_no_recipe_by_its_size_is_not_read() -> None:
    assert "at most" in finding(b"#" * (parser.MAX_BYTES + 1))


def test_text_is_decoded_without_its_mark_and_with_the_line_of_a_wrong_byte() -> None:
    assert decode(b"\xef\xbb\xbfa", FILE) == ("a", None)
    text, found = decode(b"a\nb\n" + b"\xff", FILE)
    assert text == ""
    assert found is not None
    assert found.line == 3


def test_nothing_is_constructed(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    parse(
        f'a: !!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path ["{touched}"]]'.encode(), FILE
    )
    assert not touched.exists()


@given(st.binary(max_size=300))
def test_any_bytes_get_an_answer(raw: bytes) -> None:
    parsed, findings = parse(raw, FILE)
    assert parsed is not None or findings


YAML_LIKE = st.text(alphabet=" \t\n:-?{}[],&*#!|>'\"%@`<=~0123456789.eEnoyax酒：\\u\ufeff\x85\u2028", max_size=120)


@given(YAML_LIKE)
def test_anything_that_looks_like_yaml_gets_an_answer(text: str) -> None:
    parsed, findings = parse(text.encode(), FILE)
    assert parsed is not None or findings
    lines = text.count("\n") + text.count("\x85") + text.count("\u2028") + 2
    assert all(found.line is None or 1 <= found.line <= lines for found in findings)


# YAML has no surrogate pairs, so that JSON's escapes beyond U+FFFF are none of it.
WORDS = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=12)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(WORDS, PLAIN, max_size=4))
def test_json_reads_as_itself(data: dict[str, object]) -> None:
    """JSON is YAML: what goes in as JSON comes out equal, with a line for every key."""
    parsed, findings = parse(json.dumps(data).encode(), FILE)
    assert findings == []
    assert parsed is not None
    assert parsed.data == data
    assert {path for path in parsed.places if len(path) == 1} == {(key,) for key in data}
