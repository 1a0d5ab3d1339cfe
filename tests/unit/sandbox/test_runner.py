"""A job in a process of its own: its limits, and what the build learns of its end."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sweeps import sample
from tests.unit.runtime.imported_model import write_imported
from tests.unit.sandbox import jobs
from tests.unit.sandbox.attacks import endless, vast

from edgepack.artifacts import EXAMPLES_FILE, ExamplesArtifact
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.progress import SILENT, Task
from edgepack.sandbox import runner
from edgepack.sandbox.confinement import NOT_CONFINED, SandboxLimits

LIMITS = SandboxLimits(2**30, 2**20, 60)


@pytest.fixture(autouse=True)
def importable_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a build imports nothing but what is installed."""
    monkeypatch.setattr(runner, "COMMAND", tuple(word for word in runner.COMMAND if word != "-I"))
    monkeypatch.setenv("PYTHONPATH", str(Path(jobs.__file__).parents[3]))


def run(job: Any, folder: Path, *arguments: Any, returns: Any = dict, **options: Any) -> Any:
    call = functools.partial(job, *arguments)
    return runner.run(call, returns, folder, SILENT, stage="graphs", **{"limits": LIMITS, **options})


def test_a_result_and_the_errors_of_a_job_come_back(tmp_path: Path) -> None:
    assert run(jobs.echo, tmp_path / "out", {"a": [1]}) == {"a": [1]}
    assert not (tmp_path / "out").exists()
    with pytest.raises(EnvironmentUnfitError, match="a cause"):
        run(jobs.fail, tmp_path / "out", EnvironmentUnfitError("what", why="a cause"))
    with pytest.raises(StageFailedError, match="KeyError: 'x'"):
        run(jobs.fail, tmp_path / "out", KeyError("x"))
    with pytest.raises(StageFailedError, match="wrote no result"):
        run(jobs.echo, tmp_path / "out", {"a": [1]}, returns=int)


class Recorder:
    """A progress reporter that keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.task = SILENT.task

    def line(self, text: str) -> None:
        self.lines.append(text)


class Bars:
    """A progress reporter whose bars take some time, as those of a terminal."""

    @contextlib.contextmanager
    def task(self, label: str, total: int, done: int = 0) -> Iterator[Task]:
        yield self

    def advance(self, steps: int = 1, note: str = "") -> None:
        time.sleep(0.0001)

    def line(self, text: str) -> None:
        pass


def test_progress_is_forwarded(tmp_path: Path) -> None:
    recorder = Recorder()
    runner.run(jobs.speak, dict, tmp_path / "out", recorder, stage="graphs", limits=LIMITS)
    assert recorder.lines == ["hello"]


def test_a_kernel_without_landlock_is_named_and_the_limits_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
from edgepack.sandbox import confinement, runner
class Kernel:
    def syscall(self, *arguments):
        return -1
    prctl = syscall
    def capget(self, *arguments):
        return 0
    capset = capget
confinement.ctypes.CDLL = lambda *arguments, **options: Kernel()
runner.main()
"""
    monkeypatch.setattr(runner, "COMMAND", (sys.executable, "-c", program))
    recorder = Recorder()
    assert runner.run(jobs.speak, dict, tmp_path / "out", recorder, stage="graphs", limits=LIMITS) == {}
    assert recorder.lines == [NOT_CONFINED, "hello"]
    with pytest.raises(StageFailedError, match="refused more memory"):
        run(jobs.take_memory, tmp_path / "out", "python", 2**31)


def test_it_writes_to_its_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept", encoding="ascii")
    found = run(
        jobs.touch, tmp_path / "out", [tmp_path / "out/new", tmp_path / "victim", tmp_path / "planted"], leaves=["new"]
    )
    assert found == {str(tmp_path / "out/new"): "", str(tmp_path / "victim"): "13", str(tmp_path / "planted"): "13"}
    assert (tmp_path / "victim").read_text(encoding="ascii") == "kept"
    assert not (tmp_path / "planted").exists()


def test_it_reads_what_it_was_given_alone(tmp_path: Path) -> None:
    for name in ("given", "secret"):
        (tmp_path / name).write_text(name, encoding="ascii")
    paths = [tmp_path / "given", tmp_path / "secret"]
    assert run(jobs.read, tmp_path / "out", paths, reads=[paths[0]]) == {str(paths[0]): "given", str(paths[1]): "13"}
    assert run(jobs.read, tmp_path / "out", paths)[str(paths[1])] == "secret"  # of the user's own handler


