"""This project: the folders that a build's export writes, opened by the runtime package as a device opens them."""

from __future__ import annotations

from pathlib import Path

from edgepack_runtime.bundle.model_config import MODEL_NAME, VOCAB_NAME
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.inference.tokenizer import ErnieTokenizer
from peers.model import Took
from peers.source import Source


def prepare(source: Source, out: Path) -> None:
    """Nothing: the build has made them all."""


def files(source: Source, out: Path, variant: str) -> list[Path]:
    return [_folder(source, variant) / MODEL_NAME]


def open_model(source: Source, out: Path, variant: str, threads: int) -> _Ours:
    return _Ours(_folder(source, variant), threads)


def _folder(source: Source, variant: str) -> Path:
    return {"float": source.onnx_float, "int8": source.onnx_int8}[variant]


class _Ours:
    def __init__(self, folder: Path, threads: int) -> None:
        self._predictor = Predictor(folder, threads=threads)
        self._tokenizer = ErnieTokenizer(folder / VOCAB_NAME, self._predictor.config.tokenizer)

    def timed(self, text: str) -> Took:
        _, split = self._predictor.timed_predict(text)
        return Took(split.tokenize_ms, split.run_ms + split.post_ms)

    def logits(self, text: str) -> list[float]:
        return [float(value) for value in self._predictor.logits([text])[0]]

    def ids(self, text: str) -> list[int]:
        return self._tokenizer.encode([text], self._predictor.config.max_length)[0]
