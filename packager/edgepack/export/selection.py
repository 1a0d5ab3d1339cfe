"""Selection of the model that ships: latency of the exported files, interleaved, and scores on the test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, Int8Choice, LedgerRow, ModelFile, Precision, Row, Trial, mebibytes
from edgepack.onnx_graph.parity import Parity
from edgepack.progress import Progress
from edgepack.recipe.model import Quantize
from edgepack.util.text import counted
from edgepack_runtime.device import info

LEAST_GAIN: Final = 0.10  # a small file ships when it is at least this much smaller and faster than the float file
TEXTS_FILE: Final = "texts.txt"  # what `edgert bench` measures with when it is given the folders beside it
SHORT: Final[Mapping[Precision, str]] = {"float32": "float", "float16": "FP16", "int8": "INT8"}
_TIMED_TEXTS = 200


@dataclass(frozen=True)
class Exported:
    """An exported model folder. `parity` compares it with the form called `before`; None if there is no such form."""

    name: str
    folder: Path
    precision: Precision
    parity: Parity | None
    before: str
    note: str = ""


def measured(files: Sequence[Exported], data: DataArtifact, progress: Progress) -> list[ModelFile]:
    """Interleaved latency, and scores on the test rows. The timed texts are written beside the folders."""
    metric = evaluation.metric_of(data)
    texts = write_texts(data.read("test"), files[0].folder.parent)
    latencies = evaluation.latency([file.folder for file in files], texts, progress)
    found = []
    for file, latency in zip(files, latencies, strict=True):
        size = (file.folder / "model.onnx").stat().st_size
        on_test = evaluation.test_scores(file.folder, data, progress)
        row = LedgerRow(
            file.name,
            on_test[metric],
            model_mib=mebibytes(size),
            p50_ms=latency.p50_ms,
            p95_ms=latency.p95_ms,
            mean_ms=latency.mean_ms,
            parity=None if file.parity is None else file.parity.max_abs,
            parity_with=None if file.parity is None else file.before,
            note="; ".join(part for part in (file.note, differing(file.parity)) if part),
        )
        found.append(ModelFile(file.folder.name, file.precision, size, row, on_test))
    return found


def write_texts(test: Sequence[Row], folder: Path) -> Path:
    """Write the texts that models are timed with, and return their file."""
    file = folder / TEXTS_FILE
    file.write_text("".join(map(_line, test[:_TIMED_TEXTS])), encoding="utf-8")
    return file


def differing(parity: Parity | None) -> str:
    """The number of answers that differ from the form before, in words; "" if none differs."""
    if parity is None:
        return ""
    verb = "differs" if parity.flips == 1 else "differ"
    return f"{parity.flips} of {counted(parity.n, 'answer')} {verb}" if parity.flips else ""


@dataclass(frozen=True)
class Caveats:
    """Reasons against a small model before it is timed.

    `hindrances` may explain why it is not smaller or faster than float. With a `refusal` it does not ship.
    """

    hindrances: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True)
class Selection:
    """The measured models, the one that ships, and the reason; "" if there was only one."""

    float_model: ModelFile
    small_model: ModelFile | None
    ships: ModelFile
    reason: str


def measure_and_choose(
    float_file: Exported, small_file: Exported | None, caveats: Caveats, data: DataArtifact, progress: Progress
) -> Selection:
    """Measure the float model and the small one, if there is one, and choose the one that ships."""
    if small_file is None:
        (float_model,) = measured([float_file], data, progress)
        return Selection(float_model, None, float_model, "")
    float_model, small_model = measured([float_file, small_file], data, progress)
    ships, reason = choose(float_model, small_model, caveats)
    progress.line(reason)
    return Selection(float_model, small_model, ships, reason)


def _line(row: Row) -> str:
    """A row as a line for the runtime, with a tab between the texts of a pair."""
    return "\t".join(" ".join(text.split()) for text in (row.text, row.text_pair) if text is not None) + "\n"


def choose(float_model: ModelFile, small_model: ModelFile, caveats: Caveats) -> tuple[ModelFile, str]:
    """The model that ships, and the reason. The small one must be at least `LEAST_GAIN` smaller and faster."""
    size = small_model.onnx_bytes / float_model.onnx_bytes
    speed = _p50_ms(small_model) / _p50_ms(float_model)
    title = SHORT[small_model.precision]
    figures = f"{title} has {_ratio(size)} x the bytes and {_ratio(speed)} x the p50 of float"
    if caveats.refusal:
        return float_model, f"{figures}, and {caveats.refusal}: float ships"
    if max(size, speed) <= 1 - LEAST_GAIN:
        return small_model, f"{figures}: {title} ships"
    why = f" ({'; '.join(caveats.hindrances)})" if caveats.hindrances else ""
    return float_model, f"{figures}; it must have at most {1 - LEAST_GAIN:.2f} x of both: float ships{why}"


def choose_imported(float_model: ModelFile, small_model: ModelFile, limit_points: float) -> tuple[ModelFile, str]:
    """`choose` for an imported model, whose INT8 may lose `limit_points` of its score."""
    lost = 100 * (float_model.ledger.score.value - small_model.ledger.score.value)
    exceeds = evaluation.exceeds(lost, limit_points)
    refusal = f"it loses {lost:.2f} points, where {limit_points:g} may be lost" if exceeds else ""
    return choose(float_model, small_model, Caveats(refusal=refusal))


def _ratio(value: float) -> str:
    """A ratio with two decimals, or with more where these would hide that it is above the limit."""
    digits = next((digits for digits in (2, 3) if round(value, digits) != 1 - LEAST_GAIN), 4)
    return f"{value:.{2 if value <= 1 - LEAST_GAIN else digits}f}"


def _p50_ms(model: ModelFile) -> float:
    assert model.ledger.p50_ms is not None, "every exported file is measured"
    return model.ledger.p50_ms


def caveats_of_int8(section: Quantize, made: Int8Choice) -> Caveats:
    """Reasons against an INT8 model: float parts, a CPU without INT8 instructions, a loss above the limit."""
    found = []
    if section.embeddings == "float":
        found.append("`quantize.embeddings` keeps the word embedding float")
    if made.kept_float:
        parts = counted(len(made.kept_float), "part")
        found.append(f"`quantize.max_drop_points` keeps {parts} float: {', '.join(made.kept_float)}")
    if not info.int8_flags():
        found.append("this CPU has no instructions for INT8 products, as VNNI or SDOT")
    return Caveats(tuple(found))


def caveats_of_float16(trial: Trial, may_lose_points: float) -> Caveats:
    """Reasons against a float16 model: a loss above the limit, a CPU on which ONNX Runtime computes it in float32."""
    found = () if info.half_flags() else ("on this CPU ONNX Runtime computes float16 in float32",)
    if evaluation.exceeds(trial.drop_points, may_lose_points):
        limit = f"{may_lose_points:g} may be lost (`quantize.max_drop_points`)"
        return Caveats(found, f"it loses {trial.drop_points:.2f} points on dev, where {limit}")
    return Caveats(found)


def describe_choice(choice: Int8Choice, *, reduced: bool = False) -> str:
    """The ledger's note on an INT8 model; `reduced` ones have weights of 7 bits."""
    method = f"{choice.method}, weights of 7 bits" if reduced else choice.method
    text = f"{method}, {describe_drop(choice.drop_points, choice.dev_rows)}"
    return f"{text}; float: {', '.join(choice.kept_float)}" if choice.kept_float else text


def describe_drop(drop_points: float, dev_rows: int) -> str:
    """The loss of a small model, in words."""
    side = "above" if drop_points < 0 else "below"
    return f"{abs(drop_points):.2f} points {side} float on {counted(dev_rows, 'dev row')}"
