"""Gate results as Markdown for a comment on a pull request: verdict, a table for each target, conditions.

It is GitHub's dialect, which GitLab reads too. Text from recipes and devices is in code spans, so that it cannot be a
link, a mention, or the end of a table.

A comment on GitHub has at most 65,536 characters. A longer one is cut at the end of a line, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from edgepack.report import NOT_MEASURED, NOTHING, limit, measured, quantity, span, total, unmet
from edgepack.util.text import as_text, safe
from edgepack_runtime.schema.receipt import ACCURACY_NOT_GATED, is_accuracy_gated

_MARKS: Final = {"pass": "✅", "fail": "❌", "inconclusive": "❔", NOT_MEASURED: "⚠️"}
MOST_CHARACTERS: Final = 65_536
# Conditions to show; the others are folded.
_FIRST: Final = {
    "gpu": "gpu {}", "cpu_model": "cpu {}", "engine": "engine {}", "governor": "governor {}",
    "temperature_c": "temperature {} °C", "emulated": "emulated {}", "load_average": "load average {}",
    "device_clock_utc": "at {} by its own clock",
}  # fmt: skip
_LEDGER_HEAD: Final = ("stage", "score", "size", "mean", "p95", "note")
_HEAD: Final = ("gate", "verdict", "measured", "interval", "limit", "n")


def render(found: Mapping[str, Any]) -> str:
    """Markdown of a document of `gating.results.document`, at most `MOST_CHARACTERS` long, with a final newline."""
    return _cut(_gates(found), "`--json`")


def render_build(report: Mapping[str, Any]) -> str:
    """Markdown of a document of `report.document.make`: gates, warnings and ledger. As long as `render`."""
    named = {key: report[key] for key in ("name", "version")}
    results = [
        {
            "target": target["target"],
            "bundle": {**named, "target": target["target"], "file_name": target["bundle"]["file_name"]},
            "verdict": target["verdict"] if target["receipt"] else NOT_MEASURED,
            "receipt": target["receipt"],
            "explained": target["explained"],
            "error": _not_run(target["not_run_here"] or {}),
        }
        for target in report["targets"]
    ]
    gates = _gates({"verdict": report["verdict"], "results": results})
    return _cut("".join((gates, "\n", *(f"{line}\n" for line in _ledger(report)))), "`report.html`")


def _gates(found: Mapping[str, Any]) -> str:
    lines = [f"## {_mark(found['verdict'])} Gate: {total(found)}"]
    for result in found["results"]:
        lines += _result(result)
    return "".join(f"{line}\n" for line in lines)


def _cut(text: str, whole: str) -> str:
    """`text`, or as many of its lines as fit, with a note below its heading that names `whole`."""
    if len(text) <= MOST_CHARACTERS:
        return text
    heading, _, rest = text.partition("\n")
    note = f"\nCut, for a comment holds {MOST_CHARACTERS:,} characters: see {whole}.\n"
    room = MOST_CHARACTERS - len(heading) - len(note) - 1
    end = rest.rindex("\n", 0, room) + 1
    return f"{heading}\n{note}{rest[:end]}"


def _not_run(reason: Mapping[str, Any]) -> dict[str, Any]:
    return {"what": "not gated on this machine", "why": reason.get("why"), "fix": reason.get("command")}


def _ledger(report: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"- warning: {code(warning)}" for warning in report["warnings"])
    yield from ("", "### Loss ledger", "", _row(_LEDGER_HEAD), _row(["---", *["---:"] * 4, "---"]))
    for row in report["ledger"]:
        score = row["score"]
        yield _row([
            code(row["stage"], cell=True),
            f"{quantity(score['value'], 'fraction')} {span(score['low'], score['high'], 'fraction')}",
            quantity(row["model_mib"], "MiB"),
            quantity(row["mean_ms"], "ms"),
            quantity(row["p95_ms"], "ms"),
            code(row["note"], cell=True) if row["note"] else "",
        ])  # fmt: skip


def code(text: object, *, cell: bool = False) -> str:
    """`text` as a code span; in a `cell` of a table, `|` is escaped.

    The fence has more backticks than any run of them in the text. Markdown hides one blank at either end.
    """
    shown = safe(re.sub(r"\s+", " ", str(text)).strip()) or NOTHING
    if cell:
        shown = shown.replace("|", r"\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    blank = " " if len(fence) > 1 else ""
    return f"{fence}{blank}{shown}{blank}{fence}"


def _result(result: Mapping[str, Any]) -> Iterator[str]:
    receipt = result["receipt"]
    yield from ("", f"### {_mark(result['verdict'])} {code(result['target'])}: {_bundle(result)}", "")
    if receipt is None:
        yield from _failed(result["error"])
        return
    yield from _measured(receipt, {str(one["gate"]): str(one["why"]) for one in result.get("explained", ())})
    yield from _folded(receipt)


def _bundle(result: Mapping[str, Any]) -> str:
    bundle = (result["receipt"] or {}).get("bundle") or result["bundle"]
    if bundle.get("name") is None:
        return code(result["bundle"]["file_name"])
    return f"{code(bundle['name'])} {code(bundle['version'])} for {code(bundle['target'])}: {result['verdict']}"


def _failed(error: Mapping[str, Any]) -> Iterator[str]:
    yield code(error["what"])
    for name in ("why", "fix"):
        if error[name]:
            yield f"- {name}: {code(error[name])}"


def _measured(receipt: Mapping[str, Any], causes: Mapping[str, str]) -> Iterator[str]:
    """The table, details of checks that did not pass (failures first), and the main conditions.

    `causes` are those of a build by gate, which a device does not know.
    """
    checks = receipt["checks"]
    if checks:
        yield _row(_HEAD)
        yield _row(["---", "---", *["---:"] * (len(_HEAD) - 2)])
    for check in checks:
        yield _row([
            code(check["gate"], cell=True),
            f"{_mark(check['verdict'])} {check['verdict']}",
            measured(check),
            span(check["low"], check["high"], check["unit"]),
            limit(check),
            str(check["n"] or NOTHING),
        ])  # fmt: skip
    details = [
        (one["gate"], one["verdict"], "; ".join(filter(None, (causes.get(str(one["gate"])), one["detail"]))))
        for one in unmet(receipt)
    ]
    for one in _unmeasured(receipt):
        verdict = f"{_mark(NOT_MEASURED)} {NOT_MEASURED}{', waived' * one['waived']}"
        details.append((one["gate"], verdict, one["why"]))
    if details:
        yield from [""] if checks else []
        yield from (f"- {code(gate)}: {verdict}: {code(why)}" for gate, verdict, why in details)
    if not is_accuracy_gated(receipt):
        yield from ["", f"{ACCURACY_NOT_GATED[0].upper()}{ACCURACY_NOT_GATED[1:]}."]
    conditions = receipt.get("conditions") or {}
    first = {words: conditions[key] for key, words in _FIRST.items() if conditions.get(key) is not None}
    if first:
        yield ""
        yield f"On {', '.join(words.format(code(as_text(value))) for words, value in first.items())}."


def _folded(receipt: Mapping[str, Any]) -> Iterator[str]:
    conditions = receipt.get("conditions") or {}
    others = [name for name in conditions if name not in _FIRST or conditions[name] is None]
    if not others:
        return
    yield ""
    yield "<details><summary>other conditions</summary>"
    yield ""
    yield from (f"- {code(name)}: {code(as_text(conditions[name]))}" for name in others)
    yield ""
    yield "</details>"


def _unmeasured(receipt: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Gates without a verdict, because the bundle does not carry its rows."""
    found: Sequence[Mapping[str, Any]] = receipt.get("unmeasured", ())
    return found


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mark(verdict: str) -> str:
    return _MARKS.get(verdict, "")
