"""Gate results as Markdown for a comment on a pull request: verdict, a table for each target, conditions.

It is GitHub's dialect, which GitLab reads too. Text from recipes and devices is in code spans, so that it cannot be a
link, a mention, or the end of a table.

A comment on GitHub has at most 65,536 characters. A longer one is cut at the end of a line, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from edgepack.report import gates
from edgepack.report.gates import NOT_MEASURED, GateRows, Gates, NotGated, TargetGates
from edgepack.report.model import Report
from edgepack.util.text import as_text, safe
from edgepack_runtime.schema.conditions import main
from edgepack_runtime.schema.figures import NOTHING, quantity, span
from edgepack_runtime.schema.receipt import ACCURACY_NOT_GATED
from edgepack_runtime.stats import intervals

_MARKS: Final = {intervals.PASS: "✅", intervals.FAIL: "❌", intervals.INCONCLUSIVE: "❔", NOT_MEASURED: "⚠️"}
MOST_CHARACTERS: Final = 65_536
# Words of the main conditions that are not printed as a name and a value.
_WORDS: Final = {
    "cpu_model": "cpu {}", "temperature_c": "temperature {} °C", "load_average": "load average {}",
    "device_clock_utc": "at {} by its own clock",
}  # fmt: skip
_LEDGER_HEAD: Final = ("stage", "score", "size", "mean", "p95", "note")
_HEAD: Final = ("gate", "verdict", "measured", "interval", "limit", "n")


def render(found: Gates) -> str:
    """Markdown of gates, at most `MOST_CHARACTERS` long, with a final newline."""
    return _cut(_gates(found), "`--json`")


def render_build(report: Report) -> str:
    """Markdown of a build: gates, warnings and ledger. As long as `render`."""
    text = _gates(gates.of_build(report))
    return _cut("".join((text, "\n", *(f"{line}\n" for line in _ledger(report)))), "`report.html`")


def _gates(found: Gates) -> str:
    lines = [f"## {_mark(found.verdict)} Gate: {found.summary}"]
    for result in found.results:
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


def _ledger(report: Report) -> Iterator[str]:
    yield from (f"- warning: {code(warning)}" for warning in report.warnings)
    yield from ("", "### Ledger", "", _row(_LEDGER_HEAD), _row(["---", *["---:"] * 4, "---"]))
    for row in report.ledger:
        yield _row([
            code(row.stage, cell=True),
            f"{quantity(row.score.value, row.score.unit)} {span(row.score.low, row.score.high, row.score.unit)}",
            quantity(row.model_mib, "MiB"),
            quantity(row.mean_ms, "ms"),
            quantity(row.p95_ms, "ms"),
            code(row.note, cell=True) if row.note else "",
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


def _result(result: TargetGates) -> Iterator[str]:
    yield from ("", f"### {_mark(result.verdict)} {code(result.where)}: {_bundle(result)}", "")
    if result.not_gated is not None:
        yield from _failed(result.not_gated)
    if result.receipt is not None:
        yield from _measured(result.rows, result.receipt.conditions)
        yield from _folded(result.receipt.conditions)


def _bundle(result: TargetGates) -> str:
    if (bundle := result.bundle) is None:
        return code(result.file_name)
    return f"{code(bundle.name)} {code(bundle.version)} for {code(bundle.target)}: {result.verdict}"


def _failed(error: NotGated) -> Iterator[str]:
    yield code(error.what)
    for name, words in (("why", error.why), ("fix", error.fix)):
        if words:
            yield f"- {name}: {code(words)}"


def _measured(found: GateRows, conditions: Mapping[str, Any]) -> Iterator[str]:
    """The table, details of checks that did not pass (failures first), and the main conditions."""
    if found.checks:
        yield _row(_HEAD)
        yield _row(["---", "---", *["---:"] * (len(_HEAD) - 2)])
    for check in found.checks:
        verdict = f"{_mark(check.verdict)} {check.verdict}"
        yield _row([code(check.gate, cell=True), verdict, check.value, check.interval, check.limit, check.n])
    details = [(check.gate, check.verdict, check.reason) for check in found.unmet]
    details += [(one.gate, f"{_mark(NOT_MEASURED)} {one.verdict}", one.why) for one in found.left_out]
    if details:
        yield from [""] if found.checks else []
        yield from (f"- {code(gate)}: {verdict}: {code(why)}" for gate, verdict, why in details)
    if not found.is_accuracy_gated:
        yield from ["", f"{ACCURACY_NOT_GATED[0].upper()}{ACCURACY_NOT_GATED[1:]}."]
    first = [_WORDS.get(name, f"{name} {{}}").format(code(as_text(value))) for name, value in main(conditions).items()]
    if first:
        yield from ["", f"On {', '.join(first)}."]


def _folded(conditions: Mapping[str, Any]) -> Iterator[str]:
    shown = main(conditions)
    others = [name for name in conditions if name not in shown]
    if not others:
        return
    yield ""
    yield "<details><summary>other conditions</summary>"
    yield ""
    yield from (f"- {code(name)}: {code(as_text(conditions[name]))}" for name in others)
    yield ""
    yield "</details>"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mark(verdict: str) -> str:
    return _MARKS.get(verdict, "")
