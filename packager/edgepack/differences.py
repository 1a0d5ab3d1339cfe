"""What differs between two nested documents, by dotted names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted name -> what it was and what it is, for all that is not equal; what is not there is None."""
    one, two = dict(_flat(before, "")), dict(_flat(after, ""))
    names = sorted({*one, *two})
    return {name: (one.get(name), two.get(name)) for name in names if one.get(name) != two.get(name)}


def _flat(value: Any, above: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield above, value
        return
    for key, below in value.items():
        yield from _flat(below, f"{above}.{key}" if above else str(key))
