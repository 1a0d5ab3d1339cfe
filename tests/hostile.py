"""Bundles that somebody made to do harm, and random changes of a good one.

All are packed by a writer that obeys: it writes whatever names, sizes, digests and manifests it is told to, and, unless
told otherwise, makes every checksum around them right, so that what refuses a bundle is the check that it is meant for.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import platform
import random
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper
from tests.stubs import STUB, STUB_SHA256

from edgepack_runtime.bundle import archive as form
from edgepack_runtime.bundle import extract, interpreter, verify
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.errors import BundleInvalidError

PASSES = b"\x12\x04demo"  # an ONNX model with a producer and nothing else


@dataclass
class Entry:
    """A member as it is written. What is None follows from `content`."""

    path: str
    content: bytes = b""
    method: int = form.STORED
    packed: bytes | None = None
    size: int | None = None
    crc32: int | None = None
    raw_name: bytes | None = None  # in place of `path` in both headers, of the same length


@dataclass
class Draft:
    """A bundle before it is packed. `manifest` is the document; `raw_manifest` stands in for it; `patch` has the last
    word on the bytes before the digest is taken."""

    entries: list[Entry]
    manifest: dict[str, Any]
    raw_manifest: bytes | None = None
    patch: Callable[[bytearray], None] | None = None
    digest: str | None = None
    prefix: bytes = STUB
    suffix: bytes = b""
    sort: bool = True
    listed: bool = field(default=True)  # whether the manifest's list is made from the entries

    def entry(self, path: str) -> Entry:
        return next(one for one in self.entries if one.path == path)


def good(extra: Mapping[str, bytes] | None = None) -> Draft:
    """A small bundle with which nothing is wrong."""
    members = {
        "__main__.py": b"raise SystemExit(0)\n",
        "edgepack_runtime/__init__.py": b"",
        "golden/rows.jsonl": '{"text": "很好"}\n'.encode() * 20,
        "model/model.onnx": PASSES,
        "site/lib.so": b"\x7fELF" * 40,
        "site/词.txt": b"abc",
        **(extra or {}),
    }
    entries = [Entry(path, content) for path, content in members.items()]
    entries[2].method = form.DEFLATED
    entries[4].method = form.LZMA
    document = {
        "edgepack_bundle": contract.FORMAT,
        "name": "sentiment",
        "version": "1.2.0",
        "sequence": 1,
        "task": "text-classification",
        "target": {
            "profile": "test", "machines": ["x86_64"], "libc_min": "2.5", "interpreter": "host",
            "provider": "CPUExecutionProvider",
        },
        "model": {"precision": "int8", "onnx_bytes": 6},
        "gates": {},
        "ledger": [],
        "tools": {"edgepack": "0.1.0"},
        "recipe_sha256": "0" * 64,
        "stub_sha256": STUB_SHA256,
        "interpreters": [],
    }  # fmt: skip
    return Draft(entries, document)


def pack(draft: Draft) -> bytes:
    """The bytes of `draft`."""
    if draft.listed and "files" not in draft.manifest:
        found = {one.path: one for one in draft.entries if one.path not in ("manifest.json", "manifest.json.sig")}
        rows = [
            {"path": path, "size": len(one.content), "sha256": hashlib.sha256(one.content).hexdigest()}
            for path, one in sorted(found.items())
        ]
        draft = replace(draft, manifest={**draft.manifest, "files": rows})
    raw = draft.raw_manifest
    if raw is None:
        raw = (json.dumps(draft.manifest, ensure_ascii=False, indent=2, sort_keys=True) + "\n").encode()
    entries = [*draft.entries, Entry("manifest.json", raw)]
    if draft.sort:
        entries.sort(key=lambda one: one.path)
    out, members = bytearray(draft.prefix), []
    for one in entries:
        data = one.packed if one.packed is not None else packed(one.content, one.method)
        member = form.Member(
            one.path,
            one.method,
            zlib.crc32(one.content) if one.crc32 is None else one.crc32,
            len(data),
            len(one.content) if one.size is None else one.size,
            len(out),
        )
        out += _named(form.local_header(member), one) + data
        members.append((member, one))
    directory = b"".join(_named(form.directory_entry(member), one) for member, one in members)
    out += directory + form.end_record(len(members), len(directory), len(out))
    if draft.patch is not None:
        draft.patch(out)
    digest = draft.digest or hashlib.sha256(out[:-2]).hexdigest()
    return bytes(out) + form.comment(digest) + draft.suffix


def packed(content: bytes, method: int) -> bytes:
    """The data of a member."""
    if method == form.LZMA:
        return form.LZMA_HEADER + lzma.compress(content, lzma.FORMAT_RAW, filters=form.lzma_filters())
    if method != form.DEFLATED:
        return content
    deflater = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return deflater.compress(content) + deflater.flush()


def _named(header: bytes, one: Entry) -> bytes:
    if one.raw_name is None:
        return header
    return header[: -len(one.raw_name)] + one.raw_name


NAMES = {
    "one folder up": "../evil",
    "up in the middle": "site/../../evil",
    "up at the end": "site/..",
    "absolute": "/etc/cron.d/evil",
    "two slashes": "//evil",
    "an empty part": "site//evil",
    "this folder": "./evil",
    "a folder": "site/evil/",
    "backslashes": "..\\..\\evil",
    "a drive": "C:/evil",
    "a stream of NTFS": "evil.txt:hidden",
    "no name": "",
    "a NUL": "evil\0.txt",
    "a line end": "evil\n.txt",
    "an escape": "evil\x1b[2J",
    "right to left": "evil\u202etxt.exe",
    "zero width": "evil\u200b.txt",
    "half a pair": "evil\ufffe",
    "not composed": "e\u0301vil",
    "another alphabet's composed": "\u212bngstrom",
    "a dot at the end": "evil.",
    "a blank at the end": "evil ",
    "a blank in front": "site/ evil",
    "very long": "e" * 241,
    "wild": "evil*",
    "a quote": 'evil"',
    "a pipe": "evil|x",
}


def _with(path: str, content: bytes = b"#!") -> Draft:
    return good({path: content})


def _manifest(**changes: Any) -> Draft:
    draft = good()
    draft.manifest.update(changes)
    return draft


def _row(**changes: Any) -> Draft:
    """The list of files with one row changed."""
    draft = good()
    rows = json.loads(_manifest_of(pack(draft)))["files"]
    rows[2].update(changes)
    draft.manifest["files"] = rows
    return draft


def _manifest_of(raw: bytes) -> bytes:
    start = raw.index(b'{\n  "edgepack_bundle"')
    return raw[start : raw.index(b"\n}\n", start) + 3]


def _external() -> bytes:
    weights = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="../../../../etc/shadow")
    made: bytes = helper.make_model(helper.make_graph([], "g", [], [], [weights])).SerializeToString()
    return made


def _changed(path: str, **changes: Any) -> Draft:
    draft = good()
    for name, value in changes.items():
        setattr(draft.entry(path), name, value)
    return draft


def _mode(bits: int) -> Draft:
    """One member's mode in the directory says that it is a link, a device, a folder."""
    draft = good()

    def patch(out: bytearray) -> None:
        at = out.rindex(b"PK\1\2")
        struct.pack_into("<I", out, at + 38, bits << 16)

    draft.patch = patch
    return draft


