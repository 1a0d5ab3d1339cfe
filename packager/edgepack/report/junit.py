"""Gate checks as JUnit XML: one suite per target, one case per check.

A failed check is a `<failure>`. An inconclusive check is an `<error type="inconclusive">`, on which CI servers stop,
except in a build that delivers the bundle all the same: there it is `<skipped>`. Skipped too are gates on rows that the
bundle does not carry with `--without-rows`, a recipe without gates, and a target that this machine cannot run. The
`timestamp` of a suite is the device's clock in UTC. Its `time` is that of the whole gate (with copying, for a remote
device), since several checks share one measurement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from xml.etree import ElementTree

from edgepack.report import gates
from edgepack.report.gates import NOT_MEASURED, CheckRow, GateRows
from edgepack.report.model import Report, Target
from edgepack.util.text import as_text, safe_lines
from edgepack_runtime.schema.receipt import GateReceipt
from edgepack_runtime.stats import intervals

# XML 1.0 cannot represent these characters, even escaped.
_NOT_XML: Final = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CLOCK: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})Z")
_MOST_SECONDS: Final = 1e9
_TYPES: Final = {intervals.FAIL: "gate failed", intervals.INCONCLUSIVE: "inconclusive"}


@dataclass(frozen=True)
class _Suite:
    """What a suite is about: the gates of a bundle on a target, or why there are none.

    `doubt` is the element of an inconclusive check. `seconds` of a device include copying.
    """

    name: str
    version: str
    target: str
    facts: Mapping[str, str | None]
    receipt: GateReceipt | None
    doubt: str = "error"
    seconds: float | None = None
    causes: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    skipped: str | None = None
    error: Mapping[str, str] | None = None


def render(report: Report) -> str:
    """JUnit XML of a build."""
    return _document(f"{report.name} {report.version}", [_suite(_of_build(report, one)) for one in report.targets])


def _of_build(report: Report, target: Target) -> _Suite:
    not_run = target.not_run_here
    return _Suite(
        report.name,
        report.version,
        target.target,
        {"bundle": target.bundle.file_name, "manifest_sha256": target.bundle.manifest_sha256},
        target.receipt,
        doubt="skipped" if target.delivered else "error",
        seconds=None if target.receipt is None else target.receipt.seconds,
        causes={one.gate: one.why for one in target.explained},
        warnings=report.warnings,
        skipped=f"not run here: {not_run.why}; on the device: {not_run.command}" if not_run else None,
    )


def render_gates(found: Mapping[str, Any]) -> str:
    """JUnit XML of a document of `gating.results.document`. A gate that could not be measured is an error."""
    suites = []
    for result in found["results"]:
        receipt, file = result["receipt"] and GateReceipt.parse(result["receipt"]), result["bundle"]
        about = receipt.bundle if receipt else None
        named = {key: (about and getattr(about, key)) or file[key] for key in ("name", "version", "target")}
        suite = _Suite(
            named["name"] or file["file_name"],
            named["version"] or "",
            f"{named['target'] or ''} on {result['target']}".removeprefix(" on "),
            {"bundle": file["file_name"], "manifest_sha256": about.manifest_sha256 if about else None},
            receipt,
            seconds=result["seconds"],
            error=result["error"],
        )
        suites.append(_suite(suite))
    return _document("edgepack gate", suites)


def _document(name: str, suites: Sequence[ElementTree.Element]) -> str:
    root = ElementTree.Element("testsuites", name=_text(name))
    root.extend(suites)
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    seconds = [float(suite.get("time", "0")) for suite in root if suite.get("time")]
    if seconds:
        root.set("time", f"{sum(seconds):.3f}")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(about: _Suite) -> ElementTree.Element:
    found = GateRows("", (), (), False) if about.receipt is None else gates.rows(about.receipt, about.causes)
    conditions = {} if about.receipt is None else about.receipt.conditions
    verdicts, waived = [check.verdict for check in found.checks], [one.waived for one in found.left_out]
    doubtful, not_run, error = (
        verdicts.count(intervals.INCONCLUSIVE),
        about.skipped is not None,
        about.error is not None,
    )
    suite = ElementTree.Element(
        "testsuite",
        name=_text(" ".join(f"gates of {about.name} {about.version} for {about.target}".split())),
        tests=str(len(verdicts) + len(waived) + not_run + error),
        failures=str(verdicts.count(intervals.FAIL)),
        errors=str(doubtful * (about.doubt == "error") + waived.count(False) + error),
        skipped=str(doubtful * (about.doubt == "skipped") + waived.count(True) + not_run),
    )
    for name, value in (("timestamp", _timestamp(about.receipt)), ("time", _seconds(about.seconds))):
        if value is not None:
            suite.set(name, value)
    properties = ElementTree.SubElement(suite, "properties")
    facts = {name: fact for name, fact in about.facts.items() if fact is not None}  # of what was not reached
    for name, value in {**facts, **conditions}.items():
        ElementTree.SubElement(properties, "property", name=_text(name), value=_text(as_text(value)))
    for warning in about.warnings:
        ElementTree.SubElement(properties, "property", name="warning", value=_text(warning))
    class_name = f"{about.name}.{about.target}"
    for check in found.checks:
        suite.append(_case(class_name, check, about.doubt))
    for one in found.left_out:
        case = ElementTree.SubElement(suite, "testcase", classname=_text(class_name), name=_text(one.gate))
        element = ElementTree.SubElement(case, "skipped" if one.waived else "error", message=_text(one.why))
        element.set("type", NOT_MEASURED)
    if about.skipped is not None:
        case = ElementTree.SubElement(suite, "testcase", classname=_text(class_name), name="gate")
        ElementTree.SubElement(case, "skipped", message=_text(about.skipped))
    if about.error is not None:
        case = ElementTree.SubElement(suite, "testcase", classname=_text(class_name), name="gate")
        element = ElementTree.SubElement(case, "error", type=NOT_MEASURED, message=_text(about.error["what"]))
        element.text = _text("\n".join(f"{name}: {about.error[name]}" for name in ("why", "fix") if about.error[name]))
    return suite


def _case(class_name: str, check: CheckRow, doubt: str) -> ElementTree.Element:
    """The case of a check; `doubt` is the element for an inconclusive one."""
    case = ElementTree.Element("testcase", classname=_text(class_name), name=_text(check.gate))
    message = f"{check.value}, interval {check.interval}, limit {check.limit}, n {check.n}"
    kind = _TYPES.get(check.verdict)
    if kind is not None:
        name = "failure" if check.verdict == intervals.FAIL else doubt
        element = ElementTree.SubElement(case, name, type=kind, message=_text(message))
        element.text = _text("\n".join(filter(None, (check.cause, check.detail))))
    else:
        ElementTree.SubElement(case, "system-out").text = _text(message)
    return case


def _timestamp(receipt: GateReceipt | None) -> str | None:
    """Start by the device's clock, without a zone, as in JUnit; None if unknown."""
    clock_utc = None if receipt is None else receipt.where.device_clock_utc
    value = _CLOCK.fullmatch(clock_utc or "")
    return value and value[1]


def _seconds(seconds: object) -> str | None:
    """Seconds of the whole gate; None if unknown."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < _MOST_SECONDS:
        return None
    return f"{seconds:.3f}"


def _text(text: str) -> str:
    return safe_lines(_NOT_XML.sub("?", text), "")
