"""The training loop: AdamW, linear warm-up and decay, length-bucketed batches, best epoch by dev accuracy."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle
import paddle.nn.functional as F

from edgepack.errors import StageFailedError
from edgepack.paddle_ml.models import Classifier, pad
from edgepack.paddle_ml.predict import logits as predict_logits
from edgepack.progress import Progress, Task
from edgepack.recipe.model import Distill, Training

Float = npt.NDArray[np.float32]
_BUCKET_BATCHES = 16  # batches are cut from pools of this many, sorted by length: random enough, little padding
_CLIP_NORM = 1.0
_LOSS_EVERY = 10  # steps between reads of the loss: each read waits for the device


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
) -> Trained:
    """Train in place; the network ends with the weights of the epoch that was best on dev.

    Raises:
        StageFailedError: when the loss is no longer a finite number.
    """
    steps_per_epoch = math.ceil(len(data.ids) / settings.batch_size)
    total = max(1, round(settings.epochs * steps_per_epoch))
    optimizer, schedule = _optimizer(classifier.network, settings, total)
    random = np.random.default_rng(settings.seed)
    paddle.seed(settings.seed)
    best: tuple[float, int, dict[str, Any]] = (-1.0, 0, {})
    started, step, epoch = time.monotonic(), 0, 0
    with progress.task(label, total) as task:
        while step < total:
            epoch += 1
            left = min(steps_per_epoch, total - step)
            step += _epoch(classifier, data, settings, distill, optimizer, schedule, random, left, task)
            score = dev_accuracy(classifier, dev, progress)
            task.advance(0, f"epoch {epoch}: dev accuracy {score:.3f}")
            if score > best[0]:
                best = (
                    score,
                    epoch,
                    {k: v.numpy().copy() for k, v in classifier.network.state_dict().items()},
                )
    classifier.network.set_state_dict(best[2])
    classifier.network.eval()
    return Trained(total, time.monotonic() - started, best[0], best[1])


def dev_accuracy(classifier: Classifier, dev: Examples, progress: Progress) -> float:
    """Fraction of dev rows whose largest logit is the label's."""
    scores = predict_logits(classifier, dev.ids, progress, "dev")
    return float((scores.argmax(axis=1) == dev.labels).mean())


def batches(lengths: Sequence[int], batch_size: int, random: np.random.Generator) -> Iterator[list[int]]:
    """Row indices of one epoch, each row once: shuffled, bucketed by length within pools, batches shuffled again."""
    order = random.permutation(len(lengths))
    pool = batch_size * _BUCKET_BATCHES
    cut: list[list[int]] = []
    for start in range(0, len(order), pool):
        members = sorted(order[start : start + pool].tolist(), key=lambda index: lengths[index])
        cut += [members[at : at + batch_size] for at in range(0, len(members), batch_size)]
    for index in random.permutation(len(cut)):
        yield cut[index]


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


def _epoch(
    classifier: Classifier,
    data: Examples,
    settings: Training,
    distill: Distill | None,
    optimizer: Any,
    schedule: Any,
    random: np.random.Generator,
    most_steps: int,
    task: Task,
) -> int:
    network = classifier.network
    network.train()
    lengths = [len(row) for row in data.ids]
    done = 0
    for rows in batches(lengths, settings.batch_size, random):
        if done == most_steps:
            break
        tokens = paddle.to_tensor(pad([data.ids[row] for row in rows]))  # (B, T)
        soft = None if data.soft is None else paddle.to_tensor(data.soft[rows])  # (B, C)
        scores = network(tokens, paddle.zeros_like(tokens))  # (B, C)
        loss = loss_of(scores, paddle.to_tensor(data.labels[rows]), soft, distill)
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.clear_grad()
        done += 1
        task.advance(1, _note(loss) if done % _LOSS_EVERY == 0 else "")
    return done


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
