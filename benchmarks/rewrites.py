"""What each rewrite of an exported graph gains, one by one and together, float and INT8, on ONNX Runtime's CPU kernels.

Prints a table and ends in one JSON line. One text at a time, one thread, all graphs in turns; milliseconds are of the
processor, so that other programs on the machine count for little.

    python benchmarks/rewrites.py --model WEIGHTS/ernie-fixture-nano [--tokens 64] [--rounds 60]

`--model` is an ERNIE folder; its classifier's head is random, and so are the tokens. INT8 has ranges as wide as what
random tokens need: they decide how near its answers are, which is not measured here, and not how long it takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime as ort

from edgepack.artifacts import LinearScales, weight_digest
from edgepack.onnx_graph.encoder import Encoder
from edgepack.onnx_graph.graph_writer import PLAIN, Layout, compose, fastest
from edgepack.onnx_graph.int8_operators import OrtCpuForm
from edgepack.onnx_graph.int8_ranges import with_ranges
from edgepack.onnx_graph.rewrite import rewrite
from edgepack.onnx_graph.utils import fold_constants
from edgepack.training import environment
from edgepack_runtime.engine.denormals import DenormalsAsZero

LABELS: Final = 10
TOKENS: Final = 128  # of the longest text
BURST: Final = 20  # runs between two looks at the clock, which counts in steps of a microsecond


def export(folder: Path, out: Path) -> onnx.ModelProto:
    """The classifier of an ERNIE folder as paddle2onnx writes it, constants folded."""
    environment.start()
    from edgepack.training.models import classifiers, export

    labels = tuple(map(str, range(LABELS)))
    classifier = classifiers.create(str(folder), labels, 128, (), 0, out)
    export.static_graph(classifier, out / "static")
    export.float_onnx(out / "static", out / "float.onnx")
    return fold_constants(onnx.load(str(out / "float.onnx")))


def ranged(encoder: Encoder, activation: tuple[float, float] | None = (-8.0, 8.0)) -> Encoder:
    """With ranges for every product."""
    seen = [
        LinearScales(one.name, weight_digest(one.weight), activation, tuple(np.abs(one.weight).max(axis=0).tolist()))
        for one in encoder.linears()
    ]
    return with_ranges(encoder, seen, embeddings=True)


def graphs(model: onnx.ModelProto) -> dict[str, onnx.ModelProto]:
    """The exported graph, and those written from it."""
    everything = fastest(pairs=False, tokens=TOKENS)
    encoder, all_of_it = rewrite(model, everything)
    int8 = ranged(encoder)
    return {
        "exported": model,
        "read and written": compose(encoder, PLAIN),
        **{
            field.name: compose(encoder, Layout(**{field.name: TOKENS if field.name == "tokens" else True}))
            for field in fields(Layout)
        },
        "all rewrites": all_of_it,
        "INT8": compose(int8, PLAIN, OrtCpuForm()),
        "INT8, all rewrites": compose(int8, everything, OrtCpuForm()),
        "INT8, ranges found in each run": compose(ranged(encoder, None), everything, OrtCpuForm()),
    }


class Timed:
    """A session as the runtime opens and runs it, with what each burst of runs took the processor."""

    def __init__(self, model: onnx.ModelProto, inputs: dict[str, Any]) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = ort.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"], disabled_optimizers=["SkipLayerNormFusion"]
        )
        self._inputs = {item.name: inputs[item.name] for item in self._session.get_inputs()}
        self.milliseconds: list[float] = []
        self._session.run(None, self._inputs)

    def burst(self) -> None:
        begin = time.process_time()
        for _ in range(BURST):
            with DenormalsAsZero():
                self._session.run(None, self._inputs)
        self.milliseconds.append((time.process_time() - begin) * 1e3 / BURST)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = graphs(export(options.model, Path(folder)))
    ids = np.random.default_rng(0).integers(5, 10_000, (1, options.tokens))
    inputs = {"input_ids": ids, "token_type_ids": np.zeros_like(ids)}
    sessions = {name: Timed(model, inputs) for name, model in found.items()}
    for _ in range(options.rounds):
        for session in sessions.values():
            session.burst()
    base = statistics.median(sessions["exported"].milliseconds)
    document: dict[str, Any] = {"model": options.model.name, "tokens": options.tokens, "graphs": {}}
    print(f"| {options.model.name}, {options.tokens} tokens | MB | ms, median (quartiles) | of the exported one |")
    print("|---|---|---|---|")
    for name, session in sessions.items():
        low, median, high = statistics.quantiles(session.milliseconds, n=4)
        size = found[name].ByteSize()
        print(f"| {name} | {size / 1e6:.1f} | {median:.2f} ({low:.2f}-{high:.2f}) | {median / base:.2f} |")
        document["graphs"][name] = {"bytes": size, "ms": median, "low_ms": low, "high_ms": high, "ratio": median / base}
    print(json.dumps(document))


if __name__ == "__main__":
    main()
