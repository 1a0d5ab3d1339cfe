"""A user's own file of target profiles: TOML of the same form as `profiles.toml`, checked key by key."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from edgepack import toml
from edgepack.errors import RecipeInvalidError
from edgepack.recipe.explain import did_you_mean, listed
from edgepack.recipe.findings import Finding
from edgepack.recipe.section import Section
from edgepack.wording import counted

ELF_MACHINES: Final = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
# A name becomes part of a bundle's file name.
NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MOST_BYTES: Final = 1 << 20
Text = Annotated[str, Field(min_length=1, max_length=500)]
Release = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+$")]
LockName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\.txt$")]
_HOW: Final = {
    "glibc": 'write a release of glibc, as "2.35"',
    "glibcxx": 'write a symbol version of libstdc++, as "3.4.30"',
    "python": 'write major and minor version, as "3.10"',
    "lock": 'name a file, as "NAME.txt"; `edgepack targets lock NAME` writes it',
    "serve_lock": 'name a file, as "serve-cp310.txt"',
    "sm": 'write a list of architectures, as ["87"]',
    "jetpack": 'write the major version, as "6"',
    "isa": 'write a list of flags in words of /proc/cpuinfo, as ["avx2", "avx512_vnni"]',
}


class CudaTable(Section):
    """`cuda` of a profile."""

    version: Release
    sm: tuple[Annotated[str, Field(pattern=r"^[0-9]{2,3}$")], ...] = Field(min_length=1)
    tensorrt: Annotated[str, Field(pattern=r"^([0-9]+\.[0-9]+)?$")] = ""


class EngineTable(Section):
    """One of a profile's engines."""

    provider: Literal["CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider", "CPU"]
    lock: LockName
    package: Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9-]*)?$")] = ""
    local: bool = False


class EnginesTable(Section):
    """`engines` of a profile."""

    onnxruntime: EngineTable
    openvino: EngineTable | None = None


class ProfileTable(Section):
    """One profile. What a key means stands in `edgepack.targets.profiles.Profile`."""

    summary: Text
    system: Literal["Linux"] = "Linux"
    machine: Literal["x86_64", "aarch64"]
    libc: Literal["glibc"] = "glibc"
    glibc: Release
    glibcxx: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    python: Annotated[str, Field(pattern=r"^3\.([89]|[1-9][0-9])$")]
    serve_lock: LockName | Literal[""] = ""
    jetpack: Annotated[str, Field(pattern=r"^[0-9]?$")] = ""
    isa: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]+$")], ...] | None = None
    engines: EnginesTable
    cuda: CudaTable | None = None


def read(file: Path, taken: Collection[str]) -> dict[str, dict[str, Any]]:
    """The tables of `file` by name, as `profiles.toml` would have them.

    Args:
        taken: names that profiles of this version have: a bundle's target means the same everywhere.

    Raises:
        RecipeInvalidError: it cannot be read, or with a finding for everything in it that no profile says.
    """
    text = _text(file)
    try:
        document = toml.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid(file, [Finding("error", file, None, f"it is no TOML: {error}", "correct it there")]) from error
    found: dict[str, dict[str, Any]] = {}
    findings: list[Finding] = []
    for name, table in document.items():
        line = _line_of(text, name)
        if (reason := _bad_name(name, table, taken)) is not None:
            findings.append(Finding("error", file, line, *reason))
            continue
        try:
            checked = ProfileTable.model_validate(table)
        except ValidationError as error:
            findings += [Finding("error", file, line, *_words(name, one)) for one in error.errors(include_url=False)]
            continue
        found[name] = _as_ours(checked)
    if findings:
        raise _invalid(file, findings)
    return found


def _as_ours(table: ProfileTable) -> dict[str, Any]:
    """With what follows from the rest, and without what is not there."""
    document = table.model_dump(exclude_none=True)
    return {**document, "elf_machine": ELF_MACHINES[table.machine], "elf_bits": 64}


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        return raw.decode("utf-8")
    except (OSError, ValueError) as error:
        finding = Finding("error", file, None, f"it cannot be read: {error}", "give a TOML file of target profiles")
        raise _invalid(file, [finding]) from error


def _bad_name(name: str, table: Any, taken: Collection[str]) -> tuple[str, str] | None:
    """Reason and fix, when there can be no profile of this name."""
    if not isinstance(table, dict):
        return f"`{name[:60]}` is a value, and a profile is a table", f"write `[{name[:60]}]` above its keys"
    if not NAME.fullmatch(name):
        return f"`{name[:60]}` cannot be a target's name", "use small letters a-z, digits, `.`, `_`, `-`; 64 at most"
    if name in taken:
        return f"`{name}` is a profile of this version of edgepack", "choose another name"
    return None


def _words(name: str, error: ErrorDetails) -> tuple[str, str]:
    """Reason and fix for what pydantic found at one key."""
    path = [str(key) for key in error["loc"]]
    where, key = ".".join([name, *path[:-1]]), path[-1]
    dotted = ".".join(path)
    kind = error["type"]
    if kind == "extra_forbidden":
        keys = _keys(path[:-1])
        return f"unknown key `{dotted}` in `{name}`", did_you_mean(key, keys, f"remove it; it takes {listed(keys)}")
    if kind == "missing":
        return f"`{where}` lacks `{key}`", _HOW.get(key, f"add `{key}`")
    return f"`{dotted}` in `{name}` cannot be {error['input']!r:.60}", _HOW.get(key, error["msg"])


def _keys(path: Sequence[str]) -> list[str]:
    """The keys of the table at `path` of a profile."""
    tables: dict[tuple[str, ...], type[BaseModel]] = {
        (): ProfileTable, ("cuda",): CudaTable, ("engines",): EnginesTable,
        ("engines", "onnxruntime"): EngineTable, ("engines", "openvino"): EngineTable,
    }  # fmt: skip
    return list(tables[tuple(path)].model_fields)


def _line_of(text: str, name: str) -> int | None:
    """The line on which the table `name` begins."""
    heads: Iterator[int] = (
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if re.match(rf"\s*\[\s*[\"']?{re.escape(name)}[\"']?\s*[\].]", line)
    )
    return next(heads, None)


def _invalid(file: Path, findings: list[Finding]) -> RecipeInvalidError:
    return RecipeInvalidError(
        f"the target profiles {file} have {counted(len(findings), 'error')}",
        why="; ".join(finding.reason for finding in findings[:3]),
        fix="correct what is named above and run the command again",
        findings=findings,
    )
