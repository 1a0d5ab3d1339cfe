"""Small root file systems, made of Debian's packages, and commands in them without network and HOME."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from edgepack.errors import EdgepackError
from edgepack.interpreter import debian
from edgepack_runtime.util.fs import remove_tree

PORT: Final = 8123
DEBIAN: Final = (
    "bash", "coreutils", "dash", "gzip", "libacl1", "libattr1", "libc6", "libffi8", "libgmp10", "liblzma5",
    "libpcre2-8-0", "libselinux1", "libtinfo6", "tar", "zlib1g",
)  # fmt: skip
_LOCK: Final = "edgepack-gate.lock"  # stays: it is the machine's
PLANTED: Final = "lib"  # by a test


class NotRunError(Exception):
    """What this machine lacks for a row."""


class Packages:
    """Packages of Debian 12, each fetched and unpacked once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._apt: dict[str, debian.Apt] = {}

    def unpacked(self, machine: str, *names: str) -> Path:
        """The folder with the files of these packages."""
        folder = self._folder / machine / "-".join(names)[:40]
        if folder.is_dir():
            return folder
        try:
            if machine not in self._apt:
                self._apt[machine] = debian.Apt(machine, self._folder / f"apt-{machine}")
                self._apt[machine].run("update")
            for name in names:
                self._apt[machine].run("download", name)
        except (EdgepackError, OSError) as error:
            raise NotRunError(f"apt does not bring {', '.join(names)}: {error}") from error
        folder.mkdir(parents=True)
        for name in names:
            [file] = self._apt[machine].folder.glob(f"{name}_*.deb")
            debian.unpack(file, folder)
        return folder


def _heed_interrupts() -> None:
    """What runs in the background of a shell ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Root:
    """A root file system. `busybox` is this machine's, to bring up its loopback and to send requests."""

    def __init__(self, folder: Path, busybox: Path, path: str = "/bin:/usr/bin") -> None:
        self.folder, self.path = folder, path
        self._busybox = busybox
        for name in ("proc", "tmp", "opt", "small"):
            (folder / name).mkdir(exist_ok=True)

    def start(self, script: str, before: str = "") -> subprocess.Popen[str]:
        """A shell script in the root, `before` it one of this machine that sees the root as $root."""
        outside = (
            f"root={self.folder}\n{before}\nmount -t proc none $root/proc; {self._busybox} ifconfig lo up\n"
            f'exec env -i PATH={self.path} {shutil.which("chroot")} $root /bin/sh -c "$0"'
        )
        return subprocess.Popen(
            ["unshare", "-n", "-m", "sh", "-ec", outside, script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=_heed_interrupts,
        )

    def interrupt(self, process: subprocess.Popen[str]) -> str:
        """Ctrl-C in the terminal of a started script: all its processes get it. Returns what it writes to stderr.

        For some milliseconds, as Python starts, nothing heeds it: then it is pressed again, as people do.
        """
        for _ in range(15):
            os.killpg(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=2)[1]
        os.killpg(process.pid, signal.SIGKILL)
        return f"it went on; {process.communicate()[1]}"

    def run(self, script: str, before: str = "") -> subprocess.CompletedProcess[str]:
        with self.start(script, before) as process:
            out, err = process.communicate(timeout=3600)
        return subprocess.CompletedProcess(script, process.returncode, out, err)

    def post(self, server: subprocess.Popen[str], body: str) -> str:
        """What a server in the root answers to `body`; empty if it does not answer within a minute."""
        line = ["nsenter", f"--net=/proc/{server.pid}/ns/net", str(self._busybox), "wget", "-q", "-O", "-"]
        line += ["--post-data", body, f"http://127.0.0.1:{PORT}/predict"]
        end = time.monotonic() + 60
        while time.monotonic() < end and server.poll() is None:
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return done.stdout
            time.sleep(0.1)
        return ""

    def left(self) -> list[str]:
        """What lies in the folders for temporary files after some seconds. It is removed, and counts once."""
        end = time.monotonic() + 10
        while True:
            folders = [self.folder / name for name in ("tmp", "var/tmp", "dev/shm")]
            paths = [path for folder in folders if folder.is_dir() for path in folder.iterdir()]
            found = [path for path in paths if path.name not in (_LOCK, PLANTED)]
            if not found or time.monotonic() > end:
                for path in found:
                    remove_tree(path)
                return [path.name for path in found]
            time.sleep(0.05)


def busybox_root(folder: Path, packages: Packages, *, null: bool = True) -> Root:
    """A root with busybox alone."""
    own = packages.unpacked("x86_64", "busybox-static") / "bin/busybox"
    (folder / "bin").mkdir(parents=True)
    shutil.copy(own, folder / "bin/busybox")
    for name in subprocess.run([own, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            (folder / "bin" / name).symlink_to("busybox")
    if null:
        add_null(folder)
    return Root(folder, own)


def debian_root(folder: Path, packages: Packages) -> Root:
    """A root with Debian's own shells, coreutils, gzip and tar."""
    shutil.copytree(packages.unpacked("x86_64", *DEBIAN), folder, symlinks=True)
    busybox = packages.unpacked("x86_64", "busybox-static") / "bin/busybox"
    shutil.copy(busybox, folder / "bin")
    (folder / "var/tmp").mkdir(parents=True)
    add_null(folder)
    return Root(folder, busybox)


def musl_root(folder: Path, packages: Packages) -> Root:
    """As Alpine Linux is: busybox, and the C library musl for programs that want one."""
    root = busybox_root(folder, packages)
    shutil.copytree(packages.unpacked("x86_64", "musl") / "lib", folder / "lib", symlinks=True)
    return root


def add_null(folder: Path) -> None:
    (folder / "dev").mkdir(exist_ok=True)
    os.mknod(folder / "dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
