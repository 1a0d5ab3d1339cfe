"""Records as annotation tools nest them, as flat ones with a key for each column; records of other tasks, by name."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any, Final

from edgepack.data.detect import TEXT_NAMES
from edgepack.messages import message
from edgepack.recipe.messages import listed
from edgepack.recipe.paths import on_disk
from edgepack_runtime.rows.lines import RowError
from edgepack_runtime.rows.reader import Rows

Record = Mapping[str, Any]
_FEWEST_LABELS: Final = 2
EACH: Final = '(if type == "array" then .[] else . end)'  # of jq: the records of one list, or those on lines
_MOST_NAMED: Final = 8  # lists of an object
_MOST_COPIED: Final = 2**24  # characters, and so many for each byte of a file:
_COPIES: Final = 16
_ROWS: Final = "rows"  # name of the only table of an object

_DOCS: Final = "Tasks: labels or numbers for texts or pairs of texts, labelled spans, intents, answers in a text"
_IF_FEW: Final = "if its answers are a few labels, write them as `label` beside `text`; else no classifier can learn it"
# Keys that records of other tasks have -> what they are, and what serves them.
_OTHER_TASKS: Final[tuple[tuple[tuple[str, ...], str, str], ...]] = (
    (("question", "choice", "answer"), "reading comprehension (C3's form)", "PaddleNLP trains models for it"),
    (("content", "candidates"), "cloze tests (ChID's form)", "PaddleNLP trains models for it"),
    (("span1_text", "span2_text"), "coreference (WSC's form)", "PaddleNLP trains models for it"),
    (("content", "prompt", "result_list"), "prompted extraction (UIE's form)", "take the export of doccano itself"),
    (("text", "spo_list"), "relations between spans (DuIE's form)", "PaddleNLP trains models for it"),
    (("event_list",), "events (DuEE's form)", "PaddleNLP trains models for it"),
    (("instruction", "output"), "generation of text", _IF_FEW),
    (("conversations",), "generation of text", _IF_FEW),
    (("messages",), "generation of text", _IF_FEW),
    (("src", "tgt"), "generation of text", _IF_FEW),
)

# Keys of records in other forms -> what they are, and the program of jq that makes a row of one.
_OTHER_FORMS: Final[tuple[tuple[tuple[str, ...], str, str], ...]] = (
    (
        ("abst", "keyword", "label"),
        "a text and its keywords (CSL's form)",
        '{text: .abst, text_pair: (.keyword | join("，")), label: .label}',
    ),
    (
        ("question", "choices", "labels"),
        "labels as numbers of choices (UTC's form)",
        ". as $r | {text: .text_a, labels: [[.labels] | flatten[] | $r.choices[.]]} "
        '+ if (.text_b // "") == "" then {} else {text_pair: .text_b} end',
    ),
)

# Keys beside spans, as doccano and others write them.
_BESIDE_SPANS: Final = {
    "relations": "relations between spans",
    "cats": "labels of whole texts",
    "intent": "labels of whole texts",
}


def records(rows: Rows, file: Path) -> Iterator[tuple[int, Record | RowError]]:
    """Each record with its line, flat, or what is wrong with its line.

    Raises:
        RowError: the rest makes no sense, or a record is one of a task that is not served.
    """
    copied = 0  # characters of texts that stand once in the file, and in each row of a question
    for line, read in rows.records():
        if isinstance(read, RowError):
            if read.fatal:
                raise read
            yield line, read
            continue
        for record in _flat(read):
            copied += _copied(record, read)
            if copied > _MOST_COPIED + _COPIES * rows.lines.offset:
                fix = "give each question with its text on a line, or leave questions out"
                raise RowError(
                    line, "has texts with so many questions that their rows would be far larger than the file", fix
                )
            target = record.get("target")
            refuse_others(line, {**record, **target} if isinstance(target, dict) else record, file)
            yield line, record


def _copied(record: Record, read: Record) -> int:
    """Characters of the text that a question's row has, and the file only once for all."""
    context = record.get("context")
    return len(context) if record is not read and isinstance(context, str) else 0


