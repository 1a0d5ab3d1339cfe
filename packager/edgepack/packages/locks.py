"""Making the locks of this package again: uv resolves wheels, and apt the packages of the interpreter."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from edgepack.errors import EnvironmentUnfitError
from edgepack.interpreter import debian
from edgepack.packages import requirements, wheels
from edgepack.targets import package_data, tags
from edgepack.targets.profiles import ONNXRUNTIME, Profile
from edgepack.util.process import find_program
from edgepack_runtime.bundle.manifest import BUNDLED
from edgepack_runtime.util.fs import FILE_MODE

Resolve = Callable[[Sequence[str], Path], str]
_OLDEST_PYTHON_TO_SERVE: Final = "3.10"
_SAID_BYTES: Final = 1500


def write(profile: Profile, resolve: Resolve | None = None) -> dict[Path, tuple[str, ...]]:
    """Write the locks of a profile again; return what each names, as `onnxruntime==1.31.1`.

    Args:
        resolve: runs a command of uv in a folder and returns what it prints; uv, unless given.

    Raises:
        EnvironmentUnfitError: uv or apt is not there or finds no versions, or a file cannot be written.
    """
    locked = {}
    one = profile.on(profile.machines[0])  # a lock names the wheels of all platforms
    for name, python in ((profile.lock, "{}.{}".format(*tags.PYTHON)), (wheels.SERVE_LOCK, _OLDEST_PYTHON_TO_SERVE)):
        file = _put(name, _wheels(name, python, one, resolve or _uv))
        locked[file] = tuple(f"{package.name}=={package.version}" for package in wheels.locked_in(name, one))
    for machine in profile.machines if profile.interpreter == BUNDLED else ():
        locked |= _interpreter(machine)
    return locked


def _wheels(name: str, python: str, profile: Profile, resolve: Resolve) -> str:
    wanted = name.replace(".txt", ".in")
    command = ["pip", "compile", wanted, "--python-platform", f"{profile.machine}-manylinux_2_28"]
    command += ["--python-version", python, "--no-deps", "--only-binary", ":all:", "--generate-hashes"]
    text = resolve([*command, "--no-header", "--no-annotate"], package_data.folder("locks"))
    if "://" in text:
        raise EnvironmentUnfitError(
            f"the lock {name} would name a host",
            why="uv is set to emit where packages come from",
            fix="unset UV_EMIT_INDEX_URL and the like",
        )
    found = {package.name for package in requirements.parse_lock(text, profile)}
    needs = {*wheels.SERVING} if name == wheels.SERVE_LOCK else {ONNXRUNTIME if profile.by_path else profile.package}
    if lacking := sorted(needs - found):
        raise EnvironmentUnfitError(
            f"the lock {name} would lack {', '.join(lacking)}",
            why="a bundle carries what its lock names, and nothing that this depends on",
            fix=f"add {', '.join(lacking)} to locks/{wanted}",
        )
    return (
        f"# Wheels of {wanted} for CPython {python}. Each hash names one wheel of the version, for all platforms.\n"
        f"# Do not edit by hand: `edgepack targets lock NAME` makes it again.\n{text}"
    )


def _interpreter(machine: str) -> dict[Path, tuple[str, ...]]:
    names = [package.name for package in debian.locked(machine)]
    with tempfile.TemporaryDirectory() as scratch:
        text = debian.lock(machine, names, Path(scratch))
    head = (
        f"# The interpreter for {machine}: packages of Debian 12, as name, version, sha256, place in the archive.\n"
        "# Do not edit by hand: `edgepack targets lock NAME` makes it again.\n"
    )
    file = _put(debian.lock_name(machine), head + text)
    return {file: tuple(f"{package.name} {package.version}" for package in debian.locked(machine))}


def _put(name: str, text: str) -> Path:
    file = package_data.folder("locks") / name
    try:
        with tempfile.NamedTemporaryFile("w", dir=file.parent, encoding="utf-8", delete=False) as temporary:
            temporary.write(text)
        Path(temporary.name).chmod(FILE_MODE)
        return Path(temporary.name).replace(file)
    except OSError as error:
        raise EnvironmentUnfitError(
            f"the lock {file} cannot be written",
            why=str(error.strerror),
            fix="run as a user who may write there: locks belong to edgepack's source",
        ) from error


def _uv(command: Sequence[str], folder: Path) -> str:
    program = find_program("uv")
    typed = f"uv {' '.join(command)}"
    if program is None:
        raise EnvironmentUnfitError(
            "uv is not installed, which resolves wheels for other machines than this",
            why="there is no program `uv` on the PATH",
            fix=f"pip install uv, and run the command again; by hand it is, in {folder}: {typed}",
        )
    done = subprocess.run(
        [program, *command], cwd=folder, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        raise EnvironmentUnfitError(f"no lock was made by `{typed}`", why=done.stderr[-_SAID_BYTES:].strip())
    return done.stdout
