"""Verify every byte of a bundle file or an unpacked release against its manifest."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from edgepack_runtime.bundle import interpreter, onnx_file
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.archive import Archive, Member
from edgepack_runtime.bundle.manifest import MACHINES, RELEASE_ID, FileEntry, Interpreter, Manifest
from edgepack_runtime.errors import BundleInvalidError, UsageError
from edgepack_runtime.messages import message
from edgepack_runtime.util.fs import open_regular, os_errors, walk
from edgepack_runtime.util.hashing import CHUNK_BYTES

_SHOWN = 5  # damaged files in one message


@dataclasses.dataclass(frozen=True)
class Damage:
    """A file of a release that differs from the manifest: POSIX path, reason, and whether it is listed."""

    path: str
    why: str
    listed: bool


def verify_file(path: Path) -> Tuple[Manifest, bytes]:
    """Verify a bundle file; return its manifest and the manifest's bytes.

    Raises:
        UsageError: `path` is not a file.
        EnvironmentUnfitError: it cannot be opened.
        BundleInvalidError: a member or region is damaged; the message names the first.
    """
    with Archive(path) as archive:
        return verify_archive(archive)


def read_signed_manifest(archive: Archive) -> Tuple[bytes, Optional[bytes]]:
    """The bytes of the manifest, not parsed, and of its signature, if any.

    Raises:
        BundleInvalidError: one of them is too large, or the signature is not an SSH signature.
    """
    raw = archive.read(contract.MANIFEST_NAME, contract.MAX_MANIFEST_BYTES)
    if contract.SIGNATURE_NAME not in archive.members:
        return raw, None
    signature = archive.read(contract.SIGNATURE_NAME, contract.MAX_SIGNATURE_BYTES)
    try:
        _parse_signature(signature)
    except ValueError as error:
        raise archive.damaged(
            message("error.member", path=contract.SIGNATURE_NAME), f"it is not an SSH signature: {error}"
        ) from error
    return raw, signature


def verify_archive(archive: Archive, raw: Optional[bytes] = None) -> Tuple[Manifest, bytes]:
    """`verify_file` for an open bundle.

    Args:
        raw: the manifest as `read_signed_manifest` returned it; a disk may return other bytes on a second read.
    """
    if raw is None:
        raw, _ = read_signed_manifest(archive)
    manifest = contract.parse(raw)
    if hashlib.sha256(archive.stub()).hexdigest() != manifest.stub_sha256:
        raise archive.damaged("the stub", "its sha256 differs from the manifest")
    packed = interpreter.listed(manifest)
    inside = tuple(interpreter.folder(one.machine) for one in packed.values())
    members = {entry.path: entry for entry in manifest.files if not entry.path.startswith(inside)}
    members.update({name: FileEntry(name, one.size, one.sha256) for name, one in packed.items()})
    for path in archive.members:
        if path not in members and path not in (contract.MANIFEST_NAME, contract.SIGNATURE_NAME):
            raise archive.damaged(message("error.member", path=path), "the manifest does not list it")
    budget = onnx_file.Budget()  # of all graphs together
    for path, entry in members.items():
        member = archive.members.get(path)
        if member is None:
            raise archive.damaged(message("error.member", path=path), "the manifest lists it, but it is missing")
        _verify_member(archive, member, entry, budget)
    for one in packed.values():
        _verify_interpreter(archive, one, manifest)
    archive.check_digest()
    return manifest, raw


def _verify_interpreter(archive: Archive, packed: Interpreter, manifest: Manifest) -> None:
    for entry, chunks in interpreter.contents(archive, packed, manifest):
        digest = hashlib.sha256()
        for data in chunks:
            digest.update(data)
        if digest.hexdigest() != entry.sha256:
            raise archive.damaged(
                message("error.member", path=packed.member), f"the sha256 of {entry.path} differs from the manifest"
            )


def _verify_member(archive: Archive, member: Member, entry: FileEntry, budget: onnx_file.Budget) -> None:
    region = message("error.member", path=entry.path)
    if member.size != entry.size:
        raise archive.damaged(region, f"it has {member.size} bytes; the manifest lists {entry.size}")
    digest = hashlib.sha256()
    content = _hashed(archive.chunks(member), digest)
    error = _model_error(content, entry.size, budget) if entry.path.endswith(".onnx") else ""
    for _ in content:  # hash the rest
        pass
    if digest.hexdigest() != entry.sha256:
        raise archive.damaged(region, "its sha256 differs from the manifest")
    if error:
        raise archive.damaged(region, error)


def _model_error(content: Iterator[bytes], size: int, budget: onnx_file.Budget) -> str:
    """Why a bundle may not hold this model, or an empty string."""
    try:
        self_contained = onnx_file.is_self_contained(content, size, budget)
    except onnx_file.TooManyFieldsError:
        return f"the graphs up to this one have more than {onnx_file.MOST_FIELDS} fields, too many to look through"
    except ValueError as error:
        return f"it is not an ONNX model: {error}"
    return "" if self_contained else "it refers to an external data file, which the manifest does not list"


def _hashed(chunks: Iterator[bytes], digest: hashlib._Hash) -> Iterator[bytes]:
    for data in chunks:
        digest.update(data)
        yield data


def verify_folder(path: Path, raw: Optional[bytes] = None) -> Tuple[Manifest, bytes]:
    """Verify an unpacked or installed release; return its manifest and the manifest's bytes.

    Args:
        raw: the manifest as `read_manifest_bytes` returned it.

    Raises:
        UsageError: `path` is not a folder.
        EnvironmentUnfitError: it cannot be read.
        BundleInvalidError: files are missing, changed or not listed; the message names them.
    """
    manifest, raw = read_manifest(path, raw)
    with os_errors(f"the release {path} cannot be read"):
        damage = find_damage(path, manifest)
    if damage:
        raise _damaged(path, damage, repair(_prefix_around(path)))
    return manifest, raw


def repair(prefix: Optional[Path]) -> str:
    """The command that repairs a release in `prefix`, None if that is unknown. The release may be unable to run it."""
    import shlex  # not needed for predictions

    root = "PREFIX" if prefix is None else shlex.quote(str(prefix))
    return message("error.install_again", root=root)


def _prefix_around(release: Path) -> Optional[Path]:
    releases = Path(os.path.realpath(release)).parent
    return releases.parent if releases.name == "releases" else None


def _damaged(folder: Path, damage: List[Damage], fix: str) -> BundleInvalidError:
    first = damage[0]
    more = [f"{d.path}: {d.why}" for d in damage[1:_SHOWN]]
    if len(damage) > _SHOWN:
        more.append(f"and {len(damage) - _SHOWN} more")
    return BundleInvalidError(
        message("error.release_damaged", folder=str(folder), path=first.path, why=first.why),
        why="; ".join(more),
        fix=fix,
    )


def verify_staged(folder: Path, manifest: Manifest, raw: bytes, signature: Optional[bytes]) -> None:
    """Verify a release that was just unpacked against the verified manifest and signature in memory.

    Raises:
        BundleInvalidError: a file differs; the message names it.
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
        raise _damaged(folder, damage, "copy the bundle again, and check this disk")


