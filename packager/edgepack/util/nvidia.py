"""NVIDIA's driver and its GPUs, read from `nvidia-smi`.

It works without Paddle's CUDA build, and explains why Paddle finds no GPU.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from edgepack.util.process import find_program

TOOL: Final = "nvidia-smi"
TIMEOUT_SECONDS: Final = 60  # without persistence mode, a driver with eight GPUs needs about ten seconds

_FIELDS: Final = ("index", "name", "driver_version", "memory.total", "compute_cap", "mig.mode.current")
_REFUSED: Final = re.compile(r'Field "([\w.]+)" is not a valid field')  # drivers before 510, 450
_CUDA: Final = re.compile(r"CUDA(?: UMD)? Version\s*:\s*([0-9.]+)")
_GPU_LINE: Final = re.compile(r"GPU (\d+): ")
_MIG_LINE: Final = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+:")
# Message of nvidia-smi -> reason and fix.
_FAILURES: Final = (
    (
        "couldn't communicate with the NVIDIA driver",
        "nvidia-smi is installed, but the driver is not loaded",
        "load it (`modprobe nvidia`), or install the driver for this kernel and reboot",
    ),
    (
        "Driver/library version mismatch",
        "the loaded driver and its libraries have different versions, as after an update",
        "reboot; in a container, restart it",
    ),
    (
        "Insufficient Permissions",
        "this user may not use the driver",
        "let the user read and write /dev/nvidia*, or give the container its GPUs (`--gpus all`)",
    ),
    (
        "No devices were found",
        "the driver finds no GPU that it can use",
        "search the kernel's log (`dmesg`) for NVRM; in a container, give it a GPU (`--gpus all`)",
    ),
    (
        "GPU is lost",
        "a GPU has stopped responding to the driver",
        "reboot, and search the kernel's log (`dmesg`) for Xid",
    ),
    (
        "Unable to determine the device handle",
        "a GPU does not respond to the driver",
        "reboot, and search the kernel's log (`dmesg`) for Xid",
    ),
    ("Failed to initialize NVML", "the driver cannot be reached", "restart the container, or reboot the machine"),
)


@dataclass(frozen=True)
class Gpu:
    """One GPU. Unknown facts are None."""

    index: int
    name: str
    sm: str | None  # compute capability, as "9.0"
    memory_mib: int | None
    mig: tuple[str, ...] | None = None  # MIG instances, such as ("3g.20gb",); None: MIG is off


@dataclass(frozen=True)
class Nvidia:
    """The driver and its GPUs. `why` and `fix` describe a fault; "" without one."""

    driver: str | None
    cuda: str | None  # newest supported CUDA
    gpus: tuple[Gpu, ...]
    why: str = ""
    fix: str = ""


@dataclass(frozen=True)
class DriverAnswer:
    """Output of one call of nvidia-smi (both streams) and its exit status; None if it is not installed."""

    status: int | None
    text: str


def sm_name(sm: str) -> str:
    """The compiler's name of a compute capability: "9.0" -> `sm_90`."""
    return f"sm_{sm.replace('.', '')}"


def detect(ask: Callable[[Sequence[str]], DriverAnswer] | None = None) -> Nvidia:
    """The driver and GPUs of this machine, queried once per process.

    `ask` calls nvidia-smi with arguments; by default the installed one.
    """
    return _installed() if ask is None else _look(ask)


@functools.cache
def _installed() -> Nvidia:
    return _look(call)


def call(arguments: Sequence[str]) -> DriverAnswer:
    """Call the installed `nvidia-smi`."""
    program = find_program(TOOL)
    if program is None:
        return DriverAnswer(None, "it is not installed, or not on PATH")
    try:
        done = subprocess.run(
            [program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return DriverAnswer(-1, f"it did not answer within {TIMEOUT_SECONDS} s")
    except OSError as error:
        return DriverAnswer(None, error.strerror or str(error))
    return DriverAnswer(done.returncode, done.stdout)


def _look(ask: Callable[[Sequence[str]], DriverAnswer]) -> Nvidia:
    answer, fields = _query(ask)
    if answer.status is None:
        return Nvidia(None, None, (), f"{TOOL} cannot be run: {answer.text}", "install NVIDIA's driver for the GPU")
    rows = [row for line in answer.text.splitlines() if (row := _row(line, fields)) is not None]
    gpus = [_gpu(row) for row in rows]
    if any(gpu.mig is not None for gpu in gpus):
        instances = _instances(ask(["-L"]).text)
        gpus = [gpu if gpu.mig is None else replace(gpu, mig=instances.get(gpu.index, ())) for gpu in gpus]
    why, fix = _failure(answer, bool(gpus))
    found = _CUDA.search(ask([]).text) if gpus else None
    driver = next((_value(row.get("driver_version", "")) for row in rows), None)
    return Nvidia(driver, found[1] if found else None, tuple(gpus), why, fix)


def _query(ask: Callable[[Sequence[str]], DriverAnswer]) -> tuple[DriverAnswer, list[str]]:
    """The answer to a query for the known ones of `_FIELDS`, and their names."""
    fields = list(_FIELDS)
    while True:
        answer = ask([f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"])
        refused = _REFUSED.search(answer.text)
        if refused is None or refused[1] not in fields[1:]:
            return answer, fields
        fields.remove(refused[1])


def _row(line: str, fields: Sequence[str]) -> dict[str, str] | None:
    """The values of one line by field; None for a line that is a message."""
    values = [value.strip() for value in line.split(",")]
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) and values[0].isdecimal() else None


def _gpu(row: dict[str, str]) -> Gpu:
    memory = _value(row.get("memory.total", ""))
    return Gpu(
        int(row["index"]),
        _value(row.get("name", "")) or "a GPU without a name",
        _value(row.get("compute_cap", "")),
        int(memory) if memory is not None and memory.isdecimal() else None,
        () if row.get("mig.mode.current") == "Enabled" else None,
    )


def _value(value: str) -> str | None:
    """A value; None for `[N/A]`, `[Not Supported]` and `ERR!`."""
    return None if not value or value.startswith("[") or value in ("N/A", "ERR!") else value


def _instances(text: str) -> dict[int, tuple[str, ...]]:
    """The MIG instances that `nvidia-smi -L` lists, by GPU."""
    found: dict[int, tuple[str, ...]] = {}
    index = -1
    for line in text.splitlines():
        if gpu := _GPU_LINE.match(line):
            index = int(gpu[1])
        elif instance := _MIG_LINE.match(line):
            found[index] = (*found.get(index, ()), instance[1])
    return found


def _failure(answer: DriverAnswer, found_some: bool) -> tuple[str, str]:
    """Reason and fix of a fault; two empty texts without one."""
    for message, why, fix in _FAILURES:
        # With rows, the missing permission concerns a single value, such as memory.
        if message in answer.text and not (found_some and answer.status == 0):
            return why, fix
    if answer.status == 0 and found_some:
        return "", ""
    last = answer.text.strip().splitlines()[-1:] or ["nothing"]
    return f"{TOOL} says: {last[0].strip()} (exit {answer.status})", f"run `{TOOL}` and repair what it names"
