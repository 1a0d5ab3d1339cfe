"""Whether the latency gate is ever wrong while others use the machine.

Prints a line a trial and ends in one JSON line. The machine should be idle: first the model is timed with nobody beside
it, and that p50 and p95 are the truth. In each trial neighbours run, and the gate is asked for limits on one side of
the truth: a pass below it, or a fail above it, is wrong; all else is right or inconclusive. Where strangers keep the
machine busy it waits for them, --patience seconds at most each time, and counts trials without them once more.

    python benchmarks/noisy_neighbour.py [--trials 60] [--seed 0] [--shape 4x312] [--texts 200] [--patience 60]

Neighbours: a busy loop, or one for each core; copies of arrays larger than the caches, or one for each core; bursts of
50 to 500 ms with pauses as long; a loop or copies that start in the middle; and nobody. Weights and texts are random.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from throughput import model_folders, random_texts

from edgepack_runtime.bundle import golden
from edgepack_runtime.device import conditions, interference
from edgepack_runtime.device.cores import usable_cores
from edgepack_runtime.gate import latency, process
from edgepack_runtime.gate.latency import Timing
from edgepack_runtime.gate.limits import Limits, parse
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.texts import Item

FACTORS: Final = (0.6, 0.8, 1.25, 1.6)  # of the truth, as limits
QUIET_RUNS: Final = 5
# What a neighbour does: delay_s before it starts, then `seconds` of loops or copies, in bursts where there are pauses.
NEIGHBOUR: Final = """\
import random, sys, time
kind, seed, delay_s, burst_ms, seconds = sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:])
draw = random.Random(seed)
if kind == "copies":
    import numpy as np
    source, target = np.ones(2**23), np.empty(2**23)
    def work():
        np.copyto(target, source)
else:
    def work():
        sum(range(1000))
print("ready", flush=True)
time.sleep(delay_s)
end = time.monotonic() + seconds
while time.monotonic() < end:
    until = time.monotonic() + (draw.uniform(0.05, 0.5) if burst_ms else 1.0)
    while time.monotonic() < until:
        work()
    if burst_ms:
        time.sleep(draw.uniform(0.05, 0.5))
"""
# name -> what it does, how many (0: one for each core), when it starts as a share of a timing, whether in bursts
KINDS: Final[dict[str, tuple[str, int, float, bool]]] = {
    "nobody": ("", 0, 0.0, False),
    "a loop": ("loop", 1, 0.0, False),
    "loops on all cores": ("loop", 0, 0.0, False),
    "copies": ("copies", 1, 0.0, False),
    "copies on all cores": ("copies", 0, 0.0, False),
    "bursts": ("loop", 1, 0.0, True),
    "bursts on all cores": ("loop", 0, 0.0, True),
    "bursts of copies": ("copies", 1, 0.0, True),
    "a loop from the middle": ("loop", 1, 0.5, False),
    "copies on all cores from the middle": ("copies", 0, 0.5, False),
}
STRANGERS: Final = 0.1  # cores that others than the neighbours may use in a trial that counts as undisturbed
LONGEST_S: Final = 120.0  # of a neighbour, should nobody stop it


def release_of(model: Path, texts: list[str], folder: Path) -> Path:
    """What the gate needs of a release: the model and rows to time it on."""
    folder.mkdir()
    (folder / golden.MODEL_FOLDER).symlink_to(model, target_is_directory=True)
    (folder / golden.ROWS_FILE).parent.mkdir()
    rows = ({"text": text, "label": "a", "float_label": "a"} for text in texts)
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / golden.ROWS_FILE).write_text("".join(lines), encoding="utf-8")
    return folder


def until_idle(patience_s: float) -> bool:
    """Wait for a second in which nobody else ran; False if none came."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        before = interference.read()
        time.sleep(1.0)
        if not interference.between(before, interference.read()).disturbed:
            return True
    return False


def truth(predictor: Predictor, texts: list[Item], patience_s: float) -> dict[str, Any]:
    """p50 and p95 with nobody beside the model, and how many seconds a timing takes.

    Of windows that nobody disturbed, all together; where there are none, of the fastest window.
    """
    windows: list[latency.TimingWindow] = []
    seconds = []
    for _ in range(QUIET_RUNS):
        until_idle(patience_s)
        begin = time.monotonic()
        timing = latency.measure(predictor, texts, Limits(), silent)
        seconds.append(time.monotonic() - begin)
        windows += timing.windows
    quiet = [window for window in windows if not window.interference.disturbed]
    fastest = min(windows, key=lambda window: sum(sample.total_ms for sample in window.samples) / len(window.samples))
    totals = sorted(sample.total_ms for window in quiet or [fastest] for sample in window.samples)
    return {
        "p50_ms": intervals.percentile(totals, 0.5),
        "p95_ms": intervals.percentile(totals, 0.95),
        "seconds": min(seconds),
        "from": "quiet windows" if quiet else "the fastest window",
        "n": len(totals),
    }


@contextlib.contextmanager
def neighbours(kind: str, seed: int, seconds: float) -> Iterator[list[subprocess.Popen[bytes]]]:
    """They run as long as the block does; one timing takes `seconds`."""
    what, count, start, bursts = KINDS[kind]
    count = (count or os.cpu_count() or 1) if what else 0
    arguments = [str(start * seconds), "1" if bursts else "0", str(LONGEST_S)]
    running = [
        subprocess.Popen([sys.executable, "-c", NEIGHBOUR, what, str(seed + i), *arguments], stdout=subprocess.PIPE)
        for i in range(count)
    ]
    try:
        for one in running:
            assert one.stdout is not None and one.stdout.readline() == b"ready\n"
        yield running
    finally:
        for one in running:
            one.kill()
            one.communicate()


