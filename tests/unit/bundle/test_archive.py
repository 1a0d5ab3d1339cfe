"""The writer of bundles: one form, whatever the circumstances."""

from __future__ import annotations

import lzma
import os
import random
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stubs import STUB

from edgepack.bundle.archive import write_bundle
from edgepack.errors import StageFailedError
from edgepack.progress import SILENT, Task
from edgepack_runtime.bundle.archive import DEFLATED, LZMA, LZMA_HEADER, STORED, Archive, lzma_filters
from edgepack_runtime.util.hashing import CHUNK_BYTES

MEMBERS = {"__main__.py": b"print('ran')\n", "a/text.txt": b"word " * 1000, "b.bin": bytes(range(256)), "empty": b""}


def test_python_runs_it_and_zipfile_reads_what_is_deflated_where_that_is_smaller(tmp_path: Path) -> None:
    out = tmp_path / "x.edgepack"
    write_bundle(MEMBERS, out, STUB)
    done = subprocess.run([sys.executable, str(out)], capture_output=True, text=True, check=True)
    assert done.stdout == "ran\n"
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == sorted(MEMBERS)
        assert {name: archive.read(name) for name in archive.namelist()} == MEMBERS
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.external_attr >> 16 for info in archive.infolist()} == {0o100644}
        assert not any(info.extra or info.comment for info in archive.infolist())
        assert archive.comment.startswith(b"edgepack1 sha256=")
    with Archive(out) as members:
        methods = {path: member.method for path, member in members.members.items()}
        sizes = {path: member.compressed_size for path, member in members.members.items()}
    assert methods == {"__main__.py": STORED, "a/text.txt": DEFLATED, "b.bin": STORED, "empty": STORED}
    assert sizes["b.bin"] == 256
    assert sizes["empty"] == 0


LIBRARIES = {
    "lib.so": LZMA,
    "a/lib.so.1.31.1": LZMA,
    "x86_64/lib.so.1": LZMA,
    "noise.so": STORED,
    "__main__.py": STORED,
}
OTHERS = {"lib.so.txt": DEFLATED, "lib.so.1a": DEFLATED, "libxso": DEFLATED, "so": DEFLATED, "lib.so/x": DEFLATED}


@pytest.mark.parametrize("given", [True, False])
def test_libraries_are_compressed_with_lzma_if_asked_for(tmp_path: Path, given: bool) -> None:
    out = tmp_path / "x.edgepack"
    expected = LIBRARIES | OTHERS
    del expected["lib.so/x" if given else "lib.so"]  # a name is a file's or a folder's
    members: dict[str, Path | bytes] = dict.fromkeys(expected, b"# word\n" * 1000)
    members["noise.so"] = random.Random(0).randbytes(1000)
    write_bundle(members, out, STUB, lzma_cache=tmp_path / "cache" if given else None)
    with Archive(out) as archive:
        methods = {path: member.method for path, member in archive.members.items()}
        assert {path: archive.read(path, 10**6) for path in archive.members} == members
    assert methods == {path: method if given or method != LZMA else DEFLATED for path, method in expected.items()}
    with zipfile.ZipFile(out) as read:
        assert {name: read.read(name) for name in read.namelist()} == members
        assert {info.filename: info.flag_bits for info in read.infolist()} == {
            path: 2 if method == LZMA else 0 for path, method in methods.items()
        }


def test_the_header_has_the_properties_of_the_filter() -> None:
    [chosen] = lzma_filters()
    properties = lzma._encode_filter_properties(chosen)  # type: ignore[attr-defined]
    assert b"\x09\x04" + len(properties).to_bytes(2, "little") + properties == LZMA_HEADER


def test_lzma_has_a_bar(tmp_path: Path) -> None:
    bars: dict[str, list[int]] = {}

    class Recorded:
        def line(self, text: str) -> None:
            raise AssertionError(text)

        @contextmanager
        def task(self, label: str, total: int, done: int = 0) -> Iterator[Task]:
            bars[label] = [0, total]
            with SILENT.task(label, total, done) as task:
                task.advance = lambda *_: bars[label].__setitem__(0, bars[label][0] + 1)  # type: ignore[method-assign]
                yield task

    file = tmp_path / "lib.so"
    file.write_bytes(bytes(CHUNK_BYTES + 1))
    members: dict[str, Path | bytes] = {"lib.so": file, "lib.so.1": b"x", "text": b"word" * 1000}
    write_bundle(members, tmp_path / "x", STUB, progress=Recorded())
    assert not bars
    for _ in range(2):
        write_bundle(members, tmp_path / "x", STUB, lzma_cache=tmp_path / "cache", progress=Recorded())
        assert bars == {"compressing libraries, MiB": [3, 3]}
        bars.clear()


