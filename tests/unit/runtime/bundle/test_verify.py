"""Integrity: no byte of a bundle or release may change unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stubs import STUB
from tests.sweeps import sample
from tests.unit.runtime.ssh_keys import armored, body

from edgepack.bundle.archive import write_bundle
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.extract import extract
from edgepack_runtime.bundle.manifest import MAX_SIGNATURE_BYTES, SIGNATURE_NAME, release_id
from edgepack_runtime.bundle.verify import find_damage, read_manifest, verify_file, verify_folder, verify_staged
from edgepack_runtime.errors import BundleInvalidError, UsageError
from edgepack_runtime.util import fs


@pytest.fixture
def release(small_bundle: Path, tmp_path: Path) -> Path:
    manifest, raw = verify_file(small_bundle)
    folder = tmp_path / release_id(manifest, raw)
    with Archive(small_bundle) as archive:
        extract(archive, manifest, folder, raw=raw, signature=None, durable=False)
    return folder


def test_an_intact_bundle_and_release_pass(small_bundle: Path, release: Path) -> None:
    assert verify_file(small_bundle) == verify_folder(release)
    manifest, raw = verify_folder(release)
    assert manifest.name == "sentiment"
    assert raw == (release / "manifest.json").read_bytes()


@pytest.mark.parametrize("mask", [0x01, *(pytest.param(mask, marks=pytest.mark.sweep) for mask in (0x10, 0x80, 0xFF))])
def test_every_flipped_byte_is_found_and_its_member_named(small_bundle: Path, tmp_path: Path, mask: int) -> None:
    raw, path = small_bundle.read_bytes(), tmp_path / "x.edgepack"
    with Archive(small_bundle) as archive:
        names = {place: one.path for one in archive.members.values() for place in range(one.offset, one.end)}
    for position in sample(range(len(raw)), 3):
        path.write_bytes(raw[:position] + bytes([raw[position] ^ mask]) + raw[position + 1 :])
        with pytest.raises(BundleInvalidError) as caught:
            verify_file(path)
        # A deflate stream has spare bits that change nothing of the content: only the file's digest sees those.
        assert names.get(position, "") in str(caught.value) or "spare bits in compressed data" in str(caught.value)


@given(data=st.data())
@settings(max_examples=100)
def test_cuts_insertions_and_swaps_are_found(
    small_bundle: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    raw = small_bundle.read_bytes()
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, len(raw)))
    changed = raw[:start] + data.draw(st.binary(max_size=40)) + raw[end:]
    if changed == raw:
        return
    path = tmp_path_factory.mktemp("changed") / "x.edgepack"
    path.write_bytes(changed)
    with pytest.raises(BundleInvalidError):
        verify_file(path)


def contents(bundle: Path) -> dict[str, Path | bytes]:
    with Archive(bundle) as archive:
        return {path: archive.read(path, 10**6) for path in archive.members}


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("site/extra.py", b"", "does not list"),
        ("model/model.onnx", None, "missing"),
        ("model/model.onnx", bytes(256), "sha256 differs from the manifest"),
        ("manifest.json", None, "missing"),
    ],
)
def test_a_valid_zip_that_differs_from_its_manifest_is_refused(
    small_bundle: Path, tmp_path: Path, name: str, content: bytes | None, why: str
) -> None:
    members = {**contents(small_bundle), name: content}
    write_bundle({path: data for path, data in members.items() if data is not None}, tmp_path / "x.edgepack", STUB)
    with pytest.raises(BundleInvalidError, match=rf"{name}(.|\n)*{why}"):
        verify_file(tmp_path / "x.edgepack")


def test_every_flipped_byte_of_a_release_is_found(release: Path) -> None:
    for path in [path for path in release.rglob("*") if path.is_file()]:
        raw = path.read_bytes()
        for position in sample(range(len(raw)), 3):
            path.write_bytes(raw[:position] + bytes([raw[position] ^ 0x20]) + raw[position + 1 :])
            with pytest.raises(BundleInvalidError, match=path.name.replace(".", r"\.")):
                verify_folder(release)
        path.write_bytes(raw)
    verify_folder(release)


def test_missing_unlisted_and_replaced_files_are_named(release: Path) -> None:
    (release / "model/model.onnx").unlink()
    (release / "site/extra.so").touch()
    (release / "site/empty").mkdir()
    (release / "golden/rows.jsonl").unlink()
    (release / "golden/rows.jsonl").symlink_to("/etc/passwd")
    (release / "edgepack_runtime/__init__.py").unlink()
    os.mkfifo(release / "edgepack_runtime/__init__.py")
    (release / "__main__.py").write_bytes(b"raise SystemExit(1)\n")
    manifest, _ = read_manifest(release)
    damage = {item.path: item.why for item in find_damage(release, manifest)}
    assert damage == {
        "__main__.py": "its content has changed",
        "edgepack_runtime/__init__.py": "is a special file where a file belongs",
        "golden/rows.jsonl": "is a link where a file belongs",
        "model/model.onnx": "is missing",
        "site/empty": "is a folder that the manifest does not list",
        "site/extra.so": "is a file that the manifest does not list",
    }
    with pytest.raises(BundleInvalidError) as caught:
        verify_folder(release)
    assert "__main__.py: its content has changed" in caught.value.what
    assert "and 1 more" in caught.value.why


def test_the_repair_of_a_release_names_its_prefix(release: Path, tmp_path: Path) -> None:
    moved = tmp_path / "a prefix" / "releases" / release.name
    for folder, named in ((release, "PREFIX"), (moved, f"'{tmp_path}/a prefix'")):
        if folder == moved:
            moved.parent.mkdir(parents=True)
            release.rename(moved)
        (folder / "site/词.txt").write_bytes(b"xyz")
        assert find_damage(folder, read_manifest(folder)[0], hashed=False) == []
        with pytest.raises(BundleInvalidError) as caught:
            verify_folder(folder)
        assert caught.value.fix == f"install it again from its file: sh FILE install --prefix {named}"


def test_folders_nested_deeper_than_python_calls_are_damage(release: Path) -> None:
    manifest, _ = verify_folder(release)
    deep, before = "/".join("d" * 900), sys.getrecursionlimit()
    subprocess.run(["mkdir", "-p", str(release / deep)], check=True)  # Python calls itself for each folder
    sys.setrecursionlimit(800)
    try:
        assert {damage.path for damage in find_damage(release, manifest)} >= {"d", "d/d", deep}
    finally:
        sys.setrecursionlimit(before)
        subprocess.run(["rm", "-rf", str(release / "d")], check=True)


def test_a_folder_replaced_by_a_link_is_damage(release: Path, tmp_path: Path) -> None:
    (release / "model").rename(tmp_path / "moved")
    (release / "model").symlink_to(tmp_path / "moved")
    with pytest.raises(BundleInvalidError, match="model: is a link where a folder belongs"):
        verify_folder(release)


def test_the_folders_name_guards_the_manifest(release: Path) -> None:
    manifest = release / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"sequence": 1', b'"sequence": 2'))
    with pytest.raises(BundleInvalidError, match=r"manifest\.json(.|\n)*sha256 differs from the folder's name"):
        read_manifest(release)
    other = release.rename(release.with_name("by-hand"))
    assert read_manifest(other)[0].sequence == 2
    (other / "manifest.json").unlink()
    with pytest.raises(BundleInvalidError, match="cannot be read"):
        read_manifest(other)
    with pytest.raises(UsageError):
        verify_folder(other / "none")


def test_a_release_may_hold_a_well_formed_signature(release: Path, tmp_path: Path) -> None:
    file = release / SIGNATURE_NAME
    file.write_bytes(armored(body()))
    verify_folder(release)
    for content in (b"", armored(body(rest=b"more")), armored(body()) + b"\n" * MAX_SIGNATURE_BYTES):
        file.write_bytes(content)
        with pytest.raises(BundleInvalidError, match="is not an SSH signature"):
            verify_folder(release)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleInvalidError, match="is a link that the manifest does not list"):
        verify_folder(release)


@pytest.mark.parametrize("signed", [False, True])
def test_a_staged_release_is_compared_with_the_verified_bundle(release: Path, signed: bool) -> None:
    manifest, raw = verify_folder(release)
    signature = armored(body()) if signed else None
    if signature is not None:
        (release / SIGNATURE_NAME).write_bytes(signature)
    verify_staged(release, manifest, raw, signature)
    for held in ({None, armored(body())} - {signature}) | {armored(body()) + b"\n"}:
        with pytest.raises(BundleInvalidError, match=f"{SIGNATURE_NAME}: its content has changed"):
            verify_staged(release, manifest, raw, held)
    for other in (raw + b"\n", raw[:-1], b""):
        with pytest.raises(BundleInvalidError, match=r"manifest\.json: its content has changed"):
            verify_staged(release, manifest, other, signature)
    (release / "__main__.py").unlink()
    with pytest.raises(BundleInvalidError, match=r"__main__\.py: is missing"):
        verify_staged(release, manifest, raw, signature)


def test_a_huge_file_is_damage_without_being_read(release: Path) -> None:
    file = release / "model" / "model.onnx"
    os.truncate(file, 2**40)  # sparse; to read it would take hours
    with pytest.raises(BundleInvalidError, match=f"has {2**40} bytes instead of"):
        verify_folder(release)
    assert not fs.holds(file, b"x")


def test_a_file_of_another_size_is_damage(release: Path) -> None:
    file = release / "model" / "model.onnx"
    raw = file.read_bytes()
    for content in (raw[:-1], raw + b"x", b""):
        file.write_bytes(content)
        with pytest.raises(BundleInvalidError, match=f"has {len(content)} bytes instead of {len(raw)}"):
            verify_folder(release)
