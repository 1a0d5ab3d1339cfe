"""Stage `quantize`: find the quantization ranges of the student with PaddleSlim."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from edgepack.artifacts import DataArtifact, ModelArtifact, Quantization, Row, ScalesArtifact, Split
from edgepack.data.sampling import Sampler
from edgepack.recipe.model import Calibration, Observer, Quantize
from edgepack.recipe.training import Student
from edgepack.stages import keys
from edgepack.stages.stage import TRAINING, Context, Input, Stage
from edgepack.training import environment

_WEIGHTS_FOLDER = "weights"  # of the model that `qat` trained


@dataclass(frozen=True)
class QuantizeStage(Stage[ScalesArtifact]):
    """Finds ranges on the calibration rows, a sample of the training rows. `dynamic` needs the weights only.

    `qat` starts from observed ranges and trains; settings that `section` lacks come from `training`. It continues from
    its checkpoint and writes its weights beside the ranges. `fp16` and `none` need no ranges.
    """

    section: Quantize
    sample: Calibration
    seed: int
    training: Student | None
    rows: Stage[DataArtifact]
    student: Stage[ModelArtifact]

    name = "quantize"
    version = 8
    kind = ScalesArtifact
    libraries = (*TRAINING, "paddleslim")
    recipe_keys = {  # noqa: RUF012 - never changed
        "quantize": "quantize",
        "calibration": "data.calibration",
        "seed": "data.seed",
        "training": "student",
    }

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows, self.student)

    def decides(self, ctx: Context) -> Any:
        values = {"quantize": keys.dump(self.section), "calibration": keys.dump(self.sample), "seed": self.seed}
        training = self.training if self._trains else None
        return values | ({} if training is None else {"training": keys.training_section(training)})

    def inputs(self, ctx: Context) -> list[Input]:
        rows = ctx[self.rows]
        found = [*keys.labelled(rows), *keys.model(ctx[self.student])]
        return found + (keys.unlabelled(rows) if self._trains else [])

    @property
    def _trains(self) -> bool:
        return self.section.method == "qat"

    def run(self, ctx: Context, out: Path) -> ScalesArtifact:
        section, progress = self.section, ctx.progress
        if not section.makes_int8:
            return ScalesArtifact(out, ways=(), calibration_rows=0)
        environment.start(progress)
        from edgepack.training.finetune import reopen
        from edgepack.training.quantization.observers import observe, weights_alone

        data, student = ctx.artifact(self.rows), ctx.artifact(self.student)
        if section.qat is not None and self.training is not None:
            from edgepack.training.quantization.qat import relearn

            sampled = calibration_rows(data, self.sample, self.seed)
            folder = out / _WEIGHTS_FOLDER
            linears = relearn(section, self.training, data, student, sampled, folder, progress, ctx.checkpoint)
            way = Quantization("qat", section.qat.quanter, linears, _WEIGHTS_FOLDER)
            return ScalesArtifact(out, ways=(way,), calibration_rows=len(sampled))
        classifier = reopen(student, data)
        dynamic = Quantization("dynamic", None, weights_alone(classifier))
        if section.method == "dynamic":
            return ScalesArtifact(out, ways=(dynamic,), calibration_rows=0)
        observers = get_args(Observer) if section.method == "auto" else (section.observer,)
        rows = classifier.encode(calibration_rows(data, self.sample, self.seed))
        observed = [Quantization("ptq", name, observe(classifier, rows, name, progress)) for name in observers]
        ways = (*observed, dynamic) if section.method == "auto" else tuple(observed)
        return ScalesArtifact(out, ways, calibration_rows=len(rows))


def calibration_rows(data: DataArtifact, sample: Calibration, seed: int) -> list[Row]:
    """A seeded sample of the training rows, in their order; of the dev rows if there are no others."""
    split: Split = "train" if "train" in data.rows else "dev"
    draw = Sampler(sample.rows, data.rows[split], f"calibration/{seed}")
    return [row for row in data.read(split) if draw()]
