"""Reader of TensorBoard's event files: records with a length and masked checksums (TFRecord), each an `Event`."""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path

from crc32c import crc32c
from tensorboardX.proto.event_pb2 import Event

from edgepack.artifacts import EVENTS_PREFIX


def scalars(file: Path) -> dict[str, list[list[float]]]:
    """The series in a file, in the order of its events: name -> [step, value] pairs."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    raw, events = file.read_bytes(), []
    while raw:
        (length,) = struct.unpack("<Q", raw[:8])
        header, content = raw[:12], raw[12 : 12 + length + 4]
        for part in (header, content):
            assert struct.unpack("<I", part[-4:])[0] == masked(part[:-4])
        events.append(Event.FromString(content[:-4]))
        raw = raw[12 + length + 4 :]
    assert events[0].file_version == "brain.Event:2"
    for event in events[1:]:
        for value in event.summary.value:
            found[value.tag].append([event.step, value.simple_value])
    return dict(found)


def masked(data: bytes) -> int:
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def the_file(folder: Path) -> Path:
    """The only event file of a folder."""
    (file,) = folder.glob(f"{EVENTS_PREFIX}*")
    return file
