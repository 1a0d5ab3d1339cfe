"""How counts are written for people, on devices and where bundles are built. Standard library only."""

from __future__ import annotations


def counted(number: float, noun: str) -> str:
    """`1 row`, `2 rows`, `0.5 minutes`."""
    shown = f"{number:g}" if isinstance(number, float) else str(number)
    return f"{shown} {noun}" if shown == "1" else f"{shown} {noun}s"
