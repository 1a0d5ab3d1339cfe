"""Breaks installs at every point there is, and looks whether the device is still on a good release.

    kill     every process is killed (SIGKILL) right before the N-th system call that changes the prefix, N = 1, 2, ...
    power    the power goes before that call: what was not fsynced is lost, in several ways (see lost_writes.py)
    fault    that call fails: no space, an I/O error, a read-only file system, no descriptor left

each in an install into an empty prefix, an update, the same release again, the repair of a damaged one, a rollback,
an uninstall and one with `--purge`. After each, `status` is asked, the serving release is hashed and answers through
its launcher, and the verb is given again and has to complete, leaving nothing behind. Real here: the code of install,
rollback and uninstall, their system calls, and the processes they start with the command lines they use. Not real:
the bundles, whose self-test, tuning and gate are a few lines that always pass.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import platform
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.unit.runtime import lost_writes
from tests.unit.runtime.syscalls import KILLED, Call, Fail, Kill, run

from edgepack.bundle.archive import write_bundle
from edgepack.bundle.stub import stub
from edgepack_runtime.bundle.manifest import FileEntry, Manifest, TargetFacts, dump, release_id
from edgepack_runtime.bundle.verify import verify_file, verify_folder
from edgepack_runtime.errors import EdgepackError, EnvironmentUnfitError
from edgepack_runtime.install import status
from edgepack_runtime.install.install import install
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.install.rollback import rollback
from edgepack_runtime.install.uninstall import uninstall

NAME: Final = "tiny"
FAULTS: Final = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EROFS": errno.EROFS, "EMFILE": errno.EMFILE}
_OPENS: Final = ("open", "openat")
# What stands for a release: every verb in a few lines, and one import.
_MAIN: Final = b"""\
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "site"))
import helper
tuning = {"threads": 1, "spinning": False, "disabled_optimizers": []}
if sys.argv[1] == "predict":
    print(helper.answer(here))
else:
    print(json.dumps({"verdict": "pass", "checks": [], "tune": 1, "tuning": tuning, "measured": {}}))
"""
_HELPER: Final = b"""\
def answer(here):
    with open(here + "/model/answer.txt") as file:
        return file.read()
