"""Measure exported files side by side, by the runtime on the files themselves, and choose the one that ships."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from edgepack import scores
from edgepack.artifacts import DataArtifact, LedgerRow, ModelFile, Precision, Row, mebibytes
from edgepack.engines import Engine
from edgepack.graph.parity import Parity
from edgepack.progress import Progress
from edgepack.quantization import Int8Choice, Tried
from edgepack.recipe.model import Quantize
from edgepack.targets import carried, measure
from edgepack.targets.supply import Supply
from edgepack.wording import counted, mib
from edgepack_runtime import device

LEAST_GAIN: Final = 0.10  # a small file ships when it is at least this much smaller and faster than the float file
LEAST_GAIN_OF_ENGINE: Final = 0.05  # of `auto`: what an engine other than the first has to be faster by
TEXTS_FILE: Final = "texts.txt"  # what `edgert bench` measures with when it is given the folders beside it
SHORT: Final[Mapping[Precision, str]] = {"float32": "float", "float16": "FP16", "int8": "INT8"}
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
        size = (file.folder / "model.onnx").stat().st_size
        on_test = measure.test_scores(file.folder, data, progress)
        row = LedgerRow(
            file.name,
            on_test[metric],
            model_mib=mebibytes(size),
            p50_ms=latency.p50_ms,
            p95_ms=latency.p95_ms,
            parity=file.parity.max_abs,
            parity_with=file.before,
            note="; ".join(part for part in (file.note, differing(file.parity)) if part),
        )
        found.append(ModelFile(file.folder.name, file.precision, size, row, on_test))
    return found


def differing(parity: Parity) -> str:
    """How many answers are not those of the model before, in words; empty where none is."""
    verb = "differs" if parity.flips == 1 else "differ"
    return f"{parity.flips} of {counted(parity.n, 'answer')} {verb}" if parity.flips else ""


@dataclass(frozen=True)
class Doubts:
    """What speaks against a small model before it is timed, in words.

    `hindrances` may keep it from being smaller or faster than float; with a `refusal` it does not ship whatever it is.
    """

    hindrances: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True)
class OfEngine:
    """The files of one engine, float and a small one if there is one; of INT8 also how that came to be."""

    engine: Engine
    files: tuple[Exported, ...]
    doubts: Doubts = Doubts()
    made: Int8Choice | None = None


@dataclass(frozen=True)
class Chosen:
    """What ships, and why: nothing is said where there was nothing to choose."""

    engine: Engine
    made: Int8Choice | None
    float_model: ModelFile
    small_model: ModelFile | None
    ships: ModelFile
    reason: str
    others: tuple[ModelFile, ...]


def of_engines(
    engines: Sequence[OfEngine],
    target: str,
    data: DataArtifact,
    supply: Supply,
    progress: Progress,
) -> Chosen:
    """Measure the files of all engines side by side: for each float, and the small one if there is one.

    A small one has to be worth it beside the fastest float file, whichever engine that is for. What would ship of
    another engine than the first has to be faster than what would of that by `LEAST_GAIN_OF_ENGINE`.
    Of several, what the wheels of each take on `target` is told too.
    """
    models = iter(measured([file for one in engines for file in one.files], data, progress))
    files = [(one, [next(models) for _ in one.files]) for one in engines]
    floats = [(one.engine, float_model) for one, (float_model, *_) in files]
    fastest = min(floats, key=lambda one: _p50_ms(one[1]))
    candidates = [_of_engine(one, own, fastest) for one, own in files]
    for chosen in candidates:
        if chosen.reason:
            progress.line(f"{chosen.engine.title}: {chosen.reason}" if len(engines) > 1 else chosen.reason)
    best = candidates[0]
    for other in candidates[1:]:
        best = _faster(best, other)
    if len(candidates) > 1:
        best = replace(
            best, reason=f"{best.reason}; {_carried([one.engine for one in candidates], target, supply, progress)}"
        )
        progress.line(best.reason)
    return best


def _carried(engines: Sequence[Engine], target: str, supply: Supply, progress: Progress) -> str:
    """What the wheels of each take of a device."""
    sizes = [(engine.title, carried.site_bytes(target, engine.name, supply, progress)) for engine in engines]
    return "wheels on the device: " + ", ".join(f"{title} {mib(size)}" for title, size in sizes)


def _of_engine(one: OfEngine, models: Sequence[ModelFile], fastest: tuple[Engine, ModelFile]) -> Chosen:
    """What would ship of one engine; `fastest` is the fastest float file of all, with its engine."""
    float_model, *small_models = models
    if not small_models:
        return Chosen(one.engine, None, float_model, None, float_model, "", ())
    engine, base = fastest
    ships, reason = choose(float_model, small_models[0], one.doubts, base, "" if base is float_model else engine.title)
    return Chosen(one.engine, one.made, float_model, small_models[0], ships, reason, ())


def _faster(first: Chosen, other: Chosen) -> Chosen:
    """`other` where it is faster by enough; its ledger rows come behind those of what ships."""
    other_ms, first_ms = _p50_ms(other.ships), _p50_ms(first.ships)
    ratio = other_ms / first_ms
    figures = (
        f"{other.engine.title} takes {ratio:.2f} x the p50 of {first.engine.title} "
        f"({other_ms:.2f} against {first_ms:.2f} ms)"
    )
    if ratio <= 1 - LEAST_GAIN_OF_ENGINE:
        winner, loser, verdict = other, first, f"{figures}: it ships"
    else:
        winner, loser = first, other
        verdict = f"{figures} and must take at most {1 - LEAST_GAIN_OF_ENGINE:.2f} x: {first.engine.title} ships"
    reason = "; ".join(part for part in (winner.reason, verdict) if part)
    left = (loser.float_model, *((loser.small_model,) if loser.small_model else ()))
    return replace(winner, reason=reason, others=left)


def _line(row: Row) -> str:
    """A row as the runtime reads it from a line: the texts of a pair stand on both sides of a tab."""
    return "\t".join(" ".join(text.split()) for text in (row.text, row.text_pair) if text is not None) + "\n"


def choose(
    float_model: ModelFile, small_model: ModelFile, doubts: Doubts, base: ModelFile | None = None, base_engine: str = ""
) -> tuple[ModelFile, str]:
    """The small model ships only where it pays: at least `LEAST_GAIN` smaller and faster than float.

    Where it does not, the reason names what is known to be in its way.

    Args:
        float_model: of the same engine: what ships instead.
        base: the float file that it is held against, where that is another engine's.
        base_engine: the name of that engine.
    """
    base = base or float_model
    size = small_model.onnx_bytes / base.onnx_bytes
    speed = _p50_ms(small_model) / _p50_ms(base)
    title = SHORT[small_model.precision]
    against = f"float on {base_engine}, which is faster" if base_engine else "float"
    figures = f"{title} has {size:.2f} x the bytes and {speed:.2f} x the p50 of {against}"
    if doubts.refusal:
        return float_model, f"{figures}, and {doubts.refusal}: float ships"
    if max(size, speed) <= 1 - LEAST_GAIN:
        return small_model, f"{figures}: {title} ships"
    why = f" ({'; '.join(doubts.hindrances)})" if doubts.hindrances else ""
    return float_model, f"{figures}; it must have at most {1 - LEAST_GAIN:.2f} x of both: float ships{why}"


def _p50_ms(model: ModelFile) -> float:
    assert model.ledger.p50_ms is not None, "every exported file is measured"
    return model.ledger.p50_ms


def doubts_of_int8(section: Quantize, made: Int8Choice) -> Doubts:
    """What keeps from INT8 what it gains elsewhere: parts that are float, a CPU without instructions for it."""
    found = []
    if section.embeddings == "float":
        found.append("`quantize.embeddings` keeps the word embedding float")
    if made.kept_float:
        parts = counted(len(made.kept_float), "part")
        found.append(f"`quantize.max_drop_points` keeps {parts} float: {', '.join(made.kept_float)}")
    if not device.int8_flags():
        found.append("this CPU has no instructions for INT8 products, as VNNI or SDOT")
    return Doubts(tuple(found))


def doubts_of_float16(tried: Tried, may_lose_points: float) -> Doubts:
    """What it loses on dev, where that is more than it may; a CPU whose engines do not compute in float16."""
    found = () if device.half_flags() else ("on this CPU the engine computes float16 in float32",)
    if scores.exceeds(tried.drop_points, may_lose_points):
        limit = f"{may_lose_points:g} may be lost (`quantize.max_drop_points`)"
        return Doubts(found, f"it loses {tried.drop_points:.2f} points on dev, where {limit}")
    return Doubts(found)


def note(made: Int8Choice, *, reduced: bool = False) -> str:
    """What the ledger says of an INT8 model; `reduced` ones have weights of 7 bits."""
    way = f"{made.way}, weights of 7 bits" if reduced else made.way
    told = f"{way}, {lost(made.drop_points, made.dev_rows)}"
    return f"{told}; float: {', '.join(made.kept_float)}" if made.kept_float else told


def lost(drop_points: float, dev_rows: int) -> str:
    """What a small model loses, in words."""
    return f"{drop_points:.2f} points below float on {counted(dev_rows, 'dev row')}"
