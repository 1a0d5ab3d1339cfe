"""What Prometheus reads from `/metrics`. Each server has a registry of its own: nothing here is global."""

from __future__ import annotations

from typing import Callable, Dict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

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
            "Requests answered, by path (as it is routed), method and HTTP status.",
            ("path", "method", "status"),
            registry=self.registry,
        )
        self._rejected = Counter(
            "edgepack_rejected", "Requests that got no prediction, by reason.", ("reason",), registry=self.registry
        )
        self._duration = self._histogram("edgepack_request_duration", "Whole requests, by path.", ("path",))
        self._queue = self._histogram("edgepack_queue", "How long a text waited for its batch.")
        self._tokenize = self._histogram("edgepack_tokenize", "Tokenizing a batch.")
        self._run = self._histogram("edgepack_run", "Running the model on a batch.")
        self._batch_size = Histogram("edgepack_batch_size", "Texts of a batch.", buckets=_SIZES, registry=self.registry)
        self._in_flight = Gauge("edgepack_in_flight", "Requests that are being handled.", registry=self.registry)
        self._queued = Gauge("edgepack_queued_texts", "Texts that wait for a batch.", registry=self.registry)
        self._model = Gauge(
            "edgepack_model_info",
            "The model that answers; always 1.",
            ("name", "version", "task", "precision", "engine", "provider"),
            registry=self.registry,
        )

    def describe(self, facts: ModelInfo, queued: Callable[[], int]) -> None:
        """Tell which model answers, and where the length of the queue is asked for."""
        providers = ",".join(facts.providers)
        words = (facts.name, facts.version, facts.task, facts.precision, facts.engine, providers)
        self._model.labels(*words).set(1)
        self._queued.set_function(queued)

    def begin(self) -> None:
        """A request came in."""
        self._in_flight.inc()

    def end(self, path: str, method: str, status: int, seconds: float) -> None:
        """A request was answered. `path` is one of the routes: what clients make up must not become a label."""
        self._in_flight.dec()
        self._requests.labels(path, method, str(status)).inc()
        self._duration.labels(path).observe(seconds)

    def rejected(self, reason: str) -> None:
        """A request got no prediction; `reason` is the code of a error."""
        self._rejected.labels(reason).inc()

    def waited(self, milliseconds: float) -> None:
        """A text waited so long for its batch."""
        self._queue.observe(milliseconds / 1e3)

    def ran(self, batch: Batch) -> None:
        """A batch was answered."""
        self._tokenize.observe(batch.split.tokenize_ms / 1e3)
        self._run.observe(batch.split.run_ms / 1e3)
        self._batch_size.observe(batch.size)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def values(self) -> Dict[str, float]:
        """Samples without labels, by name, for tests and for people."""
        return {s.name: s.value for family in self.registry.collect() for s in family.samples if not s.labels}

    def _histogram(self, name: str, words: str, labels: tuple = ()) -> Histogram:  # type: ignore[type-arg]
        return Histogram(f"{name}_seconds", words, labels, buckets=_SECONDS, registry=self.registry)
