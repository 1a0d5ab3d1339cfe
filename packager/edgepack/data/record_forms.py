"""Records as annotation tools nest them, as flat ones with a key for each column; records of other tasks, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import Rows

Record = Mapping[str, Any]

_DOCS: Final = "Tasks: labels for texts or pairs of texts, and labelled spans"
# Keys that records of other tasks have -> what they are, and what serves them.
_OTHER_TASKS: Final[tuple[tuple[tuple[str, ...], str, str], ...]] = (
    (("paragraphs",), "reading comprehension (SQuAD's form)", "PaddleNLP trains models for it"),
    (("context", "question", "answers"), "reading comprehension (SQuAD's form)", "PaddleNLP trains models for it"),
    (("content", "prompt", "result_list"), "prompted extraction (UIE's form)", "take the export of doccano itself"),
    (("instruction", "output"), "generation of text", "no classifier can learn it"),
    (("conversations",), "generation of text", "no classifier can learn it"),
    (("messages",), "generation of text", "no classifier can learn it"),
    (("src", "tgt"), "generation of text", "no classifier can learn it"),
)

# Keys beside spans, as doccano and others write them.
_BESIDE_SPANS: Final = {
    "relations": "relations between spans",
    "cats": "labels of whole texts",
    "intent": "labels of whole texts",
}


def records(rows: Rows) -> Iterator[tuple[int, Record | RowError]]:
    """Each record with its line, flat, or what is wrong with its line.

    Raises:
        RowError: the rest makes no sense, or a record is one of a task that is not served.
    """
    for line, read in rows.records():
        if isinstance(read, RowError):
            if read.fatal:
                raise read
            yield line, read
            continue
        record = _flat(read)
        for keys, what, instead in _OTHER_TASKS:
            if all(key in record for key in keys):
                raise RowError(line, f"is a row for {what}, which is not served", f"{instead}. {_DOCS}")
        yield line, record


def left_out(record: Record) -> Iterator[tuple[str, str]]:
    """Keys of a record with spans that tell more than its spans, each with what it is."""
    for key, what in _BESIDE_SPANS.items():
        if record.get(key):
            yield key, what


def _flat(record: Record) -> Record:
    """A task of Label Studio's JSON as its data, with the results of its first annotation by the names of their tags.

    Choices are a list of labels, regions a list of spans. Other records are returned as they are.
    """
    data, annotations = record.get("data"), record.get("annotations", record.get("completions"))
    if not isinstance(data, dict) or not isinstance(annotations, list):
        return record
    found: dict[str, Any] = dict(data)
    done = (one for one in annotations if isinstance(one, dict) and not one.get("was_cancelled"))
    results = next(done, {}).get("result")
    for result in results if isinstance(results, list) else ():
        if not isinstance(result, dict) or not isinstance(value := result.get("value"), dict):
            continue
        key = str(result.get("from_name", "label"))  # `_1` if the text itself has a column of that name
        values = found.setdefault(key if key not in data else f"{key}_1", [])
        if not isinstance(values, list):
            continue
        for chosen in ("choices", "taxonomy"):
            labels = value.get(chosen)
            values += labels if isinstance(labels, list) else [labels] if isinstance(labels, str) else []
        if {"start", "end"} <= value.keys():
            values.append({"start": value["start"], "end": value["end"], "label": _kind_of(value)})
    return found


def _kind_of(region: Record) -> object:
    kinds = next((kinds for key, kinds in region.items() if key.endswith("labels")), None)
    return kinds[0] if isinstance(kinds, list) and kinds else kinds
