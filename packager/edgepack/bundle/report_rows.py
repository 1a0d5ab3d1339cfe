"""Example rows of a report: answers that differ from those of the float encoder, and the worst wrong answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edgepack.artifacts import MOST, Example, Examples
from edgepack_runtime.stats import metrics
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.task import Prediction, Task
from edgepack_runtime.util.spans import Span

_MOST_CHARACTERS: Final = 300  # of a text; longer ones are cut
_NOTHING: Final = "-"
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
    reference = [one.answer for one in shipped] if float_answers is None else float_answers
    for number, (truth, theirs, ours) in enumerate(zip(truths, reference, shipped, strict=True)):
        right = metrics.same(truth, ours.answer)
        if not metrics.same(theirs, ours.answer):
            kinds["won" if right else "lost" if metrics.same(truth, theirs) else "other"].append(number)
        if not right:
            wrong.append(number)
    distances = {number: _distance(task, truths[number], shipped[number]) for number in wrong}

    def example(number: int) -> Example:
        ours, shown = shipped[number], texts[number]
        score = task.probability(ours, truths[number])
        first = None if shown is None else shown[0]
        return Example(
            text=f"#{number + 1}" if shown is None else " ⁄ ".join(map(_cut, shown)),
            truth=_words(truths[number], first),
            float_answer=None if float_answers is None else _words(reference[number], first),
            answer=_words(ours.answer, first),
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
    if score is None:
        tallies = metrics.row_tallies(truth, prediction.answer).values()
        return float(sum(tally.fp + tally.fn for tally in tallies))
    return 1 - round(score, _DECIMALS)


def _words(answer: Answer, text: str | None) -> str:
    """`好评`, `快, 便宜`, `北京 = 地名` (`0-2 = 地名` if texts are not shown); `-` without a label or span."""
    if isinstance(answer, str):
        return answer
    parts = [f"{_of(one, text)} = {one.label}" if isinstance(one, Span) else one for one in answer]
    return ", ".join(parts) or _NOTHING


def _of(span: Span, text: str | None) -> str:
    return f"{span.start}-{span.end}" if text is None else text[span.start : span.end]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
