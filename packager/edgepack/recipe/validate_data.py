"""Checks of the recipe section `data`: columns that do not match the task, missing or wrong files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.messages import did_you_mean, dotted, listed
from edgepack.recipe.model import BUILTIN_PREFIX, Columns, is_builtin
from edgepack.recipe.paths import beside, check_there, is_file
from edgepack.recipe.yaml import Document, KeyPath, Problem

TAGGED_SUFFIXES: Final = (".conll", ".bio")  # a token and its tag on each line
_OF_TASK: Final[Mapping[str, tuple[str, ...]]] = {
    "text-classification": ("text", "label", "labels"),
    "text-pair-classification": ("text", "text_pair", "label", "labels"),
    "token-classification": ("text", "spans", "tokens", "tags"),
}
_TOGETHER: Final = (("tokens", "tags"), ("tags", "tokens"))
_WHERE: Final[KeyPath] = ("data", "columns")


def is_number(name: str) -> bool:
    """Whether a column is named by its number, counted from 1."""
    return name.isascii() and name.isdecimal() and len(name) < 6


def check_columns(document: Document) -> Iterator[Problem]:
    """Path, reason and fix of every error in `data.columns` and in its files."""
    task = document.get("task") or "text-classification"
    columns = document.get(*_WHERE)
    columns = columns if isinstance(columns, dict) else {}
    given = {key: name for key, name in columns.items() if isinstance(name, str) and key in Columns.model_fields}
    if not isinstance(task, str) or task not in _OF_TASK:
        return
    train = document.get("data", "train")
    if isinstance(train, str) and is_builtin(train) and (task != "text-classification" or "labels" in given):
        reason = f"`data.train`: `{train[:60]}` has one label for each text, and nothing else"
        yield ("data", "train"), reason, "give files, or remove `task` and `data.columns`"
        return
    found = list(_of_another_task(task, given)) or list(_contradictions(given))
    yield from found
    if not found:
        yield from _check_names(task, given)
        yield from _check_tagged(document, task, given)
    if document.holds(("data", "label_separator")) and "labels" not in given:
        reason = "`data.label_separator` is set, and there is no `data.columns.labels` to separate"
        yield ("data", "label_separator"), reason, "name the column of the labels: `columns: {labels: ...}`"


def _quoted(word: str) -> str:
    return f"`{word}`"


def _of_another_task(task: str, given: Mapping[str, str]) -> Iterator[Problem]:
    for key in given:
        homes = [name for name, keys in _OF_TASK.items() if key in keys]
        if homes and task not in homes:
            reason = f"`data.columns.{key}` is for {' and '.join(map(_quoted, homes))}, and the task is `{task}`"
            yield (*_WHERE, key), reason, f"remove the key, or set `task: {homes[0]}`"


def _contradictions(given: Mapping[str, str]) -> Iterator[Problem]:
    if "label" in given and "labels" in given:
        reason = "`data.columns` names `label`, which is one, and `labels`, which are any number"
        yield (*_WHERE, "labels"), reason, "keep one of the two"
    for key, other in _TOGETHER:
        if key in given and other not in given:
            reason = f"`data.columns` names `{key}` and no `{other}`"
            yield (*_WHERE, key), reason, f"name the column of the {other} as well"
    for key in ("text", "spans"):
        if key in given and "tokens" in given:
            reason = f"`data.columns` names `{key}` and `tokens`, which hold the text already"
            yield (*_WHERE, key), reason, f"remove `{key}`, or `tokens` and `tags`"


def _check_names(task: str, given: Mapping[str, str]) -> Iterator[Problem]:
    """Columns that are named twice, and columns by number beside columns by name."""
    columns = Columns(**given)
    wanted = columns.model_copy(update=columns.implied(task)).wanted  # type: ignore[arg-type]  # one of _OF_TASK
    keys: dict[str, str] = {}
    for key, name in wanted.items():
        if name in keys:
            reason = f"`data.columns` reads {keys[name]} and {key} from the same column"
            yield _WHERE, reason, "name the column of each"
        keys.setdefault(name, key)
    named = [key for key, name in wanted.items() if not is_number(name)]
    if named and len(named) < len(wanted) and not any(key in given for key in named):
        reason = f"`data.columns` gives numbers, which are for files without a header, and none for {listed(named)}"
        yield _WHERE, reason, f"add `{named[0]}` with the number of its column, counted from 1 and in quotes"


def _check_tagged(document: Document, task: str, given: Mapping[str, Any]) -> Iterator[Problem]:
    files = [document.get("data", name) for name in ("train", "dev", "test")]
    tagged = [file for file in files if isinstance(file, str) and Path(file).suffix.lower() in TAGGED_SUFFIXES]
    used = {"text"} if document.get("data", "unlabelled") is not None else set()
    if task == "token-classification" and len(tagged) == len(files) and given.keys() - used:
        reason = "`data.columns` is set, and files with a token and its tag on each line have no columns"
        yield _WHERE, reason, "remove the key"


BUILTIN_SOURCES: Final = ("builtin:reviews-zh",)
TABLE_SUFFIXES: Final = (".tsv", ".csv", ".jsonl")
UNLABELLED_SUFFIXES: Final = (".txt", *TABLE_SUFFIXES)


def check_data(document: Document) -> Iterator[Problem]:
    """Find errors in the files of labelled rows."""
    splits = {name: document.get("data", name) for name in ("train", "dev", "test")}
    train = splits["train"]
    if isinstance(train, str) and is_builtin(train):
        if train not in BUILTIN_SOURCES:
            fix = did_you_mean(train, BUILTIN_SOURCES, f"use {listed(BUILTIN_SOURCES)}")
            yield ("data", "train"), f"there is no built-in data `{train[:60]}`", fix
        for name in ("dev", "test"):
            if splits[name] is not None:
                reason = f"`data.{name}` is set, but built-in data brings its own {name} split"
                yield ("data", name), reason, "remove the key"
        return
    for name, value in splits.items():
        if isinstance(value, str):
            yield from _check_split_file(document, name, value)
        elif value is None and name != "train" and isinstance(train, str):
            fix = f"add `{name}: {name}{Path(train).suffix or '.tsv'}`: rows that are in no other split"
            yield ("data",), f"`data` lacks `{name}`", fix
    yield from _check_same_file(document, splits)


def check_test(document: Document) -> Iterator[Problem]:
    """Find errors in the file of test rows, where nothing is trained."""
    value = document.get("data", "test")
    if isinstance(value, str):
        yield from _check_split_file(document, "test", value)


def check_unlabelled(document: Document) -> Iterator[Problem]:
    """Find errors in the file of unlabelled texts."""
    where: KeyPath = ("data", "unlabelled")
    if not isinstance(document.get(*where), str):
        return
    yield from _check_texts(document, where)
    # What a sample of the training rows leaves over may be unlabelled.
    others = ("train", "dev", "test") if document.get("data", "train_rows") is None else ("dev", "test")
    splits = {name: document.get("data", name) for name in (*others, "unlabelled")}
    yield from (problem for problem in _check_same_file(document, splits) if problem[0] == where)


def check_vocabulary(document: Document) -> Iterator[Problem]:
    """Find errors in the file of texts for vocabulary pruning."""
    where: KeyPath = ("student", "vocabulary", "prune", "texts")
    if isinstance(document.get(*where), str):
        yield from _check_texts(document, where)


def _check_split_file(document: Document, name: str, value: str) -> Iterator[Problem]:
    where: KeyPath = ("data", name)
    if value.startswith(BUILTIN_PREFIX):
        yield where, f"`data.{name}` cannot be built-in alone", f"set `data.train: {BUILTIN_SOURCES[0]}` only"
        return
    tagged = TAGGED_SUFFIXES if document.get("task") == "token-classification" else ()
    suffixes = (*TABLE_SUFFIXES, *tagged)
    if (suffix := Path(value).suffix.lower()) not in suffixes:
        fix = f"give a file of {listed(suffixes)}"
        if suffix in TAGGED_SUFFIXES:
            fix += ", or set `task: token-classification`"
        yield where, f"`data.{name}` is not a table: {value[:200]!r}", fix
        return
    yield from check_there(document, where, value)


def _check_same_file(document: Document, splits: dict[str, Any]) -> Iterator[Problem]:
    seen: dict[Path, str] = {}
    for name, value in splits.items():
        if not isinstance(value, str) or not is_file(beside(document, value)):
            continue
        file = beside(document, value).resolve()
        if file in seen:
            reason = f"`data.{name}` and `data.{seen[file]}` are the same file"
            yield ("data", name), reason, "give each split rows of its own"
        seen.setdefault(file, name)


def _check_texts(document: Document, where: KeyPath) -> Iterator[Problem]:
    value = str(document.get(*where))
    suffixes = TABLE_SUFFIXES if document.get("task") == "text-pair-classification" else UNLABELLED_SUFFIXES
    if Path(value).suffix.lower() not in suffixes:
        yield where, f"`{dotted(where)}` is not a file of texts: {value[:200]!r}", f"give a file of {listed(suffixes)}"
        return
    yield from check_there(document, where, value)
