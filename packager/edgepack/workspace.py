"""Content-addressed stage results: each in a folder named by what it was made from.

The key is the sha256 of (stage name, stage version, its resolved section, the digests of its inputs, the versions of
the libraries it ran on). A result is written to a temporary folder, sealed (every file with size and sha256), fsynced
and renamed into place; it is checked against its seal on every load. Failures leave nothing behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from edgepack import artifacts
from edgepack.artifacts import Artifact
from edgepack.digest import files_below, sha256_file
from edgepack.errors import StageFailedError

SEAL_FILE = "seal.json"
A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True)
class Key:
    """Identity of one stage result: the full digest of everything that decides it."""

    stage: str
    digest: str


@dataclass(frozen=True)
class Result(Generic[A]):
    """An artifact in the workspace; `digest` names its content and feeds the keys of later stages."""

    artifact: A
    digest: str
    cached: bool


def make_key(stage: str, version: int, section: Any, inputs: Sequence[str], versions: Mapping[str, str]) -> Key:
    """Key of a stage result. `section` is JSON-able; `inputs` are digests of earlier results or of files."""
    document = {
        "stage": stage,
        "version": version,
        "section": section,
        "inputs": list(inputs),
        "versions": dict(versions),
    }
    text = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return Key(stage, hashlib.sha256(text.encode()).hexdigest())


class Workspace:
    """The folder that holds all stage results of a project, `.edgepack/` by default."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: Key) -> Path:
        """Where the result of `key` lies, or would lie."""
        return self.root / key.stage / key.digest

    def load(self, kind: type[A], key: Key) -> Result[A] | None:
        """The sealed result of `key`, or None when there is none or its files no longer match the seal."""
        folder = self.folder(key)
        try:
            seal = json.loads((folder / SEAL_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if seal != _seal(folder):
            return None
        return Result(artifacts.load(kind, folder), _digest(seal), cached=True)

    def build(self, key: Key, run: Callable[[Path], A]) -> Result[A]:
        """Run a stage into a temporary folder and move its result into place.

        Raises:
            StageFailedError: when the disk is full or the workspace cannot be written.
        """
        folder = self.folder(key)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=".tmp-", dir=folder.parent))
        except OSError as error:
            raise _unwritable(self.root, error) from error
        try:
            artifact = run(temporary)
            artifacts.save(artifact)
            seal = _seal(temporary)
            (temporary / SEAL_FILE).write_text(json.dumps(seal, sort_keys=True, indent=0), encoding="utf-8")
            _sync(temporary)
            if folder.exists():  # a damaged result of the same key
                shutil.rmtree(folder)
            temporary.rename(folder)
            _sync_folder(folder.parent)
        except OSError as error:
            raise _unwritable(self.root, error) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return Result(artifacts.moved(artifact, folder), _digest(seal), cached=False)

    def forget(self, folder: Path) -> None:
        """Unseal a result: its files stay to be looked at, but the next build makes it anew."""
        (folder / SEAL_FILE).unlink(missing_ok=True)


def _seal(folder: Path) -> dict[str, list[Any]]:
    return {
        file.relative_to(folder).as_posix(): [file.stat().st_size, sha256_file(file)]
        for file in files_below(folder)
        if file.name != SEAL_FILE or file.parent != folder
    }


def _digest(seal: dict[str, list[Any]]) -> str:
    return hashlib.sha256(json.dumps(seal, sort_keys=True).encode()).hexdigest()


def _sync(folder: Path) -> None:
    for file in files_below(folder):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        _sync_folder(path)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(root: Path, error: OSError) -> StageFailedError:
    return StageFailedError(
        f"the workspace {root} cannot be written",
        why=f"{error.strerror}: {error.filename}",
        fix="free space or choose --workspace",
    )
