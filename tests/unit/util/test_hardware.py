"""Facts about this machine for training."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.util import hardware
from edgepack.util.hardware import Memory

CPUINFO = "processor\t: 0\nvendor_id\t: {}\nmodel name\t: some\n"


def test_a_system_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    found = hardware.memory(tmp_path)
    assert found == Memory(None, None, None)
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
