"""The first answer after a while without work: clocks have gone down, and caches belong to others."""

from __future__ import annotations

import time
from typing import Any, Dict, List, NamedTuple, Sequence

from edgepack_runtime import bench, contention, stats
from edgepack_runtime.contention import Contention
from edgepack_runtime.gate_limits import Check, sampled
from edgepack_runtime.latency_limits import AfterIdle
from edgepack_runtime.predictor import Predictor
from edgepack_runtime.texts import Item

# Fewest samples whose smallest and largest bound the median at 99 % on each side: 2^-7 < 1 %.
RUNS = 7
GATE = "latency.after_idle.ms"


class Firsts(NamedTuple):
    """First answers in ms, each after `idle_s` seconds without work, and what others did in all of that time."""

    idle_s: float
    times_ms: List[float]
    contention: Contention


def measure(predictor: Predictor, texts: Sequence[Item], idle_s: float) -> Firsts:
    """Wait and ask for the text of middle length among `texts`, seven times."""
    item = middle(predictor, texts)
    predictor.predict(item)
    times, beside = [], []
    for _ in range(RUNS):
        before = contention.read()
        time.sleep(idle_s)
        times.append(predictor.timed_predict(item)[1].total_ms)
        beside.append(contention.between(before, contention.read()))
    return Firsts(idle_s, times, contention.together(beside))


def middle(predictor: Predictor, texts: Sequence[Item]) -> Item:
    """The one of middle length, in tokens."""
    ordered = sorted(texts, key=predictor.tokens)
    return ordered[len(ordered) // 2]


def summary(firsts: Firsts) -> Dict[str, Any]:
    """For a receipt."""
    return {
        "idle_s": firsts.idle_s,
        "times_ms": [round(ms, 4) for ms in firsts.times_ms],
        "contention": firsts.contention.as_json(),
    }


def check(firsts: Firsts, asked: AfterIdle) -> Check:
    """The median, bounded by the smallest and the largest. One answer is shorter than what counters can tell apart, so
    nothing fails unless hardly anybody else was there; and what these can have cost is taken off the smallest. Nothing
    passes either: others keep clocks up and cores awake, and the machine is not the idle one that is meant.
    """
    interval = stats.percentile_interval(firsts.times_ms, 0.5, bench.CONFIDENCE)
    beside = firsts.contention
    interval = interval._replace(low=interval.low * (1 - beside.lost_ms / beside.wall_ms))
    verdict = stats.verdict_at_most(interval, asked.ms)
    detail = f"median of the first answers after {firsts.idle_s:g} s without work"
    if not firsts.contention.quiet:
        verdict = stats.INCONCLUSIVE
        detail += f"; {firsts.contention.told()}: measure on an idle machine"
    elif verdict == stats.INCONCLUSIVE:
        detail += "; they lie on both sides of the limit"
    return sampled(
        GATE,
        verdict,
        interval,
        limit=asked.ms,
        unit="ms",
        n=len(firsts.times_ms),
        confidence=bench.CONFIDENCE,
        detail=detail,
    )
