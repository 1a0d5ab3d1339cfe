"""The strict reader: structure, bounds, extraction. `test_hostile.py` has the names, sizes and forms it refuses."""

from __future__ import annotations

import hashlib
import io
import random
import sys
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hostile import packed
from tests.stubs import STUB

from edgepack.bundle.archive import write_bundle
from edgepack_runtime.bundle import archive as form
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.extract import extract
from edgepack_runtime.bundle.manifest import parse
from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, ExitCode, UsageError
from edgepack_runtime.util.hashing import CHUNK_BYTES

LIBRARY = b"\x7fELF" + bytes(range(50)) * 9


def opened(path: Path) -> None:
    with Archive(path):
        pass


@pytest.mark.parametrize("kept", [0, 1, 50, 102, 103, 500, -1])
def test_a_cut_file_is_named_as_such(small_bundle: Path, tmp_path: Path, kept: int) -> None:
    cut = tmp_path / "cut.edgepack"
    cut.write_bytes(small_bundle.read_bytes()[:kept])
    with pytest.raises(BundleInvalidError, match=r"cut\.edgepack is damaged") as caught:
        opened(cut)
    assert "cut short" in str(caught.value) or kept == -1


def rebuilt(members: list[form.Member], data: dict[str, bytes], gap: bytes = b"") -> bytes:
    """A zip with a valid digest, whose members lie at the offsets they claim, or so."""
    out = STUB
    for member in members:
        out += form.local_header(member) + data[member.path] + gap
    directory = b"".join(form.directory_entry(member) for member in members)
    out += directory + form.end_record(len(members), len(directory), len(out))
    return out + form.comment(hashlib.sha256(out[:-2]).hexdigest())


def test_gaps_between_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.edgepack"
    first = form.Member("a", form.STORED, 0, 0, 0, form.STUB_BYTES)
    path.write_bytes(rebuilt([first], {"a": b""}))
    opened(path)  # without a gap it is fine
    path.write_bytes(rebuilt([first], {"a": b""}, gap=b"hidden"))
    with pytest.raises(BundleInvalidError, match="directory"):
        opened(path)
    second = form.Member("b", form.STORED, 0, 0, 0, first.end + 6)
    path.write_bytes(rebuilt([first, second], {"a": b"", "b": b""}, gap=b"hidden"))
    with pytest.raises(BundleInvalidError, match="header of member b"):
        opened(path)


@pytest.mark.parametrize("method", [form.DEFLATED, form.LZMA])
def test_a_member_never_gives_more_than_its_size(tmp_path: Path, method: int) -> None:
    content = bytes(10_000_000)
    data = packed(content, method)
    member = form.Member("bomb.so", method, 0, len(data), 10, form.STUB_BYTES)
    path = tmp_path / "x.edgepack"
    path.write_bytes(rebuilt([member], {"bomb.so": data}))
    with Archive(path) as archive, pytest.raises(BundleInvalidError, match="more than its 10 bytes"):
        archive.read("bomb.so", 100)
    path.write_bytes(bundle_of(data, method, content))
    with Archive(path) as archive:
        with pytest.raises(BundleInvalidError, match="at most 100 are read"):
            archive.read("x.so", 100)
        assert archive.read("x.so", 10_000_000) == content
        assert max(map(len, archive.chunks(archive.members["x.so"]))) == CHUNK_BYTES


def bundle_of(data: bytes, method: int, content: bytes) -> bytes:
    """A zip with the member `x.so`, whose size and checksum are those of `content`."""
    member = form.Member("x.so", method, zlib.crc32(content), len(data), len(content), form.STUB_BYTES)
    return rebuilt([member], {"x.so": data})


def read(path: Path, data: bytes, method: int = form.LZMA, content: bytes = LIBRARY) -> bytes:
    """The content that the reader finds in `data`; checksums around it are right."""
    path.write_bytes(bundle_of(data, method, content))
    with Archive(path) as archive:
        archive.check_digest()
        return archive.read("x.so", 10**8)


