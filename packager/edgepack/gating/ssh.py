"""Commands and file copies on a device over the system's OpenSSH client, with its configuration, agent and known hosts.

ssh never prompts (BatchMode): a missing password or an unknown host key is an error with the command to type.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
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

from edgepack.errors import EdgepackError, EnvironmentUnfitError, StageFailedError, TargetUnreachableError, UsageError
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
_KEPT_LINES: Final = 40  # of standard error, for the error message
_LOGIN_S: Final = 120.0  # to connect and log in; OpenSSH's own ConnectTimeout is 15 s a host
_POLL_S: Final = 0.05
_GRACE_S: Final = 10.0  # after SIGTERM
# First, because ssh takes the first value: no prompts, no forwarding, no command of a configuration file.
_FORCED: Final = (
    "BatchMode=yes", "RequestTTY=no", "RemoteCommand=none", "ClearAllForwardings=yes", "ForwardAgent=no",
    "ForwardX11=no", "PermitLocalCommand=no", "ControlPersist=no", "LogLevel=INFO",
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
            control: socket of a shared connection.

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
        shared = [] if control is None else [f"ControlPath={control}"]
        login = [] if address.port is None else [f"Port={address.port}"]
        login += [] if address.user is None else [f"User={address.user}"]
        options = [*_FORCED, *shared, *login, *self.options, *_DEFAULTS]
        identity = [] if self.identity is None else ["-i", str(self.identity)]
        return [path, *(word for option in options for word in ("-o", option)), *identity]


class ConnectionLostError(Exception):
    """The connection broke before the command ended; `error` is the error to report."""

    def __init__(self, error: EdgepackError) -> None:
        super().__init__(error.what)
        self.error = error


class Connection:
    """One login on a device, which all commands and copies share (ControlMaster). Use it in a `with` block.

    If the shared connection breaks, the next command connects by itself. A connection that the user already shares
    (ControlPath in a configuration file) is used, because it may be the only way in.

    Args:
        minutes: time limit for all commands and copies together.
    """

    def __init__(self, client: Client, address: Address, minutes: float) -> None:
        self.address = address
        self._client, self._minutes = client, minutes
        self._deadline = time.monotonic() + 60 * minutes
        self._folder: str | None = None
        self._control: str | None = None
        self._master: subprocess.Popen[bytes] | None = None
        self._running: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def __enter__(self) -> Connection:
        self._folder = tempfile.mkdtemp(prefix="edgepack-", dir="/tmp")  # the path of a socket must be short
        check = [*self._client.command("ssh", self.address), "-O", "check", "--", self.address.host]
        if subprocess.run(check, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0:
            return self
        try:
            self._log_in(f"{self._folder}/ssh")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._master is not None:
            _end(self._master)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def stop(self) -> None:
        """End the running command, from another thread. After that only commands with `after_stop` run."""
        with self._lock:
            self._stopped = True
            if self._running is not None:
                self._running.terminate()

    def run(
        self,
        script: str,
        log: Log | None = None,
        *,
        during: str,
        minutes: float | None = None,
        after_stop: bool = False,
    ) -> VerbOutput:
        """Run a POSIX shell script on the device; lines of its standard error go to `log`.

        The script is the standard input of `sh`, so that the login shell parses no quotes. Output of login files comes
        before a marker and is ignored.

        Args:
            during: the step, for error messages: "the gate ran".
            minutes: time limit of this command alone.
            after_stop: run it also after `stop` or the connection's time limit, to clean up.

        Raises:
            ConnectionLostError: the connection broke.
            TargetUnreachableError: the device runs no commands for this user, or the time limit is reached.
            StageFailedError: the output is too long.
        """
        marker = f"edgepack-{secrets.token_hex(16)}"
        line = [*self._client.command("ssh", self.address, self._control), "-T", "--", self.address.host, "exec sh"]
        stdin = f"echo {marker}; echo {marker} >&2\n{script}\n"
        code, output, errors = self._communicate(line, stdin, during, log, marker, minutes, after_stop)
        before, marked, stdout = output.partition(f"{marker}\n")
        if code == 255 or code < 0:
            raise ConnectionLostError(explain(self.address, code, errors, during))
        if not marked:
            texts = [(text.strip().splitlines() or [""])[-1].strip() for text in (before, errors)]
            raise TargetUnreachableError(
                f"{self.address.name} runs no commands for this user",
                why="; ".join(dict.fromkeys(filter(None, texts))) or f"its login shell ended with exit code {code}",
                fix="check what its login shell does; it must not read input or exit without a terminal: "
                f"{self.address.ssh_command} true",
            )
        if len(output) > MAX_OUTPUT_BYTES:
            raise StageFailedError(f"{self.address.name} printed more than {MAX_OUTPUT_BYTES} bytes while {during}")
        return VerbOutput(code, stdout, "\n".join(errors.splitlines()[-8:]))

    def put(self, local: Path, remote: str, *, during: str) -> None:
        """Copy a file by sftp; a partial file on the device is completed.

        Raises:
            ConnectionLostError: the connection broke.
            EnvironmentUnfitError: the device cannot write the file.
            TargetUnreachableError: the device has no sftp, or the time limit is reached.
        """
        assert self._folder is not None
        plain = Path(self._folder) / "file"  # sftp expands patterns in local names too
        plain.unlink(missing_ok=True)
        plain.symlink_to(local.absolute())
        quoted = '"' + re.sub(r'(["\\])', r"\\\1", remote) + '"'
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        line = [*self._client.command("sftp", self.address, self._control), "-q", "-b", "-", "--", host]
        code, _, errors = self._communicate(line, f"reput {plain} {quoted}\n", during)
        if code == 0:
            return
        for pattern, why, fix in _NO_SFTP:
            if re.search(pattern, errors):
                fix = fix.format(ssh_command=self.address.ssh_command)
                raise TargetUnreachableError(f"{self.address.name} accepts no files", why=why, fix=fix)
        if code == 1:
            raise EnvironmentUnfitError(
                f"{remote} cannot be written on {self.address.name}",
                why=(errors.strip().splitlines() or ["sftp printed no reason"])[-1].strip(),
                fix="free some space there, or name a folder with --remote-dir",
            )
        raise ConnectionLostError(explain(self.address, code, errors, during))

    def _log_in(self, control: str) -> None:
        program, *options = self._client.command("ssh", self.address, control)
        line = [program, "-o", "ControlMaster=yes", *options, "-N", "--", self.address.host]
        self._master = _start(line, subprocess.DEVNULL, subprocess.PIPE)
        # Read to the end of the connection: a hostile device may make ssh print for hours.
        errors = deque[str](maxlen=_KEPT_LINES)
        reader = threading.Thread(target=_read_stderr, args=(self._master.stderr, errors, None, ""), daemon=True)
        reader.start()
        deadline = min(self._deadline, time.monotonic() + _LOGIN_S)
        while not os.path.exists(control):  # noqa: PTH110 - a socket, which ssh creates after the login
            late = time.monotonic() > deadline
            if self._master.poll() is not None or self._stopped or late:
                _end(self._master)
                reader.join(_GRACE_S)
                said = [*errors, f"it did not finish the login within {_LOGIN_S:g} seconds"] if late else errors
                raise explain(self.address, self._master.returncode, "\n".join(said))
            time.sleep(_POLL_S)
        self._control = control

    def _communicate(
        self,
        line: Sequence[str],
        stdin: str,
        during: str,
        log: Log | None = None,
        marker: str = "",
        minutes: float | None = None,
        after_stop: bool = False,
    ) -> tuple[int, str, str]:
        """Run a command to its end; return exit code, standard output, and the last lines of standard error."""
        deadline, limit = self._deadline, self._minutes
        if minutes is not None and (after_stop or time.monotonic() + 60 * minutes < deadline):
            deadline, limit = time.monotonic() + 60 * minutes, minutes
        interrupted = TargetUnreachableError(f"{self.address.name}: interrupted")
        with self._lock:
            if self._stopped and not after_stop:
                raise interrupted
            process = self._running = _start(line, subprocess.PIPE, subprocess.PIPE)
        output, errors = bytearray(), deque[str](maxlen=_KEPT_LINES)
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        readers = [
            threading.Thread(target=_read_stdout, args=(process.stdout, output), daemon=True),
            threading.Thread(target=_read_stderr, args=(process.stderr, errors, log, marker), daemon=True),
        ]
        for reader in readers:
            reader.start()
        ended = False
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(stdin.encode())
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
        if self._stopped and not after_stop:
            raise interrupted
        return process.returncode, output.decode("utf-8", "replace"), "".join(f"{line}\n" for line in errors)


def _start(line: Sequence[str], streams: int, errors: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(line),
        stdin=streams,
        stdout=streams,
        stderr=errors,
        start_new_session=True,  # Ctrl-C reaches it through `stop`, after which the device is cleaned up
        preexec_fn=die_with_parent(signal.SIGTERM),
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its ProxyCommand."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def _read_stdout(source: IO[bytes], output: bytearray) -> None:
    with source:
        for data in iter(lambda: source.read(65536), b""):
            if len(output) <= MAX_OUTPUT_BYTES:  # the rest is dropped, but read so that the command can end
                output.extend(data)


def _read_stderr(source: IO[bytes], kept: deque[str], log: Log | None, marker: str) -> None:
    """Keep the last lines, and log those after the marker, up to the limit."""
    marked, left = False, MAX_LOG_BYTES
    with source:
        for data in iter(lambda: source.readline(MAX_LINE_BYTES), b""):
            # A carriage return inside a line must not start a new one, which would lack the target's name.
            line = " ".join(data.decode("utf-8", "replace").splitlines())
            if marker and line.endswith(marker):
                marked = True
                kept.clear()
                continue
            kept.append(line)
            if marked and log is not None and left > 0:  # the rest is dropped, but read so that the command can end
                log(line)
                left -= max(len(data), _MIN_LINE_BYTES)
                if left <= 0:
                    log("it prints too many lines; the rest is not shown")


# Messages of OpenSSH's client, which are always English -> cause and fix. A device may print them too, to any length,
# so that no pattern may read a line more than once.
_REASONS: Final = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key differs from the known one",
     "find out why; if the device was reinstalled: ssh-keygen -R {known}, then `{ssh_command} true` once by hand"),
    (r"Host key verification failed|No \S+ host key is known", "its host key is not known to this machine",
     "compare the fingerprint once, by hand: {ssh_command} true"),
    (r"Permission denied|Too many authentication failures|No more authentication methods",
     "it accepts none of this machine's keys",
     "try `ssh-add -l`, name a key with --identity, or: ssh-copy-id {copy_id}"),
    (r"Could not resolve hostname|Name or service not known", "its name cannot be resolved",
     "check the name, or write HostName for it into ~/.ssh/config"),
    (r"Connection refused", "nothing listens on the port",
     "check the port, and whether sshd runs on the device: systemctl status ssh"),
    (r"[Tt]imed out|No route to host|Network is unreachable|Host is down", "it does not answer",
     "check that the device is on and in this network: {ssh_command} true"),
    (r"Timeout, server \S+ not responding", "it stopped answering", "check the device and its network"),
    (r"Bad configuration option|Bad owner or permissions|unsupported option|keyword \S+ \S+ argument",
     "ssh refuses its options", "correct ~/.ssh/config or the options given with -o"),
    (r"Connection (closed|reset)|kex_exchange_identification|Broken pipe", "it closed the connection",
     "read the log of sshd there: journalctl -u ssh"),
)  # fmt: skip
# Messages of sftp if the device accepts no files -> cause and fix.
_NO_SFTP: Final = (
    (r"Received message too long", "a login file (.bashrc) prints, and sftp reads that as an answer",
     "print nothing there in sessions without a terminal: {ssh_command} true"),
    (r"subsystem request failed", "its sshd has no sftp server",
     "install it (Debian, Ubuntu: openssh-sftp-server), and check `Subsystem sftp` in sshd_config"),
)  # fmt: skip


def explain(address: Address, returncode: int | None, stderr: str, during: str = "") -> TargetUnreachableError:
    """The error of an ssh process that failed.

    Args:
        during: the step; empty before the login.
    """
    words = {
        "ssh_command": address.ssh_command,
        "known": f"'[{address.host}]:{address.port}'" if address.port else address.host,
        "copy_id": f"{'' if address.port is None else f'-p {address.port} '}{address.login(address.host)}",
    }
    what = f"the connection to {address.name} broke while {during}" if during else f"{address.name} cannot be reached"
    lines = [line.strip(" @\t\r") for line in stderr.splitlines()]
    for pattern, why, fix in _REASONS:
        matching = [line for line in lines if re.search(pattern, line)]
        if matching:
            return TargetUnreachableError(what, why=f"{why}: {matching[-1]}", fix=fix.format(**words))
    return TargetUnreachableError(
        what,
        why=(lines or [""])[-1] or f"ssh ended with exit code {returncode} and printed no reason",
        fix="run the command again" if during else f"see details: {address.ssh_command} -v true",
    )
