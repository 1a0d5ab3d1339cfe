"""Trainings that one process does, or two together: `python -m tests.integration.ranked FOLDER` is one of the two.

Each of the two stands for a machine of its own: it keeps checkpoints, in a folder of its own.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
from tests.integration.test_resume import Killed, Killing
from tests.integration.trainings import CALM, MANY, ONE, SETTINGS, SPANS, Ended, Heard, classifier_of, learn

from edgepack.artifacts import Row
from edgepack.recipe.training import Distill, Training
from edgepack.training import environment
from edgepack.training.checkpoint import Arrays, Checkpoint

PROCESSES: Final = 2
BOTH_INSIDE: Final = Distill(hidden=True, relations=True)
_KILLED_AFTER: Final = 5  # steps, within the second epoch


def recorded(train: Callable[[], Ended]) -> tuple[Ended, list[float]]:
    """A training and the loss of its every step."""
    environment.start()
    from edgepack.training.trainer import Step

    losses: list[float] = []
    take = Step.take

    def kept(step: Step, *arguments: Any) -> Any:
        loss = take(step, *arguments)
        losses.append(float(loss))
        return loss

    with mock.patch.object(Step, "take", kept):
        return train(), losses


def plain(folder: Path, settings: Training, ranks: Any, rows: Sequence[Row] = ONE, **more: Any) -> Ended:
    """Without dropout, which is another one on every rank."""
    classifier = classifier_of(rows, folder, CALM, settings)
    return learn(rows, folder, classifier=classifier, settings=settings, ranks=ranks, **more)


def of_49_rows(folder: Path, settings: Training, ranks: Any) -> Ended:
    """One row is left for a batch, and none of it for the second rank."""
    return plain(folder, settings, ranks, ONE[:49])


def in_parts(folder: Path, settings: Training, ranks: Any) -> Ended:
    return plain(folder, settings.model_copy(update={"gradient_accumulation": 2}), ranks)


def of_tokens(folder: Path, settings: Training, ranks: Any) -> Ended:
    """Every row has another number of tokens that count; the pooler, which nothing uses, must not decay either."""
    return plain(folder, settings.model_copy(update={"weight_decay": 1.0}), ranks, SPANS)


def of_many_labels(folder: Path, settings: Training, ranks: Any) -> Ended:
    return plain(folder, settings, ranks, MANY)


def distilled(folder: Path, settings: Training, ranks: Any) -> Ended:
    """Against the inside of a teacher too, with a projection that is trained along, and rows without labels."""
    teacher = classifier_of(ONE, folder / "teacher", CALM)
    teacher.network.eval()
    return plain(folder, settings, ranks, ONE[:30], teacher=teacher, unlabelled=ONE[30:], distill=BOTH_INSIDE)


def stopped_early(folder: Path, settings: Training, ranks: Any) -> Ended:
    """What the first rank finds ever worse ends the training; another one would go on."""
    falling = iter((0.5, 0.4, 0.3, 0.2))
    rising = iter((0.1, 0.2, 0.3, 0.4))
    scores = falling if ranks is None or ranks.is_first else rising
    stopping = settings.model_copy(update={"patience": 1, "epochs": 4.0})
    return plain(folder, stopping, ranks, score=lambda _: next(scores))


def short_of_memory(folder: Path, settings: Training, ranks: Any) -> Ended:
    """The second rank alone cannot run more than 3 rows at once."""
    classifier = classifier_of(ONE, folder, CALM, settings)

    def exhaust(network: Any, inputs: tuple[Any, ...]) -> None:
        if network.training and inputs[0].shape[0] > 3:
            raise MemoryError("(ResourceExhausted) Fail to alloc memory of 281474976710656 size")

    if ranks is not None and not ranks.is_first:
        classifier.network.register_forward_pre_hook(exhaust)
    return learn(ONE, folder, classifier=classifier, settings=settings, ranks=ranks)


def overflowing(folder: Path, settings: Training, ranks: Any) -> Ended:
    """A gradient of the second rank alone is infinite in one step, which mixed precision then leaves out."""
    from edgepack.training.optimizer import Precision

    turns = itertools.count()

    def backward(_: Precision, loss: Any) -> None:
        ours = ranks is None or not ranks.is_first
        (loss * float("inf") if ours and next(turns) == 2 else loss).backward()

    def step(_: Precision, optimizer: Any) -> None:
        if all(np.isfinite(parameter.grad.numpy()).all() for parameter in optimizer._parameter_list):
            optimizer.step()

    with mock.patch.multiple(Precision, backward=backward, step=step):
        return plain(folder, settings, ranks)


def interrupted(folder: Path, settings: Training, ranks: Any) -> Ended:
    """Killed on both machines, and one of them loses its checkpoint: the other's counts for both."""
    if ranks is None:
        return plain(folder, settings, ranks)
    kept = folder / "kept"
    try:
        plain(folder, settings, ranks, checkpoint=Killing(kept, _KILLED_AFTER))
    except Killed:
        shutil.rmtree(kept if ranks.is_first else folder / "nothing", ignore_errors=True)
    said = Heard()
    ended = plain(folder, settings, ranks, checkpoint=Checkpoint(kept, seconds=1e9), said=said)
    assert f"continues at step {_KILLED_AFTER} of" in said.lines[0], said.lines
    return ended


SCENARIOS: Final = (
    plain,
    of_49_rows,
    in_parts,
    of_tokens,
    of_many_labels,
    distilled,
    stopped_early,
    short_of_memory,
    overflowing,
    interrupted,
)


def keep(folder: Path, name: str, ended: Ended, losses: list[float]) -> None:
    arrays: Arrays = {f"weight/{key}": value for key, value in ended.weights.items()}
    facts = np.array([ended.best_score, ended.epochs])
    np.savez(folder / f"{name}.npz", losses=np.array(losses), facts=facts, **arrays)


def main() -> None:
    environment.start()
    from edgepack.training import distributed

    together = distributed.join("cpu")
    folder = Path(sys.argv[1]) / str(together.rank)
    folder.mkdir()
    for scenario in SCENARIOS:
        ended, losses = recorded(lambda scenario=scenario: scenario(folder / scenario.__name__, SETTINGS, together))
        keep(folder, scenario.__name__, ended, losses)
    together.leave()
    os._exit(0)


if __name__ == "__main__":
    main()
