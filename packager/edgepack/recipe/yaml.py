"""Parsed recipe: plain data with a line number for every key, and its YAML parser, without validation and defaults."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from edgepack.messages import message
from edgepack.recipe.findings import Finding
from edgepack_runtime.rows.encodings import is_binary, not_utf8
from edgepack_runtime.util.texts import has_surrogate

KeyPath = tuple[str | int, ...]
Problem = tuple[KeyPath, str, str]  # where, reason, fix

_PLAIN: Final = re.compile(r"[A-Za-z_\u4e00-\u9fff][\w./-]*\Z")
_WORDS: Final = ("true", "false", "null")


@dataclass(frozen=True)
class Place:
    """Where a value is written: line and column of its key or list item, from 1, or a `--set KEY=VALUE`."""

    line: int | None = 1
    column: int | None = None
    setting: str | None = None
    raw: str | None = None  # a scalar as written, so that messages quote `1.20` instead of 1.2


@dataclass(frozen=True)
class Document:
    """One parsed recipe: plain data (dict, list, str, int, float, bool, None) with the place of each value."""

    file: Path
    data: dict[str, Any]
    places: dict[KeyPath, Place]  # () is the first line of the document

    def error(self, path: KeyPath, reason: str, fix: str) -> Finding:
        """A finding about `path`, placed there or at the nearest section around it that is written."""
        place = next(self._above(path), Place())
        return Finding("error", self.file, place.line, reason, fix, place.setting, place.column, dotted(path))

    def place(self, path: KeyPath) -> str:
        """`file:line` of the section at `path`, or of the nearest one around it that the file has."""
        above = (found.line for found in self._above(path) if found.line is not None)
        return f"{self.file}:{next(above, 1)}"

    def get(self, *path: str | int) -> Any:
        """The value at `path`; None if there is none."""
        value: Any = self.data
        for key in path:
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int) and key < len(value):
                value = value[key]
            else:
                return None
        return value

    def _above(self, path: KeyPath) -> Iterator[Place]:
        """The places of the value at `path` and of the sections around it that are written, from the inside."""
        around = (path[:depth] for depth in range(len(path), -1, -1))
        return (self.places[section] for section in around if section in self.places)


def dotted(path: KeyPath) -> str:
    """`targets[0]`, `teacher.model`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")


MAX_BYTES: Final = 256 * 1024  # a long recipe has some kilobytes; a data file by mistake has more
MAX_DEPTH: Final = 32  # the deepest key of a recipe is at level four
MAX_ALIASED: Final = 20_000  # characters and values that aliases may add

Expand = Callable[[str, int], str]  # (text of a scalar, its line from 1) -> text with expanded variables

_TAG: Final = "tag:yaml.org,2002:"
_MAX_NUMBER: Final = 100  # characters
_START: Final = message("yaml.start")
_COLON: Final = message("yaml.colon")
# A part of the library's message -> the fix.
_FIXES: Final = {
    "undefined alias": message("yaml.alias"),
    "but got '{'": message("yaml.braces"),
    "mapping values are not allowed": message("yaml.quote"),
}


def parse(
    raw: bytes, file: Path, expand: Expand | None = None, replaced: Collection[KeyPath] = ()
) -> tuple[Document | None, list[Finding]]:
    """Parse the bytes of a recipe.

    Args:
        file: name of the file, for findings.
        expand: expands the variables of every scalar except keys; it collects its own findings.
        replaced: paths of values that are not used; their variables are not expanded and need not be set.

    Returns:
        The document (None if it cannot be parsed), and the findings about YAML: encoding, syntax, duplicate keys, tags.
    """
    if len(raw) > MAX_BYTES:
        reason = message("yaml.large", size=len(raw), most=MAX_BYTES)
        return None, [_error(file, None, reason, message("yaml.give_recipe"))]
    text, undecodable = decode(raw, file)
    if undecodable is not None:
        return None, [undecodable]

    def accept(node: Node | None) -> Finding | None:
        if node is None:
            return _error(file, None, message("yaml.empty"), _START)
        if isinstance(node, MappingNode):
            return None
        fix = _COLON if "：" in text else _START
        return _error(file, _line(node), message("yaml.no_keys"), fix)

    return _read(text, file, (), accept, expand, replaced)


