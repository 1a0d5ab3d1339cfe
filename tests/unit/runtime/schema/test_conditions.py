from __future__ import annotations

import dataclasses

from edgepack_runtime.schema.conditions import MAIN, Changing, Conditions, main
from edgepack_runtime.schema.fields import to_json
from edgepack_runtime.schema.receipt import GateReceipt


def test_each_main_condition_is_declared() -> None:
    assert set(MAIN) <= {one.name for one in dataclasses.fields(Conditions)}
    found = to_json(Conditions(gpu="Orin", temperature_c=61.5, emulated=False, kernel="6.1", after=Changing()))
    assert list(main(found).items()) == [("gpu", "Orin"), ("temperature_c", 61.5), ("emulated", False)]


def test_unknown_conditions_are_kept_and_invalid_ones_are_unknown() -> None:
    written = {"board": "A", "cpu_model": "Cortex-A76", "engine": 5, "after": {"clock_mhz": 1500.0, "fan": 2}}
    found = GateReceipt.parse({"verdict": "pass", "checks": [], "conditions": written})
    assert found.conditions == found.to_json()["conditions"] == written
    assert found.where == Conditions(cpu_model="Cortex-A76", after=Changing(clock_mhz=1500.0))
    assert Conditions.of(None) == Conditions.of({}) == Conditions()
