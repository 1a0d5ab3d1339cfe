"""What the paths and model names of a recipe stand for on this machine."""

from __future__ import annotations

from pathlib import Path

from edgepack.recipe.document import Document


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
    """What lies in the folder of `path`, sorted; nothing when it is no folder that can be read."""
    try:
        return sorted(path.parent.iterdir())
    except (OSError, ValueError):
        return []
