"""SIGTERM while Paddle is loaded, which takes it for itself."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration
pytest.importorskip("paddle")

PROGRAM = """
import signal, time
from edgepack.training import environment
from edgepack.util import process

with process.noticed():
    environment.start()
    try:
        print("ready", flush=True)
        time.sleep(600)
    finally:
        print("cleared up", flush=True)
"""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.sweep)]
)
def test_paddle_does_not_keep_a_build_from_clearing_up(number: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # below `nohup`, SIGHUP is ignored
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "cleared up\n"
        assert process.wait(60) == code
