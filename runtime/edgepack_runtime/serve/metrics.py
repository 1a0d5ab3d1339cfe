"""Metrics for Prometheus at `/metrics`. Each server has its own registry."""

from __future__ import annotations

from typing import Callable, Dict, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from edgepack_runtime.inference.combined import Combined
from edgepack_runtime.serve.batcher import Batch
from edgepack_runtime.serve.model_info import ModelInfo

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters and histograms of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "edgepack_requests",
            "Answered requests, by path of the route, method and HTTP status.",
            ("path", "method", "status"),
            registry=self.registry,
        )
        self._rejected = Counter(
            "edgepack_rejected",
            "Requests without a prediction, by path of the route and reason.",
            ("path", "reason"),
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        self._duration = self._histogram("edgepack_request_duration", "Time of requests, by path.", ("path",))
        self._queue = self._histogram("edgepack_queue", "Time that a text waited for its batch.")
        self._tokenize = self._histogram("edgepack_tokenize", "Tokenizing a batch.")
        self._run = self._histogram("edgepack_run", "Time of the model for a batch.")
        self._batch_size = Histogram("edgepack_batch_size", "Texts of a batch.", buckets=_SIZES, registry=self.registry)
        self._in_flight = Gauge("edgepack_in_flight", "Requests in progress.", registry=self.registry)
        self._queued = Gauge("edgepack_queued_texts", "Texts that wait for a batch.", registry=self.registry)
        self._model = Gauge(
            "edgepack_model_info",
            "Loaded model; always 1.",
            ("name", "version", "task", "precision", "engine", "provider"),
            registry=self.registry,
        )

    def describe(self, facts: ModelInfo, queued: Callable[[], int]) -> None:
        """Set the loaded model and the callback for the length of the queue."""
        providers = ",".join(facts.providers)
        words = (facts.name, facts.version, facts.task, facts.precision, facts.engine, providers)
        self._model.labels(*words).set(1)
        self._queued.set_function(queued)

    def count_answers(self, combined: Combined) -> None:
        """Report the texts that the linear model answered alone, and the others."""
        self.registry.register(_Answers(combined))

    def count_cut_texts(self, count: Callable[[], int]) -> None:
        """Report how many texts were longer than the model reads."""
        self.registry.register(_CutTexts(count))

    def begin(self) -> None:
        """Count a request that starts."""
        self._in_flight.inc()

    def end(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request. `path` is that of the route: paths made up by clients must not become labels."""
        self._in_flight.dec()
        self._requests.labels(path, method, str(status)).inc()
        self._duration.labels(path).observe(seconds)

    def rejected(self, path: str, reason: str) -> None:
        """Count a request without a prediction; `path` is that of the route, `reason` the code of the error."""
        self._rejected.labels(path, reason).inc()

    def waited(self, milliseconds: float) -> None:
        """Record the time that a text waited for its batch."""
        self._queue.observe(milliseconds / 1e3)

    def ran(self, batch: Batch) -> None:
        """Record a batch."""
        self._tokenize.observe(batch.split.tokenize_ms / 1e3)
        self._run.observe(batch.split.run_ms / 1e3)
        self._batch_size.observe(batch.size)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def values(self) -> Dict[str, float]:
        """Samples without labels, by name."""
        return {s.name: s.value for family in self.registry.collect() for s in family.samples if not s.labels}

    def _histogram(self, name: str, words: str, labels: tuple = ()) -> Histogram:  # type: ignore[type-arg]
        return Histogram(f"{name}_seconds", words, labels, buckets=_SECONDS, registry=self.registry)


class _CutTexts(Collector):
    """`edgepack_cut_texts_total`."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count

    def collect(self) -> Iterator[CounterMetricFamily]:
        words = "Texts with more tokens than the model reads, whose rest was cut off."
        yield CounterMetricFamily("edgepack_cut_texts", words, value=self._count())


class _Answers(Collector):
    """`edgepack_answered_texts_total`, by the part of the model that answered."""

    def __init__(self, combined: Combined) -> None:
        self._combined = combined

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "edgepack_answered_texts",
            "Texts that the linear model answered alone, and texts for which the encoder ran.",
            labels=("model",),
        )
        for model, count in self._combined.answered._asdict().items():
            family.add_metric((model,), count)
        yield family
