"""Facts of this device that a bundle depends on: system, libraries, processor, memory.

A missing or unreadable file is no error; its value is None or empty.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import List, Mapping, Optional, Tuple

from edgepack_runtime.messages import message

ROOT = Path("/")
# Flags of /proc/cpuinfo for instructions that multiply 8-bit integers and accumulate in 32 bits.
_INT8_FLAGS = ("avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm")
_HALF_FLAGS = ("asimdhp",)  # ARM64 only: ONNX Runtime does not use AVX512-FP16 on x86
VECTOR_FLAGS = ("sse4_2", "avx", "avx2", "fma", "avx512f", "asimd", "sve", *_HALF_FLAGS, *_INT8_FLAGS)
_LIBSTDCXX = "libstdc++.so.6"
_X86 = ("x86_64", "i686", "i586", "i386")
_ARM = ("aarch64", "armv8l", "armv7l", "armv6l")


def libc() -> Tuple[str, str]:
    """Name and version of this process's C library: ("glibc", "2.36"), or ("unknown", "") for others."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):  # not known to other C libraries
        return "unknown", ""
    return (name, version) if version else ("unknown", "")


def libstdcxx() -> Optional[str]:
    """The newest symbol version of this system's C++ library: "3.4.30" stands for GLIBCXX_3.4.30."""
    try:
        import ctypes

        ctypes.CDLL(_LIBSTDCXX)
        mapped = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except (ImportError, OSError):
        return None
    for line in mapped:
        path = line.rpartition(" ")[2]
        if f"/{_LIBSTDCXX}" in path:
            # libstdc++.so.6.0.30 has symbols up to 3.4.30.
            _, _, minor = os.path.realpath(path).rpartition(f"{_LIBSTDCXX}.0.")
            return f"3.4.{minor}" if minor.isdigit() else None
    return None


def system_release(root: Path = ROOT) -> Mapping[str, str]:
    """`id`, `version` and `name` of the distribution from os-release, such as "ubuntu" and "22.04"."""
    fields = {}
    for line in (read(root / "etc/os-release") or read(root / "usr/lib/os-release") or "").splitlines():
        key, _, value = line.partition("=")
        fields[key.strip()] = value.strip().strip("\"'")
    return {"id": fields.get("ID", ""), "version": fields.get("VERSION_ID", ""), "name": fields.get("PRETTY_NAME", "")}


def board(root: Path = ROOT) -> Optional[str]:
    """The firmware's name of the board, such as "NVIDIA Jetson Orin Nano Developer Kit"; None on most PCs."""
    return read(root / "proc/device-tree/model")


def cpu_flags(root: Path = ROOT) -> List[str]:
    """The flags in /proc/cpuinfo that matter to inference: vector, float16 and int8 instructions; sorted."""
    words = set((_cpuinfo("flags", root) or _cpuinfo("Features", root)).split())
    return sorted(words.intersection(VECTOR_FLAGS))


def int8_flags() -> List[str]:
    """The CPU flags for fast int8 products."""
    return sorted(set(cpu_flags()).intersection(_INT8_FLAGS))


def half_flags() -> List[str]:
    """The CPU flags with which ONNX Runtime computes float16 natively instead of in float32."""
    return sorted(set(cpu_flags()).intersection(_HALF_FLAGS))


def cpu_model(root: Path = ROOT) -> str:
    """The CPU's name, or else the machine type."""
    return _cpuinfo("model name", root) or _cpuinfo("Model", root) or platform.machine()


def memory_available_bytes(root: Path = ROOT) -> Optional[int]:
    """Bytes of memory available without swapping; None before Linux 3.14."""
    return _meminfo("MemAvailable", root)


def memory_total_bytes(root: Path = ROOT) -> Optional[int]:
    """Bytes of memory in total; a Jetson shares them with its GPU."""
    return _meminfo("MemTotal", root)


def is_guest(root: Path = ROOT) -> Optional[bool]:
    """Whether a hypervisor runs this system. Other guests may take memory bandwidth and clock unnoticed.

    Reliable on x86. Elsewhere True or None: None is more likely "no".
    """
    flags = _cpuinfo("flags", root).split()
    if "hypervisor" in flags or read(root / "sys/hypervisor/type") or (root / "proc/device-tree/hypervisor").exists():
        return True
    return False if flags else None


def emulation(machine: str, root: Path = ROOT) -> Optional[str]:
    """The evidence that another kind of CPU emulates `machine` (the process's architecture), or None.

    A user-mode emulator such as qemu does not hide the kernel's architecture, the format of /proc/cpuinfo, or the
    compiler that built the kernel.
    """
    ours = _family(machine)
    kernel = read(root / "proc/sys/kernel/arch")
    if kernel and ours and _family(kernel) and _family(kernel) != ours:
        return message("emulated.kernel", kernel=kernel, machine=machine)
    info = read(root / "proc/cpuinfo") or ""
    described = {line.partition(":")[0].strip() for line in info.splitlines()}
    if ours == "arm" and {"vendor_id", "flags"} <= described:
        return message("emulated.cpu", cpu="x86", machine=machine)
    if ours == "x86" and ("CPU implementer" in described or "VirtualApple" in info):
        return message("emulated.cpu", cpu="ARM", machine=machine)
    if ours == "arm" and "x86_64-linux-gnu-gcc" in (read(root / "proc/version") or ""):
        return message("emulated.built", machine=machine)
    return None


def read(path: Path) -> Optional[str]:
    """A small system file without surrounding blanks and NULs; None if it is empty or cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip(" \t\r\n\0") or None
    except OSError:
        return None


def number(text: Optional[str]) -> Optional[float]:
    """`text` as a number, or None."""
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
    """The first value of `key` in /proc/cpuinfo, or an empty string."""
    for line in (read(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _family(machine: str) -> Optional[str]:
    return "x86" if machine in _X86 else "arm" if machine in _ARM else None
