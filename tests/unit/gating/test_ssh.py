"""The command line of ssh, and commands through a program that runs them here."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.unit.far import Far, far

from edgepack.errors import EnvironmentUnfitError, StageFailedError, TargetUnreachableError, UsageError
from edgepack.gating import ssh
from edgepack.gating.address import Address
from edgepack.gating.local import VerbOutput
from edgepack.gating.ssh import Client, Connection, ConnectionLostError
from edgepack.stages import bundle
from edgepack_runtime.cli import parser
from edgepack_runtime.install import prefix, trust

__all__ = ["far"]
LINE3 = Address("line3", "pi", 2222)


def run(connection: Connection, folder: Path, script: str, **more: Any) -> VerbOutput:
    """Run a script as a gate is run, with its files in `folder`."""
    return connection.run("run", str(folder), "sh", "-c", script, during="the test ran", **more)


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


@pytest.mark.parametrize(("user", "home"), [(0, "/root"), (1000, "/home/pi")])
def test_shell_help_and_readme_have_the_default_prefix(user: int, home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("HOME", home)
    default = str(prefix.default_prefix("NAME"))
    assert default.replace(home, "~") in Path(parser.__file__).read_text(encoding="utf-8")
    readme = Path(bundle.__file__).with_name("device_readme.txt").read_text(encoding="utf-8")
    assert readme.count(f"  {default.replace(home, '~').replace('NAME', '$name')} ") == 2  # in two languages
    assert f'"{default.replace(home, "$HOME").replace("NAME", "$1")}"' in ssh._SCRIPT


def test_the_script_looks_for_keys_where_an_install_does() -> None:
    assert f'for folder in {trust.MACHINE_FOLDER} "$prefix"; do' in ssh._SCRIPT
    assert f"for keys in {prefix.SIGNERS_NAME} {prefix.REVOKED_NAME}; do" in ssh._SCRIPT


@pytest.mark.parametrize("option", ["-v", "", "ConnectTimeout", "=5", "ConnectTimeout=", "\na b=c\nd"])
def test_an_invalid_option_is_refused(far: Far, option: str) -> None:
    with pytest.raises(UsageError, match="not an ssh option"):
        Client((option,)).command("ssh", LINE3)


def test_a_missing_ssh_names_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentUnfitError, match="ssh is not installed") as error:
        Client().command("ssh", LINE3)
    assert "openssh-client" in error.value.fix


def test_a_broken_connection_names_the_step_and_what_ssh_said(far: Far, tmp_path: Path) -> None:
    with Connection(Client(), LINE3, 1.0) as connection, pytest.raises(ConnectionLostError) as error:
        run(connection, tmp_path, "echo the cable is out >&2; exit 255")
    assert error.value.what == "the connection to pi@line3:2222 broke while the test ran"
    assert (error.value.exit_code, error.value.why) == (9, "the cable is out")


def test_a_device_that_cannot_be_reached(far: Far) -> None:
    with pytest.raises(ConnectionLostError) as error, Connection(Client(), Address("refused"), 1):
        pass
    assert (error.value.exit_code, error.value.why) == (9, "it is switched off")
    assert "ssh refused" in error.value.fix


def test_output_of_login_files_is_ignored(far: Far, tmp_path: Path) -> None:
    lines: list[str] = []
    with Connection(Client(), Address("noisy"), 1.0) as connection:
        answer = run(connection, tmp_path, "echo '{}'; echo first >&2; printf 'b\\rc' >&2; exit 3", log=lines.append)
    assert (answer.exit_code, answer.stdout, answer.stderr_tail) == (3, "{}\n", "first\nb c")
    assert lines == ["first", "b c"]


def test_one_login_serves_all_commands(far: Far, tmp_path: Path) -> None:
    with Connection(Client(), LINE3, 1.0) as connection:
        for _ in range(3):
            run(connection, tmp_path, "true")
        (control,) = {word for call in far.calls() for word in call.split() if word.startswith("ControlPath=")}
        folder = Path(control.partition("=")[2]).parent
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    check, *commands, end = far.calls()
    assert "-O check" in check and "ControlPath=" not in check and "-O exit" in end
    assert len(commands) == 4 and all("ControlMaster=auto -o ControlPersist=60" in command for command in commands)


def test_a_shared_connection_of_the_user_is_used_and_stays(far: Far, tmp_path: Path) -> None:
    program = far.root / "bin" / "ssh"
    program.write_text(program.read_text().replace("|| exit 255", "|| exit 0"))
    with Connection(Client(), LINE3, 1.0) as connection:
        assert run(connection, tmp_path, "echo here").stdout == "here\n"
    assert not [call for call in far.calls() if "ControlPath" in call or "-O exit" in call]


@pytest.mark.parametrize(
    ("host", "why"),
    [("nologin", "This account is currently not available."), ("greedy", "its login shell ended with exit code 0")],
)
def test_a_login_shell_that_runs_no_commands(far: Far, host: str, why: str) -> None:
    with pytest.raises(TargetUnreachableError) as error, Connection(Client(), Address(host), 1.0):
        pass
    assert (error.value.exit_code, error.value.why) == (9, why)
    assert f"ssh {host} true" in error.value.fix


@pytest.mark.parametrize("host", ["slow", "banner"])
def test_a_login_reaches_its_time_limit(far: Far, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setattr(ssh, "_LOGIN_MINUTES", 0.01)
    with pytest.raises(TargetUnreachableError) as error, Connection(Client(), Address(host), 60.0):
        pass
    assert error.value.what == f"{host} took more than 0.01 minutes while it logged in"


def test_a_hanging_command_reaches_its_time_limit(far: Far, tmp_path: Path) -> None:
    with Connection(Client(), LINE3, 60.0) as connection, pytest.raises(TargetUnreachableError) as error:
        run(connection, tmp_path, "sleep 600", minutes=0.01)
    assert "more than 0.01 minutes" in error.value.what
    assert "ssh -p 2222 pi@line3 uptime" in error.value.fix


def test_a_device_that_reads_nothing_reaches_the_time_limit(far: Far, tmp_path: Path) -> None:
    with Connection(Client(), LINE3, 60.0) as connection:
        (far.root / "bin" / "ssh").write_text("#!/bin/sh\nexec sleep 600\n", encoding="utf-8")
        with pytest.raises(TargetUnreachableError, match=r"more than 0\.01 minutes"):  # a pipe holds 64 KiB
            run(connection, tmp_path, "true " + "x" * 2**20, minutes=0.01)


def test_output_of_a_device_is_limited(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "MAX_OUTPUT_BYTES", 10_000)
    lines: list[str] = []
    with Connection(Client(), LINE3, 1.0) as connection:
        with pytest.raises(StageFailedError, match="more than 10000 bytes"):
            run(connection, tmp_path, "head -c 200000 /dev/zero")
        run(connection, tmp_path, "head -c 9000 /dev/zero | tr '\\0' x >&2", log=lines.append)
    assert [len(line) for line in lines] == [2000] * 4 + [1000]


@pytest.mark.parametrize("line", ["", "x" * 500])
def test_lines_of_a_device_are_limited(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(ssh, "MAX_LOG_BYTES", 10_000)
    logged: list[str] = []
    script = f"i=0; while [ $i -lt 5000 ]; do echo {line}; i=$((i + 1)); done >&2; echo last >&2; echo answer"
    with Connection(Client(), LINE3, 1.0) as connection:
        answer = run(connection, tmp_path, script, log=logged.append)
    assert (answer.stdout, answer.stderr_tail.splitlines()[-1]) == ("answer\n", "last")
    assert logged[:-1] == [line] * (20 if line else 100)


def test_stop_ends_the_running_command_and_allows_cleaning_up(far: Far, tmp_path: Path) -> None:
    running = threading.Event()
    with Connection(Client(), LINE3, 1.0) as connection:
        stopper = threading.Thread(target=lambda: (running.wait(60), connection.stop()))
        stopper.start()
        with pytest.raises(TargetUnreachableError, match="interrupted"):
            run(connection, tmp_path, "echo on >&2; exec sleep 600", log=lambda line: running.set())
        stopper.join()
        with pytest.raises(TargetUnreachableError, match="interrupted"):
            run(connection, tmp_path, "true")
        answer = connection.run("remove", str(tmp_path), during="the test ran", minutes=1.0, after_stop=True)
        assert answer.exit_code == 0
    assert not tmp_path.exists()


def test_sftp_copies_files_with_special_characters(far: Far, tmp_path: Path) -> None:
    file = tmp_path / 'a "b" [c]*.bin'
    file.write_bytes(b"x" * 100)
    there = far.root / 'd "e" \\f'
    there.write_bytes(b"x" * 40)
    with Connection(Client(), LINE3, 1.0) as connection:
        connection.put(file, str(there), during="the test ran")
    assert there.read_bytes() == file.read_bytes()
    assert far.sent() == [60]


def test_a_file_that_cannot_be_written_is_an_error(far: Far, tmp_path: Path) -> None:
    (file := tmp_path / "file").write_bytes(bytes(2 << 20))
    (there := tmp_path / "there").write_bytes(b"")
    with pytest.raises(EnvironmentUnfitError), Connection(Client(), Address("small"), 1.0) as connection:
        connection.put(file, str(there), during="the test ran")


def test_a_broken_copy_is_resumed(far: Far, tmp_path: Path) -> None:
    (file := tmp_path / "file").write_bytes(bytes(1000))
    (there := tmp_path / "there").write_bytes(b"")
    far.breaks_after("line3", 300)
    with Connection(Client(), Address("line3"), 1.0) as connection:
        with pytest.raises(ConnectionLostError) as error:
            connection.put(file, str(there), during="the test ran")
        connection.put(file, str(there), during="the test ran")
    assert error.value.what == "the connection to line3 broke while the test ran"
    assert far.sent() == [700]


def test_openssh_accepts_the_options(tmp_path: Path) -> None:
    for address in (LINE3, Address("fe80::1")):
        line = Client().command("ssh", address, str(tmp_path / "socket"))
        done = subprocess.run([*line, "-G", "--", address.host], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "batchmode yes" in done.stdout and "remotecommand" not in done.stdout
