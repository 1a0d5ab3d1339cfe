"""The table of roots: small systems on which a bundle that carries its interpreter must do all that it can do.

    python benchmarks/roots.py FILE... [--only WORD]

FILE are bundles of one name: one for each target and, for rollbacks, one of a second version. A row is a root file
system in a temporary folder, entered by `unshare` and `chroot`: without network and HOME, with programs of Debian that
apt fetches. An emulator gives no verdict on time, and installs nothing then: there, FILE are without gates on time.
Each error must be one clear sentence with its exit code. Needs root and apt on x86-64. `not run` says what this machine
lacks. Prints two tables and ends in one JSON line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from root_systems import PORT, NotRunError, Packages, Root, busybox_root, debian_root, emulator

TEXT: Final = "店里的质量非常好。"
PREFIX: Final = "/opt/here"
TIMES: Final = ("latency.p50_ms", "latency.p95_ms", "cold_start.ms")
TOOLS: Final = ("uname", "tail", "head", "gzip", "tar", "mktemp", "rm")
STEPS: Final = ("doctor", "install", "predict", "gate", "serve", "second", "rollback", "uninstall", "left")


class File(NamedTuple):
    """A bundle, and the one of a second version for the same target."""

    path: Path
    second: Path | None
    name: str
    machines: tuple[str, ...]


def read_files(paths: Sequence[Path]) -> list[File]:
    """The files of the older version, each with that of the newer."""
    versions: dict[tuple[str, ...], list[tuple[int, Path, str]]] = {}
    for path in paths:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("manifest.json"))
        machines = tuple(one["machine"] for one in manifest["interpreters"])
        versions.setdefault(machines, []).append((manifest["sequence"], path, manifest["name"]))
    files = []
    for machines, found in versions.items():
        (_, path, name), *newer = sorted(found)
        files.append(File(path, newer[0][1] if newer else None, name, machines))
    return files


def life(root: Root, how: str, file: File, expected: dict[str, Any]) -> dict[str, str]:
    """All steps in one root; `how` starts a bundle. `expected` is what the first row found."""
    for number, path in enumerate((file.path, file.second)):
        if path is not None:
            shutil.copy(path, root.folder / f"{number}.edgepack")
    found: dict[str, str] = {}
    bundle, own = f"{how} /0.edgepack", f"{PREFIX}/bin/{file.name}"

    def step(name: str, script: str, check: Callable[[str], str] = lambda out: "", codes: Sequence[int] = (0,)) -> None:
        done = root.run(script)
        wrong = check(done.stdout) if done.returncode in codes else f"exit code {done.returncode}: {error(done)}"
        if name not in found or wrong:
            found[name] = wrong or "ok"

    def same(key: str, value: Any) -> str:
        wanted = expected.setdefault(key, value)
        return "" if value == wanted else f"{key} is {value}, elsewhere {wanted}"

    def label(out: str) -> str:
        return same("label", json.loads(out)["label"])

    def gate(out: str) -> str:
        receipt = json.loads(out)
        verdicts = {check["gate"]: check["verdict"] for check in receipt["checks"]}
        passed = verdicts["accuracy.min"] == "pass" and "fail" not in verdicts.values()
        if receipt["conditions"]["emulated"]:
            passed = passed and {verdicts.get(name, "inconclusive") for name in TIMES} == {"inconclusive"}
        return same("accuracy", receipt["accuracy"]["value"]) if passed else f"verdicts {verdicts}"

    step("doctor", f"{bundle} doctor")
    step("install", f"{bundle} install --prefix {PREFIX}")
    step("predict", f"{bundle} predict {TEXT}", label)
    step("predict", f"{own} predict {TEXT}", label)
    step("gate", f"{own} gate --json", gate, (0, 7))  # 7: a latency that other programs disturbed, or an emulator
    for start in (bundle, own):
        with root.start(f"exec {start} serve --port {PORT}") as server:
            answer = root.post(server, json.dumps({"text": TEXT}))
            server.terminate()
            _, err = server.communicate(timeout=60)
        wrong = label(answer) if answer else f"no answer: {err[-300:]}"
        wrong = wrong or (f"exit code {server.returncode} after SIGTERM" if server.returncode else "")
        found["serve"] = wrong or found.get("serve", "ok")
    if file.second:
        step("second", f"{how} /1.edgepack install --prefix {PREFIX}")
        step("rollback", f"{own} rollback && {own} predict {TEXT}", lambda out: label(out.splitlines()[-1]))
    step("uninstall", f"{bundle} uninstall --purge --yes --prefix {PREFIX}")
    if (root.folder / PREFIX[1:]).exists():
        found["uninstall"] = "the prefix is still there"
    found["left"] = ", ".join(root.left()) or "ok"
    return found


def error(done: subprocess.CompletedProcess[str]) -> str:
    """The sentence of an error; what is wrong with its form comes first."""
    lines = done.stderr.strip().splitlines() or [""]
    form = [line for line in lines if not re.match("error: |  why: |  fix: ", line)]
    number = sum(line.startswith("error: ") for line in lines)
    return lines[0] if number == 1 and not form else f"NOT ONE CLEAR ERROR: {' / '.join(lines)[-400:]}"


class Case(NamedTuple):
    """A command that must end with `code`; with 0 it must do what it says."""

    name: str
    script: str
    code: int
    says: str = ""
    before: str = ""


def cases(busybox: bool, other: bool) -> Iterator[Case]:
    """Errors, and what must not be one, in a root with /0.edgepack."""
    run = "sh /0.edgepack doctor"
    noexec = "for one in tmp var/tmp; do [ -d $root/$one ] && mount -t tmpfs -o noexec none $root/$one; done"
    yield Case("/tmp is noexec, TMPDIR set", f"TMPDIR=/tmp {run}", 4, "noexec", noexec)
    yield Case("/tmp is noexec, TMPDIR unset", run, 4, "noexec", noexec)
    yield Case(
        "/tmp is noexec, /dev/shm is not", f"sh /0.edgepack predict {TEXT}", 0, "label",
        f"{noexec}; mkdir -p $root/dev/shm; mount -t tmpfs none $root/dev/shm",
    )  # fmt: skip
    yield Case("read-only root", run, 4, "Read-only", "mount --bind $root $root; mount -o remount,bind,ro $root")
    for tool in () if busybox else ("gzip", "tar"):  # the shell of busybox is all of them
        yield Case(f"no {tool}", f"PATH=/small/few; {run}", 4, f"lacks {tool}", few(tool))
    if other:
        yield Case("file of another machine, no python3", "sh /other.edgepack doctor", 4, "no interpreter")
    for size in (10, 40):
        mount = f"mount -t tmpfs -o size={size}m none $root/small"
        yield Case(f"TMPDIR has {size} MB", f"TMPDIR=/small sh /0.edgepack predict {TEXT}", 4, "space", mount)
    yield Case("cat FILE | sh", "cat /0.edgepack | sh", 2, "itself")
    for name, size in (("the interpreter", 5_000_000), ("the zip", 18_000_000)):
        yield Case(f"cut in {name}", f"head -c {size} /0.edgepack >/small/cut; sh /small/cut doctor", 8, "damaged")
    flip = "cp /0.edgepack /small/cut; printf XXXX | dd of=/small/cut bs=1 seek=4000000 conv=notrunc 2>/small/said"
    yield Case("changed bytes in the interpreter", f"{flip}; sh /small/cut predict {TEXT}", 8, "damaged")
    yield Case("TMPDIR with a colon", f"mkdir -p /small/a:b; TMPDIR=/small/a:b {run}", 4, "split")
    yield Case("TMPDIR is not there", f"TMPDIR=/nowhere {run}", 4, "nowhere")
    yield Case("no such verb", "sh /0.edgepack sing", 2, "sing")
    preload = "/lib/x86_64-linux-gnu/libselinux.so.1"
    yield Case("LD_PRELOAD", f"LD_PRELOAD={preload} {run}", 0)
    yield Case("LD_LIBRARY_PATH", f"LD_LIBRARY_PATH=/lib/x86_64-linux-gnu {run}", 0)
    yield Case("relative TMPDIR", f"cd /; TMPDIR=tmp sh 0.edgepack predict {TEXT}", 0, "label")
    yield Case("process 1 of a container", f"busybox unshare -p -f {run}", 0)
    yield Case("process 1 is a shell", f"busybox unshare -p -f sh -c '{run}; exit 0'", 0)
    yield Case("cd, sh FILE", "cd /; sh 0.edgepack doctor", 0)
    yield Case("./FILE", "cd /; ./0.edgepack doctor", 0)
    yield Case("a link", "ln -sf ../0.edgepack /small/link; cd /small; ./link doctor && sh link doctor", 0)
    yield Case("from PATH", "ln -sf ../0.edgepack /small/classify; cd /tmp; PATH=$PATH:/small; classify doctor", 0)
    yield Case("stdin, stdout, stderr closed", f"{run} <&- >&- 2>&-", 0)


def few(left_out: str) -> str:
    """Make /few of the root: links to the programs that a bundle needs, but one."""
    places = " ".join(f"/{place}/{tool}" for tool in (*TOOLS, "sh") if tool != left_out for place in ("bin", "usr/bin"))
    return f"mkdir $root/small/few; for one in {places}; do [ ! -e $root$one ] || ln -sf $one $root/small/few; done"


def judged(root: Root, case: Case) -> str:
    done = root.run(case.script, case.before)
    said = error(done) if case.code else done.stdout
    shutil.rmtree(root.folder / "small")
    (root.folder / "small").mkdir()
    left = root.left()
    fits = done.returncode == case.code and not said.startswith("NOT ") and case.says in done.stdout + done.stderr
    if fits and not left:
        return f"ok: {said}" if case.code else "ok"
    return f"exit code {done.returncode}: {said or error(done)}" + (f"; left {', '.join(left)}" if left else "")


def signals(root: Root) -> Iterator[tuple[str, str]]:
    """What is left after a signal: during the unpacking, and while a server runs."""
    for name, code in (("SIGTERM", 15), ("SIGKILL", 9)):
        for seconds in (0.03, 0.06, 0.1, 0.2, 3):
            with root.start(f"exec sh /0.edgepack serve --port {PORT}") as server:
                time.sleep(seconds)
                server.send_signal(code)
                server.communicate(timeout=60)
            left = root.left()
            yield f"{name} after {seconds} s", f"left {', '.join(left)}" if left else "ok"
    for seconds in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 3):
        with root.start(f"exec sh /0.edgepack serve --port {PORT}") as server:
            time.sleep(seconds)
            said = root.interrupt(server)
        left = root.left()
        fits = server.returncode in (130, -signal.SIGINT) and "Traceback" not in said and not left
        yield f"Ctrl-C after {seconds} s", "ok" if fits else f"exit code {server.returncode}: {said}; left {left}"


def with_musl(folder: Path, packages: Packages) -> Root:
    """As Alpine Linux is: busybox, and the C library musl for programs that want one."""
    root = busybox_root(folder, packages)
    shutil.copytree(packages.unpacked("x86_64", "musl") / "lib", folder / "lib", symlinks=True)
    return root


def with_python(version: str, folder: Path, packages: Packages) -> Root:
    """Debian, and a Python of this machine first on the PATH."""
    kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*"))
    if not kept:
        raise NotRunError(f"there is no Python {version} in ~/.pyenv/versions")
    root = debian_root(folder, packages)
    shutil.copytree(kept[-1], folder / str(kept[-1])[1:], symlinks=True)
    root.path = f"{kept[-1]}/bin:{root.path}"
    return root


def emulated(folder: Path, packages: Packages) -> Root:
    """busybox alone, for 64-bit ARM. /sys is left out: ONNX Runtime would look there for the parts of an ARM CPU."""
    root = busybox_root(folder, packages, "aarch64")
    if root.run("uname -m").stdout != "aarch64\n":
        raise NotRunError("the emulator does not start")
    return root


ROWS: Final[tuple[tuple[str, str, str, Callable[[Path, Packages], Root]], ...]] = (  # name, machine, start, maker
    ("busybox, no /dev/null", "x86_64", "sh", partial(busybox_root, null=False)),
    ("busybox", "x86_64", "sh", busybox_root),
    ("busybox and musl", "x86_64", "sh", with_musl),
    ("Debian 12, dash", "x86_64", "sh", debian_root),
    ("Debian 12, bash", "x86_64", "bash", debian_root),
    ("Debian 12, busybox ash", "x86_64", "busybox ash", debian_root),
    ("Python 3.8", "x86_64", "python3.8", partial(with_python, "3.8")),
    ("Python 3.13", "x86_64", "python3.13", partial(with_python, "3.13")),
    ("busybox, emulated", "aarch64", "sh", emulated),
)


def errors(files: Sequence[File], packages: Packages, work: Path) -> Iterator[tuple[str, str]]:
    """Each case, and what came of it."""
    file = next((file for file in files if "x86_64" in file.machines), None)
    if file is None:
        return
    other = next((file for file in files if "x86_64" not in file.machines), None)
    for name, make in (("busybox", busybox_root), ("Debian 12", debian_root)):
        root = make(work / f"errors-{name[:6]}", packages)
        shutil.copy(file.path, root.folder / "0.edgepack")
        if other:
            shutil.copy(other.path, root.folder / "other.edgepack")
        for case in cases(name == "busybox", other is not None):
            yield f"{name}: {case.name}", judged(root, case)
        for case_name, verdict in signals(root):
            yield f"{name}: {case_name}", verdict
    try:
        root = with_python("2.7", work / "errors-2.7", packages)
    except NotRunError as missing:
        yield "Python 2.7", f"not run: {missing}"
        return
    shutil.copy(file.path, root.folder / "0.edgepack")
    done = root.run("python2.7 /0.edgepack doctor")  # Python itself complains, about line 2
    said = done.stderr.strip().splitlines()[-1]
    clear = "Traceback" not in done.stderr and "Python-older-than-3.8" in said
    yield "Python 2.7", f"{'ok' if clear else 'not clear'}: {said}, exit code {done.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--only", default="", help="rows whose name has this word")
    options = parser.parse_args()
    table: dict[str, dict[str, str]] = {}
    ends: dict[str, str] = {}
    expected: dict[str, Any] = {}
    if os.geteuid() != 0:
        parser.error("only root can enter other root file systems")
    with tempfile.TemporaryDirectory(prefix="roots-") as folder, ExitStack() as stack:
        work, files = Path(folder), read_files(options.files)
        packages = Packages(work / "packages")
        print(f"| {'root':<42} | {' | '.join(STEPS)} |", flush=True)
        for file, (where, machine, how, make) in itertools.product(files, ROWS):
            name = f"{where}: {' and '.join(file.machines)}"
            if machine not in file.machines or options.only not in name:
                continue
            try:
                if make is emulated:
                    stack.enter_context(emulator(packages))
                found = life(make(work / str(len(table)), packages), how, file, expected)
            except NotRunError as missing:
                found = {"doctor": f"not run: {missing}"}
            table[name] = found
            cells = [f"{found.get(step, '-'):<{len(step)}}" for step in STEPS]
            print(f"| {name:<42} | {' | '.join(cells)} |", flush=True)
        for name, verdict in errors(files, packages, work):
            ends[name] = verdict
            print(f"| {name:<48} | {verdict} |", flush=True)
    wrong = [f"{name}: {step}" for name, row in table.items() for step, verdict in row.items() if verdict != "ok"]
    wrong += [name for name, verdict in ends.items() if not verdict.startswith("ok")]
    print(json.dumps({"rows": table, "errors": ends, "expected": expected, "wrong": wrong}, ensure_ascii=False))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
