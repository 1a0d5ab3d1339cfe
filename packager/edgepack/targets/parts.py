"""A bundle's bytes by what they are for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack.targets.site import SITE
from edgepack_runtime.archive import Archive
from edgepack_runtime.golden import MODEL_FOLDER

PARTS: Final = ("model", "site", "runtime", "golden", "other")
_OF_FOLDER: Final = {
    MODEL_FOLDER: "model",
    SITE: "site",
    "edgepack_runtime": "runtime",
    "__main__.py": "runtime",
    "golden": "golden",
}


@dataclass(frozen=True)
class Bytes:
    """Bytes in the bundle and bytes on the device."""

    packed: int
    unpacked: int


def part_of(path: str) -> str:
    """The part that a member belongs to."""
    return _OF_FOLDER.get(path.split("/")[0], "other")


def bytes_by_part(bundle: Path) -> dict[str, Bytes]:
    """What each part takes; `other` includes the zip's own headers, so the packed ones sum up to the file's size.

    Raises:
        edgepack_runtime.errors.EdgepackError: it is no whole bundle.
    """
    packed, unpacked = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0)
    with Archive(bundle) as archive:
        for member in archive.members.values():
            part = part_of(member.path)
            packed[part] += member.compressed_size
            unpacked[part] += member.size
        packed["other"] += archive.size - sum(packed.values())
    return {part: Bytes(packed[part], unpacked[part]) for part in PARTS}
