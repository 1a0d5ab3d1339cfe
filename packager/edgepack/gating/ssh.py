"""Commands and file copies on a device over the system's OpenSSH client, with its configuration, agent and known hosts.

ssh never prompts (BatchMode): a missing password or an unknown host key is an error, with ssh's own message.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from edgepack.bundle.stub import SAFE_FOLDER
from edgepack.errors import EnvironmentUnfitError, StageFailedError, TargetUnreachableError, UsageError
from edgepack.gating.address import Address
from edgepack.gating.local import VerbOutput
from edgepack.util.process import find_program
from edgepack.util.text import counted
from edgepack_runtime.install.release_process import die_with_parent
from edgepack_runtime.util.progress import Log

MAX_OUTPUT_BYTES: Final = 4 * 2**20  # of one command's standard output
MAX_LINE_BYTES: Final = 2000
MAX_LOG_BYTES: Final = 2**20  # of one command's standard error; each line counts as at least _MIN_LINE_BYTES
_MIN_LINE_BYTES: Final = 100
_KEPT_LINES: Final = 15  # of standard error, for the error message: OpenSSH's longest has so many
_LOGIN_MINUTES: Final = 2.0  # to connect and log in; OpenSSH's own ConnectTimeout is 15 s a host
_GRACE_S: Final = 10.0  # after SIGTERM
_SCRIPT: Final = SAFE_FOLDER + Path(__file__).with_name("device.sh").read_text(encoding="utf-8")
_BEGIN: Final = "\x1e"  # of the script's own output
# First, because ssh takes the first value: no prompts, no forwarding, no command of a configuration file.
_FORCED: Final = (
    "BatchMode=yes", "RequestTTY=no", "RemoteCommand=none", "ClearAllForwardings=yes", "ForwardAgent=no",
    "ForwardX11=no", "PermitLocalCommand=no", "LogLevel=INFO",
)  # fmt: skip
# Last, so that options of the user win. A dead connection ends within a minute.
_DEFAULTS: Final = ("ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=3", "ControlMaster=no")
_OPTION: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*\s*[= ]\s*\S.*")


@dataclass(frozen=True)
class Client:
    """Options for ssh and sftp, as for `ssh -o`, and a key."""

    options: tuple[str, ...] = ()
    identity: Path | None = None

    def command(self, program: str, address: Address, control: str | None = None) -> list[str]:
        """Command line of `ssh` or `sftp` up to its host, which the caller appends.

        Args:
            control: socket of a shared connection, which the first command opens.

        Raises:
            EnvironmentUnfitError: the program is not installed.
            UsageError: an option is invalid.
        """
        path = find_program(program)
        if path is None:
            raise EnvironmentUnfitError(
                f"{program} is not installed",
                fix="install OpenSSH's client (Debian, Ubuntu: openssh-client; Fedora, RHEL: openssh-clients)",
            )
        for option in self.options:
            if not _OPTION.fullmatch(option):
                raise UsageError(f"{option!r} is not an ssh option", fix="write NAME=VALUE, as: -o ConnectTimeout=60")
        shared = [] if control is None else [f"ControlPath={control}", "ControlMaster=auto", "ControlPersist=60"]
        login = [] if address.port is None else [f"Port={address.port}"]
        login += [] if address.user is None else [f"User={address.user}"]
        options = [*_FORCED, *shared, *login, *self.options, *_DEFAULTS]
        identity = [] if self.identity is None else ["-i", str(self.identity)]
        return [path, *(word for option in options for word in ("-o", option)), *identity]


class ConnectionLostError(TargetUnreachableError):
    """The login failed, or the connection broke before a command ended."""


class Connection:
    """One login on a device, which all commands and copies share. Use it in a `with` block.

    If the connection breaks, the next command connects again. A connection that the user already shares (ControlPath in
    a configuration file) is used, because it may be the only way in.

    `look` is what the device answered at the login: its kind of machine.

    Args:
        minutes: time limit for all commands and copies together.
    """

    look: VerbOutput

    def __init__(self, client: Client, address: Address, minutes: float) -> None:
        self.address = address
        self._client, self._minutes = client, minutes
        self._deadline = time.monotonic() + 60 * minutes
        self._folder: Path | None = None
        self._control: str | None = None
        self._running: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def __enter__(self) -> Connection:
        self._folder = Path(tempfile.mkdtemp(prefix="edgepack-", dir="/tmp"))  # the path of a socket must be short
        try:
            if not self._master("check"):
                self._control = f"{self._folder}/ssh"
            self.look = self.run("look", minutes=_LOGIN_MINUTES)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        assert self._folder is not None
        if self._control is not None:
            self._master("exit")
        shutil.rmtree(self._folder, ignore_errors=True)

    def stop(self) -> None:
        """End the running command, from another thread. After that only commands with `after_stop` run."""
        with self._lock:
            self._stopped = True
            if self._running is not None:
                self._running.terminate()

    def run(
        self,
        step: str,
        *arguments: str,
        log: Log | None = None,
        during: str = "",
        minutes: float | None = None,
        after_stop: bool = False,
    ) -> VerbOutput:
        """Run a step of `device.sh` on the device; lines of its standard error go to `log`.

        Args:
            during: the step, for error messages: "the gate ran"; empty for the login.
            minutes: time limit of this command alone.
            after_stop: run it also after `stop` or the connection's time limit, to clean up.

        Raises:
            ConnectionLostError: the login failed, or the connection broke.
            TargetUnreachableError: the device runs no commands for this user, or the time limit is reached.
            StageFailedError: the output is too long.
        """
        name = self.address.name
        line = [*self._client.command("ssh", self.address, self._control), "-T", "--", self.address.host, "exec sh"]
        script = f"set -- {shlex.join((step, *arguments))}\n{_SCRIPT}"
        code, output, errors = self._communicate(line, script, during or "it logged in", log, minutes, after_stop)
        if code == 255 or code < 0:
            raise self._lost(code, errors, during)
        before, begin, stdout = output.partition(_BEGIN)
        if not begin:
            raise TargetUnreachableError(
                f"{name} runs no commands for this user",
                why=f"{before[:MAX_LINE_BYTES]}{errors}".strip() or f"its login shell ended with exit code {code}",
                fix="check what its login shell does; it must not read input or exit without a terminal: "
                f"{self.address.ssh_command} true",
            )
        if len(output) > MAX_OUTPUT_BYTES:
            raise StageFailedError(
                f"{name} printed more than {MAX_OUTPUT_BYTES} bytes while {during or 'it logged in'}"
            )
        return VerbOutput(code, stdout, "\n".join(errors.splitlines()[-8:]))

    def put(self, local: Path, remote: str, *, during: str) -> None:
        """Copy a file by sftp to a file that exists; a partial file on the device is completed.

        Raises:
            ConnectionLostError: the connection broke.
            EnvironmentUnfitError: the device cannot write the file.
            TargetUnreachableError: the device has no sftp, or the time limit is reached.
        """
        assert self._folder is not None
        plain = self._folder / "file"  # sftp expands patterns in local names too
        plain.unlink(missing_ok=True)
        plain.symlink_to(local.absolute())
        quoted = '"' + re.sub(r'(["\\])', r"\\\1", remote) + '"'
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        line = [*self._client.command("sftp", self.address, self._control), "-q", "-b", "-", "--", host]
        code, _, errors = self._communicate(line, f"reput {plain} {quoted}\n", during)
        if code == 1:
            raise EnvironmentUnfitError(
                f"{remote} cannot be written on {self.address.name}",
                why=errors.strip() or "sftp printed no reason",
                fix="free some space there, or name a folder with --remote-dir",
            )
        if code and self._master("check"):
            raise TargetUnreachableError(
                f"{self.address.name} accepts no files",
                why=errors.strip() or f"sftp ended with exit code {code}",
                fix="check `Subsystem sftp` in its sshd_config (Debian, Ubuntu: openssh-sftp-server), and that login "
                f"files print nothing: {self.address.ssh_command} true",
            )
        if code:
            raise self._lost(code, errors, during)

    def _master(self, command: str) -> bool:
        """Whether the shared connection is there and obeys: `check` or `exit`, as of `ssh -O`."""
        line = [*self._client.command("ssh", self.address, self._control), "-O", command, "--", self.address.host]
        try:
            done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def _lost(self, code: int, errors: str, during: str) -> ConnectionLostError:
        name = self.address.name
        return ConnectionLostError(
            f"the connection to {name} broke while {during}" if during else f"{name} cannot be reached",
            why=errors.strip() or f"ssh ended with exit code {code} and printed no reason",
            fix="run the command again" if during else f"log in once by hand: {self.address.ssh_command}",
        )

    def _communicate(
        self,
        line: Sequence[str],
        stdin: str,
        during: str,
        log: Log | None = None,
        minutes: float | None = None,
        after_stop: bool = False,
    ) -> tuple[int, str, str]:
        """Run a command to its end; return exit code, standard output, and the last lines of standard error."""
        deadline, limit = self._deadline, self._minutes
        if minutes is not None and (after_stop or time.monotonic() + 60 * minutes < deadline):
            deadline, limit = time.monotonic() + 60 * minutes, minutes
        with self._lock:
            self._require_going(after_stop)
            process = self._running = subprocess.Popen(
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches it through `stop`, after which the device is cleaned up
                preexec_fn=die_with_parent(signal.SIGTERM),
            )
        output, errors = bytearray(), deque[str](maxlen=_KEPT_LINES)
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        readers = [
            threading.Thread(target=_read_stdout, args=(process.stdout, output), daemon=True),
            threading.Thread(target=_read_stderr, args=(process.stderr, errors, log), daemon=True),
        ]
        # In a thread, too: a device that reads nothing must not outwait the deadline.
        writer = threading.Thread(target=_write_stdin, args=(process.stdin, stdin), daemon=True)
        for thread in (*readers, writer):
            thread.start()
        ended = False
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
            ended = after_stop or not self._stopped
        except subprocess.TimeoutExpired:
            raise TargetUnreachableError(
                f"{self.address.name} took more than {counted(limit, 'minute')} while {during}",
                fix=f"check whether it hangs: {self.address.ssh_command} uptime; or give it more time with --timeout",
            ) from None
        finally:
            _end(process)
            for reader in readers:  # the shared connection holds the other ends, and may keep them after a stop
                reader.join(_GRACE_S if ended else 0.0)
            with self._lock:
                self._running = None
        self._require_going(after_stop)
        return process.returncode, output.decode("utf-8", "replace"), "".join(f"{line}\n" for line in errors)

    def _require_going(self, after_stop: bool) -> None:
        if self._stopped and not after_stop:
            raise TargetUnreachableError(f"{self.address.name}: interrupted")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its ProxyCommand."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def _write_stdin(sink: IO[bytes], text: str) -> None:
    with contextlib.suppress(BrokenPipeError), sink:
        sink.write(text.encode(errors="replace"))  # a device may report lone surrogates


def _read_stdout(source: IO[bytes], output: bytearray) -> None:
    with source:
        for data in iter(lambda: source.read(65536), b""):
            if len(output) <= MAX_OUTPUT_BYTES:  # the rest is dropped, but read so that the command can end
                output.extend(data)


def _read_stderr(source: IO[bytes], kept: deque[str], log: Log | None) -> None:
    """Keep the last lines, and log all of them up to the limit."""
    left = MAX_LOG_BYTES
    with source:
        for data in iter(lambda: source.readline(MAX_LINE_BYTES), b""):
            # A carriage return inside a line must not start a new one, which would lack the target's name.
            line = " ".join(data.decode("utf-8", "replace").splitlines())
            kept.append(line)
            if log is not None and left > 0:  # the rest is dropped, but read so that the command can end
                log(line)
                left -= max(len(data), _MIN_LINE_BYTES)
                if left <= 0:
                    log("it prints too many lines; the rest is not shown")
