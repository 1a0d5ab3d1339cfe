"""What is wrong with the files of rows and texts that a recipe names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.columns import TAGGED_SUFFIXES
from edgepack.recipe.document import Document, KeyPath, Problem
from edgepack.recipe.explain import did_you_mean, dotted, listed
from edgepack.recipe.missing import check_there
from edgepack.recipe.model import BUILTIN_PREFIX, is_builtin
from edgepack.recipe.sources import beside, is_file

BUILTIN_SOURCES: Final = ("builtin:reviews-zh",)
TABLE_SUFFIXES: Final = (".tsv", ".csv", ".jsonl")
UNLABELLED_SUFFIXES: Final = (".txt", *TABLE_SUFFIXES)


def check_data(document: Document) -> Iterator[Problem]:
    """Of the rows to train and judge on."""
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


def check_unlabelled(document: Document) -> Iterator[Problem]:
    """Of the texts without labels."""
    where: KeyPath = ("data", "unlabelled")
    if not isinstance(document.get(*where), str):
        return
    yield from _check_texts(document, where)
    # What a sample of the training rows leaves over may be unlabelled.
    others = ("train", "dev", "test") if document.get("data", "train_rows") is None else ("dev", "test")
    splits = {name: document.get("data", name) for name in (*others, "unlabelled")}
    yield from (problem for problem in _check_same_file(document, splits) if problem[0] == where)


def check_vocabulary(document: Document) -> Iterator[Problem]:
    """Of the texts that a vocabulary is pruned by."""
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
        yield where, f"`{dotted(where)}` is no file of texts: {value[:200]!r}", f"give a file of {listed(suffixes)}"
        return
    yield from check_there(document, where, value)
