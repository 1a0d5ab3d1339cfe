"""The strict reader: structure, bounds, extraction. `test_hostile.py` has the names, sizes and forms it refuses."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import pytest
from tests.heads import HEAD

from edgepack.bundle.archive import write_bundle
from edgepack_runtime.bundle import archive as form
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.extract import extract
from edgepack_runtime.bundle.manifest import parse
from edgepack_runtime.errors import BundleInvalidError, EnvironmentUnfitError, UsageError


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
    out = HEAD
    for member in members:
        out += form.local_header(member) + data[member.path] + gap
    directory = b"".join(form.directory_entry(member) for member in members)
    out += directory + form.end_record(len(members), len(directory), len(out))
    return out + form.comment(hashlib.sha256(out[:-2]).hexdigest())


def test_gaps_between_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.edgepack"
    first = form.Member("a", form.STORED, 0, 0, 0, form.HEAD_BYTES)
    path.write_bytes(rebuilt([first], {"a": b""}))
    opened(path)  # without a gap it is fine
    path.write_bytes(rebuilt([first], {"a": b""}, gap=b"hidden"))
    with pytest.raises(BundleInvalidError, match="directory"):
        opened(path)
    second = form.Member("b", form.STORED, 0, 0, 0, first.end + 6)
    path.write_bytes(rebuilt([first, second], {"a": b"", "b": b""}, gap=b"hidden"))
    with pytest.raises(BundleInvalidError, match="header of member b"):
        opened(path)


def test_a_member_never_gives_more_than_its_size(tmp_path: Path) -> None:
    content = bytes(10_000_000)
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = deflater.compress(content) + deflater.flush()
    member = form.Member("bomb", form.DEFLATED, 0, len(packed), 10, form.HEAD_BYTES)
    path = tmp_path / "x.edgepack"
    path.write_bytes(rebuilt([member], {"bomb": packed}))
    with Archive(path) as archive, pytest.raises(BundleInvalidError, match="more than its 10 bytes"):
        archive.read("bomb", 100)
    honest = form.Member("bomb", form.DEFLATED, zlib.crc32(content), len(packed), len(content), form.HEAD_BYTES)
    path.write_bytes(rebuilt([honest], {"bomb": packed}))
    with Archive(path) as archive:
        with pytest.raises(BundleInvalidError, match="at most 100 are read"):
            archive.read("bomb", 100)
        assert archive.read("bomb", 10_000_000) == content


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
    write_bundle(contents, other, HEAD)
    with Archive(other) as archive, pytest.raises(BundleInvalidError, match=r"model/model\.onnx"):
        extract(archive, parse(raw), tmp_path / "out", raw=raw, signature=None, durable=False)
