"""The interpreter that a bundle carries: CPython with its C library, from Debian's packages, without what nobody needs.

In a release it is `MACHINE/python/`: programs in `bin/`, shared libraries in `lib/`, the standard library as bytecode
in `lib/python3.11/`, and modules in C in `lib-dynload/` there. (From a zip of bytecode, each start takes 6 ms more.)
`bin/python3` is a shell script: it starts `bin/cpython` through its own loader, `bin/ld.so`, so that nothing of the
device's C library is used and no variable is set that another program could inherit.

Modules are compiled by Debian's CPython of the same lock, for the machine that builds, so that the bytes do not depend
on the Python that runs edgepack.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.errors import StageFailedError
from edgepack.interpreter import debian
from edgepack.interpreter.built import Interpreter, confine_library_search
from edgepack.interpreter.bytecode import Compiler, library_modules, rules_of
from edgepack.progress import Progress
from edgepack.targets import machines, package_data
from edgepack.targets.context import BuildContext

_CORRECT: Final = "correct targets/interpreter.toml"
_PYTHON3: Final = """\
#!/bin/sh
# Starts CPython through the loader beside it. A library that the user preloads is built for another C library, and
# even with -I, CPython 3.11 takes the standard library beside the executable that the other two variables name.
unset LD_PRELOAD PYTHONEXECUTABLE __PYVENV_LAUNCHER__
bin=${0%/*}
exec "$bin/ld.so" --inhibit-cache --argv0 "$0" --library-path "$bin/../lib" "$bin/cpython" "$@"
"""


def compiler(context: BuildContext, progress: Progress, scratch: Path) -> Compiler:
    """A compiler for the carried CPython: that of the packages for the machine that builds, unpacked in `scratch`.

    Raises:
        EnvironmentUnfitError: a package is not available.
        StageFailedError: there are none for this machine.
    """
    machine = platform.machine()
    if machine not in machines.BY_NAME:
        raise StageFailedError(
            f"no interpreter for {machine} can compile the bundle's modules", fix="build on x86-64 or 64-bit ARM"
        )
    root = scratch / f"debian-{machine}"
    _unpack(debian.fetch(machine, context, progress), root)
    confine_library_search(root / "usr", "python3.11")
    here = machines.BY_NAME[machine]
    library = f"lib/{here.triplet}"
    return Compiler(
        [
            str(root / library / here.loader),
            "--library-path",
            f"{root / library}:{root / 'usr' / library}",
            str(root / "usr/bin/python3.11"),
        ]
    )


def build(machine: str, context: BuildContext, compiler: Compiler, scratch: Path, progress: Progress) -> Interpreter:
    """Assemble the interpreter for `machine` in `scratch`.

    Raises:
        EnvironmentUnfitError: a package is not available.
        StageFailedError: a package lacks what `interpreter.toml` names.
    """
    packages = debian.fetch(machine, context, progress)
    root, folder = scratch / f"debian-{machine}", scratch / f"python-{machine}"
    if machine != platform.machine():  # for which `compiler` has unpacked them
        _unpack(packages, root)
    rules = package_data.document("interpreter.toml")
    folder.mkdir()
    (folder / "bin").mkdir()
    (folder / "lib").mkdir()
    triplet, python = machines.BY_NAME[machine].triplet, f"python{rules['version']}"
    _copy(root / "usr/bin" / python, folder / "bin/cpython")
    _copy(root / "lib" / triplet / machines.BY_NAME[machine].loader, folder / "bin/ld.so")
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
    compiler.bytecode({name: library / name for name in names}, folder / "lib" / python)
    confine_library_search(folder, python)
    version = next(one.version for one in packages if one.name == f"{python}-minimal").partition("-")[0]
    return Interpreter(machine, version, folder, tuple(packages), _licenses(root, packages))


def _unpack(packages: Mapping[debian.DebianPackage, Path], root: Path) -> None:
    root.mkdir()
    for file in packages.values():
        debian.unpack(file, root)


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise StageFailedError(f"the packages of the interpreter lack {source.name}", fix=_CORRECT)
    shutil.copyfile(source, target)


def _standard_library(library: Path, rules: Mapping[str, Any], triplet: str) -> list[str]:
    """The modules in `library` that travel; each rule matches something."""
    names, encodings = rules_of(rules)
    left_out = {name.replace("MULTIARCH", triplet) for name in names}
    there = {path.name.removesuffix(".py") for path in library.iterdir()}
    there |= {path.relative_to(library).as_posix().removesuffix(".py") for path in library.glob("*/*.py")}
    if absent := sorted(left_out - there):
        raise StageFailedError(f"Python has no {', '.join(absent)}", fix=_CORRECT)
    if unknown := sorted(encodings - {path.stem for path in (library / "encodings").glob("*.py")}):
        raise StageFailedError(f"Python has no encodings {', '.join(unknown)}", fix=_CORRECT)
    return list(library_modules(library, left_out, encodings))


def _licenses(root: Path, packages: Iterable[debian.DebianPackage]) -> dict[str, Path]:
    """The copyright file of each package; some share that of another package."""
    return {
        f"debian/{package.name}/copyright": file
        for package in packages
        if (file := root / "usr/share/doc" / package.name / "copyright").is_file()
        and not (root / "usr/share/doc" / package.name).is_symlink()
    }
