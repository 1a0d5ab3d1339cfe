"""Measure exported files side by side, by the runtime on the files themselves, and choose the one that ships."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from edgepack import scores
from edgepack.artifacts import DataArtifact, LedgerRow, ModelFile, Precision, Row, mebibytes
from edgepack.engines import Engine
from edgepack.graph.parity import Parity
from edgepack.progress import Progress
from edgepack.quantization import Int8Choice
from edgepack.recipe.model import Quantize
from edgepack.targets import carried, measure
from edgepack.wording import counted, mib
from edgepack_runtime import doctor

LEAST_GAIN: Final = 0.10  # INT8 ships when it is at least this much smaller and faster than the float file
LEAST_GAIN_OF_ENGINE: Final = 0.05  # of `auto`: what an engine other than the first has to be faster by
TEXTS_FILE: Final = "texts.txt"  # what `edgert bench` measures with when it is given the folders beside it
_TIMED_TEXTS = 200


@dataclass(frozen=True)
class Exported:
    """A folder as the runtime loads it; `parity` is that to the model called `before`."""

    name: str
    folder: Path
    precision: Precision
    parity: Parity
    before: str
    note: str = ""


def measured(files: Sequence[Exported], data: DataArtifact, progress: Progress) -> list[ModelFile]:
    """Latency, interleaved, and scores on test; the texts that were timed are left beside the folders."""
    test, metric = data.read("test"), scores.metric_of(data)
    texts = files[0].folder.parent / TEXTS_FILE
    texts.write_text("".join(map(_line, test[:_TIMED_TEXTS])), encoding="utf-8")
    latencies = measure.latency([file.folder for file in files], texts, progress)
    found = []
    for file, latency in zip(files, latencies, strict=True):
        differ = f"{file.parity.flips} of {file.parity.n} answers differ" if file.parity.flips else ""
        size = (file.folder / "model.onnx").stat().st_size
        row = LedgerRow(
            file.name,
            measure.score(file.folder, test, metric, progress),
            model_mib=mebibytes(size),
            p50_ms=latency.p50_ms,
            p95_ms=latency.p95_ms,
            parity=file.parity.max_abs,
            parity_with=file.before,
            note="; ".join(part for part in (file.note, differ) if part),
        )
        found.append(ModelFile(file.folder.name, file.precision, size, row))
    return found


@dataclass(frozen=True)
class OfEngine:
    """The files of one engine, float and INT8 if there is one, and how INT8 came to be."""

    engine: Engine
    files: tuple[Exported, ...]
    made: Int8Choice | None


@dataclass(frozen=True)
class Chosen:
    """What ships, and why: nothing is said where there was nothing to choose."""

    engine: Engine
    made: Int8Choice | None
    float_model: ModelFile
    int8_model: ModelFile | None
    shipped: Precision
    reason: str
    others: tuple[ModelFile, ...]

    @property
    def shipped_p50_ms(self) -> float:
        """Of the file that ships."""
        model = self.int8_model if self.shipped == "int8" and self.int8_model is not None else self.float_model
        assert model.ledger.p50_ms is not None
        return model.ledger.p50_ms


def of_engines(
    engines: Sequence[OfEngine],
    section: Quantize,
    target: str,
    data: DataArtifact,
    progress: Progress,
) -> Chosen:
    """Measure the files of all engines side by side: for each float, and INT8 if there is one.

    What ships of another engine than the first has to be faster than what ships of that by `LEAST_GAIN_OF_ENGINE`.
    Of several, what the wheels of each take on `target` is told too.
    """
    models = measured([file for one in engines for file in one.files], data, progress)
    candidates: list[Chosen] = []
    for one in engines:
        own, models = models[: len(one.files)], models[len(one.files) :]
        if own:
            candidates.append(_of_engine(one, own, section))
    for chosen in candidates:
        if chosen.reason:
            progress.line(f"{chosen.engine.title}: {chosen.reason}" if len(engines) > 1 else chosen.reason)
    best = candidates[0]
    for other in candidates[1:]:
        best = _faster(best, other)
    if len(candidates) > 1:
        best = replace(best, reason=f"{best.reason}; {_carried([one.engine for one in candidates], target, progress)}")
        progress.line(best.reason)
    return best


def _carried(engines: Sequence[Engine], target: str, progress: Progress) -> str:
    """What the wheels of each take of a device."""
    sizes = [(engine.title, carried.site_bytes(target, engine.name, progress)) for engine in engines]
    return "wheels on the device: " + ", ".join(f"{title} {mib(size)}" for title, size in sizes)


def _of_engine(one: OfEngine, models: Sequence[ModelFile], section: Quantize) -> Chosen:
    float_model, *int8_models = models
    if one.made is None:
        return Chosen(one.engine, None, float_model, None, "float32", "", ())
    shipped, reason = choose(float_model, int8_models[0], hindrances(section, one.made))
    return Chosen(one.engine, one.made, float_model, int8_models[0], shipped, reason, ())


def _faster(first: Chosen, other: Chosen) -> Chosen:
    """`other` where it is faster by enough; its ledger rows come behind those of what ships."""
    ratio = other.shipped_p50_ms / first.shipped_p50_ms
    figures = (
        f"{other.engine.title} takes {ratio:.2f} x the p50 of {first.engine.title} "
        f"({other.shipped_p50_ms:.2f} against {first.shipped_p50_ms:.2f} ms)"
    )
    if ratio <= 1 - LEAST_GAIN_OF_ENGINE:
        winner, loser, verdict = other, first, f"{figures}: it ships"
    else:
        winner, loser = first, other
        verdict = f"{figures} and must take at most {1 - LEAST_GAIN_OF_ENGINE:.2f} x: {first.engine.title} ships"
    reason = "; ".join(part for part in (winner.reason, verdict) if part)
    left = (loser.float_model, *((loser.int8_model,) if loser.int8_model else ()))
    return replace(winner, reason=reason, others=left)


def _line(row: Row) -> str:
    """A row as the runtime reads it from a line: the texts of a pair stand on both sides of a tab."""
    return "\t".join(" ".join(text.split()) for text in (row.text, row.text_pair) if text is not None) + "\n"


def choose(float_model: ModelFile, int8_model: ModelFile, hindrances: Sequence[str]) -> tuple[Precision, str]:
    """INT8 ships only where it pays: at least `LEAST_GAIN` smaller and faster than the float file.

    Where it does not, `hindrances` are what is known to be in its way.
    """
    size = int8_model.onnx_bytes / float_model.onnx_bytes
    assert int8_model.ledger.p50_ms is not None and float_model.ledger.p50_ms is not None
    speed = int8_model.ledger.p50_ms / float_model.ledger.p50_ms
    figures = f"INT8 has {size:.2f} x the bytes and {speed:.2f} x the p50 of float"
    if max(size, speed) <= 1 - LEAST_GAIN:
        return "int8", f"{figures}: INT8 ships"
    why = f" ({'; '.join(hindrances)})" if hindrances else ""
    return "float32", f"{figures}; it must have at most {1 - LEAST_GAIN:.2f} x of both: float ships{why}"


def hindrances(section: Quantize, made: Int8Choice) -> list[str]:
    """What may keep an INT8 model from being smaller or faster than float, in words."""
    found = []
    if section.embeddings == "float":
        found.append("`quantize.embeddings` keeps the word embedding float")
    if made.kept_float:
        parts = counted(len(made.kept_float), "part")
        found.append(f"`quantize.max_drop_points` keeps {parts} float: {', '.join(made.kept_float)}")
    if not doctor.int8_flags():
        found.append("this CPU has no instructions for INT8 products, as VNNI or SDOT")
    return found


def note(made: Int8Choice) -> str:
    """What the ledger says of an INT8 model."""
    lost = f"{made.way}, {made.drop_points:.2f} points below float on {made.dev_rows} dev rows"
    return f"{lost}; float: {', '.join(made.kept_float)}" if made.kept_float else lost
