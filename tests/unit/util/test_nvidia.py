"""What drivers of many ages print is read; `golden/nvidia` holds it, in the form that nvidia-smi gives it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.util import nvidia
from edgepack.util.nvidia import DriverAnswer, Gpu, Nvidia

GOLDEN = Path(__file__).parents[1] / "golden" / "nvidia"
Ask = Callable[[Sequence[str]], DriverAnswer]

FOUND = {
    "h200-580": Nvidia("580.159.03", "13.0", (Gpu(0, "NVIDIA H200", "9.0", 143771),)),
    "two-590": Nvidia(
        "590.44.01",
        "13.1",
        (
            Gpu(0, "NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 97887),
            Gpu(1, "NVIDIA GeForce GT 1030", "6.1", 2048),
        ),
    ),
    "a100-mig-535": Nvidia(
        "535.104.05",
        "12.2",
        (
            Gpu(0, "NVIDIA A100-SXM4-40GB", "8.0", 40960, ("3g.20gb", "1g.5gb+me")),
            Gpu(1, "NVIDIA A100-SXM4-40GB", "8.0", 40960, ()),
            Gpu(2, "NVIDIA A100-SXM4-40GB", "8.0", 40960),
        ),
    ),
    "rtx2080-470": Nvidia("470.223.02", "11.4", (Gpu(0, "NVIDIA GeForce RTX 2080 Ti", None, 11019),)),
    "v100-418": Nvidia(
        "418.226.00", "10.1", (Gpu(0, "Tesla V100-SXM2-16GB", None, 16130), Gpu(1, "Tesla V100-SXM2-16GB", None, 16130))
    ),
    "k80-384": Nvidia("384.183", None, (Gpu(0, "Tesla K80", None, 11439),)),
    "orin-540": Nvidia("540.3.0", "12.2", (Gpu(0, "Orin (nvgpu)", "8.7", None),)),
    "hidden-memory-535": Nvidia("535.104.05", "12.2", (Gpu(0, "NVIDIA A100-SXM4-40GB", "8.0", None),)),
}
NOTHING_FOUND = {
    "not-loaded": ("the driver is not loaded", "modprobe nvidia"),
    "mismatch": ("different versions", "reboot"),
    "no-permission": ("may not use the driver", "/dev/nvidia*"),
    "none-found": ("finds no GPU", "--gpus all"),
    "none-found-older": ("finds no GPU", "--gpus all"),
    "container-lost-it": ("cannot be reached", "restart the container"),
    "unknown": ("libnvidia-ml.so.1: cannot open shared object file (exit 127)", "run `nvidia-smi`"),
    "silent": ("nvidia-smi says: nothing (exit 1)", "run `nvidia-smi`"),
}


def recorded(name: str) -> Ask:
    """Answers as of the calls written down in one golden file, and none to any other."""
    answers = {}
    for part in (GOLDEN / f"{name}.txt").read_text(encoding="utf-8").removeprefix("$ ").split("\n$ "):
        head, _, text = part.partition("\n")
        call, _, status = head.rpartition(" -> ")
        answers[call] = DriverAnswer(int(status), text)
    return lambda arguments: answers[" ".join(["nvidia-smi", *arguments])]


def test_every_golden_file_is_read_by_a_test() -> None:
    assert {path.stem for path in GOLDEN.glob("*")} == {*FOUND, *NOTHING_FOUND, "lost-550"}


@pytest.mark.parametrize("name", FOUND)
def test_gpus_and_driver_are_read(name: str) -> None:
    assert nvidia.detect(recorded(name)) == FOUND[name]


@pytest.mark.parametrize("name", NOTHING_FOUND)
def test_where_there_is_nothing_it_says_why_and_what_to_do(name: str) -> None:
    found = nvidia.detect(recorded(name))
    assert (found.driver, found.cuda, found.gpus) == (None, None, ())
    why, fix = NOTHING_FOUND[name]
    assert why in found.why
    assert fix in found.fix


def test_a_gpu_that_is_lost_does_not_hide_the_others() -> None:
    found = nvidia.detect(recorded("lost-550"))
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA L40S"]
    assert found.why == "a GPU has stopped responding to the driver"
    assert "reboot" in found.fix


def test_a_tool_that_is_missing_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = nvidia.detect(nvidia.call)
    assert found.gpus == ()
    assert found.why == "nvidia-smi cannot be run: it is not installed, or not on PATH"
    assert "driver" in found.fix


def test_the_installed_tool_is_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "$LC_ALL $*"; echo trouble >&2; exit 3\n', encoding="utf-8")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = nvidia.call(["-L"])
    assert answer.status == 3
    assert sorted(answer.text.splitlines()) == ["C -L", "trouble"]
    tool.chmod(0o644)
    assert nvidia.call(["-L"]) in (
        DriverAnswer(None, "Permission denied"),
        DriverAnswer(None, "it is not installed, or not on PATH"),
    )


def test_a_driver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: Sequence[str], **options: float) -> None:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(nvidia, "find_program", lambda name: name)
    monkeypatch.setattr(subprocess, "run", hang)
    found = nvidia.detect(nvidia.call)
    assert found.gpus == ()
    assert "did not answer within 60 s" in found.why


@given(st.text(), st.integers(-1, 255))
def test_whatever_it_prints_is_read_or_told(text: str, status: int) -> None:
    found = nvidia.detect(lambda arguments: DriverAnswer(status, text))
    assert bool(found.gpus) or (found.why and found.fix)


@given(
    st.lists(
        st.sampled_from(["0", "1", "[N/A]", "ERR!", "", "9.0", "Enabled", "12", "²", "Tesla, T4"]),
        min_size=5,
        max_size=6,
    ),
    st.integers(0, 1),
)
def test_odd_values_are_none_and_no_error(values: list[str], status: int) -> None:
    for gpu in nvidia.detect(lambda arguments: DriverAnswer(status, ", ".join(values))).gpus:
        assert gpu.name
        assert gpu.memory_mib is None or gpu.memory_mib >= 0


@pytest.mark.parametrize(("sm", "name"), [("9.0", "sm_90"), ("12.0", "sm_120"), ("8.7", "sm_87")])
def test_a_capability_has_the_name_that_compilers_give_it(sm: str, name: str) -> None:
    assert nvidia.sm_name(sm) == name
