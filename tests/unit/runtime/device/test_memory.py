"""How much memory a process may use, in control groups of both versions and in containers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.runtime.fake_device import V1, V2, system

from edgepack_runtime.device import memory


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
    (root / "proc/meminfo").write_text("MemTotal:       24684084 kB\nMemAvailable:   2000000 kB\n", encoding="utf-8")
    assert memory.limit_bytes(root) == limit
    assert memory.usable_bytes(root) == min(limit or 2**40, 2_000_000 * 1024)
    (root / "proc/meminfo").unlink()
    assert memory.usable_bytes(root) == limit
