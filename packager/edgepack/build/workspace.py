"""Cache of stage results, in folders named by their key (`Stage.key`).

A result is written to a temporary folder, sealed (a list of its files with size and sha256), fsynced and renamed into
place. Every load checks it against its seal. What it was made of and how long it took lie beside the seal, and outside
it: two results with the same files count as equal, whenever and however fast they were made.

    .edgepack/<stage>/<digest>/                      a sealed result
    .edgepack/<stage>/<digest>.partial/out-*/        an unfinished result; the next build starts it again
    .edgepack/<stage>/<digest>.partial/checkpoint/   the checkpoint of a training; survives kills and failures
    .edgepack/<stage>/<digest>.lock                  held while the result is made; a second build waits and reuses it
    .edgepack/lock                                   shared by builds, and held alone by the removal of results
    .edgepack/sweep/                                 logs of sweeps

Builds on several machines may share it on a network file system that has locks (NFS 4).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from pydantic import TypeAdapter

from edgepack import artifacts
from edgepack.artifacts import Artifact
from edgepack.build.options import STAGES
from edgepack.errors import EdgepackError, EnvironmentUnfitError, StageFailedError
from edgepack.stages.stage import Key, MadeOf, StageResult
from edgepack.util import locks
from edgepack.util.folders import make_own
from edgepack.util.hashing import files_below, sha256_file
from edgepack_runtime.util.fs import fsync_folder, remove_tree

SEAL_FILE = "seal.json"
RECORD_FILE = "record.json"  # a `Record`
_UNSEALED = (SEAL_FILE, RECORD_FILE)
LOGS = "sweep"  # a folder of logs for each sweep
_OUT, _CHECKPOINT, _PARTIAL = "out", "checkpoint", ".partial"
_OURS = re.compile(r"[0-9a-f]{64}(\.partial)?\Z")
_REMOVED = re.compile(r"\.[0-9a-f]{64}(\.partial)?\.removed\Z")  # renamed by a `discard` that was killed
_POLL_SECONDS = 0.5
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
A = TypeVar("A", bound=Artifact)


@dataclass(frozen=True)
class Record:
    """What a result was made of, and the seconds that the stage ran. It explains results, and decides nothing."""

    made_of: MadeOf
    seconds: float


_RECORD: Final = TypeAdapter(Record)


@dataclass(frozen=True)
class Earlier:
    """The record of a result that an earlier build made, and the folder of that result."""

    record: Record
    folder: Path


@dataclass(frozen=True)
class Leftover:
    """A folder of the workspace that may be removed."""

    path: Path
    kind: Literal["result", "not sealed", "unfinished", "checkpoint", "logs"]
    size_bytes: int


class Workspace:
    """The folder that holds all stage results of a project, `.edgepack/` by default."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: Key) -> Path:
        """The folder of the result of `key`, which need not exist."""
        return self.root / key.stage / key.digest

    def load(self, kind: type[A], key: Key) -> StageResult[A] | None:
        """The sealed result of `key`; None if there is none, it differs from its seal, or it is not a `kind`."""
        folder = self.folder(key)
        seal = _read_seal(folder)
        return None if seal is None or seal != _seal(folder) else _opened(kind, folder, seal)

    def peek(self, kind: type[A], earlier: Earlier) -> StageResult[A] | None:
        """An earlier result as `load` gives it, but not compared with its seal: for estimates and explanations only."""
        seal = _read_seal(earlier.folder)
        return None if seal is None else _opened(kind, earlier.folder, seal)

    def earlier(self, stage: str) -> list[Earlier]:
        """The results of `stage` that have a record, the newest first, sealed or not."""
        found = []
        for folder in (self.root / stage).glob("*"):
            file = folder / RECORD_FILE
            if _OURS.match(folder.name) and not folder.name.endswith(_PARTIAL):
                with suppress(OSError, ValueError):
                    record = _RECORD.validate_json(file.read_bytes())
                    found.append((file.stat().st_mtime_ns, Earlier(record, folder)))
        return [one for _, one in sorted(found, key=lambda pair: pair[0], reverse=True)]

    def is_damaged(self, key: Key) -> bool:
        """Whether a result that `load` refused was sealed once, or was not written by a build."""
        folder = self.folder(key)
        return (folder / SEAL_FILE).is_file() or (folder.exists() and not folder.is_dir())

    @contextmanager
    def in_use(self, *, alone: bool = False) -> Iterator[None]:
        """Hold the workspace: shared by builds, or `alone` to remove results. Ends with the block or the process.

        Raises:
            EnvironmentUnfitError: another process holds it alone, or holds it at all; it cannot be written, or another
                user may have planted it.
        """
        try:
            make_own(self.root)
        except OSError as error:
            raise _unwritable(self.root, error) from error
        with suppress(OSError), (self.root / ".gitignore").open("x") as file:
            file.write("*\n")  # results are not for a repository: anyone who clones it would reuse them as trusted
        try:
            held = locks.take(self.root / "lock", shared=not alone)
        except OSError as error:
            raise _unwritable(self.root, error) from error
        if isinstance(held, str):
            raise EnvironmentUnfitError(
                f"the workspace {self.root} is in use",
                why=f"{'a build is running in it' if alone else 'its results are being removed'}: {held}",
                fix="wait until it ends, then try again",
            )
        try:
            yield
        finally:
            held.release()

    def checkpoint(self, key: Key) -> Path:
        """The folder for checkpoints of the stage that makes the result of `key`, which need not exist."""
        return self._partial(key) / _CHECKPOINT

    @contextmanager
    def locked(self, key: Key, report: Callable[[str], None]) -> Iterator[None]:
        """Lock the result of `key` against other builds, until the end of the block or of the process.

        Args:
            report: called once with a message if another build holds the lock.

        Raises:
            EnvironmentUnfitError: the workspace cannot be written.
            StageFailedError: the disk is full.
        """
        held = self._take(key)
        if isinstance(held, str):
            report(f"waiting for another build ({held}) that makes the same result")
        while isinstance(held, str):
            time.sleep(_POLL_SECONDS)
            held = self._take(key)
        try:
            yield
        finally:
            held.release()

    def _take(self, key: Key) -> locks.Lock | str:
        file = self.folder(key).with_name(f"{key.digest}.lock")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            return locks.take(file)
        except OSError as error:
            raise _unwritable(self.root, error) from error

    def build(self, key: Key, run: Callable[[Path], A]) -> StageResult[A]:
        """Run a stage in a new folder and move its result into place. Call it inside `locked`.

        Raises:
            StageFailedError: the disk is full.
            EnvironmentUnfitError: the workspace cannot be written.
        """
        folder, partial = self.folder(key), self._partial(key)
        # A machine that was cut off for a while may still write: never into the folder of its successor.
        out = partial / f"{_OUT}-{socket.gethostname()}-{os.getpid()}"
        try:
            for left in partial.glob(f"{_OUT}-*"):  # by a build that was killed
                remove_tree(left)
            out.mkdir(parents=True)
            started = time.monotonic()
            artifact = self._run(key, run, out)
            record = Record(key.made_of, round(time.monotonic() - started, 2))
            artifacts.save(artifact)
            seal = _seal(out)
            (out / RECORD_FILE).write_bytes(_RECORD.dump_json(record))
            (out / SEAL_FILE).write_text(json.dumps(seal, sort_keys=True, indent=0), encoding="utf-8")
            _sync(out)
            remove_tree(folder)  # a damaged result, or one to replace
            out.rename(folder)
            fsync_folder(folder.parent)
            remove_tree(partial)  # with the checkpoint
        except OSError as error:
            raise _unwritable(self.root, error) from error
        finally:
            self._tidy(partial, out)
        return StageResult(key.stage, artifacts.moved(artifact, folder), _digest(seal), _contents(seal))

    def _run(self, key: Key, run: Callable[[Path], A], out: Path) -> A:
        """Run a stage. A full disk and errors about files in the workspace are left to the caller."""
        try:
            return run(out)
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno in _FULL:
                raise
            if error.filename is None:  # a process, a socket, memory
                fix = "check the limits and the load of this machine; -v prints the traceback"
                raise StageFailedError(
                    f"{key.stage}: the operating system refused something", why=why, fix=fix
                ) from error
            place = Path(os.path.abspath(str(error.filename)))  # noqa: PTH100 - resolve() would follow links
            if place.is_relative_to(self.root.absolute()) and error.errno != errno.ENOENT:
                raise
            what = f"{key.stage}: {error.filename} cannot be used"
            raise StageFailedError(what, why=why, fix="check that path") from error

    def _partial(self, key: Key) -> Path:
        return self.folder(key).with_name(f"{key.digest}{_PARTIAL}")

    def _tidy(self, partial: Path, out: Path) -> None:
        """Remove an unfinished result; keep its checkpoint."""
        with suppress(OSError):  # the next build removes the rest
            remove_tree(out)
        for folder in (partial / _CHECKPOINT, partial):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def leftovers(self, *, everything: bool = False, kept: Collection[Path] | None = None) -> Iterator[Leftover]:
        """Folders that may be removed: unusable ones; with `kept`, all other results; or everything.

        Call it inside `in_use(alone=True)`, so that nobody is making one of them.
        """
        # Only names that a build gives, and no links: other files in these folders are not ours.
        logs = self.root / LOGS
        if everything and logs.is_dir() and not logs.is_symlink():
            yield Leftover(logs, "logs", _size(logs))
        folders = [folder for stage in STAGES if not (folder := self.root / stage).is_symlink()]
        for path in (path for folder in folders for path in sorted(folder.glob("*")) if not path.is_symlink()):
            if _REMOVED.match(path.name) and path.is_dir():
                yield Leftover(path, "unfinished", _size(path))
                continue
            if not _OURS.match(path.name) or not path.is_dir():
                continue
            if path.name.endswith(_PARTIAL):
                checkpoint = (path / _CHECKPOINT).is_dir()
                if everything or kept is not None or not checkpoint:
                    yield Leftover(path, "checkpoint" if checkpoint else "unfinished", _size(path))
            elif not (path / SEAL_FILE).is_file():
                yield Leftover(path, "not sealed", _size(path))
            elif everything or (kept is not None and path not in kept):
                yield Leftover(path, "result", _size(path))

    def discard(self, leftover: Leftover) -> None:
        """Remove one of the `leftovers`. Call it inside `in_use(alone=True)`.

        Raises:
            EnvironmentUnfitError: it cannot be removed.
        """
        try:
            removed = leftover.path
            if not _REMOVED.match(removed.name):
                # Renamed first, in one step: a build must never load half a result.
                removed = removed.with_name(f".{removed.name}.removed")
                remove_tree(removed)
                leftover.path.rename(removed)
            remove_tree(removed)
            digest = leftover.path.name.strip(".").partition(".")[0]
            leftover.path.with_name(f"{digest}.lock").unlink(missing_ok=True)  # `in_use` excludes its users
        except OSError as error:
            raise _unwritable(self.root, error) from error

    def unseal(self, folder: Path) -> None:
        """Remove the seal of a result: its files stay, and the next build runs the stage again."""
        (folder / SEAL_FILE).unlink(missing_ok=True)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in files_below(folder))


