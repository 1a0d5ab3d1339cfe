"""Figures of a training as series: TensorBoard events while it runs, `metrics.json` at its end."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edgepack.artifacts import EVENTS_PREFIX, METRICS_FILE

Series = dict[str, list[list[float]]]  # name -> [step, value] pairs by step, as in JSON
_FLUSH_SECONDS: Final = 10.0  # least time between two flushes: each waits for the disk


class ScalarWriter:
    """Writes the figures of one training into `folder`, which is created; None keeps them in memory only.

    Events are written in the thread that trains. tensorboardX's `SummaryWriter` has a second thread, which ends
    when the disk is full; the training would then wait for it forever.
    """

    def __init__(self, folder: Path | None) -> None:
        self.series: Series = {}
        self._folder = folder
        self._events = None
        self._flushed = -math.inf  # the first values are flushed at once
        if folder is not None:
            from tensorboardX.event_file_writer import EventsWriter  # not part of the light install

            folder.mkdir(parents=True, exist_ok=True)
            self._events = EventsWriter(str(folder / EVENTS_PREFIX.partition(".")[0]))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Append the `values` of a step, by their names.

        Raises:
            OSError: they cannot be written.
        """
        for name, value in values.items():
            self.series.setdefault(name, []).append([step, value])
        if self._events is None:
            return
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
        self._events.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        if time.monotonic() - self._flushed >= _FLUSH_SECONDS:
            self._events.flush()
            self._flushed = time.monotonic()

    def restore(self, series: Series) -> None:
        """Write the series of an interrupted training again: the files that it wrote are gone."""
        for name, points in series.items():
            for step, value in points:
                self.add(int(step), {name: value})

    def finish(self) -> None:
        """Write `metrics.json`. Raises OSError if it cannot be written."""
        if self._folder is not None:
            text = json.dumps(self.series, indent=0, allow_nan=False)
            (self._folder / METRICS_FILE).write_text(text + "\n", encoding="utf-8")

    def close(self) -> None:
        """Close the file of events."""
        if self._events is not None:
            self._events.close()
