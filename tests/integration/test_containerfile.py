"""The image of the Containerfile, built with buildah on the base that EDGEPACK_BASE_IMAGE names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgepack import __version__

ROOT = Path(__file__).parents[2]
BASE = os.environ.get("EDGEPACK_BASE_IMAGE", "")
TAG = "localhost/edgepack-test"

pytestmark = pytest.mark.integration
Run = Callable[..., subprocess.CompletedProcess[str]]


def buildah(*words: str, check: bool = False) -> subprocess.CompletedProcess[str]:
    """Without a daemon, namespaces and overlay mounts: chroot and whole copies of layers."""
    variables = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
    return subprocess.run(
        ["buildah", *words], cwd=ROOT, env=variables, capture_output=True, text=True, check=check, timeout=1800
    )


@pytest.fixture(scope="module")
def container() -> Iterator[Run]:
    """Runs a command in a container of the image."""
    if not BASE or shutil.which("buildah") is None or os.geteuid() != 0:
        pytest.skip("needs root, buildah, and EDGEPACK_BASE_IMAGE: Debian 12 in buildah's vfs storage")
    built = buildah("bud", "--pull-never", "--build-arg", f"BASE={BASE}", "--tag", TAG, "--file", "Containerfile", ".")
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    name = buildah("from", "--pull-never", TAG, check=True).stdout.strip()
    yield lambda *words: buildah("run", name, "--", *words)
    buildah("rm", name)
    buildah("rmi", TAG)


@pytest.mark.sweep
def test_the_image_runs_edgepack_as_nobody(container: Run) -> None:
    version = container("edgepack", "--version")
    assert version.stdout == f"edgepack, version {__version__}\n", version.stderr
    doctor = container("edgepack", "doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert "training can run here" in doctor.stdout + doctor.stderr
    assert container("id", "-u").stdout == "65532\n"
    assert container("touch", "/opt/edgepack/venv/x").returncode != 0


def test_the_containerfile_pins_packages_and_names_no_index() -> None:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    commands = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    assert commands.startswith("ARG BASE=")
    assert "://" not in commands
    assert "index" not in commands
    packages, build, own = re.findall(r"pip install ([^&\n]*)", commands)
    assert ["--require-hashes" in options for options in (packages, build)] == [True, True]
    assert own.endswith("--no-deps --no-build-isolation .")
    assert re.findall(r"^USER (.*)$", commands, flags=re.MULTILINE) == ["65532:65532"]
