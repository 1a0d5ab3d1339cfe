"""Variants of the model for targets with other arithmetic than this machine.

A GPU does not run the INT8 operators of CPUs, and is fastest in float16. An x86 CPU without VNNI adds pairs of 8-bit
products in 16 bits with saturation, which weights of 7 bits avoid. This machine's CPU scores a variant; its latency is
measured on the target, by the gate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import onnx

from edgepack import evaluation
from edgepack.artifacts import Int8Choice, LedgerRow, ModelFile, Precision, Row, Variation, mebibytes
from edgepack.export import int8_search, selection
from edgepack.export.int8_search import Trials
from edgepack.export.model_folder import ModelWriter
from edgepack.messages import joined, message
from edgepack.onnx_graph import parity
from edgepack.onnx_graph.encoder import Encoder
from edgepack.progress import Progress
from edgepack.recipe.model import Quantize
from edgepack.targets.profiles import Profile
from edgepack_runtime.bundle.model_config import CUDA, EngineConfig

_VNNI: Final = frozenset({"avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8"})


@dataclass(frozen=True)
class Variant:
    """A variant for CPUs, or with `gpu` for CUDA; with `reduced` its weights have 7 bits.

    `precision` applies unless it loses more than the recipe allows.
    """

    name: str
    precision: Precision
    why: str
    gpu: bool = False
    reduced: bool = False


@dataclass(frozen=True)
class VariantSource:
    """The models of this build from which variants are made.

    `encoder` is None if the graph was not recognised. `ranged` has the ranges of the INT8 model `made`, if there is
    one.
    """

    writer: ModelWriter
    float_folder: Path
    graph: onnx.ModelProto
    encoder: Encoder | None
    ranged: Encoder | None
    made: Int8Choice | None
    shipped: Precision


def variant_of(profile: Profile, section: Quantize) -> Variant | None:
    """The variant that a target needs; None if it takes the model of this machine."""
    if profile.provider == CUDA:
        precision: Precision = "float32" if section.method == "none" else "float16"
        return Variant("cuda", precision, message("ship.cuda", provider=CUDA), gpu=True)
    lacks_vnni = "x86_64" in profile.machines and profile.isa is not None and not _VNNI.intersection(profile.isa)
    if lacks_vnni and section.makes_int8 and not section.reduced_range:
        return Variant("7-bits", "int8", message("ship.no_vnni"), reduced=True)
    return None


def wanted(profiles: Iterable[Profile], section: Quantize) -> dict[Variant, tuple[str, ...]]:
    """Each variant with the names of its targets."""
    found: dict[Variant, tuple[str, ...]] = {}
    for profile in profiles:
        variant = variant_of(profile, section)
        if variant is not None:
            found[variant] = (*found.get(variant, ()), profile.name)
    return found


def make(
    variant: Variant,
    targets: tuple[str, ...],
    source: VariantSource,
    section: Quantize,
    rows: Sequence[Row],
    float_logits: Sequence[npt.NDArray[np.float32]],
    out: Path,
    progress: Progress,
) -> Variation | None:
    """Write `onnx-NAME/` into `out` and score it here; None if it equals the model of other targets.

    Args:
        rows: dev rows for the parity, with their `float_logits`.

    Raises:
        StageFailedError: a logit is not a finite number.
    """
    if not variant.gpu and source.shipped != "int8":
        return None
    engine = EngineConfig(CUDA) if variant.gpu else source.writer.engine
    writer = replace(source.writer, engine=engine, reduced=variant.reduced or section.reduced_range)
    precision, encoder, why = _decided(variant, source, writer, section, out, progress)
    folder = out / f"onnx-{variant.name}"
    if encoder is None:
        writer.write(folder, source.graph, "float32", as_laid_out=False)
    else:
        writer.write_as(precision, folder, encoder)
    name = f"{selection.SHORT[precision]} ONNX ({variant.name})"
    close = parity.require(
        float_logits, evaluation.logits(evaluation.opened(folder), rows), math.inf, f"float ONNX and {name}"
    )
    on_test = evaluation.test_scores(folder, writer.data, progress)
    row = LedgerRow(
        name,
        on_test[evaluation.metric_of(writer.data)],
        model_mib=mebibytes((folder / "model.onnx").stat().st_size),
        parity=close.max_abs,
        parity_with="float ONNX",
        note=message("note.variant", targets=targets, why=why),
    )
    progress.line(f"{name}: {row.note}")
    size = (folder / "model.onnx").stat().st_size
    return Variation(targets, ModelFile(folder.name, precision, size, row, on_test), why)


def _decided(
    variant: Variant, source: VariantSource, writer: ModelWriter, section: Quantize, out: Path, progress: Progress
) -> tuple[Precision, Encoder | None, str]:
    """The precision of the variant, its encoder, and the reason."""
    if source.encoder is None or variant.precision == "float32":
        return "float32", source.encoder, variant.why if source.encoder else message("ship.not_understood")
    float_model = evaluation.opened(source.float_folder)
    if variant.precision == "int8":
        if source.made is None or source.ranged is None:
            return "float32", source.encoder, message("ship.nothing")
        trials = Trials(float_model, writer.trial("int8", out), writer.data, progress)
        encoder, made = int8_search.elsewhere(source.ranged, source.made, trials, progress)
        return "int8", encoder, joined(variant.why, selection.describe_choice(made, reduced=writer.reduced))
    trials = Trials(float_model, writer.trial("float16", out), writer.data, progress)
    trial = trials.trial("float16", source.encoder)
    lost = selection.describe_drop(trial.drop_points, len(trials.rows))
    if evaluation.exceeds(trial.drop_points, trials.may_lose(section.max_drop_points)):
        return "float32", source.encoder, message("ship.half_loses", lost=lost)
    return "float16", source.encoder, joined(variant.why, lost)
