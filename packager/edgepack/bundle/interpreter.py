"""The interpreter that a bundle carries: CPython with its C library, from Debian's packages, without what nobody needs.

In a release it is `MACHINE/python/`: programs in `bin/`, shared libraries in `lib/`, the standard library as one zip of
bytecode, and modules in C in `lib/python3.11/lib-dynload/`. `bin/python3` is a shell script: it starts `bin/cpython`
through its own loader, `bin/ld.so`, so that nothing of the device's C library is used and no variable is set that
another program could inherit.

Modules are compiled by the interpreter of the machine that builds, from the same lock, so that the bytes do not depend
on the Python that runs edgepack.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edgepack.bundle import debian
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.targets import package_data
from edgepack.targets.context import BuildContext
from edgepack.targets.profiles import BUNDLED, Profile
from edgepack_runtime.bundle import interpreter as carried
from edgepack_runtime.bundle.manifest import FileEntry

_MULTIARCH: Final = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
_LOADER: Final = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
_LEVEL: Final = 9
_CORRECT: Final = "correct targets/interpreter.toml"
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
_PYTHON3: Final = """\
#!/bin/sh
# Starts CPython through the loader beside it. A library that the user preloads is built for another C library.
unset LD_PRELOAD
bin=${0%/*}
exec "$bin/ld.so" --inhibit-cache --argv0 "$0" --library-path "$bin/../lib" "$bin/cpython" "$@"
"""
# Runs in the interpreter that the bytecode is for, and leaves out docstrings, a seventh of it. The header of a .pyc
# (PEP 552) says that no source is looked at: a release is compared with its manifest, not with the times of its files.
_COMPILE: Final = """\
import ast, importlib.util, json, marshal, os, sys
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
for source, name, target in json.load(sys.stdin):
    with open(source, "rb") as file:
        tree = ast.parse(file.read(), name)
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node.body[0])]
    code = compile(tree, name, "exec", dont_inherit=True)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as file:
        file.write(importlib.util.MAGIC_NUMBER + b"\\1\\0\\0\\0" + bytes(8) + marshal.dumps(code))
"""


@dataclass(frozen=True)
class Interpreter:
    """An interpreter for one machine, in `folder` as it lies in `MACHINE/python/` of a release.

    `licenses` are the texts by their place in the bundle's `licenses/`.
    """

    machine: str
    version: str
    folder: Path
    packages: tuple[debian.DebianPackage, ...]
    licenses: Mapping[str, Path]


class Compiler:
    """Compiles modules for the carried CPython, by the one for the machine that builds."""

    def __init__(self, context: BuildContext, progress: Progress, scratch: Path) -> None:
        machine = platform.machine()
        if machine not in _MULTIARCH:
            raise StageFailedError(
                f"no interpreter for {machine} can compile the bundle's modules", fix="build on x86-64 or 64-bit ARM"
            )
        self._root = scratch / f"debian-{machine}"
        _unpack(debian.fetch(machine, context, progress), self._root)
        library = f"lib/{_MULTIARCH[machine]}"
        self._command = [
            str(self._root / library / _LOADER[machine]),
            "--library-path",
            f"{self._root / library}:{self._root / 'usr' / library}",
            str(self._root / "usr/bin/python3.11"),
            *("-I", "-S", "-B", "-X", "utf8", "-c", _COMPILE),
        ]

    def bytecode(self, sources: Mapping[str, Path], folder: Path) -> dict[str, Path]:
        """The bytecode of modules, written below `folder`, by their path in a package.

        Raises:
            StageFailedError: one is not valid in the carried Python.
        """
        made = {name: folder / f"{name}c" for name in sorted(sources)}
        jobs = [(str(sources[name]), name, str(file)) for name, file in made.items()]
        done = subprocess.run(
            self._command, input=json.dumps(jobs), capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode != 0:
            raise StageFailedError("the bundle's modules cannot be compiled", why=done.stderr[-1500:].strip())
        return made


def cached(source: str) -> str:
    """Where CPython 3.11 looks for the bytecode of a module: `a/b.py` -> `a/__pycache__/b.cpython-311.pyc`."""
    parent, _, file = source.rpartition("/")
    return f"{parent}/__pycache__/{file.removesuffix('.py')}.cpython-311.pyc"


def fetch(profile: Profile, context: BuildContext, progress: Progress) -> list[Path]:
    """The packages that bundles of a target carry, and those that compile for them; none without an interpreter.

    Raises:
        EnvironmentUnfitError: one is not to be had.
    """
    machines = {*profile.machines, platform.machine()} if profile.interpreter == BUNDLED else set()
    return [file for machine in sorted(machines) for file in debian.fetch(machine, context, progress).values()]


def build(machine: str, context: BuildContext, compiler: Compiler, scratch: Path, progress: Progress) -> Interpreter:
    """Assemble the interpreter for `machine` in `scratch`.

    Raises:
        EnvironmentUnfitError: a package is not to be had.
        StageFailedError: a package lacks what `interpreter.toml` names.
    """
    packages = debian.fetch(machine, context, progress)
    root, folder = scratch / f"debian-{machine}", scratch / f"python-{machine}"
    if not root.is_dir():
        _unpack(packages, root)
    rules = package_data.document("interpreter.toml")
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    triplet, python = _MULTIARCH[machine], f"python{rules['version']}"
    _copy(root / "usr/bin" / python, folder / "bin/cpython")
    _copy(root / "lib" / triplet / _LOADER[machine], folder / "bin/ld.so")
    (folder / "bin/python3").write_text(_PYTHON3, encoding="ascii")
    for name in rules["libraries"]:
        here = root / "lib" / triplet / name
        _copy(here if here.exists() else root / "usr/lib" / triplet / name, folder / "lib" / name)
    modules = folder / "lib" / python / "lib-dynload"
    modules.mkdir(parents=True)
    for name in rules["extension_modules"]:
        file = f"{name}.cpython-{python.removeprefix('python').replace('.', '')}-{triplet}.so"
        _copy(root / "usr/lib" / python / "lib-dynload" / file, modules / file)
    library = root / "usr/lib" / python
    names = _standard_library(library, rules, triplet)
    _write_zip(library, names, folder / "lib" / f"{python.replace('.', '')}.zip", compiler, scratch / "pyc")
    version = next(one.version for one in packages if one.name == f"{python}-minimal").partition("-")[0]
    return Interpreter(machine, version, folder, tuple(packages), _licenses(root, packages))


def pack(files: Sequence[tuple[FileEntry, Path]], prefix: str) -> bytes:
    """The tar.gz of `files` (path in the release, file), in the order given, without `prefix` in their names."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS, 9)
    chunks = carried.tar(((entry, [file.read_bytes()]) for entry, file in files), prefix)
    return b"".join(packer.compress(chunk) for chunk in chunks) + packer.flush()


def _unpack(packages: Mapping[debian.DebianPackage, Path], root: Path) -> None:
    root.mkdir()
    for file in packages.values():
        debian.unpack(file, root)


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise StageFailedError(f"the packages of the interpreter lack {source.name}", fix=_CORRECT)
    shutil.copyfile(source, target)


def _standard_library(library: Path, rules: Mapping[str, Any], triplet: str) -> list[str]:
    """POSIX paths in `library` of the modules that travel; each rule matches something."""
    left_out = {name.replace("MULTIARCH", triplet) for names in rules["left_out"].values() for name in names}
    kept = set(rules["encodings"]["kept"])
    there = {path.name.removesuffix(".py") for path in library.iterdir()}
    there |= {path.relative_to(library).as_posix().removesuffix(".py") for path in library.glob("*/*.py")}
    encodings = {path.stem for path in (library / "encodings").glob("*.py")}
    if unknown := sorted(kept - encodings):
        raise StageFailedError(f"Python has no encodings {', '.join(unknown)}", fix=_CORRECT)
    names = []
    for path in sorted(library.rglob("*.py")):
        name = path.relative_to(library).as_posix()
        top, _, rest = name.partition("/")
        if left_out & {top.removesuffix(".py"), name.removesuffix(".py")} or top in (
            "lib-dynload",
            "dist-packages",
            "__pycache__",
        ):
            continue
        if top == "encodings" and rest.removesuffix(".py") not in kept:
            continue
        names.append(name)
    absent = sorted(left_out - there)
    if absent:
        raise StageFailedError(f"Python has no {', '.join(absent)}", fix=_CORRECT)
    return names


def _write_zip(library: Path, names: Sequence[str], target: Path, compiler: Compiler, scratch: Path) -> None:
    """The standard library as bytecode. Stored: the file around it is compressed, and stored modules import faster."""
    made = compiler.bytecode({name: library / name for name in names}, scratch)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, file in made.items():
            archive.writestr(zipfile.ZipInfo(f"{name}c", _ZIP_TIME), file.read_bytes())


def _licenses(root: Path, packages: Iterable[debian.DebianPackage]) -> dict[str, Path]:
    """The copyright file of each package; some share that of another package."""
    return {
        f"debian/{package.name}/copyright": file
        for package in packages
        if (file := root / "usr/share/doc" / package.name / "copyright").is_file()
        and not (root / "usr/share/doc" / package.name).is_symlink()
    }
