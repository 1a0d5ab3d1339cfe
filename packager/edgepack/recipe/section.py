"""Base classes of recipe sections, and types that they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticUndefined

from edgepack_runtime.schema.fields import hints

PositiveInt = Annotated[int, Field(ge=1)]
_OF_FIELDS: Final = ("description", "gt", "ge", "lt", "le", "min_length")  # metadata that pydantic knows


class Section(BaseModel):
    """Base of all recipe sections: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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
