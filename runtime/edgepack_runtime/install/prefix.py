"""The install prefix: its layout, its state and lock, which bundle owns it, and which files in it are foreign.

    <prefix>/current                 symlink to the serving release: THE truth; switched by one atomic rename
    <prefix>/releases/<id>/          an installed release: exactly the bundle's files
    <prefix>/releases/.tmp/<id>/     a release being staged; a leftover of a killed install is removed by the next
    <prefix>/interpreters/<id>       one line: the Python that release was tested with
    <prefix>/tuning/<id>.json        how this device runs that release best: what `tune` measured
    <prefix>/bin/<name>              shell launcher
    <prefix>/systemd/<name>.service  a unit that runs `serve`, where `install --systemd` was asked for it
    <prefix>/state.json              what was committed, and what is pending
    <prefix>/receipts/NNNNNN-*.json  what every install and gate found; numbered, since the clock may be wrong
    <prefix>/cache/pycache/          bytecode (never inside a release)
    <prefix>/.lock                   held while an install runs
    <prefix>/trusted_signers         keys of which one must have signed what is installed (trust.py)
    <prefix>/revoked_keys            keys that are not accepted any more

`state.json` names the release that an install is about to commit (`pending`) before anything else is
written, so that whoever comes after a power cut can tell what was going on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import time
from pathlib import Path
from typing import Iterator, Optional

from edgepack_runtime.bundle import verify
from edgepack_runtime.bundle.manifest import NAME, RELEASE_ID
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError, UsageError
from edgepack_runtime.util.fs import os_errors, remove_tree, write_atomic

_LOCK_MODE = 0o600  # who may read it may lock it, and keep installs out for as long as they like
STATE_FORMAT = 1
SIGNERS_NAME, REVOKED_NAME = "trusted_signers", "revoked_keys"
_STATE_NAME = "state.json"
_LOCK_NAME = ".lock"
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 20, 0.05  # `status` holds it for some microseconds, to see whether anybody does
_RELEASES, _STAGING = "releases", ".tmp"
_RECEIPTS = "receipts"


@dataclasses.dataclass(frozen=True)
class Prefix:
    """The paths inside one install prefix."""

    root: Path

    @property
    def releases(self) -> Path:
        return self.root / _RELEASES

    @property
    def staging(self) -> Path:
        return self.releases / _STAGING

    @property
    def current(self) -> Path:
        return self.root / "current"

    @classmethod
    def around(cls, release: Path) -> Optional[Prefix]:
        """The prefix that an unpacked release lies in, or is being staged in; None where it lies in no prefix."""
        releases = release.parent.parent if release.parent.name == _STAGING else release.parent
        return cls(releases.parent) if releases.name == _RELEASES else None

    @property
    def tuning(self) -> Path:
        return self.root / "tuning"

    def tuning_of(self, release: Path) -> Path:
        """Where what `tune` found for `release` lies: of one that is being staged, with it."""
        if release.parent.name == _STAGING:
            return self.staging / f"{release.name}.tuning.json"
        return self.tuning / f"{release.name}.json"

    @property
    def interpreters(self) -> Path:
        return self.root / "interpreters"

    @property
    def receipts(self) -> Path:
        return self.root / _RECEIPTS

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def state_file(self) -> Path:
        return self.root / _STATE_NAME

    @property
    def lock_file(self) -> Path:
        return self.root / _LOCK_NAME

    @property
    def pycache(self) -> Path:
        return self.root / "cache" / "pycache"

    def bytecode_of(self, release: Path) -> Path:
        """Where Python keeps the bytecode of `release`: `sys.pycache_prefix` mirrors the absolute source path."""
        return self.pycache / str(Path(os.path.realpath(release))).lstrip("/")

    def current_id(self) -> Optional[str]:
        """Id of the serving release: what the `current` link names, if it names a folder that exists."""
        try:
            target = Path(os.readlink(self.current))  # noqa: PTH115 - Path.readlink came with Python 3.9
        except OSError:
            return None  # no link, or not a link: nothing serves
        return target.name if (self.releases / target.name).is_dir() else None


@dataclasses.dataclass(frozen=True)
class State:
    """`state.json`. `pending` is the id of a release whose install has begun and not ended.

    `floor` is the highest sequence number that was ever committed here: installs do not go below it.
    """

    name: str
    current: Optional[str] = None
    previous: Optional[str] = None
    manifest_sha256: Optional[str] = None
    sequence: Optional[int] = None
    bundle_bytes: Optional[int] = None
    pending: Optional[str] = None
    floor: Optional[int] = None

    @property
    def unfinished(self) -> str:
        """What `pending` is about, for a sentence: both verbs may be about the release that was kept."""
        verb = "an install of, or a rollback to," if self.pending == self.previous else "an install of"
        return f"{verb} {self.pending}"


def default_prefix(name: str) -> Path:
    """`/opt/<name>` for root, else `~/.local/share/edgepack/<name>`.

    Raises:
        UsageError: not root, and HOME is not set.
    """
    if os.geteuid() == 0:
        return Path("/opt") / name
    home = os.environ.get("HOME", "")
    if not home.startswith("/"):
        raise UsageError(
            "there is no default place to install to",
            why="HOME is not set, and only root installs into /opt",
            fix="name a folder: install --prefix FOLDER",
        )
    return Path(home) / ".local" / "share" / "edgepack" / name


@contextlib.contextmanager
def lock(prefix: Prefix) -> Iterator[None]:
    """Hold the installer's lock; the kernel lets go of it when the process ends, however it ends.

    Raises:
        EnvironmentUnfitError: another process holds it, or the lock file cannot be written.
    """
    with os_errors(f"the prefix {prefix.root} cannot be written"):
        descriptor = os.open(prefix.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _LOCK_MODE)
    try:
        _take(descriptor, prefix)
        with os_errors(f"the prefix {prefix.root} cannot be written"):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, prefix: Prefix) -> None:
    for attempt in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if attempt == _LOCK_ATTEMPTS - 1:
                raise _held(descriptor, prefix) from error
        time.sleep(_LOCK_PAUSE_S)
    with os_errors(f"the prefix {prefix.root} cannot be written"):
        held = os.fstat(descriptor)
        there = os.path.lexists(prefix.lock_file) and os.path.samestat(held, os.lstat(prefix.lock_file))
    if not there:  # an uninstall removed it after we opened it: another process may hold a new one
        raise EnvironmentUnfitError(
            f"an uninstall in {prefix.root} ended just now", why="its lock is gone", fix="try again"
        )


def _held(descriptor: int, prefix: Prefix) -> EnvironmentUnfitError:
    holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
    return EnvironmentUnfitError(
        f"another install or tuning in {prefix.root} is running",
        why=f"process {holder} holds {prefix.lock_file}",
        fix="wait for it to end, then try again",
    )


def is_locked(prefix: Prefix) -> Optional[bool]:
    """Whether an install, or a tuning, is running right now; None for a user who may not know."""
    try:
        descriptor = os.open(prefix.lock_file, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return None
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_state(prefix: Prefix) -> Optional[State]:
    """`state.json`, or None when there is none.

    Raises:
        BundleInvalidError: it is not what an install writes.
        EnvironmentUnfitError: it cannot be read.
    """
    try:
        document = json.loads(prefix.state_file.read_bytes().decode("utf-8"))
        if document.pop("state_format") != STATE_FORMAT:
            raise ValueError("it was written by another version")
        # A release that is newer may have written more, and this one may be what was rolled back to.
        known = {field.name for field in dataclasses.fields(State)}
        state = State(**{key: value for key, value in document.items() if key in known})
        if not isinstance(state.name, str) or not NAME.match(state.name):  # it becomes the name of files
            raise ValueError(f"{state.name!r} is no name of a bundle")
        for value in (state.current, state.previous, state.pending):
            if value is not None and not RELEASE_ID.match(value):
                raise ValueError(f"{value!r} is not a release id")
        for number in (state.sequence, state.floor, state.bundle_bytes):
            if number is not None and (type(number) is not int or number < 0):
                raise ValueError(f"{number!r} is neither a sequence number nor a size")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentUnfitError(
            f"{prefix.state_file} cannot be read", why=error.strerror or str(error), fix="run as a user who may read it"
        ) from error
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise BundleInvalidError(
            f"{prefix.state_file} is damaged", why=str(error), fix="install the bundle again; `current` is untouched"
        ) from error
    return state


def write_state(prefix: Prefix, state: State) -> None:
    """Replace `state.json` atomically and durably."""
    document = {"state_format": STATE_FORMAT, **dataclasses.asdict(state)}
    write_atomic(prefix.state_file, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode("utf-8"))


def higher(one: Optional[int], other: Optional[int]) -> Optional[int]:
    known = [number for number in (one, other) if number is not None]
    return max(known) if known else None


_NOWHERE = Prefix(Path())
# What an install leaves that was killed before it wrote its first state.json.
LEFT_BEFORE_STATE = {_NOWHERE.lock_file.name, f".{_NOWHERE.state_file.name}.tmp"}
# What a prefix may hold before its first install: keys are pinned by then, best of all.
_BEFORE_INSTALL = {*LEFT_BEFORE_STATE, SIGNERS_NAME, f".{SIGNERS_NAME}.tmp", REVOKED_NAME, _NOWHERE.receipts.name}
# Not the receipts of `gate`, which holds no lock and may be writing one right now.
_TEMPORARY = re.compile(r"\.(?![0-9]{6}-gate\.).+\.tmp\Z")
PINNED = (SIGNERS_NAME, REVOKED_NAME)
# What stays when an install is removed: it tells of the device and not of a release.
RECORDS = {_NOWHERE.receipts.name, _NOWHERE.state_file.name, *PINNED}


def require_install(prefix: Prefix, wanted: Optional[str]) -> str:
    """The name of the bundle that `prefix` holds an install of, as its state.json or the serving release says.

    Args:
        wanted: the bundle that is meant; None for whichever there is.

    Raises:
        EnvironmentUnfitError: nothing is installed there, or it cannot be looked at.
        UsageError: the folder holds no install, or that of another bundle.
    """
    with os_errors(f"the prefix {prefix.root} cannot be used"):
        found = sorted(entry.name for entry in prefix.root.iterdir()) if prefix.root.is_dir() else []
    if set(found) <= LEFT_BEFORE_STATE | RECORDS - {prefix.state_file.name}:
        raise nothing_installed(prefix)
    name = _name_in_state(prefix) or _name_of_release(prefix)
    if name is None:
        raise UsageError(
            f"the prefix {prefix.root} holds no install",
            why=f"it holds {', '.join(found[:3])}, and neither state.json nor `current` is one that an install wrote",
            fix="name the folder of an install: --prefix FOLDER",
        )
    if wanted is not None and name != wanted:
        raise UsageError(
            f"the prefix {prefix.root} holds another bundle, {name}",
            fix=f"name the folder of {wanted}: --prefix FOLDER",
        )
    return name


def check_is_ours(prefix: Prefix, name: Optional[str]) -> None:
    """Refuse a prefix that holds anything but installs of the bundle `name` (None: of any): what is not ours stays.

    Where state.json is lost or damaged, the serving release tells whose it is; the install itself rebuilds the file.

    Raises:
        UsageError: the folder holds other files, or another bundle.
        EnvironmentUnfitError: it cannot be looked at.
    """
    with os_errors(f"the prefix {prefix.root} cannot be used"):
        found = {entry.name for entry in prefix.root.iterdir()} if prefix.root.exists() else set()
    owner = _name_in_state(prefix) or _name_of_release(prefix)
    if owner is None and prefix.state_file.name not in found and found - _BEFORE_INSTALL:
        raise UsageError(
            f"the prefix {prefix.root} is not empty and holds no install",
            why=f"it holds {', '.join(sorted(found)[:3])}; an install owns its whole prefix",
            fix="name a folder that is empty or does not exist: install --prefix FOLDER",
        )
    if owner is not None and name is not None and owner != name:
        raise UsageError(
            f"the prefix {prefix.root} holds another bundle, {owner}",
            fix=f"choose another folder for {name}: install --prefix FOLDER",
        )


def nothing_installed(prefix: Prefix) -> EnvironmentUnfitError:
    """The error for a prefix that holds no release, ready to be raised."""
    return EnvironmentUnfitError(
        f"nothing is installed in {prefix.root}", fix="name the folder of an install: --prefix FOLDER"
    )


def clear_temporary(prefix: Prefix) -> None:
    """Remove files that were being written by somebody who held the lock and was killed. Holds under the lock only.

    Raises:
        OSError: they cannot be removed.
    """
    inside = (prefix.receipts, prefix.interpreters, prefix.tuning, prefix.bin, prefix.root / "systemd")
    for folder in (prefix.root, *inside):
        for path in list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
            if _TEMPORARY.match(path.name):
                remove_tree(path)


def _name_in_state(prefix: Prefix) -> Optional[str]:
    try:
        state = read_state(prefix)
    except BundleInvalidError:  # `current` may still tell
        return None
    return state.name if state else None


def _name_of_release(prefix: Prefix) -> Optional[str]:
    """What the serving release's manifest says, which its folder's name proves to be the one that was installed."""
    current = prefix.current_id()
    try:
        return verify.read_manifest(prefix.releases / current)[0].name if current else None
    except EdgepackError:
        return None
