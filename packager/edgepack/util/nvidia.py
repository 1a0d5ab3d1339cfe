"""What NVIDIA's driver says of itself and its GPUs, as `nvidia-smi` prints it. Standard library only.

It is asked before Paddle is: it also speaks where Paddle is built without CUDA, and says why Paddle finds no GPU.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

TOOL: Final = "nvidia-smi"
TIMEOUT_SECONDS: Final = 60  # without its persistence mode a driver with eight GPUs takes some ten seconds

_FIELDS: Final = ("index", "name", "driver_version", "memory.total", "compute_cap", "mig.mode.current")
_REFUSED: Final = re.compile(r'Field "([\w.]+)" is not a valid field')  # drivers before 510, 450
_CUDA: Final = re.compile(r"CUDA(?: UMD)? Version\s*:\s*([0-9.]+)")
_GPU_LINE: Final = re.compile(r"GPU (\d+): ")
_MIG_LINE: Final = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+:")
# What it says when it cannot do its work -> why, and what to do.
_FAILURES: Final = (
    (
        "couldn't communicate with the NVIDIA driver",
        "nvidia-smi is installed and the driver is not loaded",
        "load it (`modprobe nvidia`), or install the driver for this kernel and reboot",
    ),
    (
        "Driver/library version mismatch",
        "the loaded driver and its libraries are of different versions, as after an update",
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
        "look for NVRM in the kernel's log (`dmesg`); in a container, give it a GPU (`--gpus all`)",
    ),
    ("GPU is lost", "a GPU no longer answers the driver", "reboot, and look for Xid in the kernel's log (`dmesg`)"),
    (
        "Unable to determine the device handle",
        "a GPU does not answer the driver",
        "reboot, and look for Xid in the kernel's log (`dmesg`)",
    ),
    ("Failed to initialize NVML", "the driver cannot be reached", "restart the container, or reboot the machine"),
)


@dataclass(frozen=True)
class Gpu:
    """One GPU. What its driver does not tell is None."""

    index: int
    name: str
    sm: str | None  # compute capability, as "9.0"
    memory_mib: int | None
    mig: tuple[str, ...] | None = None  # its instances, as ("3g.20gb",); None: it is not divided


@dataclass(frozen=True)
class Nvidia:
    """The driver and its GPUs. `why` and `fix` are empty unless something is wrong with them."""

    driver: str | None
    cuda: str | None  # the newest CUDA that the driver runs
    gpus: tuple[Gpu, ...]
    why: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Load:
    """How busy a GPU is: the share of the last second, or less, in which it computed. None, and why, if not told."""

    percent: int | None
    why: str = ""


@dataclass(frozen=True)
class Answer:
    """What one call of the tool printed, on both streams, and its exit status; None when there is no such tool."""

    status: int | None
    text: str


def sm_name(sm: str) -> str:
    """A compute capability as compilers name it: "9.0" -> `sm_90`."""
    return f"sm_{sm.replace('.', '')}"


def look(ask: Callable[[Sequence[str]], Answer] | None = None) -> Nvidia:
    """The driver and GPUs of this machine. `ask` calls the tool with some arguments; by default the installed one.

    The installed one is asked once in a process.
    """
    return _installed() if ask is None else _look(ask)


def load(gpu: str, ask: Callable[[Sequence[str]], Answer] | None = None) -> Load:
    """How busy one GPU is just now. A GPU that is divided (MIG) does not tell.

    Args:
        gpu: its number or UUID, as the tool counts and names them.
        ask: as `look` has it.
    """
    answer = (ask or call)([f"--id={gpu}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"])
    if answer.status is None:
        return Load(None, f"{TOOL} cannot be run: {answer.text}")
    lines = answer.text.strip().splitlines()
    if answer.status == 0 and len(lines) == 1:
        if lines[0].strip().isdecimal():
            return Load(int(lines[0]))
        if _told(lines[0].strip()) is None:
            return Load(None, f"{TOOL} says {lines[0].strip()}")
    return Load(None, _failure(answer, False)[0])


@functools.cache
def _installed() -> Nvidia:
    return _look(call)


def call(arguments: Sequence[str]) -> Answer:
    """Call the installed `nvidia-smi`."""
    try:
        done = subprocess.run(
            [TOOL, *arguments],
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
        return Answer(-1, f"it gave no answer within {TIMEOUT_SECONDS} s")
    except FileNotFoundError:
        return Answer(None, "it is not installed, or not on PATH")
    except OSError as error:
        return Answer(None, error.strerror or str(error))
    return Answer(done.returncode, done.stdout)


def _look(ask: Callable[[Sequence[str]], Answer]) -> Nvidia:
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
    driver = next((_told(row.get("driver_version", "")) for row in rows), None)
    return Nvidia(driver, found[1] if found else None, tuple(gpus), why, fix)


def _query(ask: Callable[[Sequence[str]], Answer]) -> tuple[Answer, list[str]]:
    """The answer to a query for all of `_FIELDS` that this driver knows, and which they are."""
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
    memory = _told(row.get("memory.total", ""))
    return Gpu(
        int(row["index"]),
        _told(row.get("name", "")) or "a GPU without a name",
        _told(row.get("compute_cap", "")),
        int(memory) if memory is not None and memory.isdecimal() else None,
        () if row.get("mig.mode.current") == "Enabled" else None,
    )


def _told(value: str) -> str | None:
    """A value, or None for one of the tool's words for none: `[N/A]`, `[Not Supported]`, `ERR!`."""
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


def _failure(answer: Answer, found_some: bool) -> tuple[str, str]:
    """What is wrong, and what to do; two empty texts when nothing is."""
    for said, why, fix in _FAILURES:
        # Beside rows the permission that is missing is one of a single value, as of its memory.
        if said in answer.text and not (found_some and answer.status == 0):
            return why, fix
    if answer.status == 0 and found_some:
        return "", ""
    last = answer.text.strip().splitlines()[-1:] or ["nothing"]
    return f"{TOOL} says: {last[0].strip()} (exit {answer.status})", f"run `{TOOL}` and mend what it names"
