"""Fixtures for all tests: tiny wheels and tiny models."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tests import sweeps

from edgepack_runtime.bundle.model_config import EngineConfig, ModelConfig, dump
from edgepack_runtime.device import info
from edgepack_runtime.util import gate_lock

MakeWheel = Callable[..., Path]
MakeModel = Callable[..., Path]


def pytest_xdist_auto_num_workers() -> int:
    """Two processes more than cores: in a third of the time a test waits for a program that it started."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_configure(config: pytest.Config) -> None:
    sweeps.choose(config.option.markexpr)


@pytest.fixture(scope="session", autouse=True)
def lock_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where gates of these tests wait for each other, and not for whatever else this machine gates."""
    folder = tmp_path_factory.mktemp("lock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(gate_lock.VARIABLE, str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def no_columns() -> None:
    """Logs are as wide as without a terminal: pytest-xdist gives its processes its width."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture
def eight_bits() -> None:
    """A CPU that multiplies weights of 8 bits exactly. x86 without VNNI adds two products in 16 bits, which saturate:
    `quantize.reduced_range` is for it, and is tested on every CPU.
    """
    if platform.machine() == "x86_64" and not info.int8_flags():
        pytest.skip("this CPU has no VNNI")


@pytest.fixture
def make_wheel(tmp_path: Path) -> MakeWheel:
    """A factory of small valid wheels: `make_wheel(files, name=, version=, tag=, metadata=)` returns the file.

    It brings a licence text, unless `licensed` is false.
    """

    def make(
        files: Mapping[str, bytes | str],
        *,
        name: str = "fakelib",
        version: str = "1.0",
        tag: str = "py3-none-any",
        metadata: str = "License-Expression: MIT\n",
        folder: Path | None = None,
        licensed: bool = True,
    ) -> Path:
        folder = folder or tmp_path / "made-wheels"
        folder.mkdir(exist_ok=True)
        info = f"{name}-{version}.dist-info"
        contents = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
        head = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
        if licensed and not any("LICEN" in path for path in files):
            contents[f"{info}/licenses/LICENSE"] = b"as you like\n"
        contents[f"{info}/METADATA"] = (head + metadata).encode()
        contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
        rows = [f"{path},{_record_hash(content)},{len(content)}" for path, content in contents.items()]
        contents[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
        wheel = folder / f"{name}-{version}-{tag}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, content in contents.items():
                archive.writestr(zipfile.ZipInfo(path), content)
        return wheel

    return make


def _record_hash(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture
def make_model() -> MakeModel:
    """A factory of tiny model folders: `make_model(folder, seed=, precision=, labels=, engine=)` fills one."""

    def make(
        folder: Path,
        *,
        seed: int = 0,
        precision: str = "float32",
        labels: tuple[str, ...] = ("0", "1"),
        engine: EngineConfig | None = None,
    ) -> Path:
        folder.mkdir(parents=True)
        vocabulary = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"房间很大服务不好也脏吵"]
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
        weights = np.random.default_rng(seed).normal(size=(len(vocabulary), len(labels))).astype(np.float32)
        weights[:4] = 0  # special tokens say nothing
        onnx.save(_mean_of_embeddings(weights), str(folder / "model.onnx"))
        config = ModelConfig("text-classification", labels, 16, precision, engine=engine or EngineConfig())
        (folder / "model.json").write_bytes(dump(config))
        return folder

    return make


def _mean_of_embeddings(weights: NDArray[np.float32]) -> onnx.ModelProto:
    """logits = mean over T of weights[input_ids], plus 0 x token_type_ids: weights is (V, C), logits (B, C)."""
    ids = [helper.make_tensor_value_info(n, TensorProto.INT64, ["B", "T"]) for n in ("input_ids", "token_type_ids")]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["B", weights.shape[1]])
    constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.float32(0), "zero")]
    nodes = [
        helper.make_node("Gather", ["weights", "input_ids"], ["rows"]),  # (B, T, C)
        helper.make_node("ReduceMean", ["rows"], ["mean"], axes=[1], keepdims=0),  # (B, C)
        helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["types"], ["type"], axes=[1], keepdims=1),  # (B, 1)
        helper.make_node("Mul", ["type", "zero"], ["nothing"]),
        helper.make_node("Add", ["mean", "nothing"], ["logits"]),
    ]
    graph = helper.make_graph(nodes, "tiny", ids, [logits], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
