"""A device reached by this machine's own OpenSSH client: its configuration, agent and known hosts hold.

Nothing is ever asked (BatchMode): a password, or a yes to an unknown host key, is an error with the command to type.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from urllib.parse import unquote

from edgepack.errors import EdgepackError, EnvironmentUnfitError, StageFailedError, TargetUnreachableError, UsageError
from edgepack.gating.local import Answer
from edgepack.util.text import counted
from edgepack_runtime.install.release_process import die_with_parent

LOCAL: Final = "local"
FORM: Final = "local | ssh://[USER@]HOST[:PORT][/PREFIX]"
MAX_OUTPUT_BYTES: Final = 4 * 2**20  # of one command's standard output
MAX_LINE_BYTES: Final = 2000
_KEPT_LINES: Final = 40  # of standard error, for the error message
_LOGIN_S: Final = 120.0  # to connect and log in; OpenSSH's own ConnectTimeout is 15 s a host
_LOOK_S: Final = 0.05
_GRACE_S: Final = 10.0  # after SIGTERM
# First: nothing is asked, no port or agent is forwarded, and no command of a configuration file replaces ours.
_ALWAYS: Final = (
    "BatchMode=yes", "RequestTTY=no", "RemoteCommand=none", "ClearAllForwardings=yes", "ForwardAgent=no",
    "ForwardX11=no", "PermitLocalCommand=no", "LogLevel=INFO",
)  # fmt: skip
# Last, so that options of the user win: a dead link ends within a minute.
_UNLESS_GIVEN: Final = ("ConnectTimeout=15", "ServerAliveInterval=15", "ServerAliveCountMax=3", "ControlMaster=no")
_OPTION: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*\s*[= ]\s*\S.*")
_URL: Final = re.compile(
    r"ssh://(?:(?P<user>[^@/]*)@)?(?P<host>\[[^]/@]*]|[^:/@\[\]]*)(?::(?P<port>[^/]*))?(?P<prefix>/.*)?", re.DOTALL
)
# What ssh, a ProxyCommand and a shell all take for a name: a leading `-` would be an option to the first.
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_IPV6: Final = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)]")
_USER: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.+-]*")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Address:
    """A device. `prefix` is the folder of an install there, absolute or below `~/`; None: the default of the bundle."""

    host: str
    user: str | None = None
    port: int | None = None
    prefix: str | None = None

    @property
    def name(self) -> str:
        """Its name in lines and files: the URL without `ssh://`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        prefix = "" if self.prefix is None else "/" * self.prefix.startswith("~") + self.prefix
        return f"{self.login(host)}{'' if self.port is None else f':{self.port}'}{prefix}"

    @property
    def url(self) -> str:
        return f"ssh://{self.name}"

    @property
    def typed(self) -> str:
        """The command that reaches it by hand: `ssh -p 2222 pi@line3`."""
        return f"ssh {'' if self.port is None else f'-p {self.port} '}{self.login(self.host)}"

    def login(self, host: str) -> str:
        """`host` with the user in front of it, if one was named."""
        return host if self.user is None else f"{self.user}@{host}"


def parse(text: str) -> Address | None:
    """The device that `text` names; None for this machine.

    Raises:
        UsageError: it is neither, or a part of it could be taken for something else.
    """
    if text == LOCAL:
        return None
    found = _URL.fullmatch(text)
    if found is None:
        near = f"ssh://{text}" if "://" not in text and not text.startswith("-") else f"one of {FORM}"
        raise UsageError(f"{text!r} is no target", why=f"a target is {FORM}", fix=f"--target {near}")
    user, host, port = found["user"], found["host"], found["port"]
    ipv6 = _IPV6.fullmatch(host)
    if not ipv6 and not _HOST.fullmatch(host):
        raise _wrong(text, f"{host!r} is no name of a host", "letters, digits, `.`, `_` and `-`, no `-` in front")
    if user is not None and not _USER.fullmatch(user):
        why = "a password never stands in an address" if ":" in user else "letters, digits, `.`, `_`, `+` and `-`"
        raise _wrong(text, f"{user.partition(':')[0]!r} is no name of a user", why)
    if port is not None and not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65_535):
        raise _wrong(text, f"{port!r} is no port", "a number from 1 to 65535")
    return Address(ipv6[1] if ipv6 else host, user, None if port is None else int(port), _prefix(text, found["prefix"]))


