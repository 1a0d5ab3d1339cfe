"""A bundle that carries its interpreter, in root file systems with busybox alone, musl, and Debian's shells."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from tests.integration.root_systems import (
    PLANTED,
    PORT,
    NotRunError,
    Packages,
    Root,
    busybox_root,
    debian_root,
    musl_root,
)

from edgepack_runtime.errors import ExitCode

from .conftest import CARRIED, Project

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can enter other root file systems"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the roots are made for x86-64"),
]
TEXT = "房间很大"
PREFIX = "/tmp/here"
OWN = f"{PREFIX}/bin/tiny"


@pytest.fixture(scope="module")
def bundles(carried: Project) -> list[Path]:
    """A version, and the next one, of the linear model alone."""
    settings = ("--set", "version=0.2.0", "--set", "linear=only")
    done = carried.edgepack("build", "tiny.yaml", *CARRIED, *settings, "--offline", "--until", "bundle", "--json")
    assert done.returncode == 0, done.stderr[-4000:]
    linear = carried.folder / json.loads(done.stdout)["stages"][-1]["folder"]
    return [next(folder.glob("*.edgepack")) for folder in (carried.folder / "dist", linear)]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    made = Packages(tmp_path_factory.mktemp("packages"))
    try:
        made.unpacked("x86_64", "busybox-static")
    except NotRunError as missing:
        pytest.skip(str(missing))
    if subprocess.run(["unshare", "-n", "-m", "true"], check=False).returncode:
        pytest.skip("this system makes no namespaces")
    return made


def null(in_sweeps: bool) -> list[ParameterSet]:
    """With and without /dev/null; one of them in `make test-all` alone."""
    ids = {True: "with /dev/null", False: "without /dev/null"}
    return [pytest.param(has, id=ids[has], marks=[pytest.mark.sweep] * (has == in_sweeps)) for has in ids]


def filled(make: Callable[[Path, Packages], Root], folder: Path, packages: Packages, bundles: list[Path]) -> Root:
    """A root with the bundles as /0.edgepack and /1.edgepack."""
    try:
        root = make(folder / "root", packages)
    except NotRunError as missing:
        pytest.skip(str(missing))
    for number, bundle in enumerate(bundles):
        shutil.copy(bundle, root.folder / f"{number}.edgepack")
    return root


@pytest.fixture(params=null(in_sweeps=False))
def root(request: pytest.FixtureRequest, packages: Packages, bundles: list[Path], tmp_path: Path) -> Root:
    return filled(partial(busybox_root, null=request.param), tmp_path, packages, bundles)


def ran(root: Root, script: str, *codes: int) -> str:
    done = root.run(script)
    assert done.returncode in (codes or (0,)), done.stderr[-4000:]
    return done.stdout


def live(root: Root, shell: str = "sh") -> None:
    """Install, predict, gate, serve, update, roll back and uninstall; nothing is left."""
    ran(root, f"{shell} /0.edgepack install --wait 0 --prefix {PREFIX}")
    answer = json.loads(ran(root, f"{OWN} predict {TEXT}"))
    assert json.loads(ran(root, f"{shell} /0.edgepack predict {TEXT}")) == answer
    receipt = json.loads(ran(root, f"{OWN} gate --json", ExitCode.OK, ExitCode.GATE_INCONCLUSIVE))
    assert {check["gate"]: check["verdict"] for check in receipt["checks"]}["accuracy.min"] == "pass"
    with root.start(f"exec {OWN} serve --port {PORT}") as server:
        served = root.post(server, json.dumps({"text": TEXT}))
        server.terminate()
        server.communicate(timeout=60)
    assert (json.loads(served)["label"], server.returncode) == (answer["label"], 0)
    ran(root, f"{shell} /1.edgepack install --wait 0 --prefix {PREFIX}")
    assert "0.2.0" in ran(root, f"{OWN} status")
    ran(root, f"{OWN} rollback")
    assert "0.1.0" in ran(root, f"{OWN} status").splitlines()[0]
    assert json.loads(ran(root, f"{OWN} predict {TEXT}")) == answer
    ran(root, f"{OWN} uninstall --purge --yes")
    assert not Path(f"{root.folder}{PREFIX}").exists()
    assert root.left() == []


@pytest.mark.parametrize("root", null(in_sweeps=True), indirect=True)
def test_a_release_lives_where_there_is_only_busybox(root: Root) -> None:
    """It takes no standard library beside the temporary folder. CPython looks for one in all folders above its own; in
    /tmp, any user can make it.
    """
    planted = root.folder / "tmp" / PLANTED
    (planted / "python3.11/lib-dynload").mkdir(parents=True)
    with zipfile.ZipFile(planted / "python311.zip", "w") as archive:
        archive.writestr("encodings/__init__.py", "open('/taken', 'w').close()\n")
    (planted / "python3.11/os.py").write_text("open('/taken', 'w').close()\n")
    live(root)
    assert not (root.folder / "taken").exists()


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("make", "shell"),
    [(musl_root, "sh"), (debian_root, "sh"), (debian_root, "bash"), (debian_root, "busybox ash")],
    ids=["musl", "dash", "bash", "ash"],
)
def test_a_release_lives_with_other_libraries_and_shells(
    make: Callable[[Path, Packages], Root], shell: str, packages: Packages, bundles: list[Path], tmp_path: Path
) -> None:
    live(filled(make, tmp_path, packages, bundles), shell)


NOEXEC = "for one in tmp var/tmp; do [ -d $root/$one ] && mount -t tmpfs -o noexec none $root/$one; done"


@pytest.mark.sweep
@pytest.mark.parametrize("make", [busybox_root, debian_root], ids=["busybox", "Debian"])
@pytest.mark.parametrize(
    ("script", "before", "code", "words"),
    [
        ("TMPDIR=/tmp sh /0.edgepack doctor", NOEXEC, 4, "noexec"),
        ("sh /0.edgepack doctor", NOEXEC, 4, "noexec"),
        (
            f"sh /0.edgepack predict {TEXT}",
            f"{NOEXEC}; mkdir -p $root/dev/shm; mount -t tmpfs none $root/dev/shm",
            0,
            "label",
        ),
        ("sh /0.edgepack doctor", "mount --bind $root $root; mount -o remount,bind,ro $root", 4, "cannot be written"),
        (f"TMPDIR=/small sh /0.edgepack predict {TEXT}", "mount -t tmpfs -o size=10m none $root/small", 4, "space"),
        (f"cd /; TMPDIR=tmp sh 0.edgepack predict {TEXT}", "", 0, "label"),
        ("cd /; ./0.edgepack doctor", "", 0, ""),
        ("ln -sf ../0.edgepack /small/link; cd /small; ./link doctor && sh link doctor", "", 0, ""),
        ("ln -sf ../0.edgepack /small/classify; cd /tmp; PATH=$PATH:/small; classify doctor", "", 0, ""),
        ("sh /0.edgepack doctor <&- >&- 2>&-", "", 0, ""),
    ],
    ids=[
        "TMPDIR is noexec", "/tmp is noexec", "/dev/shm is not noexec", "read-only root", "TMPDIR is full",
        "relative TMPDIR", "./FILE", "a link", "from PATH", "streams closed",
    ],
)  # fmt: skip
def test_a_file_starts_or_ends_with_one_error(
    make: Callable[[Path, Packages], Root], script: str, before: str, code: int, words: str,
    packages: Packages, bundles: list[Path], tmp_path: Path,
) -> None:  # fmt: skip
    root = filled(make, tmp_path, packages, bundles)
    done = root.run(script, before)
    assert done.returncode == code, done.stderr
    assert words in done.stdout + done.stderr
    if code:
        first, *rest = done.stderr.splitlines()
        assert first.startswith("error: ") and all(line.startswith(("  why: ", "  fix: ")) for line in rest)
    assert root.left() == []


def test_a_linear_model_needs_no_onnx_runtime(root: Root) -> None:
    ran(root, f"sh /1.edgepack install --wait 0 --prefix {PREFIX}")
    assert not list(root.folder.glob(f"{PREFIX[1:]}/releases/*/site/onnxruntime*"))
    assert json.loads(ran(root, f"{OWN} predict {TEXT}"))["label"]
    receipt = json.loads(ran(root, f"{OWN} gate --json", ExitCode.OK, ExitCode.GATE_INCONCLUSIVE))
    assert receipt["answered"]["linear"] > 0 and receipt["answered"]["encoder"] == 0
    assert (root.folder / "1.edgepack").stat().st_size < (root.folder / "0.edgepack").stat().st_size * 0.7


def test_nothing_is_left_by_a_command_that_is_killed(root: Root) -> None:
    with root.start("exec sh /0.edgepack bench --runs 1000000") as process:
        end = time.monotonic() + 30
        while not list((root.folder / "tmp").glob("*/*/releases")) and time.monotonic() < end:
            time.sleep(0.05)
        process.kill()
    assert root.left() == []


def test_nothing_is_left_where_process_1_of_a_container_is_a_shell(root: Root) -> None:
    script = f"busybox unshare -p -f sh -c 'mount -t proc none /proc; sh /0.edgepack predict {TEXT}; exit 3'"
    assert json.loads(ran(root, script, 3))["label"]
    assert root.left() == []


@pytest.mark.parametrize("seconds", [0.05, 0.2])
def test_ctrl_c_ends_a_start_without_a_word_of_python(root: Root, seconds: float) -> None:
    with root.start("exec sh /0.edgepack bench --runs 1000000") as process:
        time.sleep(seconds)
        said = root.interrupt(process)
    # By the signal itself, if it comes before the file is read; a fast machine has begun to measure by then.
    said = "\n".join(line for line in said.splitlines() if not line.startswith("round "))
    assert (process.returncode, said.strip()) in [(130, ""), (130, "interrupted"), (-signal.SIGINT, "")]
    assert root.left() == []


def test_ctrl_c_is_told_once_while_a_file_is_answered(root: Root) -> None:
    rows = "".join(f"{TEXT}{number}\n" for number in range(200_000))
    (root.folder / "rows.txt").write_text(rows)
    with root.start("exec sh /0.edgepack predict --input /rows.txt --output /answers.jsonl") as process:
        end = time.monotonic() + 60
        while not list(root.folder.glob("*answers.jsonl*")) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.5)
        said = root.interrupt(process)
    assert process.returncode == 130
    assert said.count("interrupted") == 1 and "Traceback" not in said
    assert root.left() == []


def test_a_file_cut_short_is_one_error(root: Root) -> None:
    whole = (root.folder / "0.edgepack").read_bytes()
    for size in (len(whole) // 5, len(whole) * 9 // 10, len(whole) - 1):
        (root.folder / "0.edgepack").write_bytes(whole[:size])
        done = root.run("sh /0.edgepack verify")
        assert done.returncode == ExitCode.BUNDLE_INVALID
        first, *rest = done.stderr.splitlines()
        assert first.startswith("error: ") and " is damaged" in first
        assert all(line.startswith(("  why: ", "  fix: ")) for line in rest)
