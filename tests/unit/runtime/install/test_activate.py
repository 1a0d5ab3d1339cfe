"""The shell launcher: finds its release from anywhere, with nothing in the environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.runtime.installing import Device, silent

from edgepack_runtime.errors import ExitCode
from edgepack_runtime.install import activate
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix


@pytest.fixture(scope="module")
def installed(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Prefix:
    prefix = Prefix(tmp_path_factory.mktemp("with a space 和 $HOME'") / "prefix")
    install(bundle, prefix.root, log=silent)
    return prefix


def test_the_launcher_runs_from_any_folder_through_any_link(installed: Prefix, device: Device, tmp_path: Path) -> None:
    entry = installed.bin / "sentiment"
    (tmp_path / "absolute").symlink_to(entry)
    (tmp_path / "relative").symlink_to(os.path.relpath(entry, tmp_path))
    (tmp_path / "twice").symlink_to("relative")
    (tmp_path / "prefix").symlink_to(installed.root)
    commands = [
        ([entry], "/"),
        (["./sentiment"], installed.bin),
        (["bin/sentiment"], installed.root),
        (["/bin/sh", "sentiment"], installed.bin),
        (["./absolute"], tmp_path),
        ([tmp_path / "relative"], "/"),
        (["/bin/sh", "twice"], tmp_path),
        (["prefix/bin/sentiment"], tmp_path),
    ]
    for command, folder in commands:
        done = device(*command, "predict", "很好", cwd=folder)
        assert (done.returncode, json.loads(done.stdout or "null")) == (0, {"label": "差", "score": 0.75}), command


@pytest.mark.parametrize("shell", [["dash"], ["bash"], ["busybox", "ash"]], ids=lambda words: words[-1])
def test_the_launcher_runs_no_program_of_the_working_directory(
    installed: Prefix, device: Device, tmp_path: Path, shell: list[str]
) -> None:
    program = shutil.which(shell[0])
    if program is None:
        pytest.skip(f"there is no {shell[0]} here")
    (tmp_path / "link").symlink_to(installed.bin / "sentiment")
    planted = tmp_path / "readlink"
    planted.write_text("#!/bin/sh\ntouch planted-ran\n")
    planted.chmod(0o755)
    path = {"PATH": ":/usr/bin:/bin"}
    done = device(program, *shell[1:], tmp_path / "link", "predict", "很好", cwd=tmp_path, env=path)
    assert (done.returncode, json.loads(done.stdout or "null")) == (0, {"label": "差", "score": 0.75}), done.stderr
    assert not (tmp_path / "planted-ran").exists()


@pytest.mark.parametrize("env", [{}, {"CDPATH": "/tmp"}, {"PATH": ""}, {"IFS": "/"}, {"PATH": "/nonexistent"}])
def test_the_launcher_runs_in_any_environment(installed: Prefix, env: dict[str, str]) -> None:
    line = [installed.bin / "sentiment", "predict", "很好"]
    done = subprocess.run(line, env=env, cwd="/", capture_output=True, check=True)
    assert "差" in done.stdout.decode("utf-8")


@pytest.mark.parametrize("variable", ["PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__"])
def test_no_variable_moves_the_standard_library(installed: Prefix, tmp_path: Path, variable: str) -> None:
    """Since Python 3.11, -I does not stop these two."""
    library = tmp_path / "lib" / "python{}.{}".format(*sys.version_info)
    (library / "lib-dynload").mkdir(parents=True)
    for module in Path(os.__file__).parent.iterdir():
        if module.name != "lib-dynload":
            (library / module.name).symlink_to(module)
    (library / "json").unlink()
    (library / "json.py").write_text("raise SystemExit('planted')")
    line = [installed.bin / "sentiment", "predict", "很好"]
    done = subprocess.run(line, env={variable: str(tmp_path / "bin/python3")}, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_launcher_hands_on_its_arguments(installed: Prefix, device: Device) -> None:
    odd = ["a b", "*", "$HOME", "'\"", "\\n", "--", "-x"]
    done = device(installed.bin / "sentiment", "predict", "--", *odd)
    assert len(done.stdout.splitlines()) == len(odd)


def test_the_launcher_finds_a_moved_prefix_and_names_what_it_lacks(
    bundle: Path, device: Device, tmp_path: Path
) -> None:
    install(bundle, tmp_path / "prefix", log=silent)
    prefix = Prefix((tmp_path / "prefix").rename(tmp_path / "elsewhere"))
    done = device(prefix.bin / "sentiment", "status", "--json")
    assert (done.returncode, json.loads(done.stdout)["prefix"]) == (0, str(prefix.root))
    record = prefix.interpreters / str(prefix.current_id())
    assert os.path.realpath(sys.executable) == os.path.realpath(record.read_text().strip())
    record.write_text("/gone/python3\n")
    done = device(prefix.bin / "sentiment", "status")
    assert done.returncode == ExitCode.ENVIRONMENT_UNFIT
    assert "/gone/python3" in done.stderr
    record.unlink()
    assert device(prefix.bin / "sentiment", "status").returncode == ExitCode.BUNDLE_INVALID
    prefix.current.unlink()
    done = device(prefix.bin / "sentiment", "status")
    assert done.returncode == ExitCode.BUNDLE_INVALID
    assert f"no release of sentiment is installed in {prefix.root}" in done.stderr


@pytest.mark.parametrize("part", ["releases", "release"])
def test_the_launcher_refuses_a_release_behind_a_link(
    installed: Prefix, device: Device, tmp_path: Path, part: str
) -> None:
    """Its keys and its minimum sequence are found from its place, and would not be asked."""
    place = installed.releases if part == "releases" else installed.releases / str(installed.current_id())
    place.symlink_to(place.rename(tmp_path / part))
    done = device(installed.bin / "sentiment", "verify", "any.edgepack")
    assert done.returncode == ExitCode.ENVIRONMENT_UNFIT
    assert f"{installed.root}/releases leads to another place" in done.stderr


def test_the_launcher_is_written_only_if_it_differs(installed: Prefix) -> None:
    entry = installed.bin / "sentiment"
    before = entry.stat()
    activate.write_launcher(installed, "sentiment", str(installed.current_id()))
    assert entry.stat().st_ino == before.st_ino
    entry.chmod(0o644)
    activate.write_launcher(installed, "sentiment", str(installed.current_id()))
    assert entry.stat().st_mode & 0o777 == 0o755
