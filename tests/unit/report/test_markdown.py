"""Gates as Markdown: the verdict first, and nothing in it that a device could make a link, a mention or a cell of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.report.markdown import code, render

GOLDEN = Path(__file__).parents[1] / "golden" / "gate.md"


@pytest.fixture
def found(receipt: dict[str, Any]) -> dict[str, Any]:
    """One that was measured, and one that was not."""
    bundle = {"file_name": "a|b.edgepack", "name": None, "version": None, "target": None}
    receipt["conditions"]["board"] = "树莓派 | `5` @everyone\n# x"
    error = {"what": "line4 cannot be reached", "why": "nothing listens there: `|`", "fix": ""}
    return {
        "verdict": "fail",
        "exit_code": 6,
        "results": [
            {"target": "line3", "bundle": bundle, "verdict": "fail", "receipt": receipt, "error": None},
            {"target": "line4", "bundle": bundle, "verdict": "not measured", "receipt": None, "error": error},
        ],
    }


def test_it_reads_as_written_down(found: dict[str, Any]) -> None:
    assert render(found) == GOLDEN.read_text(encoding="utf-8")


def test_the_rows_of_a_table_have_its_columns(found: dict[str, Any]) -> None:
    found["results"][0]["receipt"]["checks"][0]["gate"] = "a|b`c\nd"
    rows = [line for line in render(found).splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(found["results"][0]["receipt"]["checks"])
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}


@given(st.text(), st.booleans())
def test_any_text_is_one_code_span(text: str, cell: bool) -> None:
    span = code(text, cell=cell)
    fence = re.match("`+", span)
    assert fence is not None
    assert "\n" not in span
    inner = span[len(fence[0]) : -len(fence[0])]
    assert span.endswith(fence[0])
    assert fence[0] not in re.findall("`+", inner)
    if not (inner.startswith(" ") and inner.endswith(" ")):
        assert not inner.startswith("`") and not inner.endswith("`")
    assert not cell or not re.search(r"(?<!\\)\|", inner)


def test_chinese_stays_and_what_moves_a_cursor_does_not() -> None:
    assert code("很好\x1b[2J\u202e") == "`很好\\u001b[2J\\u202e`"
    assert code("") == "`-`"


def test_gates_without_rows_are_told_beside_those_that_did_not_pass(found: dict[str, Any]) -> None:
    found["results"][0]["receipt"]["unmeasured"] = [{"gate": "accuracy.f1", "why": "| at home", "waived": True}]
    assert "- `accuracy.f1`: ⚠️ not measured: `| at home`\n" in render(found)
