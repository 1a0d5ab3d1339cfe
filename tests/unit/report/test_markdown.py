"""Gates as Markdown: the verdict first, and nothing in it that a device could make a link, a mention or a cell of."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.golden import assert_golden
from tests.unit.report.pages import document, markdown_of

from edgepack.report.gates import Gates, NotGated, TargetGates
from edgepack.report.markdown import MOST_CHARACTERS, code, render
from edgepack.results import Build, NotRunHere
from edgepack_runtime.schema.receipt import BundleFacts, GateReceipt

GOLDEN = Path(__file__).parents[1] / "golden" / "gate.md"


LOST = NotGated("line4 cannot be reached", "nothing listens there: `|`", "")


@pytest.fixture
def receipt(receipt: dict[str, Any]) -> dict[str, Any]:
    receipt["conditions"]["board"] = "树莓派 | `5` @everyone\n# x"
    return receipt


def measured(receipt: dict[str, Any]) -> TargetGates:
    known = BundleFacts("hotel-sentiment", "1.2.0", "local")
    return TargetGates("line3", receipt["verdict"], "a|b.edgepack", known, receipt=GateReceipt.parse(receipt))


def rendered(receipt: dict[str, Any]) -> str:
    """The Markdown of two devices: one that was measured, and one that was not."""
    lost = TargetGates("line4", "not measured", "a|b.edgepack", None, not_gated=LOST)
    return render(Gates("edgepack gate", "fail", (measured(receipt), lost)))


def test_it_is_the_golden_file_and_rows_of_a_table_have_its_columns(receipt: dict[str, Any]) -> None:
    assert_golden(rendered(receipt), GOLDEN)
    receipt["checks"][0]["gate"] = "a|b`c\nd"
    rows = [line for line in rendered(receipt).splitlines() if line.startswith("| ")]
    assert len(rows) == 2 + len(receipt["checks"])
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


def test_gates_that_were_not_measured_are_listed_and_make_no_table(receipt: dict[str, Any]) -> None:
    receipt["unmeasured"] = [{"gate": "accuracy.f1", "why": "| no rows", "waived": True}]
    assert "- `accuracy.f1`: ⚠️ not measured, waived: `| no rows`\n" in rendered(receipt)
    unmeasured = [{"gate": "gates", "why": "the recipe sets no gates", "waived": False}]
    text = rendered({**receipt, "checks": [], "unmeasured": unmeasured})
    assert "| gate |" not in text
    assert "\n\n- `gates`: ⚠️ not measured: `the recipe sets no gates`\n\n" in text


def test_a_result_without_a_limit_on_accuracy_says_so(receipt: dict[str, Any]) -> None:
    assert "Accuracy is not gated" not in rendered(receipt)
    receipt["checks"] = [check for check in receipt["checks"] if not check["gate"].startswith("accuracy.")]
    assert "\nAccuracy is not gated: the recipe sets no limit for it.\n" in rendered(receipt)


def test_the_first_conditions_are_shown_at_once_and_the_others_folded(receipt: dict[str, Any]) -> None:
    receipt["conditions"] |= {"temperature_c": 61.5, "governor": "performance"}
    text = rendered(receipt)
    first = "On cpu `AMD EPYC 7B13`, engine `onnxruntime 1.20.1`, governor `performance`, temperature `61.5` °C"
    assert f"{first}, emulated" in text.partition("<details>")[0]
    assert "- `governor`" not in text and "- `kernel`: `6.1.0`" in text.partition("<details>")[2]
    receipt["conditions"] = {"cpu_model": "A"}
    assert "On cpu `A`.\n" in rendered(receipt) and "<details>" not in rendered(receipt)
    receipt["conditions"] = {}
    assert "\nOn " not in rendered(receipt)


def many(receipt: dict[str, Any], verdicts: list[str], words: str = "") -> tuple[TargetGates, ...]:
    """As many results as `verdicts`, each with `words` in the detail of its checks."""
    checks = [{**check, "detail": words} for check in receipt["checks"]]
    results = [measured({**receipt, "verdict": verdict, "checks": checks}) for verdict in verdicts]
    return tuple(replace(result, where=f"line{number}") for number, result in enumerate(results))


def test_a_comment_that_is_too_long_is_cut_at_a_line_and_says_so(receipt: dict[str, Any], built: Build) -> None:
    results = many(receipt, ["fail"] * 200)
    whole = render(Gates("", "fail", results))
    heading, blank, note, *rest = whole.splitlines()
    assert heading == "## ❌ Gate: fail (0 of 200 results passed; 200 failed)" and blank == ""
    assert note.startswith("Cut, ") and note.endswith("see `--json`.")
    last = ["", *render(Gates("", "fail", results[:1])).splitlines()[2:]]
    assert rest[: len(last)] == last
    assert len(whole) > MOST_CHARACTERS - 500
    report = document(built)
    report["warnings"] = ["w" * 1000] * 100
    assert "see `report.html`." in markdown_of(report).splitlines()[2]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from(["pass", "fail", "inconclusive"]), max_size=90),
    st.sampled_from(["", "`", "|", "很", "❌\n"]),
    st.integers(0, 70_000),
)
def test_no_comment_is_longer_than_github_takes(
    receipt: dict[str, Any], verdicts: list[str], words: str, times: int
) -> None:
    results = many(receipt, verdicts, words * (times // 100))
    named = words * (times % 70_000)
    lost = TargetGates(words * times, "not measured", named, None, not_gated=LOST)
    text = render(Gates("", "fail", (*results, lost)))
    assert len(text) <= MOST_CHARACTERS
    assert text.startswith("## ❌ Gate: fail") and text.endswith("\n")
    assert "\nCut, " in text or text.count("\n### ") == len(results) + 1


def test_a_build_has_its_gates_warnings_and_ledger(built: Build) -> None:
    report = document(built)
    report["warnings"] = ["the teacher is | weak"]
    lines = markdown_of(report).splitlines()
    assert lines[0] == f"## ❌ Gate: {report['verdict']}"
    assert r"- warning: `the teacher is | weak`" in lines
    ledger = lines[lines.index("### Ledger") + 2 :]
    assert ledger[0] == "| stage | score | size | mean | p95 | note |"
    assert len(ledger) == 2 + len(report["ledger"])
    assert ledger[-1].startswith("| `on local` | 89.5 % [87.4, 91.5] | 10.9 MiB | ")
    not_run = replace(
        built, target_results=(replace(built.target_results[0], gate=NotRunHere("it is for aarch64", "sh F gate")),)
    )
    text = markdown_of(document(not_run))
    assert "`not gated on this machine`" in text and "- why: `it is for aarch64`" in text
