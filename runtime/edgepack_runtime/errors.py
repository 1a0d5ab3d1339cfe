"""The errors that edgepack raises on purpose, and the exit code of each: one tree for both packages.

    EdgepackError                    exit 1   (root; never raised itself)
    |-- UsageError                   exit 2   the command line does not fit
    |-- RecipeInvalidError           exit 3   (build side) findings in the recipe or in the data it names
    |-- EnvironmentUnfitError        exit 4   this machine lacks something: a dependency, a driver, memory, disk
    |-- StageFailedError             exit 5   a stage of a build, or a step of install, self-test or prediction, failed
    |-- GateFailedError              exit 6   a gate was measured and missed
    |-- GateInconclusiveError        exit 7   a gate could not be decided
    |-- BundleInvalidError           exit 8   a bundle or release is damaged, or not what it claims
    |-- TargetUnreachableError       exit 9   (build side) the target cannot be reached or is not the one asked for
    `-- RolledBackError              exit 10  the new release failed after the switch; the one before is active again

Each exit code has one class directly below the root. A process that prints JSON reports its error as JSON too, as
`{"error": {...}}` on standard output: `to_json` writes the object, `reported` reads the output.
"""

from __future__ import annotations

import enum
import json
import re
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Tuple

# Control characters move cursors and begin lines; marks that reorder text make a line read as another one.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# GitHub obeys `::` at the start of a line, also after blanks, and `##[` anywhere; Azure obeys `##vso[` anywhere.
_CI_COMMAND = re.compile(r"(^[^\S\n]*(?=::)|(?=##\w*\[))(.)", re.MULTILINE)


def printable(text: str) -> str:
    """`text` as one line that does nothing to a terminal or a CI server: other characters become escapes."""
    return unheard(_UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text))


def unheard(text: str) -> str:
    """`text` without commands to a CI server: an escape replaces the first character of each."""
    if "::" not in text and "##" not in text:
        return text
    return _CI_COMMAND.sub(lambda found: f"{found[1]}\\u{ord(found[2]):04x}", text)


def printed(lines: Iterable[str]) -> str:
    """`lines` as a text in which nothing that comes from outside begins another line."""
    return "\n".join(map(printable, lines))


class ExitCode(enum.IntEnum):
    """The exit codes of every command, build side and device side alike; docs/reference/exit-codes.md explains them.

    Scripts and CI branch on these numbers, so they are part of the public contract: never renumber one.
    """

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    RECIPE_INVALID = 3
    ENVIRONMENT_UNFIT = 4
    STAGE_FAILED = 5
    GATE_FAILED = 6
    GATE_INCONCLUSIVE = 7
    BUNDLE_INVALID = 8
    TARGET_UNREACHABLE = 9
    ROLLED_BACK = 10


class EdgepackError(Exception):
    """Root of all errors that edgepack raises on purpose.

    Args:
        what: what went wrong, one sentence, naming the stage, step or file.
        why: the cause, as far as it is known.
        fix: the next command to type or thing to do.
    """

    exit_code: ExitCode = ExitCode.UNEXPECTED

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return self.described()

    def described(self, say: Callable[[str], str] = str, labels: Tuple[str, str] = ("why: ", "fix: ")) -> str:
        """The error as lines. `say` gives each part in the language of the reader."""
        lines = [say(self.what)]
        for label, text in zip(labels, (self.why, self.fix)):
            # The mark keeps what follows a line end from being read as a line of its own, by people and by programs.
            parts = say(text).split("\n") if text else []
            lines += [("  | " if number else f"  {label}") + line for number, line in enumerate(parts)]
        return printed(lines)


class UsageError(EdgepackError):
    exit_code = ExitCode.USAGE


class EnvironmentUnfitError(EdgepackError):
    exit_code = ExitCode.ENVIRONMENT_UNFIT


class StageFailedError(EdgepackError):
    exit_code = ExitCode.STAGE_FAILED


class GateFailedError(EdgepackError):
    exit_code = ExitCode.GATE_FAILED


class GateInconclusiveError(EdgepackError):
    exit_code = ExitCode.GATE_INCONCLUSIVE


class BundleInvalidError(EdgepackError):
    exit_code = ExitCode.BUNDLE_INVALID


class RolledBackError(EdgepackError):
    exit_code = ExitCode.ROLLED_BACK


def to_json(error: EdgepackError) -> Dict[str, Any]:
    """`error` as a JSON object, for the process that started this one."""
    return {"exit_code": int(error.exit_code), "what": error.what, "why": error.why, "fix": error.fix}


_MOST_CHARACTERS = 4000  # of each part of an error: a device may print any length


def from_json(document: Mapping[str, Any]) -> EdgepackError:
    """The error in an object that `to_json` wrote. An exit code without a class here gives an unexpected error.

    Raises:
        ValueError: it is not such an object.
    """
    parts = [document.get(name) for name in ("what", "why", "fix")]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError("it does not describe an error")
    kinds = {int(kind.exit_code): kind for kind in EdgepackError.__subclasses__()}
    what, why, fix = (str(part)[:_MOST_CHARACTERS] for part in parts)
    return kinds.get(document.get("exit_code", 1), EdgepackError)(what, why=why, fix=fix)


def reported(output: str) -> Optional[EdgepackError]:
    """The error that a process reported on its standard output; None when it reported none."""
    try:
        return from_json(json.loads(output)["error"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