def _flags(bits: int) -> Draft:
    draft = good()

    def patch(out: bytearray) -> None:
        struct.pack_into("<H", out, out.index(b"PK\3\4") + 6, bits)
        struct.pack_into("<H", out, out.index(b"PK\1\2") + 8, bits)

    draft.patch = patch
    return draft


def _lzma(at: int, values: bytes) -> Draft:
    """The library with other bytes from `at` on in its data."""
    data = bytearray(packed(good().entry(_LIBRARY).content, form.LZMA))
    data[at : at + len(values)] = values
    return _changed(_LIBRARY, packed=bytes(data))


def _lzma_headers(position: int, value: int) -> Draft:
    """The version or the flags of the library, in both of its headers."""
    draft = good()

    def patch(out: bytearray) -> None:
        name = _LIBRARY.encode()
        struct.pack_into("<H", out, out.index(name) - 30 + position, value)
        struct.pack_into("<H", out, out.rindex(name) - 46 + position + 2, value)

    draft.patch = patch
    return draft


def _same_place() -> Draft:
    """Two entries of the directory that share one member's bytes."""
    draft = good()

    def patch(out: bytearray) -> None:
        first = out.index(b"PK\1\2")
        second = out.index(b"PK\1\2", first + 1)
        struct.pack_into("<I", out, second + 42, 0)

    draft.patch = patch
    return draft


