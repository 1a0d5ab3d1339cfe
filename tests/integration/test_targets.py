"""Bundles that carry an interpreter: built, gated and installed here, and one for another machine without a verdict.

Packages come from the cache or through pip and apt; a test is skipped where they cannot be had.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.interpreters import other_machine, required_python

from edgepack.binaries import elf
from edgepack.errors import EnvironmentUnfitError
from edgepack.interpreter import debian
from edgepack.progress import SILENT
from edgepack.targets.context import BuildContext
from edgepack.util.hashing import sha256_file
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.util import gate_lock

from .conftest import CARRIED, Project

pytestmark = pytest.mark.integration
LOCKED = debian.locked("x86_64")
ELSEWHERE = f"linux-{other_machine()}"


@pytest.fixture(scope="module")
def fetched(project: Project) -> None:
    done = project.edgepack("fetch", "--target", "linux")
    if done.returncode == ExitCode.ENVIRONMENT_UNFIT:
        pytest.skip(f"the packages of the interpreter cannot be had here: {done.stderr[-400:]}")
    assert done.returncode == 0, done.stderr[-2000:]


def delivered(project: Project, dist: str) -> tuple[Path, dict[str, Any]]:
    """The bundle in `dist`, and what the report says of its target."""
    folder = project.folder / dist
    report = json.loads(next(folder.glob("*.report.json")).read_text(encoding="utf-8"))
    return next(folder.glob("*.edgepack")), report["targets"][0]


def built(project: Project, target: str) -> tuple[Path, dict[str, Any], str]:
    """As `delivered`, and the output of the build."""
    settings = ("--set", f"targets=[{target}]", "--set", "serve=true", "--offline")
    done = project.edgepack("build", "tiny.yaml", *settings, "--dist", f"dist-{target}")
    assert done.returncode == 0, done.stderr[-4000:]
    return *delivered(project, f"dist-{target}"), done.stdout


def device(*command: str | Path, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run on a device without HOME; `changed` are variables."""
    kept = {"TMPDIR": os.environ.get("TMPDIR", "/tmp"), gate_lock.VARIABLE: os.environ[gate_lock.VARIABLE]}
    environment = {"PATH": "/usr/bin:/bin", **kept, **changed}
    return subprocess.run(
        [*map(str, command)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_bundle_is_gated_on_the_interpreter_that_it_carries(carried: Project) -> None:
    bundle, about = delivered(carried, "dist")
    assert about["verdict"] == "pass"
    assert about["receipt"]["conditions"]["python"].startswith("3.11.")
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
    assert names[0] == f"CPYTHON-{platform.machine()}.tar.gz"
    assert not [name for name in names if name.endswith((".abi3.so", "-gnu.so"))]


@pytest.mark.parametrize(
    "start", ["sh", pytest.param("", marks=pytest.mark.sweep), "3.8", pytest.param("3.13", marks=pytest.mark.sweep)]
)
def test_a_release_runs_on_its_own_interpreter_whatever_installed_it(
    carried: Project, start: str, tmp_path: Path
) -> None:
    bundle, _ = delivered(carried, "dist")
    command = [required_python(start)] if start[:1] == "3" else [start] if start else []
    temporary, prefix = tmp_path / "tmp", tmp_path / "it's here"
    temporary.mkdir()
    done = device(*command, bundle, "install", "--wait", "0", "--prefix", prefix, "--no-tune", TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr[-2000:]
    for _ in range(50):  # what the file unpacked for this command goes when that has ended
        if not list(temporary.iterdir()):
            break
        time.sleep(0.1)
    assert list(temporary.iterdir()) == []
    moved = tmp_path / "moved"
    prefix.rename(moved)  # nothing in it names its own path
    answered = device(moved / "bin/tiny", "predict", "房间很大", PATH="/nowhere", LD_LIBRARY_PATH="/lib")
    assert json.loads(answered.stdout)["label"] in ("正面", "负面"), answered.stderr
    assert device(moved / "bin/tiny", "verify").returncode == 0
    loader = next(moved.glob("releases/*/*/python/bin/ld.so"))
    loader.chmod(0o644)
    damaged = device("python3", bundle, "verify", next(moved.glob("releases/*")))
    assert damaged.returncode == ExitCode.BUNDLE_INVALID
    assert "may not be executed" in damaged.stderr


def test_twice_the_same_bytes(carried: Project) -> None:
    bundle, _ = delivered(carried, "dist")
    options = ("--offline", "--from", "bundle", "--until", "bundle", "--json")
    done = carried.edgepack("build", "tiny.yaml", *CARRIED, *options)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "bundle done in" in done.stderr
    again = carried.folder / json.loads(done.stdout)["stages"][-1]["folder"] / bundle.name
    assert again.read_bytes() == bundle.read_bytes()


def test_a_bundle_for_another_machine_is_delivered_without_a_verdict(
    project: Project, fetched: None, tmp_path: Path
) -> None:
    bundle, about, said = built(project, ELSEWHERE)
    assert (about["verdict"], about["receipt"], about["exit_code"]) == ("not run here", None, None)
    assert about["not_run_here"]["command"] == f"sh {bundle.name} gate"
    assert f"{ELSEWHERE}: NOT RUN HERE" in said
    with zipfile.ZipFile(bundle) as archive:
        binaries = [name for name in archive.namelist() if ".so" in Path(name).name]
        assert len(binaries) == 2
        for name in binaries:
            assert (
                elf.read(Path(archive.extract(name, tmp_path))).machine
                == {"aarch64": "EM_AARCH64", "x86_64": "EM_X86_64"}[other_machine()]
            )
    refused = project.edgepack("gate", str(bundle))
    assert refused.returncode == ExitCode.TARGET_UNREACHABLE
    assert f"sh {bundle.name} gate" in refused.stderr
    started = device("sh", bundle, "doctor")  # by the python3 of this machine
    assert started.returncode == ExitCode.ENVIRONMENT_UNFIT
    assert f"this is Linux {platform.machine()}" in started.stdout


def test_a_file_for_both_machines_installs_the_part_of_one(project: Project, fetched: None, tmp_path: Path) -> None:
    bundle, about, _ = built(project, "linux")
    assert about["verdict"] == "pass"
    done = device("sh", bundle, "install", "--wait", "0", "--prefix", tmp_path / "p", "--no-tune")
    assert done.returncode == 0, done.stderr[-2000:]
    (release,) = [path for path in (tmp_path / "p/releases").iterdir() if path.name != ".tmp"]
    assert (release / platform.machine()).is_dir()
    assert not (release / other_machine()).exists()
    assert device(tmp_path / "p/bin/tiny", "verify").returncode == 0
    foreign = release / other_machine()
    foreign.mkdir()
    shutil.copy(release / "README.txt", foreign)
    assert device(tmp_path / "p/bin/tiny", "verify").returncode == ExitCode.BUNDLE_INVALID


def test_a_wheel_that_does_not_fit_is_refused_before_the_training(project: Project, tmp_path: Path) -> None:
    wheel = tmp_path / "onnxruntime_gpu-1.23.0-cp310-cp310-linux_x86_64.whl"
    wheel.write_bytes(b"")
    refused = project.edgepack("build", "tiny.yaml", "--wheel", str(wheel))
    assert refused.returncode == ExitCode.USAGE
    assert "do not carry onnxruntime-gpu" in refused.stderr
    by_recipe = project.edgepack(
        "build", "tiny.yaml", "--set", "targets=[jetpack5]", "--set", f"wheels={{jetpack5: [{wheel}]}}"
    )
    assert by_recipe.returncode == ExitCode.ENVIRONMENT_UNFIT
    assert "it is for linux_x86_64, and the target is Linux on aarch64" in by_recipe.stderr


def test_a_newer_package_that_debian_did_not_sign_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apt trusts what its sources call trusted; a machine inside a company has such sources."""
    if shutil.which("apt-get") is None:
        pytest.skip("there is no apt here")
    (tmp_path / "etc").mkdir()
    (tmp_path / "repo").mkdir()
    name, file = "zlib1g", tmp_path / "repo/zlib1g_1.2.13.dfsg-1+deb12u9_amd64.deb"
    file.write_bytes(b"not what Debian built")
    (tmp_path / "repo/Packages").write_text(
        f"Package: {name}\nVersion: 1:1.2.13.dfsg-1+deb12u9\nArchitecture: amd64\nFilename: ./{file.name}\n"
        f"Size: {file.stat().st_size}\nSHA256: {sha256_file(file)}\n"
    )
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{tmp_path}/repo ./\n")
    (tmp_path / "apt.conf").write_text(
        f'Dir::Etc::sourcelist "{tmp_path}/sources.list";\nDir::Etc::sourceparts "{tmp_path}/etc";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(tmp_path / "apt.conf"))
    monkeypatch.delenv(debian.VARIABLE, raising=False)
    apt = debian.Apt("x86_64", tmp_path / "state")
    apt.update()
    apt.run("download", name)  # that is how it would come
    (tmp_path / f"state/{file.name.replace('_', '_1%3a', 1)}").unlink()
    monkeypatch.setattr(debian, "locked", lambda machine: [one for one in LOCKED if one.name == name])
    with pytest.raises(EnvironmentUnfitError, match="could not be downloaded: zlib1g"):
        debian.fetch("x86_64", BuildContext({}, tmp_path / "cache"), SILENT)
