"""Whether the wheels of a bundle are enough to run its model, whoever wrote the locks: numpy, tokenizers, ONNX Runtime.

A lock names what travels, and nothing that this depends on is added; so a package that is not in it is missed on the
device first, or, where the builder has it, by the gate of a bundle that took hours.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from edgepack.errors import EnvironmentUnfitError
from edgepack.targets.profiles import Profile

ALWAYS: Final = ("numpy", "tokenizers")  # beside ONNX Runtime
SERVING: Final = ("anyio", "click", "h11", "prometheus-client", "starlette", "uvicorn")
_ONNXRUNTIMES: Final = frozenset({"onnxruntime", "onnxruntime-gpu"})


def require(
    carried: Collection[str], profile: Profile, *, serve: bool = False, without_onnxruntime: bool = False
) -> None:
    """Whether the packages `carried` are what a bundle for the profile needs.

    Args:
        carried: canonical names, of locked wheels and of those that are given by path.
        serve: with what the verb `serve` imports.
        without_onnxruntime: its wheel is one that will be given by path, later.

    Raises:
        EnvironmentUnfitError: one is missing, or there is a second ONNX Runtime among them.
    """
    own = profile.package
    _require_all({*ALWAYS, *(() if without_onnxruntime else (own,))} - {*carried}, profile, profile.lock)
    if serve:
        _require_all({*SERVING} - {*carried}, profile, profile.serve_lock)
    if others := sorted({*carried} & _ONNXRUNTIMES - {own}):
        raise EnvironmentUnfitError(
            f"a bundle for {profile.name} would carry {', '.join(others)}, which it does not run on",
            why=f"the lock {_place(profile, profile.lock)} names that besides {own}",
            fix="take it out there",
        )


def _require_all(lacking: Collection[str], profile: Profile, lock: str) -> None:
    if lacking:
        names = ", ".join(sorted(lacking))
        raise EnvironmentUnfitError(
            f"a bundle for {profile.name} would lack {names}",
            why=f"the lock {_place(profile, lock)} names none for CPython {profile.python}, and nothing else travels",
            fix=f"edgepack targets lock {profile.name}, which makes it anew of the file .in beside it",
        )


def _place(profile: Profile, lock: str) -> str:
    """Where the lock is read from, or its name where it is one of this package."""
    own = profile.locks / lock if profile.locks is not None else None
    return str(own) if own is not None and own.is_file() else lock
