"""What a device keeps of bundles that were gated on it over SSH (sent there; standard library, Python >= 3.8).

    <root>/releases/<id>/         a release as an install would unpack it; whole, once it lies here
    <root>/releases/.tmp/<id>/    one that is being put together
    <root>/incoming/              beginnings of large files, so that a link that broke off goes on where it was
    <root>/cache/                 bytecode
    <root>/.lock                  held by whoever gates: two at once would disturb each other's times

Nothing in it is believed: every byte of a release is hashed against the manifest each time before any of it runs.
Files are told apart by their sha256. What releases here, or installed ones, have already is linked or copied.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import io
import os
import shutil
import stat
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from edgepack.targets.remote_files import Got, Read, copy, has_size, unpack, write
from edgepack.targets.remote_room import evict, freed_bytes, identities, left, parts, releases
from edgepack_runtime import doctor, verify
from edgepack_runtime import manifest as contract
from edgepack_runtime.durable import FOLDER_MODE, remove_tree
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError
from edgepack_runtime.hashing import CHUNK_BYTES
from edgepack_runtime.manifest import FileEntry, Manifest
from edgepack_runtime.state import Prefix

KEPT = 2  # releases of one bundle and target: the newest, and the one before for what they have in common
RESUMED_BYTES = 256 * 1024  # of smaller files no beginning is kept
_FOLDER = "edgepack-gate"
_SYSTEM_TEMPORARY = ("/var/tmp", "/tmp")


def candidates(asked: Optional[str]) -> List[Path]:
    """Folders to keep things in, best first: the one that was `asked` for and no other, or the usual ones."""
    if asked:
        return [Path(os.path.expanduser(asked)).absolute() / _FOLDER]  # noqa: PTH111 - Path.expanduser raises
    bases = [os.environ.get("XDG_CACHE_HOME", "")]
    bases += [f"{os.environ['HOME']}/.cache"] if os.environ.get("HOME", "").startswith("/") else []
    found = [Path(base) / _FOLDER for base in bases if base.startswith("/")]
    shared = [os.environ.get("TMPDIR", ""), *_SYSTEM_TEMPORARY]
    return found + [Path(base) / f"{_FOLDER}-{os.geteuid()}" for base in shared if base.startswith("/")]


class Store:
    """One such folder, for one bundle: `open` finds it, `stage` says what is missing, `check` proves it whole."""

    def __init__(self, root: Path, manifest: Manifest, raw: bytes, signature: Optional[bytes]) -> None:
        self.prefix = Prefix(root)
        self.manifest, self._raw, self._signature = manifest, raw, signature
        self.release = self.prefix.releases / contract.release_id(manifest, raw)
        self.staging = self.prefix.staging / self.release.name
        self._incoming = root / "incoming"
        self.removed: List[str] = []  # what went to make room

    @classmethod
    def open(
        cls,
        asked: Optional[str],
        manifest: Manifest,
        raw: bytes,
        signature: Optional[bytes],
        others: Sequence[Path],
    ) -> Store:
        """The first folder that may be written, can hold libraries, and has, or can be given, room for what it lacks.

        Args:
            others: folders that hold releases, of installs.

        Raises:
            EnvironmentUnfitError: there is none, with the reason for each.
        """
        refused = []
        for root in candidates(asked):
            store = cls(root, manifest, raw, signature)
            try:
                why = store._unfit(others)
            except OSError as error:
                why = f"{root}: {error.strerror or error}"
            if not why:
                return store
            refused.append(why)
        raise EnvironmentUnfitError(
            "there is no place on the device for the bundle",
            why="; ".join(dict.fromkeys(refused)) or "neither HOME nor a folder for temporary files is there",
            fix="free some space there, or name a folder with --remote-cache",
        )

    def _unfit(self, others: Sequence[Path]) -> str:
        place = doctor.existing_parent(self.prefix.root)
        found = _known([self.prefix.releases])
        needed = self._needed_bytes(found, [folder for folder in (self.staging, self.release) if folder.is_dir()])
        space = doctor.check_space(place, needed)
        if not space.ok:
            used = identities(found[entry.sha256] for entry in self.manifest.files if entry.sha256 in found)
            if doctor.check_space(place, needed - freed_bytes(self._left(), used)).ok:
                space = dataclasses.replace(space, ok=True)  # `stage` makes it, once nobody else uses what lies there
        checks = [doctor.check_writable(place), doctor.check_executable(place), space]
        wrong = [check.what for check in checks if not check.ok]
        if wrong:
            return "; ".join(wrong)
        with contextlib.suppress(FileExistsError):
            os.makedirs(self.prefix.root.parent, mode=0o700, exist_ok=True)  # noqa: PTH103 - as mkdir(parents)
            self.prefix.root.mkdir(mode=0o700)
        found_there = self.prefix.root.lstat()
        if not stat.S_ISDIR(found_there.st_mode) or found_there.st_uid != os.geteuid() or found_there.st_mode & 0o022:
            return f"{self.prefix.root} is no folder that this user alone may write"
        return ""

    def _needed_bytes(self, known: Mapping[str, Path], here: Sequence[Path]) -> int:
        """Room for content that is neither `known` nor lies in a folder of `here`, and to unpack the largest."""
        lacking = {
            entry.sha256: entry.size
            for entry in self.manifest.files
            if entry.sha256 not in known and not any(has_size(folder / entry.path, entry.size) for folder in here)
        }
        return sum(lacking.values()) + max(lacking.values(), default=0)

    def _left(self) -> List[Path]:
        """What earlier gates left and this one has no use for, oldest first."""
        ours = {entry.sha256 for entry in self.manifest.files}
        begun = [path for digest, (_, _, path) in parts(self._incoming).items() if digest in ours]
        return left(self.prefix, self._incoming, [self.release, self.staging, *begun])

    @contextlib.contextmanager
    def locked(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold the lock; `waiting` is called again and again as long as somebody else does, and pauses."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self.prefix.lock_file, flags, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    waiting()
            yield
        finally:
            os.close(descriptor)

    def stage(self, others: Sequence[Path]) -> List[int]:
        """Put together what is here; the numbers of the manifest's files that are not, each content once.

        Where there is no room for those, the oldest of what earlier gates left is `removed`.

        Raises:
            EnvironmentUnfitError: there is no room with all of that gone.
        """
        if self.release.is_dir() and not self.staging.exists():
            self._make(self.staging.parent)
            self.release.rename(self.staging)  # until it is proven whole once more
        self._make(self.staging)
        self._take_all(_known([self.prefix.releases]), self._link)  # links: they stay, whatever is removed
        self._make_room()
        self._take_all(_known([self.prefix.releases, *others]), self._copy)  # of ours, where there are no links
        return self.missing()

    def _make_room(self) -> None:
        needed = self._needed_bytes({}, [self.staging])
        if needed:
            self.removed = evict(self.prefix, self._left(), lambda: doctor.check_space(self.prefix.root, needed).ok)
            doctor.require([doctor.check_space(self.prefix.root, needed)])

    def _take_all(self, known: Mapping[str, Path], take: Callable[[Path, FileEntry], object]) -> None:
        for entry in self.manifest.files:
            source = known.get(entry.sha256)
            if source is not None and not has_size(self.staging / entry.path, entry.size):
                take(source, entry)

    def missing(self) -> List[int]:
        """Numbers of files that do not lie in the staged release, each content once."""
        found: Dict[str, int] = {}
        for number, entry in enumerate(self.manifest.files):
            if not has_size(self.staging / entry.path, entry.size):
                found.setdefault(entry.sha256, number)
        return sorted(found.values())

    def begun(self, numbers: Sequence[int]) -> Dict[int, Tuple[int, int, int]]:
        """Of those files that came in part: how they were packed, their packed size, and how much of it is here."""
        there = parts(self._incoming)
        found = {number: there.get(self.manifest.files[number].sha256) for number in numbers}
        return {number: (part[0], part[1], part[2].stat().st_size) for number, part in found.items() if part}

    def receive(self, number: int, method: int, size: int, offset: int, read: Read, got: Got) -> None:
        """Take the packed bytes of a file from `offset` to `size`; what is not as listed is dropped.

        Raises:
            GoneError: they ended too early. What came of a large file is kept.
        """
        entry = self.manifest.files[number]
        target = self._fresh(entry)
        if size < RESUMED_BYTES:
            packed = io.BytesIO()
            copy(read, packed, size, got)
            unpack(packed, method, entry, target)
        else:
            self._make(self._incoming)
            part = self._incoming / f"{entry.sha256}.{method}.{size}.part"
            with part.open("r+b" if offset else "w+b") as file:
                file.seek(offset)
                file.truncate()
                copy(read, file, size - offset, got)
                unpack(file, method, entry, target)
            part.unlink()
        if not target.exists():
            return
        for other in self.manifest.files:
            if other.sha256 == entry.sha256 and other.path != entry.path and not self._link(target, other):
                self._copy(target, other)

    def check(self) -> List[int]:
        """Hash every file of the staged release; it is in its place when nothing is returned.

        Returns:
            Numbers of files that are missing or were not as the manifest lists them; the latter are removed.
        """
        for name, content in ((contract.MANIFEST_NAME, self._raw), (contract.SIGNATURE_NAME, self._signature)):
            remove_tree(self.staging / name)
            if content is not None:
                write(self.staging / name, iter([content]))
        for damage in verify.find_damage(self.staging, self.manifest):
            if damage.path == contract.SIGNATURE_NAME:
                raise BundleInvalidError(f"the bundle's signature {damage.why}")
            remove_tree(self.staging / damage.path)
        missing = self.missing()
        if not missing:  # what is listed was hashed just now, and what is not is gone
            remove_tree(self.release)
            self.staging.rename(self.release)
            os.utime(self.release)
            # Python runs bytecode instead of the files that were checked.
            remove_tree(self.prefix.bytecode_of(self.release))
        return missing

    def tidy(self, *, everything: bool) -> None:
        """Remove what is not worth its room: all but the newest releases, or all that was ever kept here."""
        if everything:
            for path in (self.prefix.releases, self._incoming, self.prefix.root / "cache"):
                remove_tree(path)
            return
        same = []
        for release in releases(self.prefix.releases):
            with contextlib.suppress(EdgepackError):
                other, _ = verify.read_manifest(release)
                if (other.name, other.target.profile) != (self.manifest.name, self.manifest.target.profile):
                    continue
            same.append(release)
        same.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for old in same[KEPT:]:
            remove_tree(old)
            remove_tree(self.prefix.bytecode_of(old))
        for begun in (self.prefix.staging, self._incoming):  # of others whose link broke off: they may come again
            left = sorted(begun.glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
            for old in left[KEPT:]:
                remove_tree(old)

    def _fresh(self, entry: FileEntry) -> Path:
        """Where `entry` goes, with nothing there and its folders made."""
        path = self.staging / entry.path
        self._make(path.parent)
        remove_tree(path)
        return path

    def _link(self, source: Path, entry: FileEntry) -> bool:
        """Have what lies at `source` as `entry` too, if this file system has links.

        Only what is ours is linked: nobody else may change what is here.
        """
        path = self._fresh(entry)
        try:
            os.link(source, path)
        except OSError:
            return False
        return True

    def _copy(self, source: Path, entry: FileEntry) -> None:
        path = self._fresh(entry)
        try:
            with source.open("rb") as file:
                write(path, iter(lambda: file.read(CHUNK_BYTES), b""))
        except OSError:
            remove_tree(path)  # it is asked for instead
            if shutil.disk_usage(self.staging).free < entry.size:
                raise

    def _make(self, folder: Path) -> None:
        """Make `folder`, and those above it up to the root, each a folder and no link."""
        if folder != self.prefix.root:
            self._make(folder.parent)
            if folder.is_symlink() or not folder.is_dir():
                remove_tree(folder)
                folder.mkdir(mode=FOLDER_MODE)


def _known(folders: Sequence[Path]) -> Dict[str, Path]:
    """Where the content with a sha256 lies, as the manifests of the releases in `folders` tell; nothing is hashed."""
    found: Dict[str, Path] = {}
    for release in (release for folder in folders for release in releases(folder)):
        try:
            manifest, _ = verify.read_manifest(release)
        except EdgepackError:
            continue  # not one that anything could be taken from
        for entry in manifest.files:
            if entry.sha256 not in found and has_size(release / entry.path, entry.size):
                found[entry.sha256] = release / entry.path
    return found
