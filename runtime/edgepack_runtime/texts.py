"""Reads texts to predict from files or a stream, and writes predictions (standard library only).

A text must not be empty: an empty line in the middle of a file is a mistake more often than a wish, and skipping
it would shift every answer after it by one line.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import os
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterable, Iterator, List, Mapping, Sequence, TextIO

from edgepack_runtime.errors import UsageError
from edgepack_runtime.state import os_errors

SUFFIXES = (".txt", ".tsv", ".csv", ".jsonl")
MAX_LINE_BYTES = 16 * 1024 * 1024  # a text of a line; more is no text file, and would fill the memory
_CSV_FIELD_LIMIT = 16 * 1024 * 1024  # the csv module's own limit, 128 KiB, is shorter than some documents


def checked(text: str, where: str) -> str:
    """`text` without its line end.

    Raises:
        UsageError: naming `where`, when it is empty or only white space.
    """
    text = text.rstrip("\r\n")
    if not text.strip():
        raise UsageError(f"{where} is empty", fix="remove it, or give it a text")
    return text


def from_arguments(arguments: Sequence[str]) -> List[str]:
    """Texts given on the command line, which are UTF-8 whatever the locale says.

    Raises:
        UsageError: one is empty or not UTF-8.
    """
    texts = []
    for number, argument in enumerate(arguments, start=1):
        try:
            text = os.fsencode(argument).decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"text {number} is not UTF-8", why=str(error), fix="use a UTF-8 terminal") from error
        texts.append(checked(text, f"text {number}"))
    return texts


def from_stream(stream: BinaryIO, name: str) -> Iterator[str]:
    """One text a line, as they come: the caller can answer a line before the next is there.

    Raises:
        UsageError: with the line number, when a line is empty, not UTF-8 or longer than MAX_LINE_BYTES.
    """
    for number in itertools.count(1):
        where = f"line {number} of {name}"
        line = stream.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        if len(line) > MAX_LINE_BYTES:
            raise UsageError(
                f"{where} is longer than {MAX_LINE_BYTES // 2**20} MiB", fix="give a text file, one text a line"
            )
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{where} is not UTF-8", why=str(error), fix="save it as UTF-8") from error
        yield checked(text, where)


def read_texts(path: Path, column: str = "text") -> List[str]:
    """All texts of a file: .txt one a line; .tsv, .csv (with a header) and .jsonl the values of `column`.

    A .tsv has no quoting: a field is what stands between two tabs, quotation marks included.

    Raises:
        UsageError: with the line number, when the file is not of that form or a text in it is empty.
        EnvironmentUnfitError: it cannot be read.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path.name} has no known ending", fix=f"name it with one of {' '.join(SUFFIXES)}")
    if not path.is_file():
        raise UsageError(f"there is no file {path}", fix="check the path")
    with os_errors(f"{path} cannot be read"):
        if path.suffix == ".txt":
            with path.open("rb") as stream:
                texts = list(from_stream(stream, path.name))
        else:
            texts = list(_column(path, column))
    if not texts:
        raise UsageError(f"{path.name} holds no text", fix="give a file with at least one text")
    return texts


def _column(path: Path, column: str) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _json_values(file, path, column) if path.suffix == ".jsonl" else _cells(file, path, column)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path.name} is not UTF-8", why=str(error), fix="save it as UTF-8") from error
    except csv.Error as error:
        raise UsageError(f"{path.name} is not a table", why=str(error), fix="check its quotation marks") from error


def _json_values(file: TextIO, path: Path, column: str) -> Iterator[str]:
    for number, line in enumerate(file, start=1):
        where = f"line {number} of {path.name}"
        try:
            value = json.loads(line)[column]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise UsageError(f"{where} is no JSON object with a key `{column}`", why=str(error)) from error
        if not isinstance(value, str):
            raise UsageError(f"`{column}` in {where} is not a text")
        yield checked(value, where)


def _cells(file: TextIO, path: Path, column: str) -> Iterator[str]:
    csv.field_size_limit(_CSV_FIELD_LIMIT)
    if path.suffix == ".tsv":
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        rows = csv.reader(file, strict=True)
    header = next(rows, [])
    if header.count(column) != 1:
        raise UsageError(
            f"{path.name} has no column `{column}`",
            why=f"its first line names {', '.join(header) or 'nothing'}",
            fix="name the column that holds the texts: --column NAME",
        )
    index = header.index(column)
    for row in rows:
        where = f"line {rows.line_num} of {path.name}"
        if len(row) != len(header):
            raise UsageError(f"{where} has {len(row)} fields; the header has {len(header)}", fix="repair that line")
        yield checked(row[index], where)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A text file that becomes `path` when the block ends well: half an answer never looks like a whole one.

    Raises:
        UsageError: the ending is not a known one.
        EnvironmentUnfitError: it cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path.name} has no known ending", fix=f"name it with one of {' '.join(SUFFIXES)}")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with os_errors(f"{path} cannot be written"):
        try:
            with temporary.open("w", encoding="utf-8", newline="") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(path)
        finally:
            if temporary.exists():
                temporary.unlink()


def write_predictions(out: TextIO, suffix: str, texts: Sequence[str], predictions: Iterable[Mapping[str, Any]]) -> None:
    """Write predictions (`label`, `score`, and `scores` if asked for) in the order of `texts`.

    .jsonl and .txt get one JSON object a line, as on stdout; .csv and .tsv a header and the columns `text`,
    `label`, `score` and one `score_<label>` for each of `scores`.

    Raises:
        UsageError: a text cannot stand in a .tsv, which has no quoting.
    """
    if suffix in (".jsonl", ".txt"):
        for prediction in predictions:
            out.write(json.dumps(prediction, ensure_ascii=False) + "\n")
        return
    rows: Any = None
    for text, prediction in zip(texts, predictions):
        scores: Dict[str, float] = prediction.get("scores", {})
        if rows is None:
            rows = _table(out, suffix)
            rows.writerow(["text", "label", "score", *(f"score_{label}" for label in scores)])
        try:
            rows.writerow([text, prediction["label"], prediction["score"], *scores.values()])
        except csv.Error as error:
            raise UsageError(
                f"a text cannot stand in a .tsv file: {text[:40]!r}", why=str(error), fix="write a .csv or .jsonl file"
            ) from error


def _table(out: TextIO, suffix: str) -> Any:
    if suffix == ".tsv":
        return csv.writer(out, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
    return csv.writer(out, lineterminator="\n")
