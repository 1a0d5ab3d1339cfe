"""Check that the bundle's onnxruntime reads the model: an older one refuses newer operators and file formats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.version import Version

from edgepack.artifacts import ContentCheck
from edgepack.errors import StageFailedError
from edgepack.packages.site_packages import Package
from edgepack.targets import package_data
from edgepack.targets.profiles import ONNXRUNTIMES
from edgepack_runtime.bundle import onnx_file

_STANDARD: Final = (b"", b"ai.onnx")  # names of the domain of ONNX's own operators

# Fields of onnx.proto by number: a model has the version of its format and opsets, an opset a domain and a version.
_VERSIONS: Final = {"model": {1: onnx_file.LEAF, 8: "opset"}, "opset": {1: onnx_file.LEAF, 2: onnx_file.LEAF}}


@dataclass(frozen=True)
class FormatVersions:
    """Versions of the operators and of the file format: those that a model needs, or the newest that are read."""

    opset: int
    ir: int

    def __str__(self) -> str:
        return f"opset {self.opset} IR {self.ir}"


def readable_by(version: str) -> FormatVersions | None:
    """The newest versions that a release of onnxruntime reads; None for a release older than the table."""
    table = sorted((Version(release), limits) for release, limits in package_data.tables("onnxruntime.toml").items())
    known = [limits for release, limits in table if release <= Version(version)]
    return FormatVersions(**known[-1]) if known else None


def needed_by(model: Path) -> FormatVersions:
    """The versions that a model file needs.

    Raises:
        StageFailedError: it is not an ONNX model.
    """
    opsets, ir = [0], 0
    try:
        for kind, leaves in onnx_file.messages_of(model, _VERSIONS, "model"):
            if kind == "model":
                ir = int(leaves.get(1, [0])[-1])
            elif leaves.get(1, [b""])[-1] in _STANDARD:
                opsets += map(int, leaves.get(2, [0])[-1:])
    except (OSError, ValueError) as error:
        raise StageFailedError(f"{model.name} is not an ONNX model", why=str(error), fix="build again") from error
    return FormatVersions(max(opsets), ir)


def check(model: Path, packages: Iterable[Package]) -> ContentCheck | None:
    """Check that the onnxruntime of `packages` reads `model`; None without onnxruntime or for an unknown release.

    Raises:
        StageFailedError: it is too old.
    """
    carried = next((package for package in packages if package.name in ONNXRUNTIMES), None)
    limits = readable_by(carried.version) if carried is not None else None
    if carried is None or limits is None:
        return None
    needed = needed_by(model)
    if needed.opset > limits.opset or needed.ir > limits.ir:
        raise StageFailedError(
            f"{carried.name} {carried.version} does not read {model.name}",
            why=f"the model is of {needed}, and that release reads up to {limits}",
            fix="build for a target with a newer onnxruntime",
        )
    return ContentCheck("opset", str(needed.opset), f"<= {limits.opset}")
