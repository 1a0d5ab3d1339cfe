"""Facts of devices of several kinds."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from tests.unit.runtime.fake_device import ORIN, tree

from edgepack_runtime.device import info, jetson


def test_the_release_and_power_mode_of_a_jetson(tmp_path: Path) -> None:
    root = tree(tmp_path, ORIN)
    assert jetson.facts(root) == ("36.4.3", "6.2", "MAXN_SUPER (2)")
    assert info.board(root) == "NVIDIA Jetson Orin Nano Developer Kit"
    assert info.system_release(root) == {"id": "ubuntu", "version": "22.04", "name": "Ubuntu 22.04.5 LTS"}
    assert info.cpu_flags(root) == ["asimd", "asimddp", "asimdhp"]
    assert info.memory_total_bytes(root) == 7802564 * 1024
    assert info.memory_available_bytes(root) == 5120000 * 1024


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        ("var/lib/dpkg/status", ("36.4.3", "6", "MAXN_SUPER (2)")),  # flashed without the SDK
        ("etc/nvpmodel.conf", ("36.4.3", "6.2", "2")),
        ("var/lib/nvpmodel/status", ("36.4.3", "6.2", None)),
        ("etc/nv_tegra_release", None),
    ],
)
def test_a_jetson_with_files_missing(tmp_path: Path, left_out: str, expected: object) -> None:
    assert jetson.facts(tree(tmp_path, {name: text for name, text in ORIN.items() if name != left_out})) == expected
    removed = {"var/lib/dpkg/status": ORIN["var/lib/dpkg/status"].replace("ok installed", "ok x")}
    if left_out in removed:  # so is a package that was removed
        assert jetson.facts(tree(tmp_path, removed)) == expected


@pytest.mark.parametrize(("release", "jetpack"), [("R35", "5"), ("R38", "7"), ("R99", None)])
def test_the_jetpack_of_a_release(tmp_path: Path, release: str, jetpack: str | None) -> None:
    told = ORIN["etc/nv_tegra_release"].replace("R36", release)
    found = jetson.facts(tree(tmp_path, {"etc/nv_tegra_release": told}))
    assert found is not None and found.jetpack == jetpack


def test_missing_files_are_no_error(tmp_path: Path) -> None:
    assert jetson.facts(tmp_path) is None
    assert info.board(tmp_path) is None
    assert info.memory_available_bytes(tmp_path) is info.memory_total_bytes(tmp_path) is None
    assert info.cpu_flags(tmp_path) == []
    assert info.cpu_model(tmp_path) == platform.machine()
    assert info.system_release(tmp_path) == {"id": "", "version": "", "name": ""}


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("processor : 0\nflags\t: fpu avx2 avx512_vnni\n", ["avx2", "avx512_vnni"]),
        ("processor : 0\nFeatures\t: fp asimd asimddp asimdhp\n", ["asimd", "asimddp", "asimdhp"]),
        ("processor : 0\n", []),
    ],
)
def test_cpu_flags_of_both_kinds_of_machine(tmp_path: Path, text: str, flags: list[str]) -> None:
    assert info.cpu_flags(tree(tmp_path, {"proc/cpuinfo": text})) == flags


def test_another_libc_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "confstr", unknown)
    assert info.libc() == ("unknown", "")
    monkeypatch.setattr(os, "confstr", lambda name: None)
    assert info.libc() == ("unknown", "")


def test_the_c_library_in_c_plus_plus_of_this_system() -> None:
    version = info.libstdcxx()
    assert version is not None and version.startswith("3.4.")  # numpy, which these tests need, is linked with it


@pytest.mark.parametrize(
    ("files", "guest"),
    [
        ({"proc/cpuinfo": "flags\t\t: fpu avx2 hypervisor\n"}, True),
        ({"proc/cpuinfo": "flags\t\t: fpu avx2\n"}, False),
        ({"proc/cpuinfo": "Features\t: fp asimd\n", "sys/hypervisor/type": "xen\n"}, True),
        ({"proc/cpuinfo": "Features\t: fp asimd\n", "proc/device-tree/hypervisor/compatible": "linux,kvm"}, True),
        ({"proc/cpuinfo": "Features\t: fp asimd\n"}, None),
        ({}, None),
    ],
)
def test_a_guest_of_a_hypervisor_is_recognised(tmp_path: Path, files: dict[str, str], guest: bool | None) -> None:
    assert info.is_guest(tree(tmp_path, files)) is guest
