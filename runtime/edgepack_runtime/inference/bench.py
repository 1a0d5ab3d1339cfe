"""Side-by-side timing of model folders on this device, text in to answer out, batch 1.

The models take turns on every text, so that changing clocks and other programs affect all of them alike. Ratios are
computed per round, under the same conditions.
"""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from edgepack_runtime.bundle.model_config import weight_bytes
from edgepack_runtime.device import conditions
from edgepack_runtime.errors import UsageError, printed
from edgepack_runtime.inference.loaded_model import Split
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.schema.conditions import Conditions
from edgepack_runtime.schema.fields import to_json
from edgepack_runtime.stats import intervals
from edgepack_runtime.util import columns
from edgepack_runtime.util.progress import Log, Pace
from edgepack_runtime.util.texts import Item

WARM_UP_TEXTS = 20
CONFIDENCE = 0.98  # two-sided: each end holds at 99 %, as in MLPerf Inference's early stopping


@dataclasses.dataclass(frozen=True)
class Timed:
    """One model's timings. `rounds[r][i]` is text i in round r."""

    folder: Path
    precision: str
    onnx_bytes: int
    engine: str
    providers: Sequence[str]
    threads: int
    rounds: Sequence[Sequence[Split]]

    @property
    def samples(self) -> List[Split]:
        return [sample for one in self.rounds for sample in one]


def take_turns(
    predictors: Sequence[Predictor], texts: Sequence[Item], rounds: int, progress: Log
) -> List[List[List[Split]]]:
    """Time every predictor on every text in every round: `result[model][round][text]`.

    Before the first round each predictor gets up to 20 warm-up texts. The order changes with every text, since the
    first predictor finds the caches filled by the last.
    """
    for predictor in predictors:
        for text in texts[:WARM_UP_TEXTS]:
            predictor.predict(text)
    result: List[List[List[Split]]] = [[] for _ in predictors]
    pace = Pace()
    for number in range(rounds):
        splits: List[List[Split]] = [[] for _ in predictors]
        for position, text in enumerate(texts):
            for turn in range(len(predictors)):
                model = (turn + position + number) % len(predictors)
                splits[model].append(predictors[model].timed_predict(text)[1])
        for model, one in enumerate(splits):
            result[model].append(one)
        medians = ", ".join(f"{p50_ms(one):.3f} ms" for one in splits)
        if pace.is_due() or number + 1 == rounds:
            progress(f"round {number + 1} of {rounds}: {medians}")
    return result


def measure(
    folders: Sequence[Path], texts: Sequence[Item], *, threads: Optional[int], runs: int, progress: Log
) -> List[Timed]:
    """Time the model `folders` on `texts` in `runs` rounds, taking turns. Errors and `threads` as for `Predictor`.

    Raises:
        UsageError: there is nothing to measure.
    """
    if not folders or not texts or runs < 1:
        raise UsageError("there is nothing to measure", fix="name at least one model folder, one text and one run")
    predictors = [Predictor(folder, threads=threads) for folder in folders]
    timings = take_turns(predictors, texts, runs, progress)
    return [
        Timed(
            folder=folder,
            precision=p.config.precision,
            onnx_bytes=weight_bytes(folder),
            engine=p.engine,
            providers=p.providers,
            threads=p.tuning.threads,
            rounds=rounds,
        )
        for folder, p, rounds in zip(folders, predictors, timings)
    ]


def summarize(samples: Sequence[Split]) -> Dict[str, Any]:
    """Mean and percentiles in ms of the total, and medians of its parts.

    A percentile is None if the samples are too few for it.
    """
    totals = sorted(sample.total_ms for sample in samples)
    row: Dict[str, Any] = {"n": len(totals), "mean_ms": _rounded(statistics.fmean(totals))}
    row["p50_ms"] = _rounded(intervals.percentile(totals, 0.5))
    for name, fraction in (("p95_ms", 0.95), ("p99_ms", 0.99)):
        enough = len(totals) >= intervals.n_for_percentile(fraction, CONFIDENCE)
        row[name] = _rounded(intervals.percentile(totals, fraction)) if enough else None
    for part in Split._fields:
        name = part.replace("_ms", "_p50_ms")
        row[name] = _rounded(statistics.median(getattr(sample, part) for sample in samples))
    return row


