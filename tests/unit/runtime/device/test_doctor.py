"""Checks of a device before an install."""

from __future__ import annotations

import dataclasses
import os
import platform
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from edgepack_runtime.bundle.manifest import Interpreter, Manifest
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.device import cores, doctor, info, jetson, nvidia
from edgepack_runtime.device.jetson import JetsonFacts
from edgepack_runtime.device.nvidia import CudaFacts
from edgepack_runtime.errors import EnvironmentUnfitError
from edgepack_runtime.messages import message


@pytest.fixture
def manifest(small_bundle: Path) -> Manifest:
    return verify_file(small_bundle)[0]


def failed(manifest: Manifest, **options: Any) -> list[str]:
    return [check.check for check in doctor.check_device(manifest, **options) if not check.ok]


def with_target(manifest: Manifest, **facts: Any) -> Manifest:
    return dataclasses.replace(manifest, target=dataclasses.replace(manifest.target, **facts))


def test_a_quota_below_one_core_is_named(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "cores", lambda: cores.Cores(8, 8, 1 / 3))
    (check,) = [check for check in doctor.check_device(manifest) if check.check == "cpu"]
    assert ", 0.33 of a core, " in check.what


def test_checks_are_shown_in_chinese(manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    checks = [
        *doctor.check_device(manifest, prefix=tmp_path),
        doctor.Check("python", True, "CPython", message("doctor.only_root", python="p", folder="f"), "fix"),
    ]
    shown = doctor.render(checks)
    assert "可以写入" in shown and "原因：安装后只有 root 能启动它" in shown and "解决办法：fix" in shown
    assert not {"available", "needed", "loaded", "written", "complete", "why", "needs"} & set(shown.split())


def test_this_machine_is_fit_for_a_bundle_made_for_it(manifest: Manifest, tmp_path: Path) -> None:
    checks = doctor.check_device(manifest, prefix=tmp_path / "not" / "yet")
    assert failed(manifest, prefix=tmp_path) == []
    doctor.require(checks)
    assert not (tmp_path / "not").exists()
    assert all(check.what for check in checks)


@pytest.mark.parametrize(("facts", "check"), [({"machines": ("riscv64",)}, "system"), ({"libc_min": "99.1"}, "libc")])
def test_each_unfit_fact_is_named_with_a_remedy(manifest: Manifest, facts: dict[str, Any], check: str) -> None:
    checks = [item for item in doctor.check_device(with_target(manifest, **facts)) if not item.ok]
    assert [item.check for item in checks] == [check]
    assert checks[0].why
    assert checks[0].fix
    with pytest.raises(EnvironmentUnfitError) as caught:
        doctor.require(checks)
    assert checks[0].what in str(caught.value)
    assert f"fix: {checks[0].fix}" in doctor.render(checks)


def test_versions_are_compared_as_numbers(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "libc", lambda: ("glibc", "2.9"))
    assert failed(with_target(manifest, libc_min="2.28")) == ["libc"]
    monkeypatch.setattr(info, "libc", lambda: ("glibc", "2.100"))
    assert failed(with_target(manifest, libc_min="2.28")) == []


def test_a_bundle_with_an_interpreter_needs_nothing_of_the_system(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(info, "libc", lambda: ("unknown", ""))
    monkeypatch.setattr(doctor, "_LIBRARIES", ("libno-such-thing.so.1",))
    carried = (Interpreter(platform.machine(), "3.11.2", 1, "0" * 64),)
    bundled = dataclasses.replace(with_target(manifest, interpreter="bundled"), interpreters=carried)
    assert failed(manifest) == ["libc", "library"]
    assert failed(bundled) == []
    assert "3.11.2" in doctor.render(doctor.check_device(bundled))


def test_other_pythons_and_systems_are_refused(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Plan9")
    assert failed(manifest) == ["system"]
    monkeypatch.undo()
    monkeypatch.setattr(platform, "python_implementation", lambda: "PyPy")
    assert failed(manifest) == ["python"]


def test_a_32_bit_python_on_a_64_bit_kernel(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(struct, "calcsize", lambda form: 4)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    checks = doctor.check_device(with_target(manifest, machines=("aarch64",)))
    assert "32-bit" in next(check.what for check in checks if check.check == "system")


def test_the_doctor_names_missing_parts_of_python_and_missing_libraries(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ctypes", None)
        assert failed(manifest) == ["stdlib", "library", "library"]
    monkeypatch.setattr(doctor, "_LIBRARIES", ("libno-such-thing.so.1",))
    assert failed(manifest) == ["library"]


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"f_flag": os.ST_NOEXEC}, "mount"),
        ({"f_flag": os.ST_RDONLY}, "write"),
        ({"f_files": 10**6, "f_favail": 10}, "disk"),
        ({"f_bavail": 1}, "disk"),
    ],
)
def test_the_doctor_refuses_an_unfit_file_system(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, int], check: str
) -> None:
    disk = {"f_bavail": 10**9, "f_frsize": 4096, "f_files": 0, "f_favail": 0, "f_flag": 0, **changes}
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**disk))
    assert failed(manifest, prefix=tmp_path) == [check]


