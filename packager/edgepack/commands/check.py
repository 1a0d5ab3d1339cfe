"""`edgepack check`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from edgepack.commands import options
from edgepack.messages import local, message
from edgepack.packages import local_wheels, wheels
from edgepack.packages.target_spec import target_specs
from edgepack.recipe.findings import Finding
from edgepack.recipe.model import (
    AnyRecipe,
    CustomRecipe,
    FolderRecipe,
    ImportedTextRecipe,
    LinearRecipe,
    Recipe,
    TextKinds,
)
from edgepack.targets.context import BuildContext
from edgepack_runtime.schema.figures import quantity, span

if TYPE_CHECKING:
    from edgepack.artifacts import Row
    from edgepack.console.console import Console
    from edgepack.data.splits import RowReader, Splits

_FITTED_ROWS: Final = 20_000  # of the linear model, which is to take seconds here


def check(recipe: AnyRecipe, build_context: BuildContext, file: Path) -> Iterator[Finding]:
    """Warnings about targets that need a local wheel which the recipe does not name.

    Args:
        file: the file that the findings name.

    Raises:
        UsageError, EnvironmentUnfitError: a wheel of the recipe does not fit its target.
    """
    for target in recipe.targets:
        mine = {local_wheels.package_of(wheel) for wheel in build_context.given.get(target, ())}
        profile = build_context.profiles[target]
        if profile.by_path and profile.package not in mine:
            lacking = local_wheels.not_given(profile)
            yield Finding("warning", file, None, f"{lacking.what}, and the recipe names none", lacking.fix)
        elif mine:
            for spec in target_specs(recipe, profile):
                wheels.wanted(spec, build_context)


def linear_baseline(recipe: Recipe | LinearRecipe, splits: Splits) -> str:
    """What a linear model on characters reaches on the dev rows: the encoder has to be better to be worth its time."""
    from edgepack import evaluation
    from edgepack.tasks.registry import linear_task
    from edgepack.training import linear
    from edgepack_runtime.inference.linear import LinearModel

    train, dev = splits.rows["train"], list(splits.rows["dev"])
    labels = splits.classes
    task = recipe.data.columns.text_task
    outputs = task.model_labels(labels)
    most = min(recipe.data.train_rows or _FITTED_ROWS, _FITTED_ROWS)
    rows = linear.sample(train, len(train), most)
    try:
        model = LinearModel(linear.fit(linear_task(task, outputs), rows, dev).document)
    except ValueError as error:
        return message("say.linear_unfitted", why=str(error))
    metric = task.usual_metric
    answers = evaluation.linear_answers(model, dev, outputs, task)
    score = evaluation.score(task, metric, dev, answers, labels)
    shown = f"{quantity(score.value, score.unit)} {span(score.low, score.high, score.unit)}"
    found = message("say.linear", rows=len(rows), metric=message(f"metric.{metric}"), score=shown)
    return found if isinstance(recipe, LinearRecipe) else message("say.linear_enough", text=found)


@click.command()
@options.verbosity_options
@options.recipe_argument
@options.settings_option
@options.profiles_option
@click.pass_context
def command(context: click.Context, recipe: Path, settings: tuple[str, ...], profiles: Path | None) -> None:
    """Check RECIPE and its data; print every finding as file:line, reason, fix."""
    loaded, build_context = options.load(recipe, settings, options.SourceOptions(profiles=profiles))
    from edgepack.build import downloads

    console = options.console(context)
    lacking = list(check(loaded, build_context, recipe))
    for note in loaded.notes:
        console.line(note)
    if isinstance(loaded, Recipe | LinearRecipe):
        rows = _check_rows(loaded, recipe, console)
    elif isinstance(loaded, CustomRecipe):
        rows = _check_examples(loaded, recipe, console)
    else:
        rows = _check_known_rows(loaded, recipe, console)
    to_fetch = downloads.missing(loaded, build_context)
    console.findings([*lacking, *to_fetch.findings(recipe)])
    console.line(to_fetch.sentence)
    options.print_line(local(message("say.valid", recipe=recipe, rows=rows)))


def _check_examples(loaded: CustomRecipe, recipe: Path, console: Console) -> str:
    """Read the examples of an imported model, and print what they suggest; return their number."""
    import tempfile

    from edgepack.data import gates
    from edgepack.imported.examples import ExamplesStage
    from edgepack.recipe.validate_imported import read_handler
    from edgepack.stages.stage import Context

    stage = ExamplesStage(Path(loaded.examples), str(read_handler(Path(loaded.handler)).item))
    with tempfile.TemporaryDirectory(prefix="edgepack-") as scratch:
        rows = stage.run(Context(), Path(scratch)).rows
    reasons = gates.examples_out_of_reach(loaded.gates.accuracy, rows)
    console.findings([Finding("warning", recipe, None, reason, fix) for reason, fix in reasons])
    return message("say.examples", n=rows)


def _check_known_rows(loaded: ImportedTextRecipe | FolderRecipe, recipe: Path, console: Console) -> str:
    """Check the rows of a model that is there already, and print what they suggest; return their number."""
    from edgepack.data.splits import load_known
    from edgepack.data.suitability import LabelledRows, row_findings

    classes = loaded.data.columns.text_task.classes(tuple(loaded.model.labels or ()))
    splits = load_known(loaded.data, classes, console)
    rows = LabelledRows(classes, splits.lengths, len(splits.rows.get("train", ())), splits.rows.__getitem__)
    console.findings([*splits.warnings, *row_findings(loaded, rows, recipe)])
    _print_gate(loaded, splits.rows["test"], console)
    return message("say.rows", parts=[f"{len(rows)} {split}" for split, rows in splits.rows.items()])


def _check_rows(loaded: Recipe | LinearRecipe, recipe: Path, console: Console) -> str:
    """Check the rows of a recipe that trains, and print what they suggest; return their numbers."""
    from edgepack.data.lengths import describe_lengths
    from edgepack.data.splits import load_splits
    from edgepack.data.suitability import LabelledRows, row_findings

    splits = load_splits(loaded.data, console)
    rows = LabelledRows(splits.classes, splits.lengths, len(splits.rows["train"]), splits.rows.__getitem__)
    console.findings([*splits.warnings, *row_findings(loaded, rows, recipe)])
    console.line(describe_lengths(splits.lengths))
    _print_gate(loaded, splits.rows["test"], console)
    if isinstance(loaded, LinearRecipe) or loaded.has_linear:
        console.line(linear_baseline(loaded, splits))
    elif loaded.linear != "off":
        console.line(message("say.linear_none"))
    if isinstance(loaded, Recipe) and loaded.candidates:
        names = [f"  {candidate.name}" for candidate in loaded.candidates]
        console.line(message("say.candidates", n=len(names), names=names))
    return message("say.rows", parts=[f"{len(rows)} {split}" for split, rows in splits.rows.items()])


def _print_gate(loaded: TextKinds, test: Sequence[Row] | RowReader, console: Console) -> None:
    """Print the widths of the intervals of the accuracy gate."""
    from edgepack.data.gates import describe_gate

    if loaded.gates.accuracy is not None and loaded.data.columns.text_task.exact:
        console.line(describe_gate(loaded.gates.accuracy, len(test), test, loaded.gates.golden.rows))