def compare(
    model_folders: Sequence[Path], texts: Sequence[Item], *, threads: Optional[int], runs: int, progress: Log
) -> Dict[str, Any]:
    """Time `model_folders` side by side; the first is the reference.

    Args:
        texts: predicted one by one, all of them in every round; pairs for text-pair models.
        threads: threads for each model; None: what `tune` found for it, or 1.
        runs: rounds.

    Returns:
        `models`: for each, bytes of its weights, n, mean and percentiles in ms; `ratios`: for each but the first, the
        median over the rounds of (its p50 / the first's p50), with the 5th and 95th percentile of those ratios (null
        below 20 rounds); `conditions`.
    """
    where = conditions.collect(threads=1, engine="", providers=())
    timed = measure(model_folders, texts, threads=threads, runs=runs, progress=progress)
    where = dataclasses.replace(
        where,
        threads=max(one.threads for one in timed),
        engine=", ".join(dict.fromkeys(one.engine for one in timed)),
        providers=tuple(dict.fromkeys(provider for one in timed for provider in one.providers)),
        after=conditions.collect_changing(),
    )
    return {
        "bench": 1,
        "texts": len(texts),
        "rounds": runs,
        "models": [
            {
                "folder": str(one.folder),
                "engine": one.engine,
                "threads": one.threads,
                "precision": one.precision,
                "onnx_bytes": one.onnx_bytes,
                **summarize(one.samples),
            }
            for one in timed
        ],
        "ratios": [_ratio(one, timed[0]) for one in timed[1:]],
        "conditions": to_json(where),
    }


def _ratio(one: Timed, base: Timed) -> Dict[str, Any]:
    ratios = sorted(p50_ms(ours) / p50_ms(theirs) for ours, theirs in zip(one.rounds, base.rounds))
    spread = len(ratios) >= 20  # with fewer rounds the 5th percentile would be the minimum
    return {
        "folder": str(one.folder),
        "against": str(base.folder),
        "p50_ratio": _rounded(statistics.median(ratios)),
        "low": _rounded(intervals.percentile(ratios, 0.05)) if spread else None,
        "high": _rounded(intervals.percentile(ratios, 0.95)) if spread else None,
        "bytes_ratio": _rounded(one.onnx_bytes / base.onnx_bytes),
    }


def p50_ms(samples: Sequence[Split]) -> float:
    """Median time of a text."""
    return statistics.median(sample.total_ms for sample in samples)


def render(result: Mapping[str, Any]) -> str:
    """Format the result of `compare` as a table."""
    names = _names(result["models"])
    heads = ("model", "MiB", "threads", "mean ms", "p50 ms", "p95 ms", "p99 ms", "tokenize", "run", "post", "n")
    rows = [heads] + [
        (
            names[model["folder"]],
            "{:.1f}".format(model["onnx_bytes"] / 2**20),
            str(model["threads"]),
            *(_cell(model[key]) for key in ("mean_ms", "p50_ms", "p95_ms", "p99_ms")),
            *(_cell(model[key]) for key in ("tokenize_p50_ms", "run_p50_ms", "post_p50_ms")),
            str(model["n"]),
        )
        for model in result["models"]
    ]
    lines = table(rows)
    for ratio in result["ratios"]:
        ours, theirs = names[ratio["folder"]], names[ratio["against"]]
        spread = "" if ratio["low"] is None else " (5-95 % of rounds: {low:.2f}-{high:.2f})".format(**ratio)
        lines.append("{} takes {:.2f} x the time of {}{}".format(ours, ratio["p50_ratio"], theirs, spread))
    where = Conditions.of(result["conditions"])
    lines.append(", ".join(filter(None, (where.gpu, where.cpu_model, where.engine))))
    if where.emulated:
        lines.append(f"THIS MACHINE IS EMULATED ({where.emulated_why}): the times mean nothing")
    return printed(lines)


def table(rows: Sequence[Sequence[str]]) -> List[str]:
    """Lines with `rows` as columns: the first to the left, the others to the right; no trailing spaces."""
    widths = [max(map(columns.width, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        first, *blanks = (" " * (width - columns.width(cell)) for cell, width in zip(row, widths))
        cells = [row[0] + first, *(blank + cell for blank, cell in zip(blanks, row[1:]))]
        lines.append("  ".join(cells).rstrip())
    return lines


def _names(models: Sequence[Mapping[str, Any]]) -> Dict[str, str]:
    """Folder -> display name: its name, or the whole path if two folders share a name."""
    short = {model["folder"]: Path(model["folder"]).name for model in models}
    return short if len(set(short.values())) == len(short) else {folder: folder for folder in short}


def _cell(value: Optional[float]) -> str:
    return "-" if value is None else f"{value:.3f}"


def _rounded(value: float) -> float:
    return round(value, 4)
