"""A file of answers that an interrupted run leaves so that the same command goes on with it (standard library only).

Beside the file G that is to be:

    G.partial                what was answered; becomes G by one rename when all is
    G.errors.jsonl.partial   the rows that had no answer; becomes G.errors.jsonl, if there are any
    G.partial.json           the journal: for whom, how far the input was read, and how many bytes of both are good

Answers are kept in memory until a block of them is appended and flushed to the disk; then the journal is replaced in
one rename. So what the journal counts is on the disk, and what lies behind it is cut off by whoever goes on: no row is
lost, and none stands there twice, wherever a run ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Any, List, Mapping, Optional, Type

from edgepack_runtime.durable import FILE_MODE, fsync_folder, os_errors, write_atomic
from edgepack_runtime.errors import EdgepackError, EnvironmentUnfitError, UsageError
from edgepack_runtime.journal import Done, Journal
from edgepack_runtime.rows import Position

_BLOCK_CHARACTERS, _BLOCK_S = 2**20, 5.0  # a block ends at the first of these


class Output:
    """The files of one run, as a context. Left by an error or an interrupt, what was answered is kept.

    Args:
        path: G, or a link to it, which stays: what stands above lies beside the file that it leads to.
        source: the input, which must begin as it did when the run is taken up again; None where it cannot be read
            again, so that nothing is kept.
        identity: what else must be the same, by name.
        restart: throw away what an earlier run left.

    Raises:
        UsageError: an earlier run left something for another `identity` or input.
        EnvironmentUnfitError: a file cannot be written; or another process writes them.
    """

    def __init__(self, path: Path, source: Optional[Path], identity: Mapping[str, Any], *, restart: bool) -> None:
        self.path, self._source, self._restart = path, source, restart
        path = led_to(path)
        self._identity = dict(identity)
        self.errors_path = path.with_name(path.name + ".errors.jsonl")
        self._journal = path.with_name(path.name + ".partial.json")
        self._input = None if source is None else _Prefix(source)
        self._file = path
        self._good = _Part(path)
        self._bad = _Part(self.errors_path)
        self._since = time.monotonic()
        # What is in memory may hold half a row or be half written, or all was counted: it is not to be counted.
        self._broken = False
        self.complete = False  # nothing is left to do; at first, where an earlier run was killed in its last renames
        self.done = self.before = Done()

    def __enter__(self) -> Output:
        with os_errors(f"{self.path} cannot be written"):
            self._finish_renames()
            if self.complete:
                return self
            self._good.open()
            try:
                self._good.lock()
                self._bad.open()
                self._take_up()
            except BaseException:
                self._close()
                raise
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            if self.complete:
                return
            if self._source is None:
                _remove(self._good.partial)
                _remove(self._bad.partial)
            elif isinstance(error, (KeyboardInterrupt, SystemExit, EdgepackError)) and not self._broken:
                self.commit()
        finally:
            self._close()

    def head(self, line: str) -> None:
        """What stands before the first row; it is not added where it is there already."""
        if self._good.size == 0:
            self._good.add(line)

    def add(self, line: str, position: Position, error: Optional[Mapping[str, Any]] = None) -> None:
        """The line of the row that ends at `position`; with an `error`, the row was bad. Raises as `commit`."""
        self._broken = True  # an interrupt may come between any two lines here: half a row is not to be counted
        self._good.add(line)
        if error is not None:
            self._bad.add(json.dumps(error, ensure_ascii=False) + "\n")
        self.done = Done(self.done.rows + 1, self.done.bad + (error is not None), position)
        self._broken = False
        if self._good.waiting >= _BLOCK_CHARACTERS or time.monotonic() - self._since >= _BLOCK_S:
            self.commit()

    def commit(self) -> None:
        """Append what was added, flush it to the disk, and count it.

        Raises:
            EnvironmentUnfitError: it cannot be written.
        """
        self._commit(finished=False)

    def finish(self) -> None:
        """All rows were added: G is there, and nothing else of the run. Raises as `commit`."""
        self._commit(finished=True)
        with os_errors(f"{self.path} cannot be written"):
            self._rename(self.done.bad)
        self.complete = True

    def _commit(self, *, finished: bool) -> None:
        self._broken = True
        with os_errors(f"{self.path} cannot be written"):
            self._good.append()
            self._bad.append()
            if self._input is not None:
                read = self._input.sha256(self.done.position.offset)
                journal = Journal(self._identity, self.done, self._good.size, self._bad.size, read, finished)
                _replace_journal(self._journal, journal.dump())
        self._broken = finished  # then the journal has said its last word
        self._since = time.monotonic()

    def _rename(self, bad: int) -> None:
        # The rows without an answer come first: whoever sees G can rely on them.
        if bad:
            _rename(self._bad.partial, self.errors_path)
        else:
            _remove(self._bad.partial)
            _remove(self.errors_path)
        _rename(self._good.partial, self._file)
        fsync_folder(self._file.absolute().parent)
        _remove(self._journal)

    def _finish_renames(self) -> None:
        """Do what is left of a run that was finished but for its last renames, whichever it was."""
        journal = self._read_journal()
        if journal is None or not journal.finished or self._restart:
            return
        if not self._is_there(journal):
            _remove(self._journal)
            return
        self._rename(journal.done.bad)
        if self._source is not None:
            end = self._source.stat().st_size == journal.done.position.offset
            self.complete = end and not self._differences(journal)
            self._input = _Prefix(self._source)
        if self.complete:
            self.done = self.before = journal.done

    def _is_there(self, journal: Journal) -> bool:
        """Whether the files of a run that was finished are there, renamed or not: somebody may have removed them."""
        files = [(self._good.partial, self._file, journal.output_bytes)]
        if journal.done.bad:
            files.append((self._bad.partial, self.errors_path, journal.errors_bytes))
        # The name from which it is renamed comes first: another process may do so between the two looks.
        return all(_has(partial, size) or _has(path, size) for partial, path, size in files)

    def _take_up(self) -> None:
        """Go on where the journal says, or begin."""
        if self._restart:
            _remove(self._journal)
        journal = self._read_journal()
        if journal is not None:
            self._check(journal)
            self.done = self.before = journal.done
        self._good.cut(journal.output_bytes if journal else 0)
        self._bad.cut(journal.errors_bytes if journal else 0)

    def _check(self, journal: Journal) -> None:
        """See that `journal` is of this run, and the files are as it says.

        Raises:
            UsageError: that is not so.
        """
        other = self._differences(journal)
        if not other and not (self._good.holds(journal.output_bytes) and self._bad.holds(journal.errors_bytes)):
            other.append(f"{self._good.partial.name} is shorter than {self._journal.name} says")
        if other:
            raise UsageError(
                f"{self._good.partial} is of a run that was interrupted, and not of this one",
                why="; ".join(other),
                fix="run the command that was interrupted, or begin anew with --restart",
            )

    def _differences(self, journal: Journal) -> List[str]:
        """What is not the same as it was in the run of `journal`, in words."""
        other = sorted(
            f"{key} is {self._identity.get(key)!r} now, and was {journal.identity.get(key)!r}"
            for key in {*self._identity, *journal.identity}
            if self._identity.get(key) != journal.identity.get(key)
        )
        if self._input is None:
            other.append("it read a file, and this one reads a stream")
        elif not other and self._input.sha256(journal.done.position.offset) != journal.input_sha256:
            other.append(f"what it read of {self._source} is not what stands there now")
        return other

    def _read_journal(self) -> Optional[Journal]:
        try:
            return Journal.parse(self._journal.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            if self._restart:
                return None
            raise UsageError(
                f"{self._journal} is no journal of this version", why=str(error), fix="begin anew with --restart"
            ) from error

    def _close(self) -> None:
        self._good.close()
        self._bad.close()


def led_to(path: Path) -> Path:
    """The file that is meant by `path`: where that is a link, what it leads to, be it there or not."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _has(path: Path, size: int) -> bool:
    """Whether there is a file of so many bytes."""
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


