"""Reads an ONNX file just far enough to know that it is complete by itself (standard library only).

A tensor of an ONNX model may say that its data lie in another file, anywhere on the disk. A bundle's models never do:
what a file outside of the release holds was neither built, nor measured, nor listed. The file is walked as protocol
buffers are encoded, after the field numbers of onnx.proto; data are skipped and not kept, so it may come as a stream.
"""

from __future__ import annotations

from typing import Dict, Iterator, Mapping

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4, groups, have been gone since proto2
_MOST_DEPTH = 100  # of messages in one another: protobuf's own limit
_MOST_KEY = 2**32 - 1  # protobuf's reader in C++ drops the bits above: what it takes for one field is another to us
# Message -> field -> message in it: the ways that lead to a tensor.
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
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14  # of a tensor; the latter is 0 where its data lie in it


def is_self_contained(chunks: Iterator[bytes], size: int) -> bool:
    """Whether no tensor of the model has its data in another file. Reads on only until it is known.

    Args:
        chunks: the file, from its beginning.
        size: bytes of the file.

    Raises:
        ValueError: it is not encoded as a model is.
    """
    source = _Source(chunks)
    return not _refers(source, "model", size, 0)


def _refers(source: _Source, kind: str, end: int, depth: int) -> bool:
    """Whether the message that ends at `end` refers to another file."""
    if depth > _MOST_DEPTH:
        raise ValueError("messages lie too deep in one another")
    within: Dict[int, str] = dict(_WITHIN[kind])
    while source.position < end:
        key = source.varint()
        if key > _MOST_KEY:
            raise ValueError("a field number of more than 29 bits")
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            value = source.varint()
            if kind == "tensor" and field == _DATA_LOCATION and value != 0:
                return True
        elif wire == _BYTES:
            length = source.varint()
            if source.position + length > end:
                raise ValueError("a field is longer than what it lies in")
            if kind == "tensor" and field == _EXTERNAL_DATA:
                return True
            if field not in within:
                source.skip(length)
            elif _refers(source, within[field], source.position + length, depth + 1):
                return True
        elif wire in (_FIXED32, _FIXED64):
            source.skip(4 if wire == _FIXED32 else 8)
        else:
            raise ValueError(f"wire type {wire}")
        if field == 0:
            raise ValueError("field 0")
    if source.position != end:
        raise ValueError("a field is longer than what it lies in")
    return False


class _Source:
    """A stream of bytes that is read forwards."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._at = 0
        self.position = 0

    def varint(self) -> int:
        """The next number, seven bits a byte, the lowest first; of more than 64 bits the others are lost."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (2**64 - 1)
        raise ValueError("a number of more than ten bytes")

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
