"""Packages that a recipe adds: how their wheels are chosen, what of them travels, and how they are compiled."""

from __future__ import annotations

import hashlib
import io
import shutil
import sys
import tarfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgepack.bundle import bundled_interpreters
from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError, StageFailedError
from edgepack.interpreter import from_archive
from edgepack.interpreter.bytecode import Compiler
from edgepack.packages import site_packages, unpacked, wheels
from edgepack.packages.target_spec import TargetSpec, python_of
from edgepack.progress import SILENT, Task
from edgepack.recipe.model import OwnInterpreter
from edgepack.targets import package_data
from edgepack.targets.context import BuildContext
from edgepack.targets.profile_file import load_profiles
from edgepack.targets.profiles import Cuda, Profile
from edgepack.targets.tags import Python
from edgepack_runtime.bundle.manifest import BUNDLED, HOST

MakeWheel = Callable[..., Path]
TARGET = Profile("test-target", "for tests", ("x86_64",), BUNDLED, glibc="2.36")
KNOWN = load_profiles()
LINUX = "manylinux_2_17_x86_64"


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def lock_of(*files: Path) -> str:
    """A lock of these wheels: one line a package."""
    found: dict[str, list[str]] = {}
    for file in files:
        found.setdefault("==".join(file.name.split("-")[:2]), []).append(f"--hash=sha256:{digest_of(file)}")
    return "".join(f"{name} {' '.join(hashes)}\n" for name, hashes in found.items())


class Index:
    """Stands in for pip: serves a package's wheel for the Python that is asked for."""

    def __init__(self, *files: Path) -> None:
        self.files = files
        self.calls = 0

    def __call__(self, requirements: Path, folder: Path, profile: Profile, python: Python | None) -> None:
        self.calls += 1
        text = requirements.read_text(encoding="utf-8")
        fits = "-py3-none-" if python is None else "-cp{}{}-".format(*python)
        for file in self.files:
            if digest_of(file) in text and (fits in file.name or "-py3-none-" in file.name):
                shutil.copy(file, folder)
                return
        raise EnvironmentUnfitError("pip could not fetch the target's wheels", why="no matching distribution")


@pytest.fixture(autouse=True)
def empty_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """edgepack's own locks name nothing, which suits this test."""
    monkeypatch.setattr(wheels, "require", lambda *names, **options: None)
    monkeypatch.setattr(package_data, "text", lambda *path: "")


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    return BuildContext({}, tmp_path / "cache")


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    return tmp_path / "requirements.txt"


def test_a_wheel_is_chosen_for_the_python_of_the_bundle(
    make_wheel: MakeWheel, requirements: Path, context: BuildContext
) -> None:
    files = [make_wheel({"a.py": tag}, name="aaa", tag=f"{tag}-{tag}-{LINUX}") for tag in ("cp311", "cp312")]
    pure = make_wheel({"b.py": ""}, name="bbb")
    requirements.write_text(lock_of(*files, pure))
    index = Index(*files, pure)
    for python, file in (((3, 11), files[0]), ((3, 12), files[1])):
        lacking = wheels.missing(TargetSpec(TARGET, packages=requirements, python=python), context)
        found = wheels.fetch(TargetSpec(TARGET, packages=requirements, python=python), context, SILENT, download=index)
        assert [path.name for path in found] == [file.name, pure.name]
        assert "aaa" in [package.name for package in lacking]
        assert wheels.missing(TargetSpec(TARGET, packages=requirements, python=python), context) == []
    assert index.calls == 3
    offline = replace(context, offline=True)
    again = wheels.fetch(TargetSpec(TARGET, packages=requirements, python=(3, 12)), offline, SILENT, download=index)
    assert [path.name for path in again] == [files[1].name, pure.name]


