"""Cutting a bundle: the parts are its bytes, the same each time, and nothing of anybody else is replaced."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgepack import signing
from edgepack.cli import main
from edgepack.errors import BundleInvalidError, UsageError
from edgepack.inspection import inspect
from edgepack.targets import splitting
from edgepack.targets.archive import write_bundle
from edgepack.targets.splitting import split
from edgepack_runtime.manifest import MANIFEST_NAME, FileEntry, Manifest, TargetFacts, dump
from edgepack_runtime.verify import verify_file

FILES = {
    "__main__.py": b"raise SystemExit(0)\n",
    "edgepack_runtime/cli.py": b"",
    "model/model.json": b'{"labels": ["0", "1"], "max_length": 16}',
    "site/noise": hashlib.shake_256(b"").digest(3 << 20),  # nothing makes it smaller
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    entries = tuple(FileEntry(n, len(d), hashlib.sha256(d).hexdigest()) for n, d in sorted(FILES.items()))
    facts = TargetFacts("test", "Linux", "x86_64", "glibc", "2.5", "3.11", "CPUExecutionProvider")
    manifest = Manifest("hotel", "1.2.0", 1, "task", facts, {}, {}, (), {}, "0" * 64, entries)
    file = tmp_path / "hotel.edgepack"
    write_bundle({**FILES, MANIFEST_NAME: dump(manifest)}, file)
    return file


def test_the_command_writes_beside_the_bundle(bundle: Path) -> None:
    result = CliRunner().invoke(main, ["split", str(bundle), "--size", "1M"])
    assert result.exit_code == 0, result.output
    folder = bundle.with_name("hotel.edgepack.split")
    names = [f"hotel.edgepack{suffix}" for suffix in ("", ".part1", ".part2", ".part3", ".part4")]
    assert [line.split()[0] for line in result.output.splitlines()] == [str(folder / name) for name in names]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert max(path.stat().st_size for path in folder.iterdir()) == 1 << 20
    assert b"".join((folder / name).read_bytes() for name in names[1:]) == bundle.read_bytes()
    assert verify_file(folder / names[0]) == verify_file(bundle)
    assert inspect(folder / names[0]) == inspect(bundle)


def test_it_is_the_same_each_time_and_replaces_what_it_made(bundle: Path, tmp_path: Path) -> None:
    def content(paths: list[Path]) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in paths}

    folder = tmp_path / "out"
    first = content(split(bundle, folder, 1 << 20))
    assert content(split(bundle, folder, 2 << 20)).keys() < first.keys()
    assert content(split(bundle, folder, 1 << 20)) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hotel.edgepack", "out"]


def test_the_whole_bundle_stays(bundle: Path, tmp_path: Path) -> None:
    """What starts the parts has its name: its own folder, with nothing else in it, looked like an earlier result."""
    whole = bundle.read_bytes()
    with pytest.raises(UsageError, match="holds something else"):
        split(bundle, tmp_path, 1 << 20)
    assert bundle.read_bytes() == whole
    assert [path.name for path in tmp_path.iterdir()] == [bundle.name]


def test_a_file_that_only_begins_like_a_part_stays(bundle: Path, tmp_path: Path) -> None:
    note = tmp_path / "out" / f"{bundle.name}.part1-is-for-line-3.txt"
    note.parent.mkdir()
    note.touch()
    with pytest.raises(UsageError, match="holds something else"):
        split(bundle, note.parent, 1 << 20)
    assert note.exists()


def test_a_folder_of_somebody_else_stays(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds something else") as caught:
        split(bundle, tmp_path, 1 << 20)
    assert caught.value.why == "notes.txt"
    with pytest.raises(UsageError, match="holds something else"):
        split(bundle, tmp_path / "notes.txt", 1 << 20)
    assert bundle.exists()


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1])
def test_parts_are_not_too_small(bundle: Path, tmp_path: Path, size: int) -> None:
    with pytest.raises(UsageError, match="is not split into parts of") as caught:
        split(bundle, tmp_path / "out", size)
    assert caught.value.fix == "give a size of 1M or more"


def test_parts_are_not_too_many(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting.form, "MAX_PARTS", 2)
    with pytest.raises(UsageError) as caught:
        split(bundle, tmp_path / "out", 1 << 20)
    assert caught.value.fix == "give a size of 2M or more"
    assert len(split(bundle, tmp_path / "out", 2 << 20)) == 3


def test_what_is_damaged_or_split_already_is_not_split(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing, "require", lambda key: "SHA256:x")
    starts = split(bundle, tmp_path / "out", 1 << 20)[0]
    with pytest.raises(UsageError, match="is in parts already"):
        split(starts, tmp_path / "again", 1 << 20)
    with pytest.raises(UsageError, match=r"hotel\.edgepack is in parts"):
        signing.sign(starts, tmp_path / "key", starts)
    data = bytearray(bundle.read_bytes())
    data[2_000_000] ^= 1
    bundle.write_bytes(data)
    with pytest.raises(BundleInvalidError, match="member site/noise"):
        split(bundle, tmp_path / "again", 1 << 20)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("size", ["60MB", "0", "-1", "1.5G", "", "M", "\u0661M"])
def test_no_size(bundle: Path, size: str) -> None:
    result = CliRunner().invoke(main, ["split", str(bundle), "--size", size])
    assert result.exit_code == 2
    assert "is no size: 60M, 1G, 500000" in result.output
