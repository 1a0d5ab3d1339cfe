"""Files that a command writes where its options say: tried before the work begins, replaced as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgepack.errors import EnvironmentUnfitError, UsageError
from edgepack_runtime.durable import write_atomic


def require_apart(written: Sequence[Path], read: Sequence[Path]) -> None:
    """That nothing which is `read` is to be written.

    Raises:
        UsageError: something is.
    """
    inputs = [file.resolve() for file in read]
    for file in written:
        if file.resolve() in inputs:
            raise UsageError(f"{file} is read, and was named to be written too", fix="write to another file")


def try_file(file: Path) -> None:
    """That `file` can be written; its folder is made.

    Raises:
        EnvironmentUnfitError: it cannot.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and not file.is_file():  # a pipe
            return
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise _unwritable(file, error) from error


def clear(file: Path) -> None:
    """Remove `file`, which is to be written later: what an earlier command wrote is not to be taken for this one's.

    Raises:
        EnvironmentUnfitError: it cannot be removed.
    """
    try:
        if file.is_file():  # and no pipe
            file.unlink()
    except OSError as error:
        raise _unwritable(file, error) from error


def write(file: Path, text: str) -> None:
    """Replace `file`; what is no Unicode in `text`, as a device may send it, is written as an escape.

    Raises:
        EnvironmentUnfitError: it cannot be written.
    """
    try:
        if file.exists() and not file.is_file():
            file.write_bytes(encoded(text))
        else:
            write_atomic(file, encoded(text))
    except OSError as error:
        raise _unwritable(file, error) from error


def encoded(text: str) -> bytes:
    """UTF-8, with an escape for each half of a surrogate pair."""
    return text.encode("utf-8", "backslashreplace")


def _unwritable(file: Path, error: OSError) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(
        f"{file} cannot be written", why=error.strerror or str(error), fix="check the folder and its disk"
    )
