"""One backend with one model, in a process of its own: asked by JSON lines on its input, answers by JSON lines.

    python -m peers.worker prepare MODULE SOURCE OUT
    python -m peers.worker serve MODULE SOURCE FOLDER VARIANT THREADS

`prepare` makes a module's files of a model. `serve` opens one of them and answers until its input ends.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from peers import source
from peers.model import Model

# Whose versions are told, where they are installed.
LIBRARIES = (
    "onnxruntime", "openvino", "nncf", "optimum-onnx", "olive-ai", "torch", "transformers", "tokenizers",
    "paddlepaddle", "paddlenlp", "paddleslim", "paddle2onnx",
)  # fmt: skip


def main() -> None:
    said = _own_output()
    verb, module, folder, out, *more = sys.argv[1:]
    of = source.load(Path(folder))
    if verb == "prepare":
        importlib.import_module(f"peers.{module}").prepare(of, Path(out))
        return
    variant, threads = more[0], int(more[1])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])  # before any library counts the cores
    peer = importlib.import_module(f"peers.{module}")
    model: Model = peer.open_model(of, Path(out), variant, threads)
    size = sum(file.stat().st_size for file in peer.files(of, Path(out), variant))
    _tell(said, {"bytes": size, "versions": _versions()})
    for line in sys.stdin:
        _tell(said, _answer(model, json.loads(line)))


def _own_output() -> TextIO:
    """What was standard output; whatever libraries print goes to standard error from now on, from C++ too."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _tell(said: TextIO, document: dict[str, Any]) -> None:
    said.write(json.dumps(document) + "\n")
    said.flush()


def _versions() -> dict[str, str]:
    installed = {item.metadata["Name"]: item.version for item in importlib.metadata.distributions()}
    return {name: installed[name] for name in LIBRARIES if name in installed}


def _answer(model: Model, asked: dict[str, Any]) -> dict[str, Any]:
    if "score" in asked:
        return {"logits": [model.logits(text) for text in asked["score"]]}
    if "ids" in asked:
        return {"ids": [model.ids(text) for text in asked["ids"]]}
    return _timed(model, asked["time"], asked["uncounted"])


def _timed(model: Model, texts: list[str], uncounted: int) -> dict[str, Any]:
    """Times of each text, after a few that find the caches as the last process left them."""
    for text in texts[:uncounted]:
        model.timed(text)
    begin = time.process_time()
    took = [model.timed(text) for text in texts]
    cpu_ms = (time.process_time() - begin) * 1e3 / len(texts)
    return {"cpu_ms": cpu_ms, "tokenize_ms": [one.tokenize_ms for one in took], "run_ms": [one.run_ms for one in took]}


if __name__ == "__main__":
    main()
