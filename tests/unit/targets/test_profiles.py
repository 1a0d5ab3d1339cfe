from __future__ import annotations

import platform
from pathlib import Path

import pytest

from edgepack.errors import RecipeInvalidError, TargetUnreachableError
from edgepack.interpreter import debian
from edgepack.packages import wheels
from edgepack.packages.target_spec import TargetSpec
from edgepack.targets import machines, package_data, profile_file, profiles
from edgepack.targets.context import BuildContext
from edgepack_runtime.bundle.manifest import MACHINES
from edgepack_runtime.bundle.model_config import CPU, CUDA

X86, ARM = ("x86_64",), ("aarch64",)
KNOWN = {
    "linux-x86_64": (X86, "bundled", "2.36"),
    "linux-aarch64": (ARM, "bundled", "2.36"),
    "linux": (ARM + X86, "bundled", "2.36"),
    "linux-x86_64-cuda12": (X86, "host", "2.28"),
    "linux-x86_64-cuda13": (X86, "host", "2.28"),
    "jetpack5": (ARM, "host", "2.31"),
    "jetpack6": (ARM, "host", "2.35"),
    "jetpack7": (ARM, "host", "2.39"),
}  # machines, interpreter, glibc


def test_this_version_builds_exactly_these() -> None:
    found = dict(profile_file.load_profiles())
    here = found.pop("local")
    assert (here.machines, here.interpreter, here.glibc, here.cuda) == ((platform.machine(),), "host", "", None)
    assert {name: (one.machines, one.interpreter, one.glibc) for name, one in found.items()} == KNOWN


def test_the_names_of_a_machine_are_known_for_all() -> None:
    assert set(machines.BY_NAME) == set(MACHINES)


def test_what_profiles_say_of_gpus() -> None:
    for profile in profile_file.load_profiles().values():
        assert profile.provider == (CPU if profile.cuda is None else CUDA)
        assert profile.by_path == bool(profile.jetpack)
        assert profile.cuda is None or profile.interpreter == "host"
        assert profile.cuda is None or profile.cuda.libraries == ("system" if profile.jetpack else "bundled")


def test_every_profile_has_a_complete_lock_for_each_machine() -> None:
    for profile in profile_file.load_profiles().values():
        for machine in profile.machines:
            names = {package.name for package in wheels.locked_for(profile.on(machine))}
            own = {"onnxruntime" if profile.by_path else profile.package}
            assert names >= own
            assert all(name.startswith("nvidia-") for name in names - own)
            wheels.wanted(TargetSpec(profile.on(machine), serve=True), BuildContext(), without_given=True)


def test_a_recipe_chooses_whose_interpreter_and_whose_cuda() -> None:
    known = profile_file.load_profiles()
    own = profiles.chosen(known, ("linux-x86_64",), "host", None)
    assert own["linux-x86_64"].interpreter == "host"
    assert own["linux-aarch64"] == known["linux-aarch64"]
    gpu = profiles.chosen(known, ("linux-x86_64-cuda13",), None, "system")["linux-x86_64-cuda13"]
    assert not [one for one in wheels.locked_for(gpu) if one.name.startswith("nvidia-")]
    with pytest.raises(RecipeInvalidError, match="cannot carry an interpreter"):
        profiles.chosen(known, ("linux-x86_64-cuda13",), "bundled", None)


@pytest.mark.parametrize(
    ("system", "machine", "libc"),
    [("Darwin", "arm64", "unknown"), ("Linux", "riscv64", "glibc"), ("Linux", "x86_64", "")],
)
def test_the_local_target_is_refused_on_other_kinds_of_machine(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, libc: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(profiles, "libc", lambda: (libc, ""))
    with pytest.raises(TargetUnreachableError, match="local") as caught:
        BuildContext().profile("local")
    assert machine in caught.value.why
    BuildContext().profile("linux-x86_64")  # is built anywhere


def test_an_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(RecipeInvalidError) as caught:
        BuildContext().profile("jetpack66")
    assert "did you mean jetpack6?" in caught.value.what
    assert "local" in caught.value.why


LOCKS = sorted(path.name for path in (Path(package_data.__file__).parent / "locks").glob("*.txt"))


@pytest.mark.parametrize("name", LOCKS)
def test_locks_name_no_index(name: str) -> None:
    lock = package_data.text("locks", name)
    uncommented = [line.strip() for line in lock.splitlines() if not line.startswith("#")]
    assert not [line for line in uncommented if line.startswith(("-i", "--index", "--extra", "--find", "-f"))]
    assert "://" not in lock


@pytest.mark.parametrize("name", [name for name in LOCKS if not name.startswith("interpreter-")])
def test_locks_hold_for_every_python_of_a_device(name: str) -> None:
    assert "python_version" not in package_data.text("locks", name)


def test_no_lock_lies_about_unused() -> None:
    used = {profile.lock for profile in profile_file.load_profiles().values()} | {wheels.SERVE_LOCK}
    assert used | {debian.lock_name(machine) for machine in ARM + X86} == set(LOCKS)
