"""Errors of the build side.

    EdgepackError                    exit 1   (root; never raised itself)
    |-- UsageError                   exit 2   what was asked for on the command line does not fit
    |-- RecipeInvalidError           exit 3   findings in the recipe or in the data it names
    |-- EnvironmentUnfitError        exit 4   missing dependency, device or driver on the build machine
    |-- StageFailedError             exit 5   a stage of the pipeline failed
    |-- GateFailedError              exit 6   a gate was measured and missed
    |-- GateInconclusiveError        exit 7   a gate could not be decided
    |-- BundleInvalidError           exit 8   a bundle that is damaged or not what it claims
    `-- TargetUnreachableError       exit 9   the target cannot be reached or is not the one asked for

The numbers are `edgepack_runtime.exit_codes.ExitCode`; the command line catches `EdgepackError` in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack_runtime.exit_codes import ExitCode

if TYPE_CHECKING:  # findings are carried, never made here
    from edgepack.recipe.findings import Finding


class EdgepackError(Exception):
    """Root of all errors that edgepack raises on purpose.

    Args:
        what: what went wrong, one sentence, naming the stage or file.
        why: the cause, as far as it is known.
        fix: the next command to type or thing to do.
    """

    exit_code: ExitCode = ExitCode.UNEXPECTED

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix


class UsageError(EdgepackError):
    exit_code = ExitCode.USAGE


class RecipeInvalidError(EdgepackError):
    """Carries every finding, warnings included, in the order in which they are to be read."""

    exit_code = ExitCode.RECIPE_INVALID

    def __init__(self, what: str, *, why: str = "", fix: str = "", findings: Sequence[Finding] = ()) -> None:
        super().__init__(what, why=why, fix=fix)
        self.findings = tuple(findings)


class EnvironmentUnfitError(EdgepackError):
    exit_code = ExitCode.ENVIRONMENT_UNFIT


class StageFailedError(EdgepackError):
    exit_code = ExitCode.STAGE_FAILED


class GateFailedError(EdgepackError):
    exit_code = ExitCode.GATE_FAILED


class GateInconclusiveError(EdgepackError):
    exit_code = ExitCode.GATE_INCONCLUSIVE


class BundleInvalidError(EdgepackError):
    exit_code = ExitCode.BUNDLE_INVALID


class TargetUnreachableError(EdgepackError):
    exit_code = ExitCode.TARGET_UNREACHABLE
