"""Durable files and folders, and errors of the file system with a fix.

Modes do not depend on the umask: applications often run as another user than the one who installs a release.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
from pathlib import Path
from typing import BinaryIO, Iterator, List, Tuple

from edgepack_runtime.errors import EnvironmentUnfitError

FILE_MODE = 0o644
FOLDER_MODE = EXECUTABLE_MODE = 0o755
# Flags that open a new file and follow no link.
NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
CACHE_VARIABLE = "EDGEPACK_CACHE"
MOST_READ_BYTES = 2**26  # of a file that is read as a whole
_SYSTEM_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")
_REMOVE_ATTEMPTS, _REMOVE_PAUSE_S = 50, 0.1


def user_cache() -> Path:
    """`$EDGEPACK_CACHE`, else `$XDG_CACHE_HOME/edgepack`, else `~/.cache/edgepack`.

    Raises:
        EnvironmentUnfitError: there is no home folder.
    """
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    try:
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "edgepack"
    except (RuntimeError, KeyError) as error:  # Python 3.8 raises the second
        raise EnvironmentUnfitError("this user has no home folder", fix=f"set {CACHE_VARIABLE} to a folder") from error


@contextlib.contextmanager
def os_errors(what: str) -> Iterator[None]:
    """Turn an OSError inside the block into an EnvironmentUnfitError with the sentence `what`."""
    try:
        yield
    except OSError as error:
        raise unfit(what, error) from error


def unfit(what: str, error: OSError) -> EnvironmentUnfitError:
    """An EnvironmentUnfitError with the sentence `what`, the system's message as cause, and a fix."""
    where = f"{error.filename}: " if error.filename else ""
    fix = "check it and its disk, or choose another one"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = "free some space there (`df` shows how much there is), or choose another folder"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        fix = "run as a user with access to it, or choose another one"
    return EnvironmentUnfitError(what, why=f"{where}{error.strerror or error}", fix=fix)