def test_it_reaches_no_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert run(jobs.connect, tmp_path / "out", server.getsockname()[1]) == {"errno": 13}


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK])
def test_it_opens_no_socket(tmp_path: Path, family: int) -> None:
    assert run(jobs.open_socket, tmp_path / "out", family) == {"errno": 13}


def test_it_changes_no_limits_of_the_build(tmp_path: Path) -> None:
    assert run(jobs.limit, tmp_path / "out", os.getpid()) == {"errno": 1}


def test_it_changes_neither_what_it_may_read_nor_other_processes(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text("x", encoding="ascii")
    before = given.stat(), os.getpriority(os.PRIO_PROCESS, 0)
    found = run(jobs.change, tmp_path / "out", given, reads=[given])
    assert (given.stat(), os.getpriority(os.PRIO_PROCESS, 0)) == before
    assert not os.listxattr(given)
    assert found.pop("environment") == "13"
    assert found.pop("flags") == "25"
    assert found.pop("flags by path") == str(errno.ENOSYS)
    assert not any(found.values())  # nothing is done: what copies files sets their modes, what is busy its priority


# None, and those of Linux 5.19, 6.15 and 6.10, which is each half of the others.
LANDLOCK_VERSIONS = (0, 2, 7, pytest.param(5, marks=pytest.mark.sweep))
VERSION_OF_LANDLOCK = """
from edgepack.sandbox import confinement, runner
there_is = confinement._landlock_version()
confinement._landlock_version = lambda: min({}, there_is)
runner.main()
"""


@pytest.fixture(params=LANDLOCK_VERSIONS)
def landlock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version of Landlock that the process uses, at most that of this kernel."""
    version: int = request.param
    monkeypatch.setattr(runner, "COMMAND", (sys.executable, "-c", VERSION_OF_LANDLOCK.format(version)))
    return version


def test_a_child_ends_on_every_kernel(tmp_path: Path, landlock: int) -> None:
    """Before Landlock's scopes no signal may be sent to it."""
    assert run(jobs.end_children, tmp_path / "out") == {"code": -signal.SIGKILL}


def test_a_handler_answers_or_fails_on_every_kernel(tmp_path: Path, landlock: int) -> None:
    (tmp_path / EXAMPLES_FILE).write_text('{"item": [0, 0], "expected": 5}\n', encoding="utf-8")
    examples = ExamplesArtifact(tmp_path, "json", 1)
    model = write_imported(tmp_path / "model", item="json")
    assert run(jobs.answer_examples, tmp_path / "out", model, examples, 60) == {"answers": [5.0]}
    handler = model / "handler.py"
    handler.write_text(handler.read_text(encoding="utf-8") + "\nwhile True:\n    pass\n", encoding="utf-8")
    with pytest.raises(StageFailedError, match="the handler does not answer example 1") as error:
        run(jobs.answer_examples, tmp_path / "out", model, examples, 1)
    assert error.value.why == "there is no answer after 1 s"


def test_a_file_that_it_may_not_write_is_not_truncated_on_any_kernel(tmp_path: Path, landlock: int) -> None:
    paths = [tmp_path / name for name in ("truncate", "0", "3", "1", "open", "openat2")]
    for path in paths:
        path.write_text("kept", encoding="ascii")
    found = run(jobs.shorten, tmp_path / "out", paths)
    if landlock == 0:  # it may write to it
        assert found.pop("1") == "" and not paths[3].read_text(encoding="ascii")
        paths[3].write_text("kept", encoding="ascii")
    assert set(found.values()) <= {"13", "38"}
    assert {path.read_text(encoding="ascii") for path in paths} == {"kept"}


def test_its_own_files_are_truncated_on_every_kernel(tmp_path: Path, landlock: int) -> None:
    assert run(jobs.use_files, tmp_path / "out", tmp_path / "out", leaves=["a", "b"]) == {"b": "new"}


def test_a_job_works_on_every_kernel(tmp_path: Path, landlock: int) -> None:
    recorder = Recorder()
    assert runner.run(jobs.speak, dict, tmp_path / "out", recorder, stage="graphs", limits=LIMITS) == {}
    assert recorder.lines == ["hello"] if landlock else [NOT_CONFINED, "hello"]


REFUSED = {
    "memory", "semaphores", "queue", "namespace", "child of the build", "unbounded memory", "signal", "owner of a pipe",
}  # fmt: skip
ONLY_FILTERED = {"signal to all"}  # Linux 6.12 lets it succeed, and reach nobody else


def test_it_meets_no_other_program_of_the_user(tmp_path: Path, landlock: int) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        found = run(jobs.meet_others, tmp_path / "out", other.pid)
        assert other.poll() is None
        other.kill()
    assert {name for name, error in found.items() if error} == REFUSED | (set() if landlock >= 6 else ONLY_FILTERED)


def test_shared_memory_is_private_memory_or_none(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="refused more memory"):
        run(jobs.share_memory, tmp_path / "out", 4096)


def test_all_its_processes_together_have_one_limit(tmp_path: Path) -> None:
    limits = SandboxLimits(300 * 2**20, 2**20, 60)
    with pytest.raises(StageFailedError, match=r"refused more memory than 300\.0 MiB") as error:
        run(jobs.take_memory_together, tmp_path / "out", 120 * 2**20, limits=limits)
    assert "together" in error.value.why


def test_a_process_whose_first_thread_has_ended_is_counted(tmp_path: Path) -> None:
    limits = SandboxLimits(300 * 2**20, 2**20, 60)
    with pytest.raises(StageFailedError, match=r"refused more memory than 300\.0 MiB"):
        run(jobs.end_first_threads_and_take_memory_together, tmp_path / "out", 120 * 2**20, limits=limits)


def test_where_a_process_ends_during_a_look_the_others_are_stopped_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else memory goes from one to the next, and each has ended when it is looked at."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        stat = Path(f"/proc/{child.pid}/stat")
        states = []

        def look(group: int) -> runner._Use:
            states.append(stat.read_text().rpartition(")")[2].split()[0])
            return runner._Use(1, 1, 1, is_whole=len(states) > 1)

        monkeypatch.setattr(runner, "_look", look)
        assert runner._use(child.pid).is_whole
        assert states[1] == "T"
        assert stat.read_text().rpartition(")")[2].split()[0] != "T"
        child.kill()


def test_a_process_that_began_during_a_look_may_have_the_memory_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = [[runner._Member(Path("/proc/self"), b"S", 1)]]
    lists.append([*lists[0], runner._Member(Path("/proc/1"), b"S", 1)])
    monkeypatch.setattr(runner, "_members", lambda group: iter(lists.pop(0)))
    assert not runner._look(1).is_whole


def test_it_ends_before_others_where_memory_ends(tmp_path: Path) -> None:
    assert run(jobs.read, tmp_path / "out", [Path("/proc/self/oom_score_adj")]) == {
        "/proc/self/oom_score_adj": "1000\n"
    }


def test_processes_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MOST_PROCESSES", 2)
    with pytest.raises(StageFailedError, match="2 processes"):
        run(jobs.take_memory_together, tmp_path / "out", 2**20)


def test_threads_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MOST_THREADS", 20)
    with pytest.raises(StageFailedError, match="20 threads"):
        run(jobs.start_threads, tmp_path / "out", 40)


def test_a_result_has_few_levels(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="levels"):
        run(jobs.nest_folders_in, tmp_path / "out", tmp_path / "out", 1500)
    assert not list(tmp_path.iterdir())


def test_folders_deeper_than_python_calls_functions_are_removed(tmp_path: Path) -> None:
    assert run(jobs.nest_folders, tmp_path / "out", 3000) == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", sample([b"\nRssAnon:\t0 0", b"RssAnon: 0", b") R 1 1 1 1", b"RssAnon: x", b"\rRssAnon:\t0"], 2)
)
def test_no_name_of_a_process_hides_its_memory(tmp_path: Path, name: bytes) -> None:
    limits = SandboxLimits(300 * 2**20, 2**20, 60)
    with pytest.raises(StageFailedError, match=r"refused more memory than 300\.0 MiB"):
        run(jobs.rename_and_take_memory_together, tmp_path / "out", name, 120 * 2**20, limits=limits)


