"""The wheel and the sdist, as `make dist` makes them: complete, light, and in use outside of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("packager", "runtime", "pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(kind: str, folder: Path, out: Path) -> Path:
    """Build a distribution of the sources in `folder`."""
    command = [sys.executable, "-W", "ignore", "-c", BUILD, f"build_{kind}", str(out)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the sdist of the sources."""
    base = tmp_path_factory.mktemp("distribution")
    source, out = base / "source", base / "dist"
    source.mkdir()
    out.mkdir()
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        path = ROOT / name
        shutil.copytree(path, source / name, ignore=leave) if path.is_dir() else shutil.copy(path, source)
    with tarfile.open(build("sdist", source, out)) as archive:
        archive.extractall(base / "unpacked", filter="data")
    [unpacked] = (base / "unpacked").iterdir()
    return build("wheel", unpacked, out)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's files and scripts; dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(folder)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    return folder


def run(installed: Path, cwd: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [str(installed / "bin" / command[0]), *command[1:]],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    wanted = set()
    for folder, package in (("packager", "edgepack"), ("runtime", "edgepack_runtime")):
        files = (ROOT / folder / package).rglob("*")
        wanted |= {
            path.relative_to(ROOT / folder).as_posix() for path in files if path.is_file() and path.suffix != ".pyc"
        }
    with zipfile.ZipFile(wheel) as archive:
        assert wanted - set(archive.namelist()) == set()


def required(wheel: Path, extra: str | None) -> set[str]:
    """The requirements of the wheel without an extra, or what the extra adds."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        lines = HeaderParser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])
    parts = [line.partition(";") for line in lines]
    return {what.strip() for what, _, marker in parts if ("extra ==" in marker) == (extra is not None)
            and (extra is None or f'extra == "{extra}"' in marker)}  # fmt: skip


def test_without_an_extra_the_install_is_light(wheel: Path) -> None:
    base = {re.split(r"[^\w-]", line)[0] for line in required(wheel, None)}
    assert "click" in base and not {
        name for name in base if re.search("paddle|torch|matplotlib|pandas|starlette", name)
    }


def test_the_extra_asks_for_what_the_locked_stack_asks_for(wheel: Path) -> None:
    """A package of the Paddle stack that nothing requires is missing without it, and one without a bound is too new."""
    stack, light = ((ROOT / "requirements" / name).read_text(encoding="utf-8") for name in ("build.in", "base.in"))
    bounds = re.findall(r"^(?:numpy|pip|protobuf|setuptools)\b.*", light, re.MULTILINE)
    assert required(wheel, "paddle") == {*re.findall(r"^\w.*", stack, re.MULTILINE), *bounds}


def test_an_installed_wheel_works_outside_of_the_repository(installed: Path, tmp_path: Path) -> None:
    code = "import edgepack, edgepack_runtime; print(edgepack.__file__, edgepack_runtime.__file__)"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)},
                           capture_output=True, text=True, check=True).stdout  # fmt: skip
    assert all(Path(file).is_relative_to(installed) for file in found.split())
    assert "linux-aarch64" in run(installed, tmp_path, "edgepack", "targets", "list")
    shutil.copy(ROOT / "recipes" / "quickstart.yaml", tmp_path / "recipe.yaml")
    assert "recipe.yaml: valid" in run(installed, tmp_path, "edgepack", "check", "recipe.yaml")
    assert "[--input FILE]" in run(installed, tmp_path, "edgert", "predict", "--help")


def test_the_constraints_are_the_locked_versions() -> None:
    locked = (ROOT / "requirements" / "build.txt").read_text(encoding="utf-8").splitlines()
    constraints = (ROOT / "packager/edgepack/training/constraints.txt").read_text(encoding="utf-8").splitlines()
    assert constraints[1:] == [line.removesuffix(" \\") for line in locked if re.match("[A-Za-z]", line)]
