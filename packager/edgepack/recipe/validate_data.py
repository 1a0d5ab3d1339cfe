"""Checks of the recipe section `data`: columns that do not match the task, missing or wrong files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from edgepack.messages import message
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.model import (
    HELD_OUT,
    SPLIT_NAMES,
    Columns,
    Data,
    FolderRecipe,
    ImportedTextRecipe,
    LinearRecipe,
    Recipe,
    TextKinds,
    is_builtin,
)
from edgepack.recipe.paths import WORKBOOK, check_there, is_file, on_disk
from edgepack.recipe.section import or_none
from edgepack.recipe.yaml import KeyPath, Problem
from edgepack_runtime.tasks.registry import ONE_TEXT, TASK_NAMES, TOKENS, task_by_name, tasks_named

TAGGED_SUFFIXES: Final = (".conll", ".bio")  # a token and its tag on each line
TABLE_SUFFIXES: Final = (".tsv", ".csv", WORKBOOK, ".jsonl", ".json", ".txt")
BUILTIN_SOURCES: Final = ("builtin:reviews-zh",)
_WHERE: Final[KeyPath] = ("data", "columns")


def is_number(name: str) -> bool:
    """Whether a column is named by its number, counted from 1."""
    return name.isascii() and name.isdecimal() and len(name) < 6


def check_columns(recipe: TextKinds) -> Iterator[Problem]:
    """Problems of `data.columns`."""
    data, columns = recipe.data, recipe.data.columns
    given = [key for key in Columns.model_fields if key in columns.model_fields_set and getattr(columns, key)]
    if _is_built_in(data) and (recipe.task != ONE_TEXT or "labels" in given):
        reason = "built-in data have one label for each text, and nothing else"
        yield ("data", "train"), reason, "give files, or remove `task` and `data.columns`"
        return
    found = list(_of_another_task(recipe.task, given)) or list(_contradictions(recipe.task, given))
    yield from found or [*_check_names(recipe, given), *_check_tagged(recipe, given)]
    if "label_separator" in data.model_fields_set and "labels" not in given:
        reason = "there is no `data.columns.labels` to separate"
        yield ("data", "label_separator"), reason, "name the column of the labels: `columns: {labels: ...}`"


def _is_built_in(data: object) -> bool:
    return isinstance(data, Data) and is_builtin(or_none(data, "train") or "")


def _keys_of(task: str) -> set[str]:
    """The columns that rows of a task may have."""
    kinds = tasks_named(task)
    keys = {key for kind in kinds for key in (*kind.columns, *kind.other_columns)}
    return keys | {"text"} | ({"text_pair"} if kinds[0].pairs else set())


def _of_another_task(task: str, given: Sequence[str]) -> Iterator[Problem]:
    for key in given:
        homes = [name for name in TASK_NAMES if key in _keys_of(name)]
        if task not in homes:
            reason = f"it is for {' and '.join(f'`{home}`' for home in homes)}, and the task is `{task}`"
            yield (*_WHERE, key), reason, f"remove the key, or set `task: {homes[0]}`"


def _contradictions(task: str, given: Sequence[str]) -> Iterator[Problem]:
    if "label" in given and "labels" in given:
        yield (*_WHERE, "labels"), "a row has one `label` or any number of `labels`", "keep one of the two"
    for kind in tasks_named(task):
        others = [key for key in kind.other_columns if key in given]
        if not others:
            continue
        for key in kind.other_columns:
            if key not in given:
                yield (*_WHERE, others[0]), f"`{others[0]}` need `{key}`", f"name the column of the {key} as well"
        for key in ("text", *kind.columns):
            if key in given and "tokens" in given:
                yield (*_WHERE, key), "`tokens` hold the text already", f"remove `{key}`, or `tokens` and `tags`"


def _check_names(recipe: TextKinds, given: Sequence[str]) -> Iterator[Problem]:
    """Columns that are named twice, and columns by number beside columns by name."""
    columns = recipe.data.columns
    wanted = columns.model_copy(update=columns.implied(recipe.task)).wanted
    keys: dict[str, str] = {}
    for key, name in wanted.items():
        if name in keys:
            yield _WHERE, f"{keys[name]} and {key} are read from the same column", "name the column of each"
        keys.setdefault(name, key)
    named = [key for key, name in wanted.items() if not is_number(name)]
    if named and len(named) < len(wanted) and not any(key in given for key in named):
        reason = f"numbers are for files without a header, and there is none for {listed(named)}"
        yield _WHERE, reason, f"add `{named[0]}` with the number of its column, counted from 1 and in quotes"


def _check_tagged(recipe: TextKinds, given: Sequence[str]) -> Iterator[Problem]:
    data = recipe.data
    if not isinstance(data, Data) or recipe.task != TOKENS:
        return
    files = [or_none(data, name) or "" for name in SPLIT_NAMES]
    used = {"text"} if data.unlabelled is not None else set()
    if all(Path(file).suffix.lower() in TAGGED_SUFFIXES for file in files) and set(given) - used:
        yield _WHERE, "files with a token and its tag on each line have no columns", "remove the key"


def check_data(recipe: Recipe | LinearRecipe) -> Iterator[Problem]:
    """Problems of the files of labelled rows."""
    splits: dict[str, str | None] = {name: or_none(recipe.data, name) for name in SPLIT_NAMES}
    train = splits["train"]
    if train is not None and is_builtin(train):
        if train not in BUILTIN_SOURCES:
            fix = did_you_mean(train, BUILTIN_SOURCES, f"use {listed(BUILTIN_SOURCES)}")
            yield ("data", "train"), f"there is no built-in data `{train[:60]}`", fix
        for own in HELD_OUT:
            if splits[own] is not None:
                yield ("data", own), f"built-in data have their own {own} split", "remove the key"
        return
    for name, value in splits.items():
        if value is not None:
            yield from _check_split(name, value, or_none(recipe, "task"))
        elif train is not None:
            fix = message("mistake.add_split", name=name, file=f"{name}{Path(train).suffix or '.tsv'}")
            yield ("data", name), message("mistake.is_missing"), fix
    yield from _check_same_file(splits)


def check_test(recipe: ImportedTextRecipe | FolderRecipe) -> Iterator[Problem]:
    """Problems of the files of rows, where nothing is trained."""
    splits: dict[str, str | None] = {name: or_none(recipe.data, name) for name in SPLIT_NAMES}
    for name, value in splits.items():
        if value is not None:
            yield from _check_split(name, value, or_none(recipe, "task"))
    yield from _check_same_file(splits)


def check_unlabelled(recipe: Recipe) -> Iterator[Problem]:
    """Problems of the file of unlabelled texts."""
    data = recipe.data
    if data.unlabelled is not None:
        yield from _check_texts(("data", "unlabelled"), data.unlabelled, or_none(recipe, "task"))
        # What a sample of the training rows leaves over may be unlabelled.
        others: Sequence[str] = HELD_OUT if or_none(data, "train_rows") is not None else SPLIT_NAMES
        splits: dict[str, str | None] = {name: or_none(data, name) for name in (*others, "unlabelled")}
        yield from (problem for problem in _check_same_file(splits) if problem[0] == ("data", "unlabelled"))


def check_vocabulary(recipe: Recipe) -> Iterator[Problem]:
    """Problems of the file of texts for vocabulary trimming."""
    trimming = recipe.student.trimming
    if trimming is not None and trimming.texts is not None:
        yield from _check_texts(("student", "vocabulary", "trim", "texts"), trimming.texts, or_none(recipe, "task"))


def _check_split(name: str, value: str, task: str | None) -> Iterator[Problem]:
    where: KeyPath = ("data", name)
    suffix = on_disk(Path(value)).suffix.lower()
    suffixes = (*TABLE_SUFFIXES, *(TAGGED_SUFFIXES if task in (None, TOKENS) else ()))
    if is_builtin(value):
        yield where, "it cannot be built-in alone", f"set `data.train: {BUILTIN_SOURCES[0]}` only"
    elif suffix not in suffixes:
        fix = message("mistake.give_suffix", suffixes=listed(suffixes))
        if suffix in TAGGED_SUFFIXES:
            fix = message("mistake.or_task", fix=fix, task=TOKENS)
        yield where, message("mistake.no_table", path=repr(value[:200])), fix
    else:
        yield from check_there(where, str(on_disk(Path(value))))


def _check_same_file(splits: Mapping[str, str | None]) -> Iterator[Problem]:
    seen: dict[Path, str] = {}
    for name, value in splits.items():
        if value is None or not is_file(on_disk(Path(value))):
            continue
        file = Path(value).resolve()
        if file in seen:
            yield ("data", name), message("mistake.same_file", name=seen[file]), message("mistake.own_rows")
        seen.setdefault(file, name)


def _check_texts(where: KeyPath, value: str, task: str | None) -> Iterator[Problem]:
    is_pair = task is not None and task_by_name(task).pairs
    suffixes = [one for one in TABLE_SUFFIXES if not (is_pair and one == ".txt")]  # of single texts, one a line
    if on_disk(Path(value)).suffix.lower() not in suffixes:
        yield (
            where,
            message("mistake.no_texts", path=repr(value[:200])),
            message("mistake.give_suffix", suffixes=listed(suffixes)),
        )
    else:
        yield from check_there(where, str(on_disk(Path(value))))
