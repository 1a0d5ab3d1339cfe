"""Nothing reports home: no verb of a device and no offline build opens a socket; `serve` opens the one it was told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.unit.onnx_graph.imported_texts import model

from edgepack.sandbox import seccomp

from . import no_network
from .conftest import Project
from .served import RUNTIME, Served
from .test_imported_text import write_project

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not seccomp.is_known(), reason="no numbers of this machine's calls"),
]
WITHOUT = [sys.executable, no_network.__file__]
KILLED = -signal.SIGSYS


def run(*command: str | Path, mode: str = "none", **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WITHOUT, mode, *map(str, command)],
        text=True,
        capture_output=True,
        env={**os.environ, **variables},
        check=False,
    )


@pytest.mark.parametrize("mode", ["none", "listen"])
@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.getaddrinfo('example.org', 443)",
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import subprocess as s, sys; sys.exit(s.call([sys.executable, '-c', 'import socket; socket.socket(2, 2)']))",
    ],
)
def test_the_filter_finds_a_connection_and_a_name(mode: str, code: str) -> None:
    done = run(sys.executable, "-c", code, mode=mode)
    assert done.returncode in (KILLED, KILLED % 256)
    assert run(sys.executable, "-c", "import socket; socket.socketpair()", mode=mode).returncode == 0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for an empty home, with the telemetry of ONNX Runtime on."""
    return {"HOME": str(tmp_path_factory.mktemp("home")), "ORT_DISABLE_TELEMETRY": "0"}


@pytest.fixture(scope="module")
def prefix(project: Project, home: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of an install which opened no socket."""
    folder = tmp_path_factory.mktemp("installed") / "prefix"
    line = ("sh", project.bundle, "install", "--wait", "0", "--prefix", folder, "--accept-inconclusive")
    done = run(*line, **home)
    assert done.returncode == 0, done.stderr
    return folder


def test_no_verb_of_a_device_opens_a_socket(project: Project, prefix: Path, home: dict[str, str]) -> None:
    bundle = project.bundle
    lines = [
        ("sh", bundle, "verify"),
        ("sh", bundle, "doctor"),
        ("sh", bundle, "selftest"),
        ("sh", bundle, "gate"),
        ("sh", bundle, "predict", "好"),
        (prefix / "bin" / "tiny", "status"),
        (prefix / "bin" / "tiny", "predict", "好"),
        (sys.executable, "-c", f"from edgepack_runtime import Predictor; Predictor({str(prefix)!r}).predict('好')"),
    ]
    for line in lines:
        done = run(*line, **home)
        assert done.returncode == 0, (line, done.stderr)
    assert not list(Path(home["HOME"]).rglob("*"))  # no device id


def test_serve_opens_the_socket_that_it_was_told(prefix: Path) -> None:
    serve = ["serve", "--model", str(prefix), "--port", "0"]
    line = [*WITHOUT, "listen", sys.executable, "-m", "edgepack_runtime", *serve]
    process = subprocess.Popen(
        line, stderr=subprocess.PIPE, encoding="utf-8", env={**os.environ, "PYTHONPATH": str(RUNTIME)}
    )
    server = Served(process)
    try:
        body = json.dumps({"text": "好"}).encode()
        asked = urllib.request.Request(f"{server.url}/predict", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked) as answer:
            assert answer.status == 200
        opened = []
        for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                opened.append(str(link.readlink()))
        inodes = {name[len("socket:[") : -1] for name in opened if name.startswith("socket:")}
        tables = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = [line[1] for line in tables if line[9] in inodes and line[3] == "0A"]
        assert len(listening) == 1
        assert listening[0].startswith("0100007F:")  # the loopback
        assert server.stop(signal.SIGTERM) in (0, 128 + signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        server.close()


def test_no_build_of_an_imported_model_opens_a_socket(tmp_path: Path) -> None:
    rows = [{"text": text * n, "label": label} for n in (1, 2, 3) for text, label in (("好", "pos"), ("坏", "neg"))] * 6
    (tmp_path / "labels.txt").write_text("pos\nneg\n", encoding="utf-8")
    project = write_project(tmp_path, model(), rows, labels="labels.txt", task="text-classification")
    done = run(sys.executable, "-I", "-m", "edgepack.cli", "build", project.folder / "imported.yaml")
    assert done.returncode == 0, done.stderr