@pytest.mark.parametrize("in_cache", [False, True])
def test_where_the_device_brings_the_python_only_wheels_for_any_travel(
    make_wheel: MakeWheel, requirements: Path, context: BuildContext, in_cache: bool
) -> None:
    target = replace(TARGET, interpreter=HOST)
    pure = make_wheel({"b.py": ""}, name="bbb", tag=f"py3-none-{LINUX}")
    native = make_wheel({"a.py": ""}, name="aaa", tag=f"cp311-cp311-{LINUX}")
    index = Index(native, pure)
    requirements.write_text(lock_of(pure))
    [found] = wheels.fetch(TargetSpec(target, packages=requirements), context, SILENT, download=index)
    assert found.name == pure.name
    requirements.write_text(lock_of(native, pure))
    if in_cache:
        wheels.fetch(TargetSpec(target, packages=requirements, python=(3, 11)), context, SILENT, download=index)
        context = replace(context, offline=True)
    with pytest.raises(RecipeInvalidError, match="aaa needs one version of Python") as caught:
        wheels.fetch(TargetSpec(target, packages=requirements), context, SILENT, download=index)
    assert caught.value.fix == "write `interpreter: bundled`"
    gpu = replace(target, cuda=Cuda("12.6", ("87",)))
    with pytest.raises(RecipeInvalidError) as caught:
        wheels.fetch(TargetSpec(gpu, packages=requirements), context, SILENT, download=index)
    assert "interpreter: {path: " in caught.value.fix


def test_a_wheel_that_is_not_to_be_had_is_fetched_with_the_recipe(
    make_wheel: MakeWheel, requirements: Path, context: BuildContext
) -> None:
    requirements.write_text(lock_of(make_wheel({"a.py": ""}, name="aaa")))
    for python in ((3, 11), None):
        with pytest.raises(EnvironmentUnfitError, match=r"could not be downloaded: aaa==1\.0") as caught:
            wheels.fetch(TargetSpec(TARGET, packages=requirements, python=python), context, SILENT, download=Index())
        assert "`edgepack fetch RECIPE --wheel-cache wheels`" in caught.value.fix


def test_another_version_of_a_package_that_travels_anyway_is_refused(
    make_wheel: MakeWheel, requirements: Path, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = lock_of(make_wheel({"click.py": ""}, name="click", version="8.1.0"))
    monkeypatch.setattr(package_data, "text", lambda folder, name: own if name == "serve.txt" else "")
    requirements.write_text(lock_of(make_wheel({"click.py": ""}, name="click", version="8.0.1")))
    [package], _ = wheels.wanted(TargetSpec(TARGET, packages=requirements, python=(3, 11)), context)
    assert (package.version, package.is_added) == ("8.0.1", True)
    with pytest.raises(RecipeInvalidError, match=r"click==8\.0\.1 cannot go") as caught:
        wheels.wanted(TargetSpec(TARGET, serve=True, packages=requirements, python=(3, 11)), context)
    assert "click==8.1.0" in caught.value.fix
    requirements.write_text(f"click==8.1 --hash=sha256:{'a' * 64}\n")
    [package], _ = wheels.wanted(TargetSpec(TARGET, serve=True, packages=requirements, python=(3, 11)), context)
    assert (package.version, package.is_added) == ("8.1.0", False)


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ((3, 13), ("--implementation cp", "--python-version 3.13", "--abi cp313", "--abi abi3", "--abi none")),
        (None, ("--implementation py", "--python-version 3.11", "--abi none")),
    ],
)
def test_pip_is_asked_for_that_python(
    python: Python | None,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    pip_download: wheels.Download,
) -> None:
    asked: list[str] = []
    done = SimpleNamespace(returncode=0)
    monkeypatch.setattr(wheels.subprocess, "run", lambda command, **_: (asked.append(" ".join(command)), done)[1])
    pip_download(tmp_path / "r.txt", tmp_path, TARGET, python)
    assert all(word in asked[0] for word in words)
    assert asked[0].count("--abi") == sum("--abi" in word for word in words)


FILES = {
    "aaa/__init__.py": '"""Kept."""\n',
    "aaa/_core.cpython-311-x86_64-linux-gnu.so": "no ELF file",
    "aaa/tests/__init__.py": "",
    "aaa/tests/_natype.py": "imported by aaa.testing\n",
    "aaa/tests/test_a.py": "assert 1\n",
    "aaa/tests/deep/test_b.py": "assert 1\n",
    "aaa/tests/data/x.json": "{}",
    "aaa/__init__.pyi": "",
    "aaa/c.pxd": "",
    "aaa/lib/libaaa.a": "",
    "aaa/include/a.h": "",
    "aaa-1.0.data/data/share/aaa.txt": "outside",
    "aaa-1.0.data/headers/aaa.h": "outside",
    "aaa-1.0.data/scripts/aaa": "#!python\n",
    "aaa-1.0.dist-info/entry_points.txt": "[console_scripts]\naaa = aaa:main\n",
}


