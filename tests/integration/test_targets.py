"""Bundles for other Pythons, built and gated here with those; and one for another machine, built without a verdict.

Interpreters are found as a build finds them, and among pyenv's; wheels come from the cache or through pip. A target is
skipped where there is no interpreter of its version, or no way to its wheels.
"""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from edgepack.bundle.binaries import elf
from edgepack.targets import local, profiles
from edgepack.targets.local import Interpreter, base_python
from edgepack_runtime.errors import ExitCode

from .conftest import Project

pytestmark = pytest.mark.integration
KNOWN = profiles.load_profiles()
HERE = ("ubuntu20.04-x86_64", "ubuntu22.04-x86_64", "debian12-x86_64", "ubuntu24.04-x86_64")
ENGINES = {"3.8": "1.19.2", "3.10": "1.23.2", "3.11": "1.31.1", "3.12": "1.31.1"}  # newest onnxruntime by Python


# The oldest Python in every run, the others in the sweep.
@pytest.fixture(params=[HERE[0], *(pytest.param(name, marks=pytest.mark.sweep) for name in HERE[1:])])
def target(request: pytest.FixtureRequest, project: Project) -> str:
    return with_wheels(str(request.param), project)


@pytest.fixture
def interpreter(target: str) -> Interpreter:
    python = KNOWN[target].python
    found = local.find(python, sorted(Path.home().glob(f".pyenv/versions/{python}.*/bin/python")))
    if found is None:
        pytest.skip(f"there is no CPython {python} here (name one in {local.VARIABLE})")
    return found


def with_wheels(name: str, project: Project) -> str:
    """`name`, when its wheels can be had."""
    fetched = project.edgepack("fetch", "--target", name)
    if fetched.returncode == ExitCode.ENVIRONMENT_UNFIT:
        pytest.skip(f"the wheels of {name} cannot be had here: {fetched.stderr[-400:]}")
    assert fetched.returncode == 0, fetched.stderr[-2000:]
    return name


def built_for(target: str, project: Project, *options: str) -> tuple[Path, dict[str, object]]:
    """The bundle, and what the report says of the target."""
    dist = f"dist-{target}"
    settings = ("--set", f"targets=[{target}]", "--set", "serve=true")
    made = project.edgepack("build", "tiny.yaml", *settings, "--dist", dist, "--offline", *options)
    assert made.returncode == 0, made.stderr[-4000:]
    report = json.loads((project.folder / dist / "tiny-0.1.0.report.json").read_text(encoding="utf-8"))
    (about,) = report["targets"]
    return project.folder / dist / f"tiny-0.1.0-{target}.edgepack", {**about, "all": report["verdict"], "said": made}


def test_gated_and_installed_with_the_targets_python(
    target: str, interpreter: Interpreter, project: Project, device_environment: dict[str, str], tmp_path: Path
) -> None:
    bundle, about = built_for(target, project, "--python", str(interpreter.path))
    assert (about["verdict"], about["all"]) == ("pass", "pass")
    receipt = about["receipt"]
    assert isinstance(receipt, dict)
    conditions = receipt["conditions"]
    assert conditions["python"] == interpreter.version
    assert conditions["engine"].endswith(ENGINES[interpreter.python])

    def device(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*map(str, command)], env=device_environment, capture_output=True, text=True, check=False, timeout=300
        )

    prefix = tmp_path / "installed"
    installed = device(interpreter.path, "-I", "-S", bundle, "install", "--prefix", prefix)
    assert installed.returncode == 0, installed.stderr[-2000:]
    answered = device(prefix / "bin/tiny", "predict", "房间很大")
    assert json.loads(answered.stdout)["label"] in ("正面", "负面")
    with_another = device(base_python(), "-I", "-S", bundle, "doctor")
    own = local.looked_at(Path(base_python()))
    fits = own is not None and own.python == interpreter.python
    assert with_another.returncode == (0 if fits else ExitCode.ENVIRONMENT_UNFIT), with_another.stdout


def test_a_bundle_for_arm_is_delivered_without_a_verdict(project: Project, tmp_path: Path) -> None:
    bundle, about = built_for(with_wheels("rpi-bookworm", project), project)
    assert (about["verdict"], about["all"], about["receipt"], about["exit_code"]) == (
        "not run here", "not run here", None, None,
    )  # fmt: skip
    told = about["not_run_here"]
    assert isinstance(told, dict)
    assert "aarch64" in told["why"]
    assert told["command"] == f"python3 {bundle.name} gate"
    said = about["said"]
    assert isinstance(said, subprocess.CompletedProcess)
    assert "rpi-bookworm: NOT RUN HERE" in said.stdout
    assert told["command"] in said.stdout
    with zipfile.ZipFile(bundle) as archive:
        binaries = [name for name in archive.namelist() if ".so" in Path(name).name]
        assert len(binaries) == 2
        for name in binaries:
            assert elf.read(Path(archive.extract(name, tmp_path))).machine == "EM_AARCH64"
    refused = project.edgepack("gate", str(bundle))
    assert refused.returncode == ExitCode.TARGET_UNREACHABLE
    assert told["command"] in refused.stderr


def test_a_wheel_that_does_not_fit_is_refused_before_the_training(project: Project, tmp_path: Path) -> None:
    wheel = tmp_path / "onnxruntime_gpu-1.23.0-cp310-cp310-linux_aarch64.whl"
    wheel.write_bytes(b"")
    refused = project.edgepack("build", "tiny.yaml", "--wheel", str(wheel))
    assert refused.returncode == ExitCode.USAGE
    assert "do not carry onnxruntime-gpu" in refused.stderr
    by_recipe = project.edgepack(
        "build", "tiny.yaml", "--set", "targets=[jetpack5]", "--set", f"wheels={{jetpack5: [{wheel}]}}"
    )
    assert by_recipe.returncode == ExitCode.ENVIRONMENT_UNFIT
    assert "it is for cp310-cp310, and the target runs CPython 3.8" in by_recipe.stderr
