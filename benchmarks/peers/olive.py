"""Microsoft Olive: conversion, transformer fusions, INT8 quantization, as its BERT example for the CPU has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peers.model import InParts
from peers.onnx_file import open_file
from peers.source import Source


def prepare(source: Source, out: Path) -> None:
    from olive import run

    fuse = {
        "type": "OrtTransformersOptimization",
        "model_type": "bert",
        "num_heads": source.heads,
        "hidden_size": source.hidden,
    }
    run(_workflow(source, out, "float", {"fuse": fuse}))
    run(_workflow(source, out, "int8", {"fuse": fuse, "quantize": {"type": "OnnxDynamicQuantization"}}))


def _workflow(source: Source, out: Path, variant: str, passes: dict[str, Any]) -> dict[str, Any]:
    return {
        "input_model": {"type": "HfModel", "model_path": str(source.huggingface), "task": "text-classification"},
        "systems": {
            "here": {
                "type": "LocalSystem",
                "accelerators": [{"device": "cpu", "execution_providers": ["CPUExecutionProvider"]}],
            }
        },
        "target": "here",
        "passes": {"convert": {"type": "OnnxConversion", "target_opset": 17}, **passes},
        "output_dir": str(out / variant),
        "cache_dir": str(out / "cache"),
    }


def files(source: Source, out: Path, variant: str) -> list[Path]:
    return sorted((out / variant).glob("model.onnx*"))


def open_model(source: Source, out: Path, variant: str, threads: int) -> InParts:
    return open_file(out / variant / "model.onnx", source, threads)
