"""How much memory a process may use, in control groups of both versions and in containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_device import V1, V2, system

from edgepack.util import hardware
from edgepack.util.hardware import Memory

CPUINFO = "processor\t: 0\nvendor_id\t: {}\nmodel name\t: some\n"


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
    found = hardware.memory(root)
    assert (found.total_bytes, found.limit_bytes) == (24684084 * 1024, limit)


def test_a_system_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    found = hardware.memory(tmp_path)
    assert found == Memory(None, found.available_bytes, None)
    assert not hardware.is_amd(tmp_path)


@pytest.mark.parametrize(("vendor", "amd"), [("AuthenticAMD", True), ("GenuineIntel", False)])
def test_processors_of_amd_are_known(tmp_path: Path, vendor: str, amd: bool) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO.format(vendor), encoding="utf-8")
    assert hardware.is_amd(tmp_path) is amd


def test_free_space_is_that_of_the_nearest_folder(tmp_path: Path) -> None:
    assert hardware.free_bytes(tmp_path / "not" / "there") > 0


def test_this_machine_can_be_looked_at() -> None:
    found = hardware.detect()
    assert found.cpu_model
    assert 1 <= found.cores.threads <= found.cores.machine
