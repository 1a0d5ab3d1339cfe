"""An interpreter of the user's own: a CPython that runs from any folder, given as a .tar.gz with its sha256.

python-build-standalone offers such archives (`install_only`). Of the folder in it that has `bin/python3`, the program
becomes `MACHINE/python/bin/python3` of a release; with it go the shared libraries of `lib/` that it needs, and the
standard library as bytecode, without what is left out of Debian's too. It uses the C library of the device.

It compiles its modules itself, so it is assembled on a machine of its kind. Nothing in the archive is distrusted: who
writes its sha256 into a recipe wants it to run.
"""

from __future__ import annotations

import fnmatch
import functools
import platform
import re
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from edgepack.artifacts import Checks
from edgepack.binaries import dynamic_loader, elf, fit, glibc
from edgepack.errors import StageFailedError
from edgepack.interpreter.built import Interpreter, OwnBuild, confine_library_search
from edgepack.interpreter.bytecode import Compiler, library_modules, rules_of
from edgepack.interpreter.extraction import extract
from edgepack.messages import message
from edgepack.recipe.model import OwnInterpreter
from edgepack.targets import package_data
from edgepack.targets.profiles import Profile
from edgepack.targets.tags import Python
from edgepack.util.hashing import files_below, sha256_file
from edgepack_runtime.util.fs import EXECUTABLE_MODE

_OLDEST: Final = (3, 11)
_LIBRARY: Final = re.compile(r"(?:\A|/)lib/python3\.([0-9]+)/os\.py\Z")
_SAID: Final = 600  # characters
_ANOTHER: Final = "give a CPython 3.11 or newer for this machine, as python-build-standalone packs it (install_only)"
_TRY: Final = (
    "import asyncio, ctypes, json, mmap, socket, sys, zlib\n"  # in C; of these the runtime is made
    "print(sys.implementation.name, *sys.version_info[:3], sys.prefix)"
)


def require(own: OwnInterpreter) -> Path:
    """The archive, compared with its sha256.

    Raises:
        StageFailedError: it is not there, or another.
    """
    file = Path(own.path)
    try:
        found = sha256_file(file)
    except OSError as error:
        raise _failed(file, error.strerror or str(error), "correct `interpreter.path`") from error
    if found != own.sha256:
        raise _failed(file, f"its sha256 is {found}", "give the archive that the recipe means, or correct `sha256`")
    return file


def python_of(own: OwnInterpreter) -> Python:
    """Version of the CPython in the archive, by the folder of its standard library. Nothing of it runs.

    Raises:
        StageFailedError: it is not there, or another, or has no such folder, or several.
    """
    return _python_in(require(own), own.sha256)


@functools.cache
def _python_in(file: Path, sha256: str) -> Python:
    try:
        with tarfile.open(file) as archive:
            found = {match.group(1) for name in archive.getnames() if (match := _LIBRARY.search(name))}
    except (OSError, ValueError, EOFError, tarfile.TarError, zlib.error) as error:
        raise _failed(file, f"it cannot be unpacked: {str(error).splitlines()[0]}", _ANOTHER) from error
    if len(found) != 1:
        raise _failed(file, f"it has {len(found)} folders lib/python3.N", _ANOTHER)
    return (3, int(found.pop()))


def build(own: OwnInterpreter, profile: Profile, scratch: Path) -> tuple[Interpreter, Compiler]:
    """Assemble the interpreter of an archive in `scratch`, and a compiler for it.

    Raises:
        StageFailedError: the archive is damaged or another, or its program is not for the target, or does not run from
            any folder.
    """
    file = require(own)
    root = _unpack(file, scratch / "given")
    folder = scratch / "python"
    for library in (path for path in (root / "lib").glob("python3.*") if path.is_dir()):
        confine_library_search(root, library.name)
    version = _try(file, root)
    python = "python{}.{}".format(*version.split("."))
    library, modules = root / "lib" / python, folder / "lib" / python / "lib-dynload"
    folder.mkdir()
    (folder / "bin").mkdir()
    modules.mkdir(parents=True)
    shutil.copyfile(root / "bin/python3", folder / "bin/python3")
    (folder / "bin/python3").chmod(EXECUTABLE_MODE)
    rules = package_data.document("interpreter.toml")
    for module in (library / "lib-dynload").glob("*.so"):
        name = module.name.partition(".")[0]
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in rules["own"]["extension_modules_left_out"]):
            shutil.copyfile(module, modules / module.name)
    for name in _linked(root, [folder / "bin/python3", *modules.iterdir()]):
        shutil.copyfile(root / "lib" / name, folder / "lib" / name)
    compiler = Compiler([str(root / "bin/python3")])
    left_out, encodings = rules_of(rules)
    names = library_modules(library, left_out | {*rules["own"]["left_out"]}, encodings)
    compiler.bytecode({name: library / name for name in names}, folder / "lib" / python)
    confine_library_search(folder, python)
    _try(file, folder)
    needs = needs_of(folder, profile)
    licenses = {f"cpython-{version}/{path.name}": path for path in library.glob("LICENSE*")}
    if not licenses:
        note = message("note.python_licence", name=file.name)
        needs = replace(needs, checks=replace(needs.checks, notes=(*needs.checks.notes, note)))
    origin = OwnBuild(version, file.name, own.sha256)
    return Interpreter(platform.machine(), version, folder, (origin,), licenses, needs), compiler