class _Part:
    """A file that grows by whole blocks beside the one that it becomes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.partial = path.with_name(path.name + ".partial")
        self.size = self.waiting = 0  # bytes on the disk; characters in memory
        self._lines: List[str] = []
        self._file = -1

    def open(self) -> None:
        self._file = os.open(self.partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def lock(self) -> None:
        """Keep other processes off, until `close`.

        Raises:
            EnvironmentUnfitError: another has it.
        """
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had it may have renamed it just before it let go.
            mine = self.partial.exists() and os.path.samestat(os.fstat(self._file), self.partial.stat())
        except BlockingIOError:
            mine = False
        if not mine:
            raise EnvironmentUnfitError(
                f"another process writes {self._path}", why=f"it holds {self.partial}", fix="wait for it to end"
            )

    def holds(self, size: int) -> bool:
        return os.fstat(self._file).st_size >= size

    def cut(self, size: int) -> None:
        """Drop what lies behind `size` bytes."""
        os.ftruncate(self._file, size)
        self.size = size

    def add(self, line: str) -> None:
        self._lines.append(line)
        self.waiting += len(line)

    def append(self) -> None:
        """Write what was added, and flush it to the disk."""
        # Half a surrogate pair, which JSON may hold, is written as JSON escapes it.
        data = "".join(self._lines).encode("utf-8", "backslashreplace")
        if data:
            _write(self._file, data, self.size)
            _sync(self._file)
        self.size += len(data)
        self._lines, self.waiting = [], 0


class _Prefix:
    """The beginning of a file, and its digest as far as was asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._hashed = 0

    def sha256(self, size: int) -> str:
        """Of the first `size` bytes, or of all where there are fewer; never fewer than were asked for before."""
        with self._path.open("rb") as file:
            file.seek(self._hashed)
            while self._hashed < size:
                data = file.read(min(2**20, size - self._hashed))
                if not data:
                    break
                self._hash.update(data)
                self._hashed += len(data)
        return self._hash.hexdigest()


# The only ways in which the disk is changed, so that a test can stop a run at each.


def _write(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _sync(file: int) -> None:
    os.fsync(file)


def _replace_journal(path: Path, data: bytes) -> None:
    write_atomic(path, data)


def _rename(path: Path, target: Path) -> None:
    """`path` becomes `target`; where it is not there, it has done so before."""
    with contextlib.suppress(FileNotFoundError):
        path.replace(target)


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
