"""The graphs that the export writes, on each onnxruntime that a target may have: they load, and say the same.

It installs them, so it runs where it is asked for: `EDGEPACK_TEST_PYTHONS` names interpreters, with colons between
them, as `/usr/bin/python3.8:/usr/bin/python3.10`. Each gets the newest onnxruntime that it may have, in a folder of its
own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from tests.unit.onnx_graph.ernie_graphs import VOCABULARY, random_encoder, run, scales_of

from edgepack.bundle.golden import tolerance
from edgepack.onnx_graph.encoder import Encoder
from edgepack.onnx_graph.float16 import half
from edgepack.onnx_graph.graph_writer import Layout, compose, fastest
from edgepack.onnx_graph.int8_operators import Form, OrtCpuForm
from edgepack.onnx_graph.int8_ranges import with_ranges

pytestmark = pytest.mark.integration
VARIABLE = "EDGEPACK_TEST_PYTHONS"
PYTHONS = [python for python in os.environ.get(VARIABLE, "").split(":") if python]
TEXTS, TOKENS = 16, 24
RELEASES = {"3.8": "1.19.2", "3.9": "1.19.2", "3.10": "1.23.2"}  # the last ones; later Pythons have the newest
NEWEST = "1.31.1"

PROGRAM = """
import json, sys
import numpy, onnxruntime
folder, *names = sys.argv[1:]
ids = numpy.load(folder + "/ids.npy")
for name in names:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder + "/" + name + ".onnx", options, providers=["CPUExecutionProvider"])
    given = {item.name: ids if item.name == "input_ids" else numpy.zeros_like(ids) for item in session.get_inputs()}
    numpy.save(folder + "/" + name + ".npy", session.run(None, given)[0])
print(onnxruntime.__version__)
"""
GRAPHS: dict[str, tuple[Any, Layout, Callable[[], Form] | None]] = {
    "float32": ("float32", fastest(pairs=False), None),
    "float16": ("float16", fastest(pairs=False), None),
    "ort-uint8": ("int8", fastest(pairs=False), OrtCpuForm),
    "ort-7-bits": ("int8", fastest(pairs=False), lambda: OrtCpuForm(reduced=True)),
}


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    """Of the shape of ERNIE nano, and quantized."""
    made = random_encoder(layers=4, heads=12, size=26)
    return with_ranges(made, scales_of(made), embeddings=True)


@pytest.fixture(scope="module")
def graphs(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for name, (precision, layout, form) in GRAPHS.items():
        graph = compose(encoder, layout, form() if form else None)
        onnx.save(half(graph) if precision == "float16" else graph, str(folder / f"{name}.onnx"))
    np.save(folder / "ids.npy", np.random.default_rng(0).integers(1, VOCABULARY, (TEXTS, TOKENS)))
    return folder


@pytest.fixture(scope="module")
def installed(python: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An interpreter that has onnxruntime, and the release of that."""
    asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    folder = tmp_path_factory.mktemp(f"python{version}")
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    release = RELEASES.get(version, NEWEST)
    own = folder / "bin" / "python"
    # numpy comes with it, and little else is needed to run a model; pip finds the one that this Python may have.
    for wanted in (["--no-deps", f"onnxruntime=={release}"], ["numpy"]):
        subprocess.run([str(own), "-m", "pip", "install", "-q", "--only-binary=:all:", *wanted], check=True)
    return own, release


@pytest.mark.skipif(not PYTHONS, reason=f"{VARIABLE} names no interpreters")
@pytest.mark.parametrize("python", PYTHONS or [""], scope="module")
def test_every_form_says_the_same_there(installed: tuple[Path, str], graphs: Path) -> None:
    own, release = installed
    done = subprocess.run([str(own), "-c", PROGRAM, str(graphs), *GRAPHS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, release), done.stderr[-2000:]
    ids = np.load(graphs / "ids.npy")
    reference = answers(graphs, "float32", ids)
    for name, (precision, _, _) in GRAPHS.items():
        here, there = answers(graphs, name, ids), np.load(graphs / f"{name}.npy")
        assert float(np.abs(here - there).max()) <= tolerance(precision, here, reference), name


def answers(graphs: Path, name: str, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return run(onnx.load(str(graphs / f"{name}.onnx")), ids)
