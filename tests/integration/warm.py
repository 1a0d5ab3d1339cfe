"""Commands of edgepack in forks of one process that has imported what they import; Paddle alone takes seconds.

Run as a program, it serves its standard input, which is a socket: a message is the JSON of arguments, folder and
environment with the files for stdout and stderr; the answers are the process id, and then the exit code.

All bundles hold the same library, and many the same interpreter. What zlib makes of them, which takes most of the time
of a bundle, is kept in the folder that the program is given. The bytes are those of zlib: `test_reproducible.py`
compares two builds that compress for themselves, and `test_custom.py` one of them with one of here.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import hashlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

IMPORTED = (
    "cyclonedx.output.json",
    "edgepack.build.dist_folder",
    "edgepack.build.preflight",
    "edgepack.build.runner",
    "edgepack.cli",
    "edgepack.commands.build",
    "edgepack.console.build_tables",
    "edgepack.interpreter.from_archive",
    "edgepack.interpreter.from_debian",
    "edgepack.packages.sbom",
    "edgepack.recipe.loader",
    "edgepack.recipe.validation",
    "edgepack.report.junit",
    "edgepack.report.markdown",
    "edgepack.training.finetune",
    "edgepack_runtime.engine.cpu",
)
MESSAGE_BYTES = 1 << 20
TIMEOUT_S = 900


class Warm:
    """The process that forks, and the way to ask it. It ends when this process does, which closes the socket.

    `deflated` is where all processes of a run keep what zlib made.
    """

    deflated: Path

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(TIMEOUT_S)
        line = [sys.executable, "-I", __file__, str(self.deflated)]
        with theirs:
            self.process = subprocess.Popen(line, stdin=theirs, start_new_session=True)

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


class Deflater:
    """A compressor of zlib that takes a long stream which it has made before from `folder`.

    All of it comes from `flush`: what a stream is kept under is the hash of its content and of the settings.
    """

    LONG_BYTES = 1 << 16
    make = staticmethod(zlib.compressobj)

    def __init__(self, folder: Path, settings: tuple[int, ...]) -> None:
        self._folder, self._settings = folder, settings
        self._parts: list[bytes] = []
        self._hash = hashlib.blake2b(repr(settings).encode())

    def compress(self, data: bytes) -> bytes:
        self._parts.append(bytes(data))
        self._hash.update(data)
        return b""

    def flush(self) -> bytes:
        kept = self._folder / self._hash.hexdigest()
        with contextlib.suppress(FileNotFoundError):
            return kept.read_bytes()
        inner = self.make(*self._settings)
        packed = b"".join([*map(inner.compress, self._parts), inner.flush()])
        if len(packed) > self.LONG_BYTES:
            written = kept.with_name(f"{os.getpid()}")
            written.write_bytes(packed)
            written.replace(kept)
        return packed


def prepare(deflated: Path) -> None:
    """Import what a build imports, and compile the template of its page: a fork would do it for itself."""
    from edgepack.training import environment

    environment.start()
    for name in IMPORTED:
        importlib.import_module(name)
    from edgepack.report import html

    html.environment().get_template(html.TEMPLATE)

    def compressobj(*settings: int, **named: Any) -> Any:
        return Deflater.make(*settings, **named) if named else Deflater(deflated, settings)

    zlib.compressobj = compressobj  # type: ignore[assignment]


def serve(asked: socket.socket, deflated: Path) -> None:
    """Fork for each message until the other end is closed."""
    prepare(deflated)
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
    serve(socket.socket(fileno=os.dup(0)), Path(sys.argv[1]))
