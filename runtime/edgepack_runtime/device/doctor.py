"""Check whether this device can run a bundle, before anything is written."""

from __future__ import annotations

import dataclasses
import importlib
import os
import platform
import stat
import struct
import sys
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from edgepack_runtime.bundle.manifest import BUNDLED, MACHINES, Manifest, TargetFacts
from edgepack_runtime.bundle.model_config import CUDA
from edgepack_runtime.device import cores, info, jetson
from edgepack_runtime.errors import EnvironmentUnfitError, printed
from edgepack_runtime.messages import joined, message

MIB = 1024 * 1024
DISK = "disk"  # name of the check of free space
_RECORDS_BYTES = MIB  # of state, receipts and tuning
# Extension modules of the standard library that minimal systems lack.
_MODULES = ("ctypes", "decimal", "fcntl", "hashlib", "json", "pickle", "secrets", "unicodedata", "zlib")
_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1")  # needed by ONNX Runtime and not part of its wheels


@dataclasses.dataclass(frozen=True)
class Check:
    """Result of one check. With `ok`, `why` and `fix` are a warning, most often empty."""

    check: str
    ok: bool
    what: str
    why: str = ""
    fix: str = ""


def check_device(manifest: Manifest, *, prefix: Optional[Path] = None) -> List[Check]:
    """Compare this device with the bundle's target.

    Args:
        prefix: where the release will be installed; None skips the checks of the disk.
    """
    target = manifest.target
    checks = [
        _check_system(target),
        *(_check_bundled(manifest) if target.interpreter == BUNDLED else _check_host(target)),
        *_check_gpu(target),
        _check_cpu(manifest),
        _check_memory(manifest),
    ]
    if prefix is not None:
        place = existing_parent(prefix)
        checks += [
            check_space(place, manifest.bytes_for(platform.machine())),
            check_writable(place),
            check_executable(place),
        ]
    return checks


def require(checks: Sequence[Check]) -> None:
    """Raise an error if a check failed.

    Raises:
        EnvironmentUnfitError: names every failed check with its cause and fix.
    """
    failed = [check for check in checks if not check.ok]
    if failed:
        raise EnvironmentUnfitError(
            message("error.device", checks=[check.what for check in failed]),
            why=joined(*dict.fromkeys(check.why for check in failed)),
            fix=joined(*dict.fromkeys(check.fix for check in failed)),
        )


def render(checks: Sequence[Check]) -> str:
    """The checks as text."""
    lines = []
    for check in checks:
        lines.append(f"{'ok  ' if check.ok else 'FAIL'}  {check.check:<9} {check.what}")
        for label, text in (("why", check.why), ("fix", check.fix)):
            if text:
                lines.append(f"                {label}: {text}")
    return printed(lines)


