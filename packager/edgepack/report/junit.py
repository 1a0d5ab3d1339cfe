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
from typing import Any, Final
from xml.etree import ElementTree

from edgepack.report import NOT_MEASURED, NOTHING, limit, measured, span
from edgepack.util.text import as_text, safe_lines

# XML 1.0 cannot represent these characters, even escaped.
_NOT_XML: Final = re.compile("[^\t\n\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CLOCK: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})Z")
_MOST_SECONDS: Final = 1e9
_TYPES: Final = {"fail": "gate failed", "inconclusive": "inconclusive"}


def render(report: Mapping[str, Any]) -> str:
    """JUnit XML of a document of `report.document.make`."""
    return _document(f"{report['name']} {report['version']}", [_suite(report, target) for target in report["targets"]])


def render_gates(found: Mapping[str, Any]) -> str:
    """JUnit XML of a document of `gating.results.document`. A gate that could not be measured is an error."""
    suites = []
    for result in found["results"]:
        receipt, file = result["receipt"], result["bundle"]
        about = (receipt or {}).get("bundle") or {}
        named = {key: about.get(key) or file[key] for key in ("name", "version", "target")}
        target = {
            "target": f"{named['target'] or ''} on {result['target']}".removeprefix(" on "),
            "bundle": {"file_name": file["file_name"], "manifest_sha256": about.get("manifest_sha256")},
            "receipt": receipt,
            "not_run_here": None,
            "seconds": result["seconds"],
            "error": result["error"],
        }
        suites.append(_suite({"name": named["name"] or file["file_name"], "version": named["version"] or ""}, target))
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


def _suite(report: Mapping[str, Any], target: Mapping[str, Any]) -> ElementTree.Element:
    receipt, not_run, error = target["receipt"] or {}, target["not_run_here"], target.get("error")
    checks = receipt.get("checks", [])
    verdicts = [check["verdict"] for check in checks]
    unmeasured = receipt.get("unmeasured", [])
    waived = [one["waived"] for one in unmeasured]
    doubt = "skipped" if target.get("delivered") else "error"
    doubtful = verdicts.count("inconclusive")
    suite = ElementTree.Element(
        "testsuite",
        name=_text(" ".join(f"gates of {report['name']} {report['version']} for {target['target']}".split())),
        tests=str(len(checks) + len(unmeasured) + (not_run is not None) + (error is not None)),
        failures=str(verdicts.count("fail")),
        errors=str(doubtful * (doubt == "error") + waived.count(False) + (error is not None)),
        skipped=str(doubtful * (doubt == "skipped") + waived.count(True) + (not_run is not None)),
    )
    seconds = target.get("seconds", receipt.get("seconds"))  # of a build there are those of the receipt alone
    for name, value in (("timestamp", _timestamp(receipt)), ("time", _seconds(seconds))):
        if value is not None:
            suite.set(name, value)
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"bundle": target["bundle"]["file_name"], "manifest_sha256": target["bundle"]["manifest_sha256"]}
    facts = {
        name: fact for name, fact in facts.items() if fact is not None
    }  # of what was not reached, not all is known
    for name, value in {**facts, **(receipt.get("conditions") or {})}.items():
        ElementTree.SubElement(properties, "property", name=_text(name), value=_text(as_text(value)))
    for warning in report.get("warnings", ()):
        ElementTree.SubElement(properties, "property", name="warning", value=_text(warning))
    class_name = f"{report['name']}.{target['target']}"
    explained = {one["gate"]: one["why"] for one in target.get("explained", ())}
    for check in checks:
        suite.append(_case(class_name, check, explained.get(check["gate"]), doubt))
    for one in unmeasured:
        case = ElementTree.SubElement(suite, "testcase", classname=_text(class_name), name=_text(one["gate"]))
        element = ElementTree.SubElement(case, "skipped" if one["waived"] else "error", message=_text(one["why"]))
        element.set("type", NOT_MEASURED)
    if not_run is not None:
        case = ElementTree.SubElement(suite, "testcase", classname=class_name, name="gate")
        value = f"not run here: {not_run['why']}; on the device: {not_run['command']}"
        ElementTree.SubElement(case, "skipped", message=_text(value))
    if error is not None:
        case = ElementTree.SubElement(suite, "testcase", classname=_text(class_name), name="gate")
        element = ElementTree.SubElement(case, "error", type="not measured", message=_text(error["what"]))
        element.text = _text("\n".join(f"{name}: {error[name]}" for name in ("why", "fix") if error[name]))
    return suite


def _case(class_name: str, check: Mapping[str, Any], explained: str | None, doubt: str) -> ElementTree.Element:
    """The case of a check; `doubt` is the element for an inconclusive one."""
    case = ElementTree.Element("testcase", classname=_text(class_name), name=_text(check["gate"]))
    interval = span(check["low"], check["high"], check["unit"])
    message = f"{measured(check)}, interval {interval}, limit {limit(check)}, n {check['n'] or NOTHING}"
    kind = _TYPES.get(check["verdict"])
    if kind is not None:
        name = "failure" if check["verdict"] == "fail" else doubt
        element = ElementTree.SubElement(case, name, type=kind, message=_text(message))
        element.text = _text("\n".join(filter(None, (explained, check["detail"]))))
    else:
        ElementTree.SubElement(case, "system-out").text = _text(message)
    return case


def _timestamp(receipt: Mapping[str, Any]) -> str | None:
    """Start by the device's clock, without a zone, as in JUnit; None if unknown."""
    value = _CLOCK.fullmatch(str((receipt.get("conditions") or {}).get("device_clock_utc")))
    return value and value[1]


def _seconds(seconds: object) -> str | None:
    """Seconds of the whole gate; None if unknown."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < _MOST_SECONDS:
        return None
    return f"{seconds:.3f}"


def _text(text: str) -> str:
    return safe_lines(_NOT_XML.sub("?", text), "")
