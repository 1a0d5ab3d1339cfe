"""Files in the folder in which a command is typed are data, whatever their names: Paddle loads none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
LOADED = """
import json, os, sys
from edgepack.training import environment
environment.start()
import paddlenlp.transformers, paddleslim
here = os.getcwd()
found = {"variable": os.environ.get("LD_LIBRARY_PATH"), "cv2": [name for name in sys.modules if name.startswith("cv2")]}
found["maps"] = [line.split()[-1] for line in open("/proc/self/maps") if here in line]
print(json.dumps(found))
"""

LAUNCHED = """
import subprocess, sys
from edgepack.training import environment
environment.start()
from edgepack.training import launch
sys.exit(subprocess.run([sys.executable, "-I", "-c", launch._START_LAUNCHER, "--help"]).returncode)
"""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A folder with libraries where OpenCV's wheel lets the loader look."""
    for name in ("opencv_python.libs/libXau.so.6", "libz.so.1", "cv2.py", "paddle.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"planted")
    return tmp_path


def test_paddle_loads_no_library_of_the_working_folder(planted: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", LOADED], cwd=planted, env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {"variable": None, "cv2": ["cv2"], "maps": []}


def test_no_module_is_looked_for_in_the_working_folder(planted: Path) -> None:
    """An editable install of packages without `__init__.py` puts a name that is no absolute path on the path."""
    paths = "import json, sys; print(json.dumps(sys.path))"
    done = subprocess.run([sys.executable, "-I", "-c", paths], cwd=planted, capture_output=True, text=True, check=True)
    assert [path for path in json.loads(done.stdout) if not Path(path).is_absolute()] == []


@pytest.mark.sweep
def test_the_launcher_of_several_processes_starts_without_opencv(planted: Path) -> None:
    command = [sys.executable, "-I", "-c", LAUNCHED]
    done = subprocess.run(command, cwd=planted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--nproc_per_node" in done.stdout
