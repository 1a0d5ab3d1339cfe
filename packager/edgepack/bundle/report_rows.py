"""Example rows of a report: answers that differ from those of the float encoder, and the worst wrong answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgepack.artifacts import MOST, Example, Examples
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.task import Prediction, Task, errors

_MOST_CHARACTERS: Final = 300  # of a text; longer ones are cut
_DECIMALS: Final = 6  # of a probability


def choose(
    task: Task,
    texts: Sequence[tuple[str, ...] | None],
    truths: Sequence[Answer],
    float_answers: Sequence[Answer] | None,
    shipped: Sequence[Prediction],
) -> Examples:
    """The examples among rows.

    Args:
        texts: the text or both texts of each row; None to show line numbers instead of texts.
        truths: labels of the rows.
        float_answers: answers of the float encoder; None without one.
        shipped: predictions of the shipped model.
    """
    kinds: dict[str, list[int]] = {"lost": [], "won": [], "other": []}
    wrong = []
    answers = [one.answer for one in shipped]
    reference = answers if float_answers is None else float_answers
    before, after = errors(task, truths, reference), errors(task, truths, answers)
    for number, (_, theirs, ours) in enumerate(zip(truths, reference, answers, strict=True)):
        if task.error(theirs, ours) > 0:
            farther, nearer = after[number] > before[number], after[number] < before[number]
            kinds["lost" if farther else "won" if nearer else "other"].append(number)
        if after[number] > 0:
            wrong.append(number)
    distances = {number: _distance(task, truths[number], shipped[number]) for number in wrong}

    def example(number: int) -> Example:
        ours, shown = shipped[number], texts[number]
        score = task.probability(ours, truths[number])
        first = None if shown is None else shown[0]
        return Example(
            text=f"#{number + 1}" if shown is None else " ⁄ ".join(map(_cut, shown)),
            truth=task.words(truths[number], first),
            float_answer=None if float_answers is None else task.words(reference[number], first),
            answer=task.words(ours.answer, first),
            score=None if score is None else round(score, _DECIMALS),
        )

    changed = [number for kind in ("lost", "won", "other") for number in kinds[kind]]
    worst = sorted(wrong, key=lambda number: (-distances[number], number))
    return Examples(
        rows=len(truths),
        **{kind: len(numbers) for kind, numbers in kinds.items()},
        changed=tuple(map(example, changed[:MOST])),
        wrong=tuple(map(example, worst[:MOST])),
        compared=float_answers is not None,
    )


def _distance(task: Task, truth: Answer, prediction: Prediction) -> float:
    """Size of the error of an answer; comparable within a task."""
    score = task.probability(prediction, truth)
    return task.error(truth, prediction.answer) if score is None else 1 - round(score, _DECIMALS)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
