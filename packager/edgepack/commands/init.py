"""`edgepack init`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgepack.commands import options
from edgepack.messages import message

if TYPE_CHECKING:
    from edgepack.recipe.model import SplitName


@click.command()
@options.verbosity_options
@click.argument("data", type=options.DataFile())
@click.option("--dev", type=options.DataFile(), help="Rows that select the best epoch. By default a part of DATA.")
@click.option("--test", type=options.DataFile(), help="Rows that decide the gates. By default a part of DATA.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("recipe.yaml"),
    show_default=True,
    help="The recipe to write. Data files are written beside it.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files, but never DATA.")
@click.pass_context
def command(context: click.Context, data: Path, dev: Path | None, test: Path | None, output: Path, force: bool) -> None:
    """Draft a commented recipe from DATA: texts or pairs with labels or a number, texts with spans, tags or slots,
    questions with answers in a text.

    DATA is a table (.tsv, .csv, .xlsx as FILE.xlsx#SHEET), JSON (.jsonl, .json), or has a token and its tag on each
    line; exports of doccano and Label Studio, and folders of brat. Separator, encoding, task, columns and labels are
    detected. Without --dev or --test, or if a recipe cannot read DATA directly, train.tsv, dev.tsv and test.tsv are
    written beside the recipe (.jsonl but for single labels). dev and test get a tenth of each label, or more if
    there are fewer than 1,000 rows. Equal and nearly equal texts go into the same file.
    """
    from edgepack.console.tables import safe
    from edgepack.data.draft.draft import draft

    console = options.console(context)
    files: dict[SplitName, Path] = {"train": data}
    files |= {"dev": dev} if dev is not None else {}
    files |= {"test": test} if test is not None else {}
    drafted = draft(files, output, console, force=force)
    for line in drafted.description:
        console.line(safe(line))  # with names of files and columns, which come from outside
    console.findings(list(drafted.findings))
    written: list[str] = [message("say.wrote", path=str(file)) for file in drafted.files]
    faulty = dict.fromkeys(str(finding.file) for finding in drafted.findings if finding.severity == "error")
    next_step = message("draft.fix_errors", files=list(faulty)) if faulty else message("draft.read_it")
    console.closing([*written, "", next_step, f"  edgepack check {shlex.quote(str(output))}"])
