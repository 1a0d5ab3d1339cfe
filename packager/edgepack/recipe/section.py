"""Base class of recipe sections, types that they share, and sections of which some values are wrong."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticUndefined, core_schema

from edgepack_runtime.schema.fields import hints

S = TypeVar("S", bound="Section")
_OF_FIELDS: Final = ("description", "gt", "ge", "lt", "le", "min_length")  # metadata that pydantic knows


class AbsentError(Exception):
    """A check reads a value that is missing or wrong. The value has a finding of its own, so the check says nothing."""


class Section(BaseModel):
    """Base of all recipe sections: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def changed(self: S, **values: Any) -> S:
        """A copy with other values that keeps the record of the keys which the recipe sets."""
        copy = self.model_copy(update=values)
        copy.model_fields_set.intersection_update(self.model_fields_set)
        return copy

    def __hash__(self) -> int:
        """By value, as sections are compared: a build keeps stages in sets, and a dict in a field has no hash."""
        return hash(self.model_dump_json())

    def value_at(self, path: str) -> Any:
        """The value at a dotted path; None if a section on it is null."""
        name, _, below = path.partition(".")
        found = getattr(self, name)
        return found.value_at(below) if below and found is not None else found

    def with_default(self: S, path: str) -> S:
        """A copy with the default at a dotted path."""
        name, _, below = path.partition(".")
        field = type(self).model_fields[name]
        return self.changed(**{name: getattr(self, name).with_default(below) if below else field.get_default()})

    def differs(self, path: str) -> bool:
        """Whether the value at a dotted path is neither null nor its default."""
        value = self.value_at(path)
        return value is not None and value != self.with_default(path).value_at(path)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                raise AbsentError(name)
            return super().__getattr__(name)


def or_none(section: Section, name: str) -> Any:
    """A value of a section; None if it is missing or wrong."""
    return section.__dict__.get(name)


def fields(section: type[BaseModel]) -> dict[str, tuple[str, FieldInfo]]:
    """The keys of a section: the name of the attribute, and the field."""
    return {field.alias or name: (name, field) for name, field in section.model_fields.items()}


def beside(value: str, info: ValidationInfo) -> str:
    """An absolute path: relative ones start at the recipe's folder, `folder` of the context. Links keep their names."""
    folder = (info.context or {}).get("folder")
    return value if folder is None or not value else str(folder / value)


class _Meant:
    """For a union of types of different forms: the form of a value decides of which type its errors are."""

    def __get_pydantic_core_schema__(self, union: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        kinds = _alternatives(union)
        # Locations of errors hold these names, which are neither keys nor numbers of items.
        names = [f"type {number}" for number in range(len(kinds))]
        choices = dict(zip(names, map(handler.generate_schema, kinds), strict=True))
        return core_schema.tagged_union_schema(choices, lambda value: names[_meant(kinds, value)])


MEANT: Final = _Meant()
PositiveInt = Annotated[int, Field(ge=1)]
FilePath = Annotated[str, AfterValidator(beside)]


def right_part(section: type[S], written: Mapping[str, Any], context: Mapping[str, Any]) -> S:
    """A section of the values that are right, for checks of a recipe that has errors.

    Reading a wrong value, or one that is missing and has no default, raises AbsentError. Wrong items of lists are None.
    """
    values: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for key, (name, field) in fields(section).items():
        if key in written:
            annotation = (field.annotation, key, *field.metadata)
            with suppress(AbsentError):
                values[name] = _right(_annotated[annotation], written[key], context)
        elif not field.is_required():
            defaults[name] = field.get_default()
    made = section.model_construct(_fields_set=set(values), **values, **defaults)
    for name in made.__dict__.keys() - values.keys() - defaults.keys():
        del made.__dict__[name]  # `model_construct` fills in the defaults of wrong values
    return made  # type: ignore[return-value]  # the plug-in of pydantic gives the base class


_annotated: Any = Annotated  # mypy takes no expressions in it
_adapter = cache(TypeAdapter)


def _right(annotation: Any, written: Any, context: Mapping[str, Any]) -> Any:
    """`written` as the annotated type; without what is wrong in it, if it is a section, a list or a mapping."""
    try:
        return _adapter(annotation).validate_json(json.dumps(written), strict=True, context=dict(context))
    except ValidationError:
        pass
    kinds = _alternatives(annotation)
    kind = _plain(kinds[_meant(kinds, written)])
    if isinstance(written, dict) and isinstance(kind, type) and issubclass(kind, Section):
        return right_part(kind, written, context)
    if isinstance(written, list) and written and get_origin(kind) is tuple:
        return tuple(_right_or_none(get_args(kind)[0], item, context) for item in written)
    if isinstance(written, dict) and written and get_origin(kind) is dict:
        found = {key: _right_or_none(get_args(kind)[1], value, context) for key, value in written.items()}
        return {key: value for key, value in found.items() if value is not None}
    raise AbsentError


def _right_or_none(annotation: Any, written: Any, context: Mapping[str, Any]) -> Any:
    try:
        return _right(annotation, written, context)
    except AbsentError:
        return None


def _plain(annotation: Any) -> Any:
    """A type without its annotations."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _alternatives(annotation: Any) -> list[Any]:
    """The types of a union, or the type itself."""
    kind = _plain(annotation)
    if get_origin(kind) in (Union, UnionType):
        return [other for part in get_args(kind) for other in _alternatives(part)]
    return [annotation]


def _meant(kinds: Sequence[Any], value: Any) -> int:
    """Which of the types of a union has the form of `value`: section, mapping, list or scalar."""

    def fit(number: int) -> int:
        kind = _plain(kinds[number])
        if isinstance(kind, type) and issubclass(kind, Section):
            own = len(fields(kind).keys() & value.keys()) if isinstance(value, dict) else -2
            return 2 + own + 2 * isinstance(value, kind)
        if get_origin(kind) in (tuple, dict):
            return 2 * isinstance(value, list | tuple if get_origin(kind) is tuple else dict)
        return 3 * (value is None) if kind is NoneType else 1

    return max(range(len(kinds)), key=fit)


class DeclaredSection(Section):
    """A section with the keys of a dataclass of the runtime, which is its second base.

    Types, defaults, ranges and descriptions are those of the dataclass. What a section names itself is the class of a
    section below it.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        declared = cls.__bases__[-1]
        if not dataclasses.is_dataclass(declared):
            return
        own = dict(cls.__annotations__)
        cls.__doc__ = declared.__doc__
        cls.__annotations__ = {}
        for field in dataclasses.fields(declared):  # pydantic keeps their order
            cls.__annotations__[field.name] = own.get(field.name) or _type(hints(declared)[field.name], field.metadata)
            default = getattr(cls, field.name, PydanticUndefined)
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            known = {key: value for key, value in field.metadata.items() if key in _OF_FIELDS}
            setattr(cls, field.name, Field(default, **known))


def _type(hint: Any, metadata: Mapping[str, Any]) -> Any:
    return dict[str, Annotated[float, Field(**metadata["values"])]] if "values" in metadata else hint