def trial(
    release: Path, predictor: Predictor, texts: list[Item], true: dict[str, Any], kind: str, factor: float, seed: int
) -> dict[str, Any]:
    """The verdicts of the gate beside `kind`, with limits of `factor` times the truth."""
    gates = {"latency": {key: factor * true[key] for key in ("p50_ms", "p95_ms")}}
    limits = parse(gates)
    with neighbours(kind, seed, true["seconds"]) as running:
        begin, used_ms = interference.read(), cpu_ms(running)
        first = latency.measure(predictor, texts, limits, silent)
        threads = predictor.tuning.threads
        timing: Timing = latency.settle(first, limits, None, lambda: process.latency(release, threads, gates), silent)
        told = interference.between(begin, interference.read())
        strangers = (told.others_cores or 0.0) - (cpu_ms(running) - used_ms) / told.wall_ms
    verdicts = {check.gate: check.verdict for check in latency.checks(timing, limits, None)}
    wrong_verdict = intervals.PASS if factor < 1 else intervals.FAIL
    return {
        "neighbour": kind,
        "factor": factor,
        "verdicts": verdicts,
        "wrong": sum(verdict == wrong_verdict for verdict in verdicts.values()),
        "wrong_by_windows": wrong_by_windows(first, limits, wrong_verdict),
        "processes": timing.processes,
        "p50_ms": timing.medians_ms,
        "others_cores": timing.interference.others_cores,
        "strangers_cores": strangers,
    }


def cpu_ms(running: list[subprocess.Popen[bytes]]) -> float:
    """What the neighbours have used so far."""
    ticks = 0
    for one in running:
        words = Path(f"/proc/{one.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        ticks += int(words[11]) + int(words[12])
    return ticks * interference.TICK_MS


def wrong_by_windows(timing: Timing, limits: Limits, wrong_verdict: str) -> int:
    """How many verdicts would be wrong if only the two windows were compared, and not what else ran."""
    totals = [sample.total_ms for sample in timing.samples]
    found = []
    for fraction, limit in [asked[1:] for asked in limits.latency.percentiles.asked()]:
        interval = intervals.percentile_interval(totals, fraction, bench.CONFIDENCE)
        found.append(intervals.verdict_at_most(interval, limit) if timing.stable else intervals.INCONCLUSIVE)
    return found.count(wrong_verdict)


def silent(line: str) -> None:
    """A window is no news."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shape", default="4x312", help="layers x hidden of the random weights")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for an idle machine")
    options = parser.parse_args()
    texts: list[Item] = list(random_texts(options.texts, 40))
    cases = [(kind, factor) for kind in KINDS for factor in FACTORS]
    random.Random(options.seed).shuffle(cases)
    with tempfile.TemporaryDirectory(prefix="neighbour-") as work:
        model = model_folders(options.shape, Path(work))["INT8"]
        release = release_of(model, [str(text) for text in texts], Path(work) / "release")
        predictor = Predictor(model, threads=options.threads)
        true = truth(predictor, texts, options.patience)
        print("quiet: p50 {p50_ms:.3f} ms, p95 {p95_ms:.3f} ms (n = {n}, {from})".format(**true), flush=True)
        results = []
        for number in range(options.trials):
            kind, factor = cases[number % len(cases)]
            until_idle(options.patience)
            results.append(trial(release, predictor, texts, true, kind, factor, options.seed + 100 * number))
            print(line(number, results[-1]), flush=True)
        after = truth(predictor, texts, options.patience)
    facts = {
        **counted(results),
        "without_strangers": counted([one for one in results if one["strangers_cores"] <= STRANGERS]),
        "quiet": true,
        "quiet_after": after,
        "seed": options.seed,
        "shape": options.shape,
        "threads": options.threads,
        "cores": usable_cores(),
        "cpu_model": conditions.collect(threads=1, engine="", providers=())["cpu_model"],
    }
    print(json.dumps(facts | {"results": results}))


def counted(results: list[dict[str, Any]]) -> dict[str, Any]:
    """How many verdicts were right, inconclusive and wrong, and how many each kind of neighbour left."""
    found = {kind: Counter() for kind in KINDS}  # type: dict[str, Counter[str]]
    for one in results:
        right = intervals.FAIL if one["factor"] < 1 else intervals.PASS
        for verdict in one["verdicts"].values():
            same = verdict in (right, intervals.INCONCLUSIVE)
            found[one["neighbour"]]["wrong" if not same else "right" if verdict == right else verdict] += 1
    told = sum(found.values(), Counter())
    return {
        "trials": len(results),
        **{name: told[name] for name in ("right", "inconclusive", "wrong")},
        "wrong_by_windows": sum(one["wrong_by_windows"] for one in results),
        "by_neighbour": {kind: dict(counts) for kind, counts in found.items() if counts},
    }


def line(number: int, found: dict[str, Any]) -> str:
    verdicts = ", ".join(f"{gate} {verdict}" for gate, verdict in found["verdicts"].items())
    medians = " ".join(f"{ms:.3f}" for ms in found["p50_ms"])
    wrong = "  WRONG" if found["wrong"] else ""
    beside = f"others {found['others_cores'] or 0:.2f} cores, strangers {found['strangers_cores']:.2f}"
    return (
        f"{number + 1:3} {found['neighbour']:36} limit {found['factor']:.2f} x: {verdicts}; medians {medians} ms, "
        f"{beside}, {found['processes']} process(es){wrong}"
    )


if __name__ == "__main__":
    main()
