"""Selection of the model that ships: latency of the exported files, interleaved, and scores on the test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, Int8Choice, LedgerRow, ModelFile, Precision, Row, Trial, mebibytes
from edgepack.messages import joined, message
from edgepack.onnx_graph.parity import Parity
from edgepack.progress import Progress
from edgepack.recipe.model import LEAST_GAIN, Quantize
from edgepack_runtime.device import info

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
            note=joined(file.note, differing(file.parity)),
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
    differ = "note.differs" if parity.flips == 1 else "note.differ"
    return message(differ, flips=parity.flips, n=parity.n) if parity.flips else ""


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
    figures = message("ship.figures", title=title, size=_ratio(size), speed=_ratio(speed))
    if caveats.refusal:
        return float_model, message("ship.refused", figures=figures, refusal=caveats.refusal)
    if max(size, speed) <= 1 - LEAST_GAIN:
        return small_model, message("ship.small", figures=figures, title=title)
    kept = message("ship.float", figures=figures, most=1 - LEAST_GAIN)
    hindered = caveats.hindrances
    return float_model, message("ship.hindered", reason=kept, why=joined(*hindered)) if hindered else kept


def choose_imported(
    float_model: ModelFile, small_model: ModelFile, limit_points: float, hundred_points: float = 1.0
) -> tuple[ModelFile, str]:
    """`choose` for an imported model, whose INT8 may lose `limit_points` of its score.

    Args:
        hundred_points: see `tasks.task` of the runtime.
    """
    lost = 100 * float_model.ledger.score.gain_over(small_model.ledger.score) / hundred_points
    exceeds = evaluation.exceeds(lost, limit_points)
    refusal = message("ship.loses", lost=lost, most=limit_points) if exceeds else ""
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
    found: list[str] = []
    if section.embeddings == "float":
        found.append(message("ship.embeddings"))
    if made.kept_float:
        found.append(message("ship.kept_float", n=len(made.kept_float), parts=made.kept_float))
    if not info.int8_flags():
        found.append(message("ship.no_int8"))
    return Caveats(tuple(found))


def caveats_of_float16(trial: Trial, may_lose_points: float) -> Caveats:
    """Reasons against a float16 model: a loss above the limit, a CPU on which ONNX Runtime computes it in float32."""
    found = () if info.half_flags() else (message("ship.no_half"),)
    if evaluation.exceeds(trial.drop_points, may_lose_points):
        return Caveats(found, message("ship.loses_on_dev", lost=trial.drop_points, most=may_lose_points))
    return Caveats(found)


def describe_choice(choice: Int8Choice, *, reduced: bool = False) -> str:
    """The ledger's note on an INT8 model; `reduced` ones have weights of 7 bits."""
    bits = message("note.seven_bits") if reduced else ""
    text = joined(choice.method, bits, describe_drop(choice.drop_points, choice.dev_rows), by="list.comma")
    return joined(text, message("note.in_float", parts=choice.kept_float)) if choice.kept_float else text


def describe_drop(drop_points: float, dev_rows: int) -> str:
    """The loss of a small model, in words."""
    return message("note.above" if drop_points < 0 else "note.below", points=abs(drop_points), rows=dev_rows)