@pytest.mark.parametrize("method", [form.DEFLATED, form.LZMA])
@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_contents_of_any_size_and_any_ratio_are_read(tmp_path: Path, method: int, size: int) -> None:
    for content in (bytes(size), random.Random(size).randbytes(size), random.Random(size).randbytes(size // 2) * 2):
        assert read(tmp_path / "x.edgepack", packed(content, method), method, content) == content


@given(content=st.binary(max_size=3000))
@settings(max_examples=50)
def test_what_zipfile_compresses_with_lzma_is_read(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x", content)
        compressed = archive.getinfo("x").compress_size
    data = raw.getvalue()[30 + len("x") :][:compressed]
    assert data.startswith(form.LZMA_HEADER)
    assert read(tmp_path_factory.mktemp("zip") / "x.edgepack", data, content=content) == content


def test_zipfile_reads_members_with_lzma(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(bundle_of(packed(LIBRARY, form.LZMA), form.LZMA, LIBRARY))
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert archive.read("x.so") == LIBRARY
        [info] = archive.infolist()
    assert (info.compress_type, info.extract_version, info.flag_bits) == (zipfile.ZIP_LZMA, 63, 2)


def test_every_flipped_bit_of_lzma_is_found(tmp_path: Path) -> None:
    data = packed(LIBRARY, form.LZMA)
    assert read(tmp_path / "x", data) == LIBRARY
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        header = "its LZMA header is not in the exact form" if bit < 8 * len(form.LZMA_HEADER) else ""
        with pytest.raises(BundleInvalidError, match=rf"member x\.so(.|\n)*{header}"):
            read(tmp_path / "x", bytes(changed))


def test_lzma_that_is_cut_or_goes_on_is_refused(tmp_path: Path) -> None:
    data = packed(LIBRARY, form.LZMA)
    for kept in range(len(data)):
        why = "header" if kept < len(form.LZMA_HEADER) else "ends too early"
        with pytest.raises(BundleInvalidError, match=rf"member x\.so(.|\n)*{why}"):
            read(tmp_path / "x", data[:kept])
    for more in (b"\0", data, bytes(CHUNK_BYTES)):
        with pytest.raises(BundleInvalidError, match=r"member x\.so(.|\n)*bytes follow the end"):
            read(tmp_path / "x", data + more)
    for recorded in (LIBRARY[:-1], LIBRARY + b"x", LIBRARY[::-1]):
        with pytest.raises(BundleInvalidError, match=r"member x\.so"):
            read(tmp_path / "x", data, content=recorded)


def test_a_python_without_lzma_names_the_command_that_works(
    monkeypatch: pytest.MonkeyPatch, small_bundle: Path
) -> None:
    monkeypatch.setitem(sys.modules, "lzma", None)
    with Archive(small_bundle) as archive:
        assert archive.read("golden/rows.jsonl", 10**6)
        with pytest.raises(EnvironmentUnfitError, match=r"cannot unpack small\.edgepack") as caught:
            archive.read("site/lib.so.1", 10**6)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT_UNFIT
    assert "sh small.edgepack VERB" in caught.value.fix


def test_missing_and_unreadable_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path / "none.edgepack", tmp_path):
        with pytest.raises(UsageError, match="there is no bundle file"):
            opened(path)

    def refuse(self: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "x.edgepack"
    file.touch()
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(EnvironmentUnfitError, match="Permission denied"):
        opened(file)


def test_a_failing_disk_is_damage(small_bundle: Path) -> None:
    class Failing:
        def seek(self, *where: int) -> int:
            return 0

        def read(self, count: int) -> bytes:
            raise OSError(5, "Input/output error")

    with Archive(small_bundle) as archive:
        archive._file.close()
        archive._file = Failing()  # type: ignore[assignment]
        with pytest.raises(BundleInvalidError, match=r"model/model\.onnx(.|\n)*Input/output error"):
            archive.read("model/model.onnx", 1000)
        archive._file = small_bundle.open("rb")


@pytest.mark.parametrize("durable", [False, True])
def test_extraction_writes_exactly_the_listed_files(small_bundle: Path, tmp_path: Path, durable: bool) -> None:
    target = tmp_path / "release"
    with Archive(small_bundle) as archive:
        raw = archive.read("manifest.json", 10**6)
        extract(archive, parse(raw), target, raw=raw, signature=None, durable=durable)
        contents = {path: archive.read(path, 10**6) for path in archive.members}
    found = {path.relative_to(target).as_posix(): path for path in target.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == contents
    assert {path.stat().st_mode & 0o777 for path in found.values()} == {0o644}
    assert {path.stat().st_mode & 0o777 for path in [target, *target.rglob("*")] if path.is_dir()} == {0o755}


def test_extraction_never_follows_or_overwrites(small_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with Archive(small_bundle) as archive:
        raw = archive.read("manifest.json", 10**6)
        for name in ("there", "link"):
            with pytest.raises(FileExistsError):
                extract(archive, parse(raw), tmp_path / name, raw=raw, signature=None, durable=False)
    assert not (tmp_path / "elsewhere").exists()


def test_extraction_stops_at_a_size_the_manifest_does_not_list(tmp_path: Path, small_bundle: Path) -> None:
    with Archive(small_bundle) as archive:
        raw = archive.read("manifest.json", 10**6)
        contents: dict[str, Path | bytes] = {path: archive.read(path, 10**6) for path in archive.members}
    contents["model/model.onnx"] = b"longer" * 100
    other = tmp_path / "other.edgepack"
    write_bundle(contents, other, STUB)
    with Archive(other) as archive, pytest.raises(BundleInvalidError, match=r"model/model\.onnx"):
        extract(archive, parse(raw), tmp_path / "out", raw=raw, signature=None, durable=False)
