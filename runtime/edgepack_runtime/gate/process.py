"""Gates on whole processes: peak memory, cold start, and the repetition of an unstable latency measurement.

Each runs in a fresh process, started as the launcher starts a release: `python -I -S`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from edgepack_runtime.bundle import golden, handler_examples
from edgepack_runtime.device import interference
from edgepack_runtime.device.interference import Interference
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.gate import latency as gate_latency
from edgepack_runtime.gate.latency import Timing, TimingWindow
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.install import release_process
from edgepack_runtime.messages import joined, message
from edgepack_runtime.schema.figures import quantity
from edgepack_runtime.schema.gates import Limit, Limits, limit_named
from edgepack_runtime.schema.receipt import GateCheck
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.progress import Log
from edgepack_runtime.util.texts import Item

# Fewest samples with which minimum and maximum bound the median at 99 % on each side: 2^-7 < 1 %.
RUNS = 7
# Peaks this close to their limit, as a fraction of it, are measured `RUNS` times. Peaks of one bundle varied by 3.1 %.
NEAR = 0.05
_TIMEOUT_S = 600.0
_TIMING_TIMEOUT_S = 3600.0  # p99 of several lengths needs thousands of texts, and some devices answer one per second
_PACKAGES = str(Path(__file__).resolve().parents[2])
# The child uses the import path of this process. As in the launcher, the runtime alone is found beside the runtime.
_BOOT = """\
import json, sys
job = json.loads(sys.argv[1])
sys.path[:] = [*job["sys_path"], job["packages"]]
import edgepack_runtime
sys.path.pop()
from edgepack_runtime import errors
from edgepack_runtime.gate import process
try:
    print(json.dumps(process.answer(job)))
except errors.EdgepackError as error:
    print(json.dumps({"error": errors.to_json(error)}))
    sys.exit(int(error.exit_code))
"""


def peak_rss_mib(release: Path, threads: int) -> float:
    """Peak resident memory in MiB of a process that loads the model and predicts every golden text.

    Raises:
        StageFailedError: that process failed.
    """
    return float(_ask({"kind": "memory", "release": str(release), "threads": threads})["peak_rss_mib"])


def peaks_mib(release: Path, threads: int, limit_mib: float, progress: Log) -> List[float]:
    """`peak_rss_mib` of one process, or of `RUNS` processes if the first is within `NEAR` of the limit."""
    peaks = [peak_rss_mib(release, threads)]
    progress(f"memory: {quantity(peaks[0], 'MiB')} at most")
    if abs(peaks[0] - limit_mib) > NEAR * limit_mib:
        return peaks
    progress(f"memory: that is within {100 * NEAR:g} % of the limit, so {RUNS - 1} more processes are measured")
    for number in range(2, RUNS + 1):
        peaks.append(peak_rss_mib(release, threads))
        progress(f"memory: {quantity(peaks[-1], 'MiB')} at most, run {number} of {RUNS}")
    return peaks


def latency(release: Path, threads: int, gates: Mapping[str, Any]) -> Timing:
    """`gate_latency.measure` in a fresh process, for the manifest's `gates`. Raises as `peak_rss_mib`."""
    job = {"kind": "latency", "release": str(release), "threads": threads, "gates": gates}
    windows = _ask(job, timeout_s=_TIMING_TIMEOUT_S)["windows"]
    return Timing([TimingWindow.from_json(window) for window in windows])


def cold_starts(release: Path, words: Sequence[str], progress: Log) -> List[Interference]:
    """Time `python -I -S RELEASE/__main__.py predict WORD...` seven times, with the interference during each run.

    A text-pair model gets two words. A first run is not counted: it fills the page cache, so that the counted runs are
    like every later start of the application. Raises as `peak_rss_mib`.
    """
    # Arguments are UTF-8 in any locale of this process.
    arguments = [os.fsdecode(word.encode("utf-8", "surrogateescape")) for word in words]
    command = release_process.command(release, ["predict", *arguments])
    runs = []
    for _ in range(1 + RUNS):
        before = interference.read()
        release_process.run_json(
            command, "prediction of the cold-start gate", accepted=[ExitCode.OK], timeout_s=_TIMEOUT_S
        )
        runs.append(interference.between(before, interference.read()))
    first, *times = (f"{run.wall_ms:.0f}" for run in runs)
    progress("cold start: {} ms at first, then {}".format(first, " ".join(times)))
    return runs[1:]


