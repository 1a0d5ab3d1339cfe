"""Example rows of a report: answers that differ from those of the float encoder, and the worst wrong answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgepack.artifacts import MAX_EXAMPLES, Example, Examples
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.task import Task, row_errors

_MOST_CHARACTERS: Final = 300  # of a text; longer ones are cut
_DECIMALS: Final = 6  # of a probability


def choose_examples(
    task: Task,
    texts: Sequence[tuple[str, ...] | None],
    truths: Sequence[Answer],
    float_answers: Sequence[Answer] | None,
    answers: Sequence[Answer],
    probabilities: Sequence[float | None],
) -> Examples:
    """Count the rows whose answer changed, and choose the rows to show.

    Args:
        texts: the text or both texts of each row; None to show the number of the row instead.
        truths: true answers of the rows.
        float_answers: answers of the float encoder; None without one.
        answers: those of the shipped model.
        probabilities: of the true answers, by the shipped model; None where a task has none.
    """
    kinds: dict[str, list[int]] = {"lost": [], "won": [], "other": []}
    wrong = []
    reference = answers if float_answers is None else float_answers
    float_errors, errors = row_errors(task, truths, reference), row_errors(task, truths, answers)
    # The truths are in the zip only to check that each row has its answers.
    for number, (_, float_answer, answer) in enumerate(zip(truths, reference, answers, strict=True)):
        if task.error(float_answer, answer) > 0:
            before, after = float_errors[number], errors[number]
            kinds["lost" if after > before else "won" if after < before else "other"].append(number)
        if errors[number] > 0:
            wrong.append(number)
    distances = {number: _distance(task, truths[number], answers[number], probabilities[number]) for number in wrong}
    changed = [number for kind in ("lost", "won", "other") for number in kinds[kind]]
    worst = sorted(wrong, key=lambda number: (-distances[number], number))
    rows = list(zip(texts, truths, float_answers or [None] * len(truths), answers, probabilities, strict=True))
    return Examples(
        rows=len(truths),
        **{kind: len(numbers) for kind, numbers in kinds.items()},
        changed=tuple(_example(task, number, *rows[number]) for number in changed[:MAX_EXAMPLES]),
        wrong=tuple(_example(task, number, *rows[number]) for number in worst[:MAX_EXAMPLES]),
        compared=float_answers is not None,
    )


def _example(
    task: Task,
    number: int,
    shown: tuple[str, ...] | None,
    truth: Answer,
    of_float: Answer | None,
    answer: Answer,
    probability: float | None,
) -> Example:
    first = None if shown is None else shown[0]
    return Example(
        text=f"#{number + 1}" if shown is None else " ⁄ ".join(map(_cut, shown)),
        truth=task.words(truth, first),
        float_answer=None if of_float is None else task.words(of_float, first),
        answer=task.words(answer, first),
        score=None if probability is None else round(probability, _DECIMALS),
    )


def _distance(task: Task, truth: Answer, answer: Answer, probability: float | None) -> float:
    """How wrong an answer is; comparable within a task. `probability` is that of the truth."""
    return task.error(truth, answer) if probability is None else 1 - round(probability, _DECIMALS)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
