"""What earlier gates left on a device, and the room it takes (sent there; standard library, Python >= 3.8)."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Callable, Container, Dict, Iterator, List, Sequence, Set, Tuple

from edgepack_runtime.durable import remove_tree
from edgepack_runtime.state import RELEASE_ID, Prefix

_BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own are
_PART = re.compile(r"(?P<sha256>[0-9a-f]{64})\.(?P<method>[0-9]{1,5})\.(?P<size>[0-9]{1,18})\.part\Z")
Identity = Tuple[int, int]  # device and inode


def releases(folder: Path) -> List[Path]:
    """Releases in `folder`, which need not be there."""
    try:
        return sorted(path for path in folder.iterdir() if RELEASE_ID.match(path.name) and not path.is_symlink())
    except OSError:
        return []


def parts(incoming: Path) -> Dict[str, Tuple[int, int, Path]]:
    """Beginnings of files by their sha256: how they are packed, their packed size, and where what came of them lies."""
    found = {}
    for path in sorted(incoming.glob("*")):
        name = _PART.match(path.name)
        with contextlib.suppress(FileNotFoundError):
            if name and stat.S_ISREG(path.lstat().st_mode):
                found[name["sha256"]] = (int(name["method"]), int(name["size"]), path)
    return found


def left(prefix: Prefix, incoming: Path, but: Sequence[Path]) -> List[Path]:
    """What lies there and is none of `but`, oldest first: releases, what became none, beginnings of files."""
    found = releases(prefix.releases)
    for folder in (prefix.staging, incoming):
        with contextlib.suppress(OSError):
            found += folder.iterdir()
    ages = []
    for path in found:
        with contextlib.suppress(FileNotFoundError):
            ages.append((path.lstat().st_mtime, path))
    return [path for _, path in sorted(ages) if path not in but]


def freed_bytes(paths: Sequence[Path], but: Container[Identity]) -> int:
    """Bytes that come free with all of `paths`; a file of `but`, or with a name elsewhere, stays where it is."""
    names: Counter[Identity] = Counter()
    found: Dict[Identity, os.stat_result] = {}
    for entry in (entry for path in paths for entry in _files(path)):
        identity = entry.st_dev, entry.st_ino
        names[identity] += 1
        found[identity] = entry
    gone = (entry for identity, entry in found.items() if identity not in but and names[identity] == entry.st_nlink)
    return sum(entry.st_blocks * _BLOCK_BYTES for entry in gone)


def identities(paths: Iterator[Path]) -> Set[Identity]:
    """What the files are, whatever they are called."""
    found = set()
    for path in paths:
        with contextlib.suppress(OSError):
            entry = path.lstat()
            found.add((entry.st_dev, entry.st_ino))
    return found


def evict(prefix: Prefix, paths: Sequence[Path], enough: Callable[[], bool]) -> List[str]:
    """Remove `paths`, one after the other, until there is `enough` room; the names of those that went.

    Raises:
        OSError: one cannot be removed.
    """
    gone = []
    for path in paths:
        if enough():
            break
        remove_tree(path)
        remove_tree(prefix.bytecode_of(path))
        gone.append(path.name)
    return gone


def _files(path: Path) -> Iterator[os.stat_result]:
    """Each name of a file in `path`, or of `path` itself; what goes meanwhile is left out."""
    try:
        here = path.lstat()
        if stat.S_ISDIR(here.st_mode):
            for inner in path.iterdir():
                yield from _files(inner)
        else:
            yield here
    except OSError:
        return
