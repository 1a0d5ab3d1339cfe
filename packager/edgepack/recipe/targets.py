"""What is wrong with the targets of a recipe, and with their wheels."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from edgepack.recipe.document import Document, KeyPath, Problem
from edgepack.recipe.explain import did_you_mean, listed
from edgepack.recipe.missing import check_there
from edgepack.recipe.sources import beside, is_file


def check_targets(document: Document, known: Collection[str]) -> Iterator[Problem]:
    """Of targets that are not known, or stand twice, of those that are `known`."""
    targets = document.get("targets")
    if not isinstance(targets, list):
        return
    for index, target in enumerate(targets):
        if not isinstance(target, str):
            continue
        if target not in known:
            yield ("targets", index), f"there is no target `{target[:60]}`", _known_target(target, known)
        elif target in targets[:index]:
            yield ("targets", index), f"the target `{target}` stands twice", "remove one of the two"


def check_wheels(document: Document, known: Collection[str]) -> Iterator[Problem]:
    """Of wheels that a target is given."""
    wheels, targets = document.get("wheels"), document.get("targets")
    for target, files in wheels.items() if isinstance(wheels, dict) else ():
        where: KeyPath = ("wheels", target)
        if target not in known:
            yield where, f"`wheels`: there is no target `{target[:60]}`", _known_target(target, known)
        elif isinstance(targets, list) and target not in targets:
            yield where, f"`wheels`: the target `{target}` is not among `targets`", "add it there, or remove the wheels"
        seen: set[Path] = set()
        for index, file in enumerate(files if isinstance(files, list) else ()):
            if not isinstance(file, str):
                continue
            place = beside(document, file)
            if not file.endswith(".whl"):
                reason = f"`wheels.{target}`: {file[:200]!r} is not called as wheels are"
                yield (*where, index), reason, "give a file NAME-VERSION-PYTHON-ABI-PLATFORM.whl"
            elif not is_file(place):
                yield from check_there(document, (*where, index), file)
            elif place.resolve() in seen:
                yield (*where, index), f"`wheels.{target}`: {file[:200]!r} stands twice", "remove one of the two"
            else:
                seen.add(place.resolve())


def _known_target(target: str, known: Collection[str]) -> str:
    """The nearest target, and all there are: names of devices are hard to guess."""
    every = f"there are {listed(sorted(known))}"
    near = did_you_mean(target, sorted(known), "")
    return f"{near} {every}" if near else every
