"""A user's own file of target profiles: TOML of the same form as `profiles.toml`, checked key by key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.findings import Finding
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.recipe.section import Section
from edgepack.util import toml
from edgepack.util.text import counted
from edgepack_runtime.bundle.manifest import NAME
from edgepack_runtime.device.info import VECTOR_FLAGS

_MOST_BYTES: Final = 1 << 20
Place = tuple[str, ...]  # a profile's name and the keys below it
Text = Annotated[str, Field(min_length=1, max_length=500)]
Release = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]
Machine = Literal["x86_64", "aarch64"]
_HOW: Final = {
    "glibc": 'write a release of glibc 2, as "2.35"',
    "glibcxx": 'write a symbol version of libstdc++, as "3.4.30"',
    "machines": 'write a list of "x86_64" and "aarch64"',
    "interpreter": 'write "bundled", or "host" for a device with a Python 3.8 or newer',
    "libraries": 'write "bundled", or "system" for a device that has CUDA and cuDNN',
    "sm": 'write a list of architectures, as ["87"]',
    "jetpack": 'write the major version, as "6"',
    "isa": 'write a list of flags in words of /proc/cpuinfo, as ["avx2", "avx512_vnni"]',
}


class CudaTable(Section):
    """`cuda` of a profile."""

    version: Release
    sm: tuple[Annotated[str, Field(pattern=r"^[0-9]{2,3}$")], ...] = Field(min_length=1)
    libraries: Literal["bundled", "system"] = "bundled"


class ProfileTable(Section):
    """One profile. The keys are described in `edgepack.targets.profiles.Profile`."""

    summary: Text
    machines: tuple[Machine, ...] = Field(min_length=1, max_length=2)
    interpreter: Literal["bundled", "host"] = "bundled"
    # By default those of the carried interpreter.
    glibc: Annotated[str, Field(pattern=r"^2\.[0-9]{1,3}$")] = "2.36"  # a tag of wheels names each
    glibcxx: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] = "3.4.30"
    by_path: bool = False
    jetpack: Annotated[str, Field(pattern=r"^[0-9]?$")] = ""
    isa: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]+$")], ...] | None = None
    cuda: CudaTable | None = None


def read(file: Path, taken: Collection[str]) -> dict[str, dict[str, Any]]:
    """The tables of `file` by name, as `profiles.toml` would have them.

    Args:
        taken: names that profiles of this version have: a bundle's target means the same everywhere.

    Raises:
        RecipeInvalidError: it cannot be read, or with a finding for everything in it that no profile says.
    """
    return parse(_text(file), file, taken)


def parse(text: str, file: Path, taken: Collection[str]) -> dict[str, dict[str, Any]]:
    """As `read`, of a file whose content would be `text`."""
    try:
        document = toml.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(file, [Finding("error", file, None, f"it is not TOML: {error}", "correct it there")]) from error
    found: dict[str, dict[str, Any]] = {}
    wrong: list[tuple[Place, str, str]] = []
    for name, table in document.items():
        if (reason := _bad_name(name, table, taken)) is not None:
            wrong.append(((name,), *reason))
            continue
        try:
            checked = ProfileTable.model_validate(table)
        except ValidationError as error:
            wrong += [_words(name, one) for one in error.errors(include_url=False)]
            continue
        wrong += _contradictions(name, checked)
        found[name] = {**checked.model_dump(exclude_none=True), "machines": sorted(set(checked.machines))}
    if wrong:
        lines = _Lines(text)
        raise _invalid(file, [Finding("error", file, lines.of(place), reason, fix) for place, reason, fix in wrong])
    return found


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        return raw.decode("utf-8")
    except (OSError, ValueError) as error:
        finding = Finding("error", file, None, f"it cannot be read: {error}", "give a TOML file of target profiles")
        raise _invalid(file, [finding]) from error


def _bad_name(name: str, table: Any, taken: Collection[str]) -> tuple[str, str] | None:
    """Reason and fix, when there can be no profile of this name."""
    if not isinstance(table, dict):
        return f"`{name[:60]}` is a value, and a profile is a table", f"write `[{name[:60]}]` above its keys"
    if not NAME.match(name):  # it becomes part of a bundle's file name
        return f"`{name[:60]}` cannot be a target's name", "use small letters a-z, digits, `.`, `_`, `-`; 64 at most"
    if name in taken:
        return f"`{name}` is a profile of this version of edgepack", "choose another name"
    return None


def _words(name: str, error: ErrorDetails) -> tuple[Place, str, str]:
    """Place, reason and fix for what pydantic found at one key."""
    path = [key for key in error["loc"] if isinstance(key, str)]  # without the numbers of entries in a list
    place, key, dotted = (name, *path), path[-1], ".".join(path)
    kind = error["type"]
    if kind == "extra_forbidden":
        keys = _keys(path[:-1])
        fix = did_you_mean(key, keys, f"remove it; it takes {listed(keys)}")
        return place, f"unknown key `{dotted}` in `{name}`", fix
    if kind == "missing":
        return place, f"`{'.'.join(place[:-1])}` lacks `{key}`", _HOW.get(key, f"add `{key}`")
    return place, f"`{dotted}` in `{name}` cannot be {error['input']!r:.60}", _HOW.get(key, error["msg"])


def _contradictions(name: str, table: ProfileTable) -> Iterator[tuple[Place, str, str]]:
    """Place, reason and fix for keys that are right, each by itself, and say nothing together."""
    for word in table.isa or ():
        if word not in VECTOR_FLAGS:
            fix = did_you_mean(word, VECTOR_FLAGS, f"take it out; known are {listed(VECTOR_FLAGS)}")
            yield (name, "isa"), f"`isa` in `{name}`: {word!r:.60} is not a flag that edgepack looks at", fix
    for key in ("glibc", "glibcxx") if table.interpreter == "host" else ():
        if key not in table.model_fields_set:
            yield (name,), f"`{name}` lacks `{key}`, and carries no C library", _HOW[key]
    if table.interpreter == "bundled" and table.cuda is not None:
        fix = 'write `interpreter = "host"`: the driver is built for the C library of its system'
        yield (name, "interpreter"), f"`{name}` has a GPU and would carry an interpreter", fix
    if table.by_path and table.cuda is None:
        # The package index has ONNX Runtime for every CPU; without `cuda` nobody would look for code for the GPU.
        fix = f'add a table `[{name}.cuda]` with its `version`, as "12.6", and its architectures, as `sm = ["87"]`'
        yield (name, "by_path"), f"`{name}` takes a wheel for a GPU by path, and lacks `cuda`", fix


def _keys(path: Sequence[str]) -> list[str]:
    """The keys of the table at `path` of a profile."""
    tables: dict[tuple[str, ...], type[BaseModel]] = {(): ProfileTable, ("cuda",): CudaTable}
    return list(tables[tuple(path)].model_fields)


class _Lines:
    """Line numbers of the tables and keys of a TOML text that begin on a line of their own."""

    def __init__(self, text: str) -> None:
        self._first: dict[Place, int] = {}
        table: Place = ()
        for number, line in enumerate(text.splitlines(), start=1):
            if line.lstrip().startswith("["):
                table = _path(line) or table
                self._first.setdefault(table, number)
            elif key := _path(f"{line.split('=')[0]}= 0"):  # a value may go on below
                self._first.setdefault((*table, *key), number)

    def of(self, place: Place) -> int | None:
        """The line of what is at `place`, or else of the innermost table around that."""
        known = (self._first.get(place[:count]) for count in range(len(place), 0, -1))
        return next((number for number in known if number is not None), None)


def _path(statement: str) -> Place:
    """The keys of `[a.b]`, or of `a.b = 0`; empty where it is neither."""
    try:
        inner: Any = toml.loads(statement)
    except (ValueError, RecursionError):
        return ()
    keys = []
    while isinstance(inner, dict) and len(inner) == 1:
        [(key, inner)] = inner.items()
        keys.append(key)
    return tuple(keys)


def _invalid(file: Path, findings: list[Finding]) -> RecipeInvalidError:
    return RecipeInvalidError(
        f"the target profiles {file} have {counted(len(findings), 'error')}",
        why="; ".join(finding.reason for finding in findings[:3]),
        fix="correct what is named above and run the command again",
        findings=findings,
    )
