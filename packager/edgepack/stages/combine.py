"""Stage `combine`: choose between the shipped encoder, the linear model, and both together.

Weights and the limit of a cascade are fitted on dev rows; test rows decide nothing. `auto` knows the accuracy
gates that will judge the bundle: it prefers what keeps them on the dev rows. The sum is that of Cheng et al., "Wide &
Deep Learning" (2016); a cascade runs the expensive model only where the cheap one is unsure (Viola and Jones, 2001).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from edgepack import evaluation
from edgepack.artifacts import (
    CombineArtifact,
    CombineFit,
    CombineMethod,
    CombineName,
    DataArtifact,
    ExportArtifact,
    LinearArtifact,
    Row,
    Split,
)
from edgepack.evaluation import Latency
from edgepack.export.linear_folder import write_combined, write_linear
from edgepack.export.selection import TEXTS_FILE
from edgepack.gating.on_rows import Judge
from edgepack.messages import joined, message
from edgepack.progress import Progress
from edgepack.recipe.gates import Gates
from edgepack.recipe.model import LinearMode
from edgepack.stages import keys
from edgepack.stages.chain import Candidates
from edgepack.stages.linear import LinearStage
from edgepack.stages.stage import Context, Input, Stage
from edgepack.tasks.registry import linear_task_of_data
from edgepack.tasks.task import Array, LinearTask
from edgepack_runtime.bundle.model_config import LINEAR_NAME, weight_bytes
from edgepack_runtime.inference.linear import LinearModel
from edgepack_runtime.schema.figures import quantity
from edgepack_runtime.stats import intervals
from edgepack_runtime.stats.metrics import Answer

MOST_ALONE: Final = 0.9  # of the dev rows: to drop the encoder is a decision of the user
MAY_LOSE_POINTS: Final = 0.2  # of the dev score, by what `auto` ships in place of the encoder, noise included
_LIMITS: Final = 200  # limits of a cascade that are tried
_ROUNDS: Final = 3  # over the timed texts
METHODS: Final[tuple[CombineName, ...]] = get_args(CombineName)
_SHIPS: Final[Mapping[LinearMode, CombineName]] = {"baseline": "encoder", "ensemble": "ensemble", "cascade": "cascade"}
Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scored:
    """The rows of a split with the logits of both models and the truths, each of shape (rows, labels)."""

    data: DataArtifact
    rows: Sequence[Row]
    truths: Array
    encoder: Float
    linear: Float
    judge: Judge

    @property
    def task(self) -> LinearTask:
        """How sums of logits are fitted."""
        return linear_task_of_data(self.data)

    def answers(self, logits: Float) -> list[Answer]:
        """The answers of logits."""
        return evaluation.decided(self.data.text_task, self.data.model_labels, logits.tolist())

    def value(self, logits: Float) -> float:
        """The score of logits in the metric of the build, 0 to 1."""
        return evaluation.value(self.data.text_task, self.rows, self.answers(logits), self.data.labels)

    def noise_points(self, logits: Float) -> float:
        """One standard error of the difference between the score of logits and that of the encoder, in points."""
        return evaluation.noise_points(self.data.text_task, self.rows, self.answers(self.encoder), self.answers(logits))

    def sum(self, fit: CombineFit) -> Float:
        """Logits of both models together."""
        return fit.encoder_weight * self.encoder + fit.linear_weight * self.linear

    @property
    def lead(self) -> Float:
        """The lead of the linear model in each row, shape (rows,), as the runtime computes it."""
        return np.array([self.data.text_task.lead(row) for row in self.linear.tolist()])

    def cascade(self, fit: CombineFit) -> Float:
        """Logits of the linear model where it is sure, else of the sum."""
        return np.where((self.lead >= fit.least_lead)[:, None], self.linear, self.sum(fit))


@dataclass(frozen=True, eq=False)
class CombineStage(Stage[CombineArtifact]):
    """Fits the sum and the cascade on dev, scores and times every method, and chooses.

    Attributes:
        gates: the recipe's, of which those on accuracy are judged.
    """

    mode: LinearMode
    gates: Gates
    rows: Stage[DataArtifact]
    linear: LinearStage
    candidates: Candidates

    name = "combine"
    version = 6
    kind = CombineArtifact
    libraries = ("onnxruntime", "numpy")
    measures = True
    recipe_keys = {  # noqa: RUF012 - never changed
        "gates": "gates.accuracy",
        "mode": "linear",
        "max_drop_points": "quantize.max_drop_points",
    }

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows, self.linear, self.candidates.decider)

    def _may_lose_points(self, ctx: Context) -> float | None:
        """Loss on dev that `cascade` may have against the sum; None counts as 0."""
        return self.candidates.chosen(ctx).recipe.quantize.max_drop_points

    def decides(self, ctx: Context) -> Any:
        return {
            "mode": self.mode,
            "max_drop_points": self._may_lose_points(ctx) if self.mode == "cascade" else None,
            "gates": keys.gates_section(self.gates)["accuracy"],
        }

    def inputs(self, ctx: Context) -> list[Input]:
        return [
            *keys.labelled(ctx[self.rows], ("dev", "test")),
            keys.whole(ctx[self.linear]),
            keys.whole(ctx[self.candidates.chosen(ctx).export]),
            *keys.runtime(),
            *keys.baseline(self.gates),
        ]

    def run(self, ctx: Context, out: Path) -> CombineArtifact:
        data, linear, progress = ctx.artifact(self.rows), ctx.artifact(self.linear), ctx.progress
        exported = ctx.artifact(self.candidates.chosen(ctx).export)
        encoder = exported.folder / exported.shipped_model.folder
        dev, test = _scored(self.gates, data, exported, linear, progress)
        if self.mode == "cascade":
            fit = fitted(dev, (self._may_lose_points(ctx) or 0.0) / 100)
        else:
            fit = fitted(dev, 0.0, beyond_noise=True)
        with TemporaryDirectory(prefix=".methods-", dir=out) as scratch:
            folders = [Path(scratch) / name for name in METHODS]
            file = linear.folder / LINEAR_NAME
            for name, folder in zip(METHODS, folders, strict=True):
                if name == "linear":
                    write_linear(file, data.text_task, data.model_labels, folder)
                else:
                    write_combined(encoder, file, fit.config(name), folder)
            texts = exported.folder / TEXTS_FILE
            latencies = evaluation.latency(folders, texts, progress, stage=self.name, rounds=_ROUNDS)
            methods = tuple(
                _method(name, fit, dev, test, weight_bytes(folder), latency)
                for name, folder, latency in zip(METHODS, folders, latencies, strict=True)
            )
        chosen, why = choose(self.mode, methods, evaluation.value_unit(data))
        found = CombineArtifact(out, evaluation.metric_of(data), fit, methods, chosen, why)
        by_encoder = message("name.encoder")
        progress.line(found.method("encoder").gains[found.metric].over(by_encoder, message("name.a_linear")))
        if chosen != "encoder":
            progress.line(found.ships.gains_over_encoder[found.metric].over(message(f"name.{chosen}"), by_encoder))
        progress.line(f"{chosen} ships: {why}")
        return found


def _scored(
    gates: Gates, data: DataArtifact, exported: ExportArtifact, linear: LinearArtifact, progress: Progress
) -> tuple[Scored, Scored]:
    """The dev and the test rows."""
    shipped, in_float = exported.shipped_model.folder, exported.float_model.folder
    predictor, model = evaluation.opened(exported.folder / shipped), LinearModel.load(linear.folder / LINEAR_NAME)

    def scored(split: Split) -> Scored:
        rows = data.read(split)
        truths = linear_task_of_data(data).truths(rows)
        ours = evaluation.batch_logits(predictor, rows, f"encoder on {split}", progress)
        reference = None
        if gates.accuracy is not None and gates.accuracy.max_drop_points is not None:
            float_model = predictor if shipped == in_float else evaluation.opened(exported.folder / in_float)
            reference = evaluation.answers(float_model, rows, f"float encoder on {split}", progress)
        judge = Judge.of(gates, data, rows, reference, progress)
        return Scored(data, rows, truths, ours, np.array([model.logits(row.item) for row in rows]), judge)

    return scored("dev"), scored("test")


def fitted(dev: Scored, may_lose: float, *, beyond_noise: bool = False) -> CombineFit:
    """Weights of the sum, and the lowest limit at which the cascade's dev score is at most `may_lose` below the best.

    The best is that of the encoder or the sum. The linear model answers at most `MOST_ALONE` of the dev rows alone; it
    answers none if every limit loses too much.

    Args:
        beyond_noise: the cascade must be `as_good` as the encoder too.
    """
    encoder_weight, linear_weight = dev.task.mixing_weights([dev.encoder, dev.linear], dev.truths)
    lead = dev.lead
    nowhere = round(float(lead.max()) + 1, 4)  # a limit that no row reaches: the linear model answers none alone
    fit = CombineFit(encoder_weight, linear_weight, nowhere)
    if not lead.any():  # of numbers
        return fit
    of_encoder = dev.value(dev.encoder)
    best = max(of_encoder, dev.value(dev.sum(fit)))
    for limit in np.unique(np.quantile(lead, np.linspace(1 - MOST_ALONE, 1, _LIMITS))):
        trial = replace(fit, least_lead=round(float(limit), 4))
        logits = dev.cascade(trial)
        value = dev.value(logits)
        if evaluation.exceeds(100 * (best - value), 100 * may_lose):
            continue
        if not beyond_noise or as_good(value, of_encoder, dev.noise_points(logits)):
            return trial
    return fit


def as_good(value: float, of_encoder: float, noise_points: float) -> bool:
    """Whether a dev score (0 to 1) is as good as that of the encoder beyond noise.

    The limit of a cascade is the best of many on the same rows, so an equal score is no proof: it may be below that of
    the encoder by `MAY_LOSE_POINTS` at most after one standard error of the difference is taken off.
    """
    return not evaluation.exceeds(100 * (of_encoder - value) + noise_points, MAY_LOSE_POINTS)


def _method(
    name: CombineName, fit: CombineFit, dev: Scored, test: Scored, size: int, latency: Latency
) -> CombineMethod:
    def logits(part: Scored) -> Float:
        return {"encoder": part.encoder, "linear": part.linear, "ensemble": part.sum(fit)}.get(name, part.cascade(fit))

    on_dev, on_test = logits(dev), logits(test)
    answers, has_encoder = test.answers(on_test), name != "linear"
    alone = {"encoder": 0.0, "ensemble": 0.0, "linear": 1.0}.get(name, float((test.lead >= fit.least_lead).mean()))
    return CombineMethod(
        name,
        dev.value(on_dev),
        dev.noise_points(on_dev),
        dev.judge(dev.answers(on_dev), against_float=has_encoder),
        test.judge(answers, against_float=has_encoder),
        evaluation.every_score(test.data, test.rows, answers),
        evaluation.gains(test.data, test.rows, test.answers(test.linear), answers),
        evaluation.gains(test.data, test.rows, test.answers(test.encoder), answers),
        test.task.reliability(on_test, test.truths),
        alone,
        size,
        latency.mean_ms,
        latency.p50_ms,
        latency.p95_ms,
    )


def choose(mode: LinearMode, methods: Sequence[CombineMethod], unit: str = "fraction") -> tuple[CombineName, str]:
    """The method that ships, and the reason. `unit` is that of dev values.

    `auto`: first the accuracy gates on dev. A method competes if no other has a lower `Judged.rank`. Of those that
    compete and are `as_good` as the encoder, the fastest on average of the best on dev. Noise of the timing decides
    nothing: an ensemble is never faster than the encoder, and a cascade that answers nothing alone is one.
    """
    if mode in _SHIPS:
        named = next(method for method in methods if method.name == _SHIPS[mode])
        return named.name, joined(message("choice.by_recipe", mode=mode), *_missed([named]))
    competing = [method for method in methods if method.name != "linear" and (method.name != "cascade" or method.share)]
    encoder = competing[0]
    rank = min(method.on_dev.rank for method in competing)
    fit = [method for method in competing if method.on_dev.rank == rank]
    kept = [method for method in fit if as_good(method.dev_value, encoder.dev_value, method.noise_points)] or fit
    best = max(method.dev_value for method in kept)
    equal = {method.name: method for method in kept if method.dev_value >= best}
    if "encoder" in equal:  # which an ensemble runs as well, and a faster time of it is noise
        equal.pop("ensemble", None)
    chosen = min(equal.values(), key=lambda method: method.mean_ms)
    ms = quantity(encoder.mean_ms, "ms")
    figures = [message("choice.of_encoder", score=quantity(encoder.dev_value, unit), ms=ms)]
    for method in competing[1:]:
        points, noise = 100 * (method.dev_value - encoder.dev_value), method.noise_points
        ms = quantity(method.mean_ms, "ms")
        name = message(f"combined.{method.name}")
        figures.append(message("choice.of_other", name=name, points=points, noise=noise, ms=ms))
    return chosen.name, joined(message("choice.fastest", figures=figures), *_missed(competing))


def _missed(methods: Sequence[CombineMethod]) -> Iterator[str]:
    """A phrase for each method that misses a gate on dev."""
    for method in methods:
        if method.on_dev.missed:
            how = "choice.shown_to_miss" if method.on_dev.verdict == intervals.FAIL else "choice.misses"
            yield message(how, name=message(f"combined.{method.name}"), gates=method.on_dev.missed)
