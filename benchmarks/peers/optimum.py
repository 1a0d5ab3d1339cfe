"""Hugging Face Optimum: its ONNX export, and dynamic INT8 by ORTQuantizer for AVX-512 VNNI, as its guide does."""

from __future__ import annotations

from pathlib import Path

from peers.model import InParts
from peers.onnx_file import open_file
from peers.source import Source


def prepare(source: Source, out: Path) -> None:
    from optimum.onnxruntime import ORTModelForSequenceClassification, ORTQuantizer
    from optimum.onnxruntime.configuration import AutoQuantizationConfig

    model = ORTModelForSequenceClassification.from_pretrained(source.huggingface, export=True)
    model.save_pretrained(out)
    wanted = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=False)
    ORTQuantizer.from_pretrained(model).quantize(save_dir=out, quantization_config=wanted)


def files(source: Source, out: Path, variant: str) -> list[Path]:
    return [out / {"float": "model.onnx", "int8": "model_quantized.onnx"}[variant]]


def open_model(source: Source, out: Path, variant: str, threads: int) -> InParts:
    return open_file(files(source, out, variant)[0], source, threads)
