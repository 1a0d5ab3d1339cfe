"""A device's probe file (`doctor --probe FILE`) -> a profile of it, as a table of a user's file of profiles."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from edgepack.errors import UsageError
from edgepack.targets import profile_file
from edgepack.targets.profiles import SYSTEM
from edgepack.util.text import unprintable_replaced
from edgepack_runtime.bundle.manifest import BUNDLED, HOST, MACHINES, NAME
from edgepack_runtime.device import info, probe
from edgepack_runtime.device.probe import Probe
from edgepack_runtime.schema import fields
from edgepack_runtime.util.fs import read_regular, write_atomic

_MOST_BYTES: Final = 1 << 20
_WHOLE: Final = "write it again on the device: sh FILE.edgepack doctor --probe probe.json"
_GLIBC: Final = re.compile(r"glibc (\d+\.\d+)(?:\.\d+)?\Z")


def read_probe(file: Path) -> Probe:
    """The facts of a probe file.

    Raises:
        UsageError: it is none, or of another format.
    """
    try:
        document = json.loads(read_regular(file, _MOST_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not a probe file", why=str(error), fix=_WHOLE) from error
    if not isinstance(document, dict) or document.get("edgepack_probe") != probe.FORMAT:
        raise UsageError(f"{file} is not a probe file", why="it does not say so of itself", fix=_WHOLE)
    return facts_of(document)


def facts_of(document: Mapping[str, Any]) -> Probe:
    """The facts of a probe file; those that are invalid are unknown."""
    return fields.read(Probe, document, newer=True)[0]


def table_of(facts: Probe, *, gpu: bool) -> dict[str, Any]:
    """The profile of the device, as TOML has it. With `gpu` its model runs on the GPU, and on the device's Python.

    Raises:
        UsageError: it is a device that no bundle can be built for, or one without what is asked for.
    """
    machine, libc = str(facts.machine), facts.libc or "unknown"
    glibc = _GLIBC.match(libc)
    _require(facts.system == "Linux", f"it runs {facts.system}, and bundles run on Linux")
    _require(machine in MACHINES, f"it is {machine}, and bundles exist for {', '.join(MACHINES)}")
    table: dict[str, Any] = {
        "summary": _summary(facts, gpu=gpu),
        "machines": [machine],
        "interpreter": HOST if gpu else BUNDLED,
    }
    if gpu:
        _require(glibc is not None, f"its C library is {libc}, and libraries for GPUs are built for glibc")
        _require(facts.libstdcxx is not None, "it has no libstdc++, which ONNX Runtime needs")
        table |= {"glibc": glibc.group(1) if glibc else "", "glibcxx": str(facts.libstdcxx)}
    if facts.cpu_flags is not None:
        table["isa"] = [flag for flag in sorted(info.VECTOR_FLAGS) if flag in facts.cpu_flags]
    if jetpack := str((facts.jetson or {}).get("jetpack") or "").split(".")[0]:
        table["jetpack"] = jetpack
    if gpu:
        table |= _on_gpu(facts, jetson=bool(jetpack))
    return table


def _require(condition: bool, why: str) -> None:
    if not condition:
        raise UsageError("there can be no profile of this device", why=why, fix="build for another device")


def add(file: Path, name: str, table: Mapping[str, Any], taken: Mapping[str, Any]) -> None:
    """Append the profile `name` to the file of profiles, which is made if it is not there.

    Args:
        taken: profiles that are known already, those of `file` among them.

    Raises:
        UsageError: the name cannot be used, or the file not be written.
        RecipeInvalidError: what would stand there then is not what a profile says.
    """
    if not NAME.match(name):
        raise UsageError(
            f"{name!r} cannot be a target's name", fix="use small letters a-z, digits, `.`, `_` and `-`, 64 at most"
        )
    if name in taken:
        raise UsageError(f"there is a target {name} already", fix="choose another name with --name")
    before = file.read_text(encoding="utf-8") if file.is_file() else _HEAD
    content = f"{before.rstrip()}\n\n{toml(name, table)}"
    profile_file.parse(content, file, ())
    try:
        write_atomic(file, content.encode())
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written", why=str(error.strerror), fix="choose another --profiles"
        ) from error


_HEAD: Final = "# Targets of this project. `edgepack targets show NAME` tells what each of them is.\n"


def toml(name: str, table: Mapping[str, Any]) -> str:
    """`table` and the tables in it, as TOML: texts, truth values, and lists of texts."""
    key = name if re.fullmatch(r"[a-z0-9_-]+", name) else json.dumps(name)
    return "\n".join(_tables(key, table)).rstrip() + "\n"


def _tables(path: str, table: Mapping[str, Any]) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"[{path}]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in plain.items()), ""]
    lines = lines if plain else []
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _tables(f"{path}.{key}", value)
    return lines


def _on_gpu(facts: Probe, *, jetson: bool) -> dict[str, Any]:
    """The keys of a profile that differ if the model runs on the device's GPU."""
    found = facts.gpu or {}
    driver, sm = str(found.get("driver")), str(found.get("sm"))
    if not (re.fullmatch(r"\d{1,3}\.\d{1,3}", driver) and re.fullmatch(r"\d{1,2}\.\d", sm)):
        raise UsageError("there can be no GPU profile of this device", why="its probe tells of no NVIDIA GPU")
    cuda: dict[str, Any] = {"version": driver, "sm": [sm.replace(".", "")]}
    if jetson:
        # CUDA and cuDNN are JetPack's own; the wheel is on no index.
        cuda |= {"version": facts.cuda_runtime or driver, "libraries": SYSTEM}
        return {"by_path": True, "cuda": cuda}
    return {"cuda": cuda}


def _summary(facts: Probe, *, gpu: bool) -> str:
    name, version = (str(facts.distribution.get(key) or "") for key in ("name", "version"))
    system = (name if version in name else f"{name} {version}") or "Linux"
    board = f" on {facts.board}" if facts.board else ""
    card = (facts.gpu or {}).get("name", "GPU")
    text = f"{system}{board}, {f'its {card}' if gpu else 'CPU'}; from a probe of one device"
    return unprintable_replaced(text)[:500]
