"""Commands of edgepack in forks of one process that has imported Paddle, which alone takes seconds.

Run as a program, it serves its standard input, which is a socket: a message is the JSON of arguments, folder and
environment with the files for stdout and stderr; the answers are the process id, and then the exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

MESSAGE_BYTES = 1 << 20
TIMEOUT_S = 900


class Warm:
    """The process that forks, and the way to ask it. It ends when this process does, which closes the socket."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(TIMEOUT_S)
        with theirs:
            self.process = subprocess.Popen([sys.executable, "-I", __file__], stdin=theirs, start_new_session=True)

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str] = os.environ
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` of `python -I -m edgepack.cli` in `folder`."""
        message = json.dumps({"arguments": arguments, "folder": str(folder), "environment": dict(environment)})
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            socket.send_fds(self._socket, [message.encode()], [out.fileno(), err.fileno()])
            child = int(self._socket.recv(MESSAGE_BYTES))
            try:
                code = int(self._socket.recv(MESSAGE_BYTES))
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                self._socket.recv(MESSAGE_BYTES)  # its exit code is no answer to the next command
                raise
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(["edgepack", *arguments], code, *texts)


@functools.cache
def warm() -> Warm:
    """That of this process."""
    return Warm()


def serve(asked: socket.socket) -> None:
    """Fork for each message until the other end is closed."""
    from edgepack.training import environment

    environment.start()
    import edgepack.cli
    import edgepack.commands.build
    import edgepack.training.finetune  # noqa: F401

    gc.freeze()  # no collection in a fork copies what all share
    while True:
        message, files, _, _ = socket.recv_fds(asked, MESSAGE_BYTES, 2)
        if not message:
            return
        child = os.fork()
        if not child:
            asked.close()
            _command(**json.loads(message), files=files)
        for file in files:
            os.close(file)
        asked.send(str(child).encode())
        asked.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _command(arguments: list[str], folder: str, environment: Mapping[str, str], files: list[int]) -> None:
    """Run a command with these files as stdout and stderr, and end this process."""
    from edgepack import cli
    from edgepack.training.environment import settings

    code = 70
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        os.environ.update({setting.name: setting.value for setting in settings()})  # as the import does
        with Path(os.devnull).open("rb") as nothing:
            for number, file in enumerate([nothing.fileno(), *files]):
                os.dup2(file, number)
        for file in files:
            os.close(file)
        sys.argv = ["edgepack", *arguments]
        try:
            cli.main(prog_name="edgepack")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=os.dup(0)))
