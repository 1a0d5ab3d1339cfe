"""The training loop: AdamW, linear warm-up and decay, length-bucketed batches, best epoch by dev accuracy."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle
import paddle.nn.functional as F

from edgepack.errors import StageFailedError
from edgepack.paddle_ml.checkpoint import Arrays, Checkpoint, Position, State, optimizer_arrays, restore_optimizer
from edgepack.paddle_ml.models import Classifier, pad
from edgepack.paddle_ml.predict import logits as predict_logits
from edgepack.progress import Progress, Task
from edgepack.recipe.model import Distill, Training

Float = npt.NDArray[np.float32]
_BUCKET_BATCHES = 16  # batches are cut from pools of this many, sorted by length: random enough, little padding
_CLIP_NORM = 1.0
_LOSS_EVERY = 10  # steps between reads of the loss: each read waits for the device
_SEED_STRIDE = 1_000_003  # more than any training has steps, so that no two seeds share a step's dropout


@dataclass(frozen=True)
class Examples:
    """Encoded rows: token ids, label indices (N,), and the teacher's logits (N, C) when distilling."""

    ids: list[list[int]]
    labels: npt.NDArray[np.int64]
    soft: Float | None = None


@dataclass(frozen=True)
class Trained:
    steps: int
    seconds: float
    best_dev_accuracy: float
    best_epoch: int


def train(
    classifier: Classifier,
    data: Examples,
    dev: Examples,
    settings: Training,
    distill: Distill | None,
    progress: Progress,
    label: str,
    checkpoint: Checkpoint,
) -> Trained:
    """Train in place; the network ends with the weights of the epoch that was best on dev.

    Goes on from `checkpoint` when it holds one, and then ends with the same weights as if never interrupted.

    Raises:
        StageFailedError: when the loss is no longer a finite number.
        OSError: when a checkpoint cannot be written.
    """
    run = _Run(classifier, data, settings, distill, checkpoint)
    if run.resume():
        progress.line(f"{label}: goes on at step {run.step} of {run.total}, where it was interrupted")
    with progress.task(label, run.total) as task:
        task.advance(run.step)
        while run.step < run.total:
            run.finish_epoch(task)
            score = dev_accuracy(classifier, dev, progress)
            task.advance(0, f"epoch {run.epoch}: dev accuracy {score:.3f}")
            run.end_epoch(score)
    return run.take_best()


def dev_accuracy(classifier: Classifier, dev: Examples, progress: Progress) -> float:
    """Fraction of dev rows whose largest logit is the label's."""
    scores = predict_logits(classifier, dev.ids, progress, "dev")
    return float((scores.argmax(axis=1) == dev.labels).mean())


def batches(lengths: Sequence[int], batch_size: int, random: np.random.Generator) -> list[list[int]]:
    """Row indices of one epoch, each row once: shuffled, bucketed by length within pools, batches shuffled again."""
    order = random.permutation(len(lengths))
    pool = batch_size * _BUCKET_BATCHES
    cut: list[list[int]] = []
    for start in range(0, len(order), pool):
        members = sorted(order[start : start + pool].tolist(), key=lambda index: lengths[index])
        cut += [members[at : at + batch_size] for at in range(0, len(members), batch_size)]
    return [cut[index] for index in random.permutation(len(cut))]


def loss_of(scores: Any, labels: Any, soft: Any | None, distill: Distill | None) -> Any:
    """Mean loss of a batch; `scores` and `soft` are (B, C), `labels` (B,).

    With soft labels: hard_weight x CE + (1 - hard_weight) x T^2 x KL(teacher_T || student_T), after Hinton, Vinyals
    and Dean, "Distilling the Knowledge in a Neural Network" (2015); T^2 keeps the gradients' size at any T.
    """
    hard = F.cross_entropy(scores, labels)
    if soft is None or distill is None:
        return hard
    t = distill.temperature
    divergence = F.kl_div(F.log_softmax(scores / t, axis=-1), F.softmax(soft / t, axis=-1), reduction="batchmean")
    return distill.hard_weight * hard + (1 - distill.hard_weight) * t * t * divergence


