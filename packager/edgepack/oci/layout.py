"""The OCI image layout as a tar (image-spec 1.1): blobs by digest, layers, manifests, and the index that names them.

The same content in the same order gives the same bytes: all is of user 0, at the beginning of 1970.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Protocol

from edgepack.bundle.archive import chunks_of
from edgepack.errors import StageFailedError
from edgepack_runtime.util.fs import FILE_MODE

INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
EMPTY: Final = "application/vnd.oci.empty.v1+json"
REF_NAME: Final = "org.opencontainers.image.ref.name"  # skopeo and podman
CONTAINERD_NAME: Final = "io.containerd.image.name"  # Docker and containerd, with a host in front
_FOLDER_MODE: Final = 0o755
_WHITEOUT: Final = ".wh."  # image-spec 1.1, layer.md
_LEVEL: Final = 9


@dataclass(frozen=True)
class TarEntry:
    """A file, folder or link of a tar. `content` is read once, and has exactly `size` bytes."""

    path: str
    mode: int = FILE_MODE
    size: int = 0
    content: Iterable[bytes] = ()
    link: str | None = None
    is_folder: bool = False


@dataclass(frozen=True)
class Descriptor:
    """A blob: its media type, digest and size in bytes."""

    media_type: str
    digest: str
    size: int

    def as_json(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class ImageLayer:
    """A layer: its blob, and the digest and size in bytes of the tar in it."""

    blob: Descriptor
    diff_id: str
    unpacked_bytes: int


class ImageLayout:
    """A layout, with its blobs collected in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, media_type: str, content: bytes) -> Descriptor:
        """Add a blob."""
        digest = hashlib.sha256(content).hexdigest()
        (self._folder / digest).write_bytes(content)
        return Descriptor(media_type, f"sha256:{digest}", len(content))

    def add_json(self, media_type: str, document: Mapping[str, Any]) -> Descriptor:
        """Add a document as JSON in one form: sorted keys, no blanks."""
        return self.add(media_type, json.dumps(document, sort_keys=True, separators=(",", ":")).encode())

    def add_layer(self, entries: Iterable[TarEntry]) -> ImageLayer:
        """Add a layer of `entries`, as a tar in gzip. Folders above an entry come before it.

        Raises:
            StageFailedError: a name begins with `.wh.`.
        """
        partial = self._folder / "layer.partial"
        with partial.open("wb") as file:
            packed = _Hashed(file)
            with gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as stream:
                unpacked = _Hashed(stream)
                write_tar(unpacked, with_folders(entries))
        partial.replace(self._folder / packed.sha256.hexdigest())
        blob = Descriptor(LAYER, f"sha256:{packed.sha256.hexdigest()}", packed.size)
        return ImageLayer(blob, f"sha256:{unpacked.sha256.hexdigest()}", unpacked.size)

    def write(self, out: IO[bytes], named: Descriptor, reference: str) -> None:
        """Write the layout as a tar. Its index names one manifest or index alone: `podman load` takes no choice."""
        entry = {**named.as_json(), "annotations": {REF_NAME: reference, CONTAINERD_NAME: f"localhost/{reference}"}}
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
        entries = [
            _of_bytes("index.json", json.dumps(index, sort_keys=True).encode()),
            _of_bytes("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
        ]
        entries += [
            TarEntry(f"blobs/sha256/{blob.name}", size=blob.stat().st_size, content=chunks_of(blob))
            for blob in sorted(self._folder.iterdir())
        ]
        write_tar(out, with_folders(entries))


class Writable(Protocol):
    """A stream for writing."""

    def write(self, data: bytes, /) -> int: ...


class _Hashed(io.RawIOBase):
    """A stream for writing that counts and hashes what goes through it."""

    def __init__(self, below: Writable) -> None:
        super().__init__()
        self._below = below
        self.sha256 = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.sha256.update(data)
        self.size += len(data)
        return self._below.write(data)


def with_folders(entries: Iterable[TarEntry]) -> Iterator[TarEntry]:
    """`entries` in their order, each after the folders above it."""
    seen: set[str] = set()
    for entry in entries:
        if any(part.startswith(_WHITEOUT) for part in PurePosixPath(entry.path).parts):
            raise StageFailedError(
                f"{entry.path} cannot be in an image",
                why=f"in a layer, a name that begins with {_WHITEOUT} removes a file of the layers below",
                fix="rename the file and build the bundle again",
            )
        above = [str(parent) for parent in reversed(PurePosixPath(entry.path).parents) if str(parent) != "."]
        for path in above:
            if path not in seen:
                yield TarEntry(path, _FOLDER_MODE, is_folder=True)
        seen.update([*above, entry.path])
        yield entry


def write_tar(out: Writable, entries: Iterable[TarEntry]) -> None:
    """Write a POSIX ustar of `entries` in their order.

    Raises:
        ValueError: a path is too long for ustar, or a content has another size than its entry.
    """
    total = 0
    for entry in entries:
        info = tarfile.TarInfo(entry.path)
        info.mode, info.size = entry.mode, entry.size
        if entry.link is not None:
            info.type, info.linkname = tarfile.SYMTYPE, entry.link
        elif entry.is_folder:
            info.type = tarfile.DIRTYPE
        header = info.tobuf(tarfile.USTAR_FORMAT, "utf-8")
        out.write(header)
        size = 0
        for data in entry.content:
            out.write(data)
            size += len(data)
        if size != entry.size:
            raise ValueError(f"{entry.path} has {size} bytes instead of {entry.size}")
        padding = bytes(-size % tarfile.BLOCKSIZE)
        out.write(padding)
        total += len(header) + size + len(padding)
    out.write(bytes(2 * tarfile.BLOCKSIZE + -(total + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE))


def _of_bytes(path: str, content: bytes) -> TarEntry:
    return TarEntry(path, size=len(content), content=[content])
