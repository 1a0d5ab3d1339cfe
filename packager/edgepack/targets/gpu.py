"""Whether what was carried has code for a target's GPUs: a wheel may install where not one of its kernels runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from edgepack.errors import StageFailedError
from edgepack.targets import fatbin
from edgepack.targets.elf import Binary
from edgepack.targets.fatbin import Code
from edgepack.targets.profiles import Profile

_NVIDIAS: Final = "nvidia-"  # what the names of packages of the CUDA release itself begin with
# Onnxruntime's GPU wheels for ARM64 on the package index are built for servers. JetPack 7 has the same CUDA, so that
# they install there too.
_SERVERS: Final = frozenset({"89", "90", "100", "103", "120", "121"})


def code_of(path: Path, name: str, binary: Binary) -> frozenset[Code]:
    """What a library holds code for; nothing where it has none.

    Raises:
        StageFailedError: what should hold it is damaged.
    """
    if not binary.gpu_code:
        return frozenset()
    try:
        with path.open("rb") as stream:
            return fatbin.read(stream, binary.gpu_code)
    except fatbin.Damaged as error:
        raise StageFailedError(
            f"the GPU code in {name} cannot be read", why=str(error), fix="delete the wheel cache and build again"
        ) from error


def runs(code: Code, sm: str, *, jetson: bool) -> bool:
    """Whether a GPU of compute capability `sm` runs `code`.

    Machine code runs on GPUs of the same major number from its own minor number on; on a Jetson only on the very one
    it was made for (CUDA C++ Programming Guide, "Binary Compatibility"). PTX runs on its own and all later ones. Either
    runs on its own one alone where it is of the variant "a", and within its major number where it is of "f".
    """
    if code.kind == "other":
        return False
    if code.variant == "a" or (jetson and code.kind == "sass"):
        return code.sm == sm
    return int(code.sm) <= int(sm) and (code.sm[:-1] == sm[:-1] or (code.kind == "ptx" and not code.variant))


def check(held: Mapping[str, frozenset[Code]], profile: Profile) -> Iterator[str]:
    """Whether each package that has code for GPUs has some for every GPU of the target.

    A package counts as a whole: in some, each library is about other GPUs. NVIDIA's own serve every GPU of their
    release, and keep code in places that nobody else knows (of cuFFT 11 a section holds sm_52 alone): what they seem to
    lack is told, and no error.

    Args:
        held: what each package holds, by its name and version.

    Yields:
        What is to be told.

    Raises:
        StageFailedError: naming the package, the GPUs it does not run on, and what it was built for.
    """
    gpus = profile.cuda.sm if profile.cuda is not None else ()
    for package, codes in held.items():
        lacking = [sm for sm in gpus if not _has(codes, sm, profile)]
        if codes and lacking and package.startswith(_NVIDIAS):
            yield f"{package} shows {told(codes)}; what it has for {_named('sm', lacking)} cannot be read"
        elif codes and lacking:
            raise StageFailedError(
                f"{package} has no code for {_named('sm', lacking)}, the GPU of target {profile.name}",
                why=_why(codes, profile),
                fix=_fix(profile),
            )


def told(codes: Iterable[Code]) -> str:
    """The architectures in words: `machine code for sm_80, sm_90, no PTX`."""
    ordered = sorted(codes, key=lambda code: (int(code.sm), code.variant))
    sass, ptx, other = (
        [code.sm + code.variant for code in ordered if code.kind == kind] for kind in ("sass", "ptx", "other")
    )
    words = [f"machine code for {_named('sm', sass)}" if sass else "no machine code"]
    words.append(f"PTX of {_named('compute', ptx)}" if ptx else "no PTX")
    return ", ".join([*words, "code that is still to be linked"] if other else words)


def _has(codes: Iterable[Code], sm: str, profile: Profile) -> bool:
    return any(runs(code, sm, jetson=bool(profile.jetpack)) for code in codes)


def _why(codes: Iterable[Code], profile: Profile) -> str:
    why = f"it holds {told(codes)}: it would install, and fail when the first model is run"
    if _is_for_servers(codes, profile):
        why += (
            f"; it is the wheel for ARM64 servers, and installs on JetPack {profile.jetpack} because Python, glibc and "
            "CUDA are the same there"
        )
    return why


def _fix(profile: Profile) -> str:
    if profile.jetpack:
        built = f"was built for JetPack {profile.jetpack}"
        return f"give a wheel by path that {built} (docs/27-targets.md), or build for a target that computes on the CPU"
    return "lock a release that was built for these GPUs, or take them out of the target's `cuda.sm`"


def _is_for_servers(codes: Iterable[Code], profile: Profile) -> bool:
    return bool(profile.jetpack) and all(code.kind == "sass" and code.sm in _SERVERS for code in codes)


def _named(prefix: str, architectures: Iterable[str]) -> str:
    return ", ".join(f"{prefix}_{sm}" for sm in architectures)