def temporary_base() -> str:
    """The folder for temporary files, absolute: TMPDIR, or one of the system's.

    Unlike Python, this never falls back to the working directory, which may be on a removable disk.

    Raises:
        FileNotFoundError: none of them can be written.
        PermissionError: others may replace what lies in it.
    """
    import tempfile  # slow to import

    base = str(Path(tempfile.gettempdir()).absolute())  # Python leaves TMPDIR=. as it is
    if base not in _SYSTEM_TEMPORARY and Path(base) == Path.cwd():
        chosen = [os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")]
        if Path(base) not in [Path(folder).absolute() for folder in chosen if folder]:
            raise FileNotFoundError(errno.ENOENT, f"none of {', '.join(_SYSTEM_TEMPORARY)} can be written")
    return str(require_safe_base(Path(base)))


def require_safe_base(base: Path) -> Path:
    """A folder for temporary files without links, in which no other user may rename those of this process.

    Members of a group that may write it, or a folder above it, are trusted: the system's own groups have one user.

    Raises:
        PermissionError: every user may write it or a folder above it, without a sticky bit; or one of them belongs to
            another user than root.
        OSError: it cannot be examined.
    """
    base = base.resolve()
    for folder in (base, *base.parents):
        found = folder.lstat()  # whoever may rename it may put a link to a good folder in its place
        open_to_all = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
        if open_to_all or found.st_uid not in (0, os.geteuid()) or not stat.S_ISDIR(found.st_mode):
            raise PermissionError(errno.EPERM, "other users may replace the temporary files in it", str(folder))
    return base


def fsync_folder(folder: Path) -> None:
    """Make names created, renamed or removed in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. A named pipe or a device of somebody else's folder is refused, not waited for.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OSError(errno.EINVAL, "it is not a regular file")


def read_regular(path: Path, most_bytes: int = MOST_READ_BYTES) -> bytes:
    """The content of a regular file of at most `most_bytes`: a link may lead to a device that never ends.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger.
    """
    with open_regular(path) as file:
        known = os.fstat(file.fileno()).st_size  # a sparse file may be huge: it is not read
        content = file.read(most_bytes + 1) if known <= most_bytes else b""
    if max(known, len(content)) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes // 2**20} MiB", str(path))
    return content


def holds(path: Path, content: bytes) -> bool:
    """Whether `path` is a file with exactly this content. One of another size, which may be huge, is not read."""
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def walk(folder: Path) -> Iterator[Tuple[str, str]]:
    """Every entry below `folder` as (POSIX path, kind). Links are not followed."""
    pending = [""]  # folders inside of each other may be more than Python calls functions
    while pending:
        inside = pending.pop()
        with os.scandir(folder / inside) as entries:
            for entry in entries:
                path = f"{inside}/{entry.name}" if inside else entry.name
                if entry.is_symlink():
                    yield path, "link"
                elif entry.is_dir():
                    yield path, "folder"
                    pending.append(path)
                else:
                    yield path, "file" if entry.is_file() else "special file"


def make_folder(folder: Path, *, fresh: bool = False) -> List[Path]:
    """Create `folder` and its missing parents, readable by everyone whatever the umask; return what was created.

    Raises:
        FileExistsError: it exists although it must be `fresh`, or a file has its name.
    """
    missing = [folder] if fresh else []
    place = folder.parent if fresh else folder
    while not place.is_dir():
        missing.append(place)
        place = place.parent
    for path in reversed(missing):
        try:
            path.mkdir(FOLDER_MODE)  # never open to all, not even for a moment
        except FileExistsError:
            if (fresh and path == folder) or not path.is_dir():
                raise
            continue  # another process made it in the meantime
        path.chmod(FOLDER_MODE)
    return missing


def set_mode(descriptor: int, mode: int) -> None:
    """Set the mode of an open file, regardless of the umask. A file system without modes (FAT) is no error."""
    try:
        os.fchmod(descriptor, mode)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP):
            raise


def random_name(path: Path) -> Path:
    """A hidden name beside `path`, where nobody can have planted a link. Mode `x` of `open` follows none either."""
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")


@contextlib.contextmanager
def replacing(path: Path, mode: int = FILE_MODE) -> Iterator[BinaryIO]:
    """Replace `path` by the file that the block writes; after a kill or a power cut it is the old or the new file.

    No link is followed: one at `path` is replaced, and nobody can plant one at a random name.

    Raises:
        OSError: it cannot be written. After any error `path` is as before.
    """
    temporary = random_name(path)
    try:
        # Private until the mode is set, whatever the umask.
        with open(temporary, "x+b", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
            set_mode(out.fileno(), mode)
            yield out
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # keep the first error
            temporary.unlink()
        raise
    fsync_folder(path.parent)


def write_atomic(path: Path, data: bytes, *, mode: int = FILE_MODE) -> None:
    """`replacing` with `data`."""
    with replacing(path, mode) as out:
        out.write(data)


def switch_link(link: Path, target: str) -> None:
    """Point the symlink `link` at `target` by one atomic rename."""
    temporary = link.with_name(f".{link.name}.tmp")
    remove_tree(temporary)
    temporary.symlink_to(target)
    temporary.replace(link)
    fsync_folder(link.parent)


def _remove_deep(folder: Path) -> None:
    """Remove a folder after its folders were moved into a new one beside it: no call in a call, no path that grows."""
    import tempfile  # takes a while, and a cold start needs none of it

    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name[:50]}.", dir=folder.parent))
    pending, moved = [folder], 0
    while pending:
        inside = pending.pop()
        inside.chmod(0o700)
        for entry in list(inside.iterdir()):
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
                continue
            entry.chmod(0o700)  # a move changes its link to the folder above
            moved += 1
            pending.append(entry.rename(beside / str(moved)))
    shutil.rmtree(beside)
    folder.rmdir()


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a whole folder, if it exists.

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
        except RecursionError:  # folders inside of each other may be more than Python calls functions
            _remove_deep(path)
            return
        except OSError as error:
            # A process of a killed install may still write for a moment.
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or attempt == _REMOVE_ATTEMPTS - 1:
                raise
        time.sleep(_REMOVE_PAUSE_S)
