"""PyYAML's reader with the scalars of YAML 1.2's core schema.

YAML 1.1's scalars have traps that recipes fall into: there `no` is false, `3e-5` is text, `12:30` is 750 and `010` is
8. Here only `true` and `false` are truth values, `3e-5` is a number, and what is not plainly a number stays text, so
that the validation can say what it found.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import yaml

MAX_DEPTH: Final = 32  # the deepest key of a recipe lies four levels down
TAG: Final = "tag:yaml.org,2002:"
NULL: Final = re.compile(r"(?:~|null|Null|NULL|)\Z")
BOOL: Final = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")
# 010 is 8 to some readers and 10 to others, so it is no number here.
INT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,99})\Z")
FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_SCALARS: Final = (  # in the order in which they are tried, with the characters each can start with
    ("null", NULL, ("", "~", "n", "N")),
    ("bool", BOOL, tuple("tTfF")),
    ("int", INT, tuple("-+0123456789")),
    ("float", FLOAT, tuple("-+.0123456789")),
)

Expand = Callable[[str, int], str]  # (text of a scalar, its line from 1) -> text with variables filled in


class TooDeep(Exception):
    """A value lies more than MAX_DEPTH levels deep."""


class CoreLoader(yaml.SafeLoader):
    """Composes nodes; never used to construct objects."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own class attribute)
        first: [(TAG + name, pattern) for name, pattern, firsts in _SCALARS if first in firsts]
        for first in ("", *"~nNtTfF-+.0123456789")
    }

    def __init__(self, stream: str, expand: Expand | None = None) -> None:
        super().__init__(stream)
        self.depth = 0
        self.expand = expand

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """One node and all below it; this is what recurses, so the depth is counted here.

        Waiting for Python's own recursion limit would make the answer depend on what else has raised it.
        """
        if self.depth > MAX_DEPTH:
            raise TooDeep
        self.depth += 1
        try:
            self._expand(is_key=isinstance(parent, yaml.MappingNode) and index is None)
            node: yaml.Node | None = super().compose_node(parent, index)
        finally:
            self.depth -= 1
        return node

    def _expand(self, *, is_key: bool) -> None:
        """Fill in the variables of the scalar that comes next, before PyYAML decides what kind of scalar it is.

        That way a plain scalar is typed by what it expands to, and a quoted or tagged one stays what it is.
        """
        if self.expand is None or is_key or not self.check_event(yaml.ScalarEvent):
            return
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it so
        event.value = self.expand(event.value, event.start_mark.line + 1)


def compose(text: str, expand: Expand | None = None) -> yaml.Node | None:
    """The node of a text that holds one YAML document; None for one that holds nothing.

    Raises:
        yaml.YAMLError, ValueError, TooDeep: the text is no YAML, or none that a recipe is made of.
    """
    loader = CoreLoader(text, expand)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()
