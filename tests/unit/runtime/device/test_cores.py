"""How many cores a process may use, in control groups of both versions and in containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.runtime.fake_device import DOCKER_V1, V1, V2, system

from edgepack_runtime.device import conditions, cores
from edgepack_runtime.device.cores import Cores


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "quota"),
    [
        (V2, "0::/\n", {}, None),
        (V2, "0::/job\n", {"job/cpu.max": "max 100000\n"}, None),
        (V2, "0::/job\n", {"job/cpu.max": "150000 100000\n"}, 1.5),
        (V2, "0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, 0.5),
        (V2, "0::/a/b\n", {"a/b/cpu.max": "200000 100000\n", "a/cpu.max": "300000 100000\n"}, 2.0),
        (V2, "0::/../other\n", {"cpu.max": "400000 100000\n"}, 4.0),  # a group outside of the namespace
        (V1, "4:cpu,cpuacct:/\n", {"cpu,cpuacct/cpu.cfs_quota_us": "-1\n"}, None),
        (
            V1,
            "9:name=systemd:/x\n4:cpu,cpuacct:/job\n0::/\n",
            {"cpu,cpuacct/job/cpu.cfs_quota_us": "250000\n", "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n"},
            2.5,
        ),
        (
            DOCKER_V1,
            "4:cpu,cpuacct:/docker/4f2a\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "300000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            3.0,
        ),
        (
            DOCKER_V1,  # the group is told as the container's host sees it, the mount is the container's
            "4:cpu,cpuacct:/kubepods/x\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "100000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            1.0,
        ),
        (V2, "0::/job\n", {"job/cpu.max": "nonsense\n"}, None),
        (V2, "0::/job\n", {"job/cpu.max": "100 0\n"}, None),
        ("broken - line\n\n", "nonsense\n", {}, None),
    ],
)
def test_the_quota_of_control_groups_is_found(
    tmp_path: Path, mounts: str, groups: str, files: dict[str, str], quota: float | None
) -> None:
    found = cores.cores(system(tmp_path, mounts, groups, files))
    assert found.quota == quota
    assert (found.machine, found.allowed) == (os.cpu_count(), len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("found", "threads", "text"),
    [
        (Cores(8, 8, None), 8, "8 of 8 cores"),
        (Cores(8, 3, None), 3, "3 of 8 cores"),
        (Cores(64, 64, 4.0), 4, "64 of 64 cores, and a quota of 4"),
        (Cores(64, 64, 3.9), 3, "64 of 64 cores, and a quota of 3.9"),
        (Cores(64, 2, 16.0), 2, "2 of 64 cores, and a quota of 16"),
        (Cores(4, 4, 0.5), 1, "4 of 4 cores, and a quota of 0.5"),
    ],
)
def test_threads_are_what_can_run_at_the_same_time(found: Cores, threads: int, text: str) -> None:
    assert found.threads == threads
    assert str(found) == text


def test_the_threads_of_a_container_are_those_that_its_quota_pays_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(32)))
    root = system(tmp_path, V2, "0::/\n", {"cpu.max": "200000 100000\n"})
    assert cores.usable_cores(root) == 2
    assert conditions.collect(threads=1, engine="", providers=(), root=root).cores == 2


def test_less_than_a_core_is_not_called_a_core(tmp_path: Path) -> None:
    root = system(tmp_path, V2, "0::/\n", {"cpu.max": "50000 100000\n"})
    share = conditions.collect(threads=1, engine="", providers=(), root=root).cores
    assert (share, cores.named(share), cores.named(1), cores.named(2)) == (0.5, "0.5 of a core", "1 core", "2 cores")
