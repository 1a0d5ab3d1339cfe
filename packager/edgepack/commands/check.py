"""`edgepack check`."""

from __future__ import annotations

from pathlib import Path

import click

from edgepack.commands import common, supplies
from edgepack.wording import counted


@click.command()
@common.speaking
@common.recipe_argument
@common.settings_option
@supplies.profiles_option
@click.pass_context
def command(context: click.Context, recipe: Path, settings: tuple[str, ...], profiles: Path | None) -> None:
    """Check RECIPE and the data it names; print every finding as file:line, reason, fix."""
    loaded, known = supplies.load_recipe(recipe, settings, profiles)
    from edgepack.datasets.gates import describe_gate
    from edgepack.datasets.lengths import describe_lengths
    from edgepack.datasets.load import load_splits
    from edgepack.datasets.suited import check_suited, read_further_texts, require_judged_by
    from edgepack.targets import by_path

    console = common.console(context)
    splits = load_splits(loaded.data, console)
    rows, labels = splits.rows, list(splits.labels["train"])
    require_judged_by(loaded, labels)
    if loaded.gates.baseline is not None:
        from edgepack.targets.baseline import require_comparable

        require_comparable(loaded.gates.baseline, loaded.task, labels)
    lacking = list(by_path.check(loaded, known, recipe))
    suited = check_suited(loaded, len(rows["train"]), labels, splits.lengths, recipe, lambda: rows["test"])
    read_further_texts(loaded, lambda: [*rows["dev"], *rows["test"]])
    console.findings([*splits.warnings, *suited, *lacking])
    console.line(describe_lengths(splits.lengths))
    if loaded.gates.accuracy is not None:
        most = loaded.gates.golden.rows
        console.line(describe_gate(loaded.gates.accuracy, len(rows["test"]), rows["test"], most))
    if loaded.candidates:
        names = "\n".join(f"  {candidate.name}" for candidate in loaded.candidates)
        console.line(f"{counted(len(loaded.candidates), 'candidate')}:\n{names}")
    counts = ", ".join(f"{len(rows)} {split}" for split, rows in splits.rows.items())
    click.echo(f"{recipe}: valid ({counts} rows)")
