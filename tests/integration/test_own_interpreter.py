"""A CPython of the user's own, given as an archive: Debian's here, which runs from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from edgepack.errors import StageFailedError
from edgepack.interpreter import from_archive
from edgepack.recipe.model import OwnInterpreter
from edgepack.targets.profile_file import load_profiles
from edgepack.targets.profiles import Profile
from edgepack.util.hashing import sha256_file
from edgepack_runtime.util import gate_lock

from .conftest import Project

pytestmark = pytest.mark.integration
SYSTEM = Path("/usr/bin/python3")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `python` as python-build-standalone packs it."""
    if not SYSTEM.exists():
        pytest.skip("this system has no Python of its own")
    asked = "import os, sys; print(*sys.version_info[:2], sys.prefix, os.path.dirname(os.__file__))"
    said = subprocess.run([SYSTEM, "-I", "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    if int(said[1]) < 11 or said[2] != "/usr":
        pytest.skip("this system's Python is older, or not a Debian's")
    folder = tmp_path_factory.mktemp("own") / "python"
    (folder / "bin").mkdir(parents=True)
    shutil.copyfile(SYSTEM.resolve(), folder / "bin/python3.x")
    (folder / "bin/python3.x").chmod(0o755)
    (folder / "bin/python3").symlink_to("python3.x")
    ignored = shutil.ignore_patterns("__pycache__", "config-*", "test", "dist-packages", "sitecustomize.py")
    shutil.copytree(said[3], folder / "lib" / Path(said[3]).name, ignore=ignored)
    return folder


def packed(folder: Path, into: Path) -> OwnInterpreter:
    file = into / "cpython.tar.gz"
    with tarfile.open(file, "w:gz", compresslevel=1) as archive:
        archive.add(folder, "python")
    return OwnInterpreter(path=str(file), sha256=sha256_file(file))


@pytest.fixture(scope="module")
def own(unpacked: Path) -> OwnInterpreter:
    return packed(unpacked, unpacked.parent)


@pytest.fixture
def local() -> Profile:
    return load_profiles()["local"]


def test_a_bundle_carries_it_and_runs_on_it(project: Project, own: OwnInterpreter, tmp_path: Path) -> None:
    settings = ("targets=[local]", f"interpreter.path={own.path}", f"interpreter.sha256={own.sha256}")
    done = project.edgepack(
        "build", "tiny.yaml", "--dist", str(tmp_path), *(word for one in settings for word in ("--set", one))
    )
    assert done.returncode == 0, done.stderr[-4000:]
    [bundle] = tmp_path.glob("*.edgepack")
    prefix = tmp_path / "prefix"
    version = subprocess.run(
        [SYSTEM, "-c", "import sys; print(*sys.version_info[:2], sep='')"], capture_output=True, text=True, check=True
    ).stdout.strip()
    (tmp_path / "lib").mkdir()
    with zipfile.ZipFile(tmp_path / f"lib/python{version}.zip", "w") as archive:  # in a folder above all that runs
        archive.writestr("encodings/__init__.py", "raise SystemExit('a planted library')")
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), gate_lock.VARIABLE: os.environ[gate_lock.VARIABLE]}
    for command in (
        ["sh", bundle, "install", "--wait", "0", "--prefix", prefix, "--no-tune"],
        [prefix / "bin/tiny", "predict", "好"],
    ):
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
    [program] = prefix.glob("releases/*/*/python/bin/python3")
    assert program.read_bytes() == SYSTEM.read_bytes()
    assert not [*prefix.rglob("cache")]
    about = project.edgepack("inspect", str(bundle)).stdout
    assert "(Python is carried)" in about
    told = subprocess.run([prefix / "bin/tiny", "doctor"], capture_output=True, text=True, check=True).stdout
    assert "(needs 2." in told
    [module] = prefix.glob("releases/*/edgepack_runtime/errors.py")
    (planted := module.with_suffix("")).mkdir()
    (planted / "__init__.py").write_text("import os; os._exit(99)")  # a package would go before the module
    run = subprocess.run([prefix / "bin/tiny", "predict", "好"], capture_output=True, text=True, check=False)
    assert (run.returncode, "errors/__init__.py is not as it was built" in run.stderr) == (8, True)


def test_another_archive_than_the_recipe_means_is_refused(own: OwnInterpreter, local: Profile, tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match=r"cpython.tar.gz cannot be carried") as caught:
        from_archive.build(own.model_copy(update={"sha256": "0" * 64}), local, tmp_path)
    assert caught.value.why == f"its sha256 is {own.sha256}"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("#!/bin/sh\necho cpython 3 10 9 /\n", "it is cpython 3.10.9"),
        ("#!/bin/sh\necho pypy 3 11 9 /\n", "it is pypy 3.11.9"),
        ("#!/bin/sh\necho cpython 3 12 1 /usr\n", "it looks for its library in /usr, wherever it lies"),
        ("#!/bin/sh\necho no _ctypes >&2; exit 1\n", "it does not run: no _ctypes"),
        ("\x7fELF of another machine", "it does not start: "),
        (None, "it has no bin/python3"),
    ],
)
def test_a_program_that_no_bundle_can_carry_is_named(
    program: str | None, why: str, local: Profile, tmp_path: Path
) -> None:
    (tmp_path / "python/bin").mkdir(parents=True)
    if program is not None:
        (tmp_path / "python/bin/python3").write_text(program)
        (tmp_path / "python/bin/python3").chmod(0o755)
    with pytest.raises(StageFailedError) as caught:
        from_archive.build(packed(tmp_path / "python", tmp_path), local, tmp_path)
    assert caught.value.why.startswith(why)
    assert "python-build-standalone" in caught.value.fix


def test_what_is_not_an_archive_is_named(local: Profile, tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_text("no")
    given = OwnInterpreter(path=str(tmp_path / "x.tar.gz"), sha256=sha256_file(tmp_path / "x.tar.gz"))
    with pytest.raises(StageFailedError) as caught:
        from_archive.build(given, local, tmp_path)
    assert caught.value.why.startswith("it cannot be unpacked: ")
    assert "\n" not in caught.value.why