def test_a_call_that_is_not_listed_is_missing(tmp_path: Path) -> None:
    found = run(jobs.call_what_is_not_listed, tmp_path / "out")
    assert len(found) > 800
    assert set(found.values()) == {errno.ENOSYS}


def test_memory_that_no_limit_counts_is_refused(tmp_path: Path) -> None:
    found = run(jobs.take_uncounted_memory, tmp_path / "out")
    assert found == {
        "growing": errno.ENOMEM,
        "sockets": errno.EACCES,
        "secret": errno.ENOSYS,
        "rules": errno.ENOSYS,
        "spliced": errno.ENOSYS,
        "spliced from a file": errno.ENOSYS,
        "sent from a file": errno.ENOSYS,
        "lock": errno.EPERM,
        "lock of the file": errno.ENOSYS,
        "watches": errno.ENOSYS,
        "hash table of futexes": errno.EINVAL,
        "pipes": errno.EMFILE,
    }


def test_few_signals_wait(tmp_path: Path) -> None:
    assert run(jobs.queue_signals, tmp_path / "out")["waited"] <= 65


def test_it_keeps_no_other_program_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    commands = {
        "lease": (fcntl.F_SETLEASE, fcntl.F_RDLCK),
        "notify": (fcntl.F_NOTIFY, fcntl.DN_MODIFY),
        "size of a pipe": (1031, 2**20),
        "flags": (fcntl.F_GETFL, 0),
        "copy": (fcntl.F_DUPFD_CLOEXEC, 0),
    }
    found = run(jobs.control, tmp_path / "out", tmp_path / "file", commands)
    assert found == {"lease": 1, "notify": 1, "size of a pipe": 1, "flags": 0, "copy": 0}


