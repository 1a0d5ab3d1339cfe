"""What a receipt says to people, and what it decides."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edgepack_runtime.schema.gates import limit_named
from edgepack_runtime.schema.receipt import GateCheck, GateReceipt, Receipt, Unmeasured
from edgepack_runtime.stats.intervals import FAIL, Interval

CHECK: dict[str, Any] = {
    "gate": "latency.p95_ms", "verdict": "pass", "value": 5.0, "low": 4, "high": None, "limit": 10, "unit": "ms",
    "n": 130, "confidence": 0.98, "detail": "batch 1",
}  # fmt: skip
GATE: dict[str, Any] = {
    "receipt": 1, "verb": "gate", "verdict": "pass", "inconclusive": "deliver", "checks": [CHECK], "unmeasured": [],
    "bundle": {"name": "hotel", "release_id": "1.0.0-000000000001"},
    "accuracy": {"metric": "accuracy", "value": 0.9, "n": 200},
    "latency": {"p50_ms": 1.0, "p95_ms": 2.0, "threads": 1}, "conditions": {"cpu_model": "x"},
}  # fmt: skip


def check(low: float, high: float, unit: str, gate: str = "latency.p95_ms", verdict: str = FAIL) -> GateCheck:
    figures = Interval((low + high) / 2, low, high)
    told = {"limit": 40, "n": 9, "confidence": 0.9, "detail": "texts of 1 row", "unit": unit}
    return GateCheck.sampled(limit_named(gate), verdict, figures, **told)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "unit", "gate", "message"),
    [
        (50.0, 60.25, "ms", "latency.p95_ms", "latency.p95_ms: 50 to 60.25 ms, limit <= 40 ms; texts of 1 row"),
        (50.0, math.inf, "percent", "latency.p95_ms", "latency.p95_ms: 50 % or more, limit <= 40 %; texts of 1 row"),
        (0.1, 0.2, "fraction", "accuracy.min", "accuracy.min: 10 to 20 %, limit >= 4000 %; texts of 1 row"),
    ],
)
def test_what_was_missed_stands_alone(low: float, high: float, unit: str, gate: str, message: str) -> None:
    assert check(low, high, unit, gate).missed == message


def test_what_was_not_sampled_or_not_measured_is_told_as_far_as_it_goes() -> None:
    size = GateCheck.read_once(limit_named("size.model_mib"), 7.0, limit=5.0, detail="model.onnx")
    assert (size.verdict, size.missed) == ("fail", "size.model_mib: 7 MiB, limit <= 5 MiB; model.onnx")
    unknown = GateCheck.unmeasured(limit_named("size.bundle_mib"), 5.0, "unknown")
    assert unknown.missed == "size.bundle_mib: unknown"


def test_the_direction_of_a_gate_that_is_not_declared_here_is_not_made_up() -> None:
    """It may be of a newer device."""
    newer = GateReceipt.parse({**GATE, "checks": [{**CHECK, "gate": "energy.joules", "unit": "J"}]}).checks[0]
    assert (newer.bound("5 J"), GateReceipt.parse(GATE).checks[0].bound("5 ms")) == ("5 J", "<= 5 ms")


def test_names_of_gates_and_units_are_short() -> None:
    for key in ("gate", "unit"):
        assert GateReceipt.parse({**GATE, "checks": [{**CHECK, key: "x" * 200}]})
        with pytest.raises(ValueError, match=key):
            GateReceipt.parse({**GATE, "checks": [{**CHECK, key: "x" * 201}]})
    with pytest.raises(ValueError, match="gate"):
        GateReceipt.parse({**GATE, "unmeasured": [{"gate": "x" * 201, "why": "", "waived": True}]})


@pytest.mark.parametrize(
    ("gate", "verdict", "policy", "refuse_doubt", "refused"),
    [
        ("accuracy.min", "pass", "refuse", True, None),
        ("accuracy.min", "fail", "deliver", False, "fail"),
        ("accuracy.min", "inconclusive", "deliver", None, None),
        ("accuracy.min", "inconclusive", "refuse", None, "inconclusive"),
        ("accuracy.min", "inconclusive", "deliver", True, "inconclusive"),
        ("accuracy.min", "inconclusive", "refuse", False, None),
        ("accuracy.above_majority", "inconclusive", "deliver", False, "inconclusive"),
    ],
)
def test_a_gate_refuses_what_is_bad_and_doubt_by_policy_but_one_floor_must_be_shown(
    gate: str, verdict: str, policy: Any, refuse_doubt: bool | None, refused: str | None
) -> None:
    receipt = GateReceipt(verdict, (check(1, 2, "ms", gate, verdict),), inconclusive=policy)
    assert receipt.refusal(refuse_doubt=refuse_doubt) == refused


def test_what_was_not_shown_has_a_line_each() -> None:
    checks = (check(1, 2, "ms", verdict="pass"), check(1, 2, "ms"))
    receipt = GateReceipt(FAIL, checks, unmeasured=(Unmeasured("accuracy.min", "the rows are at home", True),))
    assert receipt.not_shown == [
        "latency.p95_ms: 1 to 2 ms, limit <= 40 ms; texts of 1 row",
        "accuracy.min: not measured: the rows are at home",
    ]


@pytest.mark.parametrize(
    ("verdict", "unmeasured", "judged"),
    [
        ("pass", (), "no gates"),
        ("pass", (Unmeasured("gates", "none", True),), "no gates"),
        ("pass", (Unmeasured("accuracy.min", "no rows", True),), "pass"),
        ("inconclusive", (Unmeasured("gates", "none", False),), "inconclusive"),
    ],
)
def test_a_recipe_without_gates_passes_nothing(verdict: str, unmeasured: tuple[Unmeasured, ...], judged: str) -> None:
    assert GateReceipt(verdict, (), unmeasured=unmeasured).judged == judged


@pytest.mark.parametrize(
    ("gates", "gated"),
    [(["latency.p95_ms"], False), (["accuracy.above_majority"], False), (["accuracy.per_class.f1"], True)],
)
def test_accuracy_is_gated_by_a_limit_of_the_recipe(gates: list[str], gated: bool) -> None:
    assert GateReceipt("pass", tuple(check(1, 2, "ms", gate) for gate in gates)).is_accuracy_gated is gated
    assert (
        GateReceipt("pass", (), unmeasured=tuple(Unmeasured(gate, "", True) for gate in gates)).is_accuracy_gated
        is gated
    )


def test_a_receipt_is_read_and_written() -> None:
    found = GateReceipt.parse({**GATE, "newer": [1]})
    written = found.to_json()
    assert GateReceipt.parse(written) == found
    assert {key: written[key] for key in ("checks", "bundle", "accuracy", "verdict")} == {
        key: GATE[key] for key in ("checks", "bundle", "accuracy", "verdict")
    }
    assert written["latency"]["p99_ms"] is None and "positive" not in written["accuracy"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"verdict": "fine"}, "verdict"),
        ({"checks": "x"}, "checks"),
        ({"checks": [{**CHECK, "limit": None}]}, r"checks\[0\]\.limit"),
        ({"checks": [{**CHECK, "verdict": "good"}]}, r"checks\[0\]\.verdict"),
        ({"checks": [{**CHECK, "value": 1e300}]}, r"checks\[0\]\.value"),
        ({"checks": [{key: CHECK[key] for key in CHECK if key != "low"}]}, r"checks\[0\]\.low"),
        ({"checks": [CHECK] * 1001}, "checks"),
        ({"accuracy": {"metric": "accuracy", "value": 1.1}}, r"accuracy\.value"),
        ({"latency": {"p50_ms": -1, "p95_ms": 2.0, "threads": 1}}, r"latency\.p50_ms"),
        ({"bundle": {}}, r"bundle\.name"),
    ],
)
def test_a_receipt_with_an_invalid_part_is_none(change: dict[str, Any], path: str) -> None:
    with pytest.raises(ValueError, match=f"^`{path}` "):
        GateReceipt.parse({**GATE, **change})


def test_the_receipt_of_any_verb_has_its_gate() -> None:
    assert Receipt.parse(GATE).gate == GateReceipt.parse(GATE)
    installed = Receipt.parse({"verb": "install", "verdict": "installed", "gate": GATE, "number": 3, "steps": []})
    assert (installed.verdict, installed.number, installed.gate) == ("installed", 3, GateReceipt.parse(GATE))
    assert Receipt.parse({"verb": "trust"}).gate is None
    with pytest.raises(ValueError, match="checks"):
        Receipt.parse({"verb": "gate", "verdict": "pass"})
