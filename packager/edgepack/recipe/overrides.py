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
from edgepack.recipe.messages import dotted
from edgepack.recipe.yaml import MAX_BYTES, MAX_DEPTH, Document, KeyPath, has_surrogate, parse_setting

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
    return replace(
        document,
        data=copy.deepcopy(document.data),
        lines=dict(document.lines),
        raw=dict(document.raw),
        settings=dict(document.settings),
    )


def put(document: Document, path: KeyPath, value: Document) -> None:
    """Set `path` in `document` to the value of `value`, with its lines. Missing sections are created."""
    section: dict[str, Any] = document.data
    for depth, key in enumerate(path[:-1], 1):
        if section.get(str(key)) is None:
            section[str(key)] = {}
            if path in value.settings:
                document.settings[path[:depth]] = value.settings[path]
            elif path in value.lines:
                document.lines[path[:depth]] = value.lines[path]
        section = section[str(key)]
    section[str(path[-1])] = value.get(*path)
    for known in (document.lines, document.raw, document.settings):
        _forget(known, path)
    document.lines.update(value.lines)
    document.raw.update(value.raw)
    document.settings.update(value.settings)


def in_the_way(document: Document, path: KeyPath) -> KeyPath | None:
    """The path above `path` that holds a value instead of a section; None if there is none."""
    above = (path[:depth] for depth in range(1, len(path)))
    return next((here for here in above if not isinstance(document.get(*here), dict | None)), None)


def place(text: str) -> str:
    """A setting for findings: one line, shortened, with unprintable characters escaped."""
    whole = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_SHOWN])
    return f"--set {whole}" + ("..." if len(text) > _SHOWN else "")


def _set(document: Document, text: str) -> list[Finding]:
    """Set one setting in `document`; return the finding if it is invalid."""
    shown = place(text)
    key, equals, written = text.partition("=")
    path: KeyPath = tuple(key.split("."))
    problem = _bad_key(path, equals) or _too_long(text) or _no_way(document, path)
    if problem is not None:
        return [_error(document.file, shown, *problem)]
    value, findings = parse_setting(written, document.file, path)
    if value is not None:
        put(document, path, replace(value, lines={}, settings=dict.fromkeys(value.lines, shown)))
    return [replace(finding, line=None, setting=shown) for finding in findings]


def _forget(known: dict[KeyPath, Any], path: KeyPath) -> None:
    for old in [other for other in known if other[: len(path)] == path]:
        del known[old]


def _bad_key(path: KeyPath, equals: str) -> tuple[str, str] | None:
    if not equals:
        return "a setting takes a key and a value, with `=` between them", _FORM
    if not all(path):
        return "a key is empty", _FORM
    if has_surrogate(dotted(path)):
        return "the key holds bytes that are not UTF-8", _FORM
    return ("the key is nested too deeply", _FORM) if len(path) > MAX_DEPTH else None


def _too_long(text: str) -> tuple[str, str] | None:
    reason = f"this setting has {len(text)} characters; a whole recipe has at most {MAX_BYTES}"
    return (reason, "write it into the recipe") if len(text) > MAX_BYTES else None


def _no_way(document: Document, path: KeyPath) -> tuple[str, str] | None:
    """The finding for a `path` below a value that is not a section."""
    here = in_the_way(document, path)
    if here is None:
        return None
    if isinstance(document.get(*here), list):
        return (
            f"`{dotted(here)}` is a list, and `--set` sets a list as a whole",
            f"write `--set '{dotted(here)}=[...]'`",
        )
    reason = f"`{dotted(here)}` is a single value, so it has no keys"
    return reason, f"set it to a section as a whole: `--set '{dotted(here)}={{{path[len(here)]}: ...}}'`"


def _error(file: Path, shown: str, reason: str, fix: str) -> Finding:
    return Finding("error", file, None, reason, fix, shown)