def test_no_terminal_and_no_other_device_is_read(tmp_path: Path) -> None:
    """Whoever reads a terminal gets what the user types there."""
    (tmp_path / "file").touch()
    ours, theirs = pty.openpty()
    try:
        refused = ["/dev/ptmx", os.ttyname(theirs), f"/proc/{os.getpid()}/fd/{theirs}"]
        allowed = ["/dev/zero", "/dev/urandom", str(tmp_path / "file"), "/etc/passwd"]
        for reads in (None, [tmp_path]):
            found = run(jobs.open_to_read, tmp_path / "out", refused + allowed, reads=reads)
            assert [found[path] for path in refused] == ["13"] * 3
            assert [found[path] for path in allowed] == [""] * 4
    finally:
        os.close(ours)
        os.close(theirs)


def test_its_folder_is_made_for_it(tmp_path: Path) -> None:
    """Else what it leaves there could have a name that the build uses later."""
    (tmp_path / "out").mkdir()
    with pytest.raises(FileExistsError):
        run(jobs.echo, tmp_path / "out", {})
    assert list((tmp_path / "out").iterdir()) == []


def test_it_leaves_what_it_was_asked_for_and_nothing_else(tmp_path: Path) -> None:
    names = ["onnx-float/model.onnx", "onnx-float/handler.py", "any/edgepack_runtime/cli/main.py"]
    files = [tmp_path / "out" / name for name in names]
    for leaves, what in (
        ([], "left 'any'"),
        (names[:1], "left 'any'"),
        ([names[0], names[2]], "left 'onnx-float/handler.py'"),
        ([*names, "onnx-float/vocab.txt"], "did not write 'onnx-float/vocab.txt'"),
    ):
        with pytest.raises(StageFailedError, match=what):
            run(jobs.plant, tmp_path / "out", files, leaves=leaves)
        assert not (tmp_path / "out").exists()
    run(jobs.plant, tmp_path / "out", files, leaves=names)
    assert [path.read_text(encoding="ascii") for path in files] == ["planted"] * 3


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"advance":[0,""]}\n', "refused more memory|wrote no progress"),
        (b'{"open":["x",1,0]}\n', "wrote no progress"),
    ],
)
def test_who_writes_progress_without_end_is_looked_at(
    tmp_path: Path, line: bytes, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_MOST_PROGRESS_BYTES", 2**22)
    limits = SandboxLimits(300 * 2**20, 2**26, 60)
    began = time.monotonic()
    with pytest.raises(StageFailedError, match=what):
        runner.run(functools.partial(jobs.flood, line), dict, tmp_path / "out", Bars(), stage="graphs", limits=limits)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(("number", "size"), [(10_001, 0), (3, 2**20)])
def test_what_it_leaves_is_no_more_than_the_disk_has_room_for(tmp_path: Path, number: int, size: int) -> None:
    with pytest.raises(StageFailedError, match=r"left more than 10000 files or 2\.0 MiB"):
        run(jobs.leave_files, tmp_path / "out", tmp_path / "out", number, size)


def test_few_logs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    of = runner._last_bytes

    def counted(log: Path) -> bytes:
        read.append(log.name)
        return of(log)

    monkeypatch.setattr(runner, "_last_bytes", counted)
    with pytest.raises(StageFailedError, match="exit code 255") as error:
        run(jobs.leave_logs, tmp_path / "out", 100)
    assert len(error.value.why) <= 4000
    assert len(read) == 4
    assert read[0] == "process.log"


def test_its_files_have_the_usual_modes(tmp_path: Path) -> None:
    run(jobs.replace, tmp_path / "out", tmp_path / "out/file", leaves=["file", "file.copy"])
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()] == [0o644] * 2