def _bomb(size: int, method: int) -> Draft:
    draft = good({"site/bomb": bytes(size)})
    entry = draft.entry("site/bomb")
    entry.method, entry.packed = method, packed(bytes(4_000_000), method)
    return draft


def with_interpreter(tar: bytes, name: str = "bin/cpython") -> Draft:
    """A bundle that says that it carries an interpreter of one file `name`, in this tar."""
    draft = good()
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    raw = packer.compress(tar) + packer.flush()
    listed = {one.path: one.content for one in [*draft.entries, Entry(f"x86_64/python/{name}", PASSES)]}
    carried = {"machine": "x86_64", "version": "3.11.2", "size": len(raw), "sha256": _sha256(raw)}
    rows = [{"path": path, "size": len(data), "sha256": _sha256(data)} for path, data in sorted(listed.items())]
    entries = [*draft.entries, Entry("CPYTHON-x86_64.tar.gz", raw)]
    return replace(draft, entries=entries, manifest={**draft.manifest, "files": rows, "interpreters": [carried]})


def tar_of(*names: str, content: bytes = PASSES) -> bytes:
    """The tar of an interpreter with these files."""
    files = [(contract.FileEntry(f"x86_64/python/{name}", len(content), ""), [content]) for name in names]
    return b"".join(interpreter.tar(files, "x86_64/python/"))


_LIBRARY = "site/lib.so"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _end(position: int, value: int) -> Draft:
    """A number of the end record that is not true."""
    draft = good()

    def patch(out: bytearray) -> None:
        struct.pack_into("<I" if position > 10 else "<H", out, out.rindex(b"PK\5\6") + position, value)

    draft.patch = patch
    return draft


