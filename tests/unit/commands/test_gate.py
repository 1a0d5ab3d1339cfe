"""`edgepack gate`: what it prints and writes, and its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from tests.unit.far import GATE, Far, brief_bundle, far, far_bundle

from edgepack.cli import main
from edgepack.commands.gate import command
from edgepack.gating.runner import TIMEOUT_MINUTES
from edgepack.util import process as signals

__all__ = ["far"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return brief_bundle(tmp_path_factory.mktemp("dist") / "hotel.edgepack", "fail")


def gate(far: Far, *arguments: str | Path) -> Result:
    words = ["gate", *map(str, arguments), "--receipts", str(far.root / "receipts")]
    return CliRunner().invoke(main, words)


def test_the_time_it_may_take_is_that_of_the_library() -> None:
    (option,) = (option for option in command.params if option.name == "timeout_minutes")
    assert option.default == TIMEOUT_MINUTES


def test_without_a_target_it_is_this_machine(bundle: Path) -> None:
    done = CliRunner().invoke(main, ["gate", str(bundle)])
    assert done.exit_code == 6
    assert done.stdout.startswith("gate of sentiment 1.2.0 for test: FAIL\n")
    assert not (bundle.parent / "receipts").exists()


def test_a_device_that_failed_and_one_that_is_not_there(far: Far, bundle: Path) -> None:
    done = gate(far, bundle, "--target", "ssh://line3", "--target", "ssh://refused")
    assert done.exit_code == 6
    assert "\nline3:\ngate of sentiment 1.2.0 for test: FAIL\n" in done.stdout
    assert "error: refused cannot be reached\n" in done.stderr
    assert "line3: measuring" in done.stderr
    quiet = gate(far, bundle, "--target", "ssh://line3", "-q")
    assert (quiet.exit_code, quiet.stderr) == (6, "")


def test_json_junit_and_markdown_are_written(far: Far, bundle: Path, tmp_path: Path) -> None:
    junit, markdown = tmp_path / "new" / "junit.xml", tmp_path / "gate.md"
    targets = ("--target", "ssh://line3", "--target", "ssh://refused")
    done = gate(far, bundle, *targets, "--json", "--junit", junit, "--markdown", markdown)
    found = json.loads(done.stdout)
    assert done.exit_code == found["exit_code"] == 6
    assert [result["verdict"] for result in found["results"]] == ["fail", "not measured"]
    assert totals(junit) == ("2", "1", "1")
    title = "## ❌ Gate: fail (0 of 2 results passed; 1 failed, 1 not measured)\n"
    assert markdown.read_text(encoding="utf-8").startswith(title)


def totals(junit: Path) -> tuple[str | None, ...]:
    root = ElementTree.parse(junit).getroot()
    return root.get("tests"), root.get("failures"), root.get("errors")


def test_the_last_line_of_a_log_sums_up_several_gates(far: Far, bundle: Path, tmp_path: Path) -> None:
    targets = [word for host in ("refused", "line3", "nologin") for word in ("--target", f"ssh://{host}")]
    total = "Gate: fail (0 of 3 results passed; 1 failed, 2 not measured)"
    for quiet in ([], ["-q"]):
        done = gate(far, bundle, *targets, *quiet, "--markdown", tmp_path / "gate.md")
        *_, table, first, second, last = [line for line in done.output.splitlines() if line and line[0] != " "]
        assert table.startswith("measured on ")
        assert first == "error: refused cannot be reached"
        assert second == "error: nologin runs no commands for this user"
        assert last == total
        assert done.output.endswith(f"\n{total}\n") and done.stdout.endswith(f"\n{total}\n")
        assert (tmp_path / "gate.md").read_text(encoding="utf-8").startswith(f"## ❌ {total}\n")
    assert gate(far, bundle, *targets, "--json").stderr.endswith(f"\n      {total}\n")


@pytest.mark.parametrize(("verdict", "code"), [("pass", 4), ("fail", 6), ("inconclusive", 7)])
def test_a_full_disk_hides_no_verdict(far: Far, tmp_path: Path, verdict: str, code: int) -> None:
    file, full = brief_bundle(tmp_path / "hotel.edgepack", verdict), Path("/dev/full")
    done = gate(far, file, "--markdown", full, "--junit", tmp_path / "gate.xml")
    assert done.exit_code == code
    told = f"gate of sentiment 1.2.0 for test: {verdict.upper()}\n"
    error = "error: /dev/full cannot be written\n  why: No space left on device\n  fix: check the folder and its disk\n"
    assert done.stdout.startswith(told) and done.stderr.endswith(error)
    assert done.output.index(told) < done.output.index(error)
    assert (tmp_path / "gate.xml").read_text(encoding="utf-8").endswith("</testsuites>\n")
    assert gate(far, file, "--junit", full, "--json").exit_code == code


@pytest.mark.parametrize(
    ("form", "verdict", "code"),
    [
        ([], "pass", 4),
        (["--json"], "fail", 6),
        (["--markdown", "-"], "fail", 6),
        pytest.param([], "fail", 6, marks=pytest.mark.sweep),
        pytest.param(["--json"], "pass", 4, marks=pytest.mark.sweep),
        pytest.param(["--markdown", "-"], "pass", 4, marks=pytest.mark.sweep),
    ],
)
def test_a_verdict_that_cannot_be_printed_is_in_the_error(
    tmp_path: Path, form: list[str], verdict: str, code: int
) -> None:
    bundle, junit = brief_bundle(tmp_path / "hotel.edgepack", verdict), tmp_path / "gate.xml"
    line = [sys.executable, "-m", "edgepack.cli", "gate", str(bundle), "-q", "--junit", str(junit), *form]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    error = f"error: the output cannot be written; its verdict: {verdict}\n  why: No space left on device\n"
    assert (done.returncode, done.stderr) == (code, error)
    assert junit.is_file()


def test_files_are_written_for_a_reader_that_has_had_enough(tmp_path: Path) -> None:
    bundle, junit = brief_bundle(tmp_path / "hotel.edgepack"), tmp_path / "gate.xml"
    line = f"'{sys.executable}' -m edgepack.cli gate '{bundle}' -q --junit '{junit}' | true"
    subprocess.run(["/bin/sh", "-c", line], check=True)
    assert junit.read_text(encoding="utf-8").endswith("</testsuites>\n")


@pytest.mark.parametrize(
    ("target", "lost"),
    [
        ("local", "2>/dev/full"),
        ("ssh://line3", "2>&1 >&3 | true"),
        pytest.param("local", "2>&1 >&3 | true", marks=pytest.mark.sweep),
        pytest.param("ssh://line3", "2>/dev/full", marks=pytest.mark.sweep),
    ],
)
def test_progress_that_cannot_be_written_hides_no_verdict(far: Far, tmp_path: Path, target: str, lost: str) -> None:
    """`true` leaves long before the first line of progress."""
    if "/dev/full" in lost and not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    bundle, junit, markdown, code = (tmp_path / name for name in ("hotel.edgepack", "gate.xml", "gate.md", "code"))
    words = [sys.executable, "-m", "edgepack.cli", "gate", brief_bundle(bundle, "fail"), "--target", target]
    words += ["--junit", junit, "--markdown", markdown]
    line = ["/bin/sh", "-c", f"exec 3>&1; {{ \"$@\"; echo $? > '{code}'; }} {lost}", "sh"]
    done = subprocess.run([*line, *words], stdout=subprocess.PIPE, text=True, check=True)
    assert code.read_text() == "6\n"
    assert done.stdout.startswith("gate of sentiment 1.2.0 for test: FAIL\n")
    assert totals(junit) == ("1", "1", "0")
    assert markdown.read_text(encoding="utf-8").startswith("## ❌ Gate: fail\n")


def test_markdown_goes_to_stdout_alone_or_to_a_pipe(far: Far, bundle: Path, tmp_path: Path) -> None:
    done = gate(far, bundle, "--target", "ssh://line3", "--markdown", "-")
    assert done.stdout.startswith("## ❌ Gate: fail\n\n### ❌ `line3`: `sentiment` `1.2.0` for `test`: fail\n")
    assert done.stdout.endswith("On cpu `Cortex-A76`.\n")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        gate(far, bundle, "--markdown", pipe)
        assert reader.communicate()[0].startswith("## ")


def test_options_go_to_ssh(far: Far, bundle: Path, tmp_path: Path) -> None:
    key = tmp_path / "id"
    key.write_text("")
    options = ("--identity", key, "-o", "ConnectTimeout=3", "--jobs", "1")
    done = gate(far, bundle, "--target", "ssh://pi@line3:22", *options)
    assert "Gate: " not in done.output  # the total of several gates
    login = next(call for call in far.calls() if "ControlMaster=auto" in call)
    assert "-o ConnectTimeout=3 -o ConnectTimeout=15 -o ServerAliveInterval=15" in login
    assert "-o Port=22 -o User=pi" in login and login.endswith(f"-i {key} -T -- line3 exec sh")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--target", "pi@line3"], 2, "'pi@line3' is not a target"),
        (["--target", "ssh://-x"], 2, "not a host name"),
        (["--json", "--markdown", "-"], 2, "both go to stdout"),
        (["--junit", "out.xml", "--markdown", "./out.xml"], 2, "are both to be written to out.xml"),
        (["--target", "ssh://a", "--target", "ssh://a", "--junit", "out.xml"], 2, "named more than once"),
        (["--jobs", "0"], 2, "--jobs"),
        (["--junit", "/proc/none/junit.xml"], 4, "/proc/none/junit.xml cannot be written"),
        (["--target", "ssh://line3", "-o", "-v"], 2, "not an ssh option"),
    ],
)
def test_arguments_that_cannot_be_are_refused_and_leave_no_file(
    far: Far, bundle: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, words: str
) -> None:
    monkeypatch.chdir(far.root)
    before = [*far.root.iterdir()]
    done = gate(far, bundle, *arguments)
    assert done.exit_code == code, done.stderr
    assert words in done.stderr
    assert [*far.root.iterdir()] == before


def test_a_bundle_is_needed_without_installed(far: Far) -> None:
    done = gate(far, "--target", "ssh://line3")
    assert done.exit_code == 2
    assert "no bundle is named" in done.stderr
    done = gate(far, "--target", "ssh://line3/opt/none", "--installed")
    assert done.exit_code == 9
    assert "nothing is installed in /opt/none" in done.stderr


@pytest.fixture
def interrupted(tmp_path: Path) -> Callable[..., int]:
    """Starts a gate that hangs with further arguments, interrupts it once it measures, and returns its exit code.

    What measured has ended then, and its temporary files are gone.
    """
    hangs, temporary = far_bundle(tmp_path / "hotel.edgepack", gate="hang"), tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}

    def run(*arguments: str | Path, number: signal.Signals = signal.SIGTERM, here: bool = False) -> int:
        line = [sys.executable, "-m", "edgepack.cli", "gate", hangs, *arguments]
        with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=heed) as process:
            assert process.stderr is not None
            measuring = next(int(line.split()[1]) for line in process.stderr if line.split()[:1] == ["process"])
            assert is_running(measuring)
            assert list(temporary.iterdir()) or not here
            process.send_signal(number)
            code = process.wait(60)
        for _ in range(1200):
            if not is_running(measuring) and not list(temporary.iterdir()):
                break
            time.sleep(0.05)
        assert not is_running(measuring)
        assert list(temporary.iterdir()) == []
        return code

    return run


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.sweep),  # as SIGTERM
        (signal.SIGINT, 130),
        (signal.SIGKILL, -9),
    ],
)
def test_a_gate_here_ends_with_the_command_that_started_it(
    interrupted: Callable[..., int], number: signal.Signals, code: int
) -> None:
    assert interrupted(number=number, here=True) == code


def test_sigterm_ends_what_runs_on_a_device_and_leaves_no_earlier_results(
    far: Far, tmp_path: Path, interrupted: Callable[..., int]
) -> None:
    files = [tmp_path / "gate.xml", tmp_path / "gate.md"]
    for file in files:
        file.write_text("passed yesterday")
    device = ("--target", "ssh://line3")
    assert interrupted(*device, "--junit", files[0], "--markdown", files[1]) == 143
    assert [file for file in files if file.exists()] == []


def test_what_is_read_is_not_written(far: Far, bundle: Path, tmp_path: Path) -> None:
    before = bundle.read_bytes()
    (link := tmp_path / "gate.md").symlink_to(bundle)
    for option in ("--junit", "--markdown"):
        done = gate(far, bundle, "--target", "ssh://line3", option, link)
        assert done.exit_code == 2
        assert f"{link} is an input and an output" in done.stderr
    assert bundle.read_bytes() == before and link.is_symlink()


def heed() -> None:
    """In a child: tests that run in the background of a shell ignore some signals, and so would what they start."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def is_running(number: int) -> bool:
    """Whether there is such a process that has not ended; one that nobody asked how it ended has."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals.noticed() as arrived:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            with pytest.raises(SystemExit, match="143"):
                signal.raise_signal(signal.SIGTERM)
        assert arrived == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is before[signal.SIGTERM]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_device_may_send_what_is_no_unicode(far: Far, tmp_path: Path) -> None:
    odd_gate = GATE.replace("as it was", "\\ud800\\x9b8m ##[error]").encode()
    odd = far_bundle(tmp_path / "odd.edgepack", more={"edgepack_runtime/gate/runner.py": odd_gate})
    files = [tmp_path / name for name in ("junit.xml", "gate.md")]
    done = gate(far, odd, "--target", "ssh://line3", "--json", "--junit", files[0], "--markdown", files[1])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["receipt"]["checks"][0]["detail"] == "\ud800\x9b8m ##[error] asked for"
    assert done.stdout.strip().isprintable() and "##[" not in done.stdout
    for file in files:
        file.read_text(encoding="utf-8")
