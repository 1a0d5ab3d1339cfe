"""The processes of a training: how the launcher is called, and how their progress, results and errors come back."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from edgepack.artifacts import DataArtifact
from edgepack.errors import EdgepackError, EnvironmentUnfitError, StageFailedError
from edgepack.progress import Task
from edgepack.recipe.training import Distill, FromTeacher, Nodes, Training
from edgepack.training import environment

environment.start()

from edgepack.training import distributed, finetune, launch  # noqa: E402 (they import Paddle)

pytestmark = pytest.mark.integration
TWO_GPUS = Training(device="gpu:2,0", learning_rate=1e-4)
STUDENT = finetune.TrainingJob("student", "ernie", TWO_GPUS)


def test_the_launcher_gets_what_the_recipe_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def after(command: list[str], option: str) -> str:
        return command[command.index(option) + 1]

    command = launch.command(TWO_GPUS, tmp_path, {})
    assert after(command, "--devices") == "2,0"
    assert after(command, "--nproc_per_node") == "2"
    assert "--master" not in command
    visible = {"CUDA_VISIBLE_DEVICES": "5,GPU-a,7"}
    assert after(launch.command(TWO_GPUS, tmp_path, visible), "--devices") == "7,5"
    together = Training(device="cpu", nodes=Nodes(count=3, master="localhost:8379"))
    command = launch.command(together, tmp_path, visible)
    assert "--devices" not in command
    assert (after(command, "--nnodes"), after(command, "--master")) == ("3", "127.0.0.1:8379")
    assert after(command, "--host") == "127.0.0.1"
    with pytest.raises(EnvironmentUnfitError, match=r"'nowhere\.invalid' cannot be found"):
        launch.command(Training(device="cpu", nodes=Nodes(count=2, master="nowhere.invalid:1")), tmp_path, {})


def test_the_cores_are_shared_and_what_a_user_sets_is_kept() -> None:
    foreign = {"PADDLE_MASTER": "1.2.3.4:5", "MASTER_ADDR": "x", "HOME": "/home"}
    found = launch.variables(TWO_GPUS, {**foreign, "OMP_NUM_THREADS": "16"}, 16)
    assert found == {"HOME": "/home", "OMP_NUM_THREADS": "8"}
    assert launch.variables(TWO_GPUS, {"OMP_NUM_THREADS": "4"}, 16) == {"OMP_NUM_THREADS": "4"}
    nodes = Training(device="cpu", nodes=Nodes(count=2, master="127.0.0.1:1"))
    assert launch.variables(nodes, {}, 16) == {"GLOO_SOCKET_IFNAME": "lo"}
    assert launch.variables(nodes, {"GLOO_SOCKET_IFNAME": "eth9"}, 16) == {"GLOO_SOCKET_IFNAME": "eth9"}


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    source = FromTeacher.model_validate({"from": "teacher", "layers": [1, 2]})
    data = DataArtifact(tmp_path, ("a", "b"), {"train": 3}, ("w",), {"train": {3: 1}})
    job = launch.Launch(
        finetune.TrainingJob("student", source, TWO_GPUS, None, Distill(hidden=True)),
        data,
        tmp_path / "out",
        tmp_path / "kept",
    )
    job.write(tmp_path)
    assert launch.Launch.read(tmp_path) == job


def failed(folder: Path) -> Exception:
    with pytest.raises((EdgepackError, OSError)) as caught:
        launch.result(STUDENT, folder)
    return caught.value


def test_an_error_of_a_process_comes_back_with_its_class_and_words(tmp_path: Path) -> None:
    launch.write_error(tmp_path, 0, "student", StageFailedError(distributed.GONE))
    launch.write_error(tmp_path, 1, "student", EnvironmentUnfitError("no memory", why="full", fix="free some"))
    error = failed(tmp_path)  # and not that of the process that only missed the other
    assert isinstance(error, EnvironmentUnfitError)
    assert (error.what, error.why, error.fix) == ("no memory", "full", "free some")


def test_an_unexpected_error_of_a_process_is_a_failed_stage(tmp_path: Path) -> None:
    launch.write_error(tmp_path, 0, "student", ZeroDivisionError("by zero"))
    error = failed(tmp_path)
    assert isinstance(error, StageFailedError)
    assert error.why == "ZeroDivisionError: by zero"


def test_a_file_that_a_process_cannot_write_comes_back_with_its_name(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/full/checkpoint.tmp")
    launch.write_error(tmp_path, 0, "student", full)
    error = failed(tmp_path)
    assert isinstance(error, OSError)
    assert (error.errno, error.filename) == (errno.ENOSPC, "/full/checkpoint.tmp")


def test_a_process_that_was_killed_is_named_by_the_launchers_log(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("Container failed\ncode -9\n", encoding="utf-8")
    error = failed(tmp_path)
    assert isinstance(error, StageFailedError)
    assert error.why.splitlines()[1:] == ["Container failed", "code -9"]
    assert "continues from the last checkpoint" in error.fix


class Recorder:
    """A progress, and each of its bars, that record every call."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def line(self, text: str) -> None:
        self.calls.append(text)

    @contextmanager
    def task(self, label: str, total: int, done: int = 0) -> Iterator[Task]:
        self.calls.append((label, total, done))
        try:
            yield self
        except KeyboardInterrupt:
            self.calls.append("interrupted")
            raise
        self.calls.append(f"end of {label}")

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.calls.append((steps, note))


