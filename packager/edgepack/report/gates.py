"""The gates of one target as ready figures, which the terminal, the page, Markdown and JUnit lay out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from edgepack.util.text import counted
from edgepack_runtime.schema.figures import NOTHING, quantity, span, telling_digits
from edgepack_runtime.schema.receipt import GateCheck, GateReceipt
from edgepack_runtime.stats import intervals

NOT_MEASURED: Final = "not measured"
# Words for results that did not pass, by verdict.
_OF_RESULTS: Final = {intervals.FAIL: "failed", intervals.INCONCLUSIVE: "inconclusive", NOT_MEASURED: NOT_MEASURED}


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


def total(found: Mapping[str, Any]) -> str:
    """Summary of a document of `gating.results.document`; for one result its verdict.

    Example: `fail (3 of 5 results passed; 1 failed, 1 not measured)`.
    """
    verdicts = Counter(str(result["verdict"]) for result in found["results"])
    many = verdicts.total()
    if many < 2:
        return str(found["verdict"])
    others = [f"{verdicts[verdict]} {words}" for verdict, words in _OF_RESULTS.items() if verdicts[verdict]]
    passed = f"{verdicts['pass']} of {counted(many, 'result')} passed"
    return f"{found['verdict']} ({'; '.join(filter(None, (passed, ', '.join(others))))})"