def _cut(raw: bytes) -> Iterator[tuple[str, bytes]]:
    for part in range(20):
        yield f"cut to {5 * part} %", raw[: len(raw) * part // 20]
    yield "one byte short", raw[:-1]
    yield "one byte more", raw + b"\0"


def cases() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """What each bundle is about, and what makes it. Every one has to be refused.

    None is packed before its test: all processes of a run list the tests of all.
    """
    for about, name in NAMES.items():
        yield f"name: {about}", partial(pack, _with(name))
    drafts = {
        "a name that is not UTF-8": _changed("site/词.txt", raw_name=b"site/\xff\xfe\xfd.txt"),
        "names that differ in case": good({"SITE/词.txt": b"x"}),
        "names that fold together": good({"site/straße": b"1", "site/STRASSE": b"2"}),
        "a file where a folder is": good({"site": b"x"}),
        "the manifest twice": good({"manifest.json": b"{}"}),
        "a member twice": Draft([*good().entries, Entry("site/词.txt", b"abd")], good().manifest),
        "not sorted": replace(good(), entries=good().entries[::-1], sort=False),
        "a member that is not listed": _manifest(files=json.loads(_manifest_of(pack(good())))["files"][:-1]),
        "a listed file that is missing": _manifest(
            files=[*json.loads(_manifest_of(pack(good())))["files"], {"path": "z", "size": 0, "sha256": "0" * 64}]
        ),
        "a link": _mode(0o120777),
        "a device": _mode(0o060666),
        "a folder by its mode": _mode(0o040755),
        "set-uid": _mode(0o104755),
        "encrypted": _flags(1),
        "sizes behind the data": _flags(8),
        "another compression": _changed("site/词.txt", method=12),
        "members in one place": _same_place(),
        "bytes in front": replace(good(), prefix=b"\n" + STUB),
        "no head": replace(good(), prefix=b""),
        "another head": replace(good(), prefix=STUB.replace(b"sh", b"hs", 1)),
        "an interpreter that is not there": replace(with_interpreter(b""), entries=good().entries),
        "an interpreter with bytes behind": with_interpreter(tar_of("bin/cpython") + b"x"),
        "an interpreter that ends early": with_interpreter(tar_of("bin/cpython")[:-1]),
        "an interpreter with a file more": with_interpreter(tar_of("bin/cpython", "bin/more")),
        "an interpreter with a file less": with_interpreter(tar_of()),
        "an interpreter with another file": with_interpreter(tar_of("bin/cpython", content=PASSES[::-1])),
        "an interpreter with a file outside": with_interpreter(tar_of("../cpython")),
        "an interpreter that is set-uid": with_interpreter(tar_of("bin/cpython").replace(b"0000755", b"0004755")),
        "an interpreter with a name of 150 characters": with_interpreter(tar_of("bin/cpython"), "e" * 150),
        "an interpreter with a name that is not ASCII": with_interpreter(tar_of("bin/cpython"), "bin/ü"),
        "bytes behind": replace(good(), suffix=b"PK\5\6"),
        "a digest of something else": replace(good(), digest="0" * 64),
        "a digest that is none": replace(good(), digest="\x00" * 64),
        "a member with another checksum": _changed("site/词.txt", crc32=1),
        "a bomb that says it is small": _bomb(10, form.DEFLATED),
        "a bomb of LZMA that says it is small": _bomb(10, form.LZMA),
        "a bomb that says it is large": _changed("golden/rows.jsonl", size=2**32 - 1),
        "a member larger than the file": _changed("site/词.txt", size=10**9),
        "compressed data that end early": _changed("golden/rows.jsonl", packed=b"\x03"),
        "compressed data that are none": _changed("golden/rows.jsonl", packed=b"\xff" * 40),
        "bytes behind compressed data": _changed(
            "golden/rows.jsonl", packed=packed(good().entries[2].content, form.DEFLATED) + b"hidden"
        ),
        "LZMA that ends early": _changed(_LIBRARY, packed=packed(good().entry(_LIBRARY).content, form.LZMA)[:-1]),
        "LZMA that is none": _lzma(9, b"\xff" * 40),
        "LZMA of another kind of file": _changed("golden/rows.jsonl", method=form.LZMA),
        "LZMA without a byte": _changed(_LIBRARY, packed=b""),
        "LZMA with a header and nothing else": _changed(_LIBRARY, packed=form.LZMA_HEADER),
        "LZMA of another version": _lzma(0, b"\x13"),
        "LZMA with more properties": _lzma(2, b"\x06"),
        "LZMA with other properties": _lzma(4, b"\x5e"),
        "LZMA with a dictionary of 2 GiB": _lzma(5, b"\0\0\0\x80"),
        "LZMA that says it is deflate": _changed(_LIBRARY, method=form.DEFLATED, packed=packed(PASSES, form.LZMA)),
        "deflate that says it is LZMA": _changed(_LIBRARY, packed=packed(PASSES, form.DEFLATED)),
        "LZMA that needs an older zip": _lzma_headers(4, 20),
        "LZMA that says it has no end": _lzma_headers(6, 0),
        "bytes behind LZMA": _changed(_LIBRARY, packed=packed(good().entry(_LIBRARY).content, form.LZMA) + b"hidden"),
        "more members than there are": _end(8, 60_000),
        "a directory that is larger": _end(12, 2**32 - 1),
        "a directory elsewhere": _end(16, 0),
        "of another disk": _end(4, 1),
        "a model with data elsewhere": good({"model/model.onnx": _external()}),
        "another model with data elsewhere": good({"model/other.onnx": _external()}),
        "a model that is none": good({"model/model.onnx": b"\0" * 50}),
        "a model with data elsewhere in a field of 30 bits": good(
            {"model/model.onnx": _external().replace(b"\x6a", b"\xea\x80\x80\x80\x10")}
        ),
        "a model that ends early": good({"model/model.onnx": b"\x3a\xff\x7f"}),
        "a digest that is not the file's": _row(sha256="1" * 64),
        "a size that is not the file's": _row(size=7),
        "a negative size": _row(size=-1),
        "a size that is not a whole number": _row(size=1.5),
        "a size that is true": _row(size=True),
        "a huge size": _row(size=2**70),
        "a digest in capitals": _row(sha256="A" * 64),
        "a row with more": _row(mode=0o4755),
        "a path that is a list": _row(path=["a"]),
        "a release of 200 GB": _manifest(
            files=[{"path": f"f{n:03d}", "size": 8 * 2**30, "sha256": "0" * 64} for n in range(25)]
        ),
        "more files than a bundle has": _manifest(
            files=[{"path": f"f{n:05d}", "size": 0, "sha256": "0" * 64} for n in range(20_001)]
        ),
        "a name that is a path": _manifest(name="../../evil"),
        "a version that is a path": _manifest(version="1.0.0-/../../evil"),
        "a version with a line end": _manifest(version="1.0.0\n"),
        "a sequence that is a text": _manifest(sequence="9"),
        "a sequence below zero": _manifest(sequence=-1),
        "a sequence beyond all": _manifest(sequence=2**60),
        "a key of another version": _manifest(run_before="rm -rf /"),
        "another format": _manifest(edgepack_bundle=contract.FORMAT + 1),
        "a format that is true": _manifest(edgepack_bundle=True),
        "a target with more": _manifest(target={**good().manifest["target"], "run": "x"}),
        "gates that are a list": _manifest(gates=[]),
        "a limit that is not a number": _manifest(gates={"memory": {"peak_rss_mib": float("nan")}}),
        "a limit without an end": _manifest(gates={"memory": {"peak_rss_mib": float("inf")}}),
        "a ledger with NaN": _manifest(ledger=[{"x": float("nan")}]),
        "a target that clears the screen": _manifest(target={**good().manifest["target"], "profile": "\x1b[2J"}),
        "a version of 4,000 digits": _manifest(version="9" * 4000 + ".0.0"),
        "a file in place of the manifest": good({"MANIFEST.json": b"{}"}),
        "a folder in place of the manifest": good({"manifest.json/x": b"{}"}),
        "a folder in place of the signature": good({"manifest.json.sig/x": b"{}"}),
    }
    for about, draft in drafts.items():
        yield about, partial(pack, draft)
    whole = _manifest_of(pack(good()))
    texts = {
        "a limit beyond all numbers": whole.replace(b'"gates": {}', b'"gates": {"memory": {"peak_rss_mib": 1e999}}'),
        "a tool that is half a pair": whole.replace(b'"edgepack": "0.1.0"', b'"edgepack": "\\ud800"'),
        "a manifest of 5 MB": b'{"edgepack_bundle": 1' + b" " * 5_000_000 + b"}",
        "a manifest that is deep": b"[" * 200_000,
        "a manifest with a key twice": b'{"edgepack_bundle": 1, "edgepack_bundle": 1}',
        "a manifest that is not UTF-8": b'{"edgepack_bundle": 1, "name": "\xff"}',
        "a manifest with a BOM": b"\xef\xbb\xbf" + _manifest_of(pack(good())),
        "a manifest of many digits": b'{"edgepack_bundle": 1, "sequence": ' + b"9" * 10_000 + b"}",
        "a manifest that is a list": b"[]",
        "no manifest": b"",
        "a manifest with more behind": _manifest_of(pack(good())) + b"{}",
    }
    for about, raw in texts.items():
        yield about, partial(pack, replace(good(), raw_manifest=raw))
    for about, raw in (*_cut(pack(good())), ("nothing", b""), ("another zip", b"PK\5\6" + bytes(18))):
        yield about, partial(bytes, raw)


def mutations(seed: int) -> Iterator[tuple[str, bytes]]:
    """Random changes without an end: of the bytes; of the manifest and the members, with all checksums right again."""
    choose = random.Random(seed)
    intact = pack(good())
    while True:
        kind = choose.choice(("bytes", "bytes", "manifest", "entry", "order"))
        if kind == "bytes":
            raw = _mutated(intact, choose)
            if choose.random() < 0.5:  # with the right digest of what it is now
                raw = _digested(raw)
        elif kind == "manifest":
            document = json.loads(_manifest_of(intact))
            _mutate_document(document, choose)
            raw = pack(replace(good(), manifest=document))
        elif kind == "entry":
            raw = pack(_mutated_entry(good(), choose))
        else:
            draft = good()
            choose.shuffle(draft.entries)
            del draft.entries[choose.randrange(len(draft.entries)) :]
            raw = pack(replace(draft, sort=choose.random() < 0.5, manifest=json.loads(_manifest_of(intact))))
        if raw != intact:
            yield kind, raw


def _mutated(raw: bytes, choose: random.Random) -> bytes:
    out = bytearray(raw)
    for _ in range(choose.choice((1, 1, 1, 2, 5))):
        if not out:
            break
        at, other = choose.randrange(len(out)), choose.randrange(len(out))
        length = choose.choice((1, 1, 2, 4, 8, 30))
        action = choose.randrange(5)
        if action == 0:
            out[at] ^= 1 << choose.randrange(8)
        elif action == 1:
            del out[at : at + length]
        elif action == 2:
            out[at:at] = choose.randbytes(length)
        elif action == 3:
            out[at : at + length] = out[other : other + length]
        else:
            out[at : at + length] = choose.choice((b"\0", b"\xff", b"\x7f")) * length
    return bytes(out)


def _digested(raw: bytes) -> bytes:
    body = raw[: -form.COMMENT_BYTES]
    return body + form.comment(hashlib.sha256(body[:-2]).hexdigest())


_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**31, 2**53 + 1, "", "x", "../x", "/x", "a\0b", "\u202e", "e\u0301", [], {}, [[]],
    {"a": 1}, "manifest.json", "model", "MODEL/model.onnx", "0" * 64, "9" * 5000,
)  # fmt: skip


