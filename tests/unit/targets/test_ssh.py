"""The command line of ssh, what its messages mean, and a link through a program that stands in for it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.unit.far import Far, far

from edgepack.errors import EnvironmentUnfitError, TargetUnreachableError, UsageError
from edgepack.targets import ssh
from edgepack.targets.address import Address
from edgepack.targets.sent import NO_PYTHON
from edgepack.targets.ssh import Client, Limit, Link, LostError, explain

__all__ = ["far"]
LINE3 = Address("line3", "pi", 2222)


def test_the_users_options_come_before_ours_and_after_what_must_hold(far: Far) -> None:
    line = Client(("ConnectTimeout=60", "StrictHostKeyChecking accept-new"), Path("/keys/id")).line(LINE3, "exec sh")
    assert line[0] == str(far.root / "bin" / "ssh")
    assert line[-3:] == ["--", "line3", "exec sh"]
    words = " ".join(line)
    assert words.index("BatchMode=yes") < words.index("ConnectTimeout=60") < words.index("ConnectTimeout=15")
    assert words.index("ConnectTimeout=60") < words.index("ControlMaster=no")
    assert "-o StrictHostKeyChecking accept-new" in words
    assert "-i /keys/id -p 2222 -l pi --" in words


@pytest.mark.parametrize("option", ["-v", "", "ConnectTimeout", "=5", "ConnectTimeout=", "a b=c\nd"])
def test_what_is_no_option_is_refused(far: Far, option: str) -> None:
    if option == "a b=c\nd":  # a name, a blank and a value: ssh judges it
        option = "\n" + option
    with pytest.raises(UsageError, match="no option of ssh"):
        Client((option,)).line(LINE3, "x")


def test_without_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentUnfitError, match="there is no ssh") as error:
        Client().line(LINE3, "x")
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
        (CHANGED, "another one than this machine knows", "ssh-keygen -R '[line3]:2222'"),
        (UNKNOWN + "Host key verification failed.\r\n", "does not know its host key", "ssh -p 2222 pi@line3 true"),
        ("pi@line3: Permission denied (publickey).\n", "it lets nobody in", "ssh-copy-id -p 2222 pi@line3"),
        ("Received disconnect: Too many authentication failures", "it lets nobody in", "--identity"),
        ("ssh: Could not resolve hostname line3: Name or service not known", "its name leads nowhere", "HostName"),
        ("ssh: connect to host line3 port 2222: Connection refused", "nothing listens there", "sshd runs"),
        ("ssh: connect to host line3 port 2222: Connection timed out", "it does not answer", "is on"),
        ("ssh: connect to host line3 port 2222: No route to host", "it does not answer", "is on"),
        ("Timeout, server line3 not responding.", "it stopped answering", "its network"),
        ("command-line: line 0: Bad configuration option: x", "ssh refuses its options", "~/.ssh/config"),
        ("kex_exchange_identification: Connection closed by remote host", "it closed the connection", "sshd"),
        ("what nobody foresaw", "what nobody foresaw", "ssh -p 2222 pi@line3 -v true"),
        ("", "exit code 255 and said nothing", "ssh -p 2222 pi@line3 -v true"),
    ],
)
def test_each_reason_is_told_with_what_helps(said: str, why: str, fix: str) -> None:
    error = explain(LINE3, 255, said, "")
    assert isinstance(error, TargetUnreachableError)
    assert error.what == "pi@line3:2222 cannot be reached"
    assert why in error.why
    assert "@@@" not in error.why
    assert fix in error.fix


def test_a_link_that_breaks_later_is_told_so() -> None:
    error = explain(LINE3, 255, "client_loop: send disconnect: Broken pipe", "the gate ran")
    assert error.what == "the link to pi@line3:2222 broke while the gate ran"
    error = explain(LINE3, 0, "", "the gate ran")
    assert error.fix == "give the same command again: it goes on where it was"


def test_a_device_without_a_python_or_a_shell() -> None:
    error = explain(LINE3, 127, f"motd\n{NO_PYTHON} python3.11 python3\n", "")
    assert error.why == "none of these is a Python 3.8 or newer: python3.11 python3"
    assert "--remote-python" in error.fix
    error = explain(LINE3, 1, "This account is currently not available.", "")
    assert (error.what, error.why) == (
        "pi@line3:2222 runs no program for this user",
        "This account is currently not available.",
    )
    error = explain(LINE3, 1, "Could not chdir to home directory /home/pi\n", "", b"Welcome\nuse the other host\n")
    assert error.why == "use the other host; Could not chdir to home directory /home/pi"


def test_a_link_through_a_login_that_prints(far: Far) -> None:
    with Link(Client(), Address("noisy"), [far.python]) as link:
        link.send(
            {
                "do": "installed",
                "prefix": str(far.root / "none"),
                "name": None,
                "release_id": None,
                "rows_bytes": None,
                "without_rows": False,
            }
        )
        told = link.receive()
    assert told is not None
    assert told["error"]["exit_code"] == 9
    assert "nothing is installed in" in told["error"]["what"]
    assert link.greeted


@pytest.mark.parametrize(
    ("host", "python", "what"),
    [
        ("refused", "", "refused cannot be reached"),
        ("silent", "", "silent cannot be reached"),
        ("nologin", "", "nologin runs no program for this user"),
        ("none", "/nonexistent/python3", "none has no Python that a bundle could run on"),
        ("none", "/bin/false", "none has no Python that a bundle could run on"),
    ],
)
def test_a_link_that_is_none(far: Far, host: str, python: str, what: str) -> None:
    with Link(Client(), Address(host), [python or far.python]) as link:
        with pytest.raises(LostError):
            link.receive()
        with pytest.raises(LostError):  # whoever asks again hears it again
            link.receive()
        assert link.why_lost("it was looked at").what == what


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("chatty", "printed more than 64 KiB"),
        ("welcoming", "printed more than 64 KiB"),
        ("curious", "read from what was"),
        ("greedy", "read from what was"),
    ],
)
def test_what_login_files_do_to_a_link_is_told(far: Far, monkeypatch: pytest.MonkeyPatch, host: str, why: str) -> None:
    monkeypatch.setattr(ssh, "WATCH_EVERY_S", 0.01)
    monkeypatch.setattr(ssh, "HEARD_WITHIN_S", 3.0)
    with Link(Client(), Address(host), [far.python]) as link:
        with pytest.raises(LostError):
            link.receive()
        error = link.why_lost("it was looked at")
    assert error.what == f"{host} runs no program for this user"
    assert why in error.why
    assert "where nobody types" in error.fix


def test_nothing_is_run_by_a_python_with_a_strange_name(far: Far) -> None:
    strange = f"x'; touch {far.root}/broken; '"
    with Link(Client(), Address("line3"), [strange, far.python]) as link:
        link.send(
            {
                "do": "installed",
                "prefix": "/nonexistent",
                "name": None,
                "release_id": None,
                "rows_bytes": None,
                "without_rows": False,
            }
        )
        assert link.receive() is not None
    assert not (far.root / "broken").exists()


def test_while_nothing_is_said_a_link_says_that_it_is_there(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = (
        "import sys; f = sys.stdin.buffer; f.read(int(f.readline())); print('edgepack-x', flush=True)\n"
        'for line in f: print(\'{"ok": {"heard": %d}}\' % len(line), flush=True)\n'
    )
    monkeypatch.setattr(ssh, "shell_line", lambda pythons: shlex.join([*pythons, "-c", answers]))
    monkeypatch.setattr(ssh.secrets, "token_hex", lambda count: "x")
    monkeypatch.setattr(ssh, "ALIVE_EVERY_S", 0.01)
    with Link(Client(), Address("line3"), [far.python]) as link:
        assert link.receive() == {"ok": {"heard": 1}}
        assert link.receive() == {"ok": {"heard": 1}}


GREETS = "import sys, time; f = sys.stdin.buffer; f.read(int(f.readline())); print('edgepack-x', flush=True)\n"


def stands_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Have `program` run there in place of ours, and limits that are over at once."""
    monkeypatch.setattr(ssh, "shell_line", lambda pythons: shlex.join([*pythons, "-c", program]))
    monkeypatch.setattr(ssh.secrets, "token_hex", lambda count: "x")
    monkeypatch.setattr(ssh, "WATCH_EVERY_S", 0.01)


