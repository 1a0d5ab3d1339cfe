"""Errors of the build side: the runtime's tree (`edgepack_runtime.errors`) and what only a build can raise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack_runtime.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    ExitCode,
    GateFailedError,
    GateInconclusiveError,
    StageFailedError,
    UsageError,
)

if TYPE_CHECKING:  # findings are carried, never made here
    from edgepack.recipe.findings import Finding

__all__ = [
    "BundleInvalidError",
    "EdgepackError",
    "EnvironmentUnfitError",
    "ExitCode",
    "GateFailedError",
    "GateInconclusiveError",
    "RecipeInvalidError",
    "StageFailedError",
    "TargetUnreachableError",
    "UsageError",
]


class RecipeInvalidError(EdgepackError):
    """Carries every finding, warnings included, in the order in which they are to be read."""

    exit_code = ExitCode.RECIPE_INVALID

    def __init__(self, what: str, *, why: str = "", fix: str = "", findings: Sequence[Finding] = ()) -> None:
        super().__init__(what, why=why, fix=fix)
        self.findings = tuple(findings)


class TargetUnreachableError(EdgepackError):
    exit_code = ExitCode.TARGET_UNREACHABLE
