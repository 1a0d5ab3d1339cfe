"""A bundle in parts is read in place, as if it were one file; whatever is wrong with a part is told by its name."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from installing import Device, id_of

from edgepack.targets import splitting
from edgepack.targets.archive import write_bundle
from edgepack_runtime import split
from edgepack_runtime.archive import Archive
from edgepack_runtime.errors import BundleInvalidError, ExitCode
from edgepack_runtime.split import Joined, Part
from edgepack_runtime.state import Prefix
from edgepack_runtime.verify import verify_file

DIGEST = "0" * 64
PART = {"name": "a.part1", "size": 1, "sha256": DIGEST}


@pytest.fixture
def in_parts(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`bundle`, in parts of 40,000 bytes."""
    monkeypatch.setattr(splitting, "SMALLEST_BYTES", 1)
    return splitting.split(bundle, tmp_path / "stick", 40_000)[0]


def test_a_device_installs_from_parts(in_parts: Path, bundle: Path, prefix: Prefix, device: Device) -> None:
    parts = sorted(in_parts.parent.glob("*.part*"))
    assert b"".join(path.read_bytes() for path in parts) == bundle.read_bytes()
    assert len(parts) > 2
    for verb in ("verify", "doctor"):
        assert device(sys.executable, in_parts, verb).returncode == 0
    done = device(sys.executable, in_parts, "install", "--prefix", prefix.root)
    assert done.returncode == 0, done.stderr
    assert f"installed: {id_of(bundle)} serves" in done.stdout
    receipt = json.loads(next(prefix.receipts.glob("*-install.json")).read_text())
    assert receipt["bundle_bytes"] == bundle.stat().st_size
    again = device(prefix.bin / "sentiment", "install", in_parts)  # the installed release reads them too
    assert again.returncode == 0, again.stderr


def test_the_gate_counts_all_parts(in_parts: Path, bundle: Path, device: Device) -> None:
    told = json.loads(device(sys.executable, in_parts, "gate", "--json").stdout)
    assert {check["value"] for check in told["checks"] if check["gate"] == "size.bundle"} == {bundle.stat().st_size}


def test_what_starts_it_alone_is_told(in_parts: Path, tmp_path: Path, device: Device) -> None:
    alone = tmp_path / in_parts.name
    in_parts.rename(alone)
    done = device(sys.executable, alone, "verify")
    assert done.returncode == ExitCode.BUNDLE_INVALID
    assert "and not all of them are here" in done.stderr
    assert f"{alone.name}.part1 is not in {tmp_path}" in done.stderr
    assert "fix: copy them into one folder, under the names they had" in done.stderr


def damaged(path: Path) -> str:
    with pytest.raises(BundleInvalidError) as caught:
        verify_file(path)
    return str(caught.value.fix)


def test_a_part_that_is_cut_short_or_changed_is_named(in_parts: Path) -> None:
    parts = sorted(in_parts.parent.glob("*.part*"))
    whole = parts[1].read_bytes()
    parts[1].write_bytes(whole[:-1])
    with pytest.raises(BundleInvalidError, match="not all of them are here") as caught:
        verify_file(in_parts)
    assert caught.value.why == f"{parts[1].name} has {len(whole) - 1} bytes instead of {len(whole)}"
    parts[1].write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert damaged(in_parts).startswith(f"copy {parts[1].name} again ")
    parts[1].write_bytes(whole)
    assert verify_file(in_parts)


def test_parts_of_another_bundle_do_not_make_this_one(in_parts: Path, second: Path) -> None:
    ours, theirs = sorted(in_parts.parent.glob("*.part*")), second.read_bytes()
    theirs = theirs.ljust(sum(part.stat().st_size for part in ours), b"\0")
    for part in ours:
        size = part.stat().st_size
        part.write_bytes(theirs[:size])
        theirs = theirs[size:]
    assert f"{ours[-1].name} again" in damaged(in_parts)  # where its own digest stands; the others may well be alike


def test_parts_in_parts_are_refused(in_parts: Path) -> None:
    listed = split.parse(_read(in_parts))
    first = in_parts.parent / listed[0].name
    first.write_bytes(in_parts.read_bytes())
    _rewrite(in_parts, dataclasses.replace(listed[0], size=first.stat().st_size))
    with pytest.raises(BundleInvalidError, match=r"split\.json") as caught:
        verify_file(in_parts)
    assert caught.value.why == "its parts are in parts again"


