"""The gate: measures a release on this machine, checks it against its limits, and writes the receipt.

Every value comes from the shipped files through the predictor, text in to label out. Verdicts are pass, fail or
inconclusive; the receipt records the conditions of the measurement.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from edgepack_runtime.bundle import golden, handler_examples, verify
from edgepack_runtime.bundle.manifest import Manifest
from edgepack_runtime.bundle.model_config import weight_bytes
from edgepack_runtime.device import conditions, cores
from edgepack_runtime.errors import BundleInvalidError, ExitCode, StageFailedError
from edgepack_runtime.gate import accuracy as gate_accuracy
from edgepack_runtime.gate import handler_scores, process, sustained, turns
from edgepack_runtime.gate import latency as gate_latency
from edgepack_runtime.gate import rows as gate_rows
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.install import locate, receipts
from edgepack_runtime.messages import joined, local, message, message_or, printed
from edgepack_runtime.schema import figures
from edgepack_runtime.schema.fields import parse, to_json
from edgepack_runtime.schema.gates import ABOVE_MAJORITY, LatencyLimits, Limits, limit_named
from edgepack_runtime.schema.receipt import (
    ACCURACY_NOT_GATED,
    EXIT_CODES,
    NO_GATES,
    GateCheck,
    GateReceipt,
    Score,
    Unmeasured,
)
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.progress import Log
from edgepack_runtime.util.texts import Item


def run(
    release: Path,
    manifest: Manifest,
    *,
    bundle_bytes: Optional[int],
    progress: Log,
    rows_file: Optional[Path] = None,
    without_rows: bool = False,
    without_gates: bool = False,
    active: Optional[Path] = None,
) -> Dict[str, Any]:
    """Measure accuracy, latency, and what `manifest.gates` limits; return the receipt in JSON types.

    Args:
        release: an unpacked release with the manifest `manifest`.
        bundle_bytes: size of the bundle file; None if it is not known, which leaves its size gate inconclusive.
        progress: called with one line per step.
        rows_file: the labelled rows, if they are kept out of the bundle. Without them `accuracy` and `classes` of the
            receipt are null, and `unmeasured` lists the accuracy gates.
        without_rows: let the other gates alone decide in that case. Otherwise the verdict is at best inconclusive.
        without_gates: let a release without limits pass, as in a build or an install. Otherwise it is inconclusive.
        active: the release that an update replaces. Where latency cannot be decided in ms, both answer in turns.

    Raises:
        UsageError: `rows_file` does not belong to the release.
        BundleInvalidError: the release is incomplete, or this runtime cannot measure its gates.
        EnvironmentUnfitError: the model's execution provider is not active.
        StageFailedError: the model or one of the measuring processes failed.
    """
    begin = time.perf_counter()
    limits = Limits.parse(manifest.gates)
    found, raw = verify.read_manifest(release)
    if found != manifest:
        raise BundleInvalidError(f"the manifest does not belong to {release}")
    predictor = opened(release, limits)
    threads = predictor.tuning.threads
    where = conditions.collect(threads=threads, engine=predictor.engine, providers=predictor.providers)
    measured = _measure_accuracy(predictor, release, limits, rows_file, progress)
    texts = handler_examples.timing_items(release, predictor.config)
    timing = gate_latency.settle(
        gate_latency.measure(predictor, texts, limits.latency, progress),
        limits.latency,
        where.emulated_why,
        lambda: process.latency(release, threads, manifest.gates),
        progress,
    )
    timed = gate_latency.checks(timing, limits.latency, where.emulated_why)
    compared = None
    if active is not None and where.emulated_why is None:
        timed, compared = _against(active, timed, predictor, texts, limits.latency, progress)
    long_run = _measure_sustained(predictor, texts, limits, where.emulated_why, progress)
    where = dataclasses.replace(where, after=conditions.collect_changing())  # before other processes load the machine
    checks = [
        *([] if measured is None else measured.checks),
        *timed,
        *_sustained_checks(long_run, limits, where.emulated_why),
        *_process_checks(release, limits, threads, predictor, where.emulated_why, progress),
        *_size_checks(release, limits, bundle_bytes),
    ]
    unmeasured = gate_rows.unmeasured(limits, others=bool(checks), waived=without_rows) if measured is None else []
    if [(check.gate, check.verdict) for check in checks] == [(ABOVE_MAJORITY, intervals.PASS)]:
        checks = []  # the recipe sets no gates: a pass would be one that nobody asked for
    if not checks and not unmeasured:
        unmeasured = [Unmeasured("gates", NO_GATES, without_gates)]
    undecided = [intervals.INCONCLUSIVE for one in unmeasured if not one.waived]
    receipt = GateReceipt(
        bundle=receipts.bundle_facts(manifest, raw),
        verdict=intervals.overall([*(check.verdict for check in checks), *undecided]),
        inconclusive=limits.inconclusive,
        checks=tuple(checks),
        unmeasured=tuple(unmeasured),
        accuracy=measured and measured.summary,
        answered=measured and measured.answered,
        promised=_promised(manifest),
        classes=measured and measured.classes,
        latency=dataclasses.replace(
            gate_latency.summary(timing, threads), sustained=long_run and sustained.summary(long_run), turns=compared
        ),
        tuning=dataclasses.asdict(predictor.tuning),
        conditions=to_json(where),
        seconds=round(time.perf_counter() - begin, 3),
    )
    return receipt.to_json()


def _promised(manifest: Manifest) -> Optional[Score]:
    """The score of the shipped file when it was built; None if the manifest has none."""
    with contextlib.suppress(LookupError, ValueError):
        return parse(Score, manifest.ledger[-1]["score"])
    return None


def opened(release: Path, limits: Limits) -> Predictor:
    """The model of a release as it serves: with the threads that `tune` found, and at most those of its gates."""
    tuned = locate.locate(release).tuning()
    most = limits.latency.threads
    threads = min(tuned.threads, most) if tuned else most
    return Predictor(release / golden.MODEL_FOLDER, threads=threads)


def exit_code(receipt: Mapping[str, Any]) -> ExitCode:
    """0 for pass, 6 for fail, 7 for inconclusive."""
    return EXIT_CODES[receipt["verdict"]]


def render(receipt: Mapping[str, Any]) -> str:
    """Format the receipt as a table, with the detail of each gate that did not pass."""
    found = GateReceipt.parse(receipt)
    rows = [
        tuple(local(message(f"table.{name}")) for name in ("gate", "measured", "interval", "limit", "n", "verdict"))
    ]
    rows += [
        (
            check.gate,
            figures.figure(check.value, check.unit),
            local(figures.interval(check.low, check.high, check.unit, with_unit=False)),
            local(check.bound(figures.shown(check.limit, check.unit))),
            str(check.n),
            local(message(f"verdict.{check.verdict}")),
        )
        for check in found.checks
    ]
    lines: List[str] = [*bench.table(rows)] if found.checks else []
    missed = (check for check in found.checks if check.verdict != intervals.PASS)
    lines += [joined(check.gate, check.detail, by="list.colon") for check in missed]
    lines += [message("say.not_measured", gate=one.gate, why=one.why) for one in found.unmeasured]
    if not found.is_accuracy_gated:
        lines.append(ACCURACY_NOT_GATED)
    if found.accuracy is not None:
        lines.append(_accuracy_line(found.accuracy))
        if found.classes is not None:
            lines.append(gate_accuracy.worst_line(found.classes))
    if found.answered is not None:
        share = found.answered["linear"] / max(1, sum(found.answered.values()))
        lines.append(message("gate.answered_alone", share=share))
    if found.latency is not None:
        lines.append(message("gate.latency", **dataclasses.asdict(found.latency)))
    where = found.where
    usable = (
        "" if where.cores is None else message("gate.cores", text=cores.named(where.cores), cores=f"{where.cores:g}")
    )
    on = (where.gpu, where.cpu_model, usable, where.kernel, where.engine, f"Python {where.python}")
    lines.append(joined(*filter(None, on), by="list.comma"))
    lines.append(message("gate.measured_at", moment=where.device_clock_utc))
    lines.append(message("gate.verdict", verdict=message(f"verdict.{found.verdict}")))
    return printed(lines)


def _accuracy_line(score: Score) -> str:
    value = figures.shown(score.value, score.unit)
    span = figures.interval(score.low, score.high, score.unit)
    name = message_or(f"scored.{score.metric}", score.metric)
    line = message("gate.scored", metric=name, value=value, span=span, n=score.n)
    return joined(line, gate_accuracy.repeats(score.n, score.distinct_texts or score.n))


def _measure_accuracy(
    predictor: Predictor, release: Path, limits: Limits, rows_file: Optional[Path], progress: Log
) -> Optional[gate_accuracy.AccuracyResult]:
    """Accuracy on the golden rows or examples; None without rows."""
    if predictor.config.handler is not None:
        return handler_scores.measure(predictor, release, limits, progress)
    rows = gate_rows.read(release, predictor.config, limits, rows_file)
    if rows is None:
        progress(f"accuracy: not measured: {gate_rows.WHY_NOT}")
        return None
    return gate_accuracy.result(predictor, rows, limits.accuracy, progress)


def _against(
    active: Path,
    timed: List[GateCheck],
    predictor: Predictor,
    texts: Sequence[Item],
    limits: LatencyLimits,
    progress: Log,
) -> Tuple[List[GateCheck], Optional[Dict[str, Any]]]:
    """The checks on latency with those decided that were not, by a comparison with the active release; and its record.

    An active release that cannot be compared with leaves the checks as they are: the policy decides.
    """
    if all(check.verdict != intervals.INCONCLUSIVE for check in timed):
        return timed, None
    try:
        found = turns.measure(predictor, active, texts, limits, progress)
    except StageFailedError as error:
        progress(f"latency: {error.what}: {error.why}")
        return timed, {"active": active.name, "error": f"{error.what}: {error.why}"}
    record = found.as_json()
    progress("latency: {ratio:.3f} times the time of {active} ({low:.3f} to {high:.3f})".format(**record))
    return [turns.judge(check, found, limits) for check in timed], record


def _measure_sustained(
    predictor: Predictor, texts: Sequence[Item], limits: Limits, emulated_why: Optional[str], progress: Log
) -> Optional[sustained.SustainedRun]:
    """The sustained run; None without a limit on it, and on an emulated machine."""
    asked = limits.latency.sustained
    if asked is None or emulated_why is not None:
        return None
    progress(f"latency under sustained load: {asked.seconds:g} s")
    return sustained.measure(predictor, gate_latency.shuffled(texts), asked.seconds)


def _sustained_checks(
    long_run: Optional[sustained.SustainedRun], limits: Limits, emulated_why: Optional[str]
) -> List[GateCheck]:
    asked = limits.latency.sustained
    if asked is None:
        return []
    if long_run is not None:
        return [sustained.check(long_run, asked)]
    why = message("gate.emulated", why=emulated_why)
    return [GateCheck.unmeasured(sustained.GATE, asked.max_slowdown_percent, why)]


def _process_checks(
    release: Path, limits: Limits, threads: int, predictor: Predictor, emulated_why: Optional[str], progress: Log
) -> List[GateCheck]:
    checks = []
    texts = handler_examples.selftest_items(release, predictor.config)
    if limits.memory is not None:
        most_mib = limits.memory.peak_rss_mib
        peaks_mib = process.peaks_mib(release, threads, most_mib, progress)
        ran = message("process.texts" if predictor.config.handler is None else "process.examples", n=len(texts))
        checks.append(process.memory_check(peaks_mib, most_mib, ran, emulated_why))
    if limits.cold_start is not None:
        handler = predictor.config.handler is not None
        words = (
            [handler_examples.example_argument(release, predictor.config)] if handler else process.presentable(texts)
        )
        runs = process.cold_starts(release, words, progress)
        checks.append(process.cold_start_check(runs, limits.cold_start.ms, emulated_why))
    return checks


def _size_checks(release: Path, limits: Limits, bundle_bytes: Optional[int]) -> List[GateCheck]:
    model_bytes = weight_bytes(release / golden.MODEL_FOLDER)
    asked = (
        ("size.model_mib", model_bytes, limits.size.model_mib, message("size.weights")),
        ("size.bundle_mib", bundle_bytes, limits.size.bundle_mib, message("size.bundle")),
    )
    checks = []
    for name, size_bytes, limit_mib, file in asked:
        if limit_mib is not None and size_bytes is None:
            detail = message("size.unknown", file=file)
            checks.append(GateCheck.unmeasured(limit_named(name), limit_mib, detail))
        elif limit_mib is not None and size_bytes is not None:
            checks.append(GateCheck.read_once(limit_named(name), size_bytes / 2**20, limit=limit_mib, detail=file))
    return checks
