"""What this device is, as far as a bundle depends on it: system, libraries, processor, memory (standard library only).

Nothing here raises when a file is missing or unreadable: systems differ in what they tell. What is not told is None, or
empty.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import List, Mapping, Optional, Tuple

ROOT = Path("/")
# Flags as /proc/cpuinfo names them, for instructions that multiply 8-bit numbers and add into 32 bits at once.
_INT8_FLAGS = ("avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm")
_HALF_FLAGS = ("asimdhp",)  # of ARM64; ONNX Runtime does not use AVX512-FP16 of x86
VECTOR_FLAGS = ("sse4_2", "avx", "avx2", "fma", "avx512f", "asimd", "sve", *_HALF_FLAGS, *_INT8_FLAGS)
_LIBSTDCXX = "libstdc++.so.6"
_X86 = ("x86_64", "i686", "i586", "i386")
_ARM = ("aarch64", "armv8l", "armv7l", "armv6l")


def libc() -> Tuple[str, str]:
    """Name and version of this process's C library, e.g. ("glibc", "2.36"); ("unknown", "") if it is not glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):  # another libc does not know the name
        return "unknown", ""
    return (name, version) if version else ("unknown", "")


def libstdcxx() -> Optional[str]:
    """The newest version of symbols in this system's C++ library, as "3.4.30" (the GLIBCXX_3.4.30 of binaries)."""
    try:
        import ctypes

        ctypes.CDLL(_LIBSTDCXX)
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except (ImportError, OSError):
        return None
    for line in mapped:
        path = line.rpartition(" ")[2]
        if f"/{_LIBSTDCXX}" in path:
            # The file is called libstdc++.so.6.0.30, and 6.0.30 is what has the symbols up to 3.4.30.
            _, _, minor = os.path.realpath(path).rpartition(f"{_LIBSTDCXX}.0.")
            return f"3.4.{minor}" if minor.isdigit() else None
    return None


def system_release(root: Path = ROOT) -> Mapping[str, str]:
    """`id`, `version` and `name` of the distribution, as its os-release tells them, e.g. "ubuntu" and "22.04"."""
    told = {}
    for line in (read(root / "etc/os-release") or read(root / "usr/lib/os-release") or "").splitlines():
        key, _, value = line.partition("=")
        told[key.strip()] = value.strip().strip("\"'")
    return {"id": told.get("ID", ""), "version": told.get("VERSION_ID", ""), "name": told.get("PRETTY_NAME", "")}


def board(root: Path = ROOT) -> Optional[str]:
    """What the firmware calls the board, e.g. "NVIDIA Jetson Orin Nano Developer Kit"; not told by most PCs."""
    return read(root / "proc/device-tree/model")


def cpu_flags(root: Path = ROOT) -> List[str]:
    """The vector, float16 and int8 instructions in /proc/cpuinfo that matter to inference, sorted."""
    words = set((_cpuinfo("flags", root) or _cpuinfo("Features", root)).split())
    return sorted(words.intersection(VECTOR_FLAGS))


def int8_flags() -> List[str]:
    """Those of them that multiply int8 numbers and add up the products in one instruction."""
    return sorted(set(cpu_flags()).intersection(_INT8_FLAGS))


def half_flags() -> List[str]:
    """Those of them by which ONNX Runtime computes float16 in float16, and not in float32."""
    return sorted(set(cpu_flags()).intersection(_HALF_FLAGS))


def cpu_model(root: Path = ROOT) -> str:
    """The CPU's name, or the machine type where the kernel gives none."""
    return _cpuinfo("model name", root) or _cpuinfo("Model", root) or platform.machine()


def memory_available_bytes(root: Path = ROOT) -> Optional[int]:
    """Bytes of memory that new processes can get without swapping; kernels before 3.14 do not tell."""
    return _meminfo("MemAvailable", root)


def memory_total_bytes(root: Path = ROOT) -> Optional[int]:
    """Bytes of memory that the kernel manages; on a Jetson processor and GPU share them."""
    return _meminfo("MemTotal", root)


def is_guest(root: Path = ROOT) -> Optional[bool]:
    """Whether a hypervisor runs this system: its other guests take memory bandwidth and clock, which nobody tells.

    x86 processors tell; of others only where a hypervisor names itself, so that None is more likely "no" there.
    """
    flags = _cpuinfo("flags", root).split()
    if "hypervisor" in flags or read(root / "sys/hypervisor/type") or (root / "proc/device-tree/hypervisor").exists():
        return True
    return False if flags else None


def emulation(machine: str, root: Path = ROOT) -> Optional[str]:
    """Why `machine` (what the process sees) seems to be emulated by another kind of CPU, or None.

    Looks for what a user-mode emulator such as qemu lets through from the kernel it runs on: the kernel's own
    architecture, the CPU description in another architecture's format, or the compiler that built the kernel.
    """
    ours = _family(machine)
    kernel = read(root / "proc/sys/kernel/arch")
    if kernel and ours and _family(kernel) and _family(kernel) != ours:
        return f"the kernel is {kernel}, the process {machine}"
    info = read(root / "proc/cpuinfo") or ""
    described = {line.partition(":")[0].strip() for line in info.splitlines()}
    if ours == "arm" and {"vendor_id", "flags"} <= described:
        return f"the CPU is described as x86, the process is {machine}"
    if ours == "x86" and ("CPU implementer" in described or "VirtualApple" in info):
        return f"the CPU is described as ARM, the process is {machine}"
    if ours == "arm" and "x86_64-linux-gnu-gcc" in (read(root / "proc/version") or ""):
        return f"the kernel was built for x86-64, the process is {machine}"
    return None


def read(path: Path) -> Optional[str]:
    """A small text file of the system, without the blanks and NULs around its text; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip(" \t\r\n\0") or None
    except OSError:
        return None


def number(text: Optional[str]) -> Optional[float]:
    """The number that `text` holds; None where it holds none."""
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _meminfo(key: str, root: Path) -> Optional[int]:
    for line in (read(root / "proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == key and value.split()[0].isdigit():
            return int(value.split()[0]) * 1024
    return None


def _cpuinfo(key: str, root: Path) -> str:
    """The first value of `key` in /proc/cpuinfo, or an empty text."""
    for line in (read(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _family(machine: str) -> Optional[str]:
    return "x86" if machine in _X86 else "arm" if machine in _ARM else None
