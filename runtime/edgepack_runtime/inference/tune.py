"""Tuning: finds the fastest engine settings on this device: graph rewrites, number of threads, spinning.

Greedy search: each step changes one setting of the best tuning so far, and both are timed in turns on the same texts.
A change is kept only if the median ratio of the rounds shows the gain that the step requires, and its interval
excludes no gain: a second thread takes a core from other programs, which a few percent do not justify.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from edgepack_runtime.bundle import golden, handler_examples
from edgepack_runtime.bundle.model_config import CUDA, EngineConfig
from edgepack_runtime.device import conditions, tuning
from edgepack_runtime.device.cores import usable_cores
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.errors import StageFailedError, printed
from edgepack_runtime.inference import bench, selftest
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.schema.conditions import Conditions
from edgepack_runtime.schema.fields import to_json
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.progress import Log, Pace
from edgepack_runtime.util.texts import Item, evenly

ROUNDS = 9  # minimum and maximum of 7 bound the median at 99 % on each side; two more allow for an outlier
_MOST_TEXTS, _LEAST_TEXTS = 32, 2  # of slow items few, so that an install does not take minutes longer
_PROBED = 5
_DUEL_BUDGET_MS = 2000.0
_GAIN_OF_REWRITES = 0.03
_GAIN_OF_DOUBLING = 0.15  # of the time, for each doubling of the threads
_GAIN_OF_SPINNING = 0.10
_SLOW_REWRITE = "SkipLayerNormFusion"  # this rewrite was measured to cost time on CPUs
Duel = Callable[[Tuning, Tuning], intervals.Interval]


class Step(NamedTuple):
    """One change to try on the best tuning so far, and the fraction of the time that it must save."""

    what: str
    change: Callable[[Tuning], Tuning]
    least_gain: float


class Trial(NamedTuple):
    """Result of a step: the ratio of its time to the previous best, with the ends of the interval."""

    what: str
    ratio: float
    low: float
    high: float
    kept: bool
    why: str

    def as_json(self) -> Dict[str, Any]:
        """A plain JSON object."""
        return dict(self._asdict())


def run(release: Path, *, most_threads: int, progress: Log) -> Dict[str, Any]:
    """Find the fastest settings of an unpacked release, on its golden rows.

    Args:
        most_threads: maximum number of threads; the number of usable cores is a second limit.

    Returns:
        `{"tune": 1, "tuning": {...}, "measured": {...}}`: the fields of `Tuning`; the trials and the conditions.

    Raises:
        BundleInvalidError: a file of the release is missing or invalid.
        EnvironmentUnfitError: the model's execution provider is not active.
        StageFailedError: the model cannot be run.
    """
    arena = _Arena(release, progress)
    config = arena.predictor(Tuning()).config
    why_emulated = conditions.collect(threads=1, engine="", providers=()).emulated_why
    most = min(most_threads, usable_cores())
    trials: List[Trial] = []
    best = Tuning()
    if why_emulated is None and config.needs_encoder:
        best, trials = walk(
            best, steps(config.engine, most, rewrites=config.handler is None), arena.duel, arena.objection, progress
        )
    where = conditions.collect(threads=best.threads, engine=arena.engine, providers=arena.providers)
    return {
        "tune": 1,
        "tuning": dataclasses.asdict(best),
        "measured": {
            "trials": [trial.as_json() for trial in trials],
            "most_threads": most,
            "rounds": ROUNDS,
            "texts": len(arena.texts),
            "conditions": to_json(where),
        },
    }


def steps(config: EngineConfig, most_threads: int, *, rewrites: bool = True) -> List[Step]:
    """The steps in their order; each one is measured with the accepted changes of the earlier ones.

    Args:
        rewrites: whether to try a rewrite that only encoders of texts have. Comparisons of slow items take minutes.
    """
    if config.provider == CUDA:
        return []  # a captured graph has no such settings
    found = []
    if rewrites:
        other = tuple(name for name in config.disabled_optimizers if name != _SLOW_REWRITE)
        if other == config.disabled_optimizers:
            other = (*other, _SLOW_REWRITE)
        verb = "without" if _SLOW_REWRITE in other else "with"
        found.append(Step(f"{verb} {_SLOW_REWRITE}", _change(disabled_optimizers=other), _GAIN_OF_REWRITES))
    counts = sorted({*(2**power for power in range(1, 9) if 2**power < most_threads), most_threads} - {1})
    found += [Step(f"{count} threads", _change(threads=count), _GAIN_OF_DOUBLING) for count in counts]
    if counts:
        found.append(Step("spinning", _change(spinning=True), _GAIN_OF_SPINNING))
    return found


def _change(**fields: Any) -> Callable[[Tuning], Tuning]:
    return lambda tuning: dataclasses.replace(tuning, **fields)


def walk(
    start: Tuning,
    steps: Sequence[Step],
    duel: Duel,
    objection: Callable[[Tuning], Optional[str]],
    progress: Log,
) -> Tuple[Tuning, List[Trial]]:
    """The best tuning, and the result of each step.

    Args:
        duel: the ratio of the second tuning's time to the first one's, with its interval.
        objection: reason why a tuning must not be used; None if it may.
    """
    best, trials = start, []
    for step in steps:
        found = step.change(best)
        if found.spinning and found.threads == 1:
            continue  # one thread never waits for another
        interval = duel(best, found)
        needed = _needed(step, best, found)
        kept = interval.value <= 1 - needed and interval.high < 1
        why = f"it has to save {needed:.0%}"
        if kept:
            against = objection(found)
            kept, why = against is None, against or why
        ratio, low, high = (round(value, 4) for value in interval)
        trials.append(Trial(step.what, ratio, low, high, kept, why))
        progress(f"{step.what}: {interval.value:.2f} x the time of the best so far: {'kept' if kept else 'not used'}")
        best = found if kept else best
    return best, trials


def _needed(step: Step, best: Tuning, found: Tuning) -> float:
    """The share of the time that `found` must save; for threads, per doubling."""
    doublings = math.log2(found.threads / best.threads) or 1.0
    return 1.0 - math.pow(1.0 - step.least_gain, doublings)


class _Arena:
    """The release's model, with at most two open sessions, and the texts for timing."""

    def __init__(self, release: Path, progress: Log) -> None:
        self._release, self._progress = release, progress
        self._open: Dict[Tuning, Predictor] = {}
        first = self.predictor(Tuning())
        self.engine, self.providers = first.engine, first.providers
        texts = handler_examples.timing_items(release, first.config)
        self.texts = evenly(texts, _how_many(first, texts))

    def predictor(self, tuning: Tuning) -> Predictor:
        if tuning not in self._open:
            self._open[tuning] = Predictor(self._release / golden.MODEL_FOLDER, tuned=tuning)
        return self._open[tuning]

    def duel(self, first: Tuning, second: Tuning) -> intervals.Interval:
        self._open = {tuning: one for tuning, one in self._open.items() if tuning == first}
        pace = Pace()

        def round_over(line: str) -> None:
            if pace.is_due():
                self._progress(f"comparing two settings, {line}")

        timed = bench.take_turns([self.predictor(first), self.predictor(second)], self.texts, ROUNDS, round_over)
        ratios = sorted(bench.p50_ms(theirs) / bench.p50_ms(ours) for ours, theirs in zip(*timed))
        return intervals.percentile_interval(ratios, 0.5, bench.CONFIDENCE)

    def objection(self, tuning: Tuning) -> Optional[str]:
        """Reason to reject a tuning: the self-test fails with it."""
        try:
            selftest.compare(self._release, self.predictor(tuning))
        except StageFailedError as error:
            return f"the self-test fails with it: {error.why}"
        return None


