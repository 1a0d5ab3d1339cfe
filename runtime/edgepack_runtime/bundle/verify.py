"""Integrity of a bundle file and of an unpacked release, byte for byte (standard library only)."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle import onnx_file
from edgepack_runtime.bundle.archive import Archive, Member
from edgepack_runtime.bundle.manifest import RELEASE_ID, FileEntry, Manifest
from edgepack_runtime.errors import BundleInvalidError, UsageError
from edgepack_runtime.util.fs import os_errors
from edgepack_runtime.util.hashing import CHUNK_BYTES

_ONNX = ".onnx"
_SHOWN = 5  # damaged files named in one message; `find_damage` returns all


@dataclasses.dataclass(frozen=True)
class Damage:
    """One file of a release that is not as the manifest says: POSIX path, reason, and whether it is listed."""

    path: str
    why: str
    listed: bool


def verify_file(path: Path) -> Tuple[Manifest, bytes]:
    """Check every byte of a bundle file; return its manifest and the manifest's bytes.

    Raises:
        UsageError: `path` is no file.
        EnvironmentUnfitError: it may not be read.
        BundleInvalidError: naming the first member or region that is not exactly as the writer wrote it.
    """
    with Archive(path) as archive:
        return verify_archive(archive)


def read_signed_manifest(archive: Archive) -> Tuple[bytes, Optional[bytes]]:
    """The manifest's bytes and those of its signature, None where it has none; read once, and not parsed yet.

    Raises:
        BundleInvalidError: one of them is too large, or the signature is none.
    """
    raw = archive.read(contract.MANIFEST_NAME, contract.MAX_MANIFEST_BYTES)
    if contract.SIGNATURE_NAME not in archive.members:
        return raw, None
    signature = archive.read(contract.SIGNATURE_NAME, contract.MAX_SIGNATURE_BYTES)
    try:
        _parse_signature(signature)
    except ValueError as error:
        raise archive.damaged(f"member {contract.SIGNATURE_NAME}", f"it is no SSH signature: {error}") from error
    return raw, signature


def verify_archive(archive: Archive, raw: Optional[bytes] = None) -> Tuple[Manifest, bytes]:
    """`verify_file` for a bundle that is open already.

    Args:
        raw: the manifest as `read_signed_manifest` returned it; a disk may return other bytes on a second read.
    """
    if raw is None:
        raw, _ = read_signed_manifest(archive)
    manifest = contract.parse(raw)
    listed: Dict[str, FileEntry] = {entry.path: entry for entry in manifest.files}
    for path in archive.members:
        if path not in listed and path not in (contract.MANIFEST_NAME, contract.SIGNATURE_NAME):
            raise archive.damaged(f"member {path}", "the manifest does not list it")
    for path, entry in listed.items():
        member = archive.members.get(path)
        if member is None:
            raise archive.damaged(f"member {path}", "the manifest lists it, and it is missing")
        _verify_member(archive, member, entry)
    archive.check_digest()
    return manifest, raw


def _verify_member(archive: Archive, member: Member, entry: FileEntry) -> None:
    region = f"member {entry.path}"
    if member.size != entry.size:
        raise archive.damaged(region, f"it has {member.size} bytes; the manifest lists {entry.size}")
    digest = hashlib.sha256()
    content = _hashed(archive.chunks(member), digest)
    foreign = _foreign(content, entry.size) if entry.path.endswith(_ONNX) else ""
    for _ in content:  # what is left of it
        pass
    if digest.hexdigest() != entry.sha256:
        raise archive.damaged(region, "its content is not what the manifest lists")
    if foreign:
        raise archive.damaged(region, foreign)


def _foreign(content: Iterator[bytes], size: int) -> str:
    """Why a model is none that a bundle may hold."""
    try:
        alone = onnx_file.is_self_contained(content, size)
    except ValueError as error:
        return f"it is no ONNX model: {error}"
    return "" if alone else "it refers to a file outside of itself, which nobody has checked"


def _hashed(chunks: Iterator[bytes], digest: hashlib._Hash) -> Iterator[bytes]:
    for data in chunks:
        digest.update(data)
        yield data


def verify_folder(path: Path) -> Tuple[Manifest, bytes]:
    """Check every file of an unpacked or installed release; return its manifest and the manifest's bytes.

    Raises:
        UsageError: `path` is no folder.
        EnvironmentUnfitError: it may not be read.
        BundleInvalidError: naming the files that are missing, different, or not listed.
    """
    manifest, raw = read_manifest(path)
    with os_errors(f"the release {path} cannot be read"):
        damage = find_damage(path, manifest)
    if damage:
        raise _damaged(path, damage, "install the bundle again: it repairs a damaged release")
    return manifest, raw


def _damaged(folder: Path, damage: List[Damage], fix: str) -> BundleInvalidError:
    first = damage[0]
    more = [f"{d.path}: {d.why}" for d in damage[1:_SHOWN]]
    if len(damage) > _SHOWN:
        more.append(f"and {len(damage) - _SHOWN} more")
    return BundleInvalidError(
        f"the release {folder} is damaged: {first.path}: {first.why}", why="; ".join(more), fix=fix
    )


def verify_staged(folder: Path, manifest: Manifest, raw: bytes, signature: Optional[bytes]) -> None:
    """Check every file of a release that was just unpacked against what was verified before, which we still hold.

    Raises:
        BundleInvalidError: naming the first file that is not as it was verified.
        EnvironmentUnfitError: it cannot be read.
    """
    _, found = read_manifest(folder)
    with os_errors(f"the release {folder} cannot be read"):
        damage = find_damage(folder, manifest)
    if found != raw:
        damage.insert(0, Damage(contract.MANIFEST_NAME, "its content has changed", listed=False))
    if read_signature(folder) != signature:
        damage.insert(0, Damage(contract.SIGNATURE_NAME, "its content has changed", listed=False))
    if damage:
        raise _damaged(folder, damage, "copy the bundle again, and look at this disk")


def read_signature(folder: Path) -> Optional[bytes]:
    """The signature in an unpacked release, of at most one byte more than is allowed; None where it has none.

    Raises:
        EnvironmentUnfitError: it cannot be read.
    """
    path = folder / contract.SIGNATURE_NAME
    with os_errors(f"the release {folder} cannot be read"):
        try:
            with path.open("rb") as file:
                return file.read(contract.MAX_SIGNATURE_BYTES + 1)
        except FileNotFoundError:
            return None


def read_manifest(folder: Path) -> Tuple[Manifest, bytes]:
    """The manifest of an unpacked release, checked against the folder's name where that is a release id.

    Raises:
        UsageError: `folder` is no folder.
        BundleInvalidError: the manifest is missing or damaged, or the folder was made from another one.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no release folder {folder}", fix="give the path of an unpacked release")
    path = folder / contract.MANIFEST_NAME
    try:
        with path.open("rb") as file:
            raw = file.read(contract.MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise BundleInvalidError(
            f"the release {folder} is damaged: {contract.MANIFEST_NAME} cannot be read",
            why=error.strerror or str(error),
            fix="install the bundle again",
        ) from error
    manifest = contract.parse(raw)
    # The folder's name holds the manifest's digest: the one check there is on the manifest once it is unpacked.
    name = Path(os.path.realpath(folder)).name
    if RELEASE_ID.match(name) and name != contract.release_id(manifest, raw):
        raise BundleInvalidError(
            f"the release {folder} is damaged: {contract.MANIFEST_NAME}",
            why="its sha256 is not the one in the folder's name",
            fix="install the bundle again: it repairs a damaged release",
        )
    return manifest, raw


def find_damage(folder: Path, manifest: Manifest) -> List[Damage]:
    """Everything in `folder` that differs from `manifest`: each listed file is hashed, anything else is reported.

    Raises:
        OSError: a folder cannot be listed.
    """
    listed = {entry.path: entry for entry in manifest.files}
    folders = {parent for path in listed for parent in _parents(path)}
    damage: List[Damage] = []
    seen = set()
    for path, kind in _walk(folder, ""):
        if path == contract.MANIFEST_NAME and kind == "file":
            continue  # compared with the release id by whoever reads it
        if path == contract.SIGNATURE_NAME and kind == "file":
            damage.extend(_check_signature(folder))
            continue
        seen.add(path)
        if path in folders:
            if kind != "folder":
                damage.append(Damage(path, f"is a {kind} where a folder belongs", listed=False))
        elif path not in listed:
            damage.append(Damage(path, f"is a {kind} that the manifest does not list", listed=False))
        elif kind != "file":
            damage.append(Damage(path, f"is a {kind} where a file belongs", listed=True))
        else:
            damage.extend(_compare(folder, listed[path]))
    damage.extend(Damage(path, "is missing", listed=True) for path in listed if path not in seen)
    return sorted(damage, key=lambda d: d.path)


def _walk(folder: Path, inside: str) -> Iterator[Tuple[str, str]]:
    """Every entry below `folder` as (POSIX path, kind), links not followed; unlisted folders are told as such."""
    with os.scandir(folder / inside) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            path = f"{inside}/{entry.name}" if inside else entry.name
            if entry.is_symlink():
                yield path, "link"
            elif entry.is_dir():
                yield path, "folder"
                yield from _walk(folder, path)
            else:
                yield path, "file" if entry.is_file() else "special file"


def _check_signature(folder: Path) -> Iterator[Damage]:
    """Whether it is a signature at all; whether it is right, is for those who trust somebody (trust.py)."""
    try:
        raw = read_signature(folder)
        if raw is None or len(raw) > contract.MAX_SIGNATURE_BYTES:
            raise ValueError("it is too large")
        _parse_signature(raw)
    except ValueError as error:
        yield Damage(contract.SIGNATURE_NAME, f"is no SSH signature: {error}", listed=False)


def _parse_signature(raw: bytes) -> None:
    from edgepack_runtime.bundle import sshsig  # a release that answers need not read signatures

    sshsig.parse_signature(raw)


def _compare(folder: Path, entry: FileEntry) -> Iterator[Damage]:
    digest = hashlib.sha256()
    size = 0
    try:
        with (folder / entry.path).open("rb") as file:
            for data in iter(lambda: file.read(CHUNK_BYTES), b""):
                digest.update(data)
                size += len(data)
    except OSError as error:
        yield Damage(entry.path, f"cannot be read: {error.strerror or error}", listed=True)
        return
    if size != entry.size:
        yield Damage(entry.path, f"has {size} bytes instead of {entry.size}", listed=True)
    elif digest.hexdigest() != entry.sha256:
        yield Damage(entry.path, "its content has changed", listed=True)


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rsplit("/", 1)[0]
        yield path
