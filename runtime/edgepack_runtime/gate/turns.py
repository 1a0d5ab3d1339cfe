"""Latency against the active release: both answer the same items in turns, in one run.

On a device that others keep busy, a limit in milliseconds cannot be shown. What can be shown there is whether an update
is slower than the release that serves now, since others disturb both alike. The active release answers in a process of
its own, with its own runtime and interpreter: it is compared as it serves.

What is compared is what is limited: the same percentile of both, over the same items. The interval of the ratio is a
percentile bootstrap over items (Efron 1979), paired, so that an item that is slow for both moves it little.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import random
import select
import statistics
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, TextIO

from edgepack_runtime.bundle.model_config import FILE, TEXTS
from edgepack_runtime.errors import EdgepackError, StageFailedError
from edgepack_runtime.gate import latency
from edgepack_runtime.gate.latency import Asked
from edgepack_runtime.inference import bench
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.install import release_process
from edgepack_runtime.messages import message
from edgepack_runtime.schema.gates import P50, LatencyLimits
from edgepack_runtime.schema.receipt import GateCheck
from edgepack_runtime.stats import intervals
from edgepack_runtime.util.progress import Log, Pace
from edgepack_runtime.util.texts import Item

MAY_TAKE = 1.10  # times the active release's time: a difference that no application notices
_REPEATS = 3  # of each answer, of which the median counts: the first finds caches that the other release filled
_RESAMPLES = 1000
_SEED = 20240229
_LEAST_PAIRS, _MOST_PAIRS = 130, 600
_BUDGET_MS = 15_000.0
_ANSWER_TIMEOUT_S = 120.0


class Turns(NamedTuple):
    """Times of both releases for the same items, in ms."""

    active: str  # release id
    items: List[latency.TimedText]
    ours_ms: List[float]
    theirs_ms: List[float]

    def interval(self, asked: Asked) -> Optional[intervals.Interval]:
        """Ratio, new to active, of a limited percentile, with its interval; None without an item that it is about."""
        about = [place for place, item in enumerate(self.items) if asked.concerns(item.kind)]
        return self._ratio(about, asked.fraction) if about else None

    def as_json(self) -> Dict[str, Any]:
        """The receipt's `turns`, with the ratio of the medians."""
        ratio = self._ratio(range(len(self.items)), P50)
        return {
            "active": self.active,
            "pairs": len(self.items),
            "ratio": round(ratio.value, 4),
            "low": round(ratio.low, 4),
            "high": round(ratio.high, 4),
            "limit": MAY_TAKE,
            "confidence": bench.CONFIDENCE,
        }

    def _ratio(self, about: Sequence[int], fraction: float) -> intervals.Interval:
        """The ratio of a percentile over the items at the places `about`."""

        def ratio(places: Sequence[int]) -> float:
            ours, theirs = (sorted(times[place] for place in places) for times in (self.ours_ms, self.theirs_ms))
            return intervals.percentile(ours, fraction) / intervals.percentile(theirs, fraction)

        draw = random.Random(_SEED)
        drawn = sorted(ratio(draw.choices(about, k=len(about))) for _ in range(_RESAMPLES))
        tail = (1 - bench.CONFIDENCE) / 2
        low, high = intervals.percentile(drawn, tail), intervals.percentile(drawn, 1 - tail)
        return intervals.Interval(ratio(about), low, high)


def measure(predictor: Predictor, active: Path, texts: Sequence[Item], limits: LatencyLimits, progress: Log) -> Turns:
    """Time `predictor` and the release in `active` in turns, on items that `latency.choose` selects from `texts`.

    Raises:
        StageFailedError: the active release does not answer; it may be of another task, or older than this method.
    """
    drawn = latency.shuffled(texts)
    tokens = [predictor.text_model.tokens(text) if limits.by_length else 0 for text in drawn]
    with _answering(active, predictor.config.item) as ask:
        for item in drawn[: bench.WARM_UP_TEXTS]:
            predictor.predict(item)
            probe_ms = ask(item)
        count = max(_LEAST_PAIRS, min(_MOST_PAIRS, int(_BUDGET_MS / max(2 * _REPEATS * probe_ms, 1e-3))))
        by_encoder = [predictor.needs_encoder(text) for text in drawn]
        chosen = latency.shuffled(latency.choose(drawn, limits, count, tokens, by_encoder))
        progress(f"latency: in turns with {active.name}, {len(chosen)} items")
        ours_ms: List[float] = []
        theirs_ms: List[float] = []
        pace = Pace()
        for number, text in enumerate(chosen):
            # The order changes with every item, as in `bench.take_turns`.
            if number % 2:
                theirs_ms.append(ask(text.item))
                ours_ms.append(timed_ms(predictor, text.item))
            else:
                ours_ms.append(timed_ms(predictor, text.item))
                theirs_ms.append(ask(text.item))
            if pace.is_due():
                progress(f"latency: in turns with {active.name}, {number + 1} of {len(chosen)}")
    return Turns(active.name, chosen, ours_ms, theirs_ms)


