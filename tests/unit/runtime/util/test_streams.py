"""Standard streams that are closed or cannot be written, with and without /dev/null."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CLOSED = """
import os, sys
from edgepack_runtime.util import streams

os.devnull = sys.argv[1]
streams.open_closed()
streams.go_on_without_stderr()
with open(sys.argv[2], "w") as file:
    assert file.fileno() > 2
    print("lost")
    print("lost", file=sys.stderr, flush=True)
    os.system("echo lost; echo lost >&2")
    file.write(repr(sys.stdin.read()))
"""


@pytest.mark.parametrize("devnull", ["/dev/null", "/nonexistent"])
def test_no_file_gets_the_place_of_a_closed_stream(tmp_path: Path, devnull: str) -> None:
    command = [sys.executable, "-c", CLOSED, devnull, str(tmp_path / "file")]
    subprocess.run(["/bin/sh", "-c", '"$@" <&- >&- 2>&-', "sh", *command], check=True)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "''"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_has_room_again_gets_the_next_lines(tmp_path: Path) -> None:
    program = """
import os, sys
from edgepack_runtime.util import streams

streams.go_on_without_stderr()
print("lost", file=sys.stderr)
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 2)
print("kept", file=sys.stderr)
"""
    with Path("/dev/full").open("wb") as full:
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "log")], stderr=full, check=True)
    assert (tmp_path / "log").read_text(encoding="utf-8") == "kept\n"


def test_a_program_outlives_the_reader_of_its_stderr() -> None:
    program = """
import subprocess, sys
from edgepack_runtime.util import streams

streams.go_on_without_stderr()
sys.stdin.read()
print("lost", file=sys.stderr)
print(subprocess.call(["/bin/sh", "-c", "echo lost >&2"]))
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stderr.close()
        process.stdin.close()
        assert process.stdout.read() == b"0\n"
    assert process.returncode == 0
