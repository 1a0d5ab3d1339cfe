"""Run a training job in this process, or in several processes that Paddle's launcher starts.

`paddle.distributed.launch` runs `python -m edgepack.training.launch FOLDER` once per GPU, or once on a machine without
GPUs. The build writes the job into the folder and reads from it, as JSON, the progress of the first process and the
result or error of each.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from edgepack import __version__
from edgepack.artifacts import DataArtifact, ModelArtifact
from edgepack.errors import EdgepackError, EnvironmentUnfitError, StageFailedError, error_of, to_document
from edgepack.progress import SILENT, Progress, ProgressReader, ProgressWriter
from edgepack.recipe.encoder_shapes import PADDLE_WEIGHTS, model_files
from edgepack.recipe.training import FromScratch, FromTeacher, Nodes, Training, is_local_folder
from edgepack.training import devices, distributed, environment
from edgepack.training.distributed import ALONE, GONE, Ranks
from edgepack.training.finetune import TrainingJob, WidthPrunedModel, finetune
from edgepack.training.models import classifiers
from edgepack.training.schedule import rate_scale
from edgepack.util import hardware, nvidia
from edgepack.util.hashing import sha256_file, sha256_files
from edgepack_runtime.install import release_process

MODULE: Final = "edgepack.training.launch"
LAUNCHER: Final = "paddle.distributed.launch"
_START_LAUNCHER: Final = (  # after the package that keeps OpenCV out
    f"import edgepack.training, runpy; runpy.run_module({LAUNCHER!r}, run_name='__main__', alter_sys=True)"
)
_JOB_NAME: Final = "edgepack"  # one name for all trainings: builds that train different jobs meet and report it
_POLL_SECONDS: Final = 0.1
_END_SECONDS: Final = 10.0  # time for the launcher to end its processes
_JOB, _PROGRESS, _LOG, _LOGS = "job.json", "progress.jsonl", "launcher.log", "logs"
_LAST_LINES: Final = 20
_GLOO_INTERFACE: Final = "GLOO_SOCKET_IFNAME"
# Variables of a scheduler, which would overrule the recipe.
_FOREIGN: Final = ("PADDLE_", "POD_IP", "MASTER_ADDR", "MASTER_PORT", "DISTRIBUTED_TRAINER_ENDPOINTS", "WITH_COVERAGE")
_SIOCGIFADDR: Final = 0x8915  # Linux: the address of an interface (man 7 netdevice)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Launch:
    """Input of all training processes of a machine. The first process writes to `out` and `checkpoint`."""

    job: TrainingJob
    data: DataArtifact
    out: Path
    checkpoint: Path

    def write(self, folder: Path) -> None:
        """Write the input for `read`."""
        (folder / _JOB).write_bytes(_ADAPTER.dump_json(self, by_alias=True))

    @staticmethod
    def read(folder: Path) -> Launch:
        """The input that `write` wrote."""
        return _ADAPTER.validate_json((folder / _JOB).read_bytes())


_ADAPTER: Final = TypeAdapter(Launch)
_RESULT: Final = TypeAdapter(ModelArtifact)


def run_job(job: TrainingJob, data: DataArtifact, out: Path, progress: Progress, checkpoint: Path) -> ModelArtifact:
    """Call `finetune` on the devices of the recipe's keys `device` and `nodes`.

    Raises:
        EnvironmentUnfitError: a device cannot be used, or `nodes.master` has no address.
        StageFailedError: the training failed, here or on another machine.
        OSError: a file cannot be written.
    """
    training = job.training
    if training.ranks == 1:
        progress.line(f"{job.name}: device {devices.choose(training.device)}")
        return finetune(job, data, out, progress, checkpoint, ALONE)
    progress.line(f"{job.name}: device {devices.decide(training.device, devices.detect(), nvidia.detect())}")
    progress.line(f"{job.name}: {described(training)}")
    if not isinstance(job.model, WidthPrunedModel):
        classifiers.probe(job.model)  # download once, not in each process
    # A private folder that is removed: the launcher writes the whole environment beside its logs.
    with tempfile.TemporaryDirectory(prefix="edgepack-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        Launch(job, data, out.absolute(), checkpoint.absolute()).write(folder)
        _run(training, folder, progress)
        return result(job, folder)


def described(training: Training) -> str:
    """Processes, rows and factor of the learning rate, and the address where machines meet, as text."""
    scale = rate_scale(training.scale_learning_rate, training.ranks)
    rate = f"learning rate x {scale:.3g} ({training.scale_learning_rate})"
    text = f"{training.ranks} processes, {training.ranks} x {training.batch_size} rows a step, {rate}"
    if training.nodes is None:
        return text
    return f"{text}\nwaits for the builds on all {training.nodes.count} machines to meet at {training.nodes.master}"


def _run(training: Training, folder: Path, progress: Progress) -> None:
    """Run the launcher and report the progress of the first process. The launcher ends when this process ends."""
    typed, environ = command(training, folder, os.environ), variables(training, os.environ, hardware.cores().threads)
    with (folder / _LOG).open("wb") as log_file, ExitStack() as bars:
        # In a new session: Ctrl-C reaches the build only, which then ends the launcher.
        launcher = subprocess.Popen(
            typed,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=release_process.die_with_parent(signal.SIGTERM),
        )
        reader = ProgressReader(folder / _PROGRESS, progress, bars)
        try:
            while launcher.poll() is None:
                reader.catch_up()
                time.sleep(_POLL_SECONDS)
            reader.catch_up()
        finally:
            launcher.terminate()
            try:
                launcher.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                launcher.kill()
                launcher.wait()


def command(training: Training, folder: Path, environ: Mapping[str, str]) -> list[str]:
    """The command line that starts the processes of this machine.

    The job is a module: with a script, its folder would come before the standard library.
    """
    job = [sys.executable, "-I", "-m", MODULE, str(folder)]
    options = ["--job_id", _JOB_NAME, "--log_dir", str(folder / _LOGS)]
    options += ["--nproc_per_node", str(training.local_ranks)]
    if training.device.startswith("gpu"):
        options += ["--devices", ",".join(_labels(training.device, environ))]
    if training.nodes is not None:
        address, port = _master(training.nodes)
        options += ["--nnodes", str(training.nodes.count), "--master", f"{address}:{port}"]
        # The name of a machine often resolves to 127.0.1.1, which others cannot reach.
        options += ["--host", _own_address(address)]
    return [sys.executable, "-I", "-c", _START_LAUNCHER, *options, *job]


def _labels(wanted: str, environ: Mapping[str, str]) -> list[str]:
    """GPU names for the launcher, in the numbering of CUDA_VISIBLE_DEVICES if it is set."""
    if ":" not in wanted:
        wanted = devices.decide(wanted, devices.detect(), nvidia.detect()).place
    numbers = wanted.removeprefix("gpu:").split(",")
    visible = environ.get(devices.VISIBLE_VARIABLE, "").split(",")
    return [visible[int(number)] for number in numbers] if visible != [""] else numbers


def variables(training: Training, environ: Mapping[str, str], cores: int) -> dict[str, str]:
    """The environment of the processes: that of this process, with `cores` divided among the processes of a machine.

    A number of threads that the user set is kept.
    """
    kept = {name: value for name, value in environ.items() if not name.startswith(_FOREIGN)}
    if kept.get(environment.THREADS_VARIABLE) == str(cores):  # what `environment.start` sets
        kept[environment.THREADS_VARIABLE] = str(max(1, cores // training.local_ranks))
    if training.nodes is not None and training.device == devices.CPU:
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
    """This machine's address on the route to `other`. Nothing is sent."""
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
                found = fcntl.ioctl(asked, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                yield name


def result(job: TrainingJob, folder: Path) -> ModelArtifact:
    """The model of the first process of this machine.

    Raises:
        EdgepackError, OSError: the error of a process; errors about lost processes come last.
        StageFailedError: no process has written a result.
    """
    files = [_file(folder, rank) for rank in range(job.training.local_ranks)]
    found = [json.loads(file.read_bytes()) for file in files if file.is_file()]
    if found and "model" in found[0]:
        return _RESULT.validate_python(found[0]["model"])
    for error in sorted(
        map(error_of, found), key=lambda error: isinstance(error, EdgepackError) and error.what == GONE
    ):
        raise error
    lines = (folder / _LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    fix = "check the memory of this machine (`dmesg` names processes that the system killed)"
    if job.training.nodes is not None:
        fix += " and the errors of the builds on the other machines"
    raise StageFailedError(
        f"{job.name}: a process of the training was killed, or did not start",
        why="\n".join(["the launcher's log ends with:", *lines]),
        fix=f"{fix}; the next build continues from the last checkpoint",
    )


def write_error(folder: Path, local_rank: int, name: str, error: Exception) -> None:
    """Write the error of a process for `result`."""
    _write(folder, local_rank, to_document(error, f"{name}: training ended with an unexpected error"))


def _write(folder: Path, local_rank: int, document: dict[str, Any]) -> None:
    file = _file(folder, local_rank)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(document), encoding="utf-8")
    temporary.rename(file)


def _file(folder: Path, local_rank: int) -> Path:
    return folder / f"result.{local_rank}.json"


def main() -> None:
    """Entry point of a training process: train, then write the result or the error."""
    ctypes.CDLL(None).prctl(release_process.PR_SET_PDEATHSIG, signal.SIGKILL)  # end with the launcher
    folder = Path(sys.argv[1])
    environment.start()
    launch = Launch.read(folder)
    ranks = None
    try:
        ranks = distributed.join(launch.job.training.device)
        _check_agreement(launch, ranks)
        _train(launch, ranks, folder)
        ranks.leave()
    except Exception as error:
        # Whatever it is, the build has to report it, and the others must not wait.
        log.exception("training ended with an error")
        write_error(folder, distributed.local_rank(), launch.job.name, error)
        if ranks is not None:
            with suppress(StageFailedError):  # the others are gone already
                ranks.fail()
        _exit(1)
    _exit(0)


def _exit(status: int) -> None:
    """End without what libraries do at the end of a process: some of them wait there for ranks that are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _train(launch: Launch, ranks: Ranks, folder: Path) -> None:
    if ranks.is_first_here:
        model = finetune(
            launch.job, launch.data, launch.out, ProgressWriter(folder / _PROGRESS), launch.checkpoint, ranks
        )
        _write(folder, 0, {"model": _RESULT.dump_python(model, mode="json")})
        return
    out = folder / f"rank-{ranks.rank}"  # each writes the files of its tokenizer
    out.mkdir()
    finetune(launch.job, launch.data, out, SILENT, launch.checkpoint, ranks)


def _check_agreement(launch: Launch, ranks: Ranks) -> None:
    """Raise StageFailedError unless all machines train the same job."""
    found = [json.loads(text) for text in ranks.all_bytes(json.dumps(_facts(launch)).encode())]
    different = [name for name in found[0] if any(other[name] != found[0][name] for other in found)]
    if different:
        raise StageFailedError(
            f"{launch.job.name}: the machines of `nodes` do not train the same",
            why=f"they differ in: {', '.join(different)}",
            fix="give all machines one recipe, one version of edgepack and Paddle, the same files and the same "
            "finished stages (`--from teacher` repeats the stages)",
        )


def _facts(launch: Launch) -> dict[str, object]:
    """The inputs that decide the weights, by their names in messages."""
    job = launch.job
    settings = job.training.model_dump(mode="json", exclude={"device", "nodes"})
    return {
        "the stage": job.name,
        "its settings": settings | {"ranks": job.training.ranks, "distill": str(job.distill)},
        "the model it starts from": _start(job.model),
        "the data": [sha256_file(launch.data.file(split)) for split in sorted(launch.data.rows)],
        "the teacher": job.teacher and sha256_file(job.teacher.folder / PADDLE_WEIGHTS),
        "versions": environment.versions() | {"edgepack": __version__},
    }


def _start(model: str | FromScratch | FromTeacher | WidthPrunedModel) -> str:
    """The model that a training starts from, without the path of its files."""
    if isinstance(model, WidthPrunedModel):
        return f"{model.width} of {sha256_file(model.whole.folder / PADDLE_WEIGHTS)}"
    return sha256_files(model_files(Path(str(model)))) if is_local_folder(model) else str(model)


if __name__ == "__main__":
    main()
