"""How counts are written for people, on devices and where bundles are built. Standard library only."""

from __future__ import annotations

from typing import Optional


def counted(number: float, noun: str, plural: Optional[str] = None) -> str:
    """`1 row`, `2 rows`, `0.5 minutes`; `2 classes` with `plural`, of nouns that take more than an s."""
    shown = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{shown} {noun}" if shown == "1" else f"{shown} {plural or noun + 's'}"
