"""Check that an ONNX file does not refer to external data files.

A tensor of an ONNX model may name a data file anywhere on the disk. Such a file would not be listed in the manifest, so
bundles refuse it. The check walks the protocol buffer as a stream, with the field numbers of onnx.proto.
"""

from __future__ import annotations

from typing import Dict, Iterator, Mapping

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4 (groups) are obsolete
_MOST_DEPTH = 100  # nested messages: the limit of protobuf
_MOST_KEY = 2**32 - 1  # protobuf in C++ drops higher bits and would read another field
# Message -> field -> nested message: all paths to a tensor.
_WITHIN: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14  # of a tensor; data_location is 0 for internal data


def is_self_contained(chunks: Iterator[bytes], size: int) -> bool:
    """Whether no tensor of the model has external data. Stops reading at the first that has.

    Args:
        chunks: the content of the file.
        size: bytes of the file.

    Raises:
        ValueError: the file is not an encoded model.
    """
    return not _refers(_Stream(chunks), "model", size, 0)


def _refers(stream: _Stream, kind: str, end: int, depth: int) -> bool:
    """Whether the message up to position `end` refers to external data."""
    if depth > _MOST_DEPTH:
        raise ValueError("messages are nested too deeply")
    within: Dict[int, str] = dict(_WITHIN[kind])
    while stream.position < end:
        key = stream.varint()
        if key > _MOST_KEY:
            raise ValueError("a field number of more than 29 bits")
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            value = stream.varint()
            if kind == "tensor" and field == _DATA_LOCATION and value != 0:
                return True
        elif wire == _BYTES:
            length = stream.varint()
            if stream.position + length > end:
                raise ValueError("a field is longer than its message")
            if kind == "tensor" and field == _EXTERNAL_DATA:
                return True
            if field not in within:
                stream.skip(length)
            elif _refers(stream, within[field], stream.position + length, depth + 1):
                return True
        elif wire in (_FIXED32, _FIXED64):
            stream.skip(4 if wire == _FIXED32 else 8)
        else:
            raise ValueError(f"wire type {wire}")
        if field == 0:
            raise ValueError("field 0")
    if stream.position != end:
        raise ValueError("a field is longer than its message")
    return False


class _Stream:
    """A forward-only stream of bytes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._at = 0
        self.position = 0

    def varint(self) -> int:
        """The next varint: seven bits a byte, lowest first, truncated to 64 bits."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (2**64 - 1)
        raise ValueError("a varint of more than ten bytes")

    def skip(self, count: int) -> None:
        self.position += count
        left = len(self._chunk) - self._at
        while count > left:
            count -= left
            self._next()
            left = len(self._chunk)
        self._at += count

    def _byte(self) -> int:
        if self._at == len(self._chunk):
            self._next()
        byte = self._chunk[self._at]
        self._at += 1
        self.position += 1
        return byte

    def _next(self) -> None:
        for chunk in self._chunks:
            if chunk:
                self._chunk, self._at = chunk, 0
                return
        raise ValueError("it ends too early")
