"""Command lines in the pages of docs/: their fenced `sh` blocks, and the parser that has to accept them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from edgepack.cli import main as edgepack

TITLES = (
    "on the device",
    "with a device",
    "with a network",
    "with a GPU",
    "with podman",
    "with a cluster",
    "with a search",
    "with older reports",
    "trains",
    "as root",
    "until Ctrl-C",
    "while serve runs",
)  # of blocks that no test runs, as ```sh title="as root"
FENCE = re.compile(r"^( *)```sh(?: title=\"([^\"]*)\")?\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
INSTALLED = re.compile(r"(~|PREFIX|/opt|\$HOME)(/\S*)?/bin/\S+|NAME")
OPERATORS = {"|", "||", "&&", ";", "&", "(", ")"}
REDIRECTIONS = {"<", ">", ">>"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page. One without a title is run by a test."""

    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """The `sh` blocks of `page`, in order."""
    text = page.read_text(encoding="utf-8")
    return [Block(title or "", body) for _, title, body in FENCE.findall(text)]


def commands_of(text: str) -> list[list[str]]:
    """The words of each command in a block, without comments and bodies of here-documents."""
    found: list[list[str]] = []
    for line in _lines(text):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if word in REDIRECTIONS:
                next(lexer)
            elif word in OPERATORS:
                found.append(words)
                words = []
            else:
                words.append(word)
        found.append(words)
    return [words for words in found if words]


def commands(page: Path) -> list[list[str]]:
    """The commands of `page` that start edgepack, edgert, a bundle or an installed release, by their program."""
    found = []
    for block in blocks(page):
        for words in commands_of(block.text):
            while words and (words[0] == "sudo" or re.fullmatch(r"\w+=.*", words[0])):
                words = words[1:]
            if words[:1] and words[0].startswith("python3") and len(words) > 1 and words[1].endswith(".edgepack"):
                words = words[1:]
            if words and (Path(words[0]).name in ("edgepack", "edgert") or _starts_a_release(words[0])):
                found.append(words)
    return found


def _starts_a_release(program: str) -> bool:
    return program.endswith(".edgepack") or INSTALLED.fullmatch(program) is not None


def _lines(text: str) -> Iterator[str]:
    """Logical lines: continued ones joined, a quotation over several lines as one, here-documents left out."""
    lines = iter(text.replace("\\\n", " ").splitlines())
    for line in lines:
        whole = line
        while not _closed(whole):
            whole += "\n" + next(lines)
        here = re.search(r"<<'?(\w+)'?", whole)
        if here:
            while next(lines).strip() != here[1]:
                pass
        yield whole


def _closed(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return False
    return True


def parse_build_side(arguments: list[str]) -> None:
    """Raise click.UsageError if `edgepack` does not accept `arguments`. Files need not exist."""
    command: click.Command = edgepack
    context = click.Context(edgepack)
    rest = arguments
    while isinstance(command, click.Group):
        options, rest, _ = command.make_parser(context).parse_args(list(rest))
        if not rest:
            return
        found = command.get_command(context, rest[0])
        if found is None:
            raise click.UsageError(f"no command {rest[0]}")
        command, rest = found, rest[1:]
        context = click.Context(command, parent=context)
    options, _, _ = command.make_parser(context).parse_args(list(rest))
    for param in command.params:
        if param.name in options and isinstance(param.type, click.Choice):
            param.type_cast_value(context, options[param.name])
