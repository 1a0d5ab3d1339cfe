"""What is sent runs on a Python that has nothing else, started by any login shell."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from edgepack.targets import sent
from edgepack.targets.local import base_python

TARGETS = Path(sent.__file__).parent


@pytest.mark.parametrize("name", sent.OWN_MODULES)
def test_it_is_python_3_8_of_the_standard_library(name: str) -> None:
    tree = ast.parse((TARGETS / f"{name}.py").read_text(encoding="utf-8"), feature_version=(3, 8))
    carried = {f"edgepack_runtime.{module}" for module in sent.RUNTIME_MODULES}
    carried |= {f"{sent.PACKAGE}.{module}" for module in sent.OWN_MODULES}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names
        elif isinstance(node, ast.ImportFrom) and node.module in ("edgepack_runtime", sent.PACKAGE):
            assert {f"{node.module}.{alias.name}" for alias in node.names} <= carried
        elif isinstance(node, ast.ImportFrom):
            assert node.module in carried or (node.module or "").split(".")[0] in sys.stdlib_module_names


def test_all_that_its_modules_import_of_the_runtime_goes_with_it() -> None:
    text = zlib.decompress(sent.program("x", 60.0).partition(b"\n")[2]).decode("ascii")
    finder = text.rpartition("from ")[0]  # without what starts it
    names = [f"edgepack_runtime.{name}" for name in sent.RUNTIME_MODULES] + [f"{sent.PACKAGE}.remote"]
    loop = f"import importlib\nfor name in {names!r}: importlib.import_module(name)\nprint('all there')\n"
    line = [base_python(), "-I", "-S", "-"]
    done = subprocess.run(line, input=finder + loop, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("all there\n", "")


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "zsh", "csh", "tcsh", "fish", "busybox"])
def test_every_login_shell_reads_the_line_alike(shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"there is no {shell}")
    line = [shell, *(["sh"] if shell == "busybox" else []), "-c", sent.shell_line(["/nonexistent/a b", base_python()])]
    done = subprocess.run(line, input=sent.program("hello there", 60.0), capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"\nhello there\n", b"")


def test_no_python_is_told() -> None:
    done = subprocess.run(
        ["sh", "-c", sent.shell_line(["/nonexistent/python3", "false"])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 127
    assert done.stderr == f"{sent.NO_PYTHON} /nonexistent/python3 false\n"


def test_the_pythons_that_are_tried() -> None:
    names = sent.pythons_for("3.11")
    assert names[:2] == ("python3.11", "python3")
    assert len(set(names)) == len(names)
    assert "python3.8" in names


def test_it_is_small() -> None:
    assert len(sent.program("x", 60.0)) < 80_000