def read_signature(folder: Path) -> Optional[bytes]:
    """The signature of an unpacked release, at most one byte more than allowed; None without one.

    Raises:
        EnvironmentUnfitError: it cannot be read.
    """
    path = folder / contract.SIGNATURE_NAME
    with os_errors(f"the release {folder} cannot be read"):
        try:
            with open_regular(path) as file:
                return file.read(contract.MAX_SIGNATURE_BYTES + 1)
        except FileNotFoundError:
            return None


def read_manifest_bytes(folder: Path) -> bytes:
    """The bytes of the manifest of an unpacked release, not parsed.

    Raises:
        UsageError: `folder` is not a folder.
        BundleInvalidError: the manifest is missing.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no release folder {folder}")
    path = folder / contract.MANIFEST_NAME
    try:
        with open_regular(path) as file:
            return file.read(contract.MAX_MANIFEST_BYTES + 1)
    except OSError as error:
        raise BundleInvalidError(
            f"the release {folder} is damaged: {contract.MANIFEST_NAME} cannot be read",
            why=error.strerror or str(error),
            fix=repair(_prefix_around(folder)),
        ) from error


def read_manifest(folder: Path, raw: Optional[bytes] = None) -> Tuple[Manifest, bytes]:
    """The manifest of an unpacked release and its bytes. A folder named by release id must match the manifest.

    Args:
        raw: the bytes, where they were read before.

    Raises:
        UsageError: `folder` is not a folder.
        BundleInvalidError: the manifest is missing or damaged, or does not match the folder's name.
    """
    if raw is None:
        raw = read_manifest_bytes(folder)
    manifest = contract.parse(raw)
    # The folder's name holds the manifest's digest: the only check of an unpacked manifest without a signature.
    name = Path(os.path.realpath(folder)).name
    if RELEASE_ID.match(name) and name != contract.release_id(manifest, raw):
        raise BundleInvalidError(
            f"the release {folder} is damaged: {contract.MANIFEST_NAME}",
            why="its sha256 differs from the folder's name",
            fix=repair(_prefix_around(folder)),
        )
    return manifest, raw


def find_damage(folder: Path, manifest: Manifest, *, hashed: bool = True) -> List[Damage]:
    """All files in `folder` that differ from `manifest` or are not listed.

    Of a bundle for several machines, a release holds the files of one.

    Args:
        hashed: whether to compare the content of files, or else only their sizes.

    Raises:
        OSError: a folder cannot be listed.
    """
    machine = next((name for name in MACHINES if (folder / name).is_dir()), platform.machine())
    listed = {entry.path: entry for entry in manifest.files_for(machine)}
    folders = {parent for path in listed for parent in _parents(path)}
    damage: List[Damage] = []
    seen = set()
    for path, kind in walk(folder):
        if path == contract.MANIFEST_NAME and kind == "file":
            continue  # `read_manifest` compares it with the release id
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
            damage.extend(_compare(folder, listed[path], hashed=hashed))
    damage.extend(Damage(path, "is missing", listed=True) for path in listed if path not in seen)
    return sorted(damage, key=lambda d: d.path)


def _check_signature(folder: Path) -> Iterator[Damage]:
    """Check only the format of the signature; trust.py verifies it."""
    try:
        raw = read_signature(folder)
        if raw is None or len(raw) > contract.MAX_SIGNATURE_BYTES:
            raise ValueError("it is too large")
        _parse_signature(raw)
    except ValueError as error:
        yield Damage(contract.SIGNATURE_NAME, f"is not an SSH signature: {error}", listed=False)


def _parse_signature(raw: bytes) -> None:
    from edgepack_runtime.bundle import sshsig  # not needed for predictions

    sshsig.parse_signature(raw)


def _compare(folder: Path, entry: FileEntry, *, hashed: bool) -> Iterator[Damage]:
    digest = hashlib.sha256()
    try:
        size = (folder / entry.path).stat().st_size
        if hashed and size == entry.size:  # a file of another size, which may be huge, is not read
            size = 0
            with (folder / entry.path).open("rb") as file:
                while size <= entry.size and (data := file.read(CHUNK_BYTES)):
                    digest.update(data)
                    size += len(data)
    except OSError as error:
        yield Damage(entry.path, f"cannot be read: {error.strerror or error}", listed=True)
        return
    if size != entry.size:
        yield Damage(entry.path, f"has {size} bytes instead of {entry.size}", listed=True)
    elif hashed and digest.hexdigest() != entry.sha256:
        yield Damage(entry.path, "its content has changed", listed=True)
    elif interpreter.is_executable(entry.path) and not os.access(folder / entry.path, os.X_OK):
        yield Damage(entry.path, "may not be executed", listed=True)


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rsplit("/", 1)[0]
        yield path
