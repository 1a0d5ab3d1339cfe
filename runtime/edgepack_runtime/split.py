"""A bundle in parts: a small one that Python runs, and beside it the whole one, cut into files (stdlib only).

For what takes no large files: a FAT stick that is nearly full, a slow link that breaks off, a mail. The small one is of
the form of every bundle. It holds what starts (`__main__.py`, `edgepack_runtime/`), the whole one's manifest and
signature, and `split.json`, which lists the files that lie beside it and are the whole one when they are put one after
the other. They are read in place, never put together. What is in `split.json` is nobody's word: whatever the parts
hold is checked against the manifest, byte for byte, as if it were one file. Its digests only say which part to copy
again.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import unicodedata
from pathlib import Path
from typing import BinaryIO, List, Optional, Tuple

from edgepack_runtime.hashing import hash_prefix

LIST_NAME = "split.json"
MAX_LIST_BYTES = 1024 * 1024
MAX_PARTS = 999
_FORMAT = 1  # of split.json


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the files: its name, its size in bytes, and its sha256 in hex."""

    name: str
    size: int
    sha256: str


def dump(parts: Tuple[Part, ...]) -> bytes:
    """`split.json`: the files in the order in which they make the whole."""
    document = {"split": _FORMAT, "files": [dataclasses.asdict(part) for part in parts]}
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode("utf-8")


def parse(raw: bytes) -> Tuple[Part, ...]:
    """The parts that `raw` lists.

    Raises:
        ValueError: saying why it is no such list.
    """
    try:
        document = json.loads(raw.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(document, dict) or document.get("split") != _FORMAT or set(document) != {"split", "files"}:
        raise ValueError(f"it is no list of parts of format {_FORMAT}")
    files = document["files"]
    if not isinstance(files, list) or not 0 < len(files) <= MAX_PARTS:
        raise ValueError(f"it lists no parts, or more than {MAX_PARTS}")
    parts = tuple(_part(item) for item in files)
    if len({part.name for part in parts}) != len(parts):
        raise ValueError("it lists a part twice")
    return parts


def _part(item: object) -> Part:
    if not isinstance(item, dict) or set(item) != {"name", "size", "sha256"}:
        raise ValueError("a part has a name, a size and a sha256, and nothing else")
    name, size, digest = item["name"], item["size"], item["sha256"]
    if not isinstance(name, str) or not name or name.startswith(".") or set(name) & set("/\\"):
        raise ValueError(f"{name!r} is no name of a file beside it")
    if any(unicodedata.category(character).startswith("C") for character in name):  # it is printed on terminals
        raise ValueError(f"{name!r} is no name of a file beside it")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size < 2**32:
        raise ValueError(f"{size!r} is no size of a part")
    if not isinstance(digest, str) or len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise ValueError(f"{digest!r} is no sha256")
    return Part(name, size, digest)


class Joined(io.RawIOBase):
    """The parts in `folder` as one file to read; one of them is open at a time."""

    def __init__(self, folder: Path, parts: Tuple[Part, ...]) -> None:
        self._folder = folder
        self._parts = parts
        self._starts: List[int] = []
        self._size = 0
        for part in parts:
            self._starts.append(self._size)
            self._size += part.size
        self._position = 0
        self._open: Optional[Tuple[int, BinaryIO]] = None

    def missing(self) -> List[str]:
        """Those that are not there, or have another size, each with what it is."""
        found = []
        for part in self._parts:
            path = self._folder / part.name
            if not path.is_file():
                found.append(f"{part.name} is not in {self._folder}")
            elif path.stat().st_size != part.size:
                found.append(f"{part.name} has {path.stat().st_size} bytes instead of {part.size}")
        return found

    def differing(self) -> List[str]:
        """Names of those whose content is not what `split.json` lists, or cannot be read."""
        return [part.name for part in self._parts if not self._is_as_listed(part)]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a piece of `buffer`, of one part at most; 0 at the end, or where a part turns out to be shorter."""
        if not 0 <= self._position < self._size:
            return 0
        number = max(index for index, start in enumerate(self._starts) if start <= self._position)
        inside = self._position - self._starts[number]
        most = min(len(buffer), self._parts[number].size - inside)
        file = self._file(number)
        file.seek(inside)
        data = file.read(most)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._leave()
        super().close()

    def _file(self, number: int) -> BinaryIO:
        if self._open is None or self._open[0] != number:
            self._leave()
            self._open = (number, (self._folder / self._parts[number].name).open("rb"))
        return self._open[1]

    def _leave(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def _is_as_listed(self, part: Part) -> bool:
        try:
            with (self._folder / part.name).open("rb") as file:
                return hash_prefix(file, part.size) == part.sha256
        except OSError:  # a part that cannot be read is one to copy again
            return False
