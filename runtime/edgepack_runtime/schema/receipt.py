"""Receipts: what a gate measured and decided, and what is read of the receipt of any verb.

A receipt is the record of a device, and may be of another version: `parse` ignores keys that it does not know. Bounds
keep figures out that cannot be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any, Dict, Final, Iterator, List, Literal, Mapping, Optional, Tuple

from edgepack_runtime.errors import ExitCode
from edgepack_runtime.messages import joined, message
from edgepack_runtime.schema import fields, figures
from edgepack_runtime.schema.conditions import Conditions
from edgepack_runtime.schema.fields import Document, Problem, field
from edgepack_runtime.schema.gates import ABOVE_MAJORITY, DELIVER, REFUSE, Limit, limit_named
from edgepack_runtime.stats.intervals import FAIL, INCONCLUSIVE, PASS, Interval, Verdict
from edgepack_runtime.stats.metrics import metric_of

ACCURACY_NOT_GATED = message("gate.accuracy_not_gated")
NO_GATES = message("gate.no_gates")  # reason in receipts of releases without limits
UNGATED: Final = "no gates"  # shown instead of a verdict if the recipe sets no gates
FORMAT = 1
EXIT_CODES: Mapping[Verdict, ExitCode] = {
    PASS: ExitCode.OK,
    FAIL: ExitCode.GATE_FAILED,
    INCONCLUSIVE: ExitCode.GATE_INCONCLUSIVE,
}
VERDICTS: Mapping[int, Verdict] = {code: verdict for verdict, code in EXIT_CODES.items()}  # by the exit code of a gate
_VERDICT: Mapping[str, Any] = {"pattern": f"^({PASS}|{FAIL}|{INCONCLUSIVE})$"}
_NAME: Mapping[str, Any] = {"pattern": ".{0,200}"}  # of a gate or unit: reports repeat it
_MOST = 1e12
_FIGURE: Mapping[str, Any] = {"ge": -_MOST, "le": _MOST}
_MS: Mapping[str, Any] = {"ge": 0, "le": 1e7}
_MOST_ROWS = 10**12
_MOST_ITEMS = 1000


@dataclasses.dataclass(frozen=True)
class GateCheck:
    """One gate: a measured value with its interval, limit and verdict.

    `low`, `high` and `confidence` are None for a value read once (a size). `high` alone is None if the samples are too
    few to bound the value from above. `detail` holds what was measured and why it did not pass, without repeating the
    other fields.
    """

    gate: str = field(**_NAME)
    verdict: str = field(**_VERDICT)
    value: Optional[float] = field(**_FIGURE)
    low: Optional[float] = field(**_FIGURE)
    high: Optional[float] = field(**_FIGURE)
    limit: float = field(**_FIGURE)
    unit: str = field(**_NAME)
    n: Optional[int] = field(ge=0, le=_MOST_ROWS)
    confidence: Optional[float] = None
    detail: str = ""

    @classmethod
    def sampled(
        cls, of: Limit, verdict: str, interval: Interval, *, limit: float, n: int, confidence: float, detail: str,
        unit: Optional[str] = None,
    ) -> GateCheck:  # fmt: skip
        """Check of a value that is estimated from `n` samples. `unit` is that of a metric of errors."""
        value, low, high = (round(number, 6) if math.isfinite(number) else None for number in interval)
        unit = of.unit if unit is None else unit
        return cls(of.gate, verdict, value, low, high, limit, unit, n, confidence, detail)

    @classmethod
    def read_once(cls, of: Limit, value: float, *, limit: float, detail: str) -> GateCheck:
        """Check of a value that is read once, without an interval, and may be at most `limit`."""
        verdict = FAIL if value > limit else PASS
        return cls(of.gate, verdict, round(value, 6), None, None, limit, of.unit, 1, None, detail)

    @classmethod
    def unmeasured(cls, of: Limit, limit: float, why: str) -> GateCheck:
        """Check of a limit whose figure cannot be measured here."""
        return cls(of.gate, INCONCLUSIVE, None, None, None, limit, of.unit, 0, None, why)

    def bound(self, figure: str) -> str:
        """`figure`, which is the limit, with its direction: `<= 40 ms`. Of a gate of a newer device it is not known."""
        with contextlib.suppress(KeyError):
            sign = figures.direction(minimum=limit_named(self.gate).minimum)
            return message("span.bound", sign=sign, figure=figure)
        return figure

    @property
    def missed(self) -> str:
        """One line about a check that did not pass: value, limit and reason."""
        measured = figures.interval(self.low, self.high, self.unit)
        if measured == figures.NOTHING:
            measured = figures.shown(self.value, self.unit)
        why = self.detail or message(f"verdict.{self.verdict}")
        if measured == figures.NOTHING:
            return joined(self.gate, why, by="list.colon")
        limit = self.bound(figures.shown(self.limit, self.unit))
        return message("gate.missed", gate=self.gate, value=measured, limit=limit, why=why)


@dataclasses.dataclass(frozen=True)
class Unmeasured:
    """A gate without its rows, which the bundle does not carry. `waived`: the other gates alone decide."""

    gate: str = field(**_NAME)
    why: str = field()
    waived: bool = field()


@dataclasses.dataclass(frozen=True)
class BundleFacts:
    """The release of a receipt. `release_id` is None where there was none to roll back to or to remove."""

    name: str
    version: Optional[str] = field(default=None, optional=True)
    target: Optional[str] = field(default=None, optional=True)
    release_id: Optional[str] = field(default=None)
    manifest_sha256: Optional[str] = field(default=None, optional=True)
    sequence: Optional[int] = field(default=None, optional=True)


@dataclasses.dataclass(frozen=True)
class Score(Document):
    """A metric with its interval on `n` labelled rows.

    `distinct_texts` is less than `n` if texts, or pairs of texts, repeat. `positive` is the positive label of `f1`.
    """

    metric: str
    value: float = field(**_FIGURE)
    low: Optional[float] = field(default=None, optional=True, **_FIGURE)
    high: Optional[float] = field(default=None, optional=True, **_FIGURE)
    n: int = field(default=1, ge=1, le=_MOST_ROWS)
    distinct_texts: Optional[int] = field(default=None, optional=True)
    confidence: Optional[float] = field(default=None, optional=True)
    positive: Optional[str] = field(default=None, optional=True)

    @property
    def unit(self) -> str:
        """The unit of its figures."""
        return metric_of(self.metric).unit

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        if self.unit == "fraction" and self.value is not None and not 0 <= self.value <= 1:
            yield Problem(("value",), f"is {self.value:g}")


@dataclasses.dataclass(frozen=True)
class Contention:
    """CPU use of other programs during a measurement, as `device.interference` has it."""

    wall_ms: Optional[float] = None
    own_cpu_ms: Optional[float] = None
    cores: Optional[int] = None
    others_ms: Optional[float] = None
    stolen_ms: Optional[float] = None
    others_cores: Optional[float] = None
    disturbed: Optional[bool] = None


@dataclasses.dataclass(frozen=True)
class GateLatency:
    """Latency from text to label, batch 1: percentiles in ms, and those of its parts. None: too few samples."""

    p50_ms: float = field(**_MS)
    p95_ms: Optional[float] = field(**_MS)
    threads: int = field(ge=1, le=4096)
    n: Optional[int] = None
    mean_ms: Optional[float] = field(default=None, **_MS)
    p99_ms: Optional[float] = field(default=None, **_MS)
    tokenize_p50_ms: Optional[float] = None
    run_p50_ms: Optional[float] = None
    post_p50_ms: Optional[float] = None
    distribution: Mapping[str, float] = field(default={})
    stable: Optional[bool] = None
    window_p50_ms: Tuple[float, ...] = ()
    processes: Optional[int] = None
    contention: Optional[Contention] = None
    sustained: Optional[Mapping[str, Any]] = None
    turns: Optional[Mapping[str, Any]] = None


@dataclasses.dataclass(frozen=True)
class GateReceipt:
    """The receipt of a gate.

    Attributes:
        inconclusive: the recipe's policy for a release in doubt.
        accuracy: on the golden rows; None without them.
        answered: number of rows that the linear model answered alone, and that the encoder answered.
        promised: the score of the same file on the same rows during the build.
        classes: scores of classes (`gate.accuracy.classes`).
        seconds: of the whole gate.
    """

    verdict: str = field(**_VERDICT)
    checks: Tuple[GateCheck, ...] = field(max_length=_MOST_ITEMS)
    bundle: Optional[BundleFacts] = None
    inconclusive: Literal["deliver", "refuse"] = DELIVER
    unmeasured: Tuple[Unmeasured, ...] = field(default=(), max_length=_MOST_ITEMS)
    accuracy: Optional[Score] = None
    answered: Optional[Mapping[str, int]] = None
    promised: Optional[Score] = None
    classes: Optional[Mapping[str, Any]] = None
    latency: Optional[GateLatency] = None
    tuning: Mapping[str, Any] = field(default={})
    conditions: Mapping[str, Any] = field(default={})  # as the device wrote them
    seconds: Optional[float] = None
    receipt: int = FORMAT
    verb: str = "gate"

    @classmethod
    def parse(cls, document: Any) -> GateReceipt:
        """Read a receipt.

        Raises:
            ValueError: a part is missing or invalid.
        """
        return fields.parse(cls, document)

    def to_json(self) -> Dict[str, Any]:
        """The receipt in JSON types."""
        return fields.document(self)

    @property
    def where(self) -> Conditions:
        """What is known of the conditions."""
        return Conditions.of(self.conditions)

    @property
    def judged(self) -> str:
        """The verdict; `no gates` if the recipe sets none."""
        left_out = [one.gate for one in self.unmeasured]
        return UNGATED if self.verdict == PASS and not self.checks and left_out in ([], ["gates"]) else self.verdict

    @property
    def is_accuracy_gated(self) -> bool:
        """Whether the recipe sets a limit on accuracy, measured or not."""
        gates = [*(check.gate for check in self.checks), *(one.gate for one in self.unmeasured)]
        return any(gate.startswith("accuracy.") and gate != ABOVE_MAJORITY for gate in gates)

    @property
    def not_shown(self) -> List[str]:
        """A line for each check that did not pass, and each gate that was not measured."""
        lines = [check.missed for check in self.checks if check.verdict != PASS]
        return lines + [message("say.not_measured", gate=one.gate, why=one.why) for one in self.unmeasured]

    def refusal(self, *, refuse_doubt: Optional[bool] = None) -> Optional[str]:
        """The verdict that keeps a release from going on; None if it goes on.

        A gate refuses what is shown to be bad. Doubt is written down, and refuses only by the policy of the recipe.
        One floor must be shown, whatever the policy: better than the most frequent answer.

        Args:
            refuse_doubt: overrides the policy.
        """
        if self.verdict == FAIL:
            return FAIL
        if any(check.gate == ABOVE_MAJORITY and check.verdict != PASS for check in self.checks):
            return INCONCLUSIVE
        if refuse_doubt is None:
            refuse_doubt = self.inconclusive == REFUSE
        return INCONCLUSIVE if refuse_doubt and self.verdict == INCONCLUSIVE else None


@dataclasses.dataclass(frozen=True)
class Receipt:
    """What is read of the receipt of any verb; that of the verb `gate` is its own `gate`.

    Attributes:
        previous, serving: the active release before the verb, and after it.
        device_clock_unix_s: for the reader only: device clocks are often wrong.
        number: of receipts that a device numbered itself.
    """

    verb: str
    verdict: Optional[str] = None
    exit_code: Any = 0
    error: Optional[str] = None
    previous: Any = None
    serving: Optional[str] = None
    interpreter: Any = None
    device_clock_unix_s: Any = None
    steps: Any = ()
    notes: Tuple[str, ...] = field(default=(), max_length=_MOST_ITEMS)
    bundle: Optional[BundleFacts] = field(default=None, optional=True)
    gate: Optional[GateReceipt] = field(default=None, optional=True)
    number: Optional[int] = field(default=None, optional=True)
    receipt: Any = FORMAT

    @classmethod
    def parse(cls, document: Any) -> Receipt:
        """Read a receipt.

        Raises:
            ValueError: a part is missing or invalid.
        """
        found = fields.parse(cls, document)
        return dataclasses.replace(found, gate=GateReceipt.parse(document)) if found.verb == "gate" else found
