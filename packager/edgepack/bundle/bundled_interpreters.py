"""The interpreters that a bundle carries: one for each machine, their archives, and the bytecode of all modules."""

from __future__ import annotations

import hashlib
import platform
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from edgepack.artifacts import Members
from edgepack.bundle.archive import listed
from edgepack.interpreter import debian, from_archive, from_debian
from edgepack.interpreter.built import Interpreter, OwnBuild
from edgepack.interpreter.bytecode import Compiler, cached
from edgepack.packages.site_packages import LICENSES, SITE
from edgepack.progress import Progress
from edgepack.recipe.model import AnyRecipe, OwnInterpreter
from edgepack.targets.context import BuildContext
from edgepack.targets.profiles import Profile
from edgepack.util.hashing import files_below
from edgepack_runtime.bundle import interpreter as carried
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.golden import MODEL_FOLDER
from edgepack_runtime.bundle.manifest import BUNDLED, HOST, FileEntry

_LEVEL: Final = 9
_PYTHON_FILE: Final = re.compile(rb"""["']([\w-]+\.py)["']""")


@dataclass(frozen=True)
class Interpreters:
    """What a bundle gets for its interpreters; nothing where the device's own Python runs it.

    `members` are their files in the release; in the bundle these are in the `archives`.
    """

    packed: tuple[contract.Interpreter, ...] = ()
    members: Members = field(default_factory=dict)
    archives: Members = field(default_factory=dict)
    built: tuple[Interpreter, ...] = ()

    @property
    def origins(self) -> tuple[debian.DebianPackage | OwnBuild, ...]:
        """Where they come from, for the bill of materials."""
        return tuple(origin for one in self.built for origin in one.origins)


def fetch(recipe: AnyRecipe | None, profile: Profile, context: BuildContext, progress: Progress) -> list[Path]:
    """The files that the interpreters of a target, and their compiler, are made of.

    Args:
        recipe: may give an archive; None: that of the profile.

    Raises:
        EnvironmentUnfitError: a package is not available.
        StageFailedError: an archive is not there, or another.
    """
    if recipe is not None and isinstance(recipe.interpreter, OwnInterpreter):
        return [from_archive.require(recipe.interpreter)]
    return [file for machine in _machines(profile) for file in debian.fetch(machine, context, progress).values()]


def missing(recipe: AnyRecipe, profile: Profile, context: BuildContext) -> list[debian.DebianPackage]:
    """The packages that `fetch` would download."""
    if isinstance(recipe.interpreter, OwnInterpreter):
        return []
    return [package for machine in _machines(profile) for package in debian.missing(machine, context)]


def _machines(profile: Profile) -> list[str]:
    """The machines that need an interpreter: those of the target, and this one, which compiles for them."""
    return sorted({*profile.machines, platform.machine()}) if profile.interpreter == BUNDLED else []


def assemble(
    recipe: AnyRecipe,
    profile: Profile,
    context: BuildContext,
    members: Members,
    scratch: Path,
    progress: Progress,
    *,
    added: Collection[str] = (),
) -> tuple[Interpreters, Members]:
    """The interpreters for a bundle of `members`, and its members with bytecode.

    Packages travel as bytecode alone, without the source. Of the runtime both do: any Python can open the file.

    Args:
        recipe: may give an archive.
        profile: the target.
        context: where packages are kept and come from.
        members: of the bundle.
        scratch: a folder to work in.
        progress: gets what is fetched.
        added: `members` of packages that the recipe adds. Their modules keep docstrings; what is not a valid module, or
            is opened as a file by another module, stays a source.

    Raises:
        EnvironmentUnfitError: a package is not available.
        StageFailedError: an interpreter cannot be assembled, or a module cannot be compiled.
    """
    if profile.interpreter == HOST:
        return Interpreters(), members
    compiler: Compiler
    if isinstance(recipe.interpreter, OwnInterpreter):
        one, compiler = from_archive.build(recipe.interpreter, profile, scratch)
        built = [one]
    else:
        compiler = from_debian.compiler(context, progress, scratch)
        built = [from_debian.build(machine, context, compiler, scratch, progress) for machine in profile.machines]
    made = _with_bytecode(members, compiler, built[0].version, scratch / "bytecode", added)
    packed: list[contract.Interpreter] = []
    inside: Members = {}
    archives: Members = {}
    for one in built:
        prefix = carried.folder(one.machine)
        files = {prefix + path.relative_to(one.folder).as_posix(): path for path in files_below(one.folder)}
        raw = pack([(listed(path, file), file) for path, file in sorted(files.items())], prefix)
        entry = contract.Interpreter(one.machine, one.version, len(raw), hashlib.sha256(raw).hexdigest())
        packed.append(entry)
        archives[entry.member] = raw
        inside |= files
        made |= {f"{LICENSES}/{name}": file for name, file in one.licenses.items()}
    return Interpreters(tuple(packed), inside, archives, tuple(built)), made


def _with_bytecode(members: Members, compiler: Compiler, version: str, folder: Path, added: Collection[str]) -> Members:
    # A handler, in `model/`, is run from its source.
    modules = {
        name: file
        for name, file in members.items()
        if isinstance(file, Path) and file.suffix == ".py" and not name.startswith(f"{MODEL_FOLDER}/")
    }
    added_modules = {name: file for name, file in modules.items() if name in added}
    sources = {name: file for name, file in modules.items() if name not in added}
    compiled = compiler.bytecode(sources, folder)
    if added_modules:
        left = _opened(added_modules)
        importable = {
            name: file
            for name, file in added_modules.items()
            if name not in left and PurePosixPath(name).stem.isidentifier()
        }
        compiled |= compiler.bytecode(importable, folder, whole=True)
    result = dict(members)
    for name, file in compiled.items():
        if SITE in name.split("/")[:2]:  # `site/` and `MACHINE/site/`
            del result[name]
            result[f"{name}c"] = file
        else:
            result[cached(name, version)] = file
    return result


def _opened(modules: Mapping[str, Path]) -> set[str]:
    """Those of `modules` that another one in their folder names with `.py`, to open them: cv2 reads its config.py."""
    found: set[str] = set()
    for name, file in modules.items():
        parent = name.rpartition("/")[0]
        found |= {f"{parent}/{match.decode()}" for match in _PYTHON_FILE.findall(file.read_bytes())}
    return {name for name in found & modules.keys() if not name.endswith("/__init__.py")}


def pack(files: Sequence[tuple[FileEntry, Path]], prefix: str) -> bytes:
    """The tar.gz of `files` (path in the release, file), in the order given, without `prefix` in their names."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS, 9)
    chunks = carried.tar(((entry, [file.read_bytes()]) for entry, file in files), prefix)
    return b"".join(packer.compress(chunk) for chunk in chunks) + packer.flush()
