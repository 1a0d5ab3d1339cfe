"""Files of target profiles: edgepack's own `profiles.toml`, and a user's of the same form, checked key by key."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.findings import Finding
from edgepack.recipe.messages import did_you_mean, listed
from edgepack.targets import package_data
from edgepack.targets.profiles import Cuda, Profile
from edgepack.util import toml
from edgepack.util.text import counted
from edgepack_runtime.bundle.manifest import BUNDLED, HOST, NAME
from edgepack_runtime.schema import fields

_MOST_BYTES: Final = 1 << 20
_CARRIED: Final = {"glibc": "2.36", "glibcxx": "3.4.30"}  # of the carried interpreter, which is Debian 12's
Place = tuple[str, ...]  # a profile's name and the keys below it


def load_profiles(file: Path | None = None) -> dict[str, Profile]:
    """The profiles of this version and those of the user's `file`, by name, sorted.

    Raises:
        RecipeInvalidError: the user's file cannot be read, or is invalid.
    """
    summary = "This machine, with a Python 3.8 or newer that it has; for trying out"
    known = parse(package_data.text("profiles.toml"), Path("profiles.toml"), ())
    known["local"] = Profile("local", summary, (platform.machine(),), HOST)
    if file is not None:
        known |= {name: dataclasses.replace(profile, is_own=True) for name, profile in read(file, known).items()}
    return dict(sorted(known.items()))


def read(file: Path, taken: Collection[str]) -> dict[str, Profile]:
    """The profiles of `file` by name.

    Args:
        taken: names that profiles of this version have: a bundle's target means the same everywhere.

    Raises:
        RecipeInvalidError: it cannot be read, or with a finding for everything in it that no profile says.
    """
    return parse(_text(file), file, taken)


def parse(text: str, file: Path, taken: Collection[str]) -> dict[str, Profile]:
    """As `read`, of a file whose content would be `text`."""
    try:
        document = toml.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(file, [Finding("error", file, None, f"it is not TOML: {error}", "correct it there")]) from error
    found: dict[str, Profile] = {}
    wrong: list[tuple[Place, str, str]] = []
    for name, table in document.items():
        if (reason := _bad_name(name, table, taken)) is not None:
            wrong.append(((name,), *reason))
            continue
        carried = _CARRIED if table.get("interpreter", BUNDLED) == BUNDLED else {}
        keys = _fixes(Profile)
        given = {**carried, **{key: value for key, value in table.items() if key in keys}, "name": name}
        profile, problems = fields.read(Profile, given)
        paths = [(key,) for key in table if key not in keys] + [one.path for one in problems if not one.fix]
        wrong += [_words(name, table, path) for path in paths]
        if not paths:  # contradictions of keys that are right, each by itself
            wrong += [((name, *map(str, one.path)), one.what, one.fix) for one in problems]
            found[name] = dataclasses.replace(profile, machines=tuple(sorted(set(profile.machines))))
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


def _words(name: str, table: Mapping[str, Any], path: fields.KeyPath) -> tuple[Place, str, str]:
    """Place, reason and fix for what is wrong at one key of a profile."""
    keys = [key for key in path if isinstance(key, str)]  # without the numbers of entries in a list
    place, dotted, fixes = (name, *keys), ".".join(keys), _fixes(Cuda if len(keys) > 1 else Profile)
    if keys[-1] not in fixes:
        fix = did_you_mean(keys[-1], fixes, f"remove it; it takes {listed(fixes)}")
        return place, f"unknown key `{dotted}` in `{name}`", fix
    value: Any = table
    for key in path:
        if isinstance(value, dict) and key not in value:
            return place, f"`{'.'.join(place[:-1])}` lacks `{key}`", fixes[keys[-1]]
        value = value[key]
    return place, f"`{dotted}` in `{name}` cannot be {value!r:.60}", fixes[keys[-1]]


def _fixes(kind: type[Profile | Cuda]) -> dict[str, str]:
    """The keys of a table, and what to write there."""
    return {one.name: one.metadata["fix"] for one in dataclasses.fields(kind) if one.metadata}


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