def _seal(folder: Path) -> dict[str, list[Any]]:
    return {
        file.relative_to(folder).as_posix(): [file.stat().st_size, sha256_file(file)]
        for file in files_below(folder)
        if file.name not in _UNSEALED or file.parent != folder
    }


def _read_seal(folder: Path) -> dict[str, list[Any]] | None:
    try:
        seal: dict[str, list[Any]] = json.loads((folder / SEAL_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return seal


def _opened(kind: type[A], folder: Path, seal: dict[str, list[Any]]) -> StageResult[A] | None:
    """The result in `folder` if it is a `kind`."""
    try:
        return StageResult(folder.parent.name, artifacts.load(kind, folder), _digest(seal), _contents(seal))
    except StageFailedError:
        return None


def _contents(seal: dict[str, list[Any]]) -> dict[str, str]:
    return {name: sha256 for name, (_, sha256) in seal.items()}


def _digest(seal: dict[str, list[Any]]) -> str:
    return hashlib.sha256(json.dumps(seal, sort_keys=True).encode()).hexdigest()


def _sync(folder: Path) -> None:
    for file in files_below(folder):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        fsync_folder(path)


def _unwritable(root: Path, error: OSError) -> EdgepackError:
    what, why = f"the workspace {root} cannot be written", error.strerror or str(error)
    if error.errno in _FULL:  # `filename` may be the source of a copy, so it is not printed
        fix = "free space there or choose --workspace; finished stages are kept"
        return StageFailedError(what, why=why, fix=fix)
    where = f": {error.filename}" if error.filename else ""
    return EnvironmentUnfitError(what, why=f"{why}{where}", fix="check its permissions, or choose --workspace")
