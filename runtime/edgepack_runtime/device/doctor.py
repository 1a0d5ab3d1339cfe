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
from edgepack_runtime.messages import joined, local, message
from edgepack_runtime.util.texts import NOTHING

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
        lines.append(f"{'ok  ' if check.ok else 'FAIL'}  {check.check:<9} {local(check.what)}")
        for label, text in (("say.why", check.why), ("say.fix", check.fix)):
            if text:
                lines.append(f"{'':16}{local(message(label))}{local(text)}")
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
        what = message("doctor.inodes", n=disk.f_favail, place=str(place))
        return Check(DISK, False, what, message("doctor.many_files"), message("doctor.remove_files"))
    return Check(DISK, True, what)


def check_writable(place: Path) -> Check:
    """Check that this user may write to `place` (an existing folder)."""
    if os.statvfs(place).f_flag & getattr(os, "ST_RDONLY", 0):
        what = message("doctor.read_only", place=str(place))
        return Check("write", False, what, message("doctor.written"), message("doctor.mount"))
    if not os.access(place, os.W_OK | os.X_OK):
        what = message("doctor.may_not_write", user=os.geteuid(), place=str(place))
        return Check("write", False, what, message("doctor.written"), message("doctor.as_owner"))
    return Check("write", True, message("doctor.may_write", place=str(place)))


def check_executable(place: Path, *, option: str = "--prefix") -> Check:
    """Check that shared libraries may be loaded from the file system of `place` (an existing folder).

    Args:
        option: the option or variable that names another folder.
    """
    if os.statvfs(place).f_flag & getattr(os, "ST_NOEXEC", 0):
        return Check(
            "mount",
            False,
            message("doctor.noexec", place=str(place)),
            message("doctor.no_loading"),
            message("doctor.other_system", option=option),
        )
    return Check("mount", True, message("doctor.loading", place=str(place)))


def _check_bundled(manifest: Manifest) -> List[Check]:
    """What a release with an interpreter of its own needs: nothing."""
    return [
        Check("python", True, message("doctor.carried", version=one.version))
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
        what, why, fix = map(message, ("doctor.32_bit", "doctor.kernel_64_bit", "doctor.install_64_bit"))
        return Check("system", False, what, why, fix)
    return Check("system", True, found)


def _check_libc(target: TargetFacts) -> Check:
    name, version = info.libc()
    what = f"{name} {version}".strip()
    if name != "glibc" or version_numbers(version) < version_numbers(target.libc_min):
        why, fix = message("error.needs_glibc", version=target.libc_min), message("error.bundled")
        return Check("libc", False, message("error.libc", what=what), why, fix)
    return Check("libc", True, message("doctor.libc", what=what, least=target.libc_min))


def closed_to_others(path: Path) -> Optional[Path]:
    """The first part of `path`, or of what it links to, that keeps other users than root from it; else None."""
    parts = [at for one in (path, path.resolve()) for at in (*reversed(one.parents), one)]
    return next((at for at in parts if not at.stat().st_mode & stat.S_IXOTH), None)


def _check_python() -> Check:
    what = f"{platform.python_implementation()} {platform.python_version()}"
    if platform.python_implementation() != "CPython":
        what, why = message("error.this_is", system=what), message("doctor.tested_on")
        return Check("python", False, what, why, message("doctor.start_with"))
    closed = closed_to_others(Path(os.path.realpath(sys.executable))) if os.geteuid() == 0 else None
    if closed is not None:
        why = message("doctor.only_root", python=sys.executable, folder=str(closed))
        return Check("python", True, what, why, message("doctor.for_others"))
    return Check("python", True, what)


def _check_modules() -> Check:
    missing = []
    for name in _MODULES:
        try:
            importlib.import_module(name)  # an existing module may still lack its C part
        except ImportError:
            missing.append(name)
    if missing:
        what = message("doctor.lacks", names=missing)
        return Check("stdlib", False, what, message("doctor.part_of_python"), message("doctor.full_python"))
    return Check("stdlib", True, message("doctor.complete"))


def _check_library(name: str) -> Check:
    try:
        import ctypes

        ctypes.CDLL(name)
    except ImportError:
        what, why = message("doctor.unchecked", name=name), message("doctor.lacks", names=["ctypes"])
        return Check("library", False, what, why)
    except OSError as error:
        fix = message("doctor.package_with", name=name)
        return Check("library", False, message("doctor.missing", name=name), str(error), fix)
    return Check("library", True, name)


def _check_gpu(target: TargetFacts) -> List[Check]:
    if target.provider != CUDA:
        return []
    try:
        from edgepack_runtime.device import nvidia  # needs ctypes, see `_check_modules`

        gpu = nvidia.gpu_facts()
    except ImportError:
        what, why = message("doctor.unchecked", name="GPU"), message("doctor.lacks", names=["ctypes"])
        return [Check("gpu", False, what, why)]
    except EnvironmentUnfitError as error:
        return [Check("gpu", False, error.what, error.why, error.fix)]
    what = message("doctor.gpu", name=gpu.name, sm=gpu.sm, driver=gpu.driver, mib=gpu.memory_mib)
    checks = [Check("gpu", True, what)]
    board = jetson.facts()
    if board is not None:  # any power mode is allowed: the gate measures its effect
        mode = board.power_mode or NOTHING
        what = message("doctor.jetson", jetpack=board.jetpack, l4t=board.l4t, mode=mode)
        checks.append(Check("jetson", True, what))
    return checks


def _check_cpu(manifest: Manifest) -> Check:
    """Describe the CPU. Never fails: the gate measures how fast and how exact it is."""
    fast = info.int8_flags()
    precision = manifest.model.get("precision")
    flags = ", ".join(fast) if fast else message("doctor.slow_int8" if precision == "int8" else "doctor.no_int8")
    what: str = message("doctor.cpu", model=info.cpu_model(), cores=cores.named(cores.cores().share), flags=flags)
    if precision == "float16" and not info.half_flags():
        what = joined(what, message("doctor.slow_half"))
    if why := info.emulation(platform.machine()):
        what = joined(what, message("doctor.emulated", why=why))
    return Check("cpu", True, what)


def _check_memory(manifest: Manifest) -> Check:
    needed, source = _needed_memory(manifest)
    available = info.memory_available_bytes()
    if available is None:
        return Check("memory", True, message("doctor.unknown_memory"))
    what = message("doctor.memory", available=available // MIB, needed=needed // MIB, source=source)
    if available < needed:
        return Check("memory", False, what, message("doctor.model_needs"), message("doctor.add_memory"))
    return Check("memory", True, what)


def _needed_memory(manifest: Manifest) -> Tuple[int, str]:
    gate = manifest.gates.get("memory")
    limit = gate.get("peak_rss_mib") if isinstance(gate, dict) else None
    if isinstance(limit, (int, float)):
        return int(limit * MIB), message("doctor.memory_gate")
    size = manifest.model.get("onnx_bytes", manifest.model.get("linear_bytes"))
    return (size if isinstance(size, int) else 0), message("doctor.model_file")


def version_numbers(version: str) -> Tuple[int, ...]:
    """The numbers of a dotted version, to compare it."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())
