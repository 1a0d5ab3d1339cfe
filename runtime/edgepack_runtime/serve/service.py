"""Service behind the routes: a loaded model with its batcher and metrics, created in the server's event loop."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import sys
from typing import Callable, Dict, List, NamedTuple, NoReturn, Sequence

from edgepack_runtime.errors import ExitCode
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.inference.text_model import ROWS
from edgepack_runtime.inference.windows import TRUNCATE
from edgepack_runtime.serve import kserve_models, logs
from edgepack_runtime.serve.batcher import Answered, Batch, Batcher, Gone
from edgepack_runtime.serve.metrics import Metrics
from edgepack_runtime.serve.model_info import ModelInfo
from edgepack_runtime.serve.settings import Settings
from edgepack_runtime.tasks.task import Prediction
from edgepack_runtime.util.texts import Item

_WATCH_S = 1.0
_STDERR = 2


class RequestTiming(NamedTuple):
    """Time of one request in the queue and in its batches, and the size of the largest batch.

    The times of a batch are those of the whole batch, which may include texts of other requests.
    """

    queue_ms: float
    tokenize_ms: float
    run_ms: float
    post_ms: float
    batch: int

    def header(self) -> str:
        """Value of the `Server-Timing` header."""
        parts = [f"{name[:-3]};dur={getattr(self, name):.3f}" for name in self._fields if name.endswith("_ms")]
        return ", ".join([*parts, f'batch;desc="{self.batch}"'])


class Service:
    """A model that answers requests.

    Args:
        predictor: called from `settings.workers` threads.
    """

    def __init__(self, predictor: Predictor, facts: ModelInfo, settings: Settings, metrics: Metrics) -> None:
        self.facts = facts
        self.settings = settings = settings.for_item(facts.item)
        handler = predictor.config.handler is not None
        self.models = kserve_models.models(facts, predictor.graphs, max_texts=settings.max_texts)
        self._metrics = metrics
        self.batcher = Batcher(
            predictor.timed_batch,
            max_batch=1 if handler else settings.max_batch,  # a handler answers one item at a time
            max_wait_ms=settings.max_wait_ms,
            capacity=settings.queue,
            workers=settings.workers,
            # With windows the whole text is read, so its full length counts for batching. One batch fills one run of
            # the engine: more would gain nothing, and a run is all that cannot be stopped.
            max_length=(settings.long == TRUNCATE and facts.max_length) or sys.maxsize,
            batch_length=(settings.long != TRUNCATE and facts.max_length * ROWS) or sys.maxsize,
            observe=metrics.ran,
        )
        self.draining = False
        self._given_up = 0
        metrics.describe(facts, lambda: self.batcher.queued)
        if predictor.combined is not None:
            metrics.count_answers(predictor.combined)
        if not handler and not predictor.config.takes_pairs:
            metrics.count_cut_texts(lambda: predictor.cut_texts)

    def why_unready(self) -> str:
        """Reason why the server is not ready; empty if it is ready."""
        if self.draining:
            return "draining"
        return "stuck" if self.batcher.longest_run_s() > self.settings.timeout_s else self.why_dying()

    def why_dying(self) -> str:
        """Reason why the process has to be restarted; empty if it need not. `watch` ends it by itself later."""
        return "stuck" if self.batcher.longest_run_s() > self.settings.stuck_after_s / 2 else ""

    async def watch(self, logger: logging.Logger, alive: Callable[[], object]) -> NoReturn:
        """Call `alive` once in a while, and end the process if the model hangs for `stuck_after_s`.

        A thread of C does so if this coroutine does not run either: a library may hang with Python's lock.
        """
        limit_s = self.settings.stuck_after_s
        try:
            while True:
                faulthandler.dump_traceback_later(limit_s, exit=True, file=_STDERR)
                if self.batcher.longest_run_s() > limit_s:
                    logs.event(logger, logging.ERROR, "stuck", seconds=limit_s)
                    end_now(ExitCode.STAGE_FAILED)
                if not self.why_dying():
                    alive()
                await asyncio.sleep(min(_WATCH_S, limit_s / 4))
        finally:
            faulthandler.cancel_dump_traceback_later()

    def admit(self) -> None:
        """Refuse a request before its body is read if there is no room for a single text.

        Raises:
            HttpError: as `Batcher.admit`.
        """
        self.batcher.admit(1, self.settings.timeout_s)

    async def answer(self, items: Sequence[Item], log_fields: Dict[str, object], gone: Gone) -> List[Answered]:
        """Answers for the texts of one request, in their order.

        Args:
            log_fields: gets the fields of the request's log line.
            gone: as in `Batcher.submit`.

        Raises:
            HttpError, EdgepackError: as `Batcher.submit`.
        """
        log_fields["texts"] = len(items)
        found = await self.batcher.submit(items, self.settings.timeout_s, gone)
        for one in found:
            self._metrics.waited(one.queue_ms)
        spent = timing(found)
        log_fields.update(queue_ms=round(spent.queue_ms, 3), run_ms=round(spent.run_ms, 3), batch=spent.batch)
        return found

    def give_up(self) -> None:
        """Refuse all texts, also those that are not answered yet."""
        self.draining = True
        self._given_up += self.batcher.give_up()

    def close(self, logger: logging.Logger) -> None:
        """Give up what is left, and log how many texts were given up."""
        self.give_up()
        self.batcher.close()
        level = logging.WARNING if self._given_up else logging.INFO
        logs.event(logger, level, "drained", given_up=self._given_up)


def end_now(code: int) -> NoReturn:
    """End the process during a batch: Python would wait for its thread, which may hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def timing(found: Sequence[Answered]) -> RequestTiming:
    """Timing of a request, from the answers to its texts."""
    batches: Dict[int, Batch] = {id(one.batch): one.batch for one in found}
    splits = [batch.split for batch in batches.values()]
    return RequestTiming(
        queue_ms=max(one.queue_ms for one in found),
        tokenize_ms=sum(split.tokenize_ms for split in splits),
        run_ms=sum(split.run_ms for split in splits),
        post_ms=sum(split.post_ms for split in splits),
        batch=max(batch.size for batch in batches.values()),
    )


def predictions(found: Sequence[Answered]) -> List[Prediction]:
    """The predictions alone."""
    return [one.prediction for one in found]
