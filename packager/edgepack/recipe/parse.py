"""YAML text -> plain data with a line number for every key. No validation, no defaults, no objects."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from edgepack.recipe.core_yaml import BOOL, FLOAT, INT, MAX_DEPTH, NULL, TAG, Expand, TooDeep, compose
from edgepack.recipe.document import Document, KeyPath
from edgepack.recipe.encodings import is_binary, not_utf8
from edgepack.recipe.findings import Finding

MAX_BYTES: Final = 256 * 1024  # a long commented recipe has some kilobytes; a data file given by mistake, more
MAX_VALUES: Final = 10_000  # anchors can make a small file describe billions of values

_START: Final = "write it as recipes/quickstart.yaml is written"
_COLON: Final = "write an ASCII colon and a space (`: `) and not the full-width `：`"
_BRACES: Final = "between braces or brackets put `${NAME}` in quotes (it is text then), or write a line for each key"

T = TypeVar("T")


def parse(raw: bytes, file: Path, expand: Expand | None = None) -> tuple[Document | None, list[Finding]]:
    """Read the bytes of a recipe; `file` is only named in the findings.

    Args:
        expand: fills in the variables of every scalar that is no key; it keeps its own findings.

    Returns:
        The document, or None when nothing can be said about its content, and everything that is wrong with
        the YAML itself: encoding, syntax, duplicate keys, tags, values that are no data.
    """
    if len(raw) > MAX_BYTES:
        reason = f"this file has {len(raw)} bytes; a recipe has at most {MAX_BYTES}"
        return None, [_error(file, None, reason, "give the recipe (.yaml), not a data file or a model")]
    text, undecodable = decode(raw, file)
    if undecodable is not None:
        return None, [undecodable]
    builder = _Builder(file)

    def read() -> Document | Finding:
        node = compose(text, expand)
        if not isinstance(node, yaml.MappingNode):
            return _not_a_mapping(node, text, file)
        return Document(file, builder.value(node, ()), builder.lines, builder.raw)

    document, refused = _reading(text, file, read)
    # An anchor is read once for each place that uses it: what is wrong in it is said once.
    return document, [refused] if refused is not None else list(dict.fromkeys(builder.findings))


def parse_setting(text: str, file: Path, path: KeyPath) -> tuple[Document | None, list[Finding]]:
    """Read the value that `--set` puts at `path`, a scalar or a list or section in brackets.

    Returns:
        A document that holds nothing but `path`, or None, and everything that is wrong with the text.
    """
    builder = _Builder(file)

    def read() -> Document | Finding:
        node = compose(text)
        if node is None:  # as `key:` with nothing after it
            return Document(file, {}, {path: 1}, {path: ""})
        if isinstance(node, yaml.CollectionNode) and not node.flow_style:
            return _error(file, 1, "a list or section stands in brackets here", "write `[a, b]` or `{a: 1, b: 2}`")
        value = builder.value(node, path)
        builder.lines.setdefault(path, 1)
        for key in reversed(path):
            value = {key: value}
        return Document(file, value, builder.lines, builder.raw)

    document, refused = _reading(text, file, read)
    return document, [refused] if refused is not None else list(dict.fromkeys(builder.findings))


def _reading(text: str, file: Path, read: Callable[[], T | Finding]) -> tuple[T | None, Finding | None]:
    """What `read` makes of `text`, or the one finding that says why nothing can be made of it."""
    try:
        made = read()
    except yaml.MarkedYAMLError as error:
        return None, _syntax(error, text, file)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        reason = f"character U+{code:04X} is not allowed in YAML"
        return None, _error(file, line, reason, "remove it; it is usually invisible, so retype the line")
    except _TooLarge:
        reason = f"the anchors of this recipe unfold to more than {MAX_VALUES} values"
        return None, _error(file, None, reason, "write the values out")
    except TooDeep:
        return None, _error(file, None, "it is nested too deeply", _START)
    except ValueError as error:
        # PyYAML lets one through for a `\U` escape beyond Unicode and for a `%YAML` version of 5000 digits.
        return None, _error(file, None, f"this is not YAML: {error}", _START)
    return (None, made) if isinstance(made, Finding) else (made, None)


def decode(raw: bytes, file: Path) -> tuple[str, Finding | None]:
    """UTF-8 text of a file, with or without a byte order mark; else the finding that says why."""
    try:
        return raw.decode("utf-8-sig"), None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
    return "", _error(file, None if is_binary(raw) else line, *not_utf8(raw, file.name))


def has_surrogate(text: str) -> bool:
    r"""Whether `text` holds half a character, as an escape like `\ud83d` alone makes; no file can hold it."""
    return any("\ud800" <= character <= "\udfff" for character in text)


class _TooLarge(Exception):
    """The recipe unfolds to more than MAX_VALUES values."""


@dataclass
class _Builder:
    """Turns nodes into plain data, keeping lines and collecting findings instead of stopping at the first."""

    file: Path
    lines: dict[KeyPath, int] = field(default_factory=dict)
    raw: dict[KeyPath, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    open_nodes: list[yaml.Node] = field(default_factory=list)  # from the root to here: an alias to one cycles
    values: int = 0

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        self.lines.setdefault(path, _line(node))
        if node.tag != TAG + "map":
            self._tag(node)
        result: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if _is_merge(key_node):
                merged.append(value_node)
                continue
            key = self._key(key_node)
            if key is None:
                continue
            if key in first_lines:
                reason = f"`{key}` stands twice here (first on line {first_lines[key]})"
                self._add(key_node, reason, "keep one of the two")
                continue
            first_lines[key] = _line(key_node)
            below: KeyPath = (*path, key)
            self.lines[below] = _line(key_node)
            result[key] = self.value(value_node, below)
        for value_node in merged:
            self._merge(value_node, path, result)
        return result

    def _merge(self, node: yaml.Node, path: KeyPath, result: dict[str, Any]) -> None:
        """`<<: *anchor` (or a list of them): keys that are not written out here, the first mapping first."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                self._add(node, "`<<` takes a section marked with an anchor", "write `<<: *name`")
                continue
            with_lines = _Builder(self.file, {}, {}, self.findings, self.open_nodes, self.values)
            inherited = with_lines.value(source, path)
            self.values = with_lines.values
            for key, value in (inherited or {}).items():
                if key in result:
                    continue
                result[key] = value
                below = (*path, key)
                self.lines.update({p: n for p, n in with_lines.lines.items() if p[: len(below)] == below})
                self.raw.update({p: r for p, r in with_lines.raw.items() if p[: len(below)] == below})

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.values += 1
        if self.values > MAX_VALUES:
            raise _TooLarge
        if len(self.open_nodes) > MAX_DEPTH:
            raise TooDeep
        if any(node is other for other in self.open_nodes):
            self._add(node, "this anchor contains itself", "write the value out")
            return None
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self.open_nodes.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            return list(self._items(node, path))
        finally:
            self.open_nodes.pop()

    def _items(self, node: yaml.Node, path: KeyPath) -> Iterator[Any]:
        if node.tag != TAG + "seq":
            self._tag(node)
        for index, item in enumerate(node.value):
            below: KeyPath = (*path, index)
            self.lines[below] = _line(item)
            yield self.value(item, below)

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        text = str(node.value)
        self.raw[path] = text
        kind = node.tag.removeprefix(TAG)
        if kind == "str":
            if has_surrogate(text):
                self._add(node, "this text holds half a character (a surrogate)", "write the character itself")
                return None
            return text
        if kind == "null" and NULL.match(text):
            return None
        if kind == "bool" and BOOL.match(text):
            return text.lower() == "true"
        if kind == "int" and INT.match(text):
            return int(text)
        if kind == "float" and FLOAT.match(text):
            number = float(text)
            if math.isfinite(number):
                return number
            self._add(node, f"`{text[:40]}` is too large for a number", "write a smaller number")
            return None
        self._tag(node)
        return None

    def _key(self, node: yaml.Node) -> str | None:
        plain = isinstance(node, yaml.ScalarNode) and not has_surrogate(node.value)
        if plain and node.tag == TAG + "str":
            return str(node.value)
        shown = f"`{node.value[:40]}`" if plain else "this"
        self._add(node, f"{shown} is not a key: keys are words", "use the keys of recipes/quickstart.yaml")
        return None

    def _tag(self, node: yaml.Node) -> None:
        shown = node.tag.replace(TAG, "!!")
        self._add(node, f"the tag `{shown}` does not belong here: a recipe is plain data", "remove the tag")

    def _add(self, node: yaml.Node, reason: str, fix: str) -> None:
        self.findings.append(_error(self.file, _line(node), reason, fix))


