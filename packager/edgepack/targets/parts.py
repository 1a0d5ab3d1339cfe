"""A bundle's bytes by what they are for."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack.targets.site import SITE
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
    """What each part takes; `other` includes the zip's own headers, so the packed ones sum up to the file's size."""
    packed, unpacked = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0)
    with zipfile.ZipFile(bundle) as archive:
        for member in archive.infolist():
            part = part_of(member.filename)
            packed[part] += member.compress_size
            unpacked[part] += member.file_size
    packed["other"] += bundle.stat().st_size - sum(packed.values())
    return {part: Bytes(packed[part], unpacked[part]) for part in PARTS}
