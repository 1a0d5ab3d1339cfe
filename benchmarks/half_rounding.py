"""How far float16 is from float: as this machine computes it, and on a device that rounds to float16 at every node.

An x86 CPU computes a float16 graph in float32 and tells little of a device that does not. The second figure is numpy's:
every node gives float16, sums inside of a node are float32, as on GPUs. It decides how far golden logits may be off
(`packager/edgepack/bundle/golden.py`). Prints a table and ends in one JSON line.

    python benchmarks/half_rounding.py --models .edgepack/export/... [--texts 40]

`--models` holds `onnx-float`, `onnx-fp16` and `texts.txt` of a model of single texts on ONNX Runtime, as an export with
`quantize: {method: fp16}` leaves them. A text takes seconds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from edgepack.bundle import golden
from edgepack.export.selection import TEXTS_FILE
from edgepack_runtime.bundle import model_config
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.inference.tokenizer import ErnieTokenizer

FLOAT, HALF = "onnx-float", "onnx-fp16"
HERE: Final = "as computed here"
EVERYWHERE: Final = "every node rounds"


class LayerNormalization(OpRun):
    """Inside in float32, and what it gives rounded once; onnx's own one does not look at `stash_type`."""

    op_domain = ""

    def _run(self, x: Any, weight: Any, bias: Any, **attributes: Any) -> tuple[Any]:
        wide = x.astype(np.float32)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(attributes["epsilon"]))
        return ((centred / deviation * weight + bias).astype(x.dtype),)


def rounding_everywhere(model: onnx.ModelProto, texts: Sequence[Any]) -> Any:
    """The logits of a device on which every node of `model` gives what the graph says, (texts, labels).

    `texts` are ids, (1, T) each.
    """
    device = ReferenceEvaluator(model, new_ops=[LayerNormalization])
    return np.concatenate([device.run(None, {"input_ids": ids})[0] for ids in texts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=40)
    options = parser.parse_args()
    texts = (options.models / TEXTS_FILE).read_text(encoding="utf-8").splitlines()[: options.texts]
    config = model_config.load(options.models / HALF)
    tokenizer = ErnieTokenizer(options.models / HALF / model_config.VOCAB_NAME, config.tokenizer)
    ids = [np.array(tokenizer.encode([text], config.max_length)) for text in texts]  # each (1, T)
    float_logits, here = (
        np.concatenate([predictor.logits([text]) for text in texts])
        for predictor in (Predictor(options.models / name) for name in (FLOAT, HALF))
    )
    there = rounding_everywhere(onnx.load(str(options.models / HALF / model_config.MODEL_NAME)), ids)
    spread = float(np.ptp(float_logits, axis=0).max())
    found: dict[str, Any] = {"texts": len(texts), "spread": spread}
    print(f"{len(texts)} texts, logits {spread:.2f} apart | mean | largest | largest, of the spread | labels changed")
    for name, logits in ((HERE, here), (EVERYWHERE, there)):
        apart = np.abs(logits - float_logits)
        flips = int((logits.argmax(axis=-1) != float_logits.argmax(axis=-1)).sum())
        found[name] = {"mean": float(apart.mean()), "largest": float(apart.max()), "flips": flips}
        print(f"{name} | {apart.mean():.5f} | {apart.max():.5f} | {apart.max() / spread:.5f} | {flips}")
    found["allowed"] = golden.tolerance("float16", here, float_logits)
    found["needed"] = float(np.abs(there - here).max())
    print(f"apart from each other by {found['needed']:.5f} at most, where a self-test allows {found['allowed']:.5f}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
