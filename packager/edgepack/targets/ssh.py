"""A device reached by this machine's own OpenSSH client: its configuration, agent and known hosts hold.

Nothing is ever asked (BatchMode): what needs a password, or a yes to a host key, is an error that says what to type.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import queue
import re
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, cast

from edgepack.errors import EnvironmentUnfitError, StageFailedError, TargetUnreachableError, UsageError
from edgepack.targets.address import Address
from edgepack.targets.sent import NO_PYTHON, program, shell_line
from edgepack.wording import counted

MAX_LINE_BYTES: Final = 8 * 2**20  # a receipt as one JSON text, escaped twice
MAX_ANSWERS: Final = 100_000  # of one connection: a gate tells some hundred lines
MAX_HEARD_BYTES: Final = 4 * MAX_LINE_BYTES  # of one connection: answers wait in memory until somebody takes them
_MOST_NOISE: Final = 64 * 2**10  # what login files there may print before the program speaks
_SAID_BYTES: Final = 16 * 2**10
_LAST_CHARACTERS: Final = 500
# The Python there met something else than the program, whose beginning is gone.
_SWALLOWED: Final = re.compile(r"^(ValueError: invalid literal for int\(\)|zlib\.error: )", re.MULTILINE)
_NEVER_SPOKE: Final = "no program of ours spoke there; what runs at login (.bashrc) may wait for something"
_GRACE_S: Final = 10.0
# The device sees no end of a network that is gone, and would hold its lock for hours: it is told that we are there.
ALIVE_EVERY_S: Final = 10.0
SILENT_S: Final = 120.0
# It says so too. Longer than it can be busy with nothing but one file, and shorter than anybody waits for nothing.
HEARD_WITHIN_S: Final = 300.0
WATCH_EVERY_S: Final = 1.0
END_OF_INPUT_S: Final = 10.0  # in which what reads at login ends when there is no more
# First: nothing is asked, no port or agent of ours is forwarded, and no command of a configuration replaces ours.
_ALWAYS: Final = (
    "-T", "-a", "-x",
    "-o", "BatchMode=yes", "-o", "RemoteCommand=none", "-o", "ClearAllForwardings=yes", "-o", "PermitLocalCommand=no",
    "-o", "LogLevel=INFO",
)  # fmt: skip
# Last, so that what the user gives comes before: a link that is dead ends within a minute. One that is shared already
# (ControlPath in a configuration file) is used: it may be the only way in. None is started, which would outlive us.
_UNLESS_GIVEN: Final = (
    "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3",
    "-o", "ControlMaster=no",
)  # fmt: skip
_OPTION: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*\s*[= ]\s*\S.*")


class LostError(Exception):
    """The link ended before an answer came."""


@dataclass(frozen=True)
class Client:
    """How devices are reached: options as for `ssh -o`, a key, and the names of Pythons to try there first."""

    options: tuple[str, ...] = ()
    identity: Path | None = None

    def line(self, address: Address, command: str) -> list[str]:
        """The command line that runs `command` there.

        Raises:
            EnvironmentUnfitError: there is no ssh.
            UsageError: an option is none.
        """
        ssh = shutil.which("ssh")
        if ssh is None:
            raise EnvironmentUnfitError(
                "there is no ssh to reach a device with",
                fix="install OpenSSH's client (Debian, Ubuntu: openssh-client; Fedora, RHEL: openssh-clients)",
            )
        for option in self.options:
            if not _OPTION.fullmatch(option):
                raise UsageError(f"{option!r} is no option of ssh", fix="write NAME=VALUE, as: -o ConnectTimeout=60")
        given = [word for option in self.options for word in ("-o", option)]
        identity = [] if self.identity is None else ["-i", str(self.identity)]
        port = [] if address.port is None else ["-p", str(address.port)]
        user = [] if address.user is None else ["-l", address.user]
        return [ssh, *_ALWAYS, *given, *_UNLESS_GIVEN, *identity, *port, *user, "--", address.host, command]


@dataclass(frozen=True)
class Limit:
    """When a link is ended, whatever goes on there: on the monotonic clock, so many minutes after it began."""

    until: float
    minutes: float

    @classmethod
    def of(cls, minutes: float) -> Limit:
        """One that begins now."""
        return cls(time.monotonic() + 60 * minutes, minutes)


class Link:
    """A connection with the program of `remote.py` at its other end. Use it in a `with` block.

    It is ended where nothing is heard for `HEARD_WITHIN_S`, and at the end of a `limit`.

    Raises:
        As `Client.line`, when it is made.
    """

    def __init__(self, client: Client, address: Address, pythons: Sequence[str], limit: Limit | None = None) -> None:
        self.address = address
        self._limit = limit
        self._heard_at = time.monotonic()
        self.given_up = ""  # why, where it was ended from here
        line = client.line(address, shell_line(pythons))
        self._nonce = f"edgepack-{secrets.token_hex(16)}"
        self._process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # a Ctrl-C is ours to hand on, by `stop`
        )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._said = bytearray()
        self._printed = bytearray()  # before the program there spoke
        self.sent_bytes = 0
        self.greeted = False
        # Without a buffer they are raw.
        stdout, stderr = cast("io.RawIOBase", self._process.stdout), cast("io.RawIOBase", self._process.stderr)
        self._readers = [
            threading.Thread(target=self._read, args=(stdout,), daemon=True),
            threading.Thread(target=self._listen, args=(stderr,), daemon=True),
        ]
        self._sending = threading.Lock()
        self._ended = threading.Event()
        self._readers.append(threading.Thread(target=self._say_alive, daemon=True))
        self._readers.append(threading.Thread(target=self._watch, daemon=True))
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Link:
        with contextlib.suppress(LostError):  # `receive` finds out why
            self._write(program(self._nonce, SILENT_S))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it: the other end sees the end of its input, and ends what runs there."""
        self._ended.set()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        self.stop()

    def stop(self) -> None:
        """End it at once, from another thread too."""
        self._ended.set()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        for reader in self._readers:
            if reader is not threading.current_thread():
                reader.join(_GRACE_S)

    def send(self, request: Mapping[str, Any], payload: Iterable[bytes] = ()) -> None:
        """Send a request, and the bytes that it announces.

        Raises:
            LostError: the link has ended.
        """
        with self._sending:
            self._write(json.dumps(request).encode("ascii") + b"\n")
            for data in payload:
                self._write(data)

    def receive(self, *, wait: bool = True) -> dict[str, Any] | None:
        """The next answer; None where there is none yet and it is not to be waited for.

        Raises:
            LostError: the link has ended.
        """
        try:
            answer = self._answers.get(block=wait)
        except queue.Empty:
            return None
        if answer is None:
            self._answers.put(None)  # for whoever asks again
            raise LostError(self.said)
        return answer

    @property
    def said(self) -> str:
        """The end of what ssh, and login files there, said on standard error."""
        return self._said.decode("utf-8", "replace").strip()

    def why_lost(self, doing: str) -> TargetUnreachableError | StageFailedError | EnvironmentUnfitError:
        """The error for a link that has ended while `doing` something."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        self.stop()
        doing = doing if self.greeted else ""
        if self.given_up:
            last = self.said.splitlines()[-1].strip() if self.said else ""
            return TargetUnreachableError(
                f"{self.address.name} {self.given_up}" + (f" while {doing}" if doing else ""),
                why=last if self.greeted else "; ".join(filter(None, (_NEVER_SPOKE, last))),
                fix=f"look whether it hangs: {self.address.typed} uptime"
                + ("; or give it more time with --timeout" if self.given_up.startswith("took") else ""),
            )
        return explain(self.address, self._process.returncode, self.said, doing, bytes(self._printed))

    def _watch(self) -> None:
        """End it where the other end is silent for too long, or all of it lasts too long."""
        while not self._ended.wait(WATCH_EVERY_S):
            now = time.monotonic()
            if now - self._heard_at > HEARD_WITHIN_S:
                if not self.greeted and self._ends_with_its_input():
                    return  # the readers see its end, and `why_lost` what it said
                self.given_up = f"said nothing for {counted(HEARD_WITHIN_S / 60, 'minute')}"
            elif self._limit is not None and now > self._limit.until:
                self.given_up = f"took more than {counted(self._limit.minutes, 'minute')}"
            else:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # with a ProxyCommand, which may hang as well
            self._answers.put(None)
            return

    def _ends_with_its_input(self) -> bool:
        """Whether what hangs there, before our program speaks, ends when nothing more can come: login files that read
        have taken the program for themselves, and a Python that gets none of it says so.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_OF_INPUT_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _say_alive(self) -> None:
        """Send an empty line now and then, but not into what is being sent."""
        with contextlib.suppress(LostError):
            while not self._ended.wait(ALIVE_EVERY_S):
                if self.greeted and self._sending.acquire(blocking=False):
                    try:
                        self._write(b"\n")
                    finally:
                        self._sending.release()

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                count = self._process.stdin.write(view) or 0
                self.sent_bytes += count
                view = view[count:]
        except (OSError, ValueError) as error:  # closed: by ssh, or by us
            raise LostError(str(error)) from error

    def _read(self, stdout: io.RawIOBase) -> None:
        """Hand on answers as they come. Whatever comes before the program speaks is left out."""
        answers = heard = 0
        with stdout, io.BufferedReader(stdout) as lines:
            for line in iter(lambda: lines.readline(MAX_LINE_BYTES), b""):
                self._heard_at = time.monotonic()
                if not self.greeted:
                    self._printed += line
                    self.greeted = line.strip() == self._nonce.encode("ascii")
                    if len(self._printed) > _MOST_NOISE:
                        break
                    continue
                answers, heard = answers + 1, heard + len(line)
                if answers > MAX_ANSWERS or heard > MAX_HEARD_BYTES or (answer := _parsed(line)) is None:
                    break
                self._answers.put(answer)
        self._answers.put(None)

    def _listen(self, stderr: io.RawIOBase) -> None:
        with stderr:
            for data in iter(lambda: stderr.read(4096), b""):
                self._said.extend(data or b"")
                del self._said[:-_SAID_BYTES]


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The answer in `line`; None where it is none."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


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


