"""The files and folders that a recipe's paths refer to, with a fix where there is none."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from edgepack.messages import message
from edgepack.recipe.messages import did_you_mean
from edgepack.recipe.yaml import KeyPath, Problem


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


WORKBOOK: Final = ".xlsx"


def sheet_of(file: Path) -> str:
    """The sheet that `file.xlsx#sheet` names; "" without one."""
    base, _, sheet = file.name.partition("#")
    return sheet if base.lower().endswith(WORKBOOK) else ""


def on_disk(file: Path) -> Path:
    """The file of `file`, which may name a sheet of it."""
    sheet = sheet_of(file)
    return file.with_name(file.name[: -len(sheet) - 1]) if sheet else file


def is_workbook(file: Path) -> bool:
    """Whether a file, or a sheet of it, is of an Excel workbook, by its name."""
    return on_disk(file).suffix.lower() == WORKBOOK


PATH_FIX: Final = message("mistake.path")


def check_there(where: KeyPath, value: str, wanted: str = "file") -> Iterator[Problem]:
    """A finding where no file is at `value`, the resolved path of the key `where`. `wanted` says what it should be."""
    file = Path(value)
    if is_folder(file):
        reason = message("mistake.is_folder", path=repr(value[:200]))
        yield where, reason, message("mistake.give_path", wanted=wanted)
    elif not is_file(file):
        try:
            others = sorted(other for other in file.parent.iterdir() if is_file(other))
        except (OSError, ValueError):  # its folder cannot be read
            others = []
        # By their stems: most of them share a suffix.
        near = difflib.get_close_matches(file.stem.lower(), [other.stem for other in others])
        names = [other.name for other in others if other.stem in near]
        fix = path_fix(value) or did_you_mean(file.name, names, PATH_FIX)
        yield where, message("mistake.no_file", path=repr(value[:200])), fix


def path_fix(value: str) -> str | None:
    """The fix of a path that is wrong by its form (`~`, backslashes); None if the form is right."""
    if any(part.startswith("~") for part in Path(value).parts):
        return message("mistake.home")
    return message("mistake.slash") if "\\" in value else None


def without_folders(value: Any) -> Any:
    """A JSON value in which absolute paths are their last part, since a project may move."""
    if isinstance(value, dict):
        return {key: without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_folders(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value
