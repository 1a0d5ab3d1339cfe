"""Two processes that train together end as one does with batches twice as large."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration import ranked
from tests.integration.trainings import SETTINGS

from edgepack.training.checkpoint import Arrays
from edgepack.training.schedule import rate_scale

pytestmark = [pytest.mark.integration, pytest.mark.sweep]
ROOT = Path(__file__).parents[2]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All scenarios in two processes, as the launcher starts them on two machines: a folder of results for each."""
    folder = tmp_path_factory.mktemp("pair")
    master, *ports = free_ports(1 + ranked.PROCESSES)
    endpoints = [f"127.0.0.1:{port}" for port in ports]
    told = {
        "PADDLE_TRAINERS_NUM": str(ranked.PROCESSES),
        "PADDLE_MASTER": f"127.0.0.1:{master}",
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_LOCAL_RANK": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.integration.ranked", str(folder)]
    processes = []
    for rank, endpoint in enumerate(endpoints):
        variables = {**os.environ, **told, "PADDLE_TRAINER_ID": str(rank), "PADDLE_CURRENT_ENDPOINT": endpoint}
        processes.append(
            subprocess.Popen(
                command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
            )
        )
    try:
        said = [process.communicate(timeout=480)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(text[-2000:] for text in said)
    return folder


def loaded(folder: Path, name: str) -> Arrays:
    with np.load(folder / f"{name}.npz") as stored:
        return {key: stored[key] for key in stored.files}


@pytest.mark.parametrize("scenario", ranked.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_two_processes_train_as_one_with_twice_the_rows(
    pair: Path, tmp_path: Path, scenario: Callable[..., Any]
) -> None:
    name = scenario.__name__
    scale = rate_scale(SETTINGS.scale_learning_rate, ranked.PROCESSES)
    doubled = {"batch_size": ranked.PROCESSES * SETTINGS.batch_size, "learning_rate": scale * SETTINGS.learning_rate}
    ended, losses = ranked.recorded(lambda: scenario(tmp_path, SETTINGS.model_copy(update=doubled), None))
    ranked.keep(tmp_path, name, ended, losses)
    alone = loaded(tmp_path, name)
    first, second = (loaded(pair / str(rank), name) for rank in range(ranked.PROCESSES))
    assert first.keys() == second.keys() == alone.keys()
    for key, value in first.items():
        assert np.array_equal(value, second[key]), key  # to the bit
    told = first.pop("losses"), alone.pop("losses")
    assert len(told[0]) == len(told[1])  # every step once, those before a kill among them
    np.testing.assert_allclose(*told, rtol=1e-5)
    for key, value in first.items():
        assert np.abs(value - alone[key]).max() < 1e-5, key


def test_a_rate_for_larger_batches_makes_a_difference(pair: Path, tmp_path: Path) -> None:
    """The comparison above sees a wrong rate, and a sum of means instead of a mean."""
    first = loaded(pair / "0", "plain")
    for wrong in ({"batch_size": 16}, {"batch_size": 16, "learning_rate": 2e-3}):
        ended, _ = ranked.recorded(lambda wrong=wrong: ranked.plain(tmp_path, SETTINGS.model_copy(update=wrong), None))
        distances = [np.abs(first[f"weight/{key}"] - value).max() for key, value in ended.weights.items()]
        assert max(distances) > 1e-3
