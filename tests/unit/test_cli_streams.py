"""Output that cannot be written: a full disk, a reader that left, closed streams; the exit code stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.far import brief_bundle

from edgepack_runtime.errors import ExitCode


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["plan", "r.yaml"]], ids=lambda a: a[0])
def test_output_that_finds_no_room_is_a_plain_error(project: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "edgepack.cli", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        ExitCode.ENVIRONMENT_UNFIT,
        "error: the output cannot be written\n  why: No space left on device\n",
    )


REFUSED = """
import errno
from edgepack import cli
from edgepack.build import runner

def build(*others):
    raise OSError(errno.ENOMEM, "Cannot allocate memory")

runner.build = build
cli.main()
"""


def test_an_error_of_the_system_is_none_of_the_output(project: Path) -> None:
    command = [sys.executable, "-c", REFUSED, "build", "r.yaml"]
    done = subprocess.run([*command, "-v"], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.UNEXPECTED
    assert "Traceback" in done.stderr and "in build" in done.stderr
    assert "error: unexpected OSError: [Errno 12] Cannot allocate memory" in done.stderr
    assert "output" not in done.stderr


EACH_WAY_TO_PRINT = [
    ["--help"],  # before there is a command
    ["gate", "--help"],  # before it runs
    ["check", "r.yaml"],
    ["gate", "hotel.edgepack", "-q"],
    ["gate", "hotel.edgepack", "-q", "--json"],
]


@pytest.mark.parametrize("arguments", EACH_WAY_TO_PRINT, ids=" ".join)
def test_a_reader_that_has_had_enough(project: Path, arguments: list[str]) -> None:
    brief_bundle(project / "hotel.edgepack", "fail")
    read, write = os.pipe()
    os.close(read)
    try:
        command = [sys.executable, "-m", "edgepack.cli", *arguments]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (done.returncode, "Broken" in done.stderr, "error" in done.stderr) == (141, False, False), done.stderr


@pytest.fixture(params=["full", "left"])
def unwritable(request: pytest.FixtureRequest) -> Iterator[int]:
    """A file without room, and a pipe that nobody reads from."""
    if request.param == "left":
        read, write = os.pipe()
        os.close(read)
    elif Path("/dev/full").exists():
        write = os.open("/dev/full", os.O_WRONLY)
    else:
        pytest.skip("needs /dev/full")
    yield write
    os.close(write)


def test_errors_that_cannot_be_written_have_their_exit_code(project: Path, unwritable: int) -> None:
    (project / "bad.yaml").write_text("edgepack: 2\n", encoding="utf-8")
    codes = []
    for arguments in ([], ["chek"], ["check", "gone.yaml"], ["check", "bad.yaml", "-v"]):
        command = [sys.executable, "-m", "edgepack.cli", *arguments]
        codes.append(subprocess.run(command, stdout=unwritable, stderr=unwritable, check=False).returncode)
    assert codes == [ExitCode.USAGE] * 2 + [ExitCode.RECIPE_INVALID] * 2


MISSED = """
from edgepack import cli
from edgepack.errors import GateFailedError
from edgepack.build import runner

def build(recipe, workspace, console, *others):
    console.stage("gate", 1, 1, cached=False)
    with console.task("rows", 2) as task:
        task.advance(2)
    print("told", flush=True)
    raise GateFailedError("gate fail: no bundle was delivered")

runner.build = build
cli.main()
"""


def test_a_build_ends_with_its_verdict_where_errors_cannot_be_written(project: Path, unwritable: int) -> None:
    command = [sys.executable, "-c", MISSED, "build", "r.yaml"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=unwritable, text=True, check=False)
    assert (done.returncode, done.stdout) == (ExitCode.GATE_FAILED, "told\n")


@pytest.mark.parametrize("closed", [pytest.param(">&-", marks=pytest.mark.sweep), "<&- >&- 2>&-"])
@pytest.mark.parametrize("arguments", EACH_WAY_TO_PRINT, ids=" ".join)
def test_closed_streams_are_no_crash(project: Path, arguments: list[str], closed: str) -> None:
    brief_bundle(project / "hotel.edgepack", "fail")
    line = f'"$@" {closed}'
    command = [sys.executable, "-m", "edgepack.cli", *arguments]
    done = subprocess.run(["/bin/sh", "-c", line, "sh", *command], capture_output=True, text=True, check=False)
    code = ExitCode.GATE_FAILED if arguments[0] == "gate" and "--help" not in arguments else 0
    assert (done.returncode, "error" in done.stderr) == (code, False), done.stderr
