"""Making a target's locks anew: uv resolves for the target's machine, C library and Python, whatever runs here."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgepack.bundle import wheels
from edgepack.errors import EnvironmentUnfitError
from edgepack.targets import package_data
from edgepack.targets.profiles import Profile
from edgepack_runtime.util.fs import FILE_MODE

Resolve = Callable[[Sequence[str], Path], str]
# Releases of glibc 2 that uv knows as `--python-platform MACHINE-manylinux_2_N`.
_KNOWN_TO_UV: Final = (17, 28, *range(31, 41))
_SAID_BYTES: Final = 1500


@dataclass(frozen=True)
class Lock:
    """One lock of a profile: the file, what it is made of, and the command that makes it (without the program).

    Without a package of `needs` no model runs on the device.
    """

    file: Path
    wanted: Path
    command: tuple[str, ...]
    needs: frozenset[str] = frozenset()


def locks_of(profile: Profile) -> list[Lock]:
    """The locks of a profile, each once; those of a user's profile lie beside its file, whatever this package has."""
    own = () if profile.by_path else (profile.package,)
    locks = [_lock(profile, profile.lock, frozenset(own))]
    if profile.serve_lock and profile.serve_lock != profile.lock:
        locks.append(_lock(profile, profile.serve_lock, frozenset()))
    return locks


def write(profile: Profile, lock: Lock, resolve: Resolve | None = None) -> tuple[str, ...]:
    """Write `lock` again, and return what it names, as `onnxruntime==1.31.1`.

    Args:
        resolve: runs a command in a folder and returns what it prints; uv, unless given.

    Raises:
        EnvironmentUnfitError: uv is not there or finds no versions, or the file cannot be written.
    """
    text = (resolve or _uv)(lock.command, lock.wanted.parent)
    if "://" in text:
        raise EnvironmentUnfitError(
            f"the lock {lock.file.name} would name a host", why="uv was told to emit where packages come from",
            fix="unset UV_EMIT_INDEX_URL and the like",
        )  # fmt: skip
    made = _head(lock, profile) + text
    found = wheels.parse_lock(made, profile)
    if not found:
        raise EnvironmentUnfitError(f"the lock {lock.file.name} would be empty", fix=f"look into {lock.wanted}")
    if lacking := sorted(lock.needs - {package.name for package in found}):
        raise EnvironmentUnfitError(
            f"the lock {lock.file.name} would lack {', '.join(lacking)}",
            why="a bundle carries what its lock names, and nothing that this depends on",
            fix=f"add {', '.join(lacking)} to {lock.wanted}",
        )
    try:
        lock.file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=lock.file.parent, encoding="utf-8", delete=False) as temporary:
            temporary.write(made)
        made_file = Path(temporary.name)
        made_file.chmod(FILE_MODE)
        made_file.replace(lock.file)
    except OSError as error:
        raise EnvironmentUnfitError(
            f"the lock {lock.file} cannot be written",
            why=str(error.strerror),
            fix="run as a user who may write there; locks of edgepack's own profiles belong to its source",
        ) from error
    return tuple(f"{package.name}=={package.version}" for package in found)


def _lock(profile: Profile, name: str, needs: frozenset[str]) -> Lock:
    ours = package_data.folder("locks")
    folder = ours if profile.locks is None else profile.locks
    wanted_name = re.sub(r"(-cp3[0-9]+)?\.txt$", ".in", name)
    wanted = next((at / wanted_name for at in (folder, ours) if (at / wanted_name).is_file()), folder / wanted_name)
    return Lock(folder / name, wanted, _command(profile, wanted.name), needs)


def _command(profile: Profile, wanted: str) -> tuple[str, ...]:
    if profile.glibc:
        newest = int(profile.glibc.split(".")[1])
        minor = max((known for known in _KNOWN_TO_UV if known <= newest), default=_KNOWN_TO_UV[0])
        where = ["--python-platform", f"{profile.machine}-manylinux_2_{minor}", "--python-version", profile.python]
    else:
        where = ["--universal", "--python-version", profile.pythons[0]]
    options = ("--no-deps", "--only-binary", ":all:", "--generate-hashes", "--no-header", "--no-annotate")
    return ("pip", "compile", wanted, *where, *options)


def _head(lock: Lock, profile: Profile) -> str:
    """The comments at the top of the file as it is, or those of a new one."""
    if lock.file.is_file():
        lines = lock.file.read_text(encoding="utf-8").splitlines()
        count = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
        if count:
            return "".join(f"{line}\n" for line in lines[:count])
    return (
        f"# Wheels of {lock.wanted.name} for CPython {profile.python}. Each hash names one wheel of the version, for "
        "all platforms: the target's tags pick.\n# Do not edit by hand: `edgepack targets lock NAME` makes it anew.\n"
    )


def _uv(command: Sequence[str], folder: Path) -> str:
    program = shutil.which("uv")
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
