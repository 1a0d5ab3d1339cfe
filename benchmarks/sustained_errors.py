"""How often the sustained gate is wrong on a machine that wobbles: simulated runs of one text after the other.

    python benchmarks/sustained_errors.py [--runs 100]

Times of one text, 10 ms, differ by 1 % on their own, and together by a wobble that forgets itself within `forgets_s`
(AR(1), standard deviation `wobble`). A machine that does not slow down is held against a limit of 2 %, and one that is
5 % slower in the last two fifths of the run against 3 %: the first may fail in 1 % of the runs, the second pass in 1 %.
`power_to_pass` and `power_to_fail` are the shares of right verdicts. The last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edgepack_runtime import stats, sustained
from edgepack_runtime.closed_loop import SPELL_MS, Spell, Window
from edgepack_runtime.contention import Contention
from edgepack_runtime.latency_limits import Sustained
from edgepack_runtime.predictor import Split
from edgepack_runtime.throttling import Throttle

Times = npt.NDArray[np.float64]
TEXT_MS: Final = 10.0
SECONDS: Final = (6.0, 60.0)
WOBBLES: Final = ((0.0, 1.0), (0.03, 2.0), (0.02, 10.0), (0.05, 10.0))  # standard deviation, seconds
SLOWDOWN_PERCENT, KEPT_PERCENT, MISSED_PERCENT = 5.0, 2.0, 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    begin = time.perf_counter()
    cases = []
    for seconds, (wobble, forgets_s) in itertools.product(SECONDS, WOBBLES):
        told = {"seconds": seconds, "wobble": wobble, "forgets_s": forgets_s}
        cases.append({**told, **judged(seconds, wobble, forgets_s, options.runs)})
        print(json.dumps(cases[-1]), flush=True)
    print(json.dumps({"runs": options.runs, "cases": cases, "seconds": round(time.perf_counter() - begin, 1)}))


def judged(seconds: float, wobble: float, forgets_s: float, runs: int) -> dict[str, Any]:
    """Verdicts on such a machine that stays as fast as it is, and on one that becomes slower."""
    count = round(seconds * 1e3 / TEXT_MS)
    later = np.arange(count) >= 0.6 * count  # (count,)
    verdicts: list[tuple[str, str]] = []
    for number in range(runs):
        times_ms = wobbling(np.random.RandomState(number), count, wobble, forgets_s)
        slower_ms = times_ms * np.where(later, 1 + SLOWDOWN_PERCENT / 100, 1.0)
        verdicts.append((verdict(times_ms, KEPT_PERCENT), verdict(slower_ms, MISSED_PERCENT)))
    steady, slower = zip(*verdicts, strict=True)
    return {
        "fails_wrongly": round(steady.count(stats.FAIL) / runs, 4),
        "passes_wrongly": round(slower.count(stats.PASS) / runs, 4),
        "power_to_pass": round(steady.count(stats.PASS) / runs, 4),
        "power_to_fail": round(slower.count(stats.FAIL) / runs, 4),
    }


def wobbling(draw: np.random.RandomState, count: int, wobble: float, forgets_s: float) -> Times:
    """(count,) times in ms."""
    keep = math.exp(-TEXT_MS / 1e3 / forgets_s)
    pushes = draw.normal(0, wobble * math.sqrt(1 - keep * keep), count)
    levels, level = np.empty(count), draw.normal(0, wobble) if wobble else 0.0
    for place in range(count):
        level = keep * level + pushes[place]
        levels[place] = level
    found: Times = TEXT_MS * np.exp(levels + draw.normal(0, 0.01, count))
    return found


def verdict(times_ms: Times, limit_percent: float) -> str:
    """Of a quiet machine, on which nothing tells of throttling."""
    each = round(SPELL_MS / TEXT_MS)
    spells = []
    for begin in range(0, len(times_ms), each):
        part_ms = times_ms[begin : begin + each]
        wall_ms = float(part_ms.sum())
        spells.append(Spell(len(part_ms), Contention(wall_ms, wall_ms, 2, 0.0)))
    window = Window([Split(0.0, float(ms), 0.0) for ms in times_ms], spells)
    seconds = float(times_ms.sum()) / 1e3
    return sustained.check(sustained.Run(window, [Throttle(), Throttle()]), Sustained(seconds, limit_percent)).verdict


if __name__ == "__main__":
    main()