def _is_merge(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == "<<" and node.style is None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _error(file: Path, line: int | None, reason: str, fix: str) -> Finding:
    return Finding("error", file, line, reason, fix)


def _not_a_mapping(node: yaml.Node | None, text: str, file: Path) -> Finding:
    if node is None:
        return _error(file, None, "the recipe is empty", _START)
    if "：" in text:
        return _error(file, _line(node), "no key is followed by an ASCII colon", _COLON)
    return _error(file, _line(node), "a recipe is made of `key: value` lines, and this is not", _START)


def _syntax(error: yaml.MarkedYAMLError, text: str, file: Path) -> Finding:
    mark = error.problem_mark or error.context_mark
    if "end of stream" in str(error.problem) and error.context_mark is not None:
        mark = error.context_mark  # what was left open is to be corrected, not the end of the file
    line = mark.line + 1 if mark is not None else None
    lines = text.split("\n")
    # The reader often notices a line late: what it complains of may stand on the line before.
    near = lines[max(0, line - 2) : line] if line is not None else []
    tabbed = [number for number, content in _numbered(near, line) if re.match(r" *\t", content)]
    if tabbed:
        return _error(file, tabbed[-1], "a tab stands in the indentation", "indent with spaces")
    problem = " ".join(part for part in (error.problem, error.context) if part)
    fix = "check the indentation, the colons and the quotes here and on the line before"
    if any("：" in content for content in near):
        fix = _COLON
    elif "undefined alias" in str(error.problem):
        fix = "mark the value with `&NAME` before it is used as `*NAME`, or put a text that starts with `*` in quotes"
    elif "expected ',' or" in str(error.problem) and any("${" in content for content in near):
        fix = _BRACES
    elif error.problem == "mapping values are not allowed here":
        fix = "put a value that holds `: ` in quotes, and indent the keys of one section alike"
    return _error(file, line, f"this is not YAML: {problem}", fix)


def _numbered(near: list[str], last: int | None) -> list[tuple[int, str]]:
    first = (last or 0) - len(near) + 1
    return [(first + offset, content) for offset, content in enumerate(near)]
