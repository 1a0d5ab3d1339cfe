"""Errors of the build side: the runtime's tree (`edgepack_runtime.errors`) and what only a build can raise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgepack_runtime.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    ExitCode,
    GateFailedError,
    GateInconclusiveError,
    StageFailedError,
    UsageError,
    from_json,
    to_json,
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
    "error_of",
    "to_document",
]


class RecipeInvalidError(EdgepackError):
    """Carries every finding, warnings included, in the order in which they are to be read."""

    exit_code = ExitCode.RECIPE_INVALID

    def __init__(self, what: str, *, why: str = "", fix: str = "", findings: Sequence[Finding] = ()) -> None:
        super().__init__(what, why=why, fix=fix)
        self.findings = tuple(findings)


class TargetUnreachableError(EdgepackError):
    exit_code = ExitCode.TARGET_UNREACHABLE


def to_document(error: Exception, unexpected: str) -> dict[str, Any]:
    """`error` as a JSON object, for the build that started this process. Other errors than ours become `unexpected`."""
    if isinstance(error, OSError) and error.filename:  # the build reports the file
        return {"os": [error.errno, error.strerror, str(error.filename)]}
    if isinstance(error, EdgepackError):
        return to_json(error)
    return to_json(StageFailedError(unexpected, why=f"{type(error).__name__}: {error}", fix="report it"))


def error_of(document: Mapping[str, Any]) -> EdgepackError | OSError:
    """The error that `to_document` wrote.

    Raises:
        ValueError, TypeError: it is none.
    """
    return OSError(*document["os"]) if "os" in document else from_json(document)
