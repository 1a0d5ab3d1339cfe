"""Fields of documents: a dataclass says the type, default, range and meaning of each key; `read` checks a document.

The metadata of a field are `description`, the bounds `gt`, `ge`, `lt`, `le` of a number, `min_length` and `pattern` of
a text, `max_length` of a list, `one_of` with the values of a text, and `values` with the rules of the items of a list
or of the values of a mapping. The names are those of pydantic's `Field`, from which recipes are made
(`edgepack.recipe.section`). Other metadata belong to the document.
"""

from __future__ import annotations

import dataclasses
import math
import re
import reprlib
import typing
from typing import Any, Callable, ClassVar, Dict, Iterator, List, Mapping, NamedTuple, Tuple, Type, TypeVar, Union

from edgepack_runtime import messages

KeyPath = Tuple[Union[str, int], ...]
T = TypeVar("T")
_BOUNDS: Tuple[Tuple[str, Callable[[float, float], bool]], ...] = (
    ("gt", lambda value, bound: value > bound),
    ("ge", lambda value, bound: value >= bound),
    ("lt", lambda value, bound: value < bound),
    ("le", lambda value, bound: value <= bound),
)
_HINTS: Dict[Any, Dict[str, Any]] = {}
_INVALID = object()
_MOST_INTEGER = 2**63  # larger ones are nothing that was counted, and no float
_QUOTE = reprlib.Repr()  # of long and deep values a part
_QUOTE.maxstring = _QUOTE.maxlong = _QUOTE.maxother = 120


class Problem(NamedTuple):
    """An invalid value of a document: its path, what is wrong with the key there, and the fix in a recipe."""

    path: KeyPath
    what: str
    fix: str = ""

    def reason(self, above: str = "") -> str:
        """The problem as a sentence. `above` is the name of the section that the document is of."""
        name = dotted((above, *self.path) if above else self.path)
        return f"`{name}` {self.what}" if name else f"the document {self.what}"


class Document:
    """Base of the dataclasses that `read` makes."""

    ONE_OF: ClassVar[Tuple[str, ...]] = ()  # limits of a section, at least one of which must be set

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        """Contradictions between the fields; `given` is what the document has. Invalid fields are None here."""
        yield from ()

    @classmethod
    def without_limit(cls, given: Mapping[str, Any]) -> bool:
        """Whether the document sets none of `ONE_OF`."""
        return bool(cls.ONE_OF) and all(given.get(key) in (None, {}) for key in cls.ONE_OF)

    @classmethod
    def keys(cls, given: Mapping[str, Any]) -> typing.Optional[typing.AbstractSet[str]]:
        """The keys that the document must have; None if any may be missing that has a default."""
        return None


class Exact(Document):
    """Base of dataclasses whose documents have each field, and null only where a field may be None."""

    @classmethod
    def keys(cls, given: Mapping[str, Any]) -> typing.AbstractSet[str]:
        return hints(cls).keys() - hints(Document).keys()


def field(description: str = "", default: Any = dataclasses.MISSING, **metadata: Any) -> Any:
    """A field of a document; mandatory without `default`."""
    made = {"description": description, **metadata} if description else metadata
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: default, metadata=made)
    return dataclasses.field(default=default, metadata=made)


def read(kind: Type[T], document: Any, *, newer: bool = False) -> Tuple[T, List[Problem]]:
    """Read `document` as a `kind`, which is valid only without problems.

    Null stands for the default of a field.

    Args:
        newer: ignore unknown keys, which a newer version may have written.
    """
    found: List[Problem] = []
    made = _Reader(found, newer, messages.read(document) if newer else {}).section(kind, document, ())
    return made, found


def valid(kind: Type[T], document: Any, invalid: Callable[[str], Exception]) -> T:
    """Read a document of this version; `invalid` makes the exception that is raised, of the first problem."""
    made, found = read(kind, document)
    if found:
        raise invalid(f"{dotted(found[0].path) or 'the document'} {found[0].what}")
    return made


def parse(kind: Type[T], document: Any) -> T:
    """Read a document that another version may have written.

    Raises:
        ValueError: a key is missing, or a value is invalid.
    """
    made, found = read(kind, document, newer=True)
    if found:
        raise ValueError(found[0].reason())
    return made


