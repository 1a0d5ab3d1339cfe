"""Files that another file names, or that lie in a folder of somebody else: a name must not lead to the user's own."""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath

from edgepack_runtime.util.fs import MOST_READ_BYTES, read_regular


def below(folder: Path, name: str, most_bytes: int | None = None) -> Path:
    """The regular file `name` in `folder`. A link has to lead to a file in `folder`, too.

    Args:
        most_bytes: the largest size; None: any.

    Raises:
        ValueError: the name leads out of the folder, or it is not a regular file, or larger; says which.
        OSError: there is no such file, or it cannot be reached.
    """
    parts = PurePosixPath(name)
    if not name or "\0" in name or parts.is_absolute() or ".." in parts.parts:
        raise ValueError(f"{name[:200]!r} is not a name of a file below the folder {folder.name}")
    file = folder / name
    try:
        real = file.resolve(strict=True)
    except RuntimeError as error:  # before Python 3.13
        raise ValueError(f"{name[:200]} is a link to itself") from error
    if not real.is_relative_to(folder.resolve()):
        raise ValueError(f"{name[:200]} is a link that leads out of the folder {folder.name}; copy the file there")
    found = real.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{name[:200]} is not a regular file")
    if most_bytes is not None and found.st_size > most_bytes:
        raise ValueError(f"{name[:200]} has more than {most_bytes // 2**20} MiB")
    return file


def read(folder: Path, name: str, most_bytes: int = MOST_READ_BYTES) -> bytes:
    """The content of a file of at most `most_bytes`. Raises as `below`."""
    return read_regular(below(folder, name, most_bytes), most_bytes)
