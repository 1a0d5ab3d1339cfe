"""Gate checks as JUnit XML: one suite per target, one case per check.

A failed check is a `<failure>`. An inconclusive check is an `<error type="inconclusive">`, on which CI servers stop,
except in a build that delivers the bundle all the same: there it is `<skipped>`. Skipped too are gates on rows that the
bundle does not carry with `--without-rows`, a recipe without gates, and a target that this machine cannot run. The
`timestamp` of a suite is the device's clock in UTC. Its `time` is that of the whole gate (with copying, for a remote
device), since several checks share one measurement.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree

from edgepack.report.gates import NOT_MEASURED, CheckRow, Gates, TargetGates
from edgepack.util.text import as_text, safe_lines
from edgepack_runtime.schema.receipt import BundleFacts, GateReceipt
from edgepack_runtime.stats import intervals

# XML 1.0 cannot represent these characters, even escaped.
_NOT_XML: Final = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CLOCK: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})Z")
_MOST_SECONDS: Final = 1e9
_TYPES: Final = {intervals.FAIL: "gate failed", intervals.INCONCLUSIVE: "inconclusive"}


def render(found: Gates) -> str:
    """JUnit XML of gates. A gate that could not be measured is an error."""
    root = ElementTree.Element("testsuites", name=_text(found.title))
    root.extend(_suite(result, found.warnings) for result in found.results)
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    seconds = [float(suite.get("time", "0")) for suite in root if suite.get("time")]
    if seconds:
        root.set("time", f"{sum(seconds):.3f}")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(result: TargetGates, warnings: tuple[str, ...]) -> ElementTree.Element:
    bundle = result.bundle or BundleFacts(result.file_name or "")
    target = bundle.target or result.where
    if target != result.where:
        target = f"{target} on {result.where}"
    suite = ElementTree.Element(
        "testsuite", name=_text(" ".join(f"gates of {bundle.name} {bundle.version or ''} for {target}".split()))
    )
    for key, value in (("timestamp", _timestamp(result.receipt)), ("time", _seconds(result.seconds))):
        if value is not None:
            suite.set(key, value)
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"bundle": result.file_name, "manifest_sha256": bundle.manifest_sha256}
    known = {key: fact for key, fact in facts.items() if fact is not None}  # of what was not reached
    conditions = {} if result.receipt is None else result.receipt.conditions
    for key, fact in [*{**known, **conditions}.items(), *(("warning", warning) for warning in warnings)]:
        ElementTree.SubElement(properties, "property", name=_text(key), value=_text(as_text(fact)))
    cases = [_case(check, "skipped" if result.is_delivered else "error") for check in result.rows.checks]
    cases += [_unmeasured(one.gate, one.why, is_fault=not one.waived) for one in result.rows.left_out]
    if (reason := result.not_gated) is not None:
        lines = [f"{key}: {words}" for key, words in (("why", reason.why), ("fix", reason.fix)) if words]
        cases.append(_unmeasured("gate", reason.what, "\n".join(lines), is_fault=reason.is_fault))
    for case in cases:
        case.set("classname", _text(f"{bundle.name}.{target}"))
        suite.append(case)
    suite.set("tests", str(len(cases)))
    for total, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(total, str(len(suite.findall(f"testcase/{element}"))))
    return suite


def _unmeasured(name: str, message: str, text: str = "", *, is_fault: bool) -> ElementTree.Element:
    case = ElementTree.Element("testcase", name=_text(name))
    element = ElementTree.SubElement(
        case, "error" if is_fault else "skipped", type=NOT_MEASURED, message=_text(message)
    )
    element.text = _text(text) or None
    return case


def _case(check: CheckRow, doubt: str) -> ElementTree.Element:
    """The case of a check; `doubt` is the element for an inconclusive one."""
    case = ElementTree.Element("testcase", name=_text(check.gate))
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
