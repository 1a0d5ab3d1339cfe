"""Values from outside the recipe's file: environment variables (`${NAME}`, `${NAME:-default}`) and `--set KEY=VALUE`.

`$$` is a dollar sign.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.findings import Finding
from edgepack.recipe.yaml import MAX_BYTES, MAX_DEPTH, Document, KeyPath, Place, dotted, parse_setting
from edgepack_runtime.util.texts import has_surrogate

MAX_EXPANDED: Final = 256 * 1024  # characters; a small recipe could otherwise expand to gigabytes
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE: Final = re.compile(
    rf"\$(?:(?P<dollar>\$)|\{{(?P<name>{_NAME})(?::-(?P<default>[^${{}}]*))?\}}|(?P<bare>{_NAME})|(?P<broken>\{{[^}}]*\}}?))"
)


@dataclass
class Expansion:
    """Expands variables and collects findings. Values are not expanded again."""

    file: Path
    environment: Mapping[str, str]
    findings: list[Finding] = field(default_factory=list)
    expanded: int = 0

    def __call__(self, text: str, line: int) -> str:
        """`text` with expanded variables. An invalid variable becomes "" and a finding at `line`."""
        return _REFERENCE.sub(lambda match: self._value(match, line), text) if "$" in text else text

    def _value(self, match: re.Match[str], line: int) -> str:
        if match["dollar"]:
            return "$"
        if match["bare"]:
            reason = f"`${match['bare'][:60]}` is not expanded: a variable needs braces"
            return self._add(line, reason, f"write `${{{match['bare'][:60]}}}`, or `$$` for a dollar sign")
        if match["broken"]:
            reason = f"`${match['broken'][:60]}` names no variable"
            return self._add(line, reason, "write `${NAME}` or `${NAME:-default}`, or `$$` for a dollar sign")
        name, default = match["name"], match["default"]
        value = self.environment.get(name, "")
        if default is not None:
            value = value or default  # as in a shell, `:-` stands for an empty variable too
        elif name not in self.environment:
            fix = f"set it before you run edgepack, or give a default: `${{{name[:60]}:-value}}`"
            return self._add(line, f"the environment variable `{name[:60]}` is not set", fix)
        return self._checked(name, value, line)

    def _checked(self, name: str, value: str, line: int) -> str:
        self.expanded += len(value)
        if self.expanded > MAX_EXPANDED:
            reason = f"the variables of this recipe fill in more than {MAX_EXPANDED} characters"
            return self._add(line, reason, f"look at what `{name}` holds")
        if has_surrogate(value):  # that is how the system hands over bytes that are no text
            return self._add(line, f"the environment variable `{name}` holds bytes that are not UTF-8", "set it again")
        return value

    def _add(self, line: int, reason: str, fix: str) -> str:
        self.findings.append(Finding("error", self.file, line, reason, fix))
        return ""


_FORM: Final = "write `--set KEY=VALUE`, as in `--set teacher.epochs=5`"
_SHOWN: Final = 80  # characters of a setting that its findings quote


def apply(document: Document, settings: Sequence[str]) -> tuple[Document, list[Finding]]:
    """The document with every `KEY=VALUE` of `settings`; later ones override earlier ones.

    A key is a path such as `teacher.epochs`; missing sections on it are created. A value is YAML: a scalar, or a list
    or section in brackets. Variables are not expanded, because the shell does it.

    Returns:
        A new document, and a finding for each invalid setting.
    """
    made = copied(document)
    findings: list[Finding] = []
    for text in settings:
        findings += _set(made, text)
    return made, findings


def keys(settings: Sequence[str]) -> frozenset[KeyPath]:
    """The paths that `settings` set."""
    return frozenset(tuple(text.partition("=")[0].split(".")) for text in settings if "=" in text)


def copied(document: Document) -> Document:
    """A copy of the document, for `put`."""
    return replace(document, data=copy.deepcopy(document.data), places=dict(document.places))


def put(document: Document, path: KeyPath, value: Document) -> None:
    """Set `path` in `document` to the value of `value`, with its lines. Missing sections are created."""
    section: dict[str, Any] = document.data
    for depth, key in enumerate(path[:-1], 1):
        if section.get(str(key)) is None:
            section[str(key)] = {}
            document.places[path[:depth]] = value.places[path]
        section = section[str(key)]
    section[str(path[-1])] = value.get(*path)
    for old in [other for other in document.places if other[: len(path)] == path]:
        del document.places[old]
    document.places.update(value.places)


def in_the_way(document: Document, path: KeyPath) -> KeyPath | None:
    """The path above `path` that holds a value instead of a section; None if there is none."""
    above = (path[:depth] for depth in range(1, len(path)))
    return next((here for here in above if not isinstance(document.get(*here), dict | None)), None)


def shown(text: str) -> str:
    """A setting for findings: one line, shortened, with unprintable characters escaped."""
    whole = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_SHOWN])
    return f"--set {whole}" + ("..." if len(text) > _SHOWN else "")


def _set(document: Document, text: str) -> list[Finding]:
    """Set one setting in `document`; return the finding if it is invalid."""
    setting = shown(text)
    key, equals, written = text.partition("=")
    path: KeyPath = tuple(key.split("."))
    problem = _problem(document, path, text, equals)
    if problem is not None:
        return [Finding("error", document.file, None, *problem, setting)]
    value, findings = parse_setting(written, document.file, path)
    if value is not None:
        places = {inner: Place(None, None, setting, place.raw) for inner, place in value.places.items()}
        put(document, path, replace(value, places=places))
    return [replace(finding, line=None, setting=setting) for finding in findings]


def _problem(document: Document, path: KeyPath, text: str, equals: str) -> tuple[str, str] | None:
    """Reason and fix of a setting that cannot be set."""
    if not equals:
        return "a setting takes a key and a value, with `=` between them", _FORM
    if not all(path):
        return "a key is empty", _FORM
    if has_surrogate(dotted(path)):
        return "the key holds bytes that are not UTF-8", _FORM
    if len(path) > MAX_DEPTH:
        return "the key is nested too deeply", _FORM
    if len(text) > MAX_BYTES:
        return (
            f"this setting has {len(text)} characters; a whole recipe has at most {MAX_BYTES}",
            "write it in the file",
        )
    here = in_the_way(document, path)
    if here is None:
        return None
    name = dotted(here)
    if isinstance(document.get(*here), list):
        return f"`{name}` is a list, and `--set` sets a list as a whole", f"write `--set '{name}=[...]'`"
    fix = f"set it to a section as a whole: `--set '{name}={{{path[len(here)]}: ...}}'`"
    return f"`{name}` is a single value, so it has no keys", fix
