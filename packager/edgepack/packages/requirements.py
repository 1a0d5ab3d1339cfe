"""Hash-locked requirements: edgepack's own locks, and the file that a recipe names with `packages`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from edgepack.errors import EdgepackError, EnvironmentUnfitError, RecipeInvalidError
from edgepack.targets import tags
from edgepack.targets.profiles import ONNXRUNTIMES, Profile
from edgepack.targets.tags import Python

_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})\Z")
_COMMENT: Final = re.compile(r"(?:^|\s)#.*\Z")
_SHOWN: Final = 80  # characters of a line
_COMPILE: Final = "uv pip compile --universal --generate-hashes requirements.in -o {}"

Refuse = Callable[[int, str, str], EdgepackError]


@dataclass(frozen=True)
class Locked:
    """One package of a lock: canonical name, exact version, and the sha256 of every wheel that may be it.

    Attributes:
        python: version of the Python that its wheel is for; None for a wheel that any Python takes.
        is_added: a package of the recipe, which no lock of edgepack names.
    """

    name: str
    version: str
    sha256: frozenset[str]
    python: Python | None = tags.PYTHON
    is_added: bool = False


def parse_lock(text: str, profile: Profile) -> tuple[Locked, ...]:
    """The packages of one of edgepack's locks with markers that hold on the target.

    Only what a lock needs is understood: `name==version ; marker` and `--hash=sha256:`. Any other option, a
    package without a hash, or a version that is not exact makes the file invalid: nothing unlocked gets in.

    Raises:
        EnvironmentUnfitError: naming the line.
    """

    def damaged(number: int, line: str, why: str) -> EdgepackError:
        what = f"the wheel lock is damaged at {line[:_SHOWN]!r}"
        return EnvironmentUnfitError(what, why=why, fix="reinstall edgepack")

    return _parse(text, [tags.marker_environment(profile)], damaged, with_extras=False)


def load(file: Path, profile: Profile, python: Python | None) -> tuple[Locked, ...]:
    """The packages of a recipe's requirements file with markers that hold on the target.

    Args:
        python: version of the Python that the bundle runs on; None where it is not known.

    Raises:
        RecipeInvalidError: the file cannot be read; or a line is an option, has no hash or no exact version, or depends
            on a Python that is not known.
    """

    def invalid(number: int, line: str, why: str) -> EdgepackError:
        return RecipeInvalidError(
            f"{file}:{number}: {line[:_SHOWN]!r} cannot go into a bundle",
            why=why,
            fix=f"name packages in requirements.in, and lock them: `{_COMPILE.format(file.name)}`",
        )

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "") if isinstance(error, OSError) else "it is not UTF-8"
        raise RecipeInvalidError(f"{file} cannot be read", why=why, fix="correct `packages`") from error
    pythons = tags.KNOWN_PYTHONS if python is None else [python]
    packages = _parse(text, [tags.marker_environment(profile, one) for one in pythons], invalid, with_extras=True)
    for package in packages:
        if package.name in ONNXRUNTIMES:
            raise RecipeInvalidError(
                f"{file}: {package.name} cannot be one of the recipe's packages",
                why="a bundle carries ONNX Runtime's library, and runs models without its Python module",
                fix=f"take {package.name} out of {file.name}",
            )
    return tuple(replace(package, python=python, is_added=True) for package in packages)


def _parse(
    text: str, environments: Sequence[Mapping[str, str]], refuse: Refuse, *, with_extras: bool
) -> tuple[Locked, ...]:
    """The packages with markers that hold in all `environments`, by name."""
    packages: dict[str, Locked] = {}
    for number, line in _logical_lines(text):
        package = _locked(number, line, environments, refuse, with_extras=with_extras)
        if package is None:
            continue
        if package.name in packages:
            raise refuse(number, line, "duplicate package for this target")
        packages[package.name] = package
    return tuple(packages[name] for name in sorted(packages))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined at a trailing backslash, each with its first line's number; without comments and blank ones."""
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        part = _COMMENT.sub("", line).strip()
        if not whole:
            if not part:
                continue
            first = number
        whole += " " + part.removesuffix("\\")
        if not part.endswith("\\"):
            yield first, whole.strip()
            whole = ""
    if whole:
        yield first, whole.strip()


def _locked(
    number: int, line: str, environments: Sequence[Mapping[str, str]], refuse: Refuse, *, with_extras: bool
) -> Locked | None:
    """The package that a logical line locks; null when its marker does not hold."""
    if line.startswith("-"):
        raise refuse(number, line, "it is an option of pip: every line locks one package, as `name==version`")
    text, *options = re.split(r"\s(?=--)", line)
    hashes = [_HASH.match(option.strip()) for option in options]
    if not hashes or None in hashes:
        raise refuse(number, line, "every package needs hashes, all `--hash=sha256:`, and no other option")
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise refuse(number, line, str(error)) from error
    pins = list(requirement.specifier)
    exact = len(pins) == 1 and pins[0].operator == "==" and "*" not in pins[0].version
    if not exact or requirement.url or (requirement.extras and not with_extras):
        raise refuse(number, line, "a package is locked as `name==version`")
    if requirement.marker is not None:
        holds = {requirement.marker.evaluate(dict(environment)) for environment in environments}
        if len(holds) > 1:
            why = "its marker depends on the version of Python, and which one the device has is not known"
            raise refuse(number, line, f"{why}; with `interpreter: bundled` it is {'.'.join(map(str, tags.PYTHON))}")
        if not holds.pop():
            return None
    digests = frozenset(match.group(1) for match in hashes if match is not None)
    return Locked(canonicalize_name(requirement.name), pins[0].version, digests)
