"""Choose the student that goes on: the smallest of those whose dev score is near the best. Test rows have no say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from edgepack.artifacts import Compared, ModelArtifact, SelectArtifact
from edgepack.progress import Progress
from edgepack.recipe.model import Search
from edgepack.report import quantity
from edgepack.wording import counted, metric_name

VERSION = 1
_ROUNDING: Final = 1e-9  # points; scores are quotients, and two that differ by the tolerance are within it


def run(
    section: Search,
    trained: Mapping[str, ModelArtifact],
    left_out: Sequence[str],
    out: Path,
    progress: Progress,
) -> SelectArtifact:
    """Compare the candidates that were `trained`, by name in the order of the recipe; there is one at least."""
    candidates = tuple(
        Compared(name, model.dev_score, model.parameters, model.weight_bytes, model.train_seconds)
        for name, model in trained.items()
    )
    chosen, why = choose(candidates, section.tolerance_points)
    if left_out:
        why += f"; {counted(len(left_out), 'candidate')} could not be trained: {'; '.join(left_out)}"
    progress.line(f"{chosen.name}: {why}")
    return SelectArtifact(out, candidates, chosen.name, why, section.tolerance_points, tuple(left_out))


def choose(candidates: Sequence[Compared], tolerance_points: float) -> tuple[Compared, str]:
    """The one with the fewest weights of those at most `tolerance_points` below the best dev score, and why it is.

    Of equally small ones the better goes on, of equally good ones the first.
    """
    best = max(candidates, key=lambda one: one.dev_score.value)
    points = [100 * (best.dev_score.value - one.dev_score.value) for one in candidates]
    near = [one for one, below in zip(candidates, points, strict=True) if below <= tolerance_points + _ROUNDING]
    chosen = min(near, key=lambda one: (one.parameters, -one.dev_score.value))
    within = f"within {tolerance_points:g} {'point' if tolerance_points == 1 else 'points'} of"
    score = f"dev {metric_name(best.dev_score.metric)}, {quantity(best.dev_score.value, 'fraction')}"
    if len(candidates) == 1:
        return chosen, f"the only candidate; {score}"
    if len(near) == 1:
        return chosen, f"the best {score}; no other is {within} it"
    smallest = sum(one.parameters == chosen.parameters for one in near)
    rank = "the smallest" if smallest == 1 else f"the best of the {smallest} smallest"
    whose = "its own" if chosen is best else f"of {best.name}"
    return chosen, f"{rank} of {len(near)} {within} the best {score} ({whose})"
