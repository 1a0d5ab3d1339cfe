"""Where a build comes to what: each result with its number, and of a search whose it is.

Candidates come one after the other, each as far as what would ship. What several of them have in common, as a student
that is quantized in two ways, has one place, where the first of them comes to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgepack.order import OF_A_CANDIDATE, OF_A_TARGET
from edgepack.recipe.model import Candidate, Recipe, distinct
from edgepack.recipe.section import Section


@dataclass(frozen=True)
class Place:
    """Where a build comes to one result, the `number`th (from 1).

    `candidates` are those that have it where others have another; `label` is what they have in common, in words.
    """

    number: int
    stage: str
    candidates: tuple[str, ...] = ()
    label: str = ""
    target: str | None = None

    @property
    def name(self) -> str:
        """`student model=./nano`."""
        return f"{self.stage} {self.label}".rstrip()


Whose = str | None  # the candidate or the target that a result belongs to
Places = Mapping[tuple[str, Whose], Place]


def places_of(recipe: Recipe) -> Places:
    """Stage and whose it is -> place, those of a build of `recipe` in its order; several candidates may share one."""
    found: dict[tuple[str, Whose], Place] = {}

    def add(
        stage: str,
        whose: Sequence[Whose] = (None,),
        candidates: tuple[str, ...] = (),
        label: str = "",
        target: str | None = None,
    ) -> None:
        place = Place(len(set(found.values())) + 1, stage, candidates, label, target)
        found.update({(stage, one): place for one in whose})

    add("data")
    if recipe.teacher is not None:
        add("teacher")
    groups = _groups(recipe.candidates)
    for (stage, group), label in zip(groups, _labels(groups), strict=True):
        names = tuple(one.name for one in group)
        if len(names) == len(recipe.candidates):
            add(stage, names)  # all have it in common
        else:
            add(stage, names, names, label)
    for stage in ("select",) if recipe.candidates else stages_of_candidate(recipe):
        add(stage)
    for target in recipe.targets:
        for stage in OF_A_TARGET:
            add(stage, (target,), target=target)
    return found


def in_order(places: Places) -> list[Place]:
    """Each place once, as a build comes to it."""
    return list(dict.fromkeys(places.values()))


def stages_of_candidate(recipe: Recipe) -> list[str]:
    """The stages from the student to what would ship."""
    asked = {"narrow": recipe.student.is_narrowed, "prune": recipe.student.pruning is not None}
    return [stage for stage in OF_A_CANDIDATE if asked.get(stage, True)]


_Group = tuple[str, list[Candidate]]  # a stage, and the candidates that have its result in common


def _groups(candidates: Sequence[Candidate]) -> list[_Group]:
    """In the order in which a build that finishes one candidate after the other comes to them."""
    found: dict[tuple[str, tuple[Section, ...]], list[Candidate]] = {}
    for candidate in candidates:
        for stage in stages_of_candidate(candidate.recipe):
            found.setdefault((stage, _decided_by(candidate.recipe, stage)), []).append(candidate)
    return [(stage, group) for (stage, _), group in found.items()]


def _decided_by(recipe: Recipe, stage: str) -> tuple[Section, ...]:
    """What of a candidate's recipe decides the result of a stage; the rest is the same for all, or comes later."""
    if stage == "student":
        return (recipe.student.model_copy(update={"width": 1.0, "vocabulary": "keep"}),)
    if stage == "narrow":
        return (recipe.student.model_copy(update={"vocabulary": "keep"}),)
    if stage == "prune":
        return (recipe.student,)
    if stage == "quantize":
        return (recipe.student, recipe.quantize, recipe.data.calibration)
    # The wheels of bundles come later, and a mapping has no hash.
    return (recipe.model_copy(update={"wheels": None}),)


def _labels(groups: Sequence[_Group]) -> list[str]:
    """The values that the candidates of a group share; of one alone its name. No two of a stage are alike."""

    def label(group: Sequence[Candidate]) -> str:
        shared = [pair for pair in group[0].values if all(pair in one.values for one in group)]
        return group[0].name if len(group) == 1 else ", ".join(f"{key}={value}" for key, value in shared)

    labels = [label(group) for _, group in groups]
    for stage in OF_A_CANDIDATE:
        at = [number for number, (of, _) in enumerate(groups) if of == stage]
        for number, name in zip(at, distinct([labels[number] for number in at]), strict=True):
            labels[number] = name
    return labels
