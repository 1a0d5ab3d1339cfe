"""Values of the manifest's gates, checked one by one; what is wrong is collected, so that all of it can be reported."""

from __future__ import annotations

import math
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

KeyPath = Tuple[Union[str, int], ...]


class Problem(NamedTuple):
    """What is wrong with the gates, at which key, and what to do about it in a recipe."""

    path: KeyPath
    reason: str
    fix: str


class Section:
    """One section of the gates. A value that is wrong reads as None, and its problem is added to `problems`."""

    def __init__(self, values: Any, path: KeyPath, known: Sequence[str], problems: List[Problem]) -> None:
        self.path, self.problems = path, problems
        self._values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        self._readable = True
        if values is not None and not isinstance(values, Mapping):
            self.refuse(None, "is not an object")
            self._readable = False  # nothing more is said of it
        for key in self._values:
            if key not in known:
                self.refuse(key, "is not a key that this version knows")

    def get(self, key: str) -> Any:
        """The value of `key`, unchecked; None where there is none."""
        return self._values.get(key)

    def below(self, key: str, known: Sequence[str]) -> Optional[Section]:
        """The section `key`; None where there is none."""
        value = self.get(key)
        return None if value is None else Section(value, (*self.path, key), known, self.problems)

    def number(
        self, key: str, *, below: float = math.inf, least: float = 0.0, most: float = math.inf
    ) -> Optional[float]:
        """A number above 0, below `below`, and from `least` to `most`; None where there is none."""
        value = self.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not (0 < value < below and least <= value <= most):
            self.refuse(key, f"is {value!r}")
            return None
        return float(value)

    def required(self, key: str, *, least: float = 0.0, most: float = math.inf) -> float:
        """As `number`, where one has to be there."""
        value = self.number(key, least=least, most=most)
        if self.get(key) is None:
            self.refuse(key, "is missing")
        return math.inf if value is None else value

    def require_one_of(self, keys: Sequence[str]) -> None:
        """That one of `keys` sets a limit."""
        if all(self.get(key) is None for key in keys):
            names = ", ".join(f"`{key}`" for key in keys)
            self.refuse(None, "sets no limit, so nothing would be gated", f"set one of {names}, or remove it")

    def refuse(self, key: Optional[str], what: str, fix: str = "") -> None:
        """Add a problem of `key`, or of the section itself: `what` follows its name."""
        if not self._readable:
            return
        path = self.path if key is None else (*self.path, key)
        self.problems.append(Problem(path, f"`gates.{_dotted(path)}` {what}", fix))


def _dotted(path: KeyPath) -> str:
    """`latency.by_length[0].p50_ms`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