def test_same_members_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    members = {**MEMBERS, "lib.so": b"word " * 1000}
    write_bundle(members, first, STUB, lzma_cache=tmp_path / "cache")
    files: dict[str, Path | bytes] = {}
    for number, (path, data) in enumerate(reversed(members.items())):
        file = tmp_path / str(number)
        file.write_bytes(data)
        file.chmod(0o600 + number)
        os.utime(file, (number, number))
        files[path] = file
    before = os.umask(0o077)
    try:
        write_bundle(files, second, STUB, lzma_cache=tmp_path / "another")
    finally:
        os.umask(before)
    assert first.read_bytes() == second.read_bytes()
    assert second.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("damage", ["cut", "flipped", "longer", "a folder", "none to be made"])
def test_a_damaged_cache_of_libraries_changes_no_byte(tmp_path: Path, damage: str) -> None:
    members: dict[str, Path | bytes] = {"lib.so": b"word " * 1000}
    write_bundle(members, tmp_path / "first", STUB, lzma_cache=tmp_path / "cache")
    (kept,) = (tmp_path / "cache").iterdir()
    raw = kept.read_bytes()
    kept.unlink()
    if damage == "a folder":
        kept.mkdir()
    elif damage == "none to be made":
        (tmp_path / "cache").rmdir()
        (tmp_path / "cache").touch()
    else:
        middle = bytes([raw[20] ^ 1])
        kept.write_bytes({"cut": raw[:-1], "flipped": raw[:20] + middle + raw[21:], "longer": raw + b"\0"}[damage])
    write_bundle(members, tmp_path / "second", STUB, lzma_cache=tmp_path / "cache")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


@given(
    contents=st.dictionaries(
        st.from_regex(r"[a-z]{1,4}(/[a-z\u4e00-\u4e10]{1,4}){0,2}\.(x|so|so\.1)", fullmatch=True),
        st.binary(max_size=3000) | st.binary(min_size=1, max_size=30).map(lambda part: part * 99),
        max_size=6,
    ),
    lzma_libraries=st.booleans(),
)
@settings(max_examples=50)
def test_the_reader_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes], lzma_libraries: bool
) -> None:
    out = tmp_path_factory.mktemp("zip") / "x.edgepack"
    write_bundle(contents, out, STUB, lzma_cache=out.with_name("cache") if lzma_libraries else None)
    with Archive(out) as archive:
        archive.check_digest()
        assert {path: archive.read(path, 3000) for path in archive.members} == contents
        assert list(archive.members) == sorted(contents)


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../x", "a//b", "a\\b", "", "a\nb", "nul\0"])
def test_refuses_paths_that_could_leave_the_release(tmp_path: Path, path: str) -> None:
    with pytest.raises(StageFailedError, match="cannot hold a file named"):
        write_bundle({path: b""}, tmp_path / "x.edgepack", STUB)
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_is_not_written_through_a_planted_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / f".a.edgepack.{os.getpid()}.tmp").symlink_to(tmp_path / "victim")
    write_bundle({"a": b"1"}, tmp_path / "a.edgepack", STUB)
    assert (tmp_path / "victim").read_text() == "mine"


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    out = tmp_path / "x.edgepack"
    out.write_bytes(b"old")
    with pytest.raises(StageFailedError, match="cannot be written"):
        write_bundle({"a": b"1", "b": tmp_path / "missing"}, out, STUB)
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


def test_a_file_that_is_too_large_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack_runtime.bundle.archive.MAX_BUNDLE_BYTES", 4096 + 500)
    with pytest.raises(StageFailedError, match=r"a/text\.txt is too large"):
        write_bundle(MEMBERS, tmp_path / "x.edgepack", STUB)
    with pytest.raises(StageFailedError, match="the bundle is too large"):
        write_bundle(dict.fromkeys("abcdefgh", b""), tmp_path / "x.edgepack", STUB)