def _prefix(text: str, path: str | None) -> str | None:
    folder = unquote(path or "").rstrip("/")
    if not folder:
        return None
    if _CONTROL.search(folder) or ".." in folder.split("/"):
        raise _wrong(text, f"{folder!r} is no folder of an install", "an absolute path without `..`")
    return folder[1:] if folder == "/~" or folder.startswith("/~/") else folder


def _wrong(text: str, what: str, why: str) -> UsageError:
    shown = re.sub(r"(ssh://[^@/:]*):[^@/]*@", r"\1:...@", text)
    return UsageError(f"{shown}: {what}", why=why, fix=f"--target {FORM}")


@dataclass(frozen=True)
class Client:
    """How devices are reached: options as for `ssh -o`, and a key."""

    options: tuple[str, ...] = ()
    identity: Path | None = None

    def command(self, program: str, address: Address, control: str | None = None) -> list[str]:
        """`ssh` or `sftp` with all options that both take; the host is still to come.

        Args:
            control: socket of a shared connection.

        Raises:
            EnvironmentUnfitError: the program is not installed.
            UsageError: an option is none.
        """
        path = shutil.which(program)
        if path is None:
            raise EnvironmentUnfitError(
                f"there is no {program} to reach a device with",
                fix="install OpenSSH's client (Debian, Ubuntu: openssh-client; Fedora, RHEL: openssh-clients)",
            )
        for option in self.options:
            if not _OPTION.fullmatch(option):
                raise UsageError(f"{option!r} is no option of ssh", fix="write NAME=VALUE, as: -o ConnectTimeout=60")
        shared = [] if control is None else [f"ControlPath={control}"]
        where = [] if address.port is None else [f"Port={address.port}"]
        where += [] if address.user is None else [f"User={address.user}"]
        options = [*_ALWAYS, *shared, *where, *self.options, *_UNLESS_GIVEN]
        identity = [] if self.identity is None else ["-i", str(self.identity)]
        return [path, *(word for option in options for word in ("-o", option)), *identity]


class LostError(Exception):
    """The link ended before the command did; `why` is the error to report."""

    def __init__(self, why: EdgepackError) -> None:
        super().__init__(why.what)
        self.why = why


