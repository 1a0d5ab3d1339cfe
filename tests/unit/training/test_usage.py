"""How busy a GPU was, of made-up answers of the driver; no GPU, and nobody waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from edgepack.training.usage import GpuLoad, driver_name, load_query
from edgepack.util import nvidia
from edgepack.util.nvidia import DriverAnswer, Gpu, Load, Nvidia

ALIKE = Nvidia("580", "13.0", tuple(Gpu(index, "NVIDIA H200", "9.0", 1) for index in range(4)))
UNLIKE = Nvidia("590", "13.1", (Gpu(0, "GT 1030", "6.1", 1), Gpu(1, "RTX PRO 6000", "12.0", 1)))
UUID = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"


class Script:
    """A driver that gives `answers`; steps end while it works on the last of them."""

    def __init__(self, *answers: Load) -> None:
        self.load = GpuLoad(self._ask, first_seconds=0, every_seconds=0)
        self._answers = list(answers)

    def _ask(self) -> Load:
        answer = self._answers.pop(0)
        if not self._answers:
            self.load.stop()
        return answer

    def run(self) -> None:
        """Steps are taken until the driver has nothing to say any more."""
        self.load.start()
        wait_for_threads()


def wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "gpu load":
            thread.join(timeout=10)
            assert not thread.is_alive()


def test_the_mean_is_of_what_was_said_while_steps_were_taken() -> None:
    script = Script(Load(40), Load(61), Load(80), Load(0))  # the last answer comes after the steps
    script.run()
    assert script.load.read() == (60.3, "")


def test_it_goes_on_after_a_pause() -> None:
    script = Script(Load(100), Load(0))
    script.run()
    script._answers = [Load(50), Load(0)]
    script.run()
    assert script.load.read() == (75.0, "")


def test_a_driver_that_does_not_tell_is_asked_once() -> None:
    script = Script(Load(None, "nvidia-smi says [N/A]"), Load(7), Load(7))
    script.run()
    assert script.load.read() == (None, "nvidia-smi says [N/A]")
    assert len(script._answers) == 2


def test_what_was_heard_before_it_failed_counts() -> None:
    script = Script(Load(30), Load(None, "a GPU has stopped responding to the driver"), Load(7))
    script.run()
    assert script.load.read() == (30.0, "")


def test_steps_do_not_wait_for_the_driver() -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def slow() -> Load:
        asked.set()
        may_answer.wait(10)
        return Load(99)

    load = GpuLoad(slow, first_seconds=0)
    load.start()
    assert asked.wait(10)
    load.stop()  # returns while the driver still thinks
    may_answer.set()
    wait_for_threads()
    assert load.read() == (None, "the training ended before the first sample")


def test_short_trainings_ask_nobody() -> None:
    def never() -> Load:
        raise AssertionError("asked")

    load = GpuLoad(never)
    load.start()
    load.stop()
    wait_for_threads()
    assert load.read()[0] is None


@pytest.mark.parametrize(
    ("index", "variables", "driver", "name"),
    [
        (2, {}, ALIKE, "2"),
        (1, {"CUDA_VISIBLE_DEVICES": "3, 1"}, ALIKE, "1"),
        (0, {"CUDA_VISIBLE_DEVICES": UUID}, UNLIKE, UUID),
        (1, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, UNLIKE, "1"),
        (0, {}, UNLIKE, "the GPUs are different models; set CUDA_DEVICE_ORDER=PCI_BUS_ID to identify them"),
        (4, {}, ALIKE, "nvidia-smi knows no gpu:4"),
        (1, {"CUDA_VISIBLE_DEVICES": "3"}, ALIKE, "nvidia-smi knows no gpu:1"),
    ],
)
def test_the_driver_is_asked_for_the_gpu_that_trains(
    index: int, variables: dict[str, str], driver: Nvidia, name: str
) -> None:
    found = driver_name(index, variables, driver)
    assert (found.why if isinstance(found, Load) else found) == name


def test_one_question_reaches_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def load(gpu: str) -> Load:
        asked.append(gpu)
        return Load(5)

    monkeypatch.setattr(nvidia, "load", load)
    ask: Callable[[], Load] = load_query(1, {"CUDA_VISIBLE_DEVICES": "2,3"}, ALIKE)
    assert asked == []
    assert ask() == Load(5)
    assert asked == ["3"]
    assert load_query(9, {}, ALIKE)().percent is None
    assert asked == ["3"]


@pytest.mark.parametrize(
    ("status", "text", "load"),
    [
        (0, "87\n", Load(87)),
        (0, "0\n", Load(0)),
        (0, "[N/A]\n", Load(None, "nvidia-smi says [N/A]")),
        (0, "[Not Supported]\n", Load(None, "nvidia-smi says [Not Supported]")),
        (6, "No devices were found\n", Load(None, "the driver finds no GPU that it can use")),
        (0, "87\n12\n", Load(None, "nvidia-smi says: 12 (exit 0)")),
        (-1, "it did not answer within 60 s", Load(None, "nvidia-smi says: it did not answer within 60 s (exit -1)")),
        (None, "it is not installed", Load(None, "nvidia-smi cannot be run: it is not installed")),
    ],
)
def test_what_the_driver_says_is_read(status: int | None, text: str, load: Load) -> None:
    calls: list[str] = []

    def ask(arguments: Sequence[str]) -> DriverAnswer:
        calls.append(" ".join(arguments))
        return DriverAnswer(status, text)

    assert nvidia.load("1", ask) == load
    assert calls == ["--id=1 --query-gpu=utilization.gpu --format=csv,noheader,nounits"]
