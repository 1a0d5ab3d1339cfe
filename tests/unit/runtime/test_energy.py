from __future__ import annotations

from pathlib import Path

import pytest

from edgepack_runtime import energy

RAPL = "sys/class/powercap"
HWMON = "sys/class/hwmon"


def system(root: Path, files: dict[str, object]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    return root


def packages(*microjoules: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for number, value in enumerate(microjoules):
        folder = f"{RAPL}/intel-rapl:{number}"
        found |= {f"{folder}/name": f"package-{number}", f"{folder}/energy_uj": value}
        found[f"{folder}/max_energy_range_uj"] = 1_000_000
    return found


def spent_mj(root: Path, before: dict[str, object], after: dict[str, object]) -> float | None:
    """Over two seconds."""
    meter = energy.find(system(root, before))
    first = energy.look(meter, 1000.0)
    system(root, after)
    return energy.between_mj(meter, first, energy.look(meter, 3000.0))


def test_a_device_without_a_meter_tells_nothing(tmp_path: Path) -> None:
    assert energy.find(tmp_path) is None
    assert energy.look(None, 0.0) is None and energy.between_mj(None, None, None) is None


def test_the_packages_of_a_pc_are_added_up_and_their_parts_are_not(tmp_path: Path) -> None:
    parts: dict[str, object] = {
        f"{RAPL}/intel-rapl:0:0/name": "core", f"{RAPL}/intel-rapl:0:0/energy_uj": 1,
        f"{RAPL}/intel-rapl:7/name": "psys", f"{RAPL}/intel-rapl:7/energy_uj": 1,
    }  # fmt: skip
    assert spent_mj(tmp_path, {**packages(1000, 5000), **parts}, packages(3000, 9000)) == 6.0
    meter = energy.find(tmp_path)
    assert meter is not None and meter.name == "RAPL (processor packages)"


def test_a_counter_that_began_anew_goes_on(tmp_path: Path) -> None:
    assert spent_mj(tmp_path, packages(999_000), packages(2000)) == 3.0


@pytest.mark.parametrize("value", ["", "denied", "-1"])
def test_counters_that_may_not_be_read_are_no_meter(tmp_path: Path, value: str) -> None:
    """Only root reads them since Linux 5.10; a file that cannot be read looks like one without a number."""
    assert energy.find(system(tmp_path, {**packages(1), f"{RAPL}/intel-rapl:0/energy_uj": value})) is None


def jetson(milliamperes: int, label: str = "VDD_IN") -> dict[str, object]:
    return {
        f"{HWMON}/hwmon0/name": "nvme", f"{HWMON}/hwmon1/name": "ina3221",
        f"{HWMON}/hwmon1/in1_label": label, f"{HWMON}/hwmon1/in1_input": 5000,
        f"{HWMON}/hwmon1/curr1_input": milliamperes,
        f"{HWMON}/hwmon1/in2_label": "VDD_CPU_GPU_CV", f"{HWMON}/hwmon1/in2_input": 5000,
        f"{HWMON}/hwmon1/curr2_input": 400,
    }  # fmt: skip


def test_the_board_rail_of_a_jetson_is_its_power(tmp_path: Path) -> None:
    assert spent_mj(tmp_path, jetson(1000), jetson(2000)) == pytest.approx(15_000)  # 5 to 10 W for two seconds
    meter = energy.find(tmp_path)
    assert meter is not None and meter.name == "INA3221 (VDD_IN)"


def test_rails_that_are_only_parts_of_the_board_are_no_meter(tmp_path: Path) -> None:
    assert energy.find(system(tmp_path, jetson(1000, "VDD_SOC"))) is None


def test_a_meter_that_stops_telling_gives_nothing(tmp_path: Path) -> None:
    assert spent_mj(tmp_path, jetson(1000), {f"{HWMON}/hwmon1/curr1_input": "gone"}) is None
