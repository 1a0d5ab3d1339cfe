from __future__ import annotations

import json
from typing import Any

import pytest

from edgepack_runtime import closed_loop, conditions, contention, energy
from edgepack_runtime.closed_loop import Spell, Window
from edgepack_runtime.contention import Contention, Reading
from edgepack_runtime.predictor import Split
from edgepack_runtime.tuning import Tuning


class Model:
    """Takes 100 ms for each text, on a clock of its own; nobody else runs for the first half second."""

    tuning = Tuning()
    now = 0.0

    def timed_predict(self, text: str) -> tuple[None, Split]:
        self.now += 100.0
        return None, Split(10.0, 80.0, 10.0)

    def read(self, *, waits: bool = True) -> Reading:
        others_ms = max(self.now - 500.0, 0.0)
        return Reading(self.now, self.now, 2, 2 * self.now, self.now - others_ms, 0.0)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Model()
    monkeypatch.setattr(contention, "read", made.read)
    return made


def test_a_window_is_cut_into_spells_without_a_gap(model: Any) -> None:
    window = closed_loop.timed(model, iter(["a"] * 10))
    assert [spell.texts for spell in window.spells] == [3, 3, 3, 1]
    assert [spell.contention.others_ms for spell in window.spells] == [0, 100, 300, 100]
    assert window.contention == Contention(1000, 1000, 2, 500, 0, None, None, None)
    assert closed_loop.window_of(json.loads(json.dumps(window.as_json()))) == window


def test_each_spell_lost_what_others_did_in_it(model: Any) -> None:
    window = closed_loop.timed(model, ["a"] * 10)
    tick = contention.TICK_MS
    found = closed_loop.stretch(window)
    assert [len(spell.times_ms) for spell in found.spells] == [3, 3, 3, 1]
    assert [spell.lost_ms for spell in found.spells] == [
        tick,
        125 + tick,
        300 + tick,
        100 + tick,
    ]  # never more than all
    assert found.lost_ms == 625 + tick
    some = closed_loop.stretch(window, [place % 2 == 0 for place in range(10)])
    assert [len(spell.times_ms) for spell in some.spells] == [2, 1, 2, 0]
    assert some.lost_ms == found.lost_ms  # any of a spell's texts may be the one that was held up


def test_a_part_of_a_window_has_its_own_texts_and_spells(model: Any) -> None:
    window = closed_loop.timed(model, ["a"] * 10)
    last = closed_loop.part(window, 2, 4)
    assert (len(last.samples), [spell.texts for spell in last.spells]) == (4, [3, 1])
    assert last.contention.others_ms == 400


def test_energy_is_told_with_each_spell(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "find", lambda: energy.Meter("a meter", [], []))
    monkeypatch.setattr(energy, "look", lambda meter, clock_ms: energy.Look(clock_ms, milliwatts=2000.0))
    window = closed_loop.timed(model, ["a"] * 4)
    assert [spell.energy_mj for spell in window.spells] == pytest.approx([600, 200])


def test_more_threads_than_cores_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "usable_cores", lambda: 4)
    assert closed_loop.waits_for_others(4) and not closed_loop.waits_for_others(5)


def test_spells_of_another_process_come_whole() -> None:
    window = Window([Split(1.0, 2.0, 3.0)], [Spell(1, Contention(6.0, 5.0, None, None), None)])
    assert closed_loop.window_of(json.loads(json.dumps(window.as_json()))) == window
