"""The facts that travel back from a device."""

from __future__ import annotations

import json
import platform
import stat
import sys
from pathlib import Path

import pytest
from tests.unit.runtime.fake_device import ORIN, tree
from tests.unit.runtime.installing import Device

from edgepack_runtime.device import probe


def test_a_probe_is_plain_json_about_this_machine_and_names_nobody() -> None:
    facts = probe.collect()
    told = probe.dump(facts).decode()
    assert json.loads(told) == facts
    assert (facts["edgepack_probe"], facts["machine"]) == (1, platform.machine())
    assert facts["python"]["version"] == platform.python_version()
    assert platform.node() not in told
    assert all(key not in told for key in ("serial", "hostname", "address"))


def test_a_jetson(tmp_path: Path) -> None:
    facts = probe.collect(tree(tmp_path, ORIN))
    assert facts["jetson"] == {"l4t": "36.4.3", "jetpack": "6.2", "power_mode": "MAXN_SUPER (2)"}
    assert facts["distribution"]["version"] == "22.04"
    assert facts["memory_total_mib"] == 7619


@pytest.mark.parametrize(
    ("program", "version"),
    [
        ("echo 'OpenSSH_8.2p1 Ubuntu-4ubuntu0.11, OpenSSL 1.1.1f' >&2", "8.2"),
        ("echo 'OpenSSH_10.0p2, OpenSSL 3' >&2", "10.0"),
        ("echo 'Dropbear v2022.83' >&2", None),
        ("exit 1", None),
    ],
)
def test_openssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, version: str | None) -> None:
    monkeypatch.setattr(probe, "_SYSTEM", str(tmp_path))
    assert probe.openssh_version() is None
    for name in ("ssh", "ssh-keygen"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / name).chmod(0o755)
    assert probe.openssh_version() == version


def test_the_doctor_writes_it_even_where_the_bundle_does_not_fit(bundle: Path, tmp_path: Path, device: Device) -> None:
    file = tmp_path / "probe.json"
    done = device(sys.executable, bundle, "doctor", "--probe", file, "--prefix", "/proc/none")
    assert done.returncode == 4
    assert json.loads(file.read_bytes())["edgepack_probe"] == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o644  # for whoever carries it
    assert f"device facts written to {file}" in done.stderr
    done = device(sys.executable, bundle, "doctor", "--probe", "/proc/none/probe.json")
    assert done.returncode == 4
    assert "the probe /proc/none/probe.json cannot be written" in done.stderr
