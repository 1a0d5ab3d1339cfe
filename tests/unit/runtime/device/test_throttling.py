from __future__ import annotations

from pathlib import Path

from tests.unit.runtime.fake_device import tree

from edgepack_runtime.device import throttling
from edgepack_runtime.device.throttling import Throttle

CPU = "sys/devices/system/cpu"
PI = "sys/devices/platform/soc/soc:firmware/get_throttled"


def test_a_device_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    found = throttling.read_throttle(tmp_path)
    assert found == Throttle() and not found.known and found.as_json() is None
    assert throttling.reasons(found, found) == []
    assert throttling.worst([found, found]) == Throttle()


def test_counters_of_a_pc_and_of_a_jetson_are_read(tmp_path: Path) -> None:
    files = {
        f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "3\n",
        f"{CPU}/cpu1/thermal_throttle/package_throttle_count": "4\n",
        "sys/class/hwmon/hwmon2/oc1_event_cnt": "5\n",
        "sys/class/hwmon/hwmon2/oc2_event_cnt": "broken\n",
        "sys/class/thermal/cooling_device0/type": "Processor\n",
        "sys/class/thermal/cooling_device0/cur_state": "2\n",
        "sys/class/thermal/cooling_device1/type": "pwm-fan\n",
        "sys/class/thermal/cooling_device1/cur_state": "7\n",
        f"{CPU}/cpu0/cpufreq/scaling_max_freq": "1200000\n",
        f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": "1500000\n",
        f"{CPU}/cpu1/cpufreq/scaling_max_freq": "1500000\n",
        f"{CPU}/cpu1/cpufreq/cpuinfo_max_freq": "1500000\n",
        PI: "0x50005\n",
    }
    found = throttling.read_throttle(tree(tmp_path, files))
    assert found == Throttle(events=12, cooling=2, firmware=0x50005, capped=0.8)
    assert found.as_json() == {"events": 12, "cooling": 2, "firmware": 0x50005, "capped": 0.8}


def test_throttling_is_described_by_what_happened_meanwhile() -> None:
    cool = Throttle(events=7, cooling=0, firmware=0, capped=1.0)
    hot = Throttle(events=9, cooling=3, firmware=0x4, capped=0.5)
    assert throttling.reasons(cool, cool) == []
    assert throttling.reasons(hot, hot._replace(firmware=0)) == []  # as it was before
    assert throttling.reasons(cool, hot) == [
        "2 throttling events",
        "cooling devices went from state 0 to 3",
        "the firmware reports undervoltage or heat (0x4)",
        "the clock was capped at 50% of the highest",
    ]

    earlier = Throttle(firmware=0x40000)  # the upper bits of a Raspberry Pi say what happened since it started
    assert throttling.reasons(earlier, earlier) == []
    assert throttling.reasons(Throttle(firmware=0), earlier) != []


def test_the_worst_of_several_moments_is_kept() -> None:
    moments = [Throttle(1, 0, 0x1, 1.0), Throttle(2, 3, 0x4, 0.7), Throttle(2, 0, 0, None)]
    assert throttling.worst(moments) == Throttle(2, 3, 0x5, 0.7)
