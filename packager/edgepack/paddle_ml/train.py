"""The training loop: epochs of steps, the best epoch by its dev score, checkpoints in between."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import paddle

from edgepack.artifacts import Usage
from edgepack.errors import StageFailedError
from edgepack.paddle_ml import optimizer as optimizers
from edgepack.paddle_ml import precision as precisions
from edgepack.paddle_ml.batches import Batch, Examples, epoch_order, loader
from edgepack.paddle_ml.checkpoint import (
    Arrays,
    Checkpoint,
    Position,
    State,
    optimizer_arrays,
    parse,
    restore_optimizer,
)
from edgepack.paddle_ml.distributed import ALONE, Ranks
from edgepack.paddle_ml.match import Match
from edgepack.paddle_ml.objective import Objective
from edgepack.paddle_ml.schedule import rate_scale
from edgepack.paddle_ml.step import Step, Whole
from edgepack.paddle_ml.usage import Meter
from edgepack.progress import Progress, Task
from edgepack.recipe.training import Distill, Training

_LOSS_EVERY: Final = 10  # steps between reads of the loss: each read waits for the device
_SEED_STRIDE: Final = 1_000_003  # more than any training has steps, so that no two seeds share a step's dropout


@dataclass(frozen=True)
class Course:
    """What is trained, on what, and how it is judged.

    `score` is the figure (higher is better) by which an epoch is chosen; it leaves the network in training mode, and is
    asked on the first of the `ranks` only. Rows, settings and initial weights are the same on all of them.
    """

    label: str
    network: Any
    objective: Objective
    examples: Examples
    settings: Training
    score: Callable[[], float]
    distill: Distill | None = None
    match: Match | None = None
    ranks: Ranks = ALONE


@dataclass(frozen=True)
class Trained:
    """How a training went; `best_score` is that of `best_epoch`, from 1 of the `epochs` that were begun."""

    steps: int
    seconds: float
    best_score: float
    best_epoch: int
    epochs: int
    usage: Usage


def train(course: Course, progress: Progress, checkpoint: Checkpoint) -> Trained:
    """Train in place; the network ends with the weights of the epoch that was best on dev.

    Goes on from `checkpoint` when it holds one, and then ends with the same weights as if never interrupted. Of several
    machines each keeps one, by its first rank, and the one that came farthest counts for all.

    Raises:
        EnvironmentUnfitError: the device cannot do what is asked, or has too little memory for one row.
        StageFailedError: when the loss is no longer a finite number.
        OSError: when a checkpoint cannot be written.
    """
    run = _Run(course, checkpoint, progress.line)
    if run.resume():
        progress.line(f"{course.label}: goes on at step {run.step} of {run.total}, where it was interrupted")
    elif checkpoint.is_there():
        progress.line(f"{course.label}: its checkpoint is damaged, so that it starts anew")
    with progress.task(course.label, run.total, run.step) as task:
        while run.goes_on:
            run.finish_epoch(task)
            score = run.agree_on_score()
            task.advance(0, f"epoch {run.epoch}: dev {score:.3f}")
            run.end_epoch(score)
    if run.step < run.total:
        progress.line(f"{course.label}: ended after {run.epoch - 1} epochs, {course.settings.patience} without a gain")
    return run.take_best()


class _Run:
    """One training: the network, what changes it, and where it stands."""

    def __init__(self, course: Course, checkpoint: Checkpoint, say: Callable[[str], None]) -> None:
        settings = course.settings
        self._course, self._settings, self._checkpoint = course, settings, checkpoint
        self._ranks = course.ranks
        # A projection is trained along and thrown away: only the network's weights are what was asked for.
        self._modules = [course.network, *([course.match.projection] if course.match is not None else [])]
        self._lengths = [len(row) for row in course.examples.rows]
        self._units = [course.objective.count(target) for target in course.examples.targets]
        self._step_rows = settings.batch_size * self._ranks.count
        self._epoch_steps = math.ceil(len(self._lengths) / self._step_rows)
        self.total = max(1, round(settings.epochs * self._epoch_steps))
        self._precision = precisions.choose(settings.precision)
        self._ranks.copy_first(self._tensors())  # machines may differ in how they draw random numbers
        rate = settings.learning_rate * rate_scale(settings.scale_learning_rate, self._ranks.count)
        self._optimizer, self._schedule = optimizers.make(
            self._modules, settings.model_copy(update={"learning_rate": rate}), self.total
        )
        self._step = Step(
            course.network,
            course.objective,
            self._optimizer,
            self._precision,
            course.distill,
            course.match,
            settings.gradient_accumulation,
            self._ranks,
            say,
        )
        self._random = np.random.default_rng(settings.seed)
        self._epoch_random: dict[str, Any] = dict(self._random.bit_generator.state)
        self.step, self.epoch, self._done = 0, 1, 0
        self._best_score, self._best_epoch = -1.0, 0
        self._best: Arrays = {}
        self._meter = Meter(str(paddle.get_device()), say)
        self._started = time.monotonic()

    @property
    def goes_on(self) -> bool:
        """Whether steps are left, and the last epochs were not all in vain."""
        patience = self._settings.patience
        stuck = patience is not None and self.epoch - 1 - self._best_epoch >= patience
        return self.step < self.total and not (stuck and self._done == 0)

    def resume(self) -> bool:
        """Take up the checkpoint; False when there is none."""
        state = self._farthest()
        if state is None:
            return False
        position = state.position
        self.step, self.epoch, self._done = position.step, position.epoch, position.done
        self._random.bit_generator.state = self._epoch_random = position.random
        self._best_score, self._best_epoch, self._best = position.best_score, position.best_epoch, state.best
        self._step.parts = position.parts
        self._precision.restore(position.scale)
        _restore(self._modules, state.network)
        restore_optimizer(self._optimizer, state.optimizer, paddle.to_tensor)
        self._schedule.step(self.step)
        self._started -= position.seconds
        return True

    def _farthest(self) -> State | None:
        """Of the checkpoints of all machines the one that came farthest; None when there is none."""
        own = self._checkpoint.read() if self._ranks.is_first_here else None
        if self._ranks.count == 1:
            return own
        source, step = self._ranks.farthest(-1 if own is None else own.position.step)
        if step < 0:
            return None
        mine = self._ranks.rank == source
        return parse(io.BytesIO(self._ranks.bytes_of(source, self._checkpoint.content() if mine else b"")))

    def agree_on_score(self) -> float:
        """The score of the epoch, as the first rank finds it.

        Before, all get its weights: machines of different makes round differently, if only a little.
        """
        self._ranks.copy_first(self._tensors())
        return self._ranks.of_first(float, self._course.score)

    def finish_epoch(self, task: Task) -> None:
        """Take the steps that are left of this epoch, or of the whole training."""
        self._course.network.train()
        most = min(self._epoch_steps, self._done + self.total - self.step)
        order = epoch_order(self._lengths, self._step_rows, self._random)[self._done : most]
        ours = [self._ranks.share(rows) for rows in order]
        batches = loader(self._course.examples, ours, self._course.objective.collate)
        with self._meter.running():
            for rows, batch in zip(order, batches, strict=True):
                self._take(rows, batch, task)

    def _take(self, rows: Sequence[int], batch: Batch | None, task: Task) -> None:
        """One step: `rows` are those of all ranks, `batch` this rank's."""
        whole = Whole(len(rows), sum(self._units[row] for row in rows))
        loss = self._step.take(batch, whole, self._dropout_seed())
        self._schedule.step()
        self._count(rows)
        self._done += 1
        self.step += 1
        task.advance(1, _note(loss) if self.step % _LOSS_EVERY == 0 else "")
        if self._ranks.is_first_here and self._checkpoint.is_due():
            self._checkpoint.write(self._state())

    def _dropout_seed(self) -> int:
        """Of this step, on this rank."""
        return (self._settings.seed * _SEED_STRIDE + self.step) * self._ranks.count + self._ranks.rank

    def _count(self, rows: Sequence[int]) -> None:
        for share in self._ranks.shares(rows):
            self._meter.count([self._lengths[row] for row in share])

    def end_epoch(self, score: float) -> None:
        """Keep the weights if `score` is the best so far, and begin the next epoch."""
        if score > self._best_score:
            self._best_score, self._best_epoch, self._best = score, self.epoch, _weights([self._course.network])
        self.epoch += 1
        self._done = 0
        self._epoch_random = dict(self._random.bit_generator.state)

    def take_best(self) -> Trained:
        """Leave the network with the best weights, ready to predict."""
        _restore([self._course.network], self._best)
        self._course.network.eval()
        return Trained(
            self.step,
            time.monotonic() - self._started,
            self._best_score,
            self._best_epoch,
            self.epoch - 1,
            self._usage(),
        )

    def _usage(self) -> Usage:
        """Of all ranks together; the memory and the parts of a step are this one's."""
        usage, count = self._meter.read(self._precision.name, self._step.parts), self._ranks.count
        return usage if count == 1 else replace(usage, device=f"{count} x {usage.device.partition(':')[0]}")

    def _tensors(self) -> list[Any]:
        return [tensor for module in self._modules for tensor in module.state_dict().values()]

    def _state(self) -> State:
        position = Position(
            step=self.step,
            epoch=self.epoch,
            done=self._done,
            random=self._epoch_random,
            best_score=self._best_score,
            best_epoch=self._best_epoch,
            seconds=time.monotonic() - self._started,
            parts=self._step.parts,
            scale=self._precision.state(),
        )
        return State(position, _weights(self._modules), optimizer_arrays(self._optimizer), self._best)


def _weights(modules: list[Any]) -> Arrays:
    return {
        f"{index}/{name}": value.numpy().copy()
        for index, module in enumerate(modules)
        for name, value in module.state_dict().items()
    }


def _restore(modules: list[Any], weights: Arrays) -> None:
    for index, module in enumerate(modules):
        prefix = f"{index}/"
        module.set_state_dict({n.removeprefix(prefix): array for n, array in weights.items() if n.startswith(prefix)})


def _note(loss: Any) -> str:
    value = float(loss)
    if not math.isfinite(value):
        raise StageFailedError(
            "training: the loss is no longer a finite number",
            why="the learning rate is too high",
            fix="lower learning_rate",
        )
    return f"loss {value:.3f}"
