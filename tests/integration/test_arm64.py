"""A real bundle for 64-bit ARM: in a Debian root whose programs an emulator runs.

`make test-arm64` makes the root and runs this. The emulator is no device: what is right there is right, what is fast
there says nothing, and the bundle's own gate knows that. /sys is left out: it is the x86 machine's, and a library that
looks there for an ARM CPU's parts ends by SIGSEGV.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import Project

VARIABLE = "EDGEPACK_ARM64_ROOT"
ROOT = Path(os.environ.get(VARIABLE, "/nonexistent"))
TARGET = "linux-aarch64"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(VARIABLE not in os.environ, reason="for `make test-arm64`, which makes the root that it needs"),
]
UNTIMED = ("--set", "gates.latency=null")


class Emulated:
    """The root: commands in it see no network, an empty environment, and a /proc of their own."""

    def __init__(self, work: Path) -> None:
        self.work = work  # a folder in the root

    def __call__(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        inside = [f"/{word.relative_to(ROOT)}" if isinstance(word, Path) else word for word in words]
        script = f'mount -t proc none {ROOT}/proc; exec chroot {ROOT} env -i PATH=/usr/bin:/bin "$@"'
        return subprocess.run(
            ["unshare", "--net", "--mount", "sh", "-ec", script, "sh", *inside],
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )


@pytest.fixture(scope="module")
def emulated() -> Iterator[Emulated]:
    work = ROOT / "opt" / "edgepack-test"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    yield Emulated(work)
    shutil.rmtree(work)


def built(project: Project, emulated: Emulated, version: str, *settings: str) -> Path:
    """A bundle for the target, in the root."""
    told = project.edgepack(
        "build", "tiny.yaml", "--set", f"targets=[{TARGET}]", "--set", f"version={version}", *settings
    )
    assert told.returncode == 0, told.stderr[-4000:]
    assert f"for {TARGET}: NOT RUN HERE" in told.stdout
    return Path(shutil.copy(project.folder / "dist" / f"tiny-{version}-{TARGET}.edgepack", emulated.work))


@pytest.fixture(scope="module")
def untimed(project: Project, emulated: Emulated) -> Path:
    return built(project, emulated, "1.0.0", *UNTIMED)


def test_it_is_looked_at_and_verified(emulated: Emulated, untimed: Path) -> None:
    assert emulated("uname", "-m").stdout == "aarch64\n"
    verified = emulated("sh", untimed, "verify")
    assert verified.returncode == 0, verified.stderr
    doctor = emulated("sh", untimed, "doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert "Linux aarch64" in doctor.stdout
    assert "emulated (" in doctor.stdout


def test_it_is_installed_gated_and_answers_as_where_it_was_built(
    project: Project, emulated: Emulated, untimed: Path
) -> None:
    prefix = emulated.work / "prefix"
    done = emulated("sh", untimed, "install", "--prefix", prefix)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "nothing was tried" in done.stderr or "tune" in done.stderr
    receipt = json.loads((prefix / "receipts" / "000001-install.json").read_text(encoding="utf-8"))
    gate = receipt["gate"]
    assert {check["gate"]: check["verdict"] for check in gate["checks"]}["accuracy.min"] == "pass"
    assert gate["conditions"]["machine"] == "aarch64"
    assert gate["conditions"]["emulated"]
    assert receipt["selftest"]["max_difference"] <= receipt["selftest"]["tolerance"]
    built_with = json.loads((project.folder / "dist" / "tiny-1.0.0.report.json").read_text(encoding="utf-8"))
    (shipped,) = [row for row in built_with["ledger"] if row["stage"] == "INT8 ONNX"]
    # Of 120 rows. Integer products are exact on both; what is left are roundings of float sums and of softmax.
    assert abs(gate["accuracy"]["value"] - shipped["score"]["value"]) <= 1 / 120
    launcher = prefix / "bin" / "tiny"
    answer = json.loads(emulated(launcher, "predict", "房间很干净").stdout)
    assert answer["label"] in ("正面", "负面")
    assert emulated(launcher, "rollback").returncode == 4  # nothing is kept yet
    assert emulated(launcher, "uninstall", "--purge", "--yes").returncode == 0
    assert not prefix.exists()


def test_no_verdict_on_time_is_given(project: Project, emulated: Emulated) -> None:
    done = emulated("sh", built(project, emulated, "1.0.1", "--set", "gates.cold_start={ms: 60000}"), "gate", "--json")
    assert done.returncode == 7, done.stderr[-4000:]
    checks = {check["gate"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["accuracy.min"]["verdict"] == "pass"
    for gate in ("latency.p95_ms", "cold_start.ms"):
        assert checks[gate]["verdict"] == "inconclusive"
        assert "measure on the device itself" in checks[gate]["detail"]
