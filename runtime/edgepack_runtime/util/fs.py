"""Files and folders that survive a power cut, and errors of the file system told with what helps (stdlib only).

Modes are set without regard to the umask: the application that uses a release often runs as another user than the one
who installs it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from pathlib import Path
from typing import Iterator, List, Optional

from edgepack_runtime.errors import EnvironmentUnfitError

FILE_MODE = 0o644
FOLDER_MODE = 0o755
_SYSTEM_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")
_REMOVE_ATTEMPTS, _REMOVE_PAUSE_S = 50, 0.1


@contextlib.contextmanager
def os_errors(what: str) -> Iterator[None]:
    """Turn an OSError inside the block into an EnvironmentUnfitError saying `what` (a sentence) and errno's text."""
    try:
        yield
    except OSError as error:
        raise unfit(what, error) from error


def unfit(what: str, error: OSError) -> EnvironmentUnfitError:
    """`error` as an error of ours: `what` (a sentence), the system's own words, and what helps against it."""
    where = f"{error.filename}: " if error.filename else ""
    return EnvironmentUnfitError(what, why=f"{where}{error.strerror or error}", fix=_fix_for(error.errno))


def _fix_for(code: Optional[int]) -> str:
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "free some space there (`doctor` tells how much is needed), or choose another folder"
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "run as a user who may use that folder, or choose another one with --prefix or TMPDIR"
    return "look at that folder and its disk, or choose another one"


def temporary_base() -> str:
    """Where temporary folders are made: as TMPDIR says, or in one of the system's.

    Never in the folder that we were started in, as Python does when all others are full: that may be a stick's, and
    what lies there may be whatever its firmware, or on FAT everybody, likes.

    Raises:
        FileNotFoundError: none of them can be written.
    """
    import tempfile  # slow to load, for few

    base = tempfile.gettempdir()
    if base not in _SYSTEM_TEMPORARY and Path(base) == Path.cwd():
        told = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
        if Path(base) not in [Path(folder).absolute() for folder in told if folder]:
            raise FileNotFoundError(errno.ENOENT, f"none of {', '.join(_SYSTEM_TEMPORARY)} can be written")
    return base


def fsync_folder(folder: Path) -> None:
    """Make names created, renamed or removed in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, fresh: bool = False) -> List[Path]:
    """Create `folder` and its missing parents, readable by everyone whatever the umask; return what was created.

    Raises:
        FileExistsError: it exists and `fresh` was asked for, or something that is no folder has its name.
    """
    missing = [folder] if fresh else []
    place = folder.parent if fresh else folder
    while not place.is_dir():
        missing.append(place)
        place = place.parent
    for path in reversed(missing):
        try:
            path.mkdir()
        except FileExistsError:
            if (fresh and path == folder) or not path.is_dir():
                raise
            continue  # another process, such as a second install, made it in this very moment
        path.chmod(FOLDER_MODE)
    return missing


def set_mode(descriptor: int, mode: int) -> None:
    """Give an open file of ours its mode, whatever the umask. A FAT stick has none: there it stays as it is mounted."""
    try:
        os.fchmod(descriptor, mode)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


def write_atomic(path: Path, data: bytes, *, mode: int = FILE_MODE) -> None:
    """Replace `path` by `data` so that a kill or a power cut leaves either the old content or the new."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as out:
            set_mode(out.fileno(), mode)
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # the error that matters is the one on its way
            temporary.unlink()
        raise
    fsync_folder(path.parent)


def switch_link(link: Path, target: str) -> None:
    """Point the symlink `link` at `target` in one atomic rename; readers see the old target or the new one."""
    temporary = link.with_name(f".{link.name}.tmp")
    remove_tree(temporary)
    temporary.symlink_to(target)
    temporary.replace(link)
    fsync_folder(link.parent)


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a whole folder; nothing there is fine.

    Raises:
        OSError: something could not be removed.
    """
    if path.is_symlink() or not path.is_dir():
        if path.is_symlink() or path.exists():
            path.unlink()
        return
    for attempt in range(_REMOVE_ATTEMPTS):
        try:
            shutil.rmtree(path)
            return
        except OSError as error:
            # A process of a killed install may live on for a moment and write bytecode meanwhile.
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or attempt == _REMOVE_ATTEMPTS - 1:
                raise
        time.sleep(_REMOVE_PAUSE_S)
