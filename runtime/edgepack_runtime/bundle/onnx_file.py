"""Walk encoded protocol buffers without a library: which operators an ONNX file has, and which files it names.

A tensor of an ONNX model may name a data file anywhere on the disk. Such a file would not be listed in the manifest, so
bundles refuse it. The walk is a stream with the field numbers of a schema: it takes no memory for what it skips.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional, Tuple, Union

from edgepack_runtime.util.fs import open_regular

Schema = Mapping[str, Mapping[int, str]]  # message -> field -> the message in it, or LEAF
Leaves = Dict[int, List[Union[int, bytes]]]  # field -> its values, numbers or bytes, in the order of the file

LEAF = ""
_BLOCK_BYTES = 2**20
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4 (groups) are obsolete
_MOST_DEPTH = 100  # nested messages: the limit of protobuf
_MOST_KEY = 2**32 - 1  # protobuf in C++ drops higher bits and would read another field
_MOST_NAME_BYTES = 2**12  # of a leaf: a path at most; names of operators have up to 30
_MOST_LEAVES = 1000  # of one field in one message
# A graph of 20,000 nodes has 300,000 fields, a forest of 400,000 tree nodes has 4 million. They take 2 to 3 seconds
# here; without a limit, a bundle of 72 KB took 35.
MOST_FIELDS = 4_000_000
# All leaves of nested messages are held at once. So many fields are 300,000 nodes, whose names have 25 bytes.
MOST_LEAF_BYTES = 16 * 2**20
EXTERNAL_DATA, DATA_LOCATION = 13, 14  # of a tensor; data_location is 0 for internal data
OP_TYPE, DOMAIN = 4, 7  # of a node
NAME, FUNCTION_DOMAIN = 1, 10  # of a function
KEY, VALUE = 1, 2  # of an entry of external data
ONNX: Schema = {  # onnx.proto: all paths to a node and to a tensor
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {NAME: LEAF, 7: "node", FUNCTION_DOMAIN: LEAF, 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {OP_TYPE: LEAF, 5: "attribute", DOMAIN: LEAF},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {EXTERNAL_DATA: "entry", DATA_LOCATION: LEAF},
    "entry": {KEY: LEAF, VALUE: LEAF},
}
_WEIGHTS: Schema = {  # the same without the leaves, besides the mark of external data
    kind: {
        field: within
        for field, within in fields.items()
        if within != LEAF or (kind, field) == ("tensor", DATA_LOCATION)
    }
    for kind, fields in ONNX.items()
}


class TooManyFieldsError(ValueError):
    """A file is well-formed so far, and too long to be walked."""


class Budget:
    """Fields, and bytes of leaves, that may still be read, in one file or in several together."""

    def __init__(self) -> None:
        self.fields = MOST_FIELDS
        self.leaf_bytes = MOST_LEAF_BYTES

    def take(self, leaf: bytes) -> bytes:
        """The leaf, if it may still be read."""
        self.leaf_bytes -= len(leaf)
        if self.leaf_bytes < 0:
            raise ValueError(f"its names have more than {MOST_LEAF_BYTES} bytes together")
        return leaf


def is_self_contained(chunks: Iterator[bytes], size: int, budget: Optional[Budget] = None) -> bool:
    """Whether no tensor of the model has external data. Stops reading at the first that has.

    Args:
        chunks: the content of the file.
        size: bytes of the file.
        budget: shared with other files; None for one of its own.

    Raises:
        ValueError: the file is not an encoded model, or has too many fields.
    """
    return not any(
        kind == "entry" or (kind == "tensor" and any(leaves.get(DATA_LOCATION, ())))
        for kind, leaves in messages(chunks, size, _WEIGHTS, "model", budget)
    )


def messages(
    chunks: Iterator[bytes], size: int, schema: Schema, kind: str, budget: Optional[Budget] = None
) -> Iterator[Tuple[str, Leaves]]:
    """The messages of a file, each after those in it, with the values of its leaves.

    Args:
        chunks: the content of the file.
        size: bytes of the file.
        kind: what the file is, a message of the schema.
        budget: as in `is_self_contained`.

    Raises:
        ValueError: the file is not encoded, a leaf is longer than 4 KiB or repeated more than 1000 times, or the leaves
            have more bytes than the budget.
        TooManyFieldsError: it has more fields than the budget.
    """
    return _walk(_Stream(chunks), schema, kind, size, budget or Budget())


def messages_of(file: Path, schema: Schema, kind: str) -> Iterator[Tuple[str, Leaves]]:
    """The `messages` of a regular file.

    Raises:
        ValueError: as `messages`.
        OSError: it cannot be read, or is not a regular file.
    """
    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        yield from messages(iter(lambda: stream.read(_BLOCK_BYTES), b""), size, schema, kind)


def _walk(stream: _Stream, schema: Schema, kind: str, end: int, budget: Budget) -> Iterator[Tuple[str, Leaves]]:
    """The messages up to position `end`. No recursion: each message would go through the generators around it."""
    around: List[Tuple[str, int, Leaves]] = []  # the unfinished messages that this one is in
    within = schema[kind]
    leaves: Leaves = {}
    while True:
        if stream.position >= end:
            if stream.position > end:
                raise ValueError("a field is longer than its message")
            yield kind, leaves
            if not around:
                return
            kind, end, leaves = around.pop()
            within = schema[kind]
            continue
        budget.fields -= 1
        if budget.fields < 0:
            raise TooManyFieldsError(f"more than {MOST_FIELDS} fields")
        key = stream.varint()
        if key > _MOST_KEY:
            raise ValueError("a field number of more than 29 bits")
        field, wire = key >> 3, key & 7
        if field == 0:
            raise ValueError("field 0")
        found = within.get(field)
        if wire == _VARINT:
            value = stream.varint()
            if found == LEAF:
                _add(leaves, field, value)
        elif wire == _BYTES:
            length = stream.varint()
            if stream.position + length > end:
                raise ValueError("a field is longer than its message")
            if found is None:
                stream.skip(length)
            elif found == LEAF:
                _add(leaves, field, budget.take(stream.read(length)))
            elif len(around) == _MOST_DEPTH:
                raise ValueError("messages are nested too deeply")
            else:
                around.append((kind, end, leaves))
                kind, end, leaves = found, stream.position + length, {}
                within = schema[kind]
        elif wire in (_FIXED32, _FIXED64):
            stream.skip(4 if wire == _FIXED32 else 8)
        else:
            raise ValueError(f"wire type {wire}")


def _add(leaves: Leaves, field: int, value: Union[int, bytes]) -> None:
    values = leaves.setdefault(field, [])
    if len(values) == _MOST_LEAVES:
        raise ValueError("a field is repeated too often")
    values.append(value)


class _Stream:
    """A forward-only stream of bytes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._at = 0
        self.position = 0

    def varint(self) -> int:
        """The next varint: seven bits a byte, lowest first, truncated to 64 bits."""
        at = self._at
        if at < len(self._chunk) and self._chunk[at] < 0x80:  # most are one byte
            self._at = at + 1
            self.position += 1
            return self._chunk[at]
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (2**64 - 1)
        raise ValueError("a varint of more than ten bytes")

    def read(self, count: int) -> bytes:
        """The next bytes, at most 4 KiB."""
        if count > _MOST_NAME_BYTES:
            raise ValueError("a name is too long")
        self.position += count
        found = b""
        while True:
            part = self._chunk[self._at : self._at + count - len(found)]
            self._at += len(part)
            found += part
            if len(found) == count:
                return found
            self._next()

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
