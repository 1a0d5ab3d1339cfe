"""One text after the other, as fast as they go, with what else the machine did while each part of them was timed."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from edgepack_runtime import conditions, contention, energy, noise
from edgepack_runtime.contention import Contention
from edgepack_runtime.predictor import Predictor, Split
from edgepack_runtime.texts import Item

# How long texts are timed between two looks at the counters, which take 0.1 ms: a tick of 10 ms is 4 % of that, and a
# neighbour of 50 ms spoils no more than a tenth of a window.
SPELL_MS = 250.0


class Spell(NamedTuple):
    """So many texts in a row, what the machine did meanwhile, and the energy it took where the board tells."""

    texts: int
    contention: Contention
    energy_mj: Optional[float] = None


class Window(NamedTuple):
    """Texts in the order in which they were timed, cut into spells that follow each other without a gap."""

    samples: List[Split]
    spells: List[Spell]

    @property
    def contention(self) -> Contention:
        """Of the whole window."""
        return contention.together([spell.contention for spell in self.spells])

    def as_json(self) -> Dict[str, Any]:
        """For the way out of another process."""
        return {"samples": self.samples, "spells": self.spells}


def window_of(told: Mapping[str, Any]) -> Window:
    """What `Window.as_json` made, after JSON."""
    return Window(
        [Split(*sample) for sample in told["samples"]],
        [Spell(texts, Contention(*figures), energy_mj) for texts, figures, energy_mj in told["spells"]],
    )


def waits_for_others(threads: int) -> bool:
    """Whether a thread that waits for a core waits for others, and not for threads of its own process."""
    return threads <= (conditions.usable_cores() or 1)


def timed(predictor: Predictor, items: Iterable[Item]) -> Window:
    """Time `predictor` once on each of `items`, at least one, in their order."""
    waits, meter = waits_for_others(predictor.tuning.threads), energy.find()
    samples: List[Split] = []
    spells: List[Spell] = []
    counted, spent_ms = 0, 0.0
    before = contention.read(waits=waits)
    seen = energy.look(meter, before.clock_ms)

    def close() -> None:
        nonlocal before, seen, counted, spent_ms
        after = contention.read(waits=waits)
        now = energy.look(meter, after.clock_ms)
        spent = energy.between_mj(meter, seen, now)
        spells.append(Spell(len(samples) - counted, contention.between(before, after), spent))
        before, seen, counted, spent_ms = after, now, len(samples), 0.0

    for item in items:
        sample = predictor.timed_predict(item)[1]
        samples.append(sample)
        spent_ms += sample.total_ms
        if spent_ms >= SPELL_MS:
            close()
    if counted < len(samples):
        close()
    return Window(samples, spells)


def stretch(window: Window, counts: Optional[Sequence[bool]] = None) -> noise.Stretch:
    """The timings of a window, with what others can have taken of them.

    Args:
        counts: which texts count; all of them without it. Others can have slowed down any of a spell's texts, so what
            they took is not divided.
    """
    found = []
    begin = 0
    for spell in window.spells:
        places = range(begin, begin + spell.texts)
        times = [window.samples[place].total_ms for place in places if counts is None or counts[place]]
        found.append(noise.Spell(times, spell.contention.lost_ms + contention.TICK_MS))
        begin += spell.texts
    return noise.Stretch(found, window.contention.lost_ms + contention.TICK_MS)


def part(window: Window, begin: int, end: int) -> Window:
    """Spells `begin` to before `end` of a window."""
    texts = [spell.texts for spell in window.spells]
    return Window(window.samples[sum(texts[:begin]) : sum(texts[:end])], window.spells[begin:end])
