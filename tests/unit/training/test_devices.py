"""Every choice of a device says why, and a GPU that is asked for and cannot be used is never a slow CPU."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from edgepack.errors import EnvironmentUnfitError
from edgepack.training import devices, environment
from edgepack.training.devices import Card, PaddleBuild
from edgepack.util.nvidia import Gpu, Nvidia

H200 = Card(0, "NVIDIA H200", "9.0", 143771)
T4 = Card(1, "NVIDIA T4", "7.5", 15109)
WITH_CUDA = PaddleBuild("3.3.1", "12.6", "9.5.1", (80, 90), (H200,))
WITHOUT_CUDA = PaddleBuild("3.3.1", None, None, ())
DRIVER = Nvidia("580.159.03", "13.0", (Gpu(0, "NVIDIA H200", "9.0", 143771),))
OLD_DRIVER = replace(DRIVER, driver="470.223.02", cuda="11.4")
NO_DRIVER = Nvidia(None, None, (), "nvidia-smi cannot be run: it is not installed", "install NVIDIA's driver")
NO_KERNELS = "CUDA error(209), no kernel image is available for execution on the device"


@pytest.fixture(autouse=True)
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.THREADS_VARIABLE, "4")


@pytest.mark.parametrize("wanted", ["auto", "gpu", "gpu:0"])
def test_a_gpu_that_works_is_taken(wanted: str) -> None:
    found = devices.decide(wanted, WITH_CUDA, DRIVER, {})
    assert (found.place, found.card) == ("gpu:0", H200)
    why = "a first computation worked" if wanted == "auto" else "asked for"
    assert str(found).splitlines() == [
        f"gpu:0: {why}; NVIDIA H200, sm_90, 143771 MiB",
        "driver 580.159.03, Paddle 3.3.1 for CUDA 12.6 and cuDNN 9.5.1, kernels for sm_80, sm_90",
    ]


def test_a_cpu_that_is_asked_for_is_taken() -> None:
    found = devices.decide("cpu", WITH_CUDA, DRIVER, {})
    assert (found.place, found.why, found.card) == ("cpu", "asked for", None)
    first, second = str(found).splitlines()
    assert first.startswith("cpu: asked for; ")
    assert first.endswith(", 4 threads")
    assert second == WITH_CUDA.about


def test_the_first_gpu_that_works_is_taken() -> None:
    build = replace(WITH_CUDA, cards=(replace(H200, failure="busy"), T4))
    for wanted in ("auto", "gpu", "gpu:1"):
        assert devices.decide(wanted, build, DRIVER, {}).place == "gpu:1"
    assert "2 visible" in str(devices.decide("auto", build, DRIVER, {}))
    with pytest.raises(EnvironmentUnfitError) as caught:
        devices.decide("gpu:0", build, DRIVER, {})
    assert "busy" in caught.value.why
    with pytest.raises(EnvironmentUnfitError) as caught:
        devices.decide("gpu:3", WITH_CUDA, DRIVER, {})
    assert caught.value.why == "there is no gpu:3: 1 visible here, counted from 0"


UNUSABLE = {
    "without CUDA": (WITHOUT_CUDA, NO_DRIVER, {}, "this Paddle is built without CUDA", "use device: cpu"),
    "without CUDA, with a GPU": (
        WITHOUT_CUDA, DRIVER, {}, "built without CUDA, but this machine has NVIDIA H200", "install paddlepaddle-gpu",
    ),
    "without a driver": (
        replace(WITH_CUDA, cards=()), NO_DRIVER, {}, "nvidia-smi cannot be run", "install NVIDIA's driver",
    ),
    "hidden": (
        replace(WITH_CUDA, cards=()), DRIVER, {"CUDA_VISIBLE_DEVICES": "-1"},
        "CUDA_VISIBLE_DEVICES='-1' leaves no GPU visible", "unset it",
    ),
    "hidden, and no driver": (
        replace(WITH_CUDA, cards=()), NO_DRIVER, {"CUDA_VISIBLE_DEVICES": "0"}, "nvidia-smi", "install NVIDIA's driver",
    ),
    "divided, without a part": (
        replace(WITH_CUDA, cards=()), replace(DRIVER, gpus=(replace(DRIVER.gpus[0], mig=()),)), {},
        "MIG is on and NVIDIA H200 has no instance", "nvidia-smi mig -cgi",
    ),
    "an old driver shows nothing": (
        replace(WITH_CUDA, cards=()), OLD_DRIVER, {},
        "the driver 470.223.02 runs CUDA up to 11.4, and this Paddle is built with CUDA 12.6", "a newer driver",
    ),
    "an old driver fails": (
        replace(WITH_CUDA, cards=(replace(H200, failure="CUDA error(35)"),)), OLD_DRIVER, {}, "up to 11.4", "newer",
    ),
    "an unseen GPU": (replace(WITH_CUDA, cards=()), DRIVER, {}, "the driver sees a GPU", "CUDA's libraries"),
    "no kernels": (
        replace(WITH_CUDA, kernels=(61, 70), cards=(replace(H200, failure="wrong sum"),)), DRIVER, {},
        "no kernels for NVIDIA H200, sm_90, only for sm_61, sm_70 (gpu:0 reported: wrong sum)", "built for sm_90",
    ),
    "no kernels, as CUDA says": (
        replace(WITH_CUDA, kernels=(), cards=(replace(H200, failure=NO_KERNELS),)), DRIVER, {},
        "this Paddle has no kernels for NVIDIA H200, sm_90 (gpu:0 reported: CUDA error(209)", "built for sm_90",
    ),
    "a library is missing": (
        replace(WITH_CUDA, cards=(replace(H200, failure="libcublas.so is not configured"),)), DRIVER, {},
        "a first computation failed: gpu:0 reported: libcublas.so is not configured", "repair CUDA's libraries",
    ),
    "a crash": (
        replace(WITH_CUDA, cards=(), failure="a first computation was ended by signal 11"), DRIVER, {},
        "ended by signal 11", "repair CUDA's libraries",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("build", "driver", "variables", "why", "fix"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_gpu_that_cannot_be_used_is_an_error_with_its_reason(
    build: PaddleBuild, driver: Nvidia, variables: dict[str, str], why: str, fix: str
) -> None:
    for wanted in ("gpu", "gpu:0"):
        with pytest.raises(EnvironmentUnfitError) as caught:
            devices.decide(wanted, build, driver, variables, key="teacher.device")
        assert caught.value.what == f"teacher.device: {wanted} is requested, but cannot be used"
        assert why in caught.value.why
        assert fix in caught.value.fix
        assert "device: cpu" in caught.value.fix
    chosen = devices.decide("auto", build, driver, variables)
    assert chosen.place == "cpu"
    assert why in str(chosen)


def test_of_several_gpus_each_must_work() -> None:
    two = replace(WITH_CUDA, cards=(H200, T4))
    chosen = devices.decide("gpu:1,0", two, DRIVER, {})
    assert chosen.place == "gpu:1,0"
    assert H200.name in chosen.hardware
    assert T4.name in chosen.hardware
    alike = devices.decide("gpu:0,1", replace(two, cards=(H200, replace(H200, index=1))), DRIVER, {})
    assert alike.hardware.startswith(f"2 x {H200.name}, sm_90, ")
    with pytest.raises(EnvironmentUnfitError, match="gpu:0,1 is requested"):
        devices.decide("gpu:0,1", replace(two, cards=(H200, replace(T4, failure="out of memory"))), DRIVER, {})
    with pytest.raises(EnvironmentUnfitError, match="gpu:0,2 is requested"):
        devices.decide("gpu:0,2", two, DRIVER, {})


def test_a_requirement_names_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "detect", lambda: WITHOUT_CUDA)
    monkeypatch.setattr("edgepack.util.nvidia.detect", lambda: NO_DRIVER)
    devices.require("auto", "student.device")
    with pytest.raises(EnvironmentUnfitError, match=r"student\.device: gpu is requested"):
        devices.require("gpu", "student.device")


BUILD = PaddleBuild("3.3.1", "12.6", "9.5.1", (80, 86, 90))
CARD = Card(0, "NVIDIA H200", "9.0", 143771)
NO_KERNEL = """\
--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
0   phi::funcs::SetConstant

