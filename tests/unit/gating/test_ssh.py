"""The command line of ssh, what its messages mean, and commands through a program that stands in for it."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from tests.unit.far import Far, far

from edgepack.errors import EnvironmentUnfitError, StageFailedError, TargetUnreachableError, UsageError
from edgepack.gating import ssh
from edgepack.gating.address import Address
from edgepack.gating.ssh import Client, Connection, ConnectionLostError, explain

__all__ = ["far"]
LINE3 = Address("line3", "pi", 2222)


def test_options_of_the_user_stand_between_forced_options_and_defaults(far: Far) -> None:
    client = Client(("ConnectTimeout=60", "StrictHostKeyChecking accept-new"), Path("/keys/id"))
    for program in ("ssh", "sftp"):
        line = client.command(program, LINE3, "/tmp/x/ssh")
        assert line[0] == str(far.root / "bin" / program)
        words = " ".join(line)
        assert words.index("BatchMode=yes") < words.index("ConnectTimeout=60") < words.index("ConnectTimeout=15")
        assert (
            words.index("ControlPath=/tmp/x/ssh") < words.index("ConnectTimeout=60") < words.index("ControlMaster=no")
        )
        assert "-o StrictHostKeyChecking accept-new" in words
        assert "-o Port=2222 -o User=pi" in words
        assert words.endswith("-i /keys/id")


@pytest.mark.parametrize("option", ["-v", "", "ConnectTimeout", "=5", "ConnectTimeout=", "\na b=c\nd"])
def test_an_invalid_option_is_refused(far: Far, option: str) -> None:
    with pytest.raises(UsageError, match="not an ssh option"):
        Client((option,)).command("ssh", LINE3)


def test_a_missing_ssh_names_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentUnfitError, match="ssh is not installed") as error:
        Client().command("ssh", LINE3)
    assert "openssh-client" in error.value.fix


CHANGED = """\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!
Host key verification failed.
"""
UNKNOWN = "No ED25519 host key is known for [line3]:2222 and you have requested strict checking.\r\n"


@pytest.mark.parametrize(
    ("said", "why", "fix"),
    [
        (CHANGED, "differs from the known one", "ssh-keygen -R '[line3]:2222'"),
        (UNKNOWN + "Host key verification failed.\r\n", "its host key is not known", "ssh -p 2222 pi@line3 true"),
        (
            "pi@line3: Permission denied (publickey).\n",
            "it accepts none of this machine's keys",
            "ssh-copy-id -p 2222 pi@line3",
        ),
        (
            "Received disconnect: Too many authentication failures",
            "it accepts none of this machine's keys",
            "--identity",
        ),
        ("ssh: Could not resolve hostname line3: Name or service not known", "cannot be resolved", "HostName"),
        ("ssh: connect to host line3 port 2222: Connection refused", "nothing listens on the port", "sshd runs"),
        ("ssh: connect to host line3 port 2222: Connection timed out", "it does not answer", "is on"),
        ("ssh: connect to host line3 port 2222: No route to host", "it does not answer", "is on"),
        ("Timeout, server line3 not responding.", "it stopped answering", "its network"),
        ("command-line: line 0: Bad configuration option: x", "ssh refuses its options", "~/.ssh/config"),
        ("kex_exchange_identification: Connection closed by remote host", "it closed the connection", "sshd"),
        ("what nobody foresaw", "what nobody foresaw", "ssh -p 2222 pi@line3 -v true"),
        ("", "exit code 255 and printed no reason", "ssh -p 2222 pi@line3 -v true"),
    ],
)
def test_messages_of_ssh_become_cause_and_fix(said: str, why: str, fix: str) -> None:
    error = explain(LINE3, 255, said, "")
    assert isinstance(error, TargetUnreachableError)
    assert error.what == "pi@line3:2222 cannot be reached"
    assert why in error.why
    assert "@@@" not in error.why
    assert fix in error.fix


def test_a_broken_connection_names_the_step() -> None:
    error = explain(LINE3, 255, "client_loop: send disconnect: Broken pipe", "the gate ran")
    assert error.what == "the connection to pi@line3:2222 broke while the gate ran"
    assert explain(LINE3, 255, "", "the gate ran").fix == "run the command again"


def test_output_of_login_files_is_ignored(far: Far) -> None:
    told: list[str] = []
    with Connection(Client(), Address("noisy"), 1.0) as connection:
        answer = connection.run(
            "echo '{}'; echo first >&2; printf 'b\\rc' >&2; exit 3", told.append, during="the test ran"
        )
    assert (answer.exit_code, answer.stdout, answer.stderr_tail) == (3, "{}\n", "first\nb c")
    assert told == ["first", "b c"]


def test_one_login_serves_all_commands(far: Far) -> None:
    with Connection(Client(), LINE3, 1.0) as connection:
        for _ in range(3):
            connection.run("true", during="the test ran")
        (control,) = {word for call in far.calls() for word in call.split() if word.startswith("ControlPath=")}
        folder = Path(control.partition("=")[2]).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    check, master, *commands = far.calls()
    assert "-O check" in check and "ControlMaster=yes" in master
    assert len(commands) == 3


def test_a_shared_connection_of_the_user_is_used(far: Far) -> None:
    program = far.root / "bin" / "ssh"
    program.write_text(program.read_text().replace("-O) exit 255", "-O) exit 0"))
    with Connection(Client(), LINE3, 1.0) as connection:
        assert connection.run("echo here", during="the test ran").stdout == "here\n"
    assert not [call for call in far.calls() if "ControlPath" in call or "ControlMaster=yes" in call]


@pytest.mark.parametrize("host", ["refused", "silent"])
def test_a_device_that_cannot_be_reached(far: Far, host: str) -> None:
    with (
        pytest.raises(TargetUnreachableError, match=f"{host} cannot be reached"),
        Connection(Client(), Address(host), 1),
    ):
        pass


@pytest.mark.parametrize(
    ("host", "why"),
    [("nologin", "This account is currently not available."), ("greedy", "its login shell ended with exit code 0")],
)
def test_a_login_shell_that_runs_no_commands(far: Far, host: str, why: str) -> None:
    wanted = pytest.raises(TargetUnreachableError, match=f"{host} runs no commands for this user")
    with Connection(Client(), Address(host), 1.0) as connection, wanted as error:
        connection.run("true", during="the test ran")
    assert error.value.why == why
    assert f"ssh {host} true" in error.value.fix


def test_a_hanging_command_reaches_its_time_limit(far: Far) -> None:
    with (
        Connection(Client(), Address("slow"), 60.0) as connection,
        pytest.raises(TargetUnreachableError, match=r"slow took more than 0\.01 minutes while the test ran") as error,
    ):
        connection.run("true", during="the test ran", minutes=0.01)
    assert error.value.fix.startswith("check whether it hangs: ssh slow uptime")


def test_output_of_a_device_is_limited(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "MAX_OUTPUT_BYTES", 10_000)
    told: list[str] = []
    with Connection(Client(), LINE3, 1.0) as connection:
        with pytest.raises(StageFailedError, match="printed more than 10000 bytes while the test ran"):
            connection.run("head -c 200000 /dev/zero", during="the test ran")
        connection.run("head -c 9000 /dev/zero | tr '\\0' x >&2", told.append, during="the test ran")
    assert [len(line) for line in told] == [2000] * 4 + [1000]


def test_a_banner_without_end_is_read_and_forgotten(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "_LOGIN_S", 0.5)
    with pytest.raises(TargetUnreachableError) as caught, Connection(Client(), Address("banner"), 1.0):
        pass
    assert caught.value.why == "it did not finish the login within 0.5 seconds"


def test_what_ssh_prints_after_the_login_takes_no_disk(far: Far) -> None:
    """A device may ask for forwardings without end, and ssh prints a line for each: until the connection ends."""
    with Connection(Client(), Address("chatty"), 1.0) as connection:
        assert connection._master is not None and connection._master.stderr is not None
        assert stat.S_ISFIFO(os.fstat(connection._master.stderr.fileno()).st_mode)
        assert connection.run("echo answer", during="the test ran").stdout == "answer\n"


@pytest.mark.parametrize("begin", ["No ", "Timeout, server ", "keyword "])
def test_a_line_of_any_length_is_explained_in_one_pass(begin: str) -> None:
    """With a pattern that reads a line once for each place, this took minutes: 40 lines of 2,000 bytes are kept."""
    line = (begin * 100_000)[:1_000_000]
    assert ssh.explain(LINE3, 255, line).why == line.strip()


@pytest.mark.parametrize("line", ["", "x" * 500])
def test_lines_of_a_device_are_limited(far: Far, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(ssh, "MAX_LOG_BYTES", 10_000)
    logged: list[str] = []
    script = f"i=0; while [ $i -lt 5000 ]; do echo {line}; i=$((i + 1)); done >&2; echo last >&2; echo answer"
    with Connection(Client(), LINE3, 1.0) as connection:
        answer = connection.run(script, logged.append, during="the test ran")
    assert (answer.stdout, answer.stderr_tail.splitlines()[-1]) == ("answer\n", "last")
    assert logged == [line] * (20 if line else 100) + ["it prints too many lines; the rest is not shown"]


def test_stop_ends_the_running_command_and_allows_cleaning_up(far: Far) -> None:
    running = threading.Event()
    with Connection(Client(), LINE3, 1.0) as connection:
        stopper = threading.Thread(target=lambda: (running.wait(60), connection.stop()))
        stopper.start()
        with pytest.raises(TargetUnreachableError, match="interrupted"):
            connection.run("echo on >&2; exec sleep 600", lambda line: running.set(), during="the test ran")
        stopper.join()
        with pytest.raises(TargetUnreachableError, match="interrupted"):
            connection.run("true", during="the test ran")
        assert connection.run("echo done", during="the test ran", minutes=1.0, after_stop=True).stdout == "done\n"


def test_sftp_copies_files_with_special_characters(far: Far, tmp_path: Path) -> None:
    file = tmp_path / 'a "b" [c]*.bin'
    file.write_bytes(b"x" * 100)
    there = far.root / 'd "e" \\f'
    there.write_bytes(b"x" * 40)
    with Connection(Client(), LINE3, 1.0) as connection:
        connection.put(file, str(there), during="the test ran")
    assert there.read_bytes() == file.read_bytes()
    assert far.sent() == [60]


@pytest.mark.parametrize(
    ("host", "kind", "words"),
    [
        ("noisy", TargetUnreachableError, "noisy accepts no files"),
        ("small", EnvironmentUnfitError, "cannot be written"),
    ],
)
def test_a_device_that_accepts_no_copy(far: Far, tmp_path: Path, host: str, kind: type[Exception], words: str) -> None:
    (file := tmp_path / "file").write_bytes(bytes(2 << 20))
    (there := tmp_path / "there").write_bytes(b"")
    with pytest.raises(kind, match=words), Connection(Client(), Address(host), 1.0) as connection:
        connection.put(file, str(there), during="the test ran")


def test_a_broken_copy_is_resumed(far: Far, tmp_path: Path) -> None:
    (file := tmp_path / "file").write_bytes(bytes(1000))
    (there := tmp_path / "there").write_bytes(b"")
    far.breaks_after("line3", 300)
    with Connection(Client(), Address("line3"), 1.0) as connection:
        with pytest.raises(ConnectionLostError) as error:
            connection.put(file, str(there), during="the test ran")
        connection.put(file, str(there), during="the test ran")
    assert error.value.error.what == "the connection to line3 broke while the test ran"
    assert far.sent() == [700]


def test_openssh_accepts_the_options(tmp_path: Path) -> None:
    for address in (LINE3, Address("fe80::1")):
        line = Client().command("ssh", address, str(tmp_path / "socket"))
        done = subprocess.run([*line, "-G", "--", address.host], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "batchmode yes" in done.stdout and "remotecommand" not in done.stdout
