"""How many cores and how much memory a process may use, in control groups of both versions and in containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgepack import machine
from edgepack.machine import Cores, Memory

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
)
DOCKER_V1 = (
    "701 700 0:29 /docker/4f2a /sys/fs/cgroup/cpu,cpuacct ro master:11 - cgroup cgroup rw,cpu,cpuacct\n"
    "702 700 0:30 /docker/4f2a /sys/fs/cgroup/memory ro master:12 - cgroup cgroup rw,memory\n"
)
CPUINFO = "processor\t: 0\nvendor_id\t: {}\nmodel name\t: some\n"


def system(root: Path, mounts: str, groups: str, files: dict[str, str]) -> Path:
    """A file system with /proc/self and `files` below /sys/fs/cgroup."""
    content = {"proc/self/mountinfo": mounts, "proc/self/cgroup": groups}
    content |= {f"sys/fs/cgroup/{path}": text for path, text in files.items()}
    for path, text in content.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


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
    found = machine.cores(system(tmp_path, mounts, groups, files))
    assert found.quota == quota
    assert (found.machine, found.allowed) == (os.cpu_count(), len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("cores", "threads", "text"),
    [
        (Cores(8, 8, None), 8, "8 of 8 cores"),
        (Cores(8, 3, None), 3, "3 of 8 cores"),
        (Cores(64, 64, 4.0), 4, "64 of 64 cores, and a quota of 4"),
        (Cores(64, 64, 3.9), 3, "64 of 64 cores, and a quota of 3.9"),
        (Cores(64, 2, 16.0), 2, "2 of 64 cores, and a quota of 16"),
        (Cores(4, 4, 0.5), 1, "4 of 4 cores, and a quota of 0.5"),
    ],
)
def test_threads_are_what_can_run_at_the_same_time(cores: Cores, threads: int, text: str) -> None:
    assert cores.threads == threads
    assert str(cores) == text


@pytest.mark.parametrize(
    ("mounts", "groups", "files", "limit"),
    [
        (V2, "0::/job\n", {"job/memory.max": "max\n"}, None),
        (V2, "0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "2147483648\n"}, 2**31),
        (V1, "5:memory:/job\n", {"memory/job/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        (V1, "5:memory:/job\n", {"memory/job/memory.limit_in_bytes": "1073741824\n"}, 2**30),
    ],
)
def test_the_limit_of_memory_is_found(
    tmp_path: Path, mounts: str, groups: str, files: dict[str, str], limit: int | None
) -> None:
    root = system(tmp_path, mounts, groups, files)
    (root / "proc/meminfo").write_text("MemTotal:       24684084 kB\nMemFree: 1 kB\n", encoding="utf-8")
    found = machine.memory(root)
    assert (found.total_bytes, found.limit_bytes) == (24684084 * 1024, limit)


def test_a_system_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    assert machine.cores(tmp_path).quota is None
    found = machine.memory(tmp_path)
    assert found == Memory(None, found.available_bytes, None)
    assert not machine.is_amd(tmp_path)


@pytest.mark.parametrize(("vendor", "amd"), [("AuthenticAMD", True), ("GenuineIntel", False)])
def test_processors_of_amd_are_known(tmp_path: Path, vendor: str, amd: bool) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO.format(vendor), encoding="utf-8")
    assert machine.is_amd(tmp_path) is amd


def test_free_space_is_that_of_the_nearest_folder(tmp_path: Path) -> None:
    assert machine.free_bytes(tmp_path / "not" / "there") > 0


def test_this_machine_can_be_looked_at() -> None:
    found = machine.look()
    assert found.cpu_model
    assert 1 <= found.cores.threads <= found.cores.machine