def explain(
    address: Address, returncode: int | None, said: str, doing: str, printed: bytes = b""
) -> TargetUnreachableError | StageFailedError | EnvironmentUnfitError:
    """The error for an ssh that ended with `returncode` and `said` something on standard error.

    Args:
        doing: what was going on; empty where the program there never spoke.
        printed: what came on standard output in its place.
    """
    words = {
        "typed": address.typed,
        "known": f"'[{address.host}]:{address.port}'" if address.port else address.host,
        "copied": f"{'' if address.port is None else f'-p {address.port} '}{address.login(address.host)}",
    }
    what = f"the link to {address.name} broke while {doing}" if doing else f"{address.name} cannot be reached"
    last = (said.splitlines() or [""])[-1].strip()
    if NO_PYTHON in said:
        return TargetUnreachableError(
            f"{address.name} has no Python that a bundle could run on",
            why=said[said.index(NO_PYTHON) :].removeprefix("edgepack: ").splitlines()[0],
            fix="install python3 there, or name one with --remote-python",
        )
    # ssh ends with 255 too where nobody reads what login files print any more.
    flooded = not doing and len(printed) > _MOST_NOISE
    if not flooded and (returncode == 255 or (returncode is not None and returncode < 0) or doing):
        for pattern, why, fix in _REASONS:
            if re.search(pattern, said):
                return TargetUnreachableError(what, why=f"{why}: {_telling(said, pattern)}", fix=fix.format(**words))
        why = last or f"ssh ended with exit code {returncode} and said nothing"
        again = (
            "give the same command again: it goes on where it was" if doing else f"see more: {address.typed} -v true"
        )
        return TargetUnreachableError(what, why=why, fix=again)
    return TargetUnreachableError(
        f"{address.name} runs no program for this user",
        why=_why_no_program(said, printed) or f"its login shell ended with exit code {returncode}",
        fix="look what its shell does at login where nobody types; it is to print little, and to read nothing: "
        f"{address.typed} true",
    )


def _why_no_program(said: str, printed: bytes) -> str:
    """What went wrong at login, by what was `printed` there and `said` on standard error."""
    if len(printed) > _MOST_NOISE:
        return f"what runs at login printed more than {_MOST_NOISE // 1024} KiB before it"
    if _SWALLOWED.search(said):
        return "what runs at login read from what was sent to it"
    texts = (printed.decode("utf-8", "replace"), said)
    lasts = [(text.strip().splitlines() or [""])[-1].strip()[:_LAST_CHARACTERS] for text in texts]
    return "; ".join(dict.fromkeys(filter(None, lasts)))


def _telling(said: str, pattern: str) -> str:
    """The line of `said` that `pattern` is about, without ssh's frames."""
    lines = [line.strip(" @\t") for line in said.splitlines() if re.search(pattern, line)]
    return lines[-1] if lines else said
