"""Gates as their readers see them: one model for the gates of a build and of the command `gate`, and ready figures.

The terminal, the page, Markdown and JUnit lay these out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from edgepack.messages import joined, message
from edgepack.report.model import Report, Target
from edgepack_runtime.schema.figures import NOTHING, quantity, span, telling_digits
from edgepack_runtime.schema.receipt import BundleFacts, GateCheck, GateReceipt
from edgepack_runtime.stats import intervals

NOT_MEASURED: Final = "not measured"
_OF_RESULTS: Final = {  # messages about results that did not pass
    intervals.FAIL: "results.failed", intervals.INCONCLUSIVE: "results.inconclusive",
    NOT_MEASURED: "results.not_measured",
}  # fmt: skip


@dataclass(frozen=True)
class CheckRow:
    """One check of a gate; its figures have units.

    Attributes:
        cause: the stage that lost the figure; "" if it is not known.
        is_measured: whether there is a value.
    """

    gate: str
    verdict: str
    value: str
    interval: str
    limit: str
    n: str
    detail: str
    cause: str
    is_measured: bool

    @property
    def reason(self) -> str:
        """Why it did not pass."""
        return "; ".join(filter(None, (self.cause, self.detail)))


@dataclass(frozen=True)
class LeftOut:
    """A gate that was not measured, with its verdict in words: `not measured, waived`."""

    gate: str
    verdict: str
    why: str
    waived: bool


@dataclass(frozen=True)
class GateRows:
    """The gates of one target. `verdict` is `no gates` if the recipe sets none."""

    verdict: str
    checks: tuple[CheckRow, ...]
    left_out: tuple[LeftOut, ...]
    is_accuracy_gated: bool

    @property
    def unmet(self) -> list[CheckRow]:
        """The checks that did not pass: failed ones, then inconclusive ones."""
        return [
            check
            for verdict in (intervals.FAIL, intervals.INCONCLUSIVE)
            for check in self.checks
            if check.verdict == verdict
        ]


def rows(receipt: GateReceipt, causes: Mapping[str, str] | None = None) -> GateRows:
    """The gates of a receipt. `causes` has the stage that lost a figure, by gate."""
    return GateRows(
        verdict=receipt.judged,
        checks=tuple(row(check, (causes or {}).get(check.gate, "")) for check in receipt.checks),
        left_out=tuple(
            LeftOut(one.gate, f"{NOT_MEASURED}{', waived' * one.waived}", one.why, one.waived)
            for one in receipt.unmeasured
        ),
        is_accuracy_gated=receipt.is_accuracy_gated,
    )


def row(check: GateCheck, cause: str = "") -> CheckRow:
    """The figures of a check, with as many digits as tell the value from the limit."""
    digits = telling_digits(check.value, check.limit, check.unit)
    return CheckRow(
        gate=check.gate,
        verdict=check.verdict,
        value=quantity(check.value, check.unit, digits),
        interval=span(check.low, check.high, check.unit),
        limit=check.bound(quantity(check.limit, check.unit, digits)),
        n=str(check.n or NOTHING),
        detail=check.detail,
        cause=cause,
        is_measured=check.value is not None,
    )


@dataclass(frozen=True)
class NotGated:
    """Why a target has no receipt. It is a fault, unless the gate is left to the target's own device."""

    what: str
    why: str
    fix: str
    is_fault: bool = True


@dataclass(frozen=True)
class TargetGates:
    """The gates of a bundle on a target: a receipt, or why there is none.

    Attributes:
        where: the target of a build, or the device that was gated.
        file_name: of the bundle; None for the installed release of a device.
        bundle: None where it could not be read.
        seconds: of the whole gate; for a device with copying and waiting.
        causes: the stage that lost a figure, by gate.
        is_delivered: an inconclusive gate does not keep the bundle from its users.
    """

    where: str
    verdict: str
    file_name: str | None
    bundle: BundleFacts | None
    receipt: GateReceipt | None = None
    not_gated: NotGated | None = None
    seconds: float | None = None
    causes: Mapping[str, str] = field(default_factory=dict)
    is_delivered: bool = False

    @property
    def rows(self) -> GateRows:
        """The figures of the receipt; none without one."""
        return GateRows("", (), (), False) if self.receipt is None else rows(self.receipt, self.causes)


@dataclass(frozen=True)
class Gates:
    """The gates of several bundles and targets, and their common verdict."""

    title: str
    verdict: str
    results: tuple[TargetGates, ...]
    warnings: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The verdict; with numbers if there are several: `fail (3 of 5 results passed; 1 failed, 1 not measured)`."""
        verdicts = Counter(result.verdict for result in self.results)
        verdict = self.verdict if self.verdict == NOT_MEASURED else message(f"verdict.{self.verdict}")
        if verdicts.total() < 2:
            return verdict
        others = [message(name, count=verdicts[one]) for one, name in _OF_RESULTS.items() if verdicts[one]]
        passed = message("results.passed", count=verdicts[intervals.PASS], many=verdicts.total())
        found = joined(passed, joined(*others, by="list.comma"))
        return message("results.summary", verdict=verdict, results=found)


def of_build(report: Report) -> Gates:
    """The gates of a build."""
    results = tuple(_of_target(report, target) for target in report.targets)
    return Gates(f"{report.name} {report.version}", report.verdict, results, report.warnings)


def _of_target(report: Report, target: Target) -> TargetGates:
    not_run = target.not_run_here
    return TargetGates(
        target.target,
        NOT_MEASURED if target.receipt is None else target.verdict,
        target.bundle.file_name,
        BundleFacts(report.name, report.version, target.target, manifest_sha256=target.bundle.manifest_sha256),
        target.receipt,
        None
        if not_run is None
        else NotGated("not gated on this machine", not_run.why, not_run.command, is_fault=False),
        seconds=None if target.receipt is None else target.receipt.seconds,
        causes={one.gate: one.why for one in target.explained},
        is_delivered=target.delivered,
    )
