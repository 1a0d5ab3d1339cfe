"""The install prefix: its layout, its state and lock, which bundle owns it, and which files in it are foreign.

    <prefix>/current                 symlink to the active release (the truth); switched by one atomic rename
    <prefix>/releases/<id>/          an installed release: exactly the bundle's files
    <prefix>/releases/.tmp/<id>/     a release being staged; the next install removes leftovers
    <prefix>/interpreters/<id>       one line: the Python that runs that release, if it carries none
    <prefix>/tuning/<id>.json        fastest settings of that release on this device, from `tune`
    <prefix>/bin/<name>              shell launcher
    <prefix>/systemd/<name>.service  unit that runs `serve`, from `install --systemd`
    <prefix>/state.json              the committed and the pending release
    <prefix>/receipts/NNNNNN-*.json  results of installs and gates; numbered, since the clock may be wrong
    <prefix>/.lock                   held while an install runs
    <prefix>/trusted_signers         trusted keys: one of them must have signed an installed bundle (trust.py)
    <prefix>/revoked_keys            keys that are no longer accepted

An install writes the release that it is about to commit (`pending`) into `state.json` before anything else, so that
the next command recognises an interrupted install.
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
from typing import Iterator, Optional, Set, Tuple

from edgepack_runtime.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError, UsageError
from edgepack_runtime.messages import message
from edgepack_runtime.util.fs import os_errors, read_regular, remove_tree, write_atomic

_LOCK_MODE = 0o600  # a user who can read the file can lock it and block installs
STATE_FORMAT = 1
SIGNERS_NAME, REVOKED_NAME = "trusted_signers", "revoked_keys"
_STATE_NAME = "state.json"
_LOCK_NAME = ".lock"
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 20, 0.05  # `status` holds the lock for microseconds to test it
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
    def containing(cls, release: Path) -> Optional[Prefix]:
        """The prefix around an unpacked or staged release, or None."""
        releases = release.parent.parent if release.parent.name == _STAGING else release.parent
        return cls(releases.parent) if releases.name == _RELEASES else None

    @property
    def tuning(self) -> Path:
        return self.root / "tuning"

    def tuning_file(self, release: Path) -> Path:
        """Tuning file of `release`; a staged release has its own."""
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
    def folders(self) -> Tuple[Path, ...]:
        """All folders that an install makes in it."""
        return self.releases, self.interpreters, self.tuning, self.bin, self.receipts, self.root / "systemd"

    @property
    def state_file(self) -> Path:
        return self.root / _STATE_NAME

    @property
    def lock_file(self) -> Path:
        return self.root / _LOCK_NAME

    def current_id(self) -> Optional[str]:
        """Id of the active release: the target of `current`, if that folder exists."""
        try:
            target = Path(os.readlink(self.current))  # noqa: PTH115 - Path.readlink came with Python 3.9
        except OSError:
            return None  # no release is active
        return target.name if (self.releases / target.name).is_dir() else None


@dataclasses.dataclass(frozen=True)
class State:
    """`state.json`. `pending` is the id of a release whose install began and did not end.

    `minimum_sequence` is the highest sequence number that was ever committed here; installs refuse lower ones.
    """

    name: str
    current: Optional[str] = None
    previous: Optional[str] = None
    manifest_sha256: Optional[str] = None
    sequence: Optional[int] = None
    bundle_bytes: Optional[int] = None
    pending: Optional[str] = None
    minimum_sequence: Optional[int] = None

    def interruption(self, current: Optional[str]) -> Optional[str]:
        """The operation that was interrupted, as a sentence, if `current` differs from this state; else None."""
        if self.pending is not None:
            verb = "an install of, or a rollback to," if self.pending == self.previous else "an install of"
            if self.pending == current != self.current:
                return f"{verb} {self.pending} was interrupted right after its commit; it is active"
            serving = f"{current} stays active" if current else "nothing is active: install again"
            return f"{verb} {self.pending} was interrupted; {serving}"
        if self.current == current:
            return None
        if current is None:
            return f"an uninstall of {self.current} was interrupted, or `current` was removed by hand"
        return f"`current` was changed from {self.current or 'no release'} to {current} outside an install"


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
            "there is no default prefix",
            why="HOME is not set, and only root installs into /opt",
            fix="give a folder: install --prefix FOLDER",
        )
    return Path(home) / ".local" / "share" / "edgepack" / name


@contextlib.contextmanager
def lock(prefix: Prefix) -> Iterator[None]:
    """Hold the prefix lock. The kernel releases it when the process ends.

    Raises:
        EnvironmentUnfitError: another process holds it, or the lock file cannot be written.
    """
    with os_errors(f"the prefix {prefix.root} cannot be written"):
        descriptor = os.open(prefix.lock_file, _LOCK_FLAGS, _LOCK_MODE)
    try:
        _take(descriptor, prefix)
        with os_errors(f"the prefix {prefix.root} cannot be written"):
            held = os.fstat(descriptor)
            if not os.path.lexists(prefix.lock_file) or not os.path.samestat(held, os.lstat(prefix.lock_file)):
                raise EnvironmentUnfitError(  # another process may hold a new lock file
                    f"an uninstall in {prefix.root} ended just now", why="it removed the lock file", fix="try again"
                )
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode("ascii"))
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, prefix: Prefix) -> None:
    for attempt in range(_LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if attempt == _LOCK_ATTEMPTS - 1:
                raise EnvironmentUnfitError(
                    f"another install or tuning in {prefix.root} is running",
                    why=f"process {_holder(descriptor)} holds {prefix.lock_file}",
                    fix="wait for it to end, then try again",
                ) from error
        time.sleep(_LOCK_PAUSE_S)


def _holder(descriptor: int) -> str:
    try:
        written = os.read(descriptor, 32).strip()
    except OSError:  # an empty pipe
        return "unknown"
    return written.decode("ascii") if written.isdigit() else "unknown"


def is_locked(prefix: Prefix) -> Optional[bool]:
    """Whether an install or a tuning is running; None if this user cannot read the lock."""
    try:
        descriptor = os.open(prefix.lock_file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
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
        BundleInvalidError: it is damaged.
        EnvironmentUnfitError: it cannot be read.
    """
    from edgepack_runtime.bundle.manifest import NAME, RELEASE_ID  # not needed for predictions
    from edgepack_runtime.bundle.verify import repair

    try:
        document = json.loads(read_regular(prefix.state_file).decode("utf-8"))
        if document.pop("state_format") != STATE_FORMAT:
            raise ValueError("it was written by another version")
        # A newer release, rolled back since, may have written more fields.
        known = {field.name for field in dataclasses.fields(State)}
        state = State(**{key: value for key, value in document.items() if key in known})
        if not isinstance(state.name, str) or not NAME.match(state.name):  # becomes a file name
            raise ValueError(f"{state.name!r} is not a name of a bundle")
        for value in (state.current, state.previous, state.pending):
            if value is not None and not RELEASE_ID.match(value):
                raise ValueError(f"{value!r} is not a release id")
        for number in (state.sequence, state.minimum_sequence, state.bundle_bytes):
            if number is not None and (type(number) is not int or number < 0):
                raise ValueError(f"{number!r} is neither a sequence number nor a size")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EnvironmentUnfitError(
            f"{prefix.state_file} cannot be read", why=error.strerror or str(error), fix="run as a user who may read it"
        ) from error
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise BundleInvalidError(f"{prefix.state_file} is damaged", why=str(error), fix=repair(prefix.root)) from error
    return state


