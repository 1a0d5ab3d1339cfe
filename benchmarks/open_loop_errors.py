"""How often the open-loop gate is wrong: simulated models at several rates, judged by runs of their own.

    python benchmarks/open_loop_errors.py [--runs 300]

The truth is p95 in the long run, by the formula and 200,000 texts (tests hold the formula against others and against
answering texts one by one). A run is wrong where its whole interval lies on one side of that: one that ends below
would pass a limit that the model misses, one that begins above would fail a limit that it keeps to; each may be in 1 %
of the runs. `power` is the share that passes a limit of 1.25
times the truth, `texts` and `seconds` how many such a run takes and how long it would. The last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
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
TRUTH_TEXTS: Final = 200_000
NEAR: Final = 0.005  # what 200,000 texts do not tell
FRACTION: Final = 0.95
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
    parser.add_argument("--runs", type=int, default=300)
    options = parser.parse_args()
    begin = time.perf_counter()
    cases = []
    for (name, (work, first)), utilisation in itertools.product(MODELS.items(), UTILISATIONS):
        cases.append({"work": name, **judged(work, first, utilisation, options.runs)})
        print(json.dumps(cases[-1]), flush=True)
    worst = {key: max(case[key] for case in cases) for key in ("passes_wrongly", "fails_wrongly")}
    seconds = round(time.perf_counter() - begin, 1)
    allowed = round((1 - bench.CONFIDENCE) / 2, 4)
    print(json.dumps({"runs": options.runs, "allowed": allowed, **worst, "cases": cases, "seconds": seconds}))


def judged(work: Draw, first: float, utilisation: float, runs: int) -> dict[str, Any]:
    """One model at one rate. `utilisation` is that of texts which do not find the server idle."""
    rate_per_s = utilisation * 100.0
    draw = np.random.RandomState(1)
    times_ms = work(draw, TRUTH_TEXTS)
    [true_ms] = queueing.percentiles(Work(list(first * times_ms), list(times_ms)), rate_per_s, [FRACTION])
    asked = OpenLoop(rate_per_s, Percentiles(p95_ms=true_ms))
    below = above = passed = 0
    counts = []
    for number in range(runs):
        open_loop.measure = partial(simulated, np.random.RandomState(1000 + number), work, first)
        run = open_loop.decisive(None, [], asked, lambda line: None)  # type: ignore[arg-type]
        counts.append(len(run.answered))
        [interval] = open_loop.in_the_long_run(run, [FRACTION])
        decided = run.utilisation <= open_loop.MOST_BUSY
        below += decided and interval.high < true_ms * (1 - NEAR)
        above += interval.low > true_ms * (1 + NEAR)
        passed += decided and interval.high <= 1.25 * true_ms
    texts = statistics.fmean(counts)
    return {
        "utilisation": utilisation,
        "true_p95_ms": round(true_ms, 2),
        "passes_wrongly": round(below / runs, 4),
        "fails_wrongly": round(above / runs, 4),
        "power": round(passed / runs, 3),
        "texts": round(texts),
        "seconds": round(texts / rate_per_s),
    }


def arriving(draw: np.random.RandomState, work: Draw, count: int, rate_per_s: float) -> tuple[Times, Times]:
    """When texts arrive, in ms, and how long each takes where the server is busy."""
    return np.cumsum(draw.exponential(1e3 / rate_per_s, count)), work(draw, count)


def answered(due_ms: Times, work_ms: Times, first: float) -> list[Answered]:
    """Texts answered in their order; `first` is the factor of those that find the server idle."""
    free, found = 0.0, []
    for due, work in zip(due_ms.tolist(), work_ms.tolist(), strict=True):
        begin = max(due, free)
        free = begin + (work * first if due >= free else work)
        found.append(Answered(due, begin, free))
    return found


def simulated(draw: np.random.RandomState, work: Draw, first: float, *asked: Any, seed: int) -> Run:
    """What `open_loop.measure` would return of such a model on a machine with nobody else, whatever the `seed`.

    `asked` are its other arguments: predictor, texts, rate and count.
    """
    del seed  # `draw` goes on
    rate_per_s, count = asked[2:]
    texts = answered(*arriving(draw, work, count, rate_per_s), first)
    return Run(rate_per_s, texts, [closed_loop.Spell(count, QUIET._replace(wall_ms=texts[-1].done_ms))])


if __name__ == "__main__":
    main()