"""
_RECORDS: Final = {"receipts", "state.json"}
_PARTS: Final = {"current", "releases", "interpreters", "tuning", "bin", ".lock", *_RECORDS}


def tiny_bundle(folder: Path, version: str, sequence: int) -> Path:
    """A bundle of a few files that answers with its version."""
    members = {
        "__main__.py": _MAIN,
        "site/helper.py": _HELPER,
        "model/answer.txt": version.encode(),
        "golden/rows.jsonl": b"{}\n" * 9,
    }
    files = [FileEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in sorted(members.items())]
    target = TargetFacts("here", (platform.machine(),), "2.5", "host", "CPUExecutionProvider")
    first = stub(NAME, f"{NAME} {version}", {})
    manifest = Manifest(
        NAME, version, sequence, "text-classification", target, {"precision": "int8", "onnx_bytes": 5}, {}, (),
        {"edgepack": "0"}, "0" * 64, hashlib.sha256(first).hexdigest(), (), tuple(files),
    )  # fmt: skip
    path = folder / f"{NAME}-{version}.edgepack"
    write_bundle({**members, "manifest.json": dump(manifest)}, path, first)
    return path


@dataclass(frozen=True)
class Scenario:
    """Something that is done to a prefix.

    Args:
        begin: brings the prefix, which does not exist, to where it starts.
        act: what is broken off.
        allowed: versions that may serve after it was broken off; None: nothing serves.
        after: the version that serves when it is done.
        damaged: whether the release that serves may be damaged until then, as it was before.
    """

    name: str
    begin: Callable[[Path], None]
    act: Callable[[Path], object]
    allowed: tuple[str | None, ...]
    after: str | None
    damaged: bool = False


def scenarios(folder: Path) -> list[Scenario]:
    """All of them, with bundles that are made in `folder`."""
    old, new = tiny_bundle(folder, "1.0.0", 1), tiny_bundle(folder, "2.0.0", 2)

    def put(*bundles: Path) -> Callable[[Path], None]:
        def begin(root: Path) -> None:
            for bundle in bundles:
                install(bundle, root, log=_silent)

        return begin

    def damage(root: Path) -> None:
        put(old, new)(root)
        release = Prefix(root).releases / release_id(*verify_file(new))
        (release / "golden" / "rows.jsonl").write_bytes(b"{]\n" * 9)
        (release / "site" / "extra.py").touch()

    def add(root: Path) -> object:
        return install(new, root, log=_silent)

    def back(root: Path) -> object:
        return rollback(root, NAME, log=_silent)

    def gone(root: Path) -> object:
        return uninstall(root, NAME, purge=False, log=_silent)

    def wiped(root: Path) -> object:
        return uninstall(root, NAME, purge=True, log=_silent)

    return [
        Scenario("first install", lambda root: None, add, (None, "2.0.0"), "2.0.0"),
        Scenario("update", put(old), add, ("1.0.0", "2.0.0"), "2.0.0"),
        Scenario("same again", put(old, new), add, ("2.0.0",), "2.0.0"),
        Scenario("repair", damage, add, ("2.0.0",), "2.0.0", damaged=True),
        Scenario("rollback", put(old, new), back, ("1.0.0", "2.0.0"), "1.0.0"),
        Scenario("uninstall", put(old, new), gone, (None, "2.0.0"), None),
        Scenario("purge", put(old, new), wiped, (None, "2.0.0"), None),
    ]


def _silent(text: str) -> None:
    """Nobody listens."""


@dataclass
class Tally:
    """How many points of a kind were tried in a scenario, how many states that gave, and what did not survive."""

    kind: str
    scenario: str
    points: int = 0
    states: int = 0
    failures: list[str] = field(default_factory=list)


class Bench:
    """A folder to break prefixes in. `folder/world/prefix` is the prefix: its place is the same each time."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world, self.saved, self.log = folder / "world", folder / "saved", folder / "error.txt"
        self.root = self.world / "prefix"
        for place in (self.world, self.saved):
            shutil.rmtree(place, ignore_errors=True)
        self.world.mkdir(parents=True)
        scenario.begin(self.root)
        shutil.copytree(self.world, self.saved, symlinks=True)

    def reset(self) -> None:
        """Back to where the scenario starts."""
        shutil.rmtree(self.world)
        shutil.copytree(self.saved, self.world, symlinks=True)
        self.log.unlink(missing_ok=True)

    def program(self) -> int:
        """What runs in the child: the verb; its errors are told as the command line does."""
        try:
            self.scenario.act(self.root)
        except EdgepackError as error:
            self.log.write_text(str(error))
            return int(error.exit_code)
        return 0

    def calls(self) -> list[Call]:
        """Every call of a run that nothing breaks off."""
        self.reset()
        seen: list[Call] = []
        code = run(self.program, self.world, seen.append)
        assert code == 0, f"{self.scenario.name} ended with {code}"
        return seen

    def check(self, *, serves: Iterable[str | None]) -> None:
        """Look at what is there, then give the verb again, or install anew where that is what is tried.

        Raises:
            AssertionError: telling what is not as it should be.
        """
        self._look(tuple(serves))
        if self.scenario.after is None:
            kept = self.world.with_name("kept")
            shutil.copytree(self.world, kept, symlinks=True)
            try:
                install(self._bundle(), self.root, log=_silent)
                self._done("2.0.0")
            finally:
                shutil.rmtree(self.world)
                kept.rename(self.world)
        self._again()

    def _bundle(self) -> Path:
        return self.world.parent / "bundles" / f"{NAME}-2.0.0.edgepack"

    def _look(self, serves: tuple[str | None, ...]) -> None:
        prefix = Prefix(self.root)
        told = status.status(prefix)
        current = told["current"]
        version = current.split("-")[0] if current else None
        assert version in serves, f"{version} serves, {told['notes']}"
        if current is None:
            assert not told["ok"], told
            return
        assert answer(prefix) == version, "the launcher does not answer"
        if not self.scenario.damaged:
            assert told["ok"], told["notes"]
            verify_folder(prefix.releases / current)

    def _again(self) -> None:
        current = Prefix(self.root).current_id()
        try:
            if self.scenario.name == "rollback" and current and current.startswith(f"{self.scenario.after}-"):
                self.scenario.act(self.root)  # it was through: this goes forth again, and the next one back
            self.scenario.act(self.root)
        except EnvironmentUnfitError as error:
            if self.scenario.after is not None or not error.what.startswith("nothing is installed"):
                raise
        self._done(self.scenario.after)

    def _done(self, version: str | None) -> None:
        """The verb has ended: it says so, the release is whole and answers, and there are no leftovers."""
        prefix = Prefix(self.root)
        told = status.status(prefix)
        found = told["current"].split("-")[0] if told["current"] else None
        assert found == version, f"{found} serves in the end"
        left = {path.name for path in self.root.iterdir()} if self.root.exists() else set()
        if version is None:
            assert left <= (set() if self.scenario.name == "purge" else _RECORDS), f"left over: {sorted(left)}"
            assert not status.holds_install(told), told["notes"]
            return
        assert told["ok"], told["notes"]
        assert not told["notes"], told["notes"]
        verify_folder(prefix.releases / told["current"])
        assert answer(prefix) == version
        assert left <= _PARTS, f"left over: {sorted(left)}"
        temporary = [path for path in self.root.rglob("*") if path.name.endswith(".tmp")]
        assert not temporary, f"left over: {temporary}"
        kept = {told["current"], told["previous"]} - {None}
        for folder in (prefix.releases, prefix.interpreters):
            extra = {path.name for path in folder.iterdir()} - kept
            assert not extra, f"left over in {folder.name}: {extra}"