def timed_ms(predictor: Predictor, item: Item) -> float:
    """The median time of some answers to one item, in ms."""
    return statistics.median(predictor.timed_predict(item)[1].total_ms for _ in range(_REPEATS))


def judge(check: GateCheck, found: Turns, limits: LatencyLimits) -> GateCheck:
    """A check on latency that was not decided in ms, decided by the comparison if that is clear."""
    asked = next((one for one in latency.asked_of(limits) if one.gate == check.gate), None)
    if check.verdict != intervals.INCONCLUSIVE or asked is None or check.value is None:
        return check
    ratio = found.interval(asked)
    if ratio is None:
        return check
    verdict = intervals.verdict_at_most(ratio, MAY_TAKE)
    word = {
        intervals.PASS: "turns.faster",
        intervals.FAIL: "turns.slower",
        intervals.INCONCLUSIVE: "turns.undecided",
    }[verdict]
    value, low, high = (round(number, 4) for number in ratio)
    detail = message(
        "turns.detail",
        word=message(word, active=found.active),
        ratio=value,
        low=low,
        high=high,
        limit=MAY_TAKE,
        alone=check.detail,
    )
    return dataclasses.replace(check, verdict=verdict, detail=detail)


def answer(predictor: Predictor, stdin: TextIO, stdout: TextIO) -> None:
    """Answer and time items, one JSON value a line, until `stdin` ends: the active release's part of `measure`.

    The first line says what an item is; then each line is a time in ms.
    """
    stdout.write(json.dumps({"item": predictor.config.item}) + "\n")
    stdout.flush()
    for line in stdin:
        stdout.write(f"{timed_ms(predictor, _decoded(json.loads(line), predictor.config.item)):.6f}\n")
        stdout.flush()


def _encoded(item: Any) -> str:
    return json.dumps(base64.b64encode(item).decode() if isinstance(item, bytes) else item)


def _decoded(value: Any, kind: str) -> Any:
    if kind == FILE:
        return base64.b64decode(value)
    return tuple(value) if kind == TEXTS else value


class _Ask(NamedTuple):
    """Asks a process for the time of an item."""

    process: subprocess.Popen  # type: ignore[type-arg]  # not generic on Python 3.8
    name: str

    def __call__(self, item: Item) -> float:
        self.process.stdin.write(_encoded(item).encode() + b"\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]
        return float(self.line())

    def line(self) -> bytes:
        output = self.process.stdout
        assert output is not None
        if not select.select([output], [], [], _ANSWER_TIMEOUT_S)[0]:
            raise TimeoutError(f"no answer within {_ANSWER_TIMEOUT_S:g} s")
        found: bytes = output.readline()  # a line is written at once, and is shorter than a pipe
        if not found:
            raise EOFError(f"it ended with exit code {self.process.wait()}")
        return found


@contextlib.contextmanager
def _answering(active: Path, kind: str) -> Iterator[_Ask]:
    """The process of the active release, which answers items of this kind."""
    line = release_process.command(active, ["gate", "--turns"])
    try:
        with subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            preexec_fn=release_process.die_with_parent(),
            start_new_session=True,
        ) as process:
            try:
                ask = _Ask(process, active.name)
                theirs = json.loads(ask.line()).get("item")
                if theirs != kind:
                    raise ValueError(f"its items are {theirs}, and here they are {kind}")
                yield ask
            finally:
                process.kill()
    except EdgepackError:
        raise
    except (OSError, EOFError, ValueError, AttributeError, subprocess.SubprocessError) as error:
        raise StageFailedError(f"{active.name} cannot be compared with", why=str(error)) from error
