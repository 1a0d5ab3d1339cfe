"""Gate checks as JUnit XML, which CI servers draw: one suite a target, one case a check.

A check that failed is a `<failure>`. One that could not be decided is an `<error type="inconclusive">`: neither
passed nor failed, and a CI server stops on it as on a failure, which `<skipped>` would let through. A target that the
build machine cannot run is one case that was skipped: its device gates it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from xml.etree import ElementTree

from edgepack.report import NOTHING, limit, quantity, span

# XML 1.0 has no way to write these, escaped or not.
_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ELEMENTS: Final = {"fail": ("failure", "gate failed"), "inconclusive": ("error", "inconclusive")}


def render(report: Mapping[str, Any]) -> str:
    """JUnit XML of a report made by `edgepack.report.document.make`."""
    root = ElementTree.Element("testsuites", name=_text(f"{report['name']} {report['version']}"))
    for target in report["targets"]:
        root.append(_suite(report, target))
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(report: Mapping[str, Any], target: Mapping[str, Any]) -> ElementTree.Element:
    receipt, not_run = target["receipt"] or {}, target["not_run_here"]
    checks = receipt.get("checks", [])
    verdicts = [check["verdict"] for check in checks]
    suite = ElementTree.Element(
        "testsuite",
        name=_text(f"gates of {report['name']} {report['version']} for {target['target']}"),
        tests=str(len(checks) + (not_run is not None)),
        failures=str(verdicts.count("fail")),
        errors=str(verdicts.count("inconclusive")),
        skipped="0" if not_run is None else "1",
    )
    properties = ElementTree.SubElement(suite, "properties")
    facts = {"bundle": target["bundle"]["file_name"], "manifest_sha256": target["bundle"]["manifest_sha256"]}
    for name, value in {**facts, **(receipt.get("conditions") or {})}.items():
        ElementTree.SubElement(properties, "property", name=_text(name), value=_text(_plain(value)))
    for check in checks:
        suite.append(_case(f"{report['name']}.{target['target']}", check))
    if not_run is not None:
        case = ElementTree.SubElement(suite, "testcase", classname=f"{report['name']}.{target['target']}", name="gate")
        told = f"not run here: {not_run['why']}; on the device: {not_run['command']}"
        ElementTree.SubElement(case, "skipped", message=_text(told))
    return suite


def _case(class_name: str, check: Mapping[str, Any]) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=_text(class_name), name=_text(check["gate"]))
    value = quantity(check["value"], check["unit"])
    interval = span(check["low"], check["high"], check["unit"])
    measured = f"{value}, interval {interval}, limit {limit(check)}, n {check['n'] or NOTHING}"
    if check["verdict"] in _ELEMENTS:
        name, kind = _ELEMENTS[check["verdict"]]
        element = ElementTree.SubElement(case, name, type=kind, message=_text(measured))
        element.text = _text(check["detail"])
    else:
        ElementTree.SubElement(case, "system-out").text = _text(measured)
    return case


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(text: str) -> str:
    return _NOT_XML.sub("?", text)
