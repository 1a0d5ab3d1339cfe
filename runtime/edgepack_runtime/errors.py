"""Errors of the device side.

DeviceError                      exit 1   (root; never raised itself)
|-- UsageError                   exit 2   the command line makes no sense
|-- EnvironmentUnfitError        exit 4   this device lacks something the bundle needs
|-- StepFailedError              exit 5   a step of install, self-test or prediction failed
|-- GateFailedError              exit 6   a gate was measured and missed
|-- GateInconclusiveError        exit 7   a gate could not be decided
|-- BundleInvalidError           exit 8   bundle or installed release damaged, or not what it claims
`-- RolledBackError              exit 10  the new release failed after the switch; the one before serves again
"""

from __future__ import annotations

from edgepack_runtime.exit_codes import ExitCode


class DeviceError(Exception):
    """Root of all errors that edgepack_runtime raises on purpose.

    Args:
        what: what went wrong, one sentence, naming the file or step.
        why: the cause, as far as it is known.
        fix: the next command to type or thing to do.
    """

    exit_code: ExitCode = ExitCode.UNEXPECTED

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append("  why: " + self.why)
        if self.fix:
            lines.append("  fix: " + self.fix)
        return "\n".join(lines)


class UsageError(DeviceError):
    exit_code = ExitCode.USAGE


class EnvironmentUnfitError(DeviceError):
    exit_code = ExitCode.ENVIRONMENT_UNFIT


class StepFailedError(DeviceError):
    exit_code = ExitCode.STAGE_FAILED


class GateFailedError(DeviceError):
    exit_code = ExitCode.GATE_FAILED


class GateInconclusiveError(DeviceError):
    exit_code = ExitCode.GATE_INCONCLUSIVE


class BundleInvalidError(DeviceError):
    exit_code = ExitCode.BUNDLE_INVALID


class RolledBackError(DeviceError):
    exit_code = ExitCode.ROLLED_BACK
