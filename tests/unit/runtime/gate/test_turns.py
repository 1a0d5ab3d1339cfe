"""Latency against the active release, in turns."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.installing import silent
from tests.unit.runtime.tiny_model import write_release

from edgepack_runtime.bundle import golden
from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.gate import latency, runner, turns
from edgepack_runtime.gate.latency import Kind, TimedText
from edgepack_runtime.gate.turns import Turns
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.schema.gates import LatencyLimits, LengthLimits
from edgepack_runtime.schema.receipt import GateCheck

ROWS = [("很好", "good", "good")] * 90 + [("很差" * 4, "bad", "bad")] * 10
# What a test may do to the clock of the release that it compares with.
FASTER = "from edgepack_runtime.gate import turns; real = turns.timed_ms; turns.timed_ms = lambda *a: real(*a) / {by}"


def limits(**asked: Any) -> LatencyLimits:
    return LatencyLimits(**asked)


def measured(tmp_path: Path, extra: str = "", **config: Any) -> Turns:
    """A release beside an active one that runs `extra` first."""
    release, _ = write_release(tmp_path / "new", rows=ROWS)
    active, _ = write_release(tmp_path / "active", rows=ROWS, extra=extra, **config)
    predictor = Predictor(release / golden.MODEL_FOLDER, threads=1)
    return turns.measure(predictor, active, [row[0] for row in ROWS], limits(p50_ms=1, p95_ms=1), silent)


def check(verdict: str = "inconclusive", gate: str = "latency.p50_ms", value: float | None = 5.0) -> GateCheck:
    return GateCheck(gate, verdict, value, 4.0, 9.0, 4.5, "ms", 500, 0.98, "other programs used 1.50 of 2 cores")


def found(*ratios: float, times_ms: tuple[float, ...] = (), lengths: tuple[int, ...] = ()) -> Turns:
    """Kinds of texts, 100 of each: the active release takes `times_ms`, the new one so many times as long."""
    each, theirs = lengths or (2,) * len(ratios), times_ms or (1.0,) * len(ratios)
    items = [TimedText("好" * n, Kind(n + 2, True)) for n in each for _ in range(100)]
    theirs_ms = [ms * (1 + number / 1000) for ms in theirs for number in range(100)]
    ours_ms = [ms * ratio for ms, ratio in zip(theirs_ms, [ratio for ratio in ratios for _ in range(100)], strict=True)]
    return Turns("1.0.0-abc", items, ours_ms, theirs_ms)


@pytest.mark.parametrize(("by", "verdict"), [(3.0, "fail"), (1 / 3, "pass")])
def test_both_releases_answer_the_same_items(tmp_path: Path, by: float, verdict: str) -> None:
    one = measured(tmp_path, FASTER.format(by=by))
    assert len(one.ours_ms) == len(one.theirs_ms) == len(one.items) >= 130
    assert turns.judge(check(), one, limits(p50_ms=1)).verdict == verdict
    told = one.as_json()
    assert told["active"] == "active" and told["low"] <= told["ratio"] <= told["high"]


@pytest.mark.parametrize(
    ("extra", "config"),
    [
        ("raise SystemExit(3)", {}),
        ("print('no JSON', flush=True)", {}),
        ("import json; print(json.dumps([1]), flush=True)", {}),
        ("", {"task": "text-pair-classification"}),
        ("from edgepack_runtime.gate import turns; turns.timed_ms = lambda *a: sys.exit(9)", {}),
    ],
)
def test_a_release_that_does_not_answer_is_no_verdict(tmp_path: Path, extra: str, config: dict[str, Any]) -> None:
    with pytest.raises(StageFailedError, match="cannot be compared"):
        measured(tmp_path, extra, **config)


def test_only_a_check_on_latency_that_was_not_decided_is_decided_by_the_comparison() -> None:
    asked = limits(p50_ms=4.5, p95_ms=9)
    equal, slower, near = found(0.95, 1.05), found(1.3, 1.6), found(1.0, 1.2, 1.0, 1.2)
    assert [turns.judge(check(), one, asked).verdict for one in (equal, slower, near)] == [
        "pass", "fail", "inconclusive",
    ]  # fmt: skip
    judged = turns.judge(check(), equal, asked)
    assert "1.0.0-abc" in judged.detail and "other programs used" in judged.detail
    for decided in (
        check("fail"),
        check("pass"),
        check(gate="latency.sustained.max_slowdown_percent"),
        check(value=None),
    ):
        assert turns.judge(decided, slower, asked) == decided


def test_each_percentile_is_compared_with_itself_and_a_budget_has_its_own_texts() -> None:
    mostly_fast = found(*(1.0,) * 9, 1.5, times_ms=(1.0,) * 9 + (8.0,), lengths=(2,) * 9 + (50,))
    budgets = (LengthLimits(10, p50_ms=1), LengthLimits(60, p50_ms=1))
    asked = limits(p50_ms=1, p95_ms=1, by_length=budgets)
    names = ("latency.p50_ms", "latency.p95_ms", "latency.max_tokens_10.p50_ms", "latency.max_tokens_60.p50_ms")
    assert [turns.judge(check(gate=name), mostly_fast, asked).verdict for name in names] == [
        "pass", "fail", "pass", "fail",
    ]  # fmt: skip


def test_other_texts_that_become_slow_show_though_most_texts_do_not() -> None:
    """As of a cascade that answers fewer texts by its cheap model."""
    fewer_cheap = found(*(1.0,) * 8, 6.0, 1.0, times_ms=(1.0,) * 9 + (6.0,))
    asked = limits(p50_ms=1, p95_ms=9)
    assert turns.judge(check(), fewer_cheap, asked).verdict == "pass"
    most_cheap = found(*(1.0,) * 4, *(6.0,) * 6, times_ms=(1.0,) * 10)
    assert turns.judge(check(), most_cheap, asked).verdict == "fail"


def test_items_pass_through_unchanged(tmp_path: Path) -> None:
    for kind, item in (("text", "好\n店"), ("texts", ("好", "差")), ("json", {"a": [1]}), ("file", b"\x00\xff")):
        assert turns._decoded(json.loads(turns._encoded(item)), kind) == item
    release, _ = write_release(tmp_path / "release", rows=ROWS)
    output = io.StringIO()
    turns.answer(Predictor(release / golden.MODEL_FOLDER, threads=1), io.StringIO('"好"\n"差"\n'), output)
    first, *times = output.getvalue().splitlines()
    assert json.loads(first) == {"item": "text"}
    assert len(times) == 2 and all(float(ms) > 0 for ms in times)


@pytest.mark.parametrize(("extra", "verdict"), [(FASTER.format(by=3), "fail"), ("raise SystemExit(3)", "inconclusive")])
def test_a_gate_that_time_does_not_decide_is_decided_beside_the_active_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: str, verdict: str
) -> None:
    undecided = check()
    monkeypatch.setattr(latency, "checks", lambda *arguments: [undecided])
    release, manifest = write_release(tmp_path / "new", rows=ROWS, gates={"latency": {"p50_ms": 4.5}})
    active, _ = write_release(tmp_path / "active", rows=ROWS, extra=extra)
    receipt = runner.run(release, manifest, bundle_bytes=None, progress=silent, active=active)
    assert (receipt["verdict"], receipt["latency"]["turns"]["active"]) == (verdict, "active")
    assert ("error" in receipt["latency"]["turns"]) == (verdict == "inconclusive")
    alone = runner.run(release, manifest, bundle_bytes=None, progress=silent)
    assert (alone["verdict"], alone["latency"]["turns"]) == ("inconclusive", None)
