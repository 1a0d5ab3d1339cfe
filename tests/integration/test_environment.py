"""A real bundle where little is as it should be: no network, no HOME, 1970, umask 077, not root, a stick without exec.

The stick is a file system mounted `noexec`: a tmpfs, which every system has, and FAT where there are the tools to make
and mount one without the kernel's help (dosfstools and fusefat). The clock is set by a library put in front of the C
library's, since the kernel has one wall clock for all processes; what the kernel writes into inodes is of today.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.conftest import Project

from edgepack.targets.this_machine import base_python

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts and other users are for root to make"),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="there is no setpriv"),
]
TEXT = "服务很好，但是房间太小了"
NOBODY = 65534
CLOCK = """\
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now);
time_t time(time_t *now) { if (now) *now = 42; return 42; }
int gettimeofday(struct timeval *now, void *zone) { now->tv_sec = 42; now->tv_usec = 0; return 0; }
#include <sys/syscall.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec = 42;
    return failed;
}
"""


@dataclass(frozen=True)
class Field:
    """A folder that everybody may enter, with a bundle in it, and the Python that a stranger may run."""

    folder: Path
    bundle: Path
    python: Path

    def run(self, script: str, *, nobody: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a shell script, without network, in mounts of its own.

        What stands before `---` mounts, as root; what follows runs as nobody, or as root.
        """
        who = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if nobody else []
        mounting, _, rest = script.rpartition("---")
        inner = " ".join([*who, "sh", "-c", f"'{rest.strip()}'"])
        return subprocess.run(
            ["unshare", "-n", "-m", "sh", "-e", "-c", f"{mounting}\nexec {inner}"],
            env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def receipt(self, verb: str = "install") -> dict[str, object]:
        path = sorted((self.folder / "prefix" / "receipts").glob(f"*-{verb}.json"))[-1]
        found = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found


@pytest.fixture
def field(project: Project) -> Iterator[Field]:
    python = Path(base_python())
    if Path("/root") in python.parents:  # nobody may enter there
        python = Path("/usr/bin/python{}.{}".format(*sys.version_info[:2]))
        if not python.exists():
            pytest.skip(f"there is no {python} that another user may run")
    if subprocess.run(["unshare", "-n", "-m", "true"], check=False).returncode:
        pytest.skip("this system makes no namespaces")
    folder = Path(tempfile.mkdtemp(prefix="edgepack-field-", dir="/tmp"))
    folder.chmod(0o755)
    for name, owner in (("stick", 0), ("prefix", NOBODY), ("other", 0)):
        (folder / name).mkdir()
        os.chown(folder / name, owner, owner)
    bundle = folder / "tiny.edgepack"
    shutil.copy(project.bundle, bundle)
    bundle.chmod(0o644)
    yield Field(folder, bundle, python)
    if (folder / "stick").is_mount():
        subprocess.run(["fusermount", "-u", folder / "stick"], check=True)
    shutil.rmtree(folder)


def in_1970(folder: Path) -> Path:
    """The library that makes every clock of the wall say 42 seconds past the epoch."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler to make a wrong clock with")
    (folder / "clock.c").write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "clock.so", folder / "clock.c"], check=True)
    return folder / "clock.so"


TMPFS = "mount -t tmpfs -o noexec,nosuid,nodev,mode=755 none stick; cp tiny.edgepack stick/\n---"


def as_fat(field: Field) -> str:
    """The bundle on a FAT file system at `stick`, read-only; what unmounts it is the fixture's to do."""
    if None in map(shutil.which, ("mkfs.vfat", "fusefat", "fusermount")) or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("there is no mkfs.vfat, fusefat or fusermount, or no /dev/fuse")
    for command in (
        "truncate -s 128M stick.img", "mkfs.vfat stick.img",
        "fusefat -o rw+ stick.img stick", "cp tiny.edgepack stick/", "fusermount -u stick",
        "fusefat -o ro,noexec,allow_other stick.img stick",
    ):  # fmt: skip
        subprocess.run(command.split(), cwd=field.folder, check=True, capture_output=True)
    return ""


@pytest.mark.parametrize("stick", [lambda field: TMPFS, as_fat], ids=["tmpfs", "FAT"])
def test_everything_at_once(field: Field, stick: Callable[[Field], str]) -> None:
    clock = in_1970(field.folder)
    done = field.run(
        f"{stick(field)}umask 077; "
        f"exec {field.python} stick/tiny.edgepack install --wait 0 --prefix {field.folder}/prefix",
        LD_PRELOAD=str(clock),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    receipt = field.receipt()
    assert (receipt["verdict"], receipt["device_clock_unix_s"]) == ("installed", 42)
    command = field.folder / "prefix" / "bin" / "tiny"
    for nobody in (True, False):
        answer = field.run(f"---exec {command} predict {TEXT}", nobody=nobody)
        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout)["score"] >= 0.5  # of two labels
    for path in (field.folder / "prefix").rglob("*"):
        assert path.lstat().st_uid == NOBODY
        mode = path.lstat().st_mode & 0o444
        assert mode == (0o400 if path.name == ".lock" else 0o444), path  # who may read a lock may hold it
    gone = field.run(f"---exec {command} uninstall --purge", LD_PRELOAD=str(clock))
    assert gone.returncode == 0, gone.stderr
    assert list((field.folder / "prefix").iterdir()) == []  # of root's folder it is nobody's to remove it


def test_where_it_cannot_be_installed(field: Field) -> None:
    install = f"exec {field.python} tiny.edgepack install --prefix"
    tries = {
        "mounted read-only": ("mount -t tmpfs -o ro,mode=777 none other", "other"),
        "mounted noexec": ("mount -t tmpfs -o noexec,mode=777 none other", "other"),
        "may not write": ("true", "other"),
    }
    for reason, (mount, place) in tries.items():
        done = field.run(f"{mount}\n---{install} {field.folder}/{place}")
        assert (done.returncode, reason in done.stderr, "fix: " in done.stderr) == (4, True, True), done.stderr
    assert list((field.folder / "other").iterdir()) == []


def test_what_another_user_may_do_with_an_install(field: Field) -> None:
    place = field.folder / "other"
    done = field.run(f"---exec {field.python} tiny.edgepack install --wait 0 --no-tune --prefix {place}", nobody=False)
    assert done.returncode == 0, done.stderr[-4000:]
    command = place / "bin" / "tiny"
    assert field.run(f"---exec {command} status").returncode == 0
    assert field.run(f"---exec {command} predict {TEXT}").returncode == 0
    before = sorted(place.rglob("*"))
    for verb in ("rollback", "uninstall --purge", "install tiny.edgepack"):
        done = field.run(f"---exec {command} {verb}")
        assert (done.returncode, "Permission denied" in done.stderr or "may not write" in done.stderr) == (4, True)
        assert "fix: " in done.stderr
    assert sorted(place.rglob("*")) == before
