"""Trains in as many processes as the recipe asks for: in this one, or in others that Paddle's launcher starts."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from edgepack import machine, nvidia
from edgepack.artifacts import DataArtifact, ModelArtifact
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.paddle_ml import device, environment, gpus, lifeline, models, relay, worker
from edgepack.paddle_ml.fit import Lesson, Narrowing, teach
from edgepack.paddle_ml.lifeline import Lifeline
from edgepack.paddle_ml.meeting import GONE
from edgepack.paddle_ml.ranks import ALONE
from edgepack.paddle_ml.schedule import rate_scale
from edgepack.progress import Progress
from edgepack.recipe.training import Nodes, Training

_LAUNCHER: Final = "paddle.distributed.launch"
_JOB_NAME: Final = "edgepack"  # one for all trainings: builds that train different things meet, and are told so
_POLL_SECONDS: Final = 0.1
_END_SECONDS: Final = 10.0  # for the launcher to end by itself
_LOG, _LOGS = "launcher.log", "logs"
_LAST_LINES: Final = 12
_GLOO_INTERFACE: Final = "GLOO_SOCKET_IFNAME"
# What a scheduler leaves for a launcher of its own would overrule what the recipe says.
_FOREIGN: Final = ("PADDLE_", "POD_IP", "MASTER_ADDR", "MASTER_PORT", "DISTRIBUTED_TRAINER_ENDPOINTS", "WITH_COVERAGE")
_SIOCGIFADDR: Final = 0x8915  # Linux: the address of an interface (man 7 netdevice)


def fit(lesson: Lesson, data: DataArtifact, out: Path, progress: Progress, checkpoint: Path) -> ModelArtifact:
    """`fit.teach` where the recipe's `device` and `nodes` say.

    Raises:
        EnvironmentUnfitError: a device cannot be used, or the machines' meeting point has no address.
        StageFailedError: the training failed, here or on another machine.
        OSError: a file cannot be written.
    """
    training = lesson.training
    if training.ranks == 1:
        progress.line(f"{lesson.name}: device {device.choose(training.device)}")
        return teach(lesson, data, out, progress, checkpoint, ALONE)
    progress.line(f"{lesson.name}: device {device.decide(training.device, gpus.look(), nvidia.look())}")
    progress.line(f"{lesson.name}: {described(training)}")
    if not isinstance(lesson.model, Narrowing):
        models.probe(lesson.model)  # a download is done once, and not by each process
    # Nobody else can read it, and it goes away: the launcher writes down the whole environment beside its logs.
    with tempfile.TemporaryDirectory(prefix="edgepack-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        worker.Job(lesson, data, out.absolute(), checkpoint.absolute()).write(folder)
        _run(training, folder, progress)
        failed(lesson, folder)
        return worker.read_result(folder)


def described(training: Training) -> str:
    """How many processes train, what that makes of a step and of its rate, and where machines meet."""
    scale = rate_scale(training.scale_learning_rate, training.ranks)
    rate = f"learning rate {training.learning_rate:g} x {scale:.3g} ({training.scale_learning_rate})"
    text = f"{training.ranks} processes, {training.ranks} x {training.batch_size} rows a step, {rate}"
    if training.nodes is None:
        return text
    return f"{text}\nwaits for the builds on all {training.nodes.count} machines to meet at {training.nodes.master}"


def _run(training: Training, folder: Path, progress: Progress) -> None:
    """Start the processes and hand on what they say until they have ended; they end with this one."""
    typed, environ = command(training, folder, os.environ), variables(training, os.environ, machine.cores().threads)
    line = Lifeline(folder / worker.LIFELINE)
    with (folder / _LOG).open("wb") as log, relay.Listener(folder, progress) as listener:
        # A session of its own: Ctrl-C is for the build alone, which then lets go of the lifeline.
        launcher = subprocess.Popen(
            typed,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while launcher.poll() is None:
                listener.catch_up()
                time.sleep(_POLL_SECONDS)
            listener.catch_up()
        finally:
            line.cut()
            _end(launcher)


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """Wait for what hangs on a line that is cut."""
    try:
        launcher.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        launcher.kill()
        launcher.wait()


def command(training: Training, folder: Path, environ: Mapping[str, str]) -> list[str]:
    """What is typed to start the processes of this machine.

    The program is Python itself: given a script, the launcher would run that file, and its folder would come before
    the standard library.
    """
    job = [sys.executable, "-m", worker.MODULE, str(folder)]
    options = ["--job_id", _JOB_NAME, "--log_dir", str(folder / _LOGS)]
    options += ["--nproc_per_node", str(training.local_ranks)]
    if training.device.startswith("gpu"):
        options += ["--devices", ",".join(_labels(training.device, environ))]
    if training.nodes is not None:
        address, port = _master(training.nodes)
        options += ["--nnodes", str(training.nodes.count), "--master", f"{address}:{port}"]
        # By its own name a machine often finds nothing but 127.0.1.1, at which no other one reaches it.
        options += ["--host", _own_address(address)]
    start = [sys.executable, "-m", lifeline.MODULE, str(folder / worker.LIFELINE), _LAUNCHER]
    return [*start, *options, *job]


def _labels(wanted: str, environ: Mapping[str, str]) -> list[str]:
    """GPUs as the launcher names them: as CUDA_VISIBLE_DEVICES does where it is set."""
    if ":" not in wanted:
        wanted = device.decide(wanted, gpus.look(), nvidia.look()).place
    numbers = wanted.removeprefix("gpu:").split(",")
    visible = environ.get(device.VISIBLE_VARIABLE, "").split(",")
    return [visible[int(number)] for number in numbers] if visible != [""] else numbers


def variables(training: Training, environ: Mapping[str, str], cores: int) -> dict[str, str]:
    """The environment of the processes: this one's, with the `cores` shared among those of one machine.

    A number of threads that the user chose is kept.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_FOREIGN)}
    if kept.get(environment.THREADS_VARIABLE) == str(cores):  # what `environment.start` sets
        kept[environment.THREADS_VARIABLE] = str(max(1, cores // training.local_ranks))
    if training.nodes is not None and training.device == device.CPU:
        for name in _interfaces(_own_address(_master(training.nodes)[0])):
            kept.setdefault(_GLOO_INTERFACE, name)
    return kept


def _master(nodes: Nodes) -> tuple[str, int]:
    host, _, port = nodes.master.rpartition(":")
    try:
        return socket.gethostbyname(host), int(port)
    except OSError as error:
        raise EnvironmentUnfitError(
            f"nodes.master: the address of {host!r} cannot be found",
            why=error.strerror or str(error),
            fix="write an IP",
        ) from error


def _own_address(other: str) -> str:
    """This machine's address on the way to `other`; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((other, 9))  # any port
            return str(way.getsockname()[0])
    except OSError as error:
        raise EnvironmentUnfitError(
            f"nodes.master: {other} cannot be reached", why=error.strerror or str(error), fix="check the network"
        ) from error


def _interfaces(address: str) -> Iterator[str]:
    """Names of the network interfaces that have `address`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                told = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(told[20:24]) == address:
                yield name


def failed(lesson: Lesson, folder: Path) -> None:
    """Raise what ended the processes of this machine, unless they left a result.

    One that says what went wrong comes before those that only noticed that it was gone.
    """
    if (folder / worker.RESULT).is_file():
        return
    ends = {number: relay.read_error(folder, number) for number in range(lesson.training.local_ranks)}
    for error in sorted((end for end in ends.values() if isinstance(end, Exception)), key=_is_of_others):
        raise error
    lines = [f"process {number + 1}: {end or 'ended without a word'}" for number, end in ends.items()]
    silent = next((number for number, end in ends.items() if end is None), 0)
    log = _last_lines(folder / _LOGS / f"workerlog.{silent}") or _last_lines(folder / _LOG)
    fix = "look at the memory of this machine (`dmesg` names what the system has killed)"
    if lesson.training.nodes is not None:
        fix += ", and at what the builds on the other machines say"
    fix += "; the next build goes on from the last checkpoint"
    raise StageFailedError(f"{lesson.name}: training ended with an error", why="\n".join([*lines, *log]), fix=fix)


def _is_of_others(error: Exception) -> bool:
    return isinstance(error, StageFailedError) and error.what == GONE


def _last_lines(file: Path) -> list[str]:
    if not file.is_file():
        return []
    return file.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
