"""Gates on this machine: the bundle's own `gate` verb runs as on its device, in an isolated process."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from edgepack.errors import (
    BundleInvalidError,
    EdgepackError,
    EnvironmentUnfitError,
    StageFailedError,
    TargetUnreachableError,
    UsageError,
)
from edgepack.gating.golden_rows_option import GoldenRowsOption
from edgepack.messages import message
from edgepack.progress import Progress
from edgepack.sandbox import runner as sandbox
from edgepack.sandbox.confinement import SandboxLimits
from edgepack.targets import this_machine
from edgepack.util.folders import scratch_folder
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.errors import reported
from edgepack_runtime.install import release_process
from edgepack_runtime.schema.receipt import VERDICTS
from edgepack_runtime.util import gate_lock
from edgepack_runtime.util.progress import Log

NO_ROWS: Final = GoldenRowsOption()
_ERRORS: Final[dict[int, type[EdgepackError]]] = {
    kind.exit_code: kind for kind in (UsageError, EnvironmentUnfitError, BundleInvalidError)
}
# What a device has: no HOME, no virtual environment, no Python variables.
_END_SECONDS: Final = 10.0  # time for a verb to clean up
_LONGEST_NAME: Final = 200  # of a verdict or a release, in messages
_DEVICE_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class VerbOutput:
    """Exit code and standard output of a verb, and the last lines of its standard error."""

    exit_code: int
    stdout: str
    stderr_tail: str


def run_verb(command: Sequence[str | Path], log: Log, *, at_our_end: int = signal.SIGTERM) -> VerbOutput:
    """Run a verb of a bundle or of `edgert` and log its standard error line by line.

    Args:
        at_our_end: the signal that the verb gets when this process ends before it.

    Raises:
        TargetUnreachableError: the process cannot be started.
    """
    environment = dict(_DEVICE_ENVIRONMENT)
    inherited = ("TMPDIR", "XDG_RUNTIME_DIR", gate_lock.VARIABLE)
    environment.update({name: os.environ[name] for name in inherited if name in os.environ})
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            # A gate that continued would disturb the next one.
            preexec_fn=release_process.die_with_parent(at_our_end),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TargetUnreachableError(f"{command[0]} cannot be started", why=str(error)) from error
    assert process.stdout is not None and process.stderr is not None
    tail: list[str] = []
    with process:
        try:
            for line in process.stderr:  # a verb prints its result at its end, so stdout cannot fill up before
                tail.append(line.rstrip())
                log(tail[-1])
            stdout = process.stdout.read()
        except BaseException:
            process.terminate()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()  # it runs a graph that does not end
            raise
    return VerbOutput(process.returncode, stdout, "\n".join(tail[-8:]))


def gate_file(
    bundle: Path,
    log: Log,
    rows: GoldenRowsOption = NO_ROWS,
    *,
    own: bool = False,
    at_our_end: int = signal.SIGTERM,
) -> tuple[int, dict[str, Any]]:
    """Run the bundle's own gate on this machine; return its exit code (0, 6 or 7) and its receipt.

    Args:
        own: whether this build made it. Another one is started by `edgert`, which heeds the keys of this machine and
            runs a private copy. Without gates, an own one passes instead of being inconclusive.
        at_our_end: as in `run_verb`.

    Raises:
        TargetUnreachableError: this machine cannot run bundles of that target.
        EnvironmentUnfitError, BundleInvalidError, UsageError: as reported by the bundle.
        StageFailedError: it ended without a verdict in another way.
    """
    target = verify_file(bundle)[0].target  # only a verified bundle is run
    lacking = this_machine.lacking(target.machines, target.provider, target.interpreter, libc_min=target.libc_min)
    if lacking is not None:
        raise TargetUnreachableError(
            message("mistake.not_here", bundle=bundle.name),
            why=lacking.why,
            fix=message("mistake.on_device", target=target.profile, bundle=bundle.name),
        )
    options = ["--json", *rows.arguments(), *(["--without-gates"] if own else [])]
    edgert = [sys.executable, "-I", "-m", "edgepack_runtime", "gate", bundle.resolve()]
    start = [*this_machine.start(bundle.resolve(), target.interpreter), "gate"] if own else edgert
    return judged(bundle.name, run_verb([*start, *options], log, at_our_end=at_our_end))


def gate_confined(
    bundle: Path, progress: Progress, rows: GoldenRowsOption = NO_ROWS, *, quiet_s: float = 0.0
) -> tuple[int, dict[str, Any]]:
    """`gate_file` for a bundle of this build with a model that it did not train: its graph may do what it likes.

    The gate has the limits of the sandbox, and writes to a temporary folder alone.

    Args:
        quiet_s: how long the gates that the recipe asks for say nothing, besides what the sandbox allows.

    Raises:
        StageFailedError: it exceeded a limit; and as `gate_file`.
    """
    job = functools.partial(_gate_own, bundle.resolve(), rows)
    with scratch_folder("edgepack-gate-") as scratch, gate_lock.hold(progress.line):
        limits = SandboxLimits.here(scratch)
        limits = replace(limits, silence_s=limits.silence_s + quiet_s)
        return sandbox.run(job, tuple[int, dict[str, Any]], scratch / "sandbox", progress, stage="gate", limits=limits)


def _gate_own(bundle: Path, rows: GoldenRowsOption, progress: Progress) -> tuple[int, dict[str, Any]]:
    # A graph in a loop keeps Python from its signals, and only SIGKILL ends it.
    return gate_file(bundle, progress.line, rows, own=True, at_our_end=signal.SIGKILL)


def judged(name: str, output: VerbOutput, release_id: str | None = None) -> tuple[int, dict[str, Any]]:
    """The exit code (0, 6 or 7) and the receipt in the output of the verb `gate`.

    Args:
        release_id: the release that the receipt must have, if known.

    Raises:
        EnvironmentUnfitError, BundleInvalidError, UsageError: as reported by the bundle.
        StageFailedError: it ended without a verdict in another way.
    """
    if output.exit_code not in VERDICTS:
        raise failed(f"gate: {name}", output)
    try:
        receipt = json.loads(output.stdout)
        found = str(receipt["verdict"])[:_LONGEST_NAME], str(receipt["bundle"]["release_id"])[:_LONGEST_NAME]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise StageFailedError(f"gate: {name} printed no receipt", why=output.stderr_tail) from error
    if found != (VERDICTS[output.exit_code], release_id or found[1]):
        raise StageFailedError(
            f"gate: {name} printed the receipt of another gate",
            why=f"the receipt: {found[0]}, release {found[1]}; the gate: exit code {output.exit_code}, "
            f"release {release_id or 'unknown'}",
        )
    return output.exit_code, receipt


def failed(what: str, output: VerbOutput) -> EdgepackError:
    """The error of a verb that ended without a result: the reported one, if there is one."""
    kind, error = _ERRORS.get(output.exit_code, StageFailedError), reported(output.stdout)
    if error is not None:
        return kind(f"{what}: {error.what}", why=error.why, fix=error.fix)
    return kind(f"{what} ended with exit code {output.exit_code} before a verdict", why=output.stderr_tail)
