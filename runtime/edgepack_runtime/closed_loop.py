"""One text after the other, as fast as they go, with what else the machine did while each part of them was timed."""

from __future__ import annotations

import statistics
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from edgepack_runtime import conditions, contention
from edgepack_runtime.contention import Contention
from edgepack_runtime.predictor import Predictor, Split
from edgepack_runtime.texts import Item

# How long texts are timed between two looks at the counters, which take 0.1 ms: a tick of 10 ms is 4 % of that, and a
# neighbour of 50 ms spoils no more than a tenth of a window.
SPELL_MS = 250.0


class Spell(NamedTuple):
    """So many texts in a row, and what the machine did meanwhile."""

    texts: int
    contention: Contention


class Window(NamedTuple):
    """Texts in the order in which they were timed, cut into spells that follow each other without a gap."""

    samples: List[Split]
    spells: List[Spell]

    @property
    def contention(self) -> Contention:
        """Of the whole window."""
        return contention.together([spell.contention for spell in self.spells])

    @property
    def median_ms(self) -> float:
        """Of all its texts."""
        return statistics.median(sample.total_ms for sample in self.samples)

    def as_json(self) -> Dict[str, Any]:
        """For the way out of another process."""
        return {"samples": self.samples, "spells": self.spells}


def window_of(told: Mapping[str, Any]) -> Window:
    """What `Window.as_json` made, after JSON."""
    return Window(
        [Split(*sample) for sample in told["samples"]],
        [Spell(texts, Contention(*figures)) for texts, figures in told["spells"]],
    )


def waits_for_others(threads: int) -> bool:
    """Whether a thread that waits for a core waits for others, and not for threads of its own process."""
    return threads <= (conditions.usable_cores() or 1)


def timed(predictor: Predictor, items: Sequence[Item]) -> Window:
    """Time `predictor` once on each of `items`, at least one, in their order."""
    waits = waits_for_others(predictor.tuning.threads)
    samples: List[Split] = []
    spells: List[Spell] = []
    counted, spent_ms = 0, 0.0
    before = contention.read(waits=waits)
    for item in items:
        sample = predictor.timed_predict(item)[1]
        samples.append(sample)
        spent_ms += sample.total_ms
        if spent_ms >= SPELL_MS or len(samples) == len(items):
            after = contention.read(waits=waits)
            spells.append(Spell(len(samples) - counted, contention.between(before, after)))
            before, counted, spent_ms = after, len(samples), 0.0
    return Window(samples, spells)
