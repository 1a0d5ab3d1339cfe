"""Checks for the device's dynamic loader: search paths, needed libraries, flags that it may refuse."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final

from edgepack.binaries.elf import Binary
from edgepack.errors import StageFailedError
from edgepack.messages import message
from edgepack.targets.profiles import Profile

# Libraries of glibc, which are checked by its version.
_GLIBC_PARTS: Final = (
    *("ld-linux", "libanl.so", "libc.so", "libdl.so", "libm.so", "libmvec.so", "libpthread.so", "libresolv.so"),
    *("librt.so", "libutil.so"),
)
# Libraries of every device with a Python: CPython or its modules are linked against them.
_BASE: Final = frozenset({"libstdc++.so.6", "libgcc_s.so.1", "libz.so.1"})
# Libraries of CUDA, cuDNN and the driver, from wheels or from JetPack or CUDA on the device.
_GPU: Final = re.compile(
    r"lib(cuda|cudart|cublas|cublasLt|cufft|cufftw|curand|cusolver|cusparse|cupti|cudnn\w*"
    r"|nvrtc|nvrtc-builtins|nvJitLink|nvToolsExt|nvidia-ml|nccl|nvcudla|nvdla_compiler)\.so(?:\.([0-9]+))?[.0-9]*\Z"
)
# Whose first number is the release of CUDA itself; cuFFT and others count for themselves.
_OF_CUDA: Final = frozenset({"cudart", "cublas", "cublasLt", "nvJitLink"})
# ONNX Runtime's GPU builds have a TensorRT provider, which bundles do not use.
_OF_TENSORRT: Final = ("libnvinfer", "libnvonnxparser")
_ANYBODYS: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock", "/run/shm", "/var/lock")
_WHEREVER: Final = ("/proc/self", "/proc/thread-self")  # `cwd` is the folder that a program is started in
_ORIGIN: Final = re.compile(r"\$(?:ORIGIN\b|\{ORIGIN\})")


def needed(binaries: Mapping[str, Binary], carried: Container[str]) -> tuple[str, ...]:
    """Shared libraries that the device must have besides glibc: needed, and not `carried` (file names)."""
    libraries = {library for binary in binaries.values() for library in binary.libraries}
    return tuple(sorted(n for n in libraries if n not in carried and not n.startswith(_GLIBC_PARTS)))


def check_search_paths(name: str, binary: Binary) -> Iterator[str]:
    """Whether a file looks for libraries only where nobody else puts any; `name` is its path in the site folder.

    Yields findings: places outside of the folder, which on the device do not exist or hold something else;
    and an empty entry, the folder that a program is started in, as NVIDIA's own NVRTC 12 has one behind `$ORIGIN`.

    Raises:
        StageFailedError: it looks in a folder that everybody writes to, or in one that it names from wherever a program
            is started: whoever puts a library there has it run.
    """
    folder = posixpath.dirname(name)
    for entry in binary.search_paths:
        place = posixpath.normpath(_ORIGIN.sub(folder or ".", entry)) if entry else ""
        place = re.sub("^//", "/", place)  # which POSIX keeps, and Linux does not
        if not entry:
            yield message("note.looks_in_start", name=name)
        elif _ORIGIN.match(entry):
            if place.startswith(".."):
                yield message("note.looks_outside", name=name, place=entry)
        elif not entry.startswith("/") or _is_in(place, _WHEREVER):
            raise _dangerous(name, f"{entry}, which is looked up from whatever folder a program is started in")
        elif _is_in(place, _ANYBODYS):
            raise _dangerous(name, f"{entry}, where every user of the device may put files")
        else:
            yield message("note.looks_in", name=name, place=entry)


def _is_in(place: str, folders: Iterable[str]) -> bool:
    return any(place == folder or place.startswith(f"{folder}/") for folder in folders)


def check_needed(binaries: Mapping[str, Binary], carried: Container[str], profile: Profile) -> Iterator[str]:
    """Whether what the files need is carried, part of the system, or of the target's GPU stack in that release.

    Yields findings: libraries that nobody promises.

    Raises:
        StageFailedError: a file was built for another release of CUDA than the target has.
    """
    absent = set(needed(binaries, carried))
    for name, binary in sorted(binaries.items()):
        for what, libraries in _untold(name, sorted(absent & binary.libraries), profile).items():
            yield message("note.needs", name=name, libraries=libraries, what=what)
            absent.difference_update(libraries)  # the first file that needs them is reported


def _untold(name: str, libraries: Iterable[str], profile: Profile) -> dict[str, list[str]]:
    """Warning -> libraries that it concerns."""
    found: dict[str, list[str]] = {}
    for library in libraries:
        gpu = _GPU.match(library)
        if library.startswith(_OF_TENSORRT):
            what: str = message("note.tensorrt")
        elif gpu is None:
            what = "" if library in _BASE else message("note.not_carried")
        elif profile.cuda is None:
            what = message("note.no_gpu")
        else:
            what = ""
            _check_release(name, library, gpu.group(1), gpu.group(2), profile)
        if what:
            found.setdefault(what, []).append(library)
    return found


def check_flags(name: str, binary: Binary) -> Iterator[str]:
    """Yield warnings about flags that hardened systems refuse."""
    if binary.executable_stack:
        yield message("note.stack", name=name)
    if binary.text_relocations:
        yield message("note.relocations", name=name)


def _check_release(user: str, library: str, part: str, major: str | None, profile: Profile) -> None:
    assert profile.cuda is not None, "asked for by a target with a GPU only"
    release = profile.cuda.version.split(".")[0]
    if part in _OF_CUDA and major is not None and major != release:
        raise StageFailedError(
            f"{user} does not run on target {profile.name}",
            why=f"it needs {library}, and the target has CUDA {profile.cuda.version}",
            fix=f"give a wheel that was built for CUDA {release}",
        )


def _dangerous(name: str, where: str) -> StageFailedError:
    return StageFailedError(
        f"{name} would load libraries that are not the bundle's",
        why=f"its RPATH names {where}",
        fix="lock a wheel that was built without it, or correct the file with patchelf --set-rpath '$ORIGIN'",
    )
