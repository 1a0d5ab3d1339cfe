"""The output file of `predict`: written to a temporary file, renamed at the end, resumed by counting its rows.

While a run goes on, three files lie beside the output G:

    G.partial                the answers so far, in the order of the input; becomes G
    G.errors.jsonl.partial   the rows without an answer; becomes G.errors.jsonl if there are any
    G.rows.partial           a digest of each row that was answered, with the model and the options

Rows are appended in blocks, each flushed to the disk, answers last. At every moment G.partial is therefore the
beginning of the complete output, and errors and digests of its rows are on the disk. A resumed run cuts G.partial to
complete rows, and skips as many rows of the input, each with the same digest.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, List, Mapping, Optional, Tuple, Type

from edgepack_runtime.errors import EnvironmentUnfitError, UsageError
from edgepack_runtime.util.fs import FILE_MODE, fsync_folder, os_errors

_BLOCK_CHARACTERS, _BLOCK_S = 2**20, 5.0  # a block ends at the first of these
_DIGEST_BYTES = 17  # of a row, with the end of its line


class Output:
    """The files of one run, as a context. After an error or an interrupt, the answers so far are kept for `resume`.

    Args:
        path: G.
        suffix: the format of the rows, as in `outputs`.
        header: the first line of the output; may be empty.
        run: the model and the options that an answer depends on.
        resume: continue with the partial files of an interrupted run, if there are any.

    Raises:
        UsageError: there are partial files, and `resume` is not set; or they have another header.
        EnvironmentUnfitError: a file cannot be written, or another process is writing it.
    """

    def __init__(self, path: Path, suffix: str, header: str, run: str, *, resume: bool) -> None:
        self.path, self._suffix, self._header, self._run, self._resume = path, suffix, header, run, resume
        self.errors_path = path.with_name(path.name + ".errors.jsonl")
        self._good, self._bad = _Partial(path), _Partial(self.errors_path)
        self._digests = _Digests(path.with_name(path.name + ".rows"))
        self._skipped = 0
        self._since = time.monotonic()
        self.before = 0  # rows of an interrupted run
        self.rows = self.bad = 0  # all rows, and rows without an answer

    def __enter__(self) -> Output:
        with os_errors(f"{self.path} cannot be written"):
            began = self._good.path.exists()  # without an answer there is nothing to lose, or it is still running
            if began and not self._resume and self._good.path.stat().st_size > len(self._header_bytes()):
                raise UsageError(
                    f"{self._good.path} holds answers of a run that was interrupted, or that is still running",
                    fix="continue that run with --resume, or remove the file to begin again",
                )
            if began and not self._bad.path.exists() and self.errors_path.exists():
                self.errors_path.replace(self._bad.path)  # the run ended between its two last renames
            try:
                self._bad.open(resume=began or self._resume)
                self._digests.open(resume=began or self._resume)
                self._good.open(resume=began or self._resume)
                self._good.lock(self.path)
                self._cut_answers()
            except BaseException:
                self._close()
                raise
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            if error is not None and self.rows:
                self.commit()
            elif error is not None:
                for partial in (self._good, self._bad, self._digests):
                    _remove(partial.path)
        finally:
            self._close()

    def skip(self, row: str, line: int) -> None:
        """Skip the next row of the input, on its line `line`: one of those `before`.

        Raises:
            UsageError: the interrupted run answered another one there.
        """
        if self._digests.at(self._skipped) != self._digest(row):
            raise UsageError(
                f"the run that was interrupted has read something else on line {line} of the input",
                why="since then the input, the model or an option was changed",
                fix=f"give what that run was given, or remove {self._good.path} to begin again",
            )
        self._skipped += 1

    def cut_errors(self, last_line: int) -> None:
        """Drop what is known of rows after `last_line` of the input, the last row that is kept."""
        with os_errors(f"{self.path} cannot be written"), self._bad.read() as file:
            size = 0
            for line in file:
                if not line.endswith(b"\n") or _line_of(line) > last_line:
                    break
                size += len(line)
                self.bad += 1
            self._bad.cut(size)
            self._digests.cut(self.before * _DIGEST_BYTES)

    def add(self, line: str, row: str, error: Optional[Mapping[str, Any]] = None) -> None:
        """The `line` of the next `row`; with an `error` the row has no answer. Raises as `commit`."""
        if error is not None:
            self._bad.add(json.dumps(error, ensure_ascii=False) + "\n")
            self.bad += 1
        self._digests.add(self._digest(row))
        self._good.add(line)
        self.rows += 1
        if self._good.waiting >= _BLOCK_CHARACTERS or time.monotonic() - self._since >= _BLOCK_S:
            self.commit()

    def commit(self) -> None:
        """Append the rows that were added, and flush them to the disk.

        Raises:
            EnvironmentUnfitError: they cannot be written.
        """
        with os_errors(f"{self.path} cannot be written"):
            self._bad.append()
            self._digests.append()
            self._good.append()
        self._since = time.monotonic()

    def finish(self) -> None:
        """After the last row: rename the partial files to G and its errors. Raises as `commit`."""
        self.commit()
        with os_errors(f"{self.path} cannot be written"):
            if self.bad:  # before G, so that G never exists without the errors of its rows
                self._bad.path.replace(self.errors_path)
            else:
                _remove(self.errors_path)
                _remove(self._bad.path)
            self._good.path.replace(self.path)
            _remove(self._digests.path)
            fsync_folder(self.path.absolute().parent)

    def _digest(self, row: str) -> str:
        text = f"{self._run} {row}".encode("utf-8", "backslashreplace")
        return hashlib.sha256(text).hexdigest()[: _DIGEST_BYTES - 1] + "\n"

    def _header_bytes(self) -> bytes:
        return self._header.encode("utf-8", "backslashreplace")

    def _cut_answers(self) -> None:
        """Cut the partial output to complete rows and count them; write the header if there is none."""
        header = self._header_bytes()
        with self._good.read() as file:
            found = file.read(len(header))
            if not self._resume or (header.startswith(found) and found != header):  # empty, or an incomplete header
                self._good.cut(0)
                self._good.add(self._header)
                return
            if found != header:
                raise UsageError(
                    f"{self._good.path} has other columns than this run",
                    why=f"its first line is not `{self._header.strip()}`",
                    fix="repeat the options of the run that was interrupted, or remove the file to begin again",
                )
            size, quotes, complete = len(header), 0, len(header)
            most = self._digests.count()
            for line in file:
                if not line.endswith(b"\n") or self.before == most:
                    break
                size += len(line)
                quotes += line.count(b'"')
                if self._suffix != ".csv" or quotes % 2 == 0:  # a quoted field of a .csv may hold line ends
                    self.before += 1
                    complete = size
        self._good.cut(complete)
        self.rows = self.before

    def _close(self) -> None:
        for partial in (self._good, self._bad, self._digests):
            partial.close()


class _Partial:
    """A file that grows by whole blocks, and is renamed at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + ".partial")
        self.waiting = 0  # characters in memory
        self._file = -1
        self._added: Tuple[List[str], int] = ([], 0)  # lines in memory, and their offset in the file

    def open(self, *, resume: bool) -> None:
        """Create the file, or with `resume` open the one that this user's run left.

        In a folder that others write to, a file of another user, a link and a named pipe are errors, and stay as they
        are.
        """
        new = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        if not resume:
            _remove(self.path)  # errors of an earlier run, without its answers
        try:
            self._file = os.open(self.path, new, FILE_MODE)
        except FileExistsError:
            self._file = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            found = os.fstat(self._file)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_uid != os.geteuid():
                why = "it is not a file of this user with one name"
                raise PermissionError(errno.EPERM, why, str(self.path)) from None

    def read(self) -> BinaryIO:
        """The file from its beginning, whatever its name leads to by now."""
        os.lseek(self._file, 0, os.SEEK_SET)
        return os.fdopen(self._file, "rb", closefd=False)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def lock(self, meant: Path) -> None:
        """Lock `meant` against other processes until `close`."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held the lock may have renamed the file just before it ended.
            mine = self.path.exists() and os.path.samestat(os.fstat(self._file), self.path.stat())
        except BlockingIOError:
            mine = False
        if not mine:
            raise EnvironmentUnfitError(
                f"another process writes {meant}", why=f"it holds {self.path}", fix="wait for it to end"
            )

    def cut(self, size: int) -> None:
        os.ftruncate(self._file, size)
        self._added = ([], size)

    def add(self, line: str) -> None:
        self._added[0].append(line)
        self.waiting += len(line)

    def append(self) -> None:
        """Write the lines that were added, and flush them to the disk.

        After an interrupt the same block is written again at the same offset: `_added` changes in one step.
        """
        lines, size = self._added
        # A lone surrogate, which JSON may contain, is written as a JSON escape.
        data = "".join(lines).encode("utf-8", "backslashreplace")
        if data:
            _write(self._file, data, size)
            os.fsync(self._file)
        self._added = ([], size + len(data))
        self.waiting = 0


class _Digests(_Partial):
    """Digests of rows, a line each."""

    def count(self) -> int:
        return os.fstat(self._file).st_size // _DIGEST_BYTES

    def at(self, number: int) -> str:
        """The digest of row `number`, from 0."""
        return os.pread(self._file, _DIGEST_BYTES, number * _DIGEST_BYTES).decode("ascii", "replace")


def _line_of(error: bytes) -> float:
    """The line of the input that a line of the errors is about; beyond all if it is torn or another's."""
    try:
        return int(json.loads(error.decode("utf-8"))["line"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return float("inf")


def _write(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
