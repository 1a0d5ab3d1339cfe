"""Reading the facts that lie beside this package as data: profiles, slimming rules, locks, licence texts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from edgepack.util import toml

_FOLDER = Path(__file__).parent
_KINDS = (".toml", ".txt")


def text(*path: str) -> str:
    """A text file of this package, e.g. `text("locks", "local.txt")`."""
    return _FOLDER.joinpath(*path).read_text(encoding="utf-8")


def folder(name: str) -> Path:
    """A folder of this package, e.g. `folder("locks")`."""
    return _FOLDER / name


def document(name: str) -> dict[str, Any]:
    """A TOML file of this package."""
    found: dict[str, Any] = toml.loads(text(name))
    return found


def tables(name: str) -> dict[str, dict[str, Any]]:
    """The tables of a TOML file of this package, by name."""
    document: dict[str, dict[str, Any]] = toml.loads(text(name))
    return document


def digest() -> str:
    """sha256 over all of these files: a bundle that was built with other facts is another bundle."""
    whole = hashlib.sha256()
    for file in sorted(path for path in _FOLDER.rglob("*") if path.suffix in _KINDS):
        whole.update(f"{file.relative_to(_FOLDER).as_posix()}\n".encode())
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()
