"""The shell program at the beginning of a bundle, in each shell of this machine. The interpreter is a shell script."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgepack.bundle import bundled_interpreters
from edgepack.bundle.archive import first_offsets, write_bundle
from edgepack.bundle.stub import stub
from edgepack_runtime.bundle import interpreter as carried
from edgepack_runtime.bundle.archive import STUB_BYTES
from edgepack_runtime.bundle.manifest import MACHINES, FileEntry, Interpreter

TOOLS = ("tail", "head", "gzip", "tar", "mktemp", "rm", "ls", "id", "mkfifo")
BUSYBOX = ["busybox"] if shutil.which("busybox") else []
SHELLS = [shell for shell in ("sh", "dash", "bash") if shutil.which(shell)]
# It says for which machine it is, and how it was started.
PYTHON = '#!/bin/sh\n[ "$3" = -c ] && exit 0\necho "%s, $(umask)"\nprintf "<%%s>" "$@"\nexit 7\n'


def archives(folder: Path, python: str) -> dict[Interpreter, bytes]:
    made = {}
    for machine in MACHINES:
        prefix = carried.folder(machine)
        files = {"bin/python3": (python % machine).encode(), "lib/big": os.urandom(9000)}
        entries = []
        for name, content in files.items():
            (file := folder / name.replace("/", "-")).write_bytes(content)
            entries.append((FileEntry(prefix + name, len(content), "0" * 64), file))
        raw = bundled_interpreters.pack(entries, prefix)
        made[Interpreter(machine, "3.11.2", len(raw), hashlib.sha256(raw).hexdigest())] = raw
    return made


class Device:
    """A folder with a bundle for both machines, and the programs that are on its PATH."""

    def __init__(self, folder: Path, python: str = PYTHON) -> None:
        self.bin, self.tmp, self.bundle = folder / "bin", folder / "tmp", folder / "my hotel.edgepack"
        self.bin.mkdir()
        self.tmp.mkdir()
        for tool in TOOLS:
            self.program(tool, f'exec {shutil.which(tool)} "$@"')  # a file: whoever replaces it replaces no program
        self.archives = archives(folder, python)
        first = stub("hotel", "hotel 1.2.0", {one.machine: one for one in self.archives})
        members: dict[str, Path | bytes] = {one.member: raw for one, raw in self.archives.items()}
        write_bundle({**members, "__main__.py": b"raise SystemExit\n"}, self.bundle, first)
        self.program("uname", "echo aarch64")

    def program(self, name: str, lines: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{lines}\n")
        (self.bin / name).chmod(0o755)

    def run(self, *arguments: str, shell: str = "sh", **variables: str) -> subprocess.CompletedProcess[str]:
        start = [shell, *(["sh"] if shell == "busybox" else [])]
        environment = {"PATH": str(self.bin), "TMPDIR": str(self.tmp), **variables}
        with self.bundle.open("rb") as piped:
            return subprocess.run(
                [*start, *arguments], executable=shutil.which(shell), cwd=self.bundle.parent, env=environment,
                stdin=piped, capture_output=True, text=True, check=False,
            )  # fmt: skip


def left(folder: Path, expected: int = 0) -> list[Path]:
    """What stays there: a process of the stub removes what was unpacked, after its shell has ended."""
    for _ in range(100):
        if len(found := [*folder.iterdir()]) == expected:
            break
        time.sleep(0.05)
    return found


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


def test_each_archive_is_where_the_head_cuts_it_out(device: Device) -> None:
    raw = device.bundle.read_bytes()
    offsets = first_offsets({one.member: one.size for one in device.archives})
    for one, packed in device.archives.items():
        start = offsets[one.member]
        assert raw[start : start + one.size] == packed
        assert f"offset={start + 1} size={one.size} ;;".encode() in raw[:STUB_BYTES]
    assert raw[STUB_BYTES : STUB_BYTES + 4] == b"PK\3\4"
    assert len(stub("n" * 64, "t" * 200, {one.machine: one for one in device.archives})) == STUB_BYTES


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("named", "machine"), [("aarch64", "aarch64"), ("arm64", "aarch64"), ("amd64", "x86_64")])
def test_the_interpreter_of_the_machine_is_started_on_the_file(
    device: Device, shell: str, named: str, machine: str
) -> None:
    device.program("uname", f"echo {named}")
    before = os.umask(0o027)
    try:
        done = device.run(device.bundle.name, "predict", "a b", "", "*", shell=shell)
    finally:
        os.umask(before)
    options = "<-I><-S><-B><-X><utf8>"
    assert done.stdout == f"{machine}, 0027\n{options}<{device.bundle.name}><predict><a b><><*>"
    assert (done.returncode, done.stderr) == (7, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_whose_name_looks_like_an_option(device: Device, shell: str) -> None:
    shutil.copy(device.bundle, device.bundle.parent / "-v.edgepack")
    done = device.run("--", "-v.edgepack", "verify", shell=shell)
    assert "<./-v.edgepack><verify>" in done.stdout, done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_the_name_of_the_file_does_nothing_to_a_terminal(device: Device, shell: str) -> None:
    """Some shells print an escape for `\\033` too."""
    odd = device.bundle = device.bundle.rename(device.bundle.with_name("x\n::error::forged \x1b[8m \\033[8m.edgepack"))
    (device.bin / "gzip").unlink()
    said = device.run(odd.name, "verify", shell=shell).stderr
    device.program("uname", "echo riscv64")
    said += device.run(odd.name, "verify", shell=shell).stderr
    odd.write_bytes(odd.read_bytes()[:-1])
    said += device.run(odd.name, "verify", shell=shell).stderr
    assert said.count("error: ") == 3
    assert "forged" not in said and "\x1b" not in said


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("python", [False, True])
def test_a_machine_that_nothing_is_carried_for_uses_its_own_python(device: Device, shell: str, python: bool) -> None:
    device.program("uname", "echo riscv64")
    if python:
        device.program("python3", '[ "$3" = -c ] || printf "<%s>" "$@"')
    done = device.run(device.bundle.name, "verify", shell=shell)
    if python:
        assert (done.returncode, done.stdout) == (0, f"<-I><-S><{device.bundle.name}><verify>")
    else:
        assert done.returncode == 4
        assert "carries one for aarch64 and one for x86_64, this is riscv64, and there is no python3" in done.stderr
        assert "install Python 3.8 or newer, or build the file for riscv64" in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_tools_that_the_system_lacks_are_named(device: Device, shell: str) -> None:
    for tool in ("gzip", "mktemp"):
        (device.bin / tool).unlink()
    done = device.run(device.bundle.name, "verify", shell=shell)
    assert (done.returncode, done.stdout) == (4, "")
    assert "error: this system lacks gzip mktemp\n" in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_a_pipe_is_no_file_to_unpack(device: Device, shell: str) -> None:
    done = device.run("-s", "verify", shell=shell)
    assert done.returncode == 2
    assert "this program cannot be read" in done.stderr


def damaged(device: Device) -> Iterator[None]:
    """The bundle, cut and changed within the archive that comes last."""
    raw = device.bundle.read_bytes()
    at = raw.index(b"__main__.py") - 4000
    for content in (raw[:at], raw[:at] + b"damage" + raw[at + 6 :]):
        device.bundle.write_bytes(content)
        yield


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_that_was_cut_or_changed_is_damaged(device: Device, shell: str) -> None:
    device.program("uname", "echo x86_64")
    for _ in damaged(device):
        done = device.run(device.bundle.name, "verify", shell=shell)
        assert (done.returncode, done.stdout) == (8, "")
        assert "is damaged" in done.stderr and "copy it again" in done.stderr


@pytest.mark.parametrize("shell", [*SHELLS, *BUSYBOX])
def test_a_file_that_ends_in_its_head_is_no_success(device: Device, shell: str) -> None:
    raw = device.bundle.read_bytes()[:STUB_BYTES].rstrip()
    begin = raw.index(b"{\n") + 2
    for end in [*range(begin, len(raw), 97), len(raw) - 1]:  # before the brace there are comments alone
        device.bundle.write_bytes(raw[:end])
        done = device.run(device.bundle.name, "install", shell=shell)
        assert (done.returncode == 0, done.stdout) == (False, ""), raw[:end][-80:]


@pytest.mark.skipif(shutil.which("busybox") is None, reason="there is no busybox")
@pytest.mark.skipif(
    platform.machine() != MACHINES[-1], reason="the bundle is damaged in the archive of another machine"
)
def test_busybox_alone_is_enough(device: Device) -> None:
    shutil.rmtree(device.bin)
    done = device.run(device.bundle.name, "verify", shell="busybox")
    assert (done.returncode, done.stdout.split(",")[0]) == (7, platform.machine()), done.stderr
    for _ in damaged(device):
        assert device.run(device.bundle.name, "verify", shell="busybox").returncode == 8


@pytest.mark.parametrize("shell", SHELLS)
def test_a_folder_that_cannot_be_unpacked_into_is_named(device: Device, shell: str) -> None:
    (split := device.tmp / "a:b").mkdir()
    (full := device.tmp / "file").touch()
    for folder, why in ((split, "the loader would split this name"), (full, "file"), (device.tmp / "none", "none")):
        done = device.run(device.bundle.name, "verify", shell=shell, TMPDIR=str(folder))
        assert (done.returncode, done.stdout) == (4, "")
        assert why in done.stderr and "set TMPDIR" in done.stderr
    assert sorted(path.name for path in device.tmp.iterdir()) == ["a:b", "file"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_library_that_cannot_be_preloaded_stops_nothing(device: Device, shell: str) -> None:
    """The loader complains of it on the standard error of every program."""
    done = device.run(device.bundle.name, "verify", shell=shell, LD_PRELOAD="/nope.so")
    assert (done.returncode, "<verify>" in done.stdout) == (7, True)


@pytest.mark.parametrize("shell", SHELLS)
def test_options_of_the_tools_in_the_environment_change_nothing(device: Device, shell: str) -> None:
    odd = {"TAR_OPTIONS": "--strip-components=1", "GZIP": "--name", "CDPATH": str(device.tmp.parent), "TMPDIR": "tmp"}
    done = device.run(device.bundle.name, "verify", shell=shell, **odd)
    assert (done.returncode, "<verify>" in done.stdout) == (7, True)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("path", ["", ":{}", "{}:", "{0}::{0}", ".:{}", "{}:here/bin"])
def test_no_program_of_the_working_directory_is_run(device: Device, shell: str, path: str) -> None:
    for folder in (device.bundle.parent, device.bundle.parent / "here" / "bin"):
        folder.mkdir(parents=True, exist_ok=True)
        for tool in (*TOOLS, "python3"):
            (folder / tool).write_text(f"#!/bin/sh\n: >{device.tmp}/planted\nexit 1\n")
            (folder / tool).chmod(0o755)
    device.run(device.bundle.name, "verify", shell=shell, PATH=path.format(device.bin))
    assert not (device.tmp / "planted").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_variables_that_move_the_standard_library_are_not_handed_on(device: Device, shell: str) -> None:
    device.program("uname", "echo riscv64")
    device.program("python3", 'echo "$PYTHONEXECUTABLE$__PYVENV_LAUNCHER__"')
    planted = {"PYTHONEXECUTABLE": "/planted/bin/python3", "__PYVENV_LAUNCHER__": "/planted/bin/python3"}
    assert device.run(device.bundle.name, "verify", shell=shell, **planted).stdout.strip() == ""


@pytest.mark.parametrize("shell", SHELLS)
def test_a_python_that_is_too_old_is_told_so(device: Device, shell: str) -> None:
    device.program("uname", "echo riscv64")
    device.program("python3", "exit 1")
    done = device.run(device.bundle.name, "verify", shell=shell)
    assert (done.returncode, "python3 is too old" in done.stderr) == (4, True)


def test_an_interpreter_that_cannot_run_is_told_with_its_own_words(tmp_path: Path) -> None:
    done = Device(tmp_path, "#!/bin/sh\necho %s needs a newer kernel; exit 1\n").run("my hotel.edgepack", "verify")
    assert (done.returncode, done.stdout) == (4, "")
    assert "aarch64 needs a newer kernel\n" in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_a_system_without_uname_is_told_so(device: Device, shell: str) -> None:
    (device.bin / "uname").unlink()
    done = device.run(device.bundle.name, "verify", shell=shell)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: this system lacks uname\n")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("option", ["-e", "-u"])
def test_a_strict_shell_changes_nothing(device: Device, shell: str, option: str) -> None:
    done = device.run(option, device.bundle.name, "verify", shell=shell)
    assert (done.returncode, done.stderr) == (7, "")
    assert left(device.tmp) == []


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.skipif(shutil.which("flock") is None, reason="there is no flock")
def test_a_lock_that_the_caller_holds_by_a_descriptor_stays_held(tmp_path: Path, shell: str) -> None:
    """flock(1) shows it with 9. A shell's last command takes its place, and Python that of the file's shell."""
    device = Device(tmp_path, '#!/bin/sh\n[ "$3" = -c ] && exit 0\necho started %s\nread -r end\n')
    lines = f'exec 9>lock; {shutil.which("flock")} -n 9 || exit 1; exec {shutil.which(shell)} "$0" serve'
    with subprocess.Popen(
        ["sh", "-c", lines, device.bundle.name], executable=shutil.which("sh"), cwd=tmp_path, text=True,
        env={"PATH": str(device.bin), "TMPDIR": str(device.tmp)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "started aarch64\n"
        with (tmp_path / "lock").open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.communicate("end\n")


@pytest.mark.parametrize("shell", [*SHELLS, *BUSYBOX])
@pytest.mark.parametrize("below", [False, True])
def test_nothing_is_unpacked_where_another_user_can_replace_it(device: Device, shell: str, below: bool) -> None:
    inner = device.tmp / "inner"
    inner.mkdir()
    chosen = inner if below else device.tmp
    if shell in BUSYBOX:
        device.program("ls", f'exec {shutil.which(shell)} ls "$@"')
    for mode, runs in ((0o777, False), (0o1777, True), (0o775, True)):
        device.tmp.chmod(mode)
        done = device.run(device.bundle.name, "verify", shell=shell, TMPDIR=str(chosen))
        assert (done.returncode == 7) is runs, done.stderr
        assert ("others may rename what is in it" in done.stderr) is not runs
    if os.geteuid() == 0:
        os.chown(device.tmp, 65534, 65534)
        assert "others may rename" in device.run(device.bundle.name, "verify", shell=shell, TMPDIR=str(chosen)).stderr
    assert left(inner) == [] and left(device.tmp, expected=1) == [inner]


def test_a_link_does_not_hide_a_folder_of_all(device: Device) -> None:
    (link := device.tmp.parent / "link").symlink_to(device.tmp)
    device.tmp.chmod(0o777)
    assert "others may rename" in device.run(device.bundle.name, "verify", TMPDIR=str(link)).stderr
