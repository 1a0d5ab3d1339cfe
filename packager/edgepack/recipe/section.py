"""Base class of recipe sections, and types that they share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Base of all recipe sections: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")
