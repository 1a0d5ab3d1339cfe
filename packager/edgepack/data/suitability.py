"""Checks of a recipe against its data: truncated texts, and samples that are too large or too small."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.artifacts import DataArtifact, Row
from edgepack.data.gates import check_gate
from edgepack.data.lengths import Lengths, check_lengths
from edgepack.data.split_checks import MIN_LABEL_ROWS
from edgepack.data.unlabelled import further_texts
from edgepack.errors import RecipeInvalidError
from edgepack.messages import message
from edgepack.recipe import trained_folder
from edgepack.recipe.encoder_shapes import shape_of_model
from edgepack.recipe.findings import Finding
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.model import FolderRecipe, ImportedTextRecipe, LinearRecipe, Recipe, TextKinds
from edgepack.util.text import counted
from edgepack_runtime.schema.maxima import MAX_TOKENS

_NO_GATES = message("found.no_gates"), message("found.set_gates")


@dataclass(frozen=True)
class LabelledRows:
    """What is checked of labelled rows. `read` gives the rows of a split, and is called only for what needs them.

    Attributes:
        labels: different labels of train, or of the model.
        lengths: by split.
        train_rows: rows of the training split, or of the sample of it; 0 if nothing is trained.
    """

    labels: Sequence[str]
    lengths: Mapping[Any, Lengths]
    train_rows: int
    read: Callable[[Any], Iterable[Row]]

    @classmethod
    def of(cls, data: DataArtifact) -> LabelledRows:
        """The rows of the data stage."""
        lengths = {split: Lengths(counts) for split, counts in data.token_counts.items()}
        return cls(data.labels, lengths, data.rows.get("train", 0), data.read)


def row_findings(recipe: TextKinds, rows: LabelledRows, file: Path | None = None) -> list[Finding]:
    """Everything that is checked of a recipe and its rows before a build: the warnings; errors are raised.

    Raises:
        RecipeInvalidError: gates, baseline or further texts do not fit the rows.
    """
    require_judged_by(recipe, rows.labels)
    if recipe.gates.baseline is not None:
        from edgepack.bundle.baseline import require_comparable

        require_comparable(recipe.gates.baseline, recipe.task, rows.labels)
    if isinstance(recipe, Recipe):
        read_further_texts(recipe, lambda: [*rows.read("dev"), *rows.read("test")])
    return check_suited(recipe, rows, file)


def check_suited(recipe: TextKinds, rows: LabelledRows, file: Path | None = None) -> list[Finding]:
    """Warnings about a valid recipe and valid data. `file` is what findings name; else the recipe's name."""
    limits: dict[str, int] = {}  # a linear model truncates nothing
    problems: list[tuple[str, str]] = []
    most: int | None = MAX_TOKENS
    if isinstance(recipe, ImportedTextRecipe):
        limits, most = {"model.max_length": recipe.model.max_length}, None
    elif isinstance(recipe, FolderRecipe):
        limits = {"model.max_length": recipe.max_length}
        folder = trained_folder.read(Path(recipe.model.folder))
        trained, most = folder.max_length, folder.positions or MAX_TOKENS
        if 0 < trained < recipe.max_length:
            reason = message("found.longer_than_trained", wanted=recipe.max_length, trained=trained)
            problems.append((reason, message("found.trained_length", wanted=recipe.max_length, trained=trained)))
    else:
        problems += _samples(recipe, rows.train_rows, len(rows.labels))
    if isinstance(recipe, Recipe):
        students = sorted(recipe.students, key=lambda student: student.max_length)  # the first truncates the most texts
        models = {"teacher": recipe.teacher, "student": students[0]}
        limits = {f"{role}.max_length": model.max_length for role, model in models.items() if model is not None}
        most = _positions(recipe)
    if recipe.gates.ungated:
        problems.append(_NO_GATES)
    if recipe.gates.accuracy is not None and "test" in rows.lengths:
        problems += check_gate(recipe.gates.accuracy, rows.read("test"), rows.labels, recipe.gates.golden.rows)
    file = file or Path(recipe.name)
    found = [Finding("warning", file, None, reason, fix) for reason, fix in problems]
    return [*found, *check_lengths(rows.lengths, limits, file, most)]


def _positions(recipe: Recipe) -> int:
    """The most tokens that each model of the recipe can read, as far as that is known."""
    sections = (recipe.teacher, *recipe.students)
    models = [section.model for section in sections if section and isinstance(section.model, str)]
    shapes = [shape_of_model(model, MAX_TOKENS) for model in models]
    return min((shape.positions for shape in shapes if shape and shape.positions), default=MAX_TOKENS)


def require_judged_by(recipe: TextKinds, labels: Sequence[str]) -> None:
    """Check that the gates' metric exists for this number of labels, and that the data have their classes.

    Raises:
        RecipeInvalidError: names the metric, or each missing class.
    """
    gate = recipe.gates.accuracy
    if gate is not None and gate.metric is not None:
        why = recipe.data.columns.text_task.unfit(gate.metric, len(labels))
        if why is not None:
            of = counted(len(labels), "label")
            raise RecipeInvalidError(f"`gates.accuracy.metric` is {gate.metric}, which {of} do not have", fix=why)
    floors = {} if gate is None else gate.floors()
    unknown = [(key, label) for key, floor in floors.items() for label in floor.named if label not in labels]
    if unknown:
        what = ", ".join(f"`{key}_of` names {label[:60]!r}" for key, label in unknown)
        raise RecipeInvalidError(
            f"`gates.accuracy.per_class` is about classes that the data do not have: {what}",
            fix=did_you_mean(unknown[0][1], labels, f"the data have {listed(labels[:20])}"),
        )


def read_further_texts(recipe: Recipe, read_held_out: Callable[[], Iterable[Row]]) -> None:
    """Read the texts that decide which tokens of the vocabulary are kept, before anything is trained.

    Args:
        read_held_out: reads the dev and test rows; called only if there is such a file.

    Raises:
        RecipeInvalidError: they cannot be read.
    """
    found = (student.trimming for student in recipe.students)
    for file in dict.fromkeys(trimming.texts for trimming in found if trimming is not None):
        if file is not None:
            further_texts(Path(file), recipe.data.columns, read_held_out())


def _samples(recipe: Recipe | LinearRecipe, rows: int, labels: int) -> list[tuple[str, str]]:
    wanted = recipe.data.train_rows
    candidates = recipe.candidates if isinstance(recipe, Recipe) else ()
    asked = [recipe.data.calibration, *(candidate.recipe.data.calibration for candidate in candidates)]
    calibration = max(asked, key=lambda sample: sample.rows)
    found: list[tuple[str, str]] = []
    if wanted is not None and wanted > rows:
        reason = message("found.train_rows_more", wanted=wanted, rows=rows)
        found.append((reason, message("found.lower_or_remove")))
    if wanted is not None and wanted < MIN_LABEL_ROWS * labels:
        reason = message("found.train_rows_few", wanted=wanted, labels=labels)
        found.append((reason, message("found.use_at_least", rows=MIN_LABEL_ROWS * labels)))
    drawn = min(rows, wanted or rows)
    # The default may exceed a small data set, which is then used whole.
    if "rows" in calibration.model_fields_set and calibration.rows > drawn:
        reason = message("found.calibration_rows", wanted=calibration.rows, drawn=drawn)
        found.append((reason, message("found.lower_or_remove")))
    return found
