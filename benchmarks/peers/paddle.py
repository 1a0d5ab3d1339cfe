"""Paddle Inference with oneDNN, and PaddleNLP's ErnieTokenizer, as PaddleNLP's documentation deploys on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from peers.model import InParts
from peers.source import Source


def prepare(source: Source, out: Path) -> None:
    """Nothing: the build has saved the static graph."""


def files(source: Source, out: Path, variant: str) -> list[Path]:
    return [source.static / "model.json", source.static / "model.pdiparams"]


def open_model(source: Source, out: Path, variant: str, threads: int) -> InParts:
    return open_graph(files(source, out, variant), source, threads)


def open_graph(graph_and_weights: list[Path], source: Source, threads: int) -> InParts:
    """A static graph."""
    from paddle import inference
    from paddlenlp.transformers import ErnieTokenizer

    config = inference.Config(*map(str, graph_and_weights))
    config.disable_gpu()
    config.enable_mkldnn()
    config.set_cpu_math_library_num_threads(threads)
    config.disable_glog_info()
    predictor = inference.create_predictor(config)
    inputs = [(name, predictor.get_input_handle(name)) for name in predictor.get_input_names()]
    output = predictor.get_output_handle(predictor.get_output_names()[0])
    tokenizer = ErnieTokenizer.from_pretrained(str(source.paddlenlp))

    def encode(text: str) -> Any:
        return tokenizer(text, max_length=source.max_length, truncation=True)

    def run(encoded: Any) -> list[float]:
        for name, handle in inputs:
            handle.copy_from_cpu(np.asarray([encoded[name]], dtype=np.int64))  # (1, T)
        predictor.run()
        logits: list[float] = output.copy_to_cpu()[0].tolist()
        return logits

    return InParts(encode, run, lambda encoded: encoded["input_ids"])
