"""A loaded model with a handler: items of any kind in, JSON out, through one graph or several."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any, Generator, Iterable, List, Optional, Sequence, Tuple, TypeVar

from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine.graphs import open_graphs, providers_of
from edgepack_runtime.inference.handler import Handler
from edgepack_runtime.inference.loaded_model import (
    GraphInputs,
    JsonPrediction,
    Split,
    StreamOptions,
    TensorsPrediction,
    UnwantedError,
    Wanted,
    always,
)
from edgepack_runtime.tasks.task import Prediction

T = TypeVar("T")


class HandlerModel:
    """See `edgepack_runtime.inference.loaded_model.LoadedModel`. Items are answered one after the other, whoever asks.

    Raises:
        BundleInvalidError, EnvironmentUnfitError, StageFailedError: as `open_graphs` and `Handler`.
    """

    def __init__(self, folder: Path, config: ModelConfig, tuning: Tuning) -> None:
        assert config.handler is not None
        self.graphs = open_graphs(config.engine, folder, config.handler.graphs, tuning)
        self._handler = Handler(folder, config.handler, self.graphs)
        self._lock = threading.Lock()
        self.providers = providers_of(config.engine)

    @property
    def engine(self) -> str:
        version = next(iter(self.graphs.values())).version
        return f"onnxruntime {version}"

    def answer(self, items: Sequence[Any], wanted: Wanted = always) -> Tuple[List[Prediction], Split]:
        found = []
        with self._lock:
            for item in items:
                if not wanted():  # it may have waited for the lock for long
                    raise UnwantedError
                found.append(self._answer(item))
        splits = [split for _, split in found]
        return [prediction for prediction, _ in found], Split(*(sum(part) for part in zip(*splits)))

    def stream(
        self, items: Iterable[Tuple[T, Optional[Any]]], options: StreamOptions
    ) -> Generator[Tuple[T, Optional[Prediction]], None, None]:
        for tag, item in items:
            yield tag, None if item is None else self.answer([item])[0][0]

    def score(self, answer: Any, expected: Any) -> float:
        with self._lock:
            return self._handler.score(answer, expected)

    def _answer(self, item: Any) -> Tuple[Prediction, Split]:
        graphs = self.graphs.values()
        for graph in graphs:
            graph.reset()
        begin = time.perf_counter()
        prediction: Prediction
        if isinstance(item, GraphInputs):
            prediction = TensorsPrediction(self.graphs[item.graph](item.inputs, item.most_bytes))
        else:
            prediction = JsonPrediction(self._handler.answer(item))
        end = time.perf_counter()
        first = min((graph.began for graph in graphs if graph.began is not None), default=end)
        run_ms = sum(graph.run_ms for graph in graphs)
        return prediction, Split((first - begin) * 1e3, run_ms, (end - first) * 1e3 - run_ms)