def parse_setting(text: str, file: Path, path: KeyPath) -> tuple[Document | None, list[Finding]]:
    """Parse the value of `--set` for `path`: a scalar, or a list or section in brackets.

    Returns:
        A document that holds only `path` (None if it cannot be parsed), and the findings.
    """

    def accept(node: Node | None) -> Finding | None:
        if isinstance(node, CollectionNode) and not node.flow_style:
            return _error(file, 1, "a list or section needs brackets here", "write `[a, b]` or `{a: 1, b: 2}`")
        return None

    document, findings = _read(text, file, path, accept)
    if document is None:
        return None, findings
    value: Any = document.data
    for key in reversed(path):
        value = {key: value}
    return Document(file, value, {path: Place(), **document.places}), findings


def decode(raw: bytes, file: Path) -> tuple[str, Finding | None]:
    """UTF-8 text of a file, with or without a byte order mark; else the finding."""
    try:
        return raw.decode("utf-8-sig"), None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
    return "", _error(file, None if is_binary(raw) else line, *not_utf8(raw, file.name))


def _read(
    text: str,
    file: Path,
    path: KeyPath,
    accept: Callable[[Node | None], Finding | None],
    expand: Expand | None = None,
    replaced: Collection[KeyPath] = (),
) -> tuple[Document | None, list[Finding]]:
    """The data of `text` at `path`; or the finding why it cannot be parsed."""
    yaml: Any = YAML(typ="safe", pure=True)
    # The characters and values of a text without aliases are at most one and a half times its length.
    builder = _Builder(yaml, file, expand, replaced, 2 * len(text) + MAX_ALIASED)
    try:
        _check_depth(text)
        node = yaml.compose(text)
        refused = accept(node)
        if refused is None:
            data: Any = None if node is None else builder.value(node, path)
            # An anchor is read once for each place that uses it, and reported once.
            return Document(file, data, builder.places), list(dict.fromkeys(builder.findings))
    except _TooLargeError as error:
        fix = "write the values out; a recipe needs few aliases (`*NAME`)"
        refused = _error(file, error.line, "aliases repeat too many values", fix)
    except MarkedYAMLError as error:
        refused = _syntax(error, text, file)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        reason = f"character U+{code:04X} is not allowed in YAML"
        refused = _error(file, line, reason, "remove it; it is usually invisible, so retype the line")
    except RecursionError:
        refused = _error(file, None, "it is nested too deeply, or an anchor contains itself", _START)
    except (ValueError, OverflowError) as error:  # numbers of thousands of digits, characters beyond Unicode
        refused = _error(file, None, f"this is not YAML: {error}", _START)
    return None, [refused]


def _check_depth(text: str) -> None:
    """Refuse text that is nested deeper than MAX_DEPTH, independent of the interpreter's recursion limit."""
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise RecursionError


