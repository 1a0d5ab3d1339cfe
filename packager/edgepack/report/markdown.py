"""Results of gates as Markdown for a pull request's comment: the verdict first, a table for each target, conditions.

It is GitHub's dialect, which GitLab reads too. Whatever comes from recipes and devices stands in code spans: nothing in
it is a link, a mention, or an end of the table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from edgepack.report import NOT_MEASURED, NOTHING, limit, quantity, span
from edgepack.wording import counted, safe

_MARKS: Final = {"pass": "✅", "fail": "❌", "inconclusive": "❔", NOT_MEASURED: "⚠️"}
_HEAD: Final = ("gate", "verdict", "measured", "interval", "limit", "n")


def render(found: Mapping[str, Any]) -> str:
    """Markdown of a document made by `edgepack.gates.document`, with one final newline."""
    return "\n".join(_lines(found)) + "\n"


def code(text: object, *, cell: bool = False) -> str:
    """`text` as a code span, whatever is in it; in a `cell` of a table a `|` is escaped.

    A span is fenced by more backticks than any run in it has, and its blank at either end is not shown.
    """
    shown = re.sub(r"\s+", " ", safe(text)).strip() or NOTHING
    if cell:
        shown = shown.replace("|", r"\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    blank = " " if len(fence) > 1 else ""
    return f"{fence}{blank}{shown}{blank}{fence}"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    results = found["results"]
    passed = [result for result in results if result["verdict"] == "pass"]
    of = f" ({len(passed)} of {counted(len(results), 'result')} passed)" if len(results) > 1 else ""
    yield f"## {_MARKS[found['verdict']]} Gate: {found['verdict']}{of}"
    for result in results:
        yield ""
        yield f"### {_mark(result['verdict'])} {code(result['target'])}: {_bundle(result)}"
        yield ""
        yield from _failed(result["error"]) if result["receipt"] is None else _measured(result["receipt"])


def _bundle(result: Mapping[str, Any]) -> str:
    told = (result["receipt"] or {}).get("bundle") or result["bundle"]
    if told.get("name") is None:
        return code(result["bundle"]["file_name"])
    return f"{code(told['name'])} {code(told['version'])} for {code(told['target'])}: {result['verdict']}"


def _failed(error: Mapping[str, Any]) -> Iterator[str]:
    yield code(error["what"])
    for name in ("why", "fix"):
        if error[name]:
            yield f"- {name}: {code(error[name])}"


def _measured(receipt: Mapping[str, Any]) -> Iterator[str]:
    checks = receipt["checks"]
    yield _row(_HEAD)
    yield _row(["---", "---", *["---:"] * (len(_HEAD) - 2)])
    for check in checks:
        yield _row([
            code(check["gate"], cell=True),
            f"{_mark(check['verdict'])} {check['verdict']}",
            quantity(check["value"], check["unit"]),
            span(check["low"], check["high"], check["unit"]),
            limit(check),
            str(check["n"] or NOTHING),
        ])  # fmt: skip
    told = [(one["gate"], one["verdict"], one["detail"]) for one in checks if one["verdict"] != "pass"]
    told += [(one["gate"], f"{_mark(NOT_MEASURED)} {NOT_MEASURED}", one["why"]) for one in _unmeasured(receipt)]
    if told:
        yield ""
        yield from (f"- {code(gate)}: {verdict}: {code(why)}" for gate, verdict, why in told)
    yield ""
    yield "<details><summary>conditions</summary>"
    yield ""
    conditions = receipt.get("conditions") or {}
    yield from (f"- {code(name)}: {code(_plain(value))}" for name, value in conditions.items())
    yield ""
    yield "</details>"


def _unmeasured(receipt: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Gates without a verdict: their rows stayed at home."""
    found: Sequence[Mapping[str, Any]] = receipt.get("unmeasured", ())
    return found


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mark(verdict: str) -> str:
    return _MARKS.get(verdict, "")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
