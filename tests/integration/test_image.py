"""The container image of a real bundle: read by the tools of registries, and run in a root that has nothing else."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Project

pytestmark = pytest.mark.integration
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def layout(carried: Project) -> Path:
    """The image layout, unpacked from the file that `edgepack image` writes."""
    dist = carried.folder / "dist"
    done = carried.edgepack("image", str(next(dist.glob("*.edgepack"))))
    assert done.returncode == 0, done.stderr
    with tarfile.open(dist / "tiny-0.1.0.oci.tar") as tar:
        tar.extractall(dist / "layout")
    return dist / "layout"


@pytest.fixture(scope="module")
def root(layout: Path) -> Iterator[Path]:
    """The root of the image, with /proc."""
    if os.geteuid() != 0 or platform.machine() != "x86_64":
        pytest.skip("only root on x86-64 can enter this root")

    def blob(descriptor: dict[str, str]) -> Path:
        return layout / "blobs" / descriptor["digest"].replace(":", "/")

    index = json.loads((layout / "index.json").read_text())
    images = json.loads(blob(index["manifests"][0]).read_text())
    manifest = json.loads(blob(images["manifests"][0]).read_text())
    folder = layout.parent / "root"
    for one in manifest["layers"]:
        with tarfile.open(blob(one), "r:gz") as tar:
            tar.extractall(folder)
    (folder / "config.json").write_bytes(blob(manifest["config"]).read_bytes())
    yield folder


def command(root: Path, *words: str) -> list[str]:
    """The line that runs `words` as a container: as the image's user, on a read-only root, with tmpfs on /tmp."""
    config = json.loads((root / "config.json").read_text())["config"]
    enter = (
        'mount --bind "$0" "$0" && mkdir -p "$0/proc" && mount --bind /proc "$0/proc" && mount -t tmpfs tmpfs "$0/tmp" '
        '&& chmod 1777 "$0/tmp" && mount -o remount,bind,ro "$0" && exec env -i "$@"'
    )
    environment = [*config["Env"], "HOME=/tmp", f"EDGEPACK_TOKEN={TOKEN}"]
    user = [shutil.which("chroot") or "chroot", f"--userspec={config['User']}", str(root)]
    line = [*environment, *user, *config["Entrypoint"], *(words or config["Cmd"])]
    return ["unshare", "--mount", "sh", "-c", enter, str(root), *line]


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(root, *words), capture_output=True, text=True, check=False, timeout=300)


def test_verbs_run_in_the_image(root: Path) -> None:
    done = run(root, "predict", "房间很大")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(json.loads(done.stdout)) == {"label", "score"}
    for words in (["selftest"], ["verify"], ["doctor"]):
        done = run(root, *words)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_gate_is_measured_in_the_image(root: Path) -> None:
    done = run(root, "gate", "--json")
    receipt = json.loads(done.stdout)
    assert done.returncode == {"pass": 0, "fail": 6, "inconclusive": 7}[receipt["verdict"]]
    assert [check["gate"] for check in receipt["checks"] if check["value"] is None] == []
    assert {"size.bundle_mib", "memory.peak_rss_mib"} <= {check["gate"] for check in receipt["checks"]}


def test_a_container_serves_until_sigterm(root: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    line = command(root, "serve", "--host", "0.0.0.0", "--port", str(port))
    server = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/predict", b'{"text": "x"}', headers)
        for _ in range(100):
            try:
                with urllib.request.urlopen(request, timeout=10) as answer:
                    assert "label" in json.load(answer)
                break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.fail("it does not answer")
    finally:
        server.send_signal(signal.SIGTERM)
        output, _ = server.communicate(timeout=30)
    assert '"event": "drained"' in output


def test_a_model_alone_is_a_model_folder(layout: Path, tmp_path: Path) -> None:
    """`edgert` loads its layer, unpacked as a kubelet mounts it."""
    file = tmp_path / "model.oci.tar"
    line = [sys.executable, "-I", "-m", "edgepack.cli", "image", "--model-only", "--output", str(file)]
    subprocess.run([*line, str(next(layout.parent.glob("*.edgepack")))], check=True, capture_output=True)
    with tarfile.open(file) as tar:
        tar.extractall(tmp_path / "model")
    blobs = tmp_path / "model" / "blobs"

    def blob(descriptor: dict[str, str]) -> Path:
        return blobs / descriptor["digest"].replace(":", "/")

    (named,) = json.loads((tmp_path / "model" / "index.json").read_text())["manifests"]
    (layer,) = json.loads(blob(named).read_text())["layers"]
    with tarfile.open(blob(layer), "r:gz") as tar:
        tar.extractall(tmp_path / "volume")
    line = [sys.executable, "-I", "-m", "edgepack_runtime", "predict", "--model", str(tmp_path / "volume"), "房间很大"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(json.loads(done.stdout)) == {"label", "score"}


@pytest.mark.parametrize(
    "words",
    [
        ["skopeo", "inspect", "oci:LAYOUT"],
        ["skopeo", "copy", "--all", "oci:LAYOUT", "dir:OUT"],
        ["skopeo", "copy", "oci:LAYOUT", "oci:OUT:0.1.0"],
        ["umoci", "stat", "--image", "ONE:0.1.0"],
        ["umoci", "unpack", "--image", "ONE:0.1.0", "OUT"],
    ],
    ids=" ".join,
)
def test_tools_of_registries_read_it(layout: Path, words: list[str], tmp_path: Path) -> None:
    for tool in {"skopeo", words[0]}:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    places = {"LAYOUT": layout, "ONE": tmp_path / "one", "OUT": tmp_path / "out"}
    if any("ONE" in word for word in words):  # umoci takes no index: the image for this machine
        subprocess.run(["skopeo", "copy", f"oci:{layout}", f"oci:{tmp_path}/one:0.1.0"], check=True, timeout=120)
    line = [re.sub("|".join(places), lambda found: str(places[found[0]]), word) for word in words]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