def test_the_doctor_refuses_a_folder_that_this_user_may_not_write(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert failed(manifest, prefix=tmp_path) == ["write"]


def test_the_doctor_compares_the_memory_with_the_gate(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    gated = dataclasses.replace(manifest, gates={"memory": {"peak_rss_mib": 250}})
    monkeypatch.setattr(info, "memory_available_bytes", lambda: 200 * 2**20)
    assert failed(manifest) == []
    assert failed(gated) == ["memory"]
    monkeypatch.setattr(info, "memory_available_bytes", lambda: None)
    assert failed(gated) == []


@pytest.mark.parametrize(
    ("precision", "flags", "message"),
    [
        ("float32", "avx2", "int8: no VNNI or SDOT"),
        ("int8", "avx2", "int8: no VNNI or SDOT: int8 runs, but slower and with different rounding; the gate decides"),
        ("int8", "avx512_vnni", "int8: avx512_vnni"),
        ("float16", "avx2", "no VNNI or SDOT; float16 is computed in float32 and is not faster; the gate decides"),
        ("float16", "asimddp asimdhp", "int8: asimddp"),
    ],
)
def test_a_cpu_that_is_slow_for_a_precision_is_described(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch, precision: str, flags: str, message: str
) -> None:
    monkeypatch.setattr(info, "cpu_flags", flags.split)
    manifest = dataclasses.replace(manifest, model={**manifest.model, "precision": precision})
    (check,) = [check for check in doctor.check_device(manifest) if check.check == "cpu"]
    assert check.ok
    assert check.what.endswith(message)


def test_an_emulated_cpu_is_described(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(info, "emulation", lambda machine: "the kernel is x86_64")
    (check,) = [check for check in doctor.check_device(manifest) if check.check == "cpu"]
    assert check.ok
    assert check.what.endswith("; emulated (the kernel is x86_64): latencies are meaningless")


def no_gpu() -> NoReturn:
    raise EnvironmentUnfitError("NVIDIA's driver is missing", why="no libcuda", fix="install it")


def test_a_target_with_a_gpu_needs_one(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    for_cuda = with_target(manifest, provider="CUDAExecutionProvider")
    monkeypatch.setattr(nvidia, "gpu_facts", no_gpu)
    assert (failed(manifest), failed(for_cuda)) == ([], ["gpu"])
    monkeypatch.setattr(nvidia, "gpu_facts", lambda: CudaFacts("Orin", "8.7", "12.6", 7168))
    assert failed(for_cuda) == []
    monkeypatch.setattr(jetson, "facts", lambda: JetsonFacts("36.4.3", "6.2", "MAXN (0)"))
    message = doctor.render(doctor.check_device(for_cuda))
    assert "Orin, compute capability 8.7, driver for CUDA up to 12.6, 7168 MiB" in message
    assert "JetPack 6.2, Jetson Linux 36.4.3, power mode MAXN (0)" in message


@pytest.mark.parametrize("option", ["--prefix", "TMPDIR"])
def test_a_folder_without_programs_names_what_chooses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda place: SimpleNamespace(f_flag=os.ST_NOEXEC))
    found = doctor.check_executable(tmp_path, option=option)
    assert (found.ok, found.fix) == (False, f"give a folder on another file system with {option}")


def test_a_python_that_only_root_can_run_is_a_warning(
    tmp_path: Path, manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (closed := tmp_path / "root").mkdir(mode=0o700)
    (closed / "python3").symlink_to(sys.executable)
    open_to_all = [path for path in (closed, *closed.parents) if path.stat().st_mode & 0o001]
    assert doctor.closed_to_others(closed / "python3") not in (None, *open_to_all)
    monkeypatch.setattr(doctor, "closed_to_others", lambda path: closed)
    for user, warned in ((0, True), (1000, False)):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        [check] = [one for one in doctor.check_device(manifest) if one.check == "python"]
        assert check.ok and (f"is below {closed}, which others cannot enter" in check.why) == warned
        assert ("/usr/bin/python3 FILE install" in check.fix) == warned