def _how_many(predictor: Predictor, texts: Sequence[Item]) -> int:
    """Number of texts that fit into the time of a comparison, within limits."""
    probed = evenly(texts, _PROBED)
    for text in probed:
        predictor.predict(text)
    probe_ms = statistics.median(predictor.timed_predict(text)[1].total_ms for text in probed)
    fit = int(_DUEL_BUDGET_MS / (2 * ROUNDS * max(probe_ms, 1e-3)))
    return max(_LEAST_TEXTS, min(_MOST_TEXTS, fit))


def render(result: Mapping[str, Any]) -> str:
    """Format the result of `run`."""
    measured = result["measured"]
    rows = [("trial", "time", "interval", "")]
    for trial in measured["trials"]:
        interval = "{low:.2f} to {high:.2f}".format(**trial)
        rows.append((trial["what"], "{ratio:.2f} x".format(**trial), interval, "kept" if trial["kept"] else "not used"))
    lines = bench.table(rows) if len(rows) > 1 else []
    emulated = Conditions.of(measured["conditions"]).emulated_why
    if emulated:
        lines.append(f"nothing was tried: this machine is emulated ({emulated}), and its times mean nothing")
    elif not lines:
        lines.append("there was nothing to try")
    return printed([*lines, tuning.describe(result["tuning"])])
