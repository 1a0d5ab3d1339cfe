"""The program on a device: it hears when nobody is there any more, even where a network ends without a word."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from edgepack.targets import remote, sent
from edgepack.targets.local import base_python
from edgepack.targets.remote_input import GoneError, Input


@pytest.fixture
def pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as reader, os.fdopen(sink, "wb", buffering=0) as writer:
        yield reader, writer


def test_who_waits_says_so_by_empty_lines(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    heard = Input(reader, 60.0)
    assert not heard.is_over(0)
    writer.write(b"\n\n")
    assert not heard.is_over(1)
    assert heard.readline() == b"\n"
    writer.write(b'{"do": "gate"}\n')  # nobody who waits for an answer asks
    assert heard.is_over(1)


def test_the_end_of_the_input_is_the_end(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    heard = Input(reader, 60.0)
    writer.write(b"\n")
    writer.close()
    assert not heard.is_over(1)
    assert heard.is_over(1)


def test_silence_is_the_end_too(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    heard = Input(reader, 60.0)
    heard._heard_at -= 61
    assert heard.is_over(0)
    writer.write(b"\n")
    assert not heard.is_over(1)


def test_it_ends_by_itself_where_nothing_comes_any_more() -> None:
    line = ["sh", "-c", sent.shell_line([base_python()])]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(sent.program("there", 0.1))
        process.stdin.flush()  # and it stays open
        assert process.stdout.read() == b"\nthere\n"
        assert process.wait(60) == 1


def test_what_is_to_be_done_before_the_end_is_done_where_nobody_is_there_any_more(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom edgepack.targets.remote_input import Input\n"
        "source = Input(sys.stdin.buffer, 0.1)\nsource.before_end = Path(sys.argv[1]).touch\nsource.readline()\n"
    )
    line = [sys.executable, "-c", script, str(tmp_path / "done")]
    with subprocess.Popen(line, stdin=subprocess.PIPE) as process:
        assert process.wait(60) == 1
    assert (tmp_path / "done").exists()


def test_it_says_now_and_then_that_it_runs(monkeypatch: pytest.MonkeyPatch, pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, _ = pipe
    monkeypatch.setattr(remote, "ALIVE_EVERY_S", 0.0)
    sink = Lines(3)
    remote.Conversation(Input(reader, 60.0), cast("BinaryIO", sink)).say_alive()  # until nobody hears it
    assert sink.lines == [b'{"alive": true}\n'] * 3


def test_whoever_waits_for_another_gate_ends_with_who_asked(pipe: tuple[BinaryIO, BinaryIO]) -> None:
    reader, writer = pipe
    sink = Lines(1)
    waiting = remote.Conversation(Input(reader, 60.0), cast("BinaryIO", sink))._waiting()
    writer.write(b"\n")
    waiting("process 812 of pi (python3)")
    waiting("process 812 of pi (python3)")
    assert len(sink.lines) == 1
    assert b"another gate is running on this device (process 812 of pi (python3)); waiting" in sink.lines[0]
    writer.close()
    with pytest.raises(GoneError):
        waiting("")


class Lines:
    """Takes so many lines, and is closed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.lines: list[bytes] = []

    def write(self, data: bytes) -> None:
        if len(self.lines) == self._count:
            raise BrokenPipeError
        self.lines.append(data)

    def flush(self) -> None:
        """Nothing waits in it."""
