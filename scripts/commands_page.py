"""Reference page of the command line: `python scripts/commands_page.py FILE` writes it from every help text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from edgepack.cli import main as edgepack
from edgepack_runtime.cli.parser import Context, build_parser

HEAD = """\
# Commands

This page is made from the help of the commands (`make docs`). `edgepack` runs where bundles are built; the verbs below
[on a device](#on-a-device) run as `sh FILE.edgepack VERB`, as `PREFIX/bin/NAME VERB` after an install, and as
`edgert VERB`. All of them end with the same [exit codes](exit-codes.md).

## Where bundles are built

"""
DEVICE = """\
## On a device

`--version` in place of a verb prints name, version and target.

"""


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(_build_side(edgepack, "edgepack")) + "\n" + DEVICE + "\n".join(_device_side())


def _build_side(group: click.Group, name: str) -> Iterator[str]:
    outer = click.Context(group, info_name=name)
    for child in group.list_commands(outer):
        command = group.get_command(outer, child)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _build_side(command, f"{name} {child}")
            continue
        context = click.Context(command, info_name=child)
        arguments = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
        yield f"### {' '.join([name, child, *arguments])}\n"
        yield f"{_text(command.help or '')}\n"
        records = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
        yield from _table([record for record in records if record], {"-q, --quiet", "-v, --verbose"})


def _device_side() -> Iterator[str]:
    [verbs] = [action for action in build_parser(Context("edgert", None, None))._actions if action.dest == "verb"]
    assert isinstance(verbs.choices, dict)
    for verb, parser in verbs.choices.items():
        yield f"### {verb}\n"
        yield f"{_text(parser.description or '')}\n"
        rows = [
            (f"{', '.join(action.option_strings)} {action.metavar or ''}".strip(), action.help or "")
            for action in parser._actions
            if action.option_strings and action.help != argparse.SUPPRESS
        ]
        yield from _table(rows, {"-h, --help"})


def _text(text: str) -> str:
    """A help text as paragraphs of one line each."""
    return "\n\n".join(" ".join(part.replace("\b", "").split()) for part in text.split("\n\n"))


def _table(rows: list[tuple[str, str]], leave_out: set[str]) -> Iterator[str]:
    cells = [(option, " ".join(about.split())) for option, about in rows if option not in leave_out]
    if cells:
        yield "| option | |\n|---|---|"
        escaped = (
            (option.replace("|", r"\|"), about.replace("|", r"\|").replace("%%", "%")) for option, about in cells
        )
        yield from (f"| `{option}` | {about} |" for option, about in escaped)
        yield ""


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page().rstrip("\n") + "\n", encoding="utf-8")