def answer(prefix: Prefix) -> str:
    """What the serving release says when it is asked through its launcher, as an application asks it."""
    line = [str(prefix.bin / NAME), "predict", "x"]
    done = subprocess.run(line, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}, check=False)
    return done.stdout.strip() if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.strip()}"


@contextlib.contextmanager
def _judged(tally: Tally, where: str) -> Iterator[None]:
    """One state that is tried: what it does not survive is kept, and the others go on."""
    tally.states += 1
    try:
        yield
    except (AssertionError, EdgepackError, OSError) as error:
        tally.failures.append(f"{tally.kind}, {tally.scenario}, {where}: {error}")


def kill(bench: Bench, stride: int) -> Tally:
    """SIGKILL for all processes before call 1, 1 + `stride`, ... until there is none left."""
    tally = Tally("kill", bench.scenario.name)
    while True:
        bench.reset()
        at = _At(tally.points * stride, Kill())
        code = run(bench.program, bench.world, at)
        if not at.where:
            assert code == 0, f"it ended with {code}, and nothing had been broken"
            return tally
        assert code == KILLED, f"it ended with {code} after it was killed"
        tally.points += 1
        with _judged(tally, at.where):
            bench.check(serves=bench.scenario.allowed)


class _At:
    """Does `action` at the call `number` (from 0), and tells in `where` which one that was."""

    def __init__(self, number: int, action: Kill | Fail) -> None:
        self.left, self.number, self.action, self.where = number, number, action, ""

    def __call__(self, call: Call) -> Kill | Fail | None:
        self.left -= 1
        if self.left != -1:
            return None
        self.where = f"call {self.number} ({call.name} {' '.join(call.paths)})"
        return self.action


def power(bench: Bench, stride: int, seeds: int) -> Tally:
    """The power goes before each call, or after the last: every state the model of lost_writes.py leaves, once."""
    tally = Tally("power", bench.scenario.name)
    bench.reset()
    disk, tried, chance = lost_writes.Disk(bench.world), set(), random.Random(20260730)
    code, operations = lost_writes.record(bench.program, bench.world)
    assert code == 0, f"it ended with {code}, and nothing had been broken"
    ended = lost_writes.read_in(bench.world)
    for number, operation in enumerate([*operations, None]):
        if number % stride == 0 or operation is None:
            tally.points += 1
            for way, tree in lost_writes.cuts(disk, seeds, chance):
                key = lost_writes.digest(tree)
                if key in tried and operation is not None:
                    continue
                tried.add(key)
                _after_a_cut(bench, tally, tree, f"call {number} ({_named(operation)}), {way}", done=operation is None)
        if operation is not None:
            disk.do(operation)
    assert disk.now() == ended, "the model did something else than the file system"
    return tally


def _named(operation: lost_writes.Operation | None) -> str:
    return f"{operation.name} {' '.join(operation.paths)}" if operation else "none: it had ended"


def _after_a_cut(bench: Bench, tally: Tally, tree: dict[str, tuple[str, bytes]], where: str, *, done: bool) -> None:
    shutil.rmtree(bench.world)
    bench.world.mkdir()
    lost_writes.write_out(tree, bench.world, lambda path: 0o755 if "/bin/" in path else 0o644)
    # What was told to be done has to be there.
    allowed = (bench.scenario.after,) if done else bench.scenario.allowed
    with _judged(tally, where):
        bench.check(serves=allowed)


def fault(bench: Bench, stride: int) -> Tally:
    """Each call fails in turn, with each error that it may fail with."""
    tally = Tally("fault", bench.scenario.name)
    calls = bench.calls()
    for number in range(0, len(calls), stride):
        tally.points += 1
        for name, code in FAULTS.items():
            if (code == errno.EMFILE) == (calls[number].name in _OPENS) or code != errno.EMFILE:
                _after_a_fault(bench, tally, number, name, code)
    return tally


def _after_a_fault(bench: Bench, tally: Tally, number: int, name: str, code: int) -> None:
    bench.reset()
    at = _At(number, Fail(code))
    ended = run(bench.program, bench.world, at)
    with _judged(tally, f"{at.where or f'call {number}, never made'}, {name}"):
        told = bench.log.read_text() if bench.log.exists() else ""
        assert ended == 0 or (ended > 1 and "fix: " in told), f"it ended with {ended}: {told}"
        bench.check(serves=bench.scenario.allowed)
