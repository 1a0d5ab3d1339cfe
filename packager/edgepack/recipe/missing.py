"""What is wrong with a path of a recipe at which no file lies."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from edgepack.recipe.document import Document, KeyPath, Problem
from edgepack.recipe.explain import did_you_mean, dotted
from edgepack.recipe.sources import beside, is_file, is_folder, siblings

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
    """What is wrong with a path whatever lies there."""
    if value.startswith("~"):
        return "`~` is not filled in: write `${HOME}`"
    return "write `/` between folders" if "\\" in value else None