def write_state(prefix: Prefix, state: State) -> None:
    """Replace `state.json` atomically and durably."""
    document = {"state_format": STATE_FORMAT, **dataclasses.asdict(state)}
    write_atomic(prefix.state_file, (json.dumps(document, indent=1, sort_keys=True) + "\n").encode("utf-8"))


def max_known(one: Optional[int], other: Optional[int]) -> Optional[int]:
    """The larger of two numbers, of which either may be unknown."""
    known = [number for number in (one, other) if number is not None]
    return max(known) if known else None


# Allowed in a prefix before its first install: keys are best added by then.
_BEFORE_INSTALL = {SIGNERS_NAME, REVOKED_NAME, _RECEIPTS}
# Names that `util.fs` makes. Not the receipts of `gate`, which holds no lock and may be writing one.
_TEMPORARY = re.compile(r"\.(current|(?![0-9]{6,12}-gate\.).+\.[0-9a-f]{12})\.tmp\Z")
KEY_FILES = (SIGNERS_NAME, REVOKED_NAME)
# Files about the device rather than a release: they stay after an uninstall.
RECORDS = {_RECEIPTS, _STATE_NAME, *KEY_FILES}


def require_install(prefix: Prefix, wanted: Optional[str]) -> str:
    """The name of the bundle that is installed in `prefix`.

    Args:
        wanted: the expected name; None accepts any.

    Raises:
        EnvironmentUnfitError: nothing is installed there, one of its folders is a link, or it cannot be read.
        UsageError: the folder holds no install, or one of another bundle.
    """
    found = entries(prefix)
    _refuse_links(prefix)
    if found <= RECORDS - {_STATE_NAME}:
        raise nothing_installed(prefix)
    name = _owner(prefix)
    if name is None:
        raise UsageError(
            f"the prefix {prefix.root} holds no install",
            why=f"it holds {', '.join(sorted(found)[:3])}, but no state.json or `current` of an install",
            fix="give the folder of an install: --prefix FOLDER",
        )
    if wanted is not None and name != wanted:
        raise UsageError(
            f"the prefix {prefix.root} holds another bundle, {name}",
            fix=f"give the folder of {wanted}: --prefix FOLDER",
        )
    return name