def test_a_device_that_says_nothing_is_given_up(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch, GREETS + "print('{\"alive\": true}', flush=True)\ntime.sleep(600)\n")
    monkeypatch.setattr(ssh, "HEARD_WITHIN_S", 3.0)
    with Link(Client(), LINE3, [far.python]) as link:
        assert link.receive() == {"alive": True}
        with pytest.raises(LostError):
            link.receive()
        error = link.why_lost("the gate ran")
    assert isinstance(error, TargetUnreachableError)
    assert error.what == "pi@line3:2222 said nothing for 0.05 minutes while the gate ran"
    assert error.fix == "look whether it hangs: ssh -p 2222 pi@line3 uptime"


def test_one_that_takes_nothing_of_what_is_sent_is_given_up_too(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch, GREETS + "time.sleep(600)\n")
    monkeypatch.setattr(ssh, "HEARD_WITHIN_S", 3.0)
    with Link(Client(), LINE3, [far.python]) as link:
        with pytest.raises(LostError):
            link.send({"do": "put"}, iter(lambda: bytes(1 << 20), b""))
        assert "said nothing for 0.05 minutes" in link.why_lost("the bundle was copied").what


def test_a_device_that_never_ends_is_given_up_though_it_speaks(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch, GREETS + "while True: print('{\"alive\": true}', flush=True); time.sleep(0.05)\n")
    with Link(Client(), LINE3, [far.python], Limit.of(0.05)) as link:
        with pytest.raises(LostError):
            while link.receive():
                pass
        error = link.why_lost("the gate ran")
    assert error.what == "pi@line3:2222 took more than 0.05 minutes while the gate ran"
    assert "--timeout" in error.fix


def test_a_login_that_hangs_is_given_up(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(ssh, "HEARD_WITHIN_S", 0.3)
    monkeypatch.setattr(ssh, "END_OF_INPUT_S", 0.3)
    with Link(Client(), LINE3, [far.python]) as link:
        with pytest.raises(LostError):
            link.receive()
        error = link.why_lost("it was looked at")
    assert error.what == "pi@line3:2222 said nothing for 0.005 minutes"
    assert "what runs at login (.bashrc) may wait for something" in error.why
