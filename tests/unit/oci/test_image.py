"""Container images of small bundles, read back with other readers."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests import hostile
from tests.unit.runtime.ssh_keys import make_key, needs_ssh_keygen, public, sign

from edgepack.bundle.archive import write_signed
from edgepack.cli import main
from edgepack.errors import BundleInvalidError, StageFailedError, UsageError
from edgepack.oci import image
from edgepack.progress import SILENT
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.extract import extract
from edgepack_runtime.bundle.verify import find_damage, verify_file

SBOM = b'{"bomFormat": "CycloneDX"}'


def draft(files: Mapping[str, bytes] = MappingProxyType({}), **target: Any) -> hostile.Draft:
    """A bundle as of target `linux-x86_64`, with a server."""
    made = hostile.good({"site/uvicorn/__init__.py": b"", "sbom.cdx.json": SBOM, "licenses/mit.txt": b"MIT", **files})
    with_python = hostile.with_interpreter(hostile.tar_of("bin/cpython"))
    carried = [one for one in with_python.entries if one.path.startswith("CPYTHON")]
    files = [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for path, data in sorted(
            {**{one.path: one.content for one in made.entries}, "x86_64/python/bin/cpython": hostile.PASSES}.items()
        )
    ]
    document = {
        **made.manifest,
        "target": {**made.manifest["target"], "interpreter": "bundled", **target},
        "interpreters": with_python.manifest["interpreters"],
        "files": files,
    }
    return replace(made, entries=[*made.entries, *carried], manifest=document)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "sentiment-1.2.0-linux-x86_64.edgepack"
    path.write_bytes(hostile.pack(draft()))
    return path


class Read:
    """The blobs of a layout, read with `tarfile` and `json` alone."""

    def __init__(self, file: Path) -> None:
        with tarfile.open(file) as tar:
            self.files = {one.name: tar.extractfile(one).read() for one in tar if one.isfile()}  # type: ignore[union-attr]

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        algorithm, digest = descriptor["digest"].split(":")
        raw = self.files[f"blobs/{algorithm}/{digest}"]
        assert hashlib.sha256(raw).hexdigest() == digest
        assert len(raw) == descriptor["size"]
        return raw

    def document(self, descriptor: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.blob(descriptor))
        return found

    def named(self, reference: str = "sentiment:1.2.0") -> dict[str, Any]:
        (found,) = json.loads(self.files["index.json"])["manifests"]
        assert found["annotations"]["org.opencontainers.image.ref.name"] == reference
        return dict(found)

    def first(self) -> dict[str, Any]:
        """The manifest of the first image in the index."""
        return self.document(self.document(self.named())["manifests"][0])

    def layers(self, manifest: dict[str, Any]) -> list[dict[str, tarfile.TarInfo]]:
        found = []
        for one in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(self.blob(one)), mode="r:gz") as tar:
                found.append({one.name: one for one in tar})
        return found

    def unpack(self, manifest: dict[str, Any], folder: Path) -> None:
        for one in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(self.blob(one)), mode="r:gz") as tar:
                tar.extractall(folder)


def test_the_release_in_an_image_is_the_one_that_an_install_unpacks(bundle: Path, tmp_path: Path) -> None:
    written = image.write([bundle], None, model_only=False, progress=SILENT)
    assert written.file == tmp_path / "sentiment-1.2.0.oci.tar"
    read = Read(written.file)
    manifest = read.first()
    read.unpack(manifest, tmp_path / "root")
    parsed, raw = verify_file(bundle)
    assert find_damage(tmp_path / "root" / "app", parsed) == []
    with Archive(bundle) as archive:
        extract(archive, parsed, tmp_path / "installed", raw=raw, signature=None, durable=False)
    for file in (tmp_path / "installed").rglob("*"):
        twin = tmp_path / "root" / "app" / file.relative_to(tmp_path / "installed")
        if file.is_file():
            assert (twin.read_bytes(), twin.stat().st_mode) == (file.read_bytes(), file.stat().st_mode)


def test_the_first_layer_has_nothing_of_the_model(bundle: Path) -> None:
    read = Read(image.write([bundle], None, model_only=False, progress=SILENT).file)
    engine, model = read.layers(read.first())
    assert {"app/x86_64/python/bin/cpython", "app/edgepack_runtime/__init__.py", "app/licenses/mit.txt"} <= set(engine)
    assert engine["lib64/ld-linux-x86-64.so.2"].linkname == "/app/x86_64/python/bin/ld.so"
    assert engine["lib/x86_64-linux-gnu"].linkname == "/app/x86_64/python/lib"
    assert (engine["tmp"].mode, engine["app/x86_64/python/bin/cpython"].mode) == (0o1777, 0o755)
    assert set(model) == {
        "app", "app/manifest.json", "app/model", "app/model/model.onnx", "app/golden", "app/golden/rows.jsonl",
        "app/sbom.cdx.json",
    }  # fmt: skip
    for one in (*engine.values(), *model.values()):
        assert (one.uid, one.gid, one.mtime) == (0, 0, 0)


def test_a_container_starts_as_nobody_and_serves(bundle: Path) -> None:
    read = Read(image.write([bundle], None, model_only=False, progress=SILENT).file)
    manifest = read.first()
    config = read.document(manifest["config"])
    assert (config["os"], config["architecture"]) == ("linux", "amd64")
    run = config["config"]
    python = "/app/x86_64/python/bin/cpython"
    assert run["Entrypoint"] == [python, "-I", "-S", "-B", "/app/__main__.py"]
    assert (run["User"], run["Cmd"]) == ("65532:65532", ["serve", "--host", "0.0.0.0"])
    assert run["Healthcheck"]["Test"][:2] == ["CMD", python]
    assert run["Labels"]["org.opencontainers.image.version"] == "1.2.0"
    assert f"EDGEPACK_BUNDLE_BYTES={bundle.stat().st_size}" in run["Env"]
    unpacked = [hashlib.sha256(gzip.decompress(read.blob(one))).hexdigest() for one in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{one}" for one in unpacked]


def test_an_image_has_its_bill_of_materials(bundle: Path) -> None:
    read = Read(image.write([bundle], None, model_only=False, progress=SILENT).file)
    one, listed = read.document(read.named())["manifests"]
    artifact = read.document(listed)
    assert artifact["subject"]["digest"] == one["digest"] == listed["annotations"]["vnd.docker.reference.digest"]
    assert listed["platform"] == {"os": "unknown", "architecture": "unknown"}
    assert read.blob(artifact["layers"][0]) == SBOM


def test_two_folders_give_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    first = image.write([bundle], None, model_only=False, progress=SILENT).file
    (tmp_path / "elsewhere").mkdir()
    moved = tmp_path / "elsewhere" / "renamed.edgepack"
    moved.write_bytes(bundle.read_bytes())
    second = image.write([moved], tmp_path / "elsewhere" / "b.tar", model_only=False, progress=SILENT).file
    assert first.read_bytes() == second.read_bytes()


def test_machines_share_an_index(bundle: Path, tmp_path: Path) -> None:
    other = draft(machines=["aarch64"], profile="linux-aarch64")
    manifest = json.loads(json.dumps(other.manifest).replace("x86_64/python", "aarch64/python"))
    manifest["files"].sort(key=lambda entry: entry["path"])
    manifest["interpreters"][0]["machine"] = "aarch64"
    entries = [replace(one, path=one.path.replace("CPYTHON-x86_64", "CPYTHON-aarch64")) for one in other.entries]
    second = tmp_path / "second.edgepack"
    second.write_bytes(hostile.pack(replace(other, entries=entries, manifest=manifest)))
    written = image.write([bundle, second], None, model_only=False, progress=SILENT)
    read = Read(written.file)
    index = read.document(read.named())
    assert [one["platform"]["architecture"] for one in index["manifests"]] == ["amd64", "unknown", "arm64", "unknown"]
    amd64, arm64 = (read.document(one) for one in index["manifests"][::2])
    assert "lib/ld-linux-aarch64.so.1" in read.layers(arm64)[0]
    assert amd64["layers"][0] != arm64["layers"][0]
    with pytest.raises(UsageError, match="both for x86_64"):
        image.write([bundle, bundle], None, model_only=False, progress=SILENT)


def test_a_model_alone_is_a_volume(bundle: Path, tmp_path: Path) -> None:
    written = image.write([bundle], None, model_only=True, progress=SILENT)
    assert (written.file, written.reference) == (tmp_path / "sentiment-1.2.0.model.oci.tar", "sentiment-model:1.2.0")
    read = Read(written.file)
    (files,) = read.layers(read.document(read.named("sentiment-model:1.2.0")))
    assert set(files) == {"model.onnx"}


def command(*words: object) -> Result:
    return CliRunner().invoke(main, ["image", *map(str, words)])


def test_the_command_prints_layers_and_what_to_type_next(bundle: Path) -> None:
    done = command(bundle)
    assert done.exit_code == 0, done.output
    for part in ("linux/amd64", "interpreter and engine", "skopeo copy --all oci-archive:", "podman load --input"):
        assert part in done.output
    found = json.loads(command(bundle, "--json").stdout)
    assert [layer["name"] for layer in found["images"][0]["layers"]] == ["interpreter and engine", "model"]


@pytest.mark.parametrize(
    ("made", "what"),
    [
        (draft(interpreter="host"), "cannot become an image"),
        (draft(interpreter="own"), "cannot become an image"),
        (replace(hostile.good(), manifest={
            **hostile.good().manifest, "target": {**hostile.good().manifest["target"], "interpreter": "bundled"},
        }), "was built without `serve: true`"),
    ],
)  # fmt: skip
def test_what_no_image_can_run_is_refused(made: hostile.Draft, what: str, tmp_path: Path) -> None:
    path = tmp_path / "a.edgepack"
    path.write_bytes(hostile.pack(made))
    with pytest.raises(UsageError, match=what):
        image.write([path], None, model_only=False, progress=SILENT)
    assert [one.name for one in tmp_path.iterdir()] == ["a.edgepack"]


def test_bundles_of_two_builds_are_refused(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.edgepack"
    path.write_bytes(hostile.pack(replace(draft(), manifest={**draft().manifest, "version": "1.3.0"})))
    with pytest.raises(UsageError, match="not of one build"):
        image.write([bundle, path], None, model_only=False, progress=SILENT)


def test_a_damaged_bundle_becomes_no_image(bundle: Path) -> None:
    raw = bytearray(bundle.read_bytes())
    raw[len(raw) // 2] ^= 1
    bundle.write_bytes(raw)
    with pytest.raises(BundleInvalidError):
        image.write([bundle], None, model_only=False, progress=SILENT)
    assert not list(bundle.parent.glob("*.tar"))


@pytest.mark.parametrize("name", ["site/.wh.uvicorn", "model/.wh..wh..opq", "site/.wh.a/b.py"])
def test_a_name_that_removes_files_of_other_layers_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.edgepack"
    path.write_bytes(hostile.pack(draft({name: b"1"})))
    with pytest.raises(StageFailedError, match="cannot be in an image"):
        image.write([path], None, model_only=False, progress=SILENT)
    assert [one.name for one in tmp_path.iterdir()] == ["a.edgepack"]


@needs_ssh_keygen
def test_an_image_names_the_key_that_signed_alone(bundle: Path, tmp_path: Path) -> None:
    """A signature names its key by itself: of another manifest, it is one that this key never made."""
    key = make_key(tmp_path, "release")
    with Archive(bundle) as archive:
        good, forged = tmp_path / "good.edgepack", tmp_path / "forged.edgepack"
        write_signed(archive, sign(key, archive.read("manifest.json", 2**20)), good)
        write_signed(archive, sign(key, b"another manifest"), forged)
    labels = Read(image.write([good], None, model_only=False, progress=SILENT).file).first()["annotations"]
    assert labels["edgepack.signed-by"] == public(key).fingerprint
    with pytest.raises(BundleInvalidError):
        image.write([forged], tmp_path / "forged.tar", model_only=False, progress=SILENT)
    assert not (tmp_path / "forged.tar").exists()


@pytest.mark.parametrize("name", ["__main__.py", "sbom.cdx.json"])
def test_bytes_that_change_after_the_check_are_not_packed(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    read, chunks = Archive.read, Archive.chunks
    checked: list[bool] = []
    open_bundle = image._OpenBundle.open

    def opened(*given: Any) -> Any:
        found = open_bundle(*given)
        checked.append(True)
        return found

    def other(self: Archive, *given: Any) -> Any:
        found = read(self, *given)
        return b"{}" if checked and given[0] == name else found

    def others(self: Archive, member: Any) -> Any:
        yield from (b"x" * member.size,) if checked and member.path == name else chunks(self, member)

    monkeypatch.setattr(image._OpenBundle, "open", opened)
    monkeypatch.setattr(Archive, "read", other)
    monkeypatch.setattr(Archive, "chunks", others)
    with pytest.raises(BundleInvalidError, match="changed after it was checked"):
        image.write([bundle], tmp_path / "a.tar", model_only=False, progress=SILENT)
