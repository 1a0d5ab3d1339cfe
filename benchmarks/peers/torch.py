"""PyTorch, eager: transformers' BertForSequenceClassification as it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from peers.model import InParts
from peers.source import Source


def prepare(source: Source, out: Path) -> None:
    """Nothing: the weights lie there as transformers loads them."""


def files(source: Source, out: Path, variant: str) -> list[Path]:
    return [source.huggingface / "model.safetensors"]


def open_model(source: Source, out: Path, variant: str, threads: int) -> InParts:
    torch.set_num_threads(threads)
    tokenizer = AutoTokenizer.from_pretrained(source.huggingface)
    model = AutoModelForSequenceClassification.from_pretrained(source.huggingface).eval()

    def run(encoded: Any) -> list[float]:
        with torch.inference_mode():
            logits: list[float] = model(**encoded).logits[0].tolist()
        return logits

    return InParts(
        lambda text: tokenizer(text, truncation=True, max_length=source.max_length, return_tensors="pt"),
        run,
        lambda encoded: encoded["input_ids"][0].tolist(),
    )
