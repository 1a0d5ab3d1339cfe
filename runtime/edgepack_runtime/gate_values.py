"""Values in the manifest's gates, checked one by one (standard library only)."""

from __future__ import annotations

import math
from typing import Any, Mapping, Optional, Sequence

from edgepack_runtime.errors import BundleInvalidError


def number(section: Mapping[str, Any], name: str, key: str, below: float = math.inf) -> Optional[float]:
    """`section[key]`, a number above 0 and below `below`, or None where there is none.

    Raises:
        BundleInvalidError: it is something else; `name` is what the section is called.
    """
    value = section.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value < below:
        raise invalid(f"{name}.{key} is {value!r}")
    return float(value)


def required(section: Mapping[str, Any], name: str, key: str) -> float:
    """As `number`, of what has to be there."""
    value = number(section, name, key)
    if value is None:
        raise invalid(f"{name} has no {key}")
    return value


def check_keys(section: Any, name: str, known: Sequence[str]) -> None:
    """That a section is one, with no other keys than the `known` ones. Raises as `number`."""
    if not isinstance(section, Mapping):
        raise invalid(f"{name} is not an object")
    for key in section:
        if key not in known:
            raise invalid(f"{name} has a limit named {key!r}")


def invalid(why: str) -> BundleInvalidError:
    """The error for gates that ask for something else than this runtime can measure."""
    return BundleInvalidError(
        "the manifest's gates are not ones this runtime can measure", why=why, fix="build the bundle again"
    )
