"""Static graphs of Paddle: conversion to ONNX, and their outputs by Paddle Inference."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from edgepack.errors import StageFailedError
from edgepack.onnx_graph import OPSET


def convert(graph: Path, parameters: Path, target: Path) -> None:
    """Convert a static graph to ONNX at `OPSET`.

    paddle2onnx may report success after a failure: the caller must load and run the file.

    Args:
        graph: `.json` of Paddle 3, or `.pdmodel` of Paddle 2.
        parameters: its `.pdiparams`.

    Raises:
        StageFailedError: no file was written.
    """
    import paddle2onnx

    # With a name: if a library ends this process, the sandbox finds what it said last.
    with tempfile.NamedTemporaryFile(prefix="paddle2onnx-", suffix=".log") as said:
        try:
            with _output_into(said):
                paddle2onnx.export(
                    str(graph),
                    str(parameters),
                    str(target),
                    opset_version=OPSET,
                    enable_onnx_checker=True,
                    **_onnx_options(),
                )
        except Exception as error:
            raise StageFailedError(
                f"paddle2onnx cannot convert {graph.name}", why=f"{error}\n{_text(said)}".strip()
            ) from error
        if not target.is_file() or target.stat().st_size == 0:
            raise StageFailedError(f"paddle2onnx wrote no file for {graph.name}", why=_text(said))


def outputs(graph: Path, parameters: Path, inputs: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """The outputs of Paddle Inference on the CPU, in the order of the graph."""
    from paddle import inference

    config = inference.Config(str(graph), str(parameters))
    config.disable_gpu()
    config.disable_glog_info()
    predictor = inference.create_predictor(config)
    for name in predictor.get_input_names():
        handle = predictor.get_input_handle(name)
        handle.reshape(inputs[name].shape)
        handle.copy_from_cpu(np.ascontiguousarray(inputs[name]))
    predictor.run()
    return [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]


@contextlib.contextmanager
def _output_into(file: IO[bytes]) -> Iterator[None]:
    """Redirect the descriptors of standard output and error to `file`, because paddle2onnx prints from C++."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    try:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, target in zip(kept, (1, 2), strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace").strip()


def _onnx_options() -> dict[str, Any]:
    """Options of `paddle2onnx.export` that the version for Paddle 3.3 needs and that for Paddle 2.6 does not know.

    By default the version for Paddle 3.3 folds constants with polygraphy, which pip-installs packages at run time.
    """
    import paddle2onnx

    known = inspect.signature(paddle2onnx.export).parameters
    return {"optimize_tool": "none"} if "optimize_tool" in known else {}
