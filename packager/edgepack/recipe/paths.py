"""The files and folders that a recipe's paths and model names refer to, with a fix where there is none."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.messages import did_you_mean, dotted
from edgepack.recipe.yaml import Document, KeyPath, Problem


def beside(document: Document, value: str) -> Path:
    """A path of the recipe: relative ones start at the recipe's folder. Links keep their names."""
    return document.file.parent.absolute() / value


def is_local(document: Document, model: str) -> bool:
    """Whether a model source is a folder on this machine, there or not, instead of a PaddleNLP name."""
    by_form = model.startswith(("./", "../", "/", "~")) or model in (".", "..")
    # `weights/nano` could be a name of the hub as well, but hardly where there is a folder `weights`.
    by_place = "/" in model and is_folder(beside(document, model.split("/")[0]))
    return by_form or by_place or is_folder(beside(document, model))


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have (too long, with a NUL) is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; a name that no folder can have is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def siblings(path: Path) -> list[Path]:
    """The files and folders beside `path`, sorted; empty if its folder cannot be read."""
    try:
        return sorted(path.parent.iterdir())
    except (OSError, ValueError):
        return []


PATH_FIX: Final = "give a path relative to the recipe's folder, or an absolute one"


def check_there(document: Document, where: KeyPath, value: str) -> Iterator[Problem]:
    """A finding where no file lies at `value`, the path that stands at `where`."""
    file = beside(document, value)
    if is_folder(file):
        wanted = "bundle, as `NAME-VERSION-TARGET.edgepack`" if where[-1] == "baseline" else "file"
        yield (
            where,
            f"`{dotted(where)}`: {value[:200]!r} is a folder, and a file is wanted",
            f"give the path of a {wanted}",
        )
    elif not is_file(file):
        others = [other for other in siblings(file) if is_file(other)]
        # By their stems: most of them share a suffix.
        near = difflib.get_close_matches(file.stem.lower(), [other.stem for other in others])
        names = [other.name for other in others if other.stem in near]
        fix = path_fix(value) or did_you_mean(file.name, names, PATH_FIX)
        yield where, f"`{dotted(where)}`: there is no file {value[:200]!r}", fix


def path_fix(value: str) -> str | None:
    """The fix of a path that is wrong by its form (`~`, backslashes); None if the form is right."""
    if value.startswith("~"):
        return "`~` is not filled in: write `${HOME}`"
    return "write `/` between folders" if "\\" in value else None


def without_folders(value: Any) -> Any:
    """A JSON value in which absolute paths are their last part, since a project may move."""
    if isinstance(value, dict):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_folders(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