def _mutate_document(document: Any, choose: random.Random) -> None:
    """Change, add or remove one value somewhere."""
    place: Any = document
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = choose.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and choose.random() < 0.8:
            place = place[key]
            continue
        action = choose.randrange(3)
        if action == 0:
            del place[key]
        elif action == 1:
            place[key] = choose.choice(_VALUES)
        elif isinstance(place, dict):
            place[choose.choice(("x", "path", "files", "a\0"))] = choose.choice(_VALUES)
        else:
            place.insert(key, place[choose.choice(keys)])
        return
    document["x"] = 1


def _mutated_entry(draft: Draft, choose: random.Random) -> Draft:
    entry = choose.choice(draft.entries)
    draft.manifest = json.loads(_manifest_of(pack(good())))
    action = choose.randrange(5)
    if action == 0:
        entry.path = choose.choice((*NAMES.values(), entry.path.upper(), entry.path + "x"))
        if choose.random() < 0.5:
            del draft.manifest["files"]  # listed under its new name
            entry.content += b"x"
    elif action == 1:
        entry.content = _mutated(entry.content or b"x", choose)
    elif action == 2:
        entry.size = choose.choice((0, 1, 2**31, 2**32 - 1))
    elif action == 3:
        entry.crc32 = choose.randrange(2**32)
    else:
        entry.method, entry.packed = form.DEFLATED, choose.randbytes(choose.randrange(40))
        if choose.random() < 0.5:
            entry.method, entry.packed = form.LZMA, choose.choice((b"", form.LZMA_HEADER)) + entry.packed
    return draft


