"""Locks that are made anew, in a copy of the package's folder, by a uv and an apt that are made up."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgepack.errors import EnvironmentUnfitError
from edgepack.interpreter import debian
from edgepack.packages import locks
from edgepack.targets import package_data
from edgepack.targets.profile_file import load_profiles

HASH = f" \\\n    --hash=sha256:{'a' * 64}\n"
APT = """\
#!/bin/sh
for last; do :; done
case $last in update) exit ;; esac
echo "'http://mirror/debian/pool/main/z/zlib/z_1.2%2bdfsg-1.deb' zlib1g_1%3a1.2+dfsg-1_amd64.deb 7 SHA256:{digest}"
echo "'http://mirror/debian-security/pool/updates/main/e/expat/e.deb' libexpat1_2.5-1_amd64.deb 7 SHA256:{digest}"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The copy; apt has two packages."""
    shutil.copytree(package_data.folder("."), tmp_path / "targets")
    monkeypatch.setattr(package_data, "_FOLDER", tmp_path / "targets")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text(APT.format(digest="b" * 64))
    (tmp_path / "bin/apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "targets" / "locks"


def resolve(command: Sequence[str], folder: Path) -> str:
    """Version 9 of each package that the file names."""
    lines = (folder / command[2]).read_text(encoding="utf-8").splitlines()
    names = [line.split("==")[0] for line in lines if not line.startswith("#")]
    return "".join(f"{name}==9{HASH}" for name in names)


def test_the_wheels_and_the_interpreter_of_a_target_are_locked_anew(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    made = locks.write(load_profiles()["linux-x86_64"], resolve)
    assert made[folder / "onnxruntime.txt"] == ("onnxruntime==9",)
    assert "uvicorn==9" in made[folder / "serve.txt"]
    assert made[folder / "interpreter-x86_64.txt"] == ("libexpat1 2.5-1", "zlib1g 1:1.2+dfsg-1")
    assert [package.path for package in debian.locked("x86_64")] == [
        "pool/updates/main/e/expat/e.deb",
        "pool/main/z/zlib/z_1.2+dfsg-1.deb",
    ]
    changed = {file.name for file in folder.iterdir() if before.get(file.name) != file.read_bytes()}
    assert changed == {file.name for file in made}
    assert all(b"Do not edit by hand" in file.read_bytes() for file in made)


def test_a_target_without_an_interpreter_needs_no_apt(folder: Path) -> None:
    (folder.parents[1] / "bin/apt-get").unlink()
    made = locks.write(load_profiles()["linux-x86_64-cuda13"], resolve)
    assert [file.name for file in made] == ["onnxruntime-cuda13.txt", "serve.txt"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"onnxruntime @ s3://wheels/onnxruntime.whl{HASH}", "would name a host"),
        (f"numpy==1{HASH}", "would lack onnxruntime"),
        ("onnxruntime==1\n", "damaged"),
    ],
)
def test_what_no_lock_may_say_is_not_written(folder: Path, text: str, words: str) -> None:
    before = (folder / "onnxruntime.txt").read_bytes()
    with pytest.raises(EnvironmentUnfitError, match=words):
        locks.write(load_profiles()["jetpack6"], lambda *_: text)
    assert (folder / "onnxruntime.txt").read_bytes() == before


def test_without_uv_it_says_what_to_type(folder: Path) -> None:
    with pytest.raises(EnvironmentUnfitError, match="uv is not installed") as caught:
        locks.write(load_profiles()["jetpack6"])
    assert "uv pip compile onnxruntime.in" in caught.value.fix


def test_without_apt_it_says_so(folder: Path) -> None:
    (folder.parents[1] / "bin/apt-get").unlink()
    with pytest.raises(EnvironmentUnfitError, match="apt is needed"):
        locks.write(load_profiles()["linux-aarch64"], resolve)
