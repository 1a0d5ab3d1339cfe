"""What INT8, float16 and the rewrites gain, by the runtime as it ships.

Prints a table and ends in one JSON line. One text at a time, all files in turns; texts of one length, as models are
usually timed, and texts of many lengths, as they come. Milliseconds are of the clock (`--cpu`: of the processor, so
that other programs on the machine count for less), medians over rounds with quartiles.

    python benchmarks/forms.py [--shape 4x312] [--threads 1] [--tokens 16,64,128] [--rounds 30] [--cpu]

Weights and tokens are random; INT8 has ranges as wide as those need. They decide how near its answers are, which is not
measured here, and not how long it takes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from edgepack.export.model_folder import ON_CPU
from edgepack.onnx_graph.encoder import Attention, Embeddings, Encoder, Float, Layer, Linear, Norm, Range, Ranges
from edgepack.onnx_graph.float16 import half
from edgepack.onnx_graph.graph_writer import PLAIN, compose, fastest
from edgepack.onnx_graph.int8_operators import OrtCpuForm
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import open_engine
from edgepack_runtime.engine.batch import InputBatch

VOCABULARY: Final = 20_000
LONGEST: Final = 128
MIXED: Final = (8, 64)  # tokens of the texts of many lengths
TEXTS: Final = 20  # in a burst
HEADS: Final = 12


def random_encoder(layers: int, hidden: int) -> Encoder:
    """An ERNIE classifier with ranges for INT8."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Float:
        return random.normal(0, 0.04, shape).astype(np.float32)

    def linear(name: str, width: int, out: int) -> Linear:
        weight = normal(width, out)
        return Linear(name, weight, normal(out), Ranges(Range(-8.0, 8.0), np.abs(weight).max(axis=0)))

    def norm() -> Norm:
        return Norm(1 + normal(hidden), normal(hidden), 1e-12)

    def layer(name: str) -> Layer:
        parts = (linear(f"{name}.{part}", hidden, hidden) for part in ("query", "key", "value", "output"))
        attention = Attention(*parts, heads=HEADS, scale=float((hidden / HEADS) ** -0.5))
        up, down = linear(f"{name}.up", hidden, 4 * hidden), linear(f"{name}.down", 4 * hidden, hidden)
        return Layer(attention, norm(), up, down, norm())

    embeddings = Embeddings(
        normal(VOCABULARY, hidden), normal(LONGEST, hidden), normal(4, hidden), normal(hidden), norm()
    )
    return Encoder(
        replace(embeddings, int8=True),
        tuple(layer(f"layers.{number}") for number in range(layers)),
        linear("pooler", hidden, hidden),
        linear("head", hidden, 10),
        pad_id=0,
        mask=-10_000.0,
    )


class Timed:
    """A file as the runtime runs it, with what each burst of texts took."""

    def __init__(self, graph: onnx.ModelProto, folder: Path, threads: int, clock: Callable[[], float]):
        folder.mkdir()
        onnx.save(graph, str(folder / "model.onnx"))
        self.bytes, self._clock = graph.ByteSize(), clock
        self._opened = open_engine(ON_CPU, folder, Tuning(threads))
        self.milliseconds: list[float] = []

    def burst(self, texts: Sequence[Any], *, counted: bool = True) -> None:
        begin = self._clock()
        for ids in texts:
            rows, length = ids.shape
            self._opened.run(InputBatch(ids.ravel().tolist(), [0] * ids.size, rows, length))
        if counted:
            self.milliseconds.append((self._clock() - begin) * 1e3 / len(texts))


def files(encoder: Encoder, folder: Path, threads: int, clock: Callable[[], float]) -> dict[str, Timed]:
    """Float, float16 and INT8, and INT8 without the rewrites."""
    fast = fastest(pairs=False, tokens=LONGEST)
    graphs = {
        "float": compose(encoder, fast),
        "FP16": half(compose(encoder, fast)),
        "INT8": compose(encoder, fast, OrtCpuForm()),
        "INT8, plain": compose(encoder, replace(PLAIN, tokens=LONGEST), OrtCpuForm()),
    }
    return {name: Timed(graph, folder / name, threads, clock) for name, graph in graphs.items()}


def timed(sessions: dict[str, Timed], texts: Sequence[Any], rounds: int) -> dict[str, dict[str, float]]:
    """Medians and quartiles of each, after one burst that is not counted."""
    for session in sessions.values():
        session.milliseconds.clear()
        session.burst(texts, counted=False)
    for _ in range(rounds):
        for session in sessions.values():
            session.burst(texts)
    found = {}
    for name, session in sessions.items():
        low, median, high = statistics.quantiles(session.milliseconds, n=4)
        found[name] = {"ms": round(median, 3), "low_ms": round(low, 3), "high_ms": round(high, 3)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="4x312", help="layers x hidden")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", default="16,64,128")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    layers, hidden = map(int, options.shape.split("x"))
    random = np.random.default_rng(0)

    def text(tokens: int) -> Any:
        return random.integers(5, VOCABULARY, (1, tokens))

    samples = {f"{tokens} tokens": [text(tokens)] * TEXTS for tokens in map(int, options.tokens.split(","))}
    low, high = MIXED
    samples[f"{low} to {high}"] = [text(int(tokens)) for tokens in random.integers(low, high + 1, TEXTS)]
    clock = time.process_time if options.cpu else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        sessions = files(random_encoder(layers, hidden), Path(folder), options.threads, clock)
        results = {name: timed(sessions, texts, options.rounds) for name, texts in samples.items()}
    print(f"| {options.shape}, {options.threads} thread(s), ms | MB | {' | '.join(results)} |")
    print("|---|---|" + "---|" * len(results))
    for name, session in sessions.items():
        cells = ["{ms:.2f} ({low_ms:.2f}-{high_ms:.2f})".format(**result[name]) for result in results.values()]
        print(f"| {name} | {session.bytes / 1e6:.1f} | {' | '.join(cells)} |")
    facts = {"shape": options.shape, "threads": options.threads, "clock": "cpu" if options.cpu else "wall"}
    print(json.dumps(facts | {"results": results}))


if __name__ == "__main__":
    main()