def needs_of(folder: Path, profile: Profile) -> fit.SystemRequirements:
    """What an interpreter in `folder` needs of a device.

    Raises:
        StageFailedError: a binary of it does not run on the target, or would not find another one of it there.
    """
    binaries = {path.relative_to(folder).as_posix(): elf.read(path) for path in files_below(folder) if elf.is_elf(path)}
    carried = {Path(name).name for name in binaries}
    notes = fit.check_binaries(binaries, carried, profile)
    for name, binary in binaries.items():
        mine = sorted(binary.libraries & carried)
        if mine and not any(place.startswith("$ORIGIN") for place in binary.search_paths):
            raise StageFailedError(
                f"{name} of the interpreter would not find {', '.join(mine)} on a device",
                why=f"it looks for libraries in {', '.join(binary.search_paths) or 'folders of the system alone'}",
                fix=_ANOTHER,
            )
    oldest, libraries = glibc.oldest_glibc(binaries.values()), dynamic_loader.needed(binaries, carried)
    return fit.SystemRequirements(oldest, libraries, Checks((), tuple(notes)), len(binaries))


def _unpack(file: Path, folder: Path) -> Path:
    """Unpack the archive into `folder`; the folder of it that has `bin/python3`."""
    folder.mkdir()
    try:
        with tarfile.open(file) as archive:
            extract(archive, folder)
    except (OSError, ValueError, EOFError, KeyError, RecursionError, tarfile.TarError, zlib.error) as error:
        raise _failed(file, f"it cannot be unpacked: {str(error).splitlines()[0]}", _ANOTHER) from error
    for root in (folder, *sorted(filter(Path.is_dir, folder.iterdir()))):
        if (root / "bin/python3").is_file():
            return root
    raise _failed(file, "it has no bin/python3", _ANOTHER)


def _try(file: Path, root: Path) -> str:
    """The version of the interpreter in `root`, which must run from there and find its library there."""
    command = [str(root / "bin/python3"), "-I", "-S", "-B", "-X", "utf8", "-c", _TRY]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise _failed(file, f"it does not start: {error.strerror}", _ANOTHER) from error
    if done.returncode != 0:
        raise _failed(file, f"it does not run: {done.stderr[-_SAID:].strip()}", _ANOTHER)
    name, major, minor, micro, prefix = done.stdout.rstrip("\n").split(" ", 4)
    version = f"{major}.{minor}.{micro}"
    if name != "cpython" or (int(major), int(minor)) < _OLDEST:
        raise _failed(file, f"it is {name} {version}", _ANOTHER)
    if Path(prefix).resolve() != root.resolve():
        raise _failed(file, f"it looks for its library in {prefix}, wherever it lies", _ANOTHER)
    return version


def _linked(root: Path, binaries: Iterable[Path]) -> Iterator[str]:
    """The libraries in `lib/` that `binaries` need, and that those need."""
    found: set[str] = set()
    left = list(binaries)
    while left:
        for name in sorted(elf.read(left.pop()).libraries - found):
            if (root / "lib" / name).is_file():
                found.add(name)
                left.append(root / "lib" / name)
                yield name


def _failed(file: Path, why: str, fix: str) -> StageFailedError:
    return StageFailedError(f"the interpreter {file.name} cannot be carried", why=why, fix=fix)
