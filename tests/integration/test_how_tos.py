"""The commands of the how-tos run, on the tiny model: each `sh` block that has no title."""

from __future__ import annotations

import json
import os
import re
import shutil
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import RECIPE, Project, write_rows
from tests.integration.doc_commands import blocks
from tests.integration.warm import warm

from edgepack.targets.this_machine import base_python
from edgepack_runtime.util import gate_lock

ROOT = Path(__file__).parents[2]
HOW_TOS = ROOT / "docs" / "how-to"
PAGES = [
    page
    for page in sorted(HOW_TOS.glob("*.md"))
    if not page.name.endswith(".zh-CN.md") and any(not block.title for block in blocks(page))
]
# What is typed as .venv/bin/edgepack: it asks a server for the command, which has imported everything already.
EDGEPACK = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    server.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    code, out, err = json.load(server.makefile())
sys.stderr.write(err)
sys.stdout.write(out)
sys.exit(code)
"""


class Command(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        arguments, folder, environment = json.loads(self.rfile.read())
        done = warm().run(arguments, Path(folder), environment)
        self.wfile.write(json.dumps([done.returncode, done.stdout, done.stderr]).encode())


@pytest.fixture(scope="module")
def edgepack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A program `edgepack`."""
    folder = tmp_path_factory.mktemp("edgepack")
    program, address = folder / "edgepack", str(folder / "socket")
    program.write_text(EDGEPACK.format(python=base_python(), address=address), encoding="utf-8")
    program.chmod(0o755)
    with socketserver.UnixStreamServer(address, Command) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield program
        server.shutdown()
        thread.join()


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script as somebody types it in the repository, with the tiny model in the place of the quickstart's.

    Its installs do not wait until the other tests on this machine are quiet.
    """
    typed = re.sub(r"(\.edgepack|bin/tiny) install ", r"\1 install --wait 0 ", script.replace("quickstart", "tiny"))
    cache = os.environ.get("EDGEPACK_CACHE", str(Path.home() / ".cache" / "edgepack"))
    environment = {
        "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
        "HOME": str(folder / "home"),
        "EDGEPACK_CACHE": cache,
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        gate_lock.VARIABLE: os.environ[gate_lock.VARIABLE],
    }
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", typed],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=600,
        start_new_session=True,  # no terminal: nothing can ask
    )


@pytest.fixture(scope="module")
def installed(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the tutorial's model is installed, and the python3 that it was built for."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    (folder / "home").mkdir()
    shutil.copytree(project.folder / "dist", folder / "dist")
    (folder / "recipes").mkdir()
    (folder / "recipes" / "dist").symlink_to("../dist")
    done = run("sh recipes/dist/quickstart-0.1.0-local.edgepack install --prefix ~/quickstart", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def repository(project: Project, installed: Path, edgepack: Path, tmp_path: Path) -> Path:
    """A folder with what a reader has after the tutorial: .venv, recipe and data, stage results, recipes/dist/."""
    folder = tmp_path / "repository"
    shutil.copytree(project.folder, folder)
    (folder / "tiny.yaml").unlink()
    (folder / "recipes").mkdir()
    (folder / "recipes" / "dist").symlink_to("../dist")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "edgepack").symlink_to(edgepack)
    (folder / "bin").symlink_to(installed / "bin")
    (folder / "home").symlink_to(installed / "home")
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_how_to_run(page: Path, repository: Path) -> None:
    scripts = [block.text for block in blocks(page) if not block.title]
    if any("ssh-keygen" in script for script in scripts) and shutil.which("ssh-keygen") is None:
        pytest.skip("needs OpenSSH")
    if any("edgepack init" in script for script in scripts):
        for name in ("train.tsv", "dev.tsv", "test.tsv"):
            (repository / name).unlink()
    else:
        (repository / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    rows = repository / "rows"
    rows.mkdir()
    write_rows(rows)
    lines = (rows / "train.tsv").read_text(encoding="utf-8").replace(",", "，").replace("\t", ",")
    (repository / "reviews.csv").write_text(lines, encoding="utf-8")
    for script in scripts:
        done = run(script, repository)
        assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