def test_it_knows_no_secret_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "EDGEPACK_TOKEN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = run(jobs.variables, tmp_path / "out")
    assert not {"TOKEN", "EDGEPACK_TOKEN"} & found.keys()
    assert found["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("forged", [b"[" * 100_000, b'{"result": ' + b"[" * 100_000, b'{"error": "x"}'])
def test_a_forged_result_is_an_error(tmp_path: Path, forged: bytes) -> None:
    with pytest.raises(StageFailedError, match="wrote no result"):
        run(jobs.forge, tmp_path / "out", forged)


def test_nothing_that_it_started_lives_on(tmp_path: Path) -> None:
    found = run(jobs.leave_child, tmp_path / "out", tmp_path)
    for pid in found["pids"]:
        status = Path(f"/proc/{pid}/stat")
        assert not status.exists() or status.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"


def test_what_it_returns_names_files_of_its_folder_alone(tmp_path: Path) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    found = run(jobs.name_files, out, out, out / "x", returns=jobs.Answer)
    assert found == jobs.Answer(out, ({"x": out / "x"},))
    for folder, named in ((other, out), (out, other), (out, out / ".." / "other"), (Path("/"), out)):
        with pytest.raises(StageFailedError, match="outside its folder"):
            run(jobs.name_files, out, folder, named, returns=jobs.Answer)


def test_no_file_of_the_user_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret words", encoding="ascii")
    with pytest.raises(StageFailedError, match="exit code 255") as error:
        run(jobs.link_log, tmp_path / "out", tmp_path / "secret")
    assert "secret words" not in error.value.why


def test_a_link_that_it_leaves_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match=r"left a link, model\.onnx"):
        run(jobs.link, tmp_path / "out", "/etc/passwd", tmp_path / "out/model.onnx")


@pytest.mark.parametrize("how", ["python", "numpy"])
def test_too_much_memory_is_an_error_with_the_limit(tmp_path: Path, how: str) -> None:
    with pytest.raises(StageFailedError, match=r"refused more memory than 1024\.0 MiB") as error:
        run(jobs.take_memory, tmp_path / "out", how, 2**31)
    assert "more memory" in error.value.fix


def test_too_large_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match=r"refused a file of more than 1\.0 MiB"):
        run(jobs.write, tmp_path / "out", tmp_path / "out/large", 2**21)


def test_what_does_not_go_on_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="no progress within 1 s"):
        run(jobs.hang, tmp_path / "out", limits=SandboxLimits(2**30, 2**20, 1))


def test_a_graph_that_loops_or_takes_memory_is_stopped(tmp_path: Path) -> None:
    graph = tmp_path / "a.onnx"
    for attack, silence_s, what in (
        (endless(), 2, "no progress within 2 s"),
        (vast(3), 60, "refused more memory than 1024"),
    ):
        graph.write_bytes(attack.SerializeToString())
        assert graph.stat().st_size < 500
        with pytest.raises(StageFailedError, match=what):
            run(jobs.infer, tmp_path / "out", graph, limits=SandboxLimits(2**30, 2**20, silence_s))


@pytest.mark.parametrize(
    ("number", "what"),
    [(255, r"ended the process of the model \(exit code 255\)"), (-signal.SIGSEGV, "was killed by SIGSEGV")],
)
def test_a_library_that_ends_the_process_is_an_error_with_its_words(tmp_path: Path, number: int, what: str) -> None:
    with pytest.raises(StageFailedError, match=what) as error:
        run(jobs.end, tmp_path / "out", number)
    assert "last words" in error.value.why


def test_a_pipe_in_place_of_the_progress_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="wrote no progress"):
        run(jobs.plant_pipe, tmp_path / "out")


BUILD = """
import functools, pathlib, sys
from edgepack.util import process
from edgepack.progress import SILENT
from edgepack.sandbox import runner
from edgepack.sandbox.confinement import NOT_CONFINED, SandboxLimits
from edgepack.util import folders
from tests.unit.sandbox import jobs
runner.COMMAND = tuple(word for word in runner.COMMAND if word != "-I")
with process.noticed():
    job = functools.partial(jobs.hang_with_child, pathlib.Path(sys.argv[1]))
    runner.run(job, dict, pathlib.Path(sys.argv[1]), SILENT, stage="graphs", limits=SandboxLimits(2**30, 2**20, 600))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_the_build(tmp_path: Path, number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", BUILD, str(tmp_path / "out")], stderr=subprocess.DEVNULL) as build:
        try:
            pids = tmp_path / "out/pids"
            wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 3)
            started = pids.read_text().split()
            build.send_signal(number)
            assert build.wait(30) != 0
        finally:
            build.kill()
    for pid in started:
        wait_for(lambda pid=pid: not is_running(pid))


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(pid: str) -> bool:
    try:
        return "State:\tZ" not in Path("/proc", pid, "status").read_text(encoding="ascii")
    except OSError:
        return False
