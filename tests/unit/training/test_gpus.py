"""What Paddle reports of itself is read, and what a driver does to the program that tries the GPUs is an error."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from edgepack.training import devices
from edgepack.training.devices import Card, PaddleBuild

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