def check_owner(prefix: Prefix, name: Optional[str]) -> None:
    """Check that `prefix` holds nothing but installs of the bundle `name` (None: of any bundle).

    Raises:
        UsageError: the folder holds other files, or another bundle.
        EnvironmentUnfitError: one of its folders is a link, or it cannot be read.
    """
    found = entries(prefix)
    _refuse_links(prefix)
    owner = _owner(prefix)
    # A damaged state.json is that of an install only beside what else an install leaves.
    lost = _STATE_NAME in found and (prefix.current.is_symlink() or prefix.receipts.is_dir())
    if owner is None and not lost and found - _BEFORE_INSTALL:
        raise UsageError(
            f"the prefix {prefix.root} is not empty and holds no install",
            why=f"it holds {', '.join(sorted(found)[:3])}; an install owns its whole prefix",
            fix="give a folder that is empty or does not exist: install --prefix FOLDER",
        )
    if owner is not None and name is not None and owner != name:
        raise UsageError(
            f"the prefix {prefix.root} holds another bundle, {owner}",
            fix=f"give another folder for {name}: install --prefix FOLDER",
        )


def _refuse_links(prefix: Prefix) -> None:
    """Old releases, staged files and the launcher would be removed or replaced wherever a link leads."""
    links = [folder.name for folder in prefix.folders if folder.is_symlink()]
    if links:
        raise EnvironmentUnfitError(
            f"{prefix.root} holds links where an install has folders: {', '.join(links)}",
            why="their targets may be shared, so that nothing is written or removed there",
            fix="remove those links, and their targets if nothing else uses them; or choose another prefix",
        )


def entries(prefix: Prefix) -> Set[str]:
    """Names of the files and folders in `prefix`, without its lock and without partial files of a killed process."""
    with os_errors(f"the prefix {prefix.root} cannot be used"):
        names = {entry.name for entry in prefix.root.iterdir()} if prefix.root.exists() else set()
    return {name for name in names if name != _LOCK_NAME and not _TEMPORARY.match(name)}


def _owner(prefix: Prefix) -> Optional[str]:
    """The name in state.json, or in the manifest of the active release if state.json is lost or damaged."""
    from edgepack_runtime.bundle import verify

    with contextlib.suppress(BundleInvalidError):
        state = read_state(prefix)
        if state is not None:
            return state.name
    current = prefix.current_id()
    with contextlib.suppress(EdgepackError):
        if current is not None:
            return verify.read_manifest(prefix.releases / current)[0].name
    return None


def nothing_installed(prefix: Prefix) -> EnvironmentUnfitError:
    """The error for a prefix without a release."""
    return EnvironmentUnfitError(message("error.not_installed", prefix=prefix.root), fix=message("error.give_prefix"))


def clear_temporary(prefix: Prefix) -> None:
    """Remove partial files of a killed process. The caller holds the lock.

    Raises:
        OSError: they cannot be removed.
    """
    inside = (prefix.receipts, prefix.interpreters, prefix.tuning, prefix.bin, prefix.root / "systemd")
    for folder in (prefix.root, *inside):
        for path in list(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else ():
            if _TEMPORARY.match(path.name):
                remove_tree(path)