def memory_check(peaks_mib: Sequence[float], limit_mib: float, ran: str, emulated_why: Optional[str]) -> GateCheck:
    """Check of the result of `peaks_mib`: several peaks by the interval of their median, a single one by its value.

    `ran` says what was predicted: `3 golden texts`.
    """
    gate = limit_named("memory.peak_rss_mib")
    if len(peaks_mib) == 1:
        detail = message("process.one_run", ran=ran, near=100 * NEAR)
        found = GateCheck.read_once(gate, peaks_mib[0], limit=limit_mib, detail=detail)
    else:
        interval = intervals.percentile_interval(peaks_mib, 0.5, bench.CONFIDENCE)
        detail = message("process.median", n=len(peaks_mib), ran=ran)
        found = _by_median(gate, interval, limit_mib, len(peaks_mib), detail)
        if found.verdict == intervals.INCONCLUSIVE:
            found = dataclasses.replace(found, detail=joined(detail, message("process.both_sides")))
    if found.verdict != intervals.PASS and emulated_why is not None:  # the emulator itself takes memory
        why = message("gate.emulated_memory", why=emulated_why)
        return dataclasses.replace(found, verdict=intervals.INCONCLUSIVE, detail=joined(found.detail, why))
    return found


def cold_start_check(runs: Sequence[Interference], limit_ms: float, emulated_why: Optional[str]) -> GateCheck:
    """Check of the median of the runs, with minimum and maximum as its interval."""
    interval = intervals.percentile_interval([run.wall_ms for run in runs], 0.5, bench.CONFIDENCE)
    gate = limit_named("cold_start.ms")
    found = _by_median(gate, interval, limit_ms, len(runs), message("process.cold_start"))
    verdict, why = gate_latency.undisturbed(found.verdict, interference.together(runs))
    verdict, detail = gate_latency.refuse_if_emulated(verdict, joined(found.detail, why), emulated_why)
    return dataclasses.replace(found, verdict=verdict, detail=detail)


def _by_median(gate: Limit, interval: intervals.Interval, limit: float, n: int, detail: str) -> GateCheck:
    """Check of the median of `n` processes."""
    verdict = intervals.verdict_at_most(interval, limit)
    return GateCheck.sampled(gate, verdict, interval, limit=limit, n=n, confidence=bench.CONFIDENCE, detail=detail)


def answer(job: Mapping[str, Any]) -> Dict[str, Any]:
    """Measure what `job` asks for, in the fresh process; called by `_BOOT` only."""
    release = Path(job["release"])
    predictor = Predictor(release / golden.MODEL_FOLDER, threads=job["threads"])
    if job["kind"] == "memory":
        predictor.predict_batch(handler_examples.selftest_items(release, predictor.config), batch_size=1)
        return {"peak_rss_mib": _own_peak_rss_mib()}
    texts = handler_examples.timing_items(release, predictor.config)
    timing = gate_latency.measure(predictor, texts, Limits.parse(job["gates"]).latency, _to_stderr)
    return {"windows": [window.as_json() for window in timing.windows]}


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")


def _ask(job: Dict[str, Any], timeout_s: float = _TIMEOUT_S) -> Dict[str, Any]:
    job = {**job, "sys_path": sys.path, "packages": _PACKAGES}
    line = [release_process.interpreter(), "-I", "-S", "-B", "-c", _BOOT, json.dumps(job)]
    what = "{} measurement in a fresh process".format(job["kind"])
    return release_process.run_json(line, what, accepted=[ExitCode.OK], timeout_s=timeout_s)[1]


def _own_peak_rss_mib() -> float:
    """VmHWM rather than `ru_maxrss`, which a process on Linux inherits from its parent."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        status = ""  # without /proc, `ru_maxrss` is an upper bound
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def presentable(texts: Sequence[Item]) -> Tuple[str, ...]:
    """The text or pair of median length among those that can be arguments of a command: printable and no option."""

    def is_argument(text: str) -> bool:
        return bool(text.strip()) and text.isprintable() and text[0] != "-"

    words = [(item,) if isinstance(item, str) else item for item in texts]
    fit = sorted((item for item in words if all(map(is_argument, item))), key=lambda item: sum(map(len, item)))
    return fit[len(fit) // 2] if fit else ("好",) * len(words[0])
