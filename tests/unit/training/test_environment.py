"""What Paddle is told before it is imported, and what is missing; the import itself needs Paddle."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from edgepack.errors import EnvironmentUnfitError
from edgepack.training import diagnosis, environment
from edgepack.training.environment import AMD_VARIABLE, STRIDES_VARIABLE, THREADS_VARIABLE, Setting

STACK = {"paddlepaddle": "3.3.1", "paddlenlp": "3.0.0b4", "paddleslim": "2.6.0", "paddle2onnx": "2.1.0"}


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 3})
    monkeypatch.setattr("os.cpu_count", lambda: 8)


def install(monkeypatch: pytest.MonkeyPatch, packages: dict[str, str]) -> None:
    def version(name: str) -> str:
        if name not in packages:
            raise importlib.metadata.PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(importlib.metadata, "version", version)


def processor(root: Path, vendor: str) -> Path:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc" / "cpuinfo").write_text(f"vendor_id\t: {vendor}\n", encoding="utf-8")
    return root


@pytest.mark.usefixtures("two_cores")
def test_paddle_gets_every_core_and_the_fast_path_on_amd(tmp_path: Path) -> None:
    threads, amd, *_ = environment.settings({}, processor(tmp_path, "AuthenticAMD"))
    assert (threads.name, threads.value, threads.given) == (THREADS_VARIABLE, "2", False)
    assert "2 of 8 cores" in threads.why
    assert (amd.name, amd.value, amd.given) == (AMD_VARIABLE, "5", False)
    assert "half speed" in amd.why
    names = [setting.name for setting in environment.settings({}, processor(tmp_path, "GenuineIntel"))]
    assert THREADS_VARIABLE in names and AMD_VARIABLE not in names


@pytest.mark.usefixtures("two_cores")
def test_the_quota_of_a_container_counts(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n", encoding="utf-8")
    mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    (tmp_path / "proc/self/mountinfo").write_text(mount, encoding="utf-8")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("100000 100000\n", encoding="utf-8")
    assert environment.threads(environment.settings({}, tmp_path)) == 1


def test_what_the_user_set_is_kept(tmp_path: Path) -> None:
    given = {THREADS_VARIABLE: "7", AMD_VARIABLE: "4", STRIDES_VARIABLE: "1", "GLOG_minloglevel": "0"}
    found = environment.settings(given, processor(tmp_path, "AuthenticAMD"))
    assert {setting.name: setting.value for setting in found} == given
    assert all(setting.given for setting in found)


@pytest.mark.parametrize(("package", "value"), [("paddlepaddle", "0"), ("paddlepaddle-gpu", None)])
def test_a_build_for_the_cpu_copies_what_it_transposes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str, value: str | None
) -> None:
    """What a build with CUDA gains or loses by it was never measured: it stays as it is."""
    install(monkeypatch, {package: "3.3.1"})
    found = {setting.name: setting.value for setting in environment.settings({}, tmp_path)}
    assert found.get(STRIDES_VARIABLE) == value


@pytest.mark.parametrize(("text", "threads"), [("7", 7), ("4,2", 1), ("all", 1), ("0", 1), ("", 1)])
def test_threads_are_counted_as_paddle_counts_them(text: str, threads: int) -> None:
    assert environment.threads((Setting(THREADS_VARIABLE, text, "", True),)) == threads


def test_the_first_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {name: version for name, version in STACK.items() if name != "paddleslim"})
    assert environment.installed() == {**STACK, "paddleslim": None}
    with pytest.raises(EnvironmentUnfitError, match="paddleslim is not installed"):
        environment.versions()


@pytest.mark.parametrize(
    ("packages", "gpu", "both"),
    [
        (STACK, False, False),
        ({**STACK, "paddlepaddle-gpu": "2.6.2"}, True, True),
        ({name.replace("dlepaddle", "dlepaddle-gpu"): version for name, version in STACK.items()}, True, False),
    ],
)
def test_the_gpu_build_counts_as_paddle_and_two_builds_are_noticed(
    monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], gpu: bool, both: bool
) -> None:
    install(monkeypatch, packages)
    assert (environment.has_gpu_build(), environment.has_both_builds()) == (gpu, both)
    assert environment.versions() == STACK


GOMP = "libgomp.so.1: cannot open shared object file: No such file or directory"  # as slim images lack it


@pytest.fixture
def broken_paddle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A Paddle that can be made to fail when it is imported; what importing sets is taken back."""
    install(monkeypatch, STACK)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("paddle", "paddlenlp")]:
        monkeypatch.delitem(sys.modules, name)
    for setting in environment.settings({}):
        monkeypatch.setenv(setting.name, setting.value)
    monkeypatch.setenv("PPNLP_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "paddle.py"
    sys.modules.pop("paddle", None)


@pytest.mark.parametrize(
    ("source", "why", "fix"),
    [
        ("import library_that_is_not_here", "No module named 'library_that_is_not_here'", "make install"),
        ("import sys; sys.float8_e5m2", "AttributeError: module 'sys' has no attribute 'float8_e5m2'", "make install"),
        ("raise OSError('libcudnn.so.9: cannot open')", "OSError: libcudnn.so.9: cannot open", "make install"),
        (f"raise ImportError('{GOMP}')", GOMP, "libgomp1"),
    ],
)
def test_a_stack_that_does_not_fit_together_is_exit_4(broken_paddle: Path, source: str, why: str, fix: str) -> None:
    broken_paddle.write_text(source + "\n", encoding="utf-8")
    with pytest.raises(EnvironmentUnfitError, match="the Paddle stack cannot be imported") as caught:
        environment.start()
    assert caught.value.why == why
    assert fix in caught.value.fix


def test_a_home_that_cannot_be_made_is_exit_4(monkeypatch: pytest.MonkeyPatch, broken_paddle: Path) -> None:
    broken_paddle.write_text("", encoding="utf-8")
    monkeypatch.setenv("PPNLP_HOME", str(broken_paddle / "home"))

    def never() -> NoReturn:
        raise AssertionError("nothing is set before it is known that Paddle can be imported")

    monkeypatch.setattr(environment, "settings", never)
    with pytest.raises(EnvironmentUnfitError, match="cannot keep its files"):
        environment.start()


def test_packages_of_other_versions_than_the_tested_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(
        "# comment\nnumpy==1.0 ; python_version < '3'\nnumpy==0.1\nclick==0.1\nsetuptools==0.1\nmissing==1.0\n"
        "paddlepaddle==3.3.1\n"
    )
    installed = {"numpy": "0.1", "click": "8.2", "missing": None, "paddlepaddle": "3.3.1+local"}
    installed["setuptools"] = "82"
    monkeypatch.setattr(environment, "CONSTRAINTS", constraints)
    monkeypatch.setattr(environment, "_version", installed.__getitem__)
    assert environment.other_versions() == {"click": ("8.2", "0.1")}
    [problem] = diagnosis._other_versions()
    assert f"`{sys.executable} -m pip install -c " in problem.fix
    assert (problem.severity, problem.what) == ("warning", "1 package not of the tested version: click 8.2 (0.1)")
