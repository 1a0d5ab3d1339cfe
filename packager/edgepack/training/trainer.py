"""Training loop: steps, epochs, checkpoints, and the best epoch by dev score."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import paddle

from edgepack.artifacts import Usage
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.progress import Progress, Task
from edgepack.recipe.training import Distill, Training
from edgepack.tasks.task import Objective
from edgepack.training import cpu_layers
from edgepack.training import optimizer as optimizers
from edgepack.training.checkpoint import Arrays, Checkpoint, Position, State, optimizer_arrays, parse, restore_optimizer
from edgepack.training.distillation import Match
from edgepack.training.distributed import ALONE, GradientSum, Ranks
from edgepack.training.models.batches import Batch, EncodedRows, epoch_order, loader
from edgepack.training.optimizer import Precision
from edgepack.training.scalars import ScalarWriter
from edgepack.training.schedule import Budget, rate_scale
from edgepack.training.usage import Meter


@dataclass(frozen=True)
class StepSize:
    """Rows of a step on all ranks, and units (rows or tokens) that count in its loss."""

    rows: int
    units: int


class Step:
    """Takes training steps with one network and its optimizer, together with the other ranks.

    The loss is the mean over the units of a step: hard_weight x hard + (1 - hard_weight) x soft for labelled units,
    soft for unlabelled ones; plus match_weight x the mean of `match` over rows.

    Args:
        parts: number of parts that a batch is run in. The result differs by rounding and dropout only.
        ranks: every rank has a share of each step, and steps with the sum of all gradients.
        report: called with a message when memory ran out and a batch is run in more parts.
    """

    def __init__(
        self,
        network: Any,
        objective: Objective,
        optimizer: Any,
        precision: Precision,
        distill: Distill | None,
        match: Match | None,
        parts: int,
        ranks: Ranks,
        report: Callable[[str], None],
    ) -> None:
        self._network, self._objective, self._optimizer = network, objective, optimizer
        self._precision, self._distill, self._match = precision, distill, match
        self.parts = parts
        self._sum = GradientSum(ranks, optimizer._parameter_list)
        self._report = report
        self._draw = cpu_layers.replace_layers(network)

    def take(self, batch: Batch | None, whole: StepSize, seed: int) -> Any:
        """Take one step; return its loss as a tensor that may still be computed.

        A gradient that overflows on one rank overflows in the sum, so mixed precision skips the step on all ranks.

        Args:
            batch: this rank's share of the step; None if it has no rows.
            whole: size of the step on all ranks.
            seed: decides dropout, so that a resumed training repeats it.

        Raises:
            EnvironmentUnfitError: memory is too small for one row.
        """
        while True:
            paddle.seed(seed)
            self._draw.begin(seed)
            try:
                packed = self._sum.pack(self._gradients(batch, whole))
            except MemoryError as error:  # Paddle's, of CPU and GPU alike
                self._halve(batch, error)
                continue  # from the start: gradients of earlier parts are cleared
            loss = self._sum.spread(packed)
            self._precision.step(self._optimizer)
            self._optimizer.clear_grad()
            return loss

    def _gradients(self, batch: Batch | None, whole: StepSize) -> Any:
        total = paddle.zeros([])
        if batch is None:
            return total
        rows = batch.ids.shape[0]
        size = -(-rows // self.parts)
        for start in range(0, rows, size):
            part = batch.part(start, start + size) if self.parts > 1 else batch
            loss = self._loss(part, whole)
            self._precision.backward(loss)
            total = total + loss.detach()
        return total

    def _loss(self, batch: Batch, whole: StepSize) -> Any:
        """The share of `batch` in the loss of the whole step."""
        with self._precision.autocast():
            wants_hidden = self._match is not None and self._match.needs_hidden_states
            output = self._network(batch.ids, batch.types, output_hidden_states=wants_hidden, return_dict=True)
            matched = self._match.loss(output.hidden_states, batch) if self._match is not None else None
        scores = output.logits.astype("float32")
        counts, labelled = self._objective.units(batch.targets)  # (U,)
        loss = self._objective.hard(scores, batch.targets)  # (U,)
        if self._distill is not None and batch.soft is not None:
            weight = self._distill.hard_weight * labelled  # 0 for unlabelled units
            soft = self._objective.soft(scores, batch.soft, self._distill.temperature)
            loss = weight * loss + (1 - weight) * soft
        mean = (loss * counts).sum() / paddle.full([], whole.units, dtype="float32")
        if matched is None or self._distill is None:
            return mean
        return mean + self._distill.match_weight * matched.astype("float32").sum() / whole.rows

    def _halve(self, batch: Batch | None, error: MemoryError) -> None:
        self._optimizer.clear_grad()
        if self._match is not None:
            self._match.clear()
        rows = batch.ids.shape[0] if batch is not None else 0
        if self.parts >= rows:
            raise EnvironmentUnfitError(
                "training ran out of memory with a single row",
                why=str(error).strip().partition("\n")[0],
                fix="lower max_length, choose a smaller model, or free memory",
            ) from error
        self.parts = min(rows, self.parts * 2)
        if paddle.is_compiled_with_cuda():
            paddle.device.cuda.empty_cache()
        self._report(
            f"out of memory: the {rows} rows of a step now run in {self.parts} parts; "
            f"set `gradient_accumulation: {self.parts}` to start so"
        )


_LOSS_EVERY: Final = 10  # steps between reads of the loss: each read waits for the device
_SEED_STRIDE: Final = 1_000_003  # larger than any number of steps: no two seeds share the dropout of a step


@dataclass(frozen=True)
class TrainingRun:
    """Inputs of a training. Rows, settings and initial weights are the same on all `ranks`.

    Attributes:
        budget: steps and learning rate, which `settings` may leave open.
        score: returns the figure that selects the best epoch (higher is better). It is called on the first rank only.
        metric: name of that figure.
        floor: value of that figure up to which nothing is learnt; patience counts once it is exceeded. None if there
            is no such value.
        out: receives the figures of the training (`ScalarWriter`), from the first rank of each machine.
    """

    label: str
    network: Any
    objective: Objective
    examples: EncodedRows
    settings: Training
    budget: Budget
    score: Callable[[], float]
    metric: str
    floor: float | None
    out: Path
    distill: Distill | None = None
    match: Match | None = None
    ranks: Ranks = ALONE


@dataclass(frozen=True)
class Trained:
    """Result of a training. `best_score` is that of `best_epoch`; epochs count from 1."""

    steps: int
    seconds: float
    best_score: float
    best_epoch: int
    epochs: int
    usage: Usage


def train(run: TrainingRun, progress: Progress, checkpoint: Checkpoint) -> Trained:
    """Train in place. The network ends with the weights of the best epoch on dev.

    A training that continues from `checkpoint` ends with the same weights as an uninterrupted one. The first rank of
    each machine keeps a checkpoint; the most advanced one is used on all.

    Raises:
        EnvironmentUnfitError: the device does not support the precision, or memory is too small for one row.
        StageFailedError: the loss is not a finite number.
        OSError: a checkpoint or a figure cannot be written.
    """
    with closing(ScalarWriter(run.out if run.ranks.is_first_here else None)) as scalars:
        loop = _Loop(run, checkpoint, scalars, progress.line)
        if loop.resume():
            progress.line(f"{run.label}: continues at step {loop.step} of {loop.total}, where it was interrupted")
        elif checkpoint.is_there():
            progress.line(f"{run.label}: the checkpoint is damaged; starting again")
        with progress.task(run.label, loop.total, loop.step) as task:
            while loop.goes_on:
                loop.finish_epoch(task)
                score = loop.agree_on_score()
                progress.line(f"{run.label}: epoch {loop.epoch}: dev {score:.3f}")
                loop.end_epoch(score)
        scalars.finish()
    if loop.step < loop.total:
        progress.line(f"{run.label}: ended after {loop.epoch - 1} epochs, {run.settings.patience} without a gain")
    return loop.take_best()


class _Loop:
    """State of one training: network, optimizer, and position in the epochs."""

    def __init__(
        self, run: TrainingRun, checkpoint: Checkpoint, scalars: ScalarWriter, report: Callable[[str], None]
    ) -> None:
        settings = run.settings
        self._run, self._settings, self._checkpoint, self._scalars = run, settings, checkpoint, scalars
        self._ranks = run.ranks
        # The projection of hidden states is trained too, and dropped at the end.
        self._modules = [run.network, *([run.match.projection] if run.match is not None else [])]
        self._lengths = [len(row) for row in run.examples.rows]
        self._units = [run.objective.count(target) for target in run.examples.targets]
        self._step_rows = settings.batch_size * self._ranks.count
        self._epoch_steps, self.total = run.budget.epoch_steps, run.budget.steps
        self._precision = optimizers.choose(settings.precision)
        self._ranks.copy_first(self._tensors())  # random numbers may differ between machines
        rate = run.budget.learning_rate * rate_scale(settings.scale_learning_rate, self._ranks.count)
        self._optimizer, self._schedule = optimizers.make(self._modules, settings, rate, self.total)
        self._step = Step(
            run.network,
            run.objective,
            self._optimizer,
            self._precision,
            run.distill,
            run.match,
            settings.gradient_accumulation,
            self._ranks,
            report,
        )
        self._random = np.random.default_rng(settings.seed)
        self._epoch_random: dict[str, Any] = dict(self._random.bit_generator.state)
        self.step, self.epoch, self._done = 0, 1, 0
        self._best_score, self._best_epoch = -math.inf, 0
        self._best: Arrays = {}
        self._meter = Meter(str(paddle.get_device()))
        self._started = time.monotonic()

    @property
    def goes_on(self) -> bool:
        """Whether the epoch has begun, or steps are left and patience has not run out."""
        patience, floor = self._settings.patience, self._run.floor
        learns = floor is None or self._best_score > floor
        stuck = patience is not None and learns and self.epoch - 1 - self._best_epoch >= patience
        return self._done > 0 or (self.step < self.total and not stuck)  # the last step may be taken, and not scored

    def resume(self) -> bool:
        """Restore the checkpoint; False if there is none."""
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
        self._scalars.restore(position.scalars)
        return True

    def _farthest(self) -> State | None:
        """The most advanced checkpoint of all machines; None if there is none."""
        own = self._checkpoint.read() if self._ranks.is_first_here else None
        if self._ranks.count == 1:
            return own
        source, step = self._ranks.farthest(-1 if own is None else own.position.step)
        if step < 0:
            return None
        mine = self._ranks.rank == source
        return parse(io.BytesIO(self._ranks.bytes_of(source, self._checkpoint.content() if mine else b"")))

    def agree_on_score(self) -> float:
        """The score of the epoch, computed by the first rank.

        All ranks first take its weights: different machines round differently.
        """
        self._ranks.copy_first(self._tensors())
        return self._ranks.of_first(float, self._run.score)

    def finish_epoch(self, task: Task) -> None:
        """Take the remaining steps of this epoch, or of the training."""
        self._run.network.train()
        most = min(self._epoch_steps, self._done + self.total - self.step)
        order = epoch_order(self._lengths, self._step_rows, self._random)[self._done : most]
        ours = [self._ranks.share(rows) for rows in order]
        batches = loader(self._run.examples, ours, self._run.objective.collate)
        with self._meter.running():
            for rows, batch in zip(order, batches, strict=True):
                self._take(rows, batch, task)

    def _take(self, rows: Sequence[int], batch: Batch | None, task: Task) -> None:
        """Take one step with the `rows` of all ranks and the `batch` of this rank."""
        whole = StepSize(len(rows), sum(self._units[row] for row in rows))
        loss = self._step.take(batch, whole, self._dropout_seed())
        rate = float(self._optimizer.get_lr())
        self._schedule.step()
        self._count(rows)
        self._done += 1
        self.step += 1
        note = ""
        if self.step % _LOSS_EVERY == 0:
            value = _finite(loss)
            speed = self._meter.rate()
            self._scalars.add(
                self.step, {"train/loss": value, "train/learning_rate": rate, "train/tokens_per_second": speed}
            )
            note = f"loss {value:.3f}"
        task.advance(1, note)
        if self._ranks.is_first_here and self._checkpoint.is_due():
            self._checkpoint.write(self._state())

    def _dropout_seed(self) -> int:
        return (self._settings.seed * _SEED_STRIDE + self.step) * self._ranks.count + self._ranks.rank

    def _count(self, rows: Sequence[int]) -> None:
        for share in self._ranks.shares(rows):
            self._meter.count([self._lengths[row] for row in share])

    def end_epoch(self, score: float) -> None:
        """Keep the weights if `score` is the best so far, and start the next epoch."""
        self._scalars.add(self.step, {f"dev/{self._run.metric}": score})
        if score > self._best_score:
            self._best_score, self._best_epoch, self._best = score, self.epoch, _weights([self._run.network])
        self.epoch += 1
        self._done = 0
        self._epoch_random = dict(self._random.bit_generator.state)

    def take_best(self) -> Trained:
        """Restore the best weights and set the network to evaluation mode."""
        _restore([self._run.network], self._best)
        self._run.network.eval()
        return Trained(
            self.step,
            time.monotonic() - self._started,
            self._best_score,
            self._best_epoch,
            self.epoch - 1,
            self._usage(),
        )

    def _usage(self) -> Usage:
        """Resources of all ranks; memory and parts are those of this rank."""
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
            scalars=self._scalars.series,
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


def _finite(loss: Any) -> float:
    value = float(loss)
    if not math.isfinite(value):
        raise StageFailedError(
            "training: the loss is no longer a finite number",
            why="the learning rate is too high",
            fix="lower learning_rate",
        )
    return value