def test_lines_and_bars_arrive_in_order(tmp_path: Path) -> None:
    file, recorder = tmp_path / "progress", Recorder()
    writer = launch.ProgressWriter(file)
    with ExitStack() as bars:
        reader = launch.ProgressReader(file, recorder, bars)
        reader.catch_up()  # there is no file yet
        writer.line("设备 cpu\nand more")
        with writer.task("train", 8, 3) as bar:
            bar.advance(2)
            reader.catch_up()
            reader.catch_up()
            bar.advance(3, "loss 0.5")
        whole = file.read_bytes()
        for end in range(len(whole) - 20, len(whole) + 1):  # the last line is read when it is complete
            file.write_bytes(whole[:end])
            reader.catch_up()
    assert recorder.calls == ["设备 cpu\nand more", ("train", 8, 3), (2, ""), (3, "loss 0.5"), "end of train"]


def test_bars_that_stay_open_end_with_the_build(tmp_path: Path) -> None:
    recorder = Recorder()
    (tmp_path / "progress").write_text(json.dumps({"open": ["train", 8, 0]}) + "\n", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt), ExitStack() as bars:
        launch.ProgressReader(tmp_path / "progress", recorder, bars).catch_up()
        raise KeyboardInterrupt
    assert recorder.calls == [("train", 8, 0), "interrupted"]


class Store:
    """As Paddle's, for threads."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def add(self, name: str, number: int) -> int:
        self.numbers[name] = self.numbers.get(name, 0) + number
        return self.numbers[name]


def test_a_rank_waits_at_the_barrier_until_all_have_arrived() -> None:
    store, arrived = Store(), list[int]()
    first, second = distributed.Barrier(store, 2), distributed.Barrier(store, 2)

    def arrive_twice() -> None:
        for number in (1, 2):
            first.wait()
            arrived.append(number)
        first.leave(last=True)
        arrived.append(3)

    other = Thread(target=arrive_twice)
    other.start()
    assert arrived == []
    second.wait()
    second.wait()
    assert 3 not in arrived
    second.leave(last=False)
    other.join(60)
    assert arrived == [1, 2, 3]


def test_a_rank_that_fails_ends_the_wait_of_the_others() -> None:
    store = Store()
    distributed.Barrier(store, 2).fail()
    with pytest.raises(StageFailedError, match=distributed.GONE) as caught:
        distributed.Barrier(store, 2).wait()
    assert "its own error" in caught.value.why


def test_a_rank_that_never_arrives_is_waited_for_no_longer_than_the_limit() -> None:
    with pytest.raises(StageFailedError, match=distributed.GONE) as caught:
        distributed.Barrier(Store(), 2, limit_seconds=0).wait()
    assert "for 0 minutes" in caught.value.why


def test_a_lost_store_is_a_process_that_has_ended() -> None:
    class Lost:
        def add(self, name: str, number: int) -> int:
            raise ValueError("(InvalidArgument) TCP receive error.\n  [Hint: ...]")

    with pytest.raises(StageFailedError, match=distributed.GONE) as caught:
        distributed.Barrier(Lost(), 2).wait()
    assert caught.value.why == "(InvalidArgument) TCP receive error."
