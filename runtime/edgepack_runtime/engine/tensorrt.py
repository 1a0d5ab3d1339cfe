"""What ONNX Runtime's TensorRT provider is opened with, and where its engines are kept.

TensorRT compiles an engine for one model on one kind of GPU, which takes minutes on a small board and prints nothing.
The engine is kept in the prefix under everything that it depends on: another model, TensorRT, GPU or driver finds a
folder of its own, and never an engine that was made for something else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Dict, Iterator, Optional, Sequence

import onnxruntime

from edgepack_runtime import cuda_driver, located, model_config, nvidia_libraries
from edgepack_runtime.errors import EnvironmentUnfitError
from edgepack_runtime.model_config import MODEL_NAME, TENSORRT, EngineConfig

_MOST_ROWS = 128
_TOLD_EVERY_S = 10.0


def options(folder: Path) -> Dict[str, str]:
    """The provider's options for the model in `folder`.

    Raises:
        EnvironmentUnfitError: there is no TensorRT or no GPU.
        BundleInvalidError: `model.json` is damaged.
    """
    config = model_config.load(folder)
    names = _input_names(folder / MODEL_NAME)
    found = {
        "device_id": "0",
        # One engine for all shapes, fastest at a middling text: without this each new shape would compile anew.
        "trt_profile_min_shapes": _shapes(names, 1, 1),
        "trt_profile_opt_shapes": _shapes(names, 1, max(1, config.max_length // 2)),
        "trt_profile_max_shapes": _shapes(names, _MOST_ROWS, config.max_length),
        "trt_fp16_enable": _flag(config.precision == "float16"),
        "trt_int8_enable": _flag(config.precision == "int8"),  # with the scales that the graph itself brings
    }
    cache = cache_folder(folder)
    if cache is not None:
        found.update(
            {
                "trt_engine_cache_enable": "1",
                "trt_engine_cache_path": str(cache),
                "trt_timing_cache_enable": "1",
                "trt_timing_cache_path": str(cache),
            }
        )
    return found


def _input_names(model: Path) -> Sequence[str]:
    """What the model reads, asked of a session that rewrites nothing: it is open in no time."""
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(model), plain, providers=["CPUExecutionProvider"])
    return [item.name for item in session.get_inputs()]


def _shapes(names: Sequence[str], rows: int, tokens: int) -> str:
    return ",".join(f"{name}:{rows}x{tokens}" for name in names)


def _flag(value: bool) -> str:
    return "1" if value else "0"


def cache_folder(folder: Path) -> Optional[Path]:
    """Where engines of the model in `folder` are kept; None where that is in no prefix, or not to be written nor there.

    Raises:
        EnvironmentUnfitError: there is no TensorRT or no GPU.
    """
    key = cache_key(folder / MODEL_NAME, cuda_driver.facts(), tensorrt_version())
    prefix = located.locate(folder).prefix
    if prefix is None:
        return None
    cache = prefix.root / "cache" / "tensorrt" / key
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # a user who may not write the prefix waits for the compiler, and is told why
        sys.stderr.write(f"note: TensorRT's engine cannot be kept in {cache}: {error.strerror}\n")
        return None
    if not os.access(cache, os.W_OK) and not any(cache.iterdir()):
        sys.stderr.write(f"note: TensorRT's engine cannot be kept in {cache}, which this user may not write\n")
        return None
    return cache


def cache_key(model: Path, gpu: cuda_driver.CudaFacts, tensorrt: str) -> str:
    """Name of the cache of one model on one kind of GPU, with one driver and one TensorRT."""
    digest = hashlib.sha256(model.read_bytes()).hexdigest()[:16]
    return f"{digest}-trt{tensorrt}-sm{gpu.sm.replace('.', '')}-driver{gpu.driver}"


def tensorrt_version() -> str:
    """The version of the TensorRT library, as "10.3.0".

    Raises:
        EnvironmentUnfitError: there is none.
    """
    found = nvidia_libraries.tensorrt_version()
    if found is None:
        raise EnvironmentUnfitError(
            "there is no TensorRT on this device",
            why="its library libnvinfer cannot be loaded",
            fix="install TensorRT (on a Jetson: JetPack brings it), or build the bundle for CUDA",
        )
    return found


@contextlib.contextmanager
def patience(config: EngineConfig) -> Iterator[None]:
    """Tells on stderr that TensorRT compiles, and for how long by now, as long as the block runs."""
    if config.provider != TENSORRT:
        yield
        return
    done = threading.Event()
    begin = time.monotonic()

    def tell() -> None:
        while not done.wait(_TOLD_EVERY_S):
            sys.stderr.write(f"TensorRT compiles the model for this GPU: {time.monotonic() - begin:.0f} s so far\n")
            sys.stderr.flush()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