class Lines:
    """Keeps the lines that are printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def task(self, label: str, total: int, done: int = 0) -> AbstractContextManager[Task]:
        return SILENT.task(label, total, done)

    def line(self, text: str) -> None:
        self.lines.append(text)


def test_what_travels_of_an_added_package(
    make_wheel: MakeWheel, requirements: Path, context: BuildContext, tmp_path: Path
) -> None:
    wheel = make_wheel(FILES, name="aaa", tag=f"cp311-cp311-{LINUX}", metadata="License: BSD\n", licensed=False)
    pure = make_wheel({"bbb.py": ""}, name="bbb")
    requirements.write_text(lock_of(wheel, pure))
    wheels.fetch(
        TargetSpec(TARGET, packages=requirements, python=(3, 11)), context, SILENT, download=Index(wheel, pure)
    )
    progress = Lines()
    spec = TargetSpec(TARGET, engine=False, packages=requirements, python=(3, 11))
    site = site_packages.site_for([spec], context, tmp_path / "out", progress)
    assert sorted(site.added) == [
        "site/bbb-1.0.dist-info/METADATA",
        "site/bbb.py",
        "x86_64/site/aaa-1.0.dist-info/METADATA",
        "x86_64/site/aaa/__init__.py",
        "x86_64/site/aaa/_core.cpython-311-x86_64-linux-gnu.so",
        "x86_64/site/aaa/include/a.h",
        "x86_64/site/aaa/tests/__init__.py",
        "x86_64/site/aaa/tests/_natype.py",
    ]
    assert site.added <= site.members.keys()
    assert {package.name: package.license for package in site.packages} == {"aaa": "NOASSERTION", "bbb": "MIT"}
    assert site.needs.checks.notes == ("aaa 1.0 comes without a licence text",)
    assert progress.lines == ["aaa 1.0: left out 2 files outside of its packages, such as aaa.h"]


def test_stubs_travel_where_a_module_reads_them(make_wheel: MakeWheel, tmp_path: Path) -> None:
    files = {"aaa/__init__.py": "import lazy_loader\nlazy_loader.attach_stub(__name__, __file__)\n", "aaa/a.pyi": ""}
    wheel = make_wheel({**files, "aaa/b.pxd": ""}, name="aaa")
    facts = site_packages.assemble([wheel], tmp_path / "out", TARGET, added={"aaa"})
    assert "aaa/a.pyi" in facts.added and "aaa/b.pxd" not in facts.added


def test_a_module_in_c_needs_a_python_that_is_known(make_wheel: MakeWheel, tmp_path: Path) -> None:
    wheel = make_wheel({"aaa/x.abi3.so": "no ELF file"}, name="aaa", tag=f"py3-none-{LINUX}")
    with pytest.raises(StageFailedError, match="does not run on target"):
        site_packages.assemble([wheel], tmp_path / "one", TARGET, added={"aaa"})
    site_packages.assemble([wheel], tmp_path / "two", TARGET, added={"aaa"}, python=(3, 11))


def test_added_modules_become_bytecode_wherever_they_lie(tmp_path: Path) -> None:
    texts = {
        "x86_64/site/cv2/__init__.py": '"""Doc."""\nload(["config.py"])\n',
        "x86_64/site/cv2/config.py": "PATHS = []\n",
        "x86_64/site/cv2/config-3.py": "PATHS = []\n",
        "x86_64/site/cv2/other.py": "x = 1\n",
        "x86_64/site/cv2/template.py": "class {{x}}\n",
        "site/own.py": '"""Left out."""\n',
        "edgepack_runtime/a.py": "",
    }
    members: dict[str, Any] = {"model.json": b"{}"}
    for number, (name, text) in enumerate(texts.items()):
        members[name] = tmp_path / f"{number}.py"
        members[name].write_text(text)
    added = {name for name in texts if "cv2" in name}
    made = bundled_interpreters._with_bytecode(members, Compiler([sys.executable]), "3.11.2", tmp_path / "out", added)
    assert sorted(made) == [
        "edgepack_runtime/__pycache__/a.cpython-311.pyc",
        "edgepack_runtime/a.py",
        "model.json",
        "site/own.pyc",
        "x86_64/site/cv2/__init__.pyc",
        "x86_64/site/cv2/config-3.py",
        "x86_64/site/cv2/config.py",
        "x86_64/site/cv2/other.pyc",
        "x86_64/site/cv2/template.py",
    ]
    assert b"Doc." in Path(str(made["x86_64/site/cv2/__init__.pyc"])).read_bytes()
    assert b"Left out." not in Path(str(made["site/own.pyc"])).read_bytes()


def test_the_python_of_a_bundle() -> None:
    assert python_of(None, KNOWN["linux-x86_64"]) == (3, 11)
    assert python_of(None, KNOWN["local"]) == sys.version_info[:2]
    assert python_of(None, KNOWN["jetpack6"]) is None
    assert python_of(None, replace(KNOWN["linux-x86_64"], interpreter=HOST)) is None


def archive_of(folder: Path, *names: str) -> OwnInterpreter:
    file = folder / f"{len(names)}.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    return OwnInterpreter(path=str(file), sha256=digest_of(file))


def test_the_python_of_an_archive_is_that_of_its_library(tmp_path: Path) -> None:
    own = archive_of(tmp_path, "python/bin/python3", "python/lib/python3.13/os.py", "python/lib/python3.13/re/os.py")
    recipe: Any = SimpleNamespace(interpreter=own)
    assert python_of(recipe, KNOWN["local"]) == (3, 13)
    with pytest.raises(StageFailedError, match="cannot be carried") as caught:
        from_archive.python_of(archive_of(tmp_path, "python/lib/python3.13/os.py", "python/lib/python3.12/os.py"))
    assert caught.value.why == "it has 2 folders lib/python3.N"
    (tmp_path / "x").write_text("no archive")
    with pytest.raises(StageFailedError, match="cannot be carried"):
        from_archive.python_of(OwnInterpreter(path=str(tmp_path / "x"), sha256=digest_of(tmp_path / "x")))


def test_packages_are_unpacked_once_for_this_python(
    make_wheel: MakeWheel, requirements: Path, context: BuildContext, tmp_path: Path
) -> None:
    tag = "cp{}{}".format(*sys.version_info[:2])
    wheel = make_wheel(
        {**FILES, "aaa/a.cpython-3x.so": ""}, name="aaa", tag=f"{tag}-{tag}-linux_{unpacked.platform.machine()}"
    )
    requirements.write_text(lock_of(wheel))
    index = Index(wheel)
    folder = tmp_path / "unpacked"
    place = unpacked.unpacked_here(requirements, context, SILENT, folder, download=index)
    assert (place / "aaa/__init__.py").read_text() == '"""Kept."""\n'
    (place / "marker").touch()
    assert unpacked.unpacked_here(requirements, context, SILENT, folder, download=index) == place
    assert (place / "marker").exists()
    assert [path.name for path in folder.iterdir()] == [place.parent.name]
    assert index.calls == 1
    other = make_wheel({"aaa/__init__.py": ""}, name="aaa", version="2.0")
    requirements.write_text(lock_of(other))
    assert unpacked.unpacked_here(requirements, context, SILENT, folder, download=Index(other)) != place


def test_a_folder_that_cannot_be_written_is_named(
    make_wheel: MakeWheel, requirements: Path, context: BuildContext, tmp_path: Path
) -> None:
    wheel = make_wheel({"aaa.py": ""}, name="aaa")
    requirements.write_text(lock_of(wheel))
    (tmp_path / "file").touch()
    with pytest.raises(StageFailedError, match="cannot be unpacked into"):
        unpacked.unpacked_here(requirements, context, SILENT, tmp_path / "file", download=Index(wheel))