def existing_parent(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve would follow links that do not exist yet
    while not os.path.exists(path):  # noqa: PTH110 - Path.exists raises where a folder above may not be entered
        path = path.parent
    return path


def check_space(
    place: Path,
    needed_bytes: int,
    *,
    why: str = message("error.unpacked_beside"),
    fix: str = message("error.free_space"),
) -> Check:
    """Check that the file system of `place` (an existing folder) has space for `needed_bytes`, and for records."""
    needed = needed_bytes + _RECORDS_BYTES
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize
    what = message("error.space", free=free // MIB, place=str(place), needed=needed // MIB + 1)
    if free < needed:
        return Check(DISK, False, what, why, fix)
    if disk.f_files and disk.f_favail < 2000:
        return Check(DISK, False, f"{disk.f_favail} inodes left at {place}", "a release has many files", "remove files")
    return Check(DISK, True, what)


def check_writable(place: Path) -> Check:
    """Check that this user may write to `place` (an existing folder)."""
    if os.statvfs(place).f_flag & getattr(os, "ST_RDONLY", 0):
        why = "an install writes there"
        return Check("write", False, f"{place} is mounted read-only", why, "mount it for writing, or use --prefix")
    if not os.access(place, os.W_OK | os.X_OK):
        what = f"user {os.geteuid()} may not write to {place}"
        why = "a release, its state and its receipts are written there"
        return Check("write", False, what, why, "run as its owner, or give another folder with --prefix")
    return Check("write", True, f"{place} may be written")


def check_executable(place: Path, *, option: str = "--prefix") -> Check:
    """Check that shared libraries may be loaded from the file system of `place` (an existing folder).

    Args:
        option: the option or variable that names another folder.
    """
    if os.statvfs(place).f_flag & getattr(os, "ST_NOEXEC", 0):
        return Check(
            "mount",
            False,
            f"{place} is mounted noexec",
            "the bundle's libraries could not be loaded from there",
            f"give a folder on another file system with {option}",
        )
    return Check("mount", True, f"libraries may be loaded from {place}")


def _check_bundled(manifest: Manifest) -> List[Check]:
    """What a release with an interpreter of its own needs: nothing."""
    return [
        Check("python", True, f"CPython {one.version}, carried")
        for one in manifest.interpreters
        if one.machine == platform.machine()
    ]


def _check_host(target: TargetFacts) -> List[Check]:
    """What a release needs that runs on the device's own C library, with its Python or a carried one."""
    return [_check_libc(target), _check_python(), _check_modules(), *(_check_library(name) for name in _LIBRARIES)]


def _check_system(target: TargetFacts) -> Check:
    machine, found = platform.machine(), f"{platform.system()} {platform.machine()}"
    if platform.system() != "Linux" or machine not in target.machines:
        why: str = message("error.made_for", machines=list(target.machines), target=target.profile)
        fix = message("error.build_for", system=found)
        return Check("system", False, message("error.this_is", system=found), why, fix)
    if struct.calcsize("P") != 8 and machine in MACHINES:
        why = "the kernel is 64-bit, but the system is not"
        return Check("system", False, "this Python is a 32-bit program", why, "install a 64-bit system image")
    return Check("system", True, found)


def _check_libc(target: TargetFacts) -> Check:
    name, version = info.libc()
    what = f"{name} {version}".strip()
    if name != "glibc" or version_numbers(version) < version_numbers(target.libc_min):
        why, fix = message("error.needs_glibc", version=target.libc_min), message("error.bundled")
        return Check("libc", False, message("error.libc", what=what), why, fix)
    return Check("libc", True, f"{what} (needs {target.libc_min})")


def closed_to_others(path: Path) -> Optional[Path]:
    """The first part of `path`, or of what it links to, that keeps other users than root from it; else None."""
    parts = [at for one in (path, path.resolve()) for at in (*reversed(one.parents), one)]
    return next((at for at in parts if not at.stat().st_mode & stat.S_IXOTH), None)


def _check_python() -> Check:
    what = f"{platform.python_implementation()} {platform.python_version()}"
    if platform.python_implementation() != "CPython":
        return Check("python", False, f"this is {what}", "the runtime is tested on CPython", "start it with python3")
    closed = closed_to_others(Path(os.path.realpath(sys.executable))) if os.geteuid() == 0 else None
    if closed is not None:
        why = f"after an install only root can start it: {sys.executable} is below {closed}, which others cannot enter"
        return Check("python", True, what, why, "for other users: /usr/bin/python3 FILE install")
    return Check("python", True, what)


def _check_modules() -> Check:
    missing = []
    for name in _MODULES:
        try:
            importlib.import_module(name)  # an existing module may still lack its C part
        except ImportError:
            missing.append(name)
    if missing:
        what = f"this Python lacks {', '.join(missing)}"
        return Check("stdlib", False, what, "only a part of Python is installed", "install the full python3")
    return Check("stdlib", True, "the standard library is complete")


def _check_library(name: str) -> Check:
    try:
        import ctypes

        ctypes.CDLL(name)
    except ImportError:
        return Check("library", False, f"{name} cannot be checked", "this Python lacks ctypes")
    except OSError as error:
        return Check("library", False, f"{name} is missing", str(error), f"install the system package with {name}")
    return Check("library", True, name)


def _check_gpu(target: TargetFacts) -> List[Check]:
    if target.provider != CUDA:
        return []
    try:
        from edgepack_runtime.device import nvidia  # needs ctypes, see `_check_modules`

        gpu = nvidia.gpu_facts()
    except ImportError:
        return [Check("gpu", False, "the GPU cannot be checked", "this Python lacks ctypes")]
    except EnvironmentUnfitError as error:
        return [Check("gpu", False, error.what, error.why, error.fix)]
    what = f"{gpu.name}, compute capability {gpu.sm}, driver for CUDA up to {gpu.driver}, {gpu.memory_mib} MiB"
    checks = [Check("gpu", True, what)]
    board = jetson.facts()
    if board is not None:  # any power mode is allowed: the gate measures its effect
        mode = board.power_mode or "unknown"
        checks.append(Check("jetson", True, f"JetPack {board.jetpack}, Jetson Linux {board.l4t}, power mode {mode}"))
    return checks


def _check_cpu(manifest: Manifest) -> Check:
    """Describe the CPU. Never fails: the gate measures how fast and how exact it is."""
    fast = info.int8_flags()
    note = ", ".join(fast) if fast else "no VNNI or SDOT"
    precision = manifest.model.get("precision")
    if not fast and precision == "int8":
        note += ": int8 runs, but slower and with different rounding; the gate decides"
    if precision == "float16" and not info.half_flags():
        note += "; float16 is computed in float32 and is not faster; the gate decides"
    if why := info.emulation(platform.machine()):
        note += f"; emulated ({why}): latencies are meaningless"
    return Check("cpu", True, f"{info.cpu_model()}, {cores.named(cores.cores().share)}, int8: {note}")


def _check_memory(manifest: Manifest) -> Check:
    needed, source = _needed_memory(manifest)
    available = info.memory_available_bytes()
    if available is None:
        return Check("memory", True, "the available memory is unknown")
    what = f"{available // MIB} MiB available; {needed // MIB} MiB needed ({source})"
    if available < needed:
        return Check("memory", False, what, "the model needs it", "stop other programs, or add memory")
    return Check("memory", True, what)


def _needed_memory(manifest: Manifest) -> Tuple[int, str]:
    gate = manifest.gates.get("memory")
    limit = gate.get("peak_rss_mib") if isinstance(gate, dict) else None
    if isinstance(limit, (int, float)):
        return int(limit * MIB), "the memory gate's limit"
    size = manifest.model.get("onnx_bytes", manifest.model.get("linear_bytes"))
    return (size if isinstance(size, int) else 0), "size of the model file"


def version_numbers(version: str) -> Tuple[int, ...]:
    """The numbers of a dotted version, to compare it."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())
