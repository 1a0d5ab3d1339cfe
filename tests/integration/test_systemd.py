"""The unit that `install --systemd` writes, as systemd itself reads and judges it; nothing is started."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.serve import systemd

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here"),
]


@pytest.fixture(params=["", " with a blank", " on a GPU"])
def unit(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The unit of a prefix whose command is there."""
    prefix = Prefix(tmp_path / f"prefix{request.param}")
    command = prefix.bin / "hotel"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    path = tmp_path / "hotel.service"  # of a system's Python: one in a home would have other rights
    gpu = "GPU" in request.param
    path.write_text(systemd.unit(prefix, "hotel", interpreter=Path("/usr/bin/python3"), user="nobody", gpu=gpu))
    return path


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    line = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def test_systemd_finds_nothing_wrong_with_the_unit(unit: Path) -> None:
    found = analyze("verify", unit)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def test_its_exposure_is_low(unit: Path) -> None:
    found = analyze("security", "--offline=true", "--threshold=20", "--json=short", unit)  # 2.0 of 10
    if "unrecognized option" in found.stderr:
        pytest.skip("this systemd-analyze judges running services alone")
    assert found.returncode == 0, found.stderr
    assert any(entry["set"] for entry in json.loads(found.stdout))