class _Run:
    """One training: the network, what changes it, and where it stands."""

    def __init__(
        self,
        classifier: Classifier,
        data: Examples,
        settings: Training,
        distill: Distill | None,
        checkpoint: Checkpoint,
    ) -> None:
        self._network = classifier.network
        self._data = data
        self._settings = settings
        self._distill = distill
        self._checkpoint = checkpoint
        self._epoch_steps = math.ceil(len(data.ids) / settings.batch_size)
        self.total = max(1, round(settings.epochs * self._epoch_steps))
        self._optimizer, self._schedule = _optimizer(self._network, settings, self.total)
        self._random = np.random.default_rng(settings.seed)
        self._epoch_random: dict[str, Any] = dict(self._random.bit_generator.state)
        self.step, self.epoch, self._done = 0, 1, 0
        self._best_score, self._best_epoch = -1.0, 0
        self._best: Arrays = {}
        self._started = time.monotonic()

    def resume(self) -> bool:
        """Take up the checkpoint; False when there is none."""
        state = self._checkpoint.read()
        if state is None:
            return False
        position = state.position
        self.step, self.epoch, self._done = position.step, position.epoch, position.done
        self._random.bit_generator.state = self._epoch_random = position.random
        self._best_score, self._best_epoch, self._best = position.best_score, position.best_epoch, state.best
        self._network.set_state_dict(state.network)
        restore_optimizer(self._optimizer, state.optimizer, paddle.to_tensor)
        self._schedule.step(self.step)
        self._started -= position.seconds
        return True

    def finish_epoch(self, task: Task) -> None:
        """Take the steps that are left of this epoch, or of the whole training."""
        self._network.train()
        lengths = [len(row) for row in self._data.ids]
        most = min(self._epoch_steps, self._done + self.total - self.step)
        order = batches(lengths, self._settings.batch_size, self._random)
        for rows in order[self._done : most]:
            loss = self._take_step(rows)
            self._done += 1
            self.step += 1
            task.advance(1, _note(loss) if self.step % _LOSS_EVERY == 0 else "")
            if self._checkpoint.is_due():
                self._checkpoint.write(self._state())

    def _take_step(self, rows: list[int]) -> Any:
        # Dropout follows from the step alone, so that it is the same whatever came before in this process.
        paddle.seed(self._settings.seed * _SEED_STRIDE + self.step)
        tokens = paddle.to_tensor(pad([self._data.ids[row] for row in rows]))  # (B, T)
        soft = None if self._data.soft is None else paddle.to_tensor(self._data.soft[rows])  # (B, C)
        scores = self._network(tokens, paddle.zeros_like(tokens))  # (B, C)
        loss = loss_of(scores, paddle.to_tensor(self._data.labels[rows]), soft, self._distill)
        loss.backward()
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.clear_grad()
        return loss

    def end_epoch(self, score: float) -> None:
        """Keep the weights if `score` is the best so far, and begin the next epoch."""
        if score > self._best_score:
            self._best_score, self._best_epoch, self._best = score, self.epoch, _weights(self._network)
        self.epoch += 1
        self._done = 0
        self._epoch_random = dict(self._random.bit_generator.state)

    def take_best(self) -> Trained:
        """Leave the network with the best weights, ready to predict."""
        self._network.set_state_dict(self._best)
        self._network.eval()
        return Trained(self.total, time.monotonic() - self._started, self._best_score, self._best_epoch)

    def _state(self) -> State:
        seconds = time.monotonic() - self._started
        position = Position(
            self.step, self.epoch, self._done, self._epoch_random, self._best_score, self._best_epoch, seconds
        )
        return State(position, _weights(self._network), optimizer_arrays(self._optimizer), self._best)


def _weights(network: Any) -> Arrays:
    return {name: value.numpy().copy() for name, value in network.state_dict().items()}


def _note(loss: Any) -> str:
    value = float(loss)
    if not math.isfinite(value):
        raise StageFailedError(
            "training: the loss is no longer a finite number",
            why="the learning rate is too high",
            fix="lower learning_rate",
        )
    return f"loss {value:.3f}"


def _optimizer(network: Any, settings: Training, total: int) -> tuple[Any, Any]:
    """AdamW with decay on matrices only (Loshchilov and Hutter, 2019), and its linear warm-up and decay to 0."""
    warm = max(1, round(settings.warmup * total))

    def factor(step: int) -> float:
        return (step + 1) / warm if step < warm else max(0.0, (total - step) / max(1, total - warm))

    schedule = paddle.optimizer.lr.LambdaDecay(settings.learning_rate, factor)
    decayed = {p.name for name, p in network.named_parameters() if p.ndim >= 2}
    optimizer = paddle.optimizer.AdamW(
        learning_rate=schedule,
        parameters=network.parameters(),
        weight_decay=settings.weight_decay,
        apply_decay_param_fun=lambda name: name in decayed,
        grad_clip=paddle.nn.ClipGradByGlobalNorm(_CLIP_NORM),
    )
    return optimizer, schedule