class Connection:
    """One login on a device, which all commands and copies share (ControlMaster). Use it in a `with` block.

    If the shared connection breaks, the next command connects by itself. A connection that the user shares already
    (ControlPath in a configuration file) is used as it is: it may be the only way in.

    Args:
        minutes: limit of time for everything from here on.
    """

    def __init__(self, client: Client, address: Address, minutes: float) -> None:
        self.address = address
        self._client, self._minutes = client, minutes
        self._until = time.monotonic() + 60 * minutes
        self._folder: str | None = None
        self._control: str | None = None
        self._master: subprocess.Popen[bytes] | None = None
        self._running: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._lock = threading.Lock()

    def __enter__(self) -> Connection:
        self._folder = tempfile.mkdtemp(prefix="edgepack-", dir="/tmp")  # short, for it holds a socket
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
        """End what runs, from another thread; the only thing that may still run is what clears up."""
        with self._lock:
            self._stopped = True
            if self._running is not None:
                self._running.terminate()

    def run(
        self,
        script: str,
        tell: Tell | None = None,
        *,
        doing: str,
        minutes: float | None = None,
        after_stop: bool = False,
    ) -> Answer:
        """Run a POSIX shell script on the device; lines of its standard error go to `tell`.

        The script is the standard input of `sh`, so that no login shell has to take its quotes. What login files print
        comes before a mark, and is left out.

        Args:
            doing: what goes on, for the error where the link breaks: "the gate ran".
            minutes: a limit of time for this alone.
            after_stop: it clears up, and runs after `stop` and the end of the time as well.

        Raises:
            LostError: the link broke.
            TargetUnreachableError: the device runs no program for this user, or the time is over.
            StageFailedError: the output has no end.
        """
        mark = f"edgepack-{secrets.token_hex(16)}"
        line = [*self._client.command("ssh", self.address, self._control), "-T", "--", self.address.host, "exec sh"]
        given = f"echo {mark}; echo {mark} >&2\n{script}\n"
        code, output, errors = self._finish(line, given, doing, tell, mark, minutes, after_stop)
        noise, marked, stdout = output.partition(f"{mark}\n")
        if code == 255 or code < 0:
            raise LostError(explain(self.address, code, errors, doing))
        if not marked:
            texts = [(text.strip().splitlines() or [""])[-1].strip() for text in (noise, errors)]
            raise TargetUnreachableError(
                f"{self.address.name} runs no program for this user",
                why="; ".join(dict.fromkeys(filter(None, texts))) or f"its login shell ended with exit code {code}",
                fix="look at what its shell does at login; it is to read nothing and to go on: "
                f"{self.address.typed} true",
            )
        if len(output) > MAX_OUTPUT_BYTES:
            raise StageFailedError(f"{self.address.name} printed more than {MAX_OUTPUT_BYTES} bytes while {doing}")
        return Answer(code, stdout, "\n".join(errors.splitlines()[-8:]))

    def put(self, local: Path, remote: str, *, doing: str) -> None:
        """Copy a file by sftp; a file that is there in part is completed.

        Raises:
            LostError: the link broke.
            EnvironmentUnfitError: the device cannot write it.
            TargetUnreachableError: the device takes no files, or the time is over.
        """
        assert self._folder is not None
        plain = Path(self._folder) / "file"  # sftp would take some characters of its own name for a pattern
        plain.unlink(missing_ok=True)
        plain.symlink_to(local.absolute())
        batch = f"reput {plain} {_quoted(remote)}\n"
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        line = [*self._client.command("sftp", self.address, self._control), "-q", "-b", "-", "--", host]
        code, _, errors = self._finish(line, batch, doing)
        if code == 0:
            return
        for pattern, why, fix in _NO_SFTP:
            if re.search(pattern, errors):
                raise TargetUnreachableError(
                    f"{self.address.name} takes no files", why=why, fix=fix.format(typed=self.address.typed)
                )
        if code == 1:
            raise EnvironmentUnfitError(
                f"{remote} cannot be written on {self.address.name}",
                why=(errors.strip().splitlines() or ["sftp gave no reason"])[-1].strip(),
                fix="free some space there, or name a folder with --remote-dir",
            )
        raise LostError(explain(self.address, code, errors, doing))

    def _log_in(self, control: str) -> None:
        """Start the connection that all others share, and wait until it is there."""
        program, *options = self._client.command("ssh", self.address, control)
        line = [program, "-o", "ControlMaster=yes", *options, "-N", "--", self.address.host]
        with tempfile.TemporaryFile() as errors:
            self._master = _start(line, subprocess.DEVNULL, errors)
            until = min(self._until, time.monotonic() + _LOGIN_S)
            while not os.path.exists(control):  # noqa: PTH110 - a socket, which ssh makes once it is logged in
                if self._master.poll() is not None or self._stopped or time.monotonic() > until:
                    _end(self._master)
                    errors.seek(0)
                    said = errors.read().decode("utf-8", "replace")
                    raise explain(self.address, self._master.returncode, said, "")
                time.sleep(_LOOK_S)
        self._control = control

    def _finish(
        self,
        line: Sequence[str],
        given: str,
        doing: str,
        tell: Tell | None = None,
        mark: str = "",
        minutes: float | None = None,
        after_stop: bool = False,
    ) -> tuple[int, str, str]:
        """Run a command to its end: its exit code, standard output, and the last lines of standard error."""
        own = None if minutes is None else time.monotonic() + 60 * minutes
        until = own if own is not None and (after_stop or own < self._until) else self._until
        limit = minutes if minutes is not None and until == own else self._minutes
        with self._lock:
            if self._stopped and not after_stop:
                raise TargetUnreachableError(f"{self.address.name}: interrupted")
            process = self._running = _start(line, subprocess.PIPE, subprocess.PIPE)
        output, errors = bytearray(), deque[str](maxlen=_KEPT_LINES)
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        readers = [
            threading.Thread(target=_read, args=(process.stdout, output), daemon=True),
            threading.Thread(target=_listen, args=(process.stderr, errors, tell, mark), daemon=True),
        ]
        for reader in readers:
            reader.start()
        to_the_end = False
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(given.encode())
            process.wait(max(0.0, until - time.monotonic()))
            to_the_end = not self._stopped
        except subprocess.TimeoutExpired:
            raise TargetUnreachableError(
                f"{self.address.name} took more than {counted(limit, 'minute')} while {doing}",
                fix=f"look whether it hangs: {self.address.typed} uptime; or give it more time with --timeout",
            ) from None
        finally:
            _end(process)
            for reader in readers:  # the shared connection holds the other ends; it may keep them of what was stopped
                reader.join(_GRACE_S if to_the_end else 0.0)
            with self._lock:
                self._running = None
        if self._stopped and not after_stop:
            raise TargetUnreachableError(f"{self.address.name}: interrupted")
        return process.returncode, output.decode("utf-8", "replace"), "".join(f"{line}\n" for line in errors)


