"""What is wrong with the columns of a recipe: they are not the task's, or contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.document import Document, KeyPath, Problem
from edgepack.recipe.explain import listed
from edgepack.recipe.model import Columns, is_builtin

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
    """Where, reason and fix of everything that is wrong with `data.columns`, and with what is read by it."""
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
    """Two columns that are one; numbers for some columns and names for others."""
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
