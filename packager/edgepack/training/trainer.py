"""The training loop: steps, epochs, the best epoch by its dev score, checkpoints in between."""

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
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.progress import Progress, Task
from edgepack.recipe.training import Distill, Training
from edgepack.training import cpu_layers
from edgepack.training import optimizer as optimizers
from edgepack.training.checkpoint import Arrays, Checkpoint, Position, State, optimizer_arrays, parse, restore_optimizer
from edgepack.training.distributed import ALONE, GradientSum, Ranks
from edgepack.training.losses import Match, Objective
from edgepack.training.models.batches import Batch, Examples, epoch_order, loader
from edgepack.training.optimizer import Precision
from edgepack.training.schedule import rate_scale
from edgepack.training.usage import Meter


@dataclass(frozen=True)
class Whole:
    """How many rows a step has, and units that count (`objective`), in all ranks' batches together."""

    rows: int
    units: int


class Step:
    """Takes steps with one network and its optimizer, together with the other ranks.

    The loss is the mean over the step's units (`objective`): hard_weight x hard + (1 - hard_weight) x soft for those
    with a label, the soft one alone for those without; plus match_weight x that of `match`, over rows.

    Args:
        parts: that a batch is run in, one after the other; the result is the same but for rounding and dropout.
        ranks: each has a batch of its own in every step, and the sum of all gradients.
        say: told when a batch has to be run in more parts than before, because memory ran out.
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
        say: Callable[[str], None],
    ) -> None:
        self._network, self._objective, self._optimizer = network, objective, optimizer
        self._precision, self._distill, self._match = precision, distill, match
        self.parts = parts
        self._sum = GradientSum(ranks, optimizer._parameter_list)
        self._say = say
        self._draw = cpu_layers.take_over(network)

    def take(self, batch: Batch | None, whole: Whole, seed: int) -> Any:
        """Change the weights by one step; its loss as a tensor that nobody has waited for yet.

        `batch` is this rank's share of the `whole`; None when there is no row left for it. A gradient that overflows
        on one rank does so in the sum, so that mixed precision leaves the step out on all of them.

        Dropout follows from `seed` alone, so that it is the same whatever came before in this process.

        Raises:
            EnvironmentUnfitError: not even one row fits into memory.
        """
        while True:
            paddle.seed(seed)
            self._draw.begin(seed)
            try:
                packed = self._sum.pack(self._gradients(batch, whole))
            except MemoryError as error:  # Paddle's, of CPU and GPU alike
                self._halve(batch, error)
                continue  # from the beginning: what the parts before it added is dropped
            loss = self._sum.spread(packed)
            self._precision.step(self._optimizer)
            self._optimizer.clear_grad()
            return loss

    def _gradients(self, batch: Batch | None, whole: Whole) -> Any:
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

    def _loss(self, batch: Batch, whole: Whole) -> Any:
        """The part's share of the loss of the whole step."""
        with self._precision.autocast():
            wants_hidden = self._match is not None and self._match.needs_hidden_states
            told = self._network(batch.ids, batch.types, output_hidden_states=wants_hidden, return_dict=True)
            inside = self._match.loss(told.hidden_states, batch) if self._match is not None else None
        scores = told.logits.astype("float32")
        counts, labelled = self._objective.units(batch.targets)  # (U,)
        loss = self._objective.hard(scores, batch.targets)  # (U,)
        if self._distill is not None and batch.soft is not None:
            weight = self._distill.hard_weight * labelled  # none of a label that nobody knows
            soft = self._objective.soft(scores, batch.soft, self._distill.temperature)
            loss = weight * loss + (1 - weight) * soft
        mean = (loss * counts).sum() / paddle.full([], whole.units, dtype="float32")
        if inside is None or self._distill is None:
            return mean
        return mean + self._distill.match_weight * inside.astype("float32").sum() / whole.rows

    def _halve(self, batch: Batch | None, error: MemoryError) -> None:
        self._optimizer.clear_grad()
        if self._match is not None:
            self._match.forget()
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
        self._say(
            f"out of memory: from here on a step's {rows} rows are run in {self.parts} parts; "
            f"`gradient_accumulation: {self.parts}` starts so"
        )


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
        self._precision = optimizers.choose(settings.precision)
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
