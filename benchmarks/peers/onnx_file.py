"""An ONNX file on ONNX Runtime with default options and transformers' fast tokenizer, as most people run one.

Optimum's own model class would run the same session, with some microseconds of its own around it.
"""

from __future__ import annotations

from pathlib import Path

import onnxruntime
from transformers import AutoTokenizer

from peers.model import InParts
from peers.source import Source


def open_file(file: Path, source: Source, threads: int) -> InParts:
    """Nothing but the number of threads is set."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    inputs = [item.name for item in session.get_inputs()]
    tokenizer = AutoTokenizer.from_pretrained(source.huggingface)

    def encode(text: str) -> dict[str, object]:
        encoded = tokenizer(text, truncation=True, max_length=source.max_length, return_tensors="np")
        return {name: encoded[name] for name in inputs}

    return InParts(
        encode,
        lambda encoded: session.run(None, encoded)[0][0].tolist(),
        lambda encoded: encoded["input_ids"][0].tolist(),
    )
