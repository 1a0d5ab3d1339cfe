"""The gates on other loads than one text after the other, and on energy; those that are not asked for take no time."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from edgepack_runtime import after_idle, bench, energy, open_loop, stats, sustained, timed_texts
from edgepack_runtime.gate_limits import Check, Limits, sampled
from edgepack_runtime.predictor import Predictor
from edgepack_runtime.texts import Item
from edgepack_runtime.timing import Timing
from edgepack_runtime.wording import counted

ENERGY_GATE = "energy.mj_per_text"
Say = Callable[[str], None]


class Loads(NamedTuple):
    """What was measured; None where it was not asked for."""

    open_loop: Optional[open_loop.Run] = None
    after_idle: Optional[after_idle.Firsts] = None
    sustained: Optional[sustained.Run] = None


def measure(
    predictor: Predictor, texts: Sequence[Item], limits: Limits, emulated_why: Optional[str], progress: Say
) -> Loads:
    """Measure what `limits` asks for; nothing on a machine that is emulated, where no time means anything.

    Raises:
        StageFailedError: the model cannot be run.
    """
    asked, found = limits.latency, Loads()
    if emulated_why is not None:
        return found
    drawn = timed_texts.shuffled(texts)
    if asked.open_loop is not None:
        found = found._replace(open_loop=open_loop.decisive(predictor, drawn, asked.open_loop, progress))
    if asked.after_idle is not None:
        idle_s = asked.after_idle.idle_s
        progress(f"after idle: {after_idle.RUNS} answers, each after {idle_s:g} s")
        found = found._replace(after_idle=after_idle.measure(predictor, drawn, idle_s))
    if asked.sustained is not None:
        progress(f"sustained: {asked.sustained.seconds:g} s")
        found = found._replace(sustained=sustained.measure(predictor, drawn, asked.sustained.seconds))
    return found


def summary(loads: Loads) -> Dict[str, Any]:
    """Their part of the receipt's `latency`; null where nothing was asked for."""
    return {
        "open_loop": loads.open_loop and open_loop.summary(loads.open_loop),
        "after_idle": loads.after_idle and after_idle.summary(loads.after_idle),
        "sustained": loads.sustained and sustained.summary(loads.sustained),
    }


def checks(loads: Loads, limits: Limits, emulated_why: Optional[str]) -> List[Check]:
    """The rows of the receipt that `limits` asks for."""
    asked, found = limits.latency, []
    if asked.open_loop is not None:
        if loads.open_loop is not None:
            found += open_loop.checks(loads.open_loop, asked.open_loop)
        else:
            limited = asked.open_loop.limits.asked()
            found += [_refused(f"latency.open_loop.{key}", limit, "ms", emulated_why) for key, _, limit in limited]
    if asked.after_idle is not None:
        firsts = loads.after_idle
        limit = asked.after_idle.ms
        refused = _refused(after_idle.GATE, limit, "ms", emulated_why)
        found.append(after_idle.check(firsts, asked.after_idle) if firsts else refused)
    if asked.sustained is not None:
        limit = asked.sustained.max_slowdown_percent
        refused = _refused(sustained.GATE, limit, "percent", emulated_why)
        found.append(sustained.check(loads.sustained, asked.sustained) if loads.sustained else refused)
    return found


def energy_mj_per_text(timing: Timing) -> Optional[float]:
    """Of all that was timed; None where this device does not tell."""
    spent = [spell.energy_mj for window in timing.windows for spell in window.spells]
    told = [mj for mj in spent if mj is not None]
    texts = sum(spell.texts for window in timing.windows for spell in window.spells)
    return sum(told) / texts if len(told) == len(spent) else None


def energy_checks(timing: Timing, limits: Limits, emulated_why: Optional[str]) -> List[Check]:
    """The row on energy, if one is asked for: the whole board's or processor's, whoever used it."""
    limit = limits.energy_mj_per_text
    if limit is None:
        return []
    value, meter = energy_mj_per_text(timing), energy.find()
    if emulated_why is not None:
        return [_refused(ENERGY_GATE, limit, "mJ", emulated_why)]
    if value is None or meter is None:
        detail = "this device reports no energy that this user may read"
        return [Check(ENERGY_GATE, stats.INCONCLUSIVE, None, None, None, limit, "mJ", 0, None, detail)]
    spells = [spell for window in timing.windows for spell in window.spells]
    each = [(spell.energy_mj, spell.texts) for spell in spells if spell.energy_mj is not None]
    interval = stats.ratio_interval(each, bench.CONFIDENCE)
    verdict = stats.verdict_at_most(interval, limit)
    detail = f"{meter.name}, with all that ran"
    if verdict != stats.PASS and not timing.contention.quiet:
        verdict = stats.INCONCLUSIVE
        detail += f"; {timing.contention.told()}: measure on an idle machine"
    elif verdict == stats.INCONCLUSIVE:
        detail += f"; {counted(len(each), 'quarter')} of a second, too few or too different to tell"
    return [
        sampled(
            ENERGY_GATE,
            verdict,
            interval,
            limit=limit,
            unit="mJ",
            n=len(each),
            confidence=bench.CONFIDENCE,
            detail=detail,
        )
    ]


def _refused(gate: str, limit: float, unit: str, emulated_why: Optional[str]) -> Check:
    detail = f"emulated ({emulated_why}): measure on the device itself"
    return Check(gate, stats.INCONCLUSIVE, None, None, None, limit, unit, 0, None, detail)
