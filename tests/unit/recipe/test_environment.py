"""Variables in recipes: what is filled in, what stays, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.recipe.overrides import MAX_EXPANDED, Expansion
from edgepack.recipe.yaml import parse

FILE = Path("recipe.yaml")
ENVIRONMENT = {
    "THREE": "3",
    "WORD": "many words",
    "EMPTY": "",
    "NESTED": "${THREE}",
    "YES": "true",
    "TILDE": "~",
    "_1": "x",
}


def value(text: str) -> object:
    """What `key: TEXT` holds once its variables are filled in."""
    expansion = Expansion(FILE, ENVIRONMENT)
    document, findings = parse(f"key: {text}\n".encode(), FILE, expansion)
    assert findings == expansion.findings == []
    assert document is not None
    return document.data["key"]


def reason(text: str, environment: dict[str, str] | None = None) -> str:
    expansion = Expansion(FILE, environment or ENVIRONMENT)
    parse(f"# first line\nkey: {text}\n".encode(), FILE, expansion)
    (finding,) = expansion.findings
    assert (finding.severity, finding.line) == ("error", 2)
    assert finding.fix
    return finding.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${THREE}", 3),
        ("'${THREE}'", "3"),
        ('"${THREE}"', "3"),
        ("${THREE}.5", 3.5),
        ("${THREE}e-${THREE}", 3e-3),
        ("0${THREE}", 3),
        ("a${THREE}", "a3"),
        ("${WORD}", "many words"),
        ("${YES}", True),
        ("${TILDE}", None),
        ("${EMPTY}", None),
        ("${EMPTY:-}", None),
        ("${EMPTY:-5}", 5),
        ("${ABSENT:-5}", 5),
        ("${ABSENT:-a:-b}", "a:-b"),
        ("${ABSENT:-no}", "no"),
        ("${THREE:-5}", 3),
        ("'${ABSENT:-null}'", "null"),
        ("${NESTED}", "${THREE}"),
        ("${_1}${_1}", "xx"),
        ("$$", "$"),
        ("$${THREE}", "${THREE}"),
        ("$$$$", "$$"),
        ("$$${THREE}", "$3"),
        ("5 $", "5 $"),
        ("$5", "$5"),
        ("$-", "$-"),
        ("[a, '${THREE}']", ["a", "3"]),
        ("{'${THREE}': '${THREE}'}", {"${THREE}": "3"}),
        ("|\n  ${THREE}", "3\n"),
        (">-\n  ${THREE}", "3"),
    ],
)
def test_scalars_are_filled_in_and_then_typed(text: str, expected: object) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


def test_what_cannot_be_filled_in_is_a_finding() -> None:
    """Beside what the golden recipes variables.yaml and unset.yaml show."""
    assert reason("'x ${ABSENT} y'") == "the environment variable `ABSENT` is not set"
    for text in ("${THREE-5}", "${ABSENT:-$$}"):
        assert reason(text) == f"`{text}` names no variable"


def test_a_small_recipe_cannot_ask_for_gigabytes() -> None:
    half = "x" * (MAX_EXPANDED // 2)
    assert "more than" in reason("'${X}${X}${X}'", {"X": half})
    expansion = Expansion(FILE, {"X": half})
    assert len(expansion("${X}" * 1000, 1)) <= MAX_EXPANDED
    assert expansion.findings


def test_what_is_wrong_in_an_anchor_is_one_finding() -> None:
    expansion = Expansion(FILE, {})
    parse(b"a: &a ${ABSENT}\nb: *a\nc: [*a, *a]\n", FILE, expansion)
    assert {finding.line for finding in expansion.findings} == {1}
    assert len(set(expansion.findings)) == 1