def to_json(value: Any) -> Any:
    """A document in JSON types, in the order of its fields, without those that are `optional` and None."""
    if dataclasses.is_dataclass(value):
        pairs = ((one, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {one.name: to_json(part) for one, part in pairs if not (part is None and one.metadata.get("optional"))}
    if isinstance(value, (list, tuple)):
        return [to_json(part) for part in value]
    if isinstance(value, Mapping):
        return {key: to_json(part) for key, part in value.items()}
    return value


def document(value: Any) -> Dict[str, Any]:
    """A whole document in JSON types, with the ids and fields of its messages."""
    found: Dict[str, Any] = to_json(value)
    listed = messages.table(found)
    return {**found, messages.KEY: listed} if listed else found


def dotted(path: KeyPath) -> str:
    """`latency.by_length[0].p95_ms`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def hints(kind: Any) -> Dict[str, Any]:
    """The types of the fields of the dataclass `kind`."""
    if kind not in _HINTS:
        _HINTS[kind] = typing.get_type_hints(kind)
    return _HINTS[kind]


class _Reader:
    """Reads values of documents, and collects their problems."""

    def __init__(self, found: List[Problem], newer: bool, known: Mapping[str, str]) -> None:
        self._found, self._newer, self._known = found, newer, known

    def section(self, kind: Type[T], document: Any, path: KeyPath) -> T:
        given: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
        fields = {one.name: one for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
        before, exact = len(self._found), kind.keys(given) if issubclass(kind, Document) else None
        if exact is not None and (exact - given.keys() or (not self._newer and given.keys() - exact)):
            was = sorted(given) if given is document else type(document).__name__
            self._refuse(path, f"should be an object with the keys {sorted(exact)}, not {was}")
        elif given is not document:
            self._refuse(path, "is not an object")
        for key in () if self._newer or exact is not None else given:
            if key not in fields:
                self._refuse((*path, key), "is not a key that this version knows")
        types = hints(kind)
        made = kind(**{
            name: self._field(
                types[name], one, given, (*path, name), there=given is document, exact=exact is not None
            )
            for name, one in fields.items()
        })  # fmt: skip
        if exact is not None and len(self._found) > before:
            return made  # the checks of an exact document need all of it
        if given is document and isinstance(made, Document):
            if made.without_limit(given):
                keys = ", ".join(f"`{key}`" for key in made.ONE_OF)
                self._refuse(path, "sets no limit, so nothing would be gated", f"set one of {keys}, or remove it")
            for problem in made.problems(given):
                self._refuse((*path, *problem.path), problem.what, problem.fix)
        return made

    def _field(self, hint: Any, one: Any, given: Mapping[str, Any], path: KeyPath, *, there: bool, exact: bool) -> Any:
        """The value of a field; None if it is missing or invalid and has no default."""
        default = one.default_factory() if one.default is dataclasses.MISSING and _has_factory(one) else one.default
        value = given.get(one.name)
        if value is not None:
            value = self._value(hint, value, path, one.metadata)
        elif exact and one.name in given and not _takes_none(hint):
            self._refuse(path, "is null")
        elif default is dataclasses.MISSING and there and (one.name not in given or not _takes_none(hint)):
            self._refuse(path, "is missing")
        if value is not None and value is not _INVALID:
            return value
        return None if default is dataclasses.MISSING else default

    def _value(self, hint: Any, value: Any, path: KeyPath, metadata: Mapping[str, Any]) -> Any:
        """`value` as the type `hint`; `_INVALID` after a problem."""
        hint = _not_none(hint)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if hint is Any:
            return self._known.get(value, value) if isinstance(value, str) else value
        if dataclasses.is_dataclass(hint):
            return self.section(hint, value, path)  # type: ignore[arg-type]
        if origin is tuple:
            if not isinstance(value, (list, tuple)) or len(value) > metadata.get("max_length", math.inf):
                return self._refuse(path, "is not a list" if not isinstance(value, (list, tuple)) else "is too long")
            rules = metadata.get("values", {})
            parts = [self._value(arguments[0], part, (*path, place), rules) for place, part in enumerate(value)]
            return tuple(part for part in parts if part is not _INVALID)
        if origin is not None and origin is not typing.Literal and issubclass(origin, typing.Mapping):
            if not isinstance(value, Mapping):
                return self._refuse(path, "is not an object")
            bounds = metadata.get("values", {})
            read = {key: self._value(arguments[1], part, (*path, key), bounds) for key, part in value.items()}
            return {key: part for key, part in read.items() if part is not _INVALID}
        if origin is typing.Literal:
            return value if value in arguments and type(value) is str else self._refuse(path, _is(value))
        return self._scalar(hint, value, path, metadata)

    def _scalar(self, hint: Any, value: Any, path: KeyPath, metadata: Mapping[str, Any]) -> Any:
        kinds = {float: (int, float), str: (str, messages.Message)}.get(hint, (hint,))
        right = type(value) in kinds and all(
            inside(value, metadata[name]) for name, inside in _BOUNDS if name in metadata
        )
        if right and type(value) is int:
            right = abs(value) < _MOST_INTEGER
        if right and hint is str:
            is_like = re.fullmatch(metadata.get("pattern", ".*"), value, re.DOTALL)
            right = is_like is not None and len(value) >= metadata.get("min_length", 0)
            if value not in metadata.get("one_of", (value,)):
                return self._refuse(path, f"{_is(value)}; this runtime supports {list(metadata['one_of'])}")
        if right and hint is float:
            value = float(value)
            right = math.isfinite(value)
        if not right:
            return self._refuse(path, _is(value))
        return self._known.get(value, value) if hint is str else value

    def _refuse(self, path: KeyPath, what: str, fix: str = "") -> Any:
        self._found.append(Problem(path, what, fix))
        return _INVALID


def _is(value: Any) -> str:
    return f"is {_QUOTE.repr(value)}"


def _has_factory(one: Any) -> bool:
    return one.default_factory is not dataclasses.MISSING


def _takes_none(hint: Any) -> bool:
    return hint is Any or type(None) in typing.get_args(hint)


def _not_none(hint: Any) -> Any:
    """The type of an Optional."""
    kinds = [one for one in typing.get_args(hint) if one is not type(None)]
    return kinds[0] if hint is not Any and _takes_none(hint) else hint
