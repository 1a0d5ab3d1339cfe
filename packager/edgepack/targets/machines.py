"""The machines that bundles run on, by what `platform.machine()` says, and what others call them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Machine:
    """A kind of machine. All have 64 bits and are little-endian."""

    architecture: str  # in Debian, in OCI, and in `uname -m` of some systems
    elf: str  # `e_machine` of its binaries, by its name in the ELF standard
    triplet: str  # Debian's folder of its libraries below /lib and /usr/lib
    loader_folder: str  # below /, where the kernel looks for the dynamic loader
    loader: str
    oldest_glibc: int  # minor version of glibc 2, the oldest that wheels are built for (PEP 600)
    description: str
    description_zh: str


BY_NAME: Final = {
    "aarch64": Machine(
        *("arm64", "EM_AARCH64", "aarch64-linux-gnu", "lib", "ld-linux-aarch64.so.1", 17),
        *("64-bit ARM (aarch64, arm64)", "64 位 ARM（aarch64、arm64）"),
    ),
    "x86_64": Machine(
        *("amd64", "EM_X86_64", "x86_64-linux-gnu", "lib64", "ld-linux-x86-64.so.2", 5),
        *("x86-64 (also called amd64)", "x86-64（amd64）"),
    ),
}
