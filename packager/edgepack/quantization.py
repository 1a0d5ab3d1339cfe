"""What is decided about INT8: ranges, the ways to get them, and what each part of a model costs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Method = Literal["ptq", "qat", "dynamic"]


def weight_digest(weight: npt.NDArray[np.generic]) -> str:
    """sha256 of a weight's float32 values, row-major, shape (in, out).

    Exporters rename parameters; the values are the one name that survives them.
    """
    return hashlib.sha256(np.ascontiguousarray(weight, dtype=np.float32).tobytes()).hexdigest()


@dataclass(frozen=True)
class LinearScales:
    """Quantization ranges of one Linear layer, from PaddleSlim's observers or quanters.

    `weight_sha256` is `weight_digest` of the weight; `weight_abs_max` has one entry an output column. `activation` is
    the lowest and the highest value of its input, or null where that is found in each run.
    """

    layer: str
    weight_sha256: str
    activation: tuple[float, float] | None
    weight_abs_max: tuple[float, ...]


@dataclass(frozen=True)
class Quantization:
    """One way to make a model INT8: the ranges of every Linear.

    `observer`, or of `qat` the quanter, decided those of activations; nobody where they are found in each run.
    `weights` is the folder, in that of the artifact, of a PaddleNLP model whose weights were trained to be rounded;
    null for the student's own.
    """

    method: Method
    observer: str | None
    linears: tuple[LinearScales, ...]
    weights: str | None = None

    @property
    def name(self) -> str:
        """`ptq (hist)`, `qat (lsq)`, `dynamic`."""
        return self.method if self.observer is None else f"{self.method} ({self.observer})"


@dataclass(frozen=True)
class Tried:
    """A way to quantize on the dev rows: percentage points of the metric below float, and how far answers diverge.

    `divergence` is the mean over rows, in nats, of KL(answer of float || answer of INT8).
    """

    way: str
    drop_points: float
    divergence: float


@dataclass(frozen=True)
class PartCost:
    """What it costs that one part of a model is INT8: how much less answers diverge, in nats, where it alone is not."""

    part: str
    divergence: float


@dataclass(frozen=True)
class Int8Choice:
    """How the INT8 model came to be, by dev rows alone: the way that lost least, and the parts that went back to float.

    `parts` are in the order in which they would go back; `kept_float` are the first of them that did. `drop_points`
    is what is lost in the end; `limit_points` is what may be, null for anything.
    """

    tried: tuple[Tried, ...]
    way: str
    parts: tuple[PartCost, ...]
    kept_float: tuple[str, ...]
    drop_points: float
    limit_points: float | None
    dev_rows: int
