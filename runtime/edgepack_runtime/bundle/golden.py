"""Golden files of a release: texts with expected logits, and labelled rows.

Both files hold one JSON object per line. A golden text has `text`, for pairs `text_pair`, and `logits`: one number for
each label, or for token classification a list of such lists, one for each token. A labelled row has `text`, for pairs
`text_pair`, and its answer under the task's `answer_key`: a `label`, a list of `labels`, a list `spans` of [start, end,
label] with indices of a Python str. The float model's answer has the prefix `float_`, that of an earlier release
`baseline_`, as `float_label`. A linear model alone has no float model beside it.

A release without its rows has `golden/texts.jsonl` instead: placeholder texts with the lengths of the rows.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.util.texts import Item

MODEL_FOLDER = "model"
GOLDEN_FILE = "golden/golden.jsonl"
ROWS_FILE = "golden/rows.jsonl"
TEXTS_FILE = "golden/texts.jsonl"


class GoldenText(NamedTuple):
    """A text or pair of texts with the logits of the shipped model on the machine that built it.

    `logits` (rows, labels) has one row for the text, or one for each token including [CLS] and [SEP].
    """

    text: str
    logits: Tuple[Tuple[float, ...], ...]
    text_pair: Optional[str] = None

    @property
    def item(self) -> Item:
        """The input of the predictor."""
        return self.text if self.text_pair is None else (self.text, self.text_pair)


class GoldenRow(NamedTuple):
    """A row of the test split. `float_answer` is the answer of the student's float model, if there is one.

    `baseline_answer` is the answer of the earlier release for comparison, if any.
    """

    text: str
    answer: Answer
    float_answer: Optional[Answer] = None
    text_pair: Optional[str] = None
    baseline_answer: Optional[Answer] = None

    @property
    def item(self) -> Item:
        """The input of the predictor."""
        return self.text if self.text_pair is None else (self.text, self.text_pair)


def read_golden(release: Path, config: ModelConfig) -> List[GoldenText]:
    """The texts of `golden/golden.jsonl`, at least one.

    Raises:
        BundleInvalidError: the file is missing or empty, or a line does not fit a model of `config`.
    """
    keys, n_labels, per_token = _text_keys(config), len(config.labels), config.text_task.per_token
    per = " for each token" if per_token else ""
    golden = []
    for where, row in parse_lines(read_file(release, GOLDEN_FILE), GOLDEN_FILE, {*keys, "logits"}):
        logits = row.pop("logits")
        table = logits if per_token else [logits]
        if not _are_texts(row.values()) or not isinstance(table, list) or not table:
            raise invalid(where, f"it should hold {_and(keys)} and logits")
        if not all(_are_numbers(numbers) and len(numbers) == n_labels for numbers in table):
            raise invalid(where, f"it should hold {_and(keys)} and {n_labels} logits{per}")
        golden.append(GoldenText(logits=tuple(tuple(map(float, numbers)) for numbers in table), **row))
    return golden


def read_items(release: Path, config: ModelConfig) -> List[Item]:
    """Inputs for latency measurements: the texts of the golden rows, or the placeholder texts.

    Raises:
        BundleInvalidError: as `read_rows`.
    """
    if not (release / TEXTS_FILE).is_file():
        return [row.item for row in read_rows(release, config)]
    keys = _text_keys(config)
    items: List[Item] = []
    for where, row in parse_lines(read_file(release, TEXTS_FILE), TEXTS_FILE, set(keys)):
        if not _are_texts(row.values()):
            raise invalid(where, f"it should hold {_and(keys)}")
        items.append((row["text"], row["text_pair"]) if "text_pair" in row else row["text"])
    return items


def read_rows(release: Path, config: ModelConfig) -> List[GoldenRow]:
    """The labelled rows of `golden/rows.jsonl`, at least one.

    Raises:
        BundleInvalidError: the file is missing or empty, or a line does not fit a model of `config`, or has an unknown
            label.
    """
    return parse_rows(read_file(release, ROWS_FILE), ROWS_FILE, config)


def parse_rows(raw: bytes, name: str, config: ModelConfig) -> List[GoldenRow]:
    """`read_rows` from bytes. `name` is the file name for messages."""
    task, keys, known = config.text_task, _text_keys(config), frozenset(config.classes)
    key = task.answer_key
    rows = []
    fields = {key: "answer", f"float_{key}": "float_answer", f"baseline_{key}": "baseline_answer"}
    for where, row in parse_lines(raw, name, {*keys, key}, optional=[*fields][1:]):
        given = {name: row.pop(name) for name in fields if name in row}
        if not _are_texts(row.values()):
            raise invalid(where, f"it should hold {_and(keys)}")
        answers: Dict[str, Any] = {}
        for name, value in given.items():
            answers[fields[name]] = task.parse_answer(value, known, len(row[keys[-1]]))
        if None in answers.values():
            raise invalid(where, "{} should be {}".format(", ".join(given), task.answer_form(sorted(known))))
        rows.append(GoldenRow(**row, **answers))
    return rows


def _text_keys(config: ModelConfig) -> Tuple[str, ...]:
    return ("text", "text_pair") if config.takes_pairs else ("text",)


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) in (int, float) and math.isfinite(v) for v in values)


def _and(keys: Tuple[str, ...]) -> str:
    return " and ".join(f"a {key}" for key in keys)


def read_file(release: Path, name: str) -> bytes:
    """The bytes of a file of the release.

    Raises:
        BundleInvalidError: it cannot be read.
    """
    try:
        return (release / name).read_bytes()
    except OSError as error:
        raise invalid(name, str(error)) from error


def parse_lines(
    raw: bytes, name: str, keys: Set[str], *, optional: Sequence[str] = ()
) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """The place (for messages) and object of each line.

    Objects have exactly `keys`, and of `optional` those of the first.
    """
    from edgepack_runtime.rows.formats import BY_SUFFIX  # most commands read no golden rows
    from edgepack_runtime.rows.lines import RowError
    from edgepack_runtime.rows.reader import Rows

    rows = Rows(io.BufferedReader(io.BytesIO(raw)), name, BY_SUFFIX[".jsonl"])
    for number, row in rows.records():
        where = f"line {number} of {name}"
        if isinstance(row, RowError):
            raise invalid(where, f"it {row.what}")
        if number == 1:
            keys = keys.union(key for key in optional if key in row)
        if set(row) != keys:
            raise invalid(where, "it should be an object with the keys {}".format(", ".join(sorted(keys))))
        yield where, row
    if rows.blank or not rows.lines.number:
        raise invalid(name, "it has blank lines" if rows.blank else "it is empty")


def invalid(where: str, why: str) -> BundleInvalidError:
    """The error about a line or file of the golden rows."""
    return BundleInvalidError(f"{where} is not valid", why=why, fix="copy the bundle again from where you got it")