def refuse_others(line: int, names: Collection[str], file: Path) -> None:
    """Raise a RowError if a record with keys of these `names` is of a task that is not served, or of another form."""
    there = set(names)
    for keys, what, program in _OTHER_FORMS:
        if there.issuperset(keys):
            command = by_jq(f"{EACH} | {program}", file, target_for(file, "rows", ".jsonl"))
            fix = message("encoding.convert", command=command)
            raise RowError(line, f"is a row with {what}, which is not read as it is", fix)
    for keys, what, instead in _OTHER_TASKS:
        if there.issuperset(keys):
            raise RowError(line, f"is a row for {what}, which is not served", f"{instead}. {_DOCS}")


def refusal_of_annotator(record: Record) -> str | None:
    """Prodigy's answer to a row that is no example; None for an example."""
    answer = record.get("answer")
    return answer if "_input_hash" in record and answer in ("reject", "ignore") else None


def nested_table(record: Record) -> tuple[str, dict[str, str]] | None:
    """What kind of table one object holds, and programs of jq that write its rows, by name; None if it is a row."""
    values = list(record.values())
    key = json.dumps(next(iter(record), ""), ensure_ascii=False)
    if {"columns", "data"} <= record.keys() and all(isinstance(record[one], list) for one in ("columns", "data")):
        pairs = "[$names, .] | transpose | map({key: .[0], value: .[1]}) | from_entries"
        return "the names of columns and their rows", {_ROWS: f".columns as $names | .data[] | {pairs}"}
    if values and all(isinstance(value, dict) and value for value in values):
        if all(name.isdecimal() for value in values for name in value):
            cells = f". as $all | .[{key}] | keys_unsorted[] as $n | $all | map_values(.[$n])"
            return "columns with numbered cells", {_ROWS: cells}
        return "rows by their names", {_ROWS: ".[]"}
    if not {name.lower() for name in record} & {*TEXT_NAMES} and (path := _wrapped(record)) is not None:
        return "a list of rows", {_ROWS: f"{path}[]"}
    if not any(values) or not all(isinstance(value, list) for value in values):
        return None
    if all(isinstance(item, dict) for value in values for item in value):
        each: dict[str, str] = {}
        for number, name in enumerate([*record][:_MOST_NAMED]):
            shown = re.sub(r"\W+", "-", name)[:20]
            each[f"{shown}-{number}" if shown in each else shown] = f".[{json.dumps(name, ensure_ascii=False)}][]"
        what = "lists of rows: " + listed([*each, *(["..."] if len(record) > len(each) else [])])
        return what, each if len(record) > 1 else {_ROWS: f".[{key}][]"}
    if not all(isinstance(item, str) for value in values for item in value) or len(values) < _FEWEST_LABELS:
        return None
    if {name.lower() for name in record} & {*TEXT_NAMES}:
        return "columns as lists", {_ROWS: f"range(.[{key}] | length) as $n | map_values(.[$n])"}
    return "the texts of each label", {_ROWS: "to_entries[] | .key as $its | .value[] | {text: ., label: $its}"}


def _wrapped(record: Record, depth: int = 3) -> str | None:
    """The path, for jq, of the only list of objects in an answer of a web service."""
    found = []
    for name, value in record.items():
        path = f".[{json.dumps(name, ensure_ascii=False)}]"
        if isinstance(value, dict) and depth > 1 and (below := _wrapped(value, depth - 1)) is not None:
            found.append(path + below[1:])
        elif isinstance(value, list) and len(value) > 1 and all(isinstance(item, dict) for item in value):
            found.append(path)
    return found[0] if len(found) == 1 and (depth < 3 or len(record) > 1 or "][" in found[0]) else None


def by_jq(program: str, file: Path, target: str) -> str:
    """The command that writes what jq's `program` makes of a file, a JSON value a line."""
    return f"jq -c {quote(program)} {typed(file.name)} > {typed(target)}"


def typed(name: str) -> str:
    """The name of a file as it is typed: no program takes it for an option, or for an assignment."""
    return quote(f"./{name}" if name.startswith("-") or "=" in name else name)


def target_for(file: Path, kind: str, suffix: str) -> str:
    """A name beside `file` that nothing has: a link of that name could lead anywhere."""
    stem = f"{kind}-{file.stem}"
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    folder = on_disk(file).parent
    return next(f"{name}{suffix}" for name in names if not os.path.lexists(folder / f"{name}{suffix}"))


