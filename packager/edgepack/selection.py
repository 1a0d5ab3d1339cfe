"""What is known of the candidates of a search when one of them is chosen."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.artifacts import Artifact, Precision, Score
from edgepack.recipe.model import Prefer


@dataclass(frozen=True)
class Compared:
    """What is known of a candidate when one is chosen: nothing of it comes from the answers to test rows.

    `dev_score`, `precision`, `onnx_bytes` and the times (text in to label out, batch 1, one thread, all
    candidates interleaved) are of the file that would ship, by the runtime; `p95_ms` is null where texts are too few.
    `missed` names the gates that it misses, as far as dev rows and the machine of the build can tell.
    """

    name: str
    dev_score: Score
    parameters: int
    weight_bytes: int
    train_seconds: float
    precision: Precision
    onnx_bytes: int
    p50_ms: float
    p95_ms: float | None
    missed: tuple[str, ...] = ()


@dataclass(frozen=True)
class SelectArtifact(Artifact):
    """Which of several candidates goes on, and why, in words.

    `left_out` failed, for `untried` there was no time; `not_judged` are gates that could not be judged, and why not.
    `tolerance_points` is null where a dev score may be any distance below the best.
    """

    candidates: tuple[Compared, ...]  # in the order of the recipe
    chosen: str  # name of one of them
    why: str
    tolerance_points: float | None
    prefer: Prefer = "latency"
    left_out: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
