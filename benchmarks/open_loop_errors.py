"""How often the open-loop gate is wrong: simulated models at several rates, judged by runs of their own.

    python benchmarks/open_loop_errors.py [--runs 100] [--rows 2000]

Each run has golden rows of its own, each of which always takes its time; the truth is p95 of those in the long run, by
the formula (tests hold it against others and against answering texts one by one). A run is wrong where its whole
interval lies on one side of that: one that ends below would pass a limit that the model misses, one that begins above
would fail a limit that it keeps to; each may be in 1 % of the runs.
`power` is the share that passes a limit of 1.25 times the truth, `texts` and
`seconds` how many such a run takes and how long it would.

Then machines that are slow for a while, now and then: `share` of the time, `phase_s` at a time on average, when a text
takes `slow` times as long. Their truth is p95 of a million texts, answered one by one; `unseen` is the share of runs in
which the machine was never slow. The last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgepack_runtime import bench, closed_loop, open_loop, queueing
from edgepack_runtime.contention import Contention
from edgepack_runtime.latency_limits import OpenLoop, Percentiles
from edgepack_runtime.open_loop import Answered, Run
from edgepack_runtime.queueing import Work

Times = npt.NDArray[np.float64]
Draw = Callable[[np.random.RandomState, int], Times]
QUIET: Final = Contention(0.0, 0.0, 2, 0.0)
UTILISATIONS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.87)
FRACTION: Final = 0.95
PHASES: Final = ((2.0, 0.1, 1.0), (1.5, 0.1, 2.0), (1.3, 0.2, 2.0), (1.2, 0.3, 5.0))  # slow, share, phase_s
TOLD: Final = ("passes_wrongly", "fails_wrongly", "power")
_LONG_RUN: Final = 1_000_000
# Work on a text in ms, with the factor that one which finds the server idle takes: cold caches, a clock that was low.
MODELS: Final[dict[str, tuple[Draw, float]]] = {
    "always 10": (lambda draw, n: np.full(n, 10.0), 1.0),
    "lognormal": (lambda draw, n: draw.lognormal(math.log(10) - 0.18, 0.6, n), 1.0),
    "one in ten takes eight times as long": (
        lambda draw, n: np.where(draw.random_sample(n) < 0.1, 47.0, 5.9) * draw.uniform(0.95, 1.05, n),
        1.0,
    ),
    "the first after a pause takes 1.5 times as long": (
        lambda draw, n: draw.lognormal(math.log(10) - 0.045, 0.3, n),
        1.5,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rows", type=int, default=2000, help="golden rows")
    options = parser.parse_args()
    begin = time.perf_counter()
    cases = []
    for (name, (work, first)), utilisation in itertools.product(MODELS.items(), UTILISATIONS):
        cases.append({"work": name, **judged(work, first, utilisation, options)})
        print(json.dumps(cases[-1]), flush=True)
    for phases, utilisation in itertools.product(PHASES, (0.3, 0.6)):
        cases.append(phased(*phases, utilisation, options.runs))
        print(json.dumps(cases[-1]), flush=True)
    worst = {key: max(case[key] for case in cases) for key in TOLD[:2]}
    together = {f"{key}_together": round(statistics.fmean(case[key] for case in cases), 4) for key in TOLD[:2]}
    seconds = round(time.perf_counter() - begin, 1)
    allowed = round((1 - bench.CONFIDENCE) / 2, 4)
    told = {"runs": options.runs, "rows": options.rows, "allowed": allowed, **worst, **together}
    print(json.dumps({**told, "cases": cases, "seconds": seconds}))


def judged(work: Draw, first: float, utilisation: float, options: argparse.Namespace) -> dict[str, Any]:
    """One model at one rate. `utilisation` is that of texts which do not find the server idle."""
    rate_per_s = utilisation * 100.0
    asked = OpenLoop(rate_per_s, Percentiles(p95_ms=1.0))  # how long a run takes is not up to the limit
    told: Counter[str] = Counter()
    counts = []
    for number in range(options.runs):
        draw = np.random.RandomState(1000 + number)
        times_ms = work(draw, options.rows)
        [true_ms] = queueing.percentiles(Work(list(first * times_ms), list(times_ms)), rate_per_s, [FRACTION])
        open_loop.measure = partial(simulated, draw, times_ms, first)
        rows = [str(row) for row in range(options.rows)]
        run = open_loop.decisive(None, rows, asked, lambda line: None)  # type: ignore[arg-type]
        counts.append(len(run.answered))
        told.update(said(run, true_ms))
    texts = statistics.fmean(counts)
    shares = {key: round(told[key] / options.runs, 4) for key in TOLD}
    return {"utilisation": utilisation, **shares, "texts": round(texts), "seconds": round(texts / rate_per_s)}


def phased(slow: float, share: float, phase_s: float, utilisation: float, runs: int) -> dict[str, Any]:
    """One machine with slow phases at one rate, at which it is busy for `utilisation` of the time while it is fast."""
    rate_per_s = utilisation * 100.0
    machine = partial(Phased, slow, share, phase_s)
    long_run = machine(np.random.RandomState(0)).answers(rate_per_s, _LONG_RUN)
    true_ms = float(np.quantile([one.latency_ms for one in long_run], FRACTION))
    asked = OpenLoop(rate_per_s, Percentiles(p95_ms=1.0))
    counts: Counter[str] = Counter()
    for number in range(runs):
        one = machine(np.random.RandomState(1000 + number))
        open_loop.measure = one.simulated
        run = open_loop.decisive(None, ["a"], asked, lambda line: None)  # type: ignore[arg-type]
        counts.update([*said(run, true_ms), *([] if one.was_slow else ["unseen"])])
    told = {"slow": slow, "share": share, "phase_s": phase_s, "utilisation": utilisation, "p95_ms": round(true_ms, 1)}
    return {"work": "slow phases", **told, **{key: round(counts[key] / runs, 4) for key in (*TOLD, "unseen")}}


def said(run: Run, true_ms: float) -> list[str]:
    """Which of `TOLD` a run is."""
    [interval] = open_loop.in_the_long_run(run, [FRACTION])
    decided = run.utilisation <= open_loop.MOST_BUSY
    are = (decided and interval.high < true_ms, interval.low > true_ms, decided and interval.high <= 1.25 * true_ms)
    return [key for key, is_so in zip(TOLD, are, strict=True) if is_so]


class Phased:
    """A machine that takes 10 ms for a text, or `slow` times as long while it is in a slow phase."""

    def __init__(self, slow: float, share: float, phase_s: float, draw: np.random.RandomState) -> None:
        self._factors = (1.0, slow)
        self._phases_ms = (1e3 * phase_s * (1 - share) / share, 1e3 * phase_s)
        self._draw = draw
        self._is_slow = bool(draw.random_sample() < share)
        self._left_ms = draw.exponential(self._phases_ms[self._is_slow])
        self.was_slow = False

    def answers(self, rate_per_s: float, count: int) -> list[Answered]:
        """Texts answered in their order, from now on."""
        free, now, found = 0.0, 0.0, []
        for due in np.cumsum(self._draw.exponential(1e3 / rate_per_s, count)).tolist():
            begin = max(due, free)
            self._pass(begin - now)
            now = begin
            free = begin + 10.0 * self._factors[self._is_slow]
            self.was_slow |= self._is_slow
            found.append(Answered(due, begin, free))
        return found

    def simulated(self, *asked: Any, seed: int) -> Run:
        """As `simulated`, of this machine."""
        del seed  # it draws by itself
        _, _, rate_per_s, count = asked
        found = self.answers(rate_per_s, count)
        return Run(rate_per_s, found, [closed_loop.Spell(count, QUIET._replace(wall_ms=found[-1].done_ms))], 1)

    def _pass(self, ms: float) -> None:
        while ms > self._left_ms:
            ms -= self._left_ms
            self._is_slow = not self._is_slow
            self._left_ms = self._draw.exponential(self._phases_ms[self._is_slow])
        self._left_ms -= ms


def answered(due_ms: Times, work_ms: Times, first: float) -> list[Answered]:
    """Texts answered in their order; `first` is the factor of those that find the server idle. Both (count,), in ms."""
    free, found = 0.0, []
    for due, work in zip(due_ms.tolist(), work_ms.tolist(), strict=True):
        begin = max(due, free)
        free = begin + (work * first if due >= free else work)
        found.append(Answered(due, begin, free))
    return found


def simulated(draw: np.random.RandomState, times_ms: Times, first: float, *asked: Any, seed: int) -> Run:
    """What `open_loop.measure` would return of such a model on a machine with nobody else, whatever the `seed`.

    `times_ms` has the work on each golden row. `asked` are its other arguments: predictor, texts, rate and count.
    """
    del seed  # `draw` goes on
    _, texts, rate_per_s, count = asked
    work_ms = times_ms[[int(texts[number % len(texts)]) for number in range(count)]]
    found = answered(np.cumsum(draw.exponential(1e3 / rate_per_s, count)), work_ms, first)
    return Run(rate_per_s, found, [closed_loop.Spell(count, QUIET._replace(wall_ms=found[-1].done_ms))], count)


if __name__ == "__main__":
    main()
