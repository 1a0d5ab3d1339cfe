"""What all options are made with: where the command line runs, parsers, numbers (standard library only)."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import NoReturn, Optional

from edgepack_runtime.errors import UsageError
from edgepack_runtime.tuning import MAX_THREADS

EXIT_CODES = """\
exit codes:
  0 ok           2 usage              4 this device is not fit      5 a step failed
  6 gate failed  7 gate undecided     8 bundle or release refused   10 rolled back
"""


@dataclasses.dataclass(frozen=True)
class Context:
    """From where the command line runs: `bundle` is the zip, `release` the unpacked folder; both None for `edgert`."""

    name: str
    bundle: Optional[Path]
    release: Optional[Path]

    @property
    def prog(self) -> str:
        """How the user started it, as far as we know."""
        return f"python3 {self.bundle.name}" if self.bundle else self.name


class Parser(argparse.ArgumentParser):
    """argparse whose errors are UsageError, so that they look and end like all others."""

    def error(self, message: str) -> NoReturn:
        dashed = message.startswith("unrecognized arguments: -")
        text = "; put -- before a text that begins with -" if dashed else ""
        raise UsageError(message, fix=f"{self.prog} --help{text}")


class Verbs:
    """Adds the verbs to a parser; the ones of a bundle or release leave out the argument that names it."""

    def __init__(self, parser: argparse.ArgumentParser, context: Context) -> None:
        self.context = context
        self.named = context.bundle is None and context.release is None
        self.group = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", parser_class=Parser)

    def add(self, verb: str, summary: str, details: str) -> argparse.ArgumentParser:
        return self.group.add_parser(
            verb,
            prog=f"{self.context.prog} {verb}",
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.\n\n{details}",
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def add_json(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the result as one line of JSON on stdout")

    def add_prefix(self, parser: argparse.ArgumentParser) -> None:
        default = "root: /opt/NAME, else ~/.local/share/edgepack/NAME"
        if self.context.release:
            default = "the one this release is in"
        parser.add_argument("--prefix", type=Path, metavar="DIR", help=f"folder that holds the install ({default})")

    def add_bundle(self, parser: argparse.ArgumentParser, *, what: str = "a .edgepack file") -> None:
        if self.named:
            parser.add_argument("path", type=Path, metavar="BUNDLE", help=what)


def port(text: str) -> int:
    return 0 if text == "0" else _number(text, 65_535)


def descriptor(text: str) -> int:
    return 0 if text == "0" else _number(text, 2**20)


def positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 0")
    return number


def above_zero(text: str) -> float:
    """A number that something may be divided by."""
    number = positive(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def at_least_one(text: str) -> int:
    return _number(text, 2**53)


def threads(text: str) -> int:
    return _number(text, MAX_THREADS)


def _number(text: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
    return int(text)
