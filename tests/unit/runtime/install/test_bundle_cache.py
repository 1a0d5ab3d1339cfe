"""Models of bundle files, unpacked into the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.stubs import STUB
from tests.unit.runtime.ssh_keys import public, signed, write_trusted_keys
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack.bundle.archive import write_bundle
from edgepack_runtime import Predictor
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import FileEntry, dump
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, EnvironmentUnfitError, UsageError
from edgepack_runtime.install.bundle_cache import unpacked_model
from edgepack_runtime.install.trust import RevokedKeyError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the copies, which does not exist yet."""
    monkeypatch.setenv("EDGEPACK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bundles"


@pytest.fixture(scope="module")
def bundle(small_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small bundle with a model that answers."""
    folder = tmp_path_factory.mktemp("with a model")
    model = write_model_folder(folder / "model")
    members = {"site/lib.so.1": b"\x7fELF" * 90} | {f"model/{one.name}": one.read_bytes() for one in model.iterdir()}
    files = [FileEntry(path, len(raw), hashlib.sha256(raw).hexdigest()) for path, raw in sorted(members.items())]
    manifest = replace(verify_file(small_bundle)[0], files=tuple(files))
    write_bundle({**members, "manifest.json": dump(manifest)}, folder / "x.edgepack", STUB)
    return folder / "x.edgepack"


def damaged(bundle: Path, out: Path) -> Path:
    with Archive(bundle) as archive:
        place = archive.members["site/lib.so.1"].data_offset
    raw = bytearray(bundle.read_bytes())
    raw[place] ^= 1
    out.write_bytes(raw)
    return out


def test_a_bundle_answers_as_its_model_folder(bundle: Path, cache: Path) -> None:
    texts = ["店很好", "差", "好" * 40]
    wanted = Predictor(write_model_folder(cache.with_name("model"))).predict(texts)
    assert Predictor(bundle).predict(texts) == wanted
    [copy] = cache.glob("[!.]*")
    assert sorted(one.name for one in copy.iterdir()) == [
        "manifest.json",
        "model",
    ]  # no library, which would not be used
    before = (copy / "model/model.onnx").stat()
    assert Predictor(str(bundle)).predict(texts) == wanted
    assert os.path.samestat(before, (copy / "model/model.onnx").stat())


def change(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"\0")


@pytest.mark.parametrize(
    "harm",
    [
        lambda copy: change(copy / "model/model.onnx"),
        lambda copy: change(copy / "manifest.json"),
        lambda copy: (copy / "model/vocab.txt").unlink(),
        lambda copy: (copy / "model/more.py").touch(),
        lambda copy: (copy / "manifest.json.sig").write_bytes(b"x"),
        lambda copy: (shutil.rmtree(copy), copy.write_bytes(b"x")),
        shutil.rmtree,
    ],
)
def test_a_copy_that_differs_is_unpacked_again(bundle: Path, harm: Callable[[Path], object]) -> None:
    copy = unpacked_model(bundle)
    wanted = {one: one.read_bytes() for one in copy.glob("**/*.*") if one.is_file()}
    harm(copy)
    assert unpacked_model(bundle) == copy
    assert {one: one.read_bytes() for one in copy.glob("**/*.*") if one.is_file()} == wanted


def test_a_damaged_file_is_refused_whether_or_not_there_is_a_copy(bundle: Path, cache: Path, tmp_path: Path) -> None:
    bad = damaged(bundle, tmp_path / "bad.edgepack")
    for _ in range(2):
        with pytest.raises(BundleInvalidError, match=r"bad\.edgepack is damaged: member site/lib\.so\.1"):
            Predictor(bad)
        assert not (cache / ".tmp").exists()
        unpacked_model(bundle)
    for path, error in ((tmp_path / "none.edgepack", UsageError), (Path(__file__), BundleInvalidError)):
        with pytest.raises(error):
            Predictor(path)


def test_keys_count_as_for_an_install(
    bundle: Path, keys: tuple[Path, Path], machine: Path, cache: Path, tmp_path: Path
) -> None:
    ours, theirs = (signed(bundle, key, tmp_path / f"{key.name}.edgepack") for key in keys)

    def refuses(path: Path, words: str, kind: type[EdgepackError] = BundleInvalidError) -> None:
        for _ in range(2):
            with pytest.raises(kind, match=words):
                Predictor(path)

    assert unpacked_model(theirs) == unpacked_model(ours) == unpacked_model(bundle)  # they hold the same
    file = write_trusted_keys(machine, keys[0])
    assert Predictor(ours).predict("好").label == "good"
    refuses(bundle, "not signed")
    refuses(theirs, "a key that this device does not trust")
    (machine / "revoked_keys").write_text(public(keys[0]).line + "\n")
    refuses(ours, "revoked", RevokedKeyError)
    file.write_text("nonsense\n")
    refuses(ours, "trusted_signers", EnvironmentUnfitError)


def test_a_folder_that_others_can_write_holds_no_copy(bundle: Path, cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(EnvironmentUnfitError, match="EDGEPACK_CACHE moves"):
        unpacked_model(bundle)
    assert list(cache.iterdir()) == []


def test_processes_that_open_it_at_once_share_a_copy(bundle: Path, cache: Path) -> None:
    (cache / ".tmp/left").mkdir(parents=True)  # of a process that was killed
    code = f"from edgepack_runtime import Predictor; print(Predictor({str(bundle)!r}).predict('好').label)"
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [one.communicate()[0] for one in started] == ["good\n"] * 4
    assert sorted(one.name for one in cache.iterdir() if one.name != ".lock") == [unpacked_model(bundle).name]
