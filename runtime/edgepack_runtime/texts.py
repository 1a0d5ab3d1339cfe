"""Reads texts, or pairs of texts, to predict from files or a stream, and writes predictions (standard library only).

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
from typing import Any, BinaryIO, Iterable, Iterator, List, Mapping, Optional, Sequence, TextIO, Tuple, Union

from edgepack_runtime.errors import UsageError
from edgepack_runtime.state import os_errors

Item = Union[str, Tuple[str, str]]  # what a model is asked about: a text, or a pair of texts
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


def one_pair(arguments: Sequence[str]) -> Tuple[str, str]:
    """The texts given on the command line of a model of pairs.

    Raises:
        UsageError: there are not two of them.
    """
    if len(arguments) != 2:
        given = "one text was" if len(arguments) == 1 else f"{len(arguments)} texts were"
        raise UsageError(
            "this model takes pairs of texts",
            why=f"{given} given",
            fix="give two: predict TEXT TEXT_PAIR; or more pairs on standard input, one a line with a tab between",
        )
    return arguments[0], arguments[1]


def from_stream(stream: BinaryIO, name: str, *, pairs: bool = False) -> Iterator[Item]:
    """One text a line, as they come: the caller can answer a line before the next is there.

    Args:
        pairs: a line holds two texts with a tab between.

    Raises:
        UsageError: with the line number, when a line is empty, no pair, not UTF-8 or longer than MAX_LINE_BYTES.
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
        yield _pair_of_line(text, where) if pairs else checked(text, where)


def _pair_of_line(line: str, where: str) -> Item:
    fields = checked(line, where).split("\t")
    if len(fields) != 2:
        raise UsageError(
            f"{where} is no pair of texts",
            why=f"it has {len(fields) - 1} tabs, and a pair is two texts with one tab between",
            fix="repair that line",
        )
    return _item(fields, where)


def _item(fields: Sequence[str], where: str) -> Item:
    """One or two fields of a line as what is asked about; none may be empty."""
    if len(fields) == 1:
        return checked(fields[0], where)
    first, second = (checked(field, f"text {number} of {where}") for number, field in enumerate(fields, start=1))
    return first, second


def evenly(items: Sequence[Item], most: int) -> List[Item]:
    """At most `most` of `items`, evenly spread over them."""
    step = max(1.0, len(items) / most)
    return [items[int(index * step)] for index in range(min(most, len(items)))]


def check_file(path: Path) -> None:
    """See that there is a file to read texts from.

    Raises:
        UsageError: there is none, or its ending is not a known one.
    """
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path.name} has no known ending", fix=f"name it with one of {' '.join(SUFFIXES)}")
    if not path.is_file():
        raise UsageError(f"there is no file {path}", fix="check the path")


def read_texts(path: Path, column: str = "text", pair_column: Optional[str] = None) -> List[Item]:
    """All texts of a file: .txt one a line; .tsv, .csv (with a header) and .jsonl the values of `column`.

    A .tsv has no quoting: a field is what stands between two tabs, quotation marks included.

    Args:
        column: of the texts.
        pair_column: of the second texts; None where single texts are wanted. A .txt of pairs has a tab between.

    Raises:
        UsageError: with the line number, when the file is not of that form or a text in it is empty.
        EnvironmentUnfitError: it cannot be read.
    """
    check_file(path)
    columns = [column] if pair_column is None else [column, pair_column]
    with os_errors(f"{path} cannot be read"):
        if path.suffix == ".txt":
            with path.open("rb") as stream:
                texts = list(from_stream(stream, path.name, pairs=pair_column is not None))
        else:
            texts = list(_columns(path, columns))
    if not texts:
        raise UsageError(f"{path.name} holds no text", fix="give a file with at least one text")
    return texts


def _columns(path: Path, columns: Sequence[str]) -> Iterator[Item]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _json_values(file, path, columns) if path.suffix == ".jsonl" else _cells(file, path, columns)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path.name} is not UTF-8", why=str(error), fix="save it as UTF-8") from error
    except csv.Error as error:
        raise UsageError(f"{path.name} is not a table", why=str(error), fix="check its quotation marks") from error


def _json_values(file: TextIO, path: Path, columns: Sequence[str]) -> Iterator[Item]:
    wanted = " and ".join(f"a key `{column}`" for column in columns)
    for number, line in enumerate(file, start=1):
        where = f"line {number} of {path.name}"
        try:
            row = json.loads(line)
            fields = [row[column] for column in columns]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise UsageError(f"{where} is no JSON object with {wanted}", why=str(error)) from error
        for column, value in zip(columns, fields):
            if not isinstance(value, str):
                raise UsageError(f"`{column}` in {where} is not a text")
        yield _item(fields, where)


def _cells(file: TextIO, path: Path, columns: Sequence[str]) -> Iterator[Item]:
    csv.field_size_limit(_CSV_FIELD_LIMIT)
    if path.suffix == ".tsv":
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
    else:
        rows = csv.reader(file, strict=True)
    header = next(rows, [])
    options = ("--column", "--pair-column")
    for column, option, which in zip(columns, options, ("texts", "second texts")):
        if header.count(column) != 1:
            raise UsageError(
                f"{path.name} has no column `{column}`",
                why=f"its first line names {', '.join(header) or 'nothing'}",
                fix=f"name the column that holds the {which}: {option} NAME",
            )
    places = [header.index(column) for column in columns]
    for row in rows:
        where = f"line {rows.line_num} of {path.name}"
        if len(row) != len(header):
            raise UsageError(f"{where} has {len(row)} fields; the header has {len(header)}", fix="repair that line")
        yield _item([row[place] for place in places], where)


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
            # Half a surrogate pair, which JSON may hold, is written as JSON escapes it.
            with temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(path)
        finally:
            if temporary.exists():
                temporary.unlink()


def write_predictions(
    out: TextIO,
    suffix: str,
    items: Sequence[Item],
    predictions: Iterable[Mapping[str, Any]],
    score_labels: Sequence[str] = (),
) -> None:
    """Write predictions (JSON objects, all with the same keys) in the order of `items`.

    .jsonl and .txt get one JSON object a line, as on stdout. .csv and .tsv get a header, the columns `text` (and
    `text_pair`), one column for each key, and one `score_<label>` for each of `score_labels` in place of `scores`.
    What is neither a text nor a number stands there as JSON.

    Raises:
        UsageError: a text cannot stand in a .tsv, which has no quoting.
    """
    if suffix in (".jsonl", ".txt"):
        for prediction in predictions:
            out.write(json.dumps(prediction, ensure_ascii=False) + "\n")
        return
    rows: Any = None
    for item, prediction in zip(items, predictions):
        fields = [item] if isinstance(item, str) else list(item)
        keys = [key for key in prediction if key != "scores" or not score_labels]
        if rows is None:
            rows = _table(out, suffix)
            rows.writerow([*("text", "text_pair")[: len(fields)], *keys, *(f"score_{label}" for label in score_labels)])
        scores = [prediction["scores"][label] for label in score_labels]
        try:
            rows.writerow([*fields, *(_cell(prediction[key]) for key in keys), *scores])
        except csv.Error as error:
            raise UsageError(
                f"a text cannot stand in a .tsv file: {fields[0][:40]!r}",
                why=str(error),
                fix="write a .csv or .jsonl file",
            ) from error


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else value


def _table(out: TextIO, suffix: str) -> Any:
    if suffix == ".tsv":
        return csv.writer(out, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
    return csv.writer(out, lineterminator="\n")