class _TooLargeError(Exception):
    """Aliases repeat more values than a recipe may have, at this line."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _Builder:
    """Converts nodes to plain data with lines, and collects findings."""

    def __init__(self, yaml: Any, file: Path, expand: Expand | None, replaced: Collection[KeyPath], room: int) -> None:
        self._yaml, self._file, self._expand, self._replaced, self._room = yaml, file, expand, replaced, room
        self.places: dict[KeyPath, Place] = {}
        self.findings: list[Finding] = []

    def value(self, node: Node, path: KeyPath) -> Any:
        if len(path) > MAX_DEPTH:
            raise RecursionError
        self._count(node)
        self.places.setdefault(path, _place(node))
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            return self._tagged(node)
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]

    def _count(self, node: Node) -> None:
        """Count a node, because a few lines of aliases of aliases can stand for billions of values."""
        self._room -= 1 + len(node.value)
        if self._room < 0:
            raise _TooLargeError(_line(node))

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        inherited: list[tuple[Node, Node]] = []

        def add(key_node: Node, value_node: Node, *, again: str) -> None:
            if not isinstance(key_node, ScalarNode) or has_surrogate(key_node.value):
                self._add(key_node, "this is not a key: keys are words", "use the keys of recipes/quickstart.yaml")
                return
            key = str(key_node.value)
            below: KeyPath = (*path, key)
            if key not in result:
                self.places[below] = _place(key_node)
                result[key] = self.value(value_node, below)
            elif again == "error":
                reason = message("yaml.duplicate", key=key, line=self.places[below].line)
                self._add(key_node, reason, message("yaml.keep_one"))

        for key_node, value_node in node.value:
            if key_node.tag == f"{_TAG}merge":
                inherited += self._merged(value_node)
            else:
                add(key_node, value_node, again="error")
        for key_node, value_node in inherited:
            add(key_node, value_node, again="ignore")
        return result

    def _merged(self, node: Node) -> list[tuple[Node, Node]]:
        """The keys and values of `<<: *anchor`, or of a list of anchors."""
        pairs: list[tuple[Node, Node]] = []
        sources = node.value if isinstance(node, SequenceNode) else [node]
        for source in sources:
            self._count(source)
            if isinstance(source, MappingNode):
                pairs += source.value
            else:
                self._add(node, "`<<` takes a section marked with an anchor", "write `<<: *name`")
        return pairs

    def _scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        if node.tag != self._kind(node, node.value):
            return self._tagged(node)
        text = str(node.value)
        if self._expand is not None and not any(path[: len(key)] == key for key in self._replaced):
            text = self._expand(text, _line(node))
        self.places[path] = replace(self.places[path], raw=text)
        if has_surrogate(text):
            self._add(node, "this text holds half a character (a surrogate)", "write the character itself")
            return None
        kind = self._kind(node, text)  # the type of a plain scalar is that of its expansion
        if kind.removeprefix(_TAG) not in ("null", "bool", "int", "float"):
            return text
        if len(text) > _MAX_NUMBER:  # Python refuses to print integers of more than 4,300 digits
            self._add(node, f"`{text[:40]}...` is a number of {len(text)} characters", "write a shorter one")
            return None
        value = self._yaml.constructor.construct_object(ScalarNode(kind, text, node.start_mark, node.end_mark))
        if isinstance(value, float) and not math.isfinite(value):
            self._add(node, f"`{text[:40]}` is not a finite number", "write a number")
            return None
        return value

    def _kind(self, node: ScalarNode, text: str) -> str:
        """The tag of a scalar without one; quoted text and blocks are strings."""
        plain = node.style is None
        return str(self._yaml.resolver.resolve(ScalarNode, text, (True, False))) if plain else f"{_TAG}str"

    def _tagged(self, node: Node) -> None:
        tag = str(node.tag).replace(_TAG, "!!")
        self._add(node, f"the tag `{tag}` does not belong here: a recipe is plain data", "remove the tag")

    def _add(self, node: Node, reason: str, fix: str) -> None:
        place = _place(node)
        self.findings.append(Finding("error", self._file, place.line, reason, fix, column=place.column))


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _place(node: Node) -> Place:
    return Place(_line(node), int(node.start_mark.column) + 1)


def scalar(text: str) -> str:
    """`text` as a YAML scalar. A dollar sign is doubled, because recipes expand variables."""
    text = text.replace("$", "$$")
    if _PLAIN.match(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _error(file: Path, line: int | None, reason: str, fix: str) -> Finding:
    return Finding("error", file, line, reason, fix)


def _syntax(error: MarkedYAMLError, text: str, file: Path) -> Finding:
    mark = error.problem_mark or error.context_mark
    if "end of stream" in str(error.problem) or "<stream end>" in str(error.problem):
        mark = error.context_mark or mark  # what was left open is to be corrected, not the end of the file
    line = int(mark.line) + 1 if mark is not None else 1
    # The library often notices a line late.
    near = {number: content for number, content in enumerate(text.split("\n"), 1) if number in (line - 1, line)}
    tabbed = [number for number, content in near.items() if re.match(r" *\t", content)]
    if tabbed:
        return _error(file, tabbed[-1], message("yaml.tab"), message("yaml.spaces"))
    problem = " ".join(part for part in (error.problem, error.context) if part)
    fix = next((fix for part, fix in _FIXES.items() if part in problem), message("yaml.look"))
    if any("：" in content for content in near.values()):
        fix = _COLON
    return _error(file, line, message("yaml.syntax", problem=problem), fix)