def test_parts_that_are_too_much_are_not_read(in_parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand names of one huge file would keep a device busy for hours, to be told which of them is damaged."""
    monkeypatch.setattr(Joined, "differing", lambda self: pytest.fail("the parts are read"))
    parts = [Part(f"p{number}", 2**32 - 1, DIGEST) for number in range(2)]
    for part in parts:
        os.truncate(os.open(in_parts.parent / part.name, os.O_CREAT | os.O_WRONLY), part.size)
    _rewrite(in_parts, *parts)
    with pytest.raises(BundleInvalidError) as caught:
        verify_file(in_parts)
    assert caught.value.why == f"its parts have more than {2**32 - 1} bytes in all"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("__main__.py", "bytes; the manifest lists"),
        ("edgepack_runtime/cli.py", "bytes; the manifest lists"),
        ("edgepack_runtime/more.py", "the manifest does not list it"),
        ("manifest.json", "the parts hold another one"),
        ("manifest.json.sig", "the parts hold another one"),
    ],
)
def test_what_starts_it_is_checked_too(in_parts: Path, name: str, why: str) -> None:
    """Whoever verified it starts it: code that is none of the bundle's must not stand there."""
    with Archive(in_parts, join=False) as archive:
        members = {path: archive.read(path, member.size) for path, member in archive.members.items()}
    write_bundle({**members, name: b"print('somebody else was here')\n"}, in_parts)
    with pytest.raises(BundleInvalidError, match=f"member {name}") as caught:
        verify_file(in_parts)
    assert why in caught.value.why


def test_no_byte_of_what_starts_it_may_change(in_parts: Path) -> None:
    raw = in_parts.read_bytes()
    for position in range(0, len(raw), len(raw) // 50):
        in_parts.write_bytes(raw[:position] + bytes([raw[position] ^ 1]) + raw[position + 1 :])
        with pytest.raises(BundleInvalidError):
            verify_file(in_parts)


def _read(path: Path) -> bytes:
    """`split.json` of what starts a bundle in parts."""
    with Archive(path, join=False) as archive:
        return archive.read(split.LIST_NAME, split.MAX_LIST_BYTES)


def _rewrite(path: Path, *parts: Part) -> None:
    write_bundle({"__main__.py": b"", split.LIST_NAME: split.dump(parts)}, path)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ([], "no list of parts"),
        ({"split": 2, "files": [PART]}, "no list of parts of format 1"),
        ({"split": 1, "files": [PART], "more": 1}, "no list of parts"),
        ({"split": 1, "files": []}, "lists no parts"),
        ({"split": 1, "files": [PART] * 1000}, "more than 999"),
        ({"split": 1, "files": [PART, PART]}, "a part twice"),
        ({"split": 1, "files": [{**PART, "more": 1}]}, "and nothing else"),
        ({"split": 1, "files": ["a.part1"]}, "and nothing else"),
        *(
            ({"split": 1, "files": [{**PART, "name": name}]}, "no name of a file")
            for name in ("", ".", "..", ".x", "/etc/passwd", "a/b", "..\\b", "a\0", "a\x1b[2J", "a\u202eb", "\ud800", 3)
        ),
        *(({"split": 1, "files": [{**PART, "size": size}]}, "no size") for size in (0, -1, 2**32, 1.0, True, "1")),
        *(({"split": 1, "files": [{**PART, "sha256": d}]}, "no sha256") for d in ("", "A" * 64, "0" * 63, 0)),
    ],
)
def test_other_lists_are_refused(document: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        split.parse(json.dumps(document).encode())


@given(st.binary(max_size=64) | st.just(b"[" * 100_000))
def test_anything_is_a_list_or_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        split.parse(raw)


@given(st.lists(st.tuples(st.text("abc.\u4e2d", min_size=1), st.integers(1, 2**32 - 1)), min_size=1, max_size=20))
def test_a_list_is_read_as_it_was_written(items: list[tuple[str, int]]) -> None:
    parts = tuple(Part(f"p{number}{name}", size, DIGEST) for number, (name, size) in enumerate(items))
    assert split.parse(split.dump(parts)) == parts


class TestJoined:
    @given(data=st.data())
    def test_reads_as_one_file(self, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
        folder = tmp_path_factory.mktemp("joined")
        pieces = data.draw(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=5))
        parts = []
        for number, piece in enumerate(pieces):
            (folder / f"p{number}").write_bytes(piece)
            parts.append(Part(f"p{number}", len(piece), DIGEST))
        one = io.BytesIO(b"".join(pieces))
        with io.BufferedReader(Joined(folder, tuple(parts)), 4) as joined:
            for _ in range(8):
                where = data.draw(st.integers(0, len(one.getvalue()) + 2))
                count = data.draw(st.integers(0, 12))
                assert joined.seek(where) == one.seek(where)
                assert joined.read(count) == one.read(count)
            assert joined.seek(0, io.SEEK_END) == one.seek(0, io.SEEK_END)

    def test_a_part_that_shrinks_ends_it(self, tmp_path: Path) -> None:
        (tmp_path / "p").write_bytes(b"abc")
        with io.BufferedReader(Joined(tmp_path, (Part("p", 5, DIGEST), Part("q", 5, DIGEST)))) as joined:
            assert joined.read(10) == b"abc"

    def test_what_is_no_file_is_missing(self, tmp_path: Path) -> None:
        (tmp_path / "p").mkdir()
        assert Joined(tmp_path, (Part("p", 5, DIGEST),)).missing() == [f"p is not in {tmp_path}"]
