"""INT8 of imported graphs by ONNX Runtime's quantizer, with the examples as calibration data."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy.typing as npt
import onnx
import onnx.version_converter
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from edgepack.errors import StageFailedError
from edgepack.export.handler_answers import Run

# Convolutions, products and embeddings hold nearly all weights; other operators gain little and cost accuracy.
OPERATORS: Final = ("Conv", "MatMul", "Gemm", "Gather")
_OPSET: Final = 13  # the first one with a scale per channel


class _Inputs(CalibrationDataReader):  # type: ignore[misc]
    """The recorded inputs of a graph, one run after the other."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs: Iterator[Run] = iter(runs)

    def get_next(self) -> dict[str, npt.NDArray[Any]] | None:
        run = next(self._runs, None)
        return None if run is None else run.inputs


def write(source: Path, runs: Sequence[Run], target: Path) -> None:
    """Write the INT8 form of a graph: weights per channel, activations with the lowest and highest value of the runs.

    Args:
        runs: at least one.

    Raises:
        StageFailedError: the quantizer cannot read the graph, or what it writes does not load.
    """
    logging.getLogger().addFilter(_quiet)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            raised, prepared = Path(scratch) / f"raised-{source.name}", Path(scratch) / source.name
            onnx.save(_raised(onnx.load(str(source))), str(raised))
            try:
                quant_pre_process(str(raised), str(prepared), skip_symbolic_shape=True)
            except Exception:  # noqa: BLE001 - it only makes shapes known; the quantizer works without them
                prepared = raised
            quantize_static(
                str(prepared),
                str(target),
                _Inputs(runs),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(OPERATORS),
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                extra_options={
                    # This adjustment for small biases fails on products with a scale per channel (ONNX Runtime 1.31).
                    "QDQDisableWeightAdjustForInt32Bias": True,
                    # Kernels of products give float; those of convolutions need a quantized output.
                    "OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"],
                },
            )
            onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])  # it must load
    except Exception as error:
        raise StageFailedError(
            f"graphs: ONNX Runtime cannot quantize {source.name}",
            why=str(error)[:500],
            fix="set `quantize: {method: none}`",
        ) from error
    finally:
        logging.getLogger().removeFilter(_quiet)


def _raised(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with at least opset `_OPSET`."""
    opset = max((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=_OPSET)
    return model if opset >= _OPSET else onnx.version_converter.convert_version(model, _OPSET)


def _quiet(record: logging.LogRecord) -> bool:
    """Hide the quantizer's advice to prepare the model, which was done, and its worries, which the score decides."""
    return not any(words in record.getMessage() for words in ("pre-process", "Quantized bias"))
