"""Stage `examples`: check the golden examples of a handler and copy their files for all later stages."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from edgepack.artifacts import EXAMPLES_FILE, ExamplesArtifact
from edgepack.errors import RecipeInvalidError
from edgepack.recipe.findings import Finding
from edgepack.stages import keys
from edgepack.stages.stage import Context, Input, Stage
from edgepack.util import confined_files
from edgepack.util.hashing import sha256_file
from edgepack.util.text import counted, mib
from edgepack_runtime.bundle.model_config import FILE, TEXT
from edgepack_runtime.util.fs import open_regular
from edgepack_runtime.util.texts import is_unseen

FILES: Final = "files"
_SUFFIX: Final = re.compile(r"(?!\.onnx\Z)(\.[a-z0-9]{1,16})?\Z")  # each .onnx of a bundle is a model
_MOST_BYTES: Final = 256 * 2**20  # of all files: each bundle carries them
_MOST_LINE_BYTES: Final = 2**24
_MOST_FINDINGS: Final = 20


@dataclass(frozen=True)
class ExamplesStage(Stage[ExamplesArtifact]):
    """Writes `examples.jsonl`, and each file once in `files/`, named by its digest.

    Error of `run`: RecipeInvalidError with every finding, if a line is invalid or a file is missing.

    Attributes:
        examples: the .jsonl of the recipe; the files that it names lie in its folder or below.
        item: what the handler reads.
    """

    examples: Path
    item: str

    name = "examples"
    version = 2
    kind = ExamplesArtifact

    def decides(self, ctx: Context) -> Any:
        return self.item

    def inputs(self, ctx: Context) -> list[Input]:
        return keys.named("examples", digests(self.examples, self.item))

    def run(self, ctx: Context, out: Path) -> ExamplesArtifact:
        examples, item = self.examples, self.item
        (out / FILES).mkdir()
        rows, findings, size = 0, [], 0
        copies: dict[Path, str] = {}
        with (out / EXAMPLES_FILE).open("w", encoding="utf-8") as stream:
            for number, raw in _lines(examples):
                try:
                    row = _row(raw.decode("utf-8-sig"), item)
                    if item == FILE:
                        row["file"], added = _copied(row["file"], examples.parent, out / FILES, copies)
                        size += added
                        if size > _MOST_BYTES:
                            break  # the disk is not filled with what no bundle carries
                    stream.write(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n")
                    rows += 1
                except UnicodeEncodeError:
                    findings.append(_finding(examples, number, "it holds half a surrogate pair"))
                except (ValueError, RecursionError) as error:
                    findings.append(_finding(examples, number, str(error)))
        if not rows and not findings:
            findings.append(_finding(examples, None, "it has no examples"))
        if size > _MOST_BYTES:
            findings.append(
                _finding(examples, None, f"its files have more than {mib(_MOST_BYTES)}, the most that a bundle carries")
            )
        if findings:
            raise RecipeInvalidError(
                f"{examples.name} has {counted(len(findings), 'error')}",
                why=findings[0].reason,
                fix="correct what is named above and run the command again",
                findings=findings[:_MOST_FINDINGS],
            )
        ctx.progress.line(f"examples: {counted(rows, 'example')}" + (f", {mib(size)} of files" if size else ""))
        return ExamplesArtifact(out, item, rows)


def digests(examples: Path, item: str) -> list[str]:
    """Digests of the file and of the files that it names."""
    found = [keys.file_input("examples", examples).digest]
    known: dict[Path, str] = {}  # many lines may name one file
    left = _MOST_BYTES  # of all files: with more, `run` fails
    for _, line in _lines(examples) if item == FILE else ():
        try:
            named = confined_files.below(examples.parent, json.loads(line)["file"], _MOST_BYTES).resolve()
            if named not in known:
                left -= named.stat().st_size
                if left < 0:
                    break
                known[named] = sha256_file(named)
            found.append(known[named])
        except (ValueError, LookupError, TypeError, OSError, RecursionError):
            found.append("unreadable")  # `run` reports it
    return found


def _lines(examples: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, each with its number. A line ends after `_MOST_LINE_BYTES`."""
    number = 0
    with open_regular(examples) as lines:
        while line := lines.readline(_MOST_LINE_BYTES):
            number += 1
            if line.strip():
                yield number, line


def _row(line: str, item: str) -> dict[str, Any]:
    """A line as an object with the keys of its kind. Raises ValueError."""
    row = json.loads(line)
    key = "file" if item == FILE else "item"
    if not isinstance(row, dict) or set(row) != {key, "expected"}:
        found = ", ".join(sorted(row)) if isinstance(row, dict) else type(row).__name__
        raise ValueError(f"an example of this handler has the keys `{key}` and `expected`, and this has {found}")
    if item in (FILE, TEXT) and not (isinstance(row[key], str) and not is_unseen(row[key])):
        raise ValueError(f"`{key}` is not a text")
    return row


def _copied(name: str, source: Path, folder: Path, copies: dict[Path, str]) -> tuple[str, int]:
    """Path of the copy, relative to the artifact, and the bytes that it added. Raises ValueError."""
    try:
        file = confined_files.below(source, name, _MOST_BYTES)
        if file in copies:
            return copies[file], 0
        raw = confined_files.read(source, name, _MOST_BYTES)
    except OSError as error:
        raise ValueError(f"{name[:200]}: {error.strerror or error}") from error
    suffix = PurePosixPath(name).suffix.lower()
    if not _SUFFIX.match(suffix):
        raise ValueError(f"{name[:200]!r} does not end as a file of a bundle may: rename it, as to x.png")
    copy = hashlib.sha256(raw).hexdigest()[:16] + suffix
    copies[file] = f"{FILES}/{copy}"
    if (folder / copy).exists():
        return copies[file], 0
    (folder / copy).write_bytes(raw)
    return copies[file], len(raw)


def _finding(examples: Path, line: int | None, reason: str) -> Finding:
    return Finding("error", examples, line, reason, "correct the example")
