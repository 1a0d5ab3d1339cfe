"""Input and output of a model, as the engines take and give them."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple


class InputBatch(NamedTuple):
    """Input of the model: token ids and types of `rows` texts, each padded to `length`, in row-major order."""

    ids: List[int]
    types: List[int]
    rows: int
    length: int

    @property
    def by_name(self) -> Dict[str, List[int]]:
        """The values by the name of the model's input."""
        return {"input_ids": self.ids, "token_type_ids": self.types}


def shape_of(nested: List[Any]) -> Tuple[int, ...]:
    """The shape of nested lists."""
    shape = []
    inner: Any = nested
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
    return tuple(shape)