----------------------
Error Message Summary:
----------------------
(External) CUDA error(209), no kernel image is available for execution on the device.
  [Hint: 'cudaErrorNoKernelImageForDevice'. This indicates that there is no kernel image available.] (at a.cc:289)
  [operator < fill_constant > error]
"""


@pytest.mark.parametrize(
    ("facts", "build", "words"),
    [
        (
            ("3.3.1", "12.6", "9.5.1", [90, 80, 86]), BUILD,
            "Paddle 3.3.1 for CUDA 12.6 and cuDNN 9.5.1, kernels for sm_80, sm_86, sm_90",
        ),
        (("2.6.2", "11.8", False, None), PaddleBuild("2.6.2", "11.8", None, ()), "Paddle 2.6.2 for CUDA 11.8"),
        (
            ("3.3.1", "False", "False", []), PaddleBuild("3.3.1", None, None, ()),
            "Paddle 3.3.1, built without CUDA",
        ),
        (("2.6.2", False, False, None), PaddleBuild("2.6.2", None, None, ()), "Paddle 2.6.2, built without CUDA"),
        (("3.3.1", "None", "0", []), PaddleBuild("3.3.1", None, None, ()), "Paddle 3.3.1, built without CUDA"),
    ],
)  # fmt: skip
def test_a_build_is_described(
    facts: tuple[str, object, object, list[int] | None], build: PaddleBuild, words: str
) -> None:
    version, cuda, cudnn, archs = facts
    module = SimpleNamespace(full_version=version, cuda=lambda: cuda, cudnn=lambda: cudnn)
    if archs is not None:  # Paddle 2.6 has no such function
        module.cuda_archs = lambda: archs
    assert devices.from_version(module) == build
    assert build.about == words


@pytest.mark.parametrize(
    ("sm", "kernels", "failure", "lacks"),
    [
        ("9.0", (80, 90), "anything", False),
        ("8.9", (80, 90), "anything", False),  # code for 8.0 runs on 8.9
        ("8.0", (86, 90), "anything", True),  # and that for 8.6 does not run on 8.0
        ("12.0", (80, 90), "anything", True),
        ("12.0", (90, 120), "anything", False),
        ("9.0", (), "anything", False),  # it does not tell
        ("9.0", (), "CUDA error(209), no kernel image is available for execution on the device", True),
    ],
)
def test_missing_kernels_are_known(sm: str, kernels: tuple[int, ...], failure: str, lacks: bool) -> None:
    build = replace(BUILD, kernels=kernels)
    assert build.lacks_kernels(Card(0, "a card", sm, 1, failure)) is lacks


@pytest.mark.parametrize(
    ("text", "gist"),
    [
        (NO_KERNEL, "(External) CUDA error(209), no kernel image is available for execution on the device."),
        ("(PreconditionNotMet) libcudnn.so is not configured correctly. (at ../paddle/phi/x.cc:334)",
         "(PreconditionNotMet) libcudnn.so is not configured correctly"),
        ("one\ntwo\n\n", "two"),
        ("[Hint: nothing else]", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_line_that_tells_is_found(text: str, gist: str) -> None:
    assert devices.gist(text) == gist


def program(source: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", source]


def test_cards_are_read_from_the_last_line() -> None:
    broken = Card(1, "NVIDIA T4", "7.5", 15109, "no kernel image is available")
    answer = json.dumps([asdict(CARD), asdict(broken)])
    found = devices.with_cards(BUILD, program(f"print('W1120 device_context.cc] ready'); print({answer!r})"))
    assert found == replace(BUILD, cards=(CARD, broken))


@pytest.mark.parametrize(
    ("source", "failure"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "a first computation was ended by signal 11"),
        (
            "import os, sys; sys.stderr.write('libcudart.so.12: no version'); sys.stderr.flush(); os.abort()",
            "a first computation was ended by signal 6: libcudart.so.12: no version",
        ),
        ("raise SystemExit('cannot import')", "a first computation failed (exit 1): cannot import"),
        ("print('no answer')", "a first computation failed (exit 0)"),
        ("print('[{\"index\": 0}]')", "a first computation failed (exit 0)"),
        ("print('7')", "a first computation failed (exit 0)"),
        ("", "a first computation failed (exit 0)"),
    ],
)
def test_a_program_that_fails_is_a_failure_of_its_build(source: str, failure: str) -> None:
    assert devices.with_cards(BUILD, program(source)) == replace(BUILD, failure=failure)


def test_a_program_that_does_not_end_is_ended() -> None:
    found = devices.with_cards(BUILD, program("import signal; signal.pause()"), timeout_seconds=0.2)
    assert found.failure == "a first computation did not end within 0.2 s"