def left_out(record: Record, wanted: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """What a record tells beside its `wanted` columns, each as a kind, a reason and a fix."""
    annotated = record if isinstance(record, Annotated) else None
    if annotated is None and "spans" not in wanted:
        return
    read = set(wanted.values())
    results = annotated.results if annotated is not None else {}
    for key in {**(_BESIDE_SPANS if "spans" in wanted else {}), **results}:
        if record.get(key) and key not in read:
            what = _BESIDE_SPANS.get(key, "results of another tag")
            kind = f"`{key}` left out"  # no kind of ours begins so: a tag may be called `unknown label`
            yield kind, f"`{key}`, {what}, are not learnt: they are left out", "train another model for them"
    for key in annotated.disputed if annotated is not None else ():
        if key in read:
            reason = f"the annotators disagree on `{key}`: the first annotation is read"
            yield "disagreement", reason, "agree on one annotation, and delete or cancel the others"


class Annotated(dict[str, Any]):
    """A task of Label Studio as its data, with the results of its first annotation.

    Args:
        data: what was annotated.
        annotations: the results of each annotation, by their keys. The data have none of these keys.
    """

    def __init__(self, data: Record, annotations: list[dict[str, list[Any]]]) -> None:
        self.results = annotations[0] if annotations else {}
        super().__init__(data, **self.results)
        found: dict[str, set[tuple[str, ...]]] = defaultdict(set)  # what was annotated, in any order
        times = Counter[str]()
        for one in annotations if len(annotations) > 1 else ():
            for key, values in one.items():
                found[key].add(tuple(sorted(map(repr, values))))
                times[key] += bool(values)
        self.disputed = [key for key in found if len(found[key]) > 1 or 0 < times[key] < len(annotations)]


def _flat(record: Record) -> Iterator[Record]:
    """A task of Label Studio's JSON, or the questions of SQuAD's with their texts, flat; other records as they are."""
    data, annotations = record.get("data"), record.get("annotations", record.get("completions"))
    paragraphs, questions = record.get("paragraphs"), record.get("qas")
    if isinstance(paragraphs, list) and all(isinstance(one, dict) for one in paragraphs):
        yield from itertools.chain.from_iterable(map(_flat, paragraphs))
        return
    if isinstance(questions, list) and all(isinstance(one, dict) for one in questions):
        yield from ({"context": record.get("context"), **one} for one in questions)
        return
    if not isinstance(data, dict) or not isinstance(annotations, list):
        yield record
        return
    done = [one for one in annotations if isinstance(one, dict) and not one.get("was_cancelled")]
    free = functools.cache(lambda key: _free(key, data))  # of many annotations
    yield Annotated(data, [_results(one, free) for one in done])


def _results(annotation: Record, free: Callable[[str], str]) -> dict[str, list[Any]]:
    """The results of an annotation by the names of their tags: lists of labels, of spans, of written texts."""
    found: dict[str, list[Any]] = {}
    results = annotation.get("result")
    for result in results if isinstance(results, list) else ():
        if not isinstance(result, dict):
            continue
        if result.get("type") == "relation":
            found.setdefault(free("relations"), []).append(result)
        elif isinstance(value := result.get("value"), dict):
            key = free(str(result.get("from_name", "label")))
            found.setdefault(key, []).extend(_spans(value) if {"start", "end"} <= value.keys() else _labels(value))
    return found


def _free(key: str, data: Record) -> str:
    """A key that the data do not have: the text itself may be called as a tag."""
    others = (f"{key}_{number}" for number in itertools.count(1))
    return next(one for one in itertools.chain((key,), others) if one not in data)


def _labels(value: Record) -> Iterator[object]:
    for key in ("choices", "taxonomy", "text"):
        labels = value.get(key)
        yield from labels if isinstance(labels, list) else [labels] if isinstance(labels, str) else []
    yield from (str(value[key]) for key in ("rating", "number") if isinstance(value.get(key), int | float))


def _spans(region: Record) -> Iterator[Record]:
    """A span for each label of a region; none for a region that has only a text."""
    for key, labels in region.items():
        if key.endswith("labels"):
            for label in labels if isinstance(labels, list) else [labels]:
                yield {"start": region["start"], "end": region["end"], "label": label}