def _start(line: Sequence[str], streams: int, errors: IO[bytes] | int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(line),
        stdin=streams,
        stdout=streams,
        stderr=errors,
        start_new_session=True,  # a Ctrl-C ends it by `stop`, so that what it left can be removed
        preexec_fn=die_with_parent(signal.SIGTERM),
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, with a ProxyCommand that it may have started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)


def _read(source: IO[bytes], output: bytearray) -> None:
    with source:
        for data in iter(lambda: source.read(65536), b""):
            if len(output) <= MAX_OUTPUT_BYTES:  # the rest is read, so that it can end, and not kept
                output.extend(data)


def _listen(source: IO[bytes], kept: deque[str], tell: Tell | None, mark: str) -> None:
    """Keep the last lines; hand on those behind the mark."""
    marked = False
    with source:
        for data in iter(lambda: source.readline(MAX_LINE_BYTES), b""):
            # Nothing in a line may end it: the next one would seem to come from somebody else.
            line = " ".join(data.decode("utf-8", "replace").splitlines())
            if mark and line.endswith(mark):
                marked = True
                kept.clear()
                continue
            kept.append(line)
            if marked and tell is not None:
                tell(line)


def _quoted(path: str) -> str:
    """`path` as one word of a batch of sftp."""
    return '"' + re.sub(r'(["\\])', r"\\\1", path) + '"'


# What OpenSSH's client says, in its own words (it speaks English everywhere) -> what that means, and what helps.
_REASONS: Final = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key is another one than this machine knows",
     "find out why first; if the device was set up anew: ssh-keygen -R {known}, then `{typed} true` once by hand"),
    (r"Host key verification failed|No .* host key is known", "this machine does not know its host key",
     "compare the fingerprint once, by hand: {typed} true"),
    (r"Permission denied|Too many authentication failures|No more authentication methods",
     "it lets nobody in who has this machine's keys",
     "try `ssh-add -l`, name a key with --identity, or: ssh-copy-id {copied}"),
    (r"Could not resolve hostname|Name or service not known", "its name leads nowhere",
     "check the name, or write HostName for it into ~/.ssh/config"),
    (r"Connection refused", "nothing listens there",
     "check the port, and whether sshd runs on the device: systemctl status ssh"),
    (r"[Tt]imed out|No route to host|Network is unreachable|Host is down", "it does not answer",
     "check that the device is on and in this network: {typed} true"),
    (r"Timeout, server .* not responding", "it stopped answering", "look at the device and its network"),
    (r"Bad configuration option|Bad owner or permissions|unsupported option|keyword .* argument",
     "ssh refuses its options", "correct ~/.ssh/config or what was given with -o"),
    (r"Connection (closed|reset)|kex_exchange_identification|Broken pipe", "it closed the connection",
     "look at the log of sshd there: journalctl -u ssh"),
)  # fmt: skip
# What sftp prints where the device takes no files -> why, and what helps.
_NO_SFTP: Final = (
    (r"Received message too long", "what runs at login (.bashrc) prints, and sftp takes that for an answer",
     "have it print nothing where nobody types: {typed} true"),
    (r"subsystem request failed", "its sshd has no sftp server",
     "install it (Debian, Ubuntu: openssh-sftp-server), and look for `Subsystem sftp` in sshd_config"),
)  # fmt: skip


def explain(address: Address, returncode: int | None, said: str, doing: str) -> TargetUnreachableError:
    """The error for an ssh that ended with `returncode` and left `said` on standard error.

    Args:
        doing: what went on; empty where nobody is logged in yet.
    """
    words = {
        "typed": address.typed,
        "known": f"'[{address.host}]:{address.port}'" if address.port else address.host,
        "copied": f"{'' if address.port is None else f'-p {address.port} '}{address.login(address.host)}",
    }
    what = f"the link to {address.name} broke while {doing}" if doing else f"{address.name} cannot be reached"
    for pattern, why, fix in _REASONS:
        if re.search(pattern, said):
            return TargetUnreachableError(what, why=f"{why}: {_telling(said, pattern)}", fix=fix.format(**words))
    last = (said.splitlines() or [""])[-1].strip()
    return TargetUnreachableError(
        what,
        why=last or f"ssh ended with exit code {returncode} and gave no reason",
        fix="give the same command again" if doing else f"see more: {address.typed} -v true",
    )


def _telling(said: str, pattern: str) -> str:
    """The line of `said` that `pattern` is about, without ssh's frames."""
    lines = [line.strip(" @\t") for line in said.splitlines() if re.search(pattern, line)]
    return lines[-1] if lines else said