def judge(raw: bytes, folder: Path) -> bool:
    """Verify and unpack `raw` in `folder`, which is empty; whether it was taken.

    What is taken is compared with what Python's own readers of zip and tar find: every file is listed with its size and
    digest, and nothing but those files was written.

    Raises:
        AssertionError: it was taken wrongly, or refused with a trace left behind.
    """
    file, out = folder / "case.edgepack", folder / "out"
    file.write_bytes(raw)
    try:
        with form.Archive(file) as archive:
            raw_manifest, signature = verify.read_signed_manifest(archive)
            manifest, _ = verify.verify_archive(archive, raw_manifest)
            extract.extract(archive, manifest, out, raw=raw_manifest, signature=signature, durable=False)
    except BundleInvalidError:
        assert {path.name for path in folder.iterdir()} <= {"case.edgepack"}, "a refused bundle left something"
        return False
    expected = {entry.path: entry for entry in manifest.files}
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert contents.pop("manifest.json") == raw_manifest
    for one in manifest.interpreters:
        with tarfile.open(fileobj=io.BytesIO(contents.pop(one.member))) as tar:
            for member in tar:
                opened = tar.extractfile(member)
                assert opened is not None
                contents[f"{one.machine}/python/{member.name}"] = opened.read()
    assert set(contents) == set(expected)
    for path, content in contents.items():
        entry = expected[path]
        assert (entry.size, entry.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        assert contract.safe_path(path)
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if not path.is_dir()}
    assert written == {*(entry.path for entry in manifest.files_for(platform.machine())), "manifest.json"}
    assert {path.name for path in folder.iterdir()} == {"case.edgepack", "out"}
    return True
