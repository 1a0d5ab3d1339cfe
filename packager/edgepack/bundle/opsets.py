"""Whether the onnxruntime that is carried reads the model: an older one refuses newer operators and file formats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx
from packaging.version import Version

from edgepack.artifacts import Check
from edgepack.bundle.site_packages import Package
from edgepack.errors import StageFailedError
from edgepack.targets import facts

_WHEELS: Final = ("onnxruntime", "onnxruntime-gpu")
_STANDARD: Final = ("", "ai.onnx")  # the names of the domain of ONNX's own operators


@dataclass(frozen=True)
class Limits:
    """The newest versions that a release reads."""

    opset: int
    ir: int

    def __str__(self) -> str:
        return f"opset {self.opset} IR {self.ir}"


def limits_of(version: str) -> Limits | None:
    """What a release of onnxruntime reads; null for one that is older than all we know."""
    table = sorted((Version(release), limits) for release, limits in facts.tables("onnxruntime.toml").items())
    known = [limits for release, limits in table if release <= Version(version)]
    return Limits(**known[-1]) if known else None


def of_model(model: Path) -> Limits:
    """What a model file asks for.

    Raises:
        StageFailedError: it is no ONNX model.
    """
    try:
        read = onnx.load(str(model), load_external_data=False)
    except Exception as error:  # protobuf's own errors derive from nothing narrower
        raise StageFailedError(f"{model.name} is not an ONNX model", why=str(error), fix="build again") from error
    opsets = [item.version for item in read.opset_import if item.domain in _STANDARD]
    return Limits(max(opsets, default=0), read.ir_version)


def check(model: Path, packages: Iterable[Package]) -> Check | None:
    """Whether the onnxruntime among `packages` reads `model`; null where there is none, or we know too little of it.

    Raises:
        StageFailedError: it is too old.
    """
    carried = next((package for package in packages if package.name in _WHEELS), None)
    limits = limits_of(carried.version) if carried is not None else None
    if carried is None or limits is None:
        return None
    asked = of_model(model)
    if asked.opset > limits.opset or asked.ir > limits.ir:
        raise StageFailedError(
            f"{carried.name} {carried.version} does not read {model.name}",
            why=f"the model is of {asked}, and that release reads up to {limits}",
            fix="build for a target with a newer onnxruntime",
        )
    return Check("opset", str(asked.opset), f"<= {limits.opset}")
