"""Python interpreters of this machine, so that a bundle is gated with the Python that its device has."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from edgepack.targets.local import base_python

VARIABLE: Final = "EDGEPACK_PYTHONS"
_TIMEOUT_SECONDS: Final = 20
_PROBE: Final = (
    "import json, platform, struct, sys; print(json.dumps([platform.python_implementation(), "
    "platform.python_version(), platform.machine(), struct.calcsize('P') * 8, getattr(sys, 'abiflags', ''), "
    "getattr(sys, '_base_executable', None) or sys.executable]))"
)


@dataclass(frozen=True)
class Interpreter:
    """One that runs here: `version` is the whole one, as "3.8.18"; `path` is the binary, whatever started it.

    A name on the PATH may be a script that looks for the interpreter in the environment, which a device's is not.
    """

    path: Path
    version: str

    @property
    def python(self) -> str:
        """Its version as profiles tell it, "3.8"."""
        return ".".join(self.version.split(".")[:2])


def find(python: str, named: Sequence[Path] = ()) -> Interpreter | None:
    """A CPython of version `python` ("3.8") for this machine's own ABI; None where there is none.

    The first of these: those that are `named`, those of `$EDGEPACK_PYTHONS`, the one that runs this process,
    `python3.8` on the PATH.
    """
    for path in _candidates(python, named):
        found = looked_at(path)
        if found is not None and found.python == python:
            return found
    return None


@cache
def looked_at(path: Path) -> Interpreter | None:
    """What `path` says of itself; None where it is no release of CPython with this machine's ABI, or does not run."""
    if path == Path(base_python()):
        return Interpreter(path, platform.python_version())
    try:
        told = subprocess.run(
            [str(path), "-I", "-S", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        implementation, version, machine, bits, flags, binary = json.loads(told.stdout)
        found = Interpreter(Path(binary), version)
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError):
        return None  # not an interpreter, or none that runs here
    here = (implementation, machine, bits, flags) == ("CPython", platform.machine(), 64, "")
    return found if here else None


def _candidates(python: str, named: Sequence[Path]) -> Iterator[Path]:
    yield from named
    yield from (Path(entry) for entry in os.environ.get(VARIABLE, "").split(os.pathsep) if entry)
    yield Path(base_python())
    if found := shutil.which(f"python{python}"):
        yield Path(found)
