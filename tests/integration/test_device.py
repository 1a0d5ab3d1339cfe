"""`edgepack doctor`, the program that tries GPUs, and the choice of a device, with the real Paddle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.warm import warm

from edgepack.errors import EnvironmentUnfitError
from edgepack.training import devices, environment
from edgepack_runtime.errors import ExitCode

pytestmark = pytest.mark.integration


def test_the_doctor_examines_this_machine(tmp_path: Path) -> None:
    unset = (environment.THREADS_VARIABLE, environment.AMD_VARIABLE)
    variables = {name: value for name, value in os.environ.items() if name not in unset}
    command = [sys.executable, "-m", "edgepack.cli", "doctor", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, encoding="utf-8", check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["can_train"]
    assert found["packages"] == environment.versions()
    assert found["paddle"]["version"] == found["packages"]["paddlepaddle"]
    assert found["machine"]["threads"] == found["machine"]["cores"]["allowed"] or found["machine"]["cores"]["quota"]
    assert found["device"].startswith(("cpu: ", "gpu:"))
    assert list(tmp_path.iterdir()) == []


def test_the_program_that_tries_gpus_answers() -> None:
    build = devices.with_cards(devices.PaddleBuild("", "", None, ()), [sys.executable, "-m", devices.PROBE])
    assert build.failure == ""
    assert all(card.sm and card.memory_mib > 0 for card in build.cards)


def test_paddle_starts_on_the_cpu_and_a_choice_is_what_it_computes_on() -> None:
    environment.start()
    import paddle

    from edgepack.training import devices, gpu_probe

    assert paddle.get_device() == "cpu"
    assert gpu_probe.why_not("cpu") == ""  # what is computed on a GPU gives the right sums here
    chosen = devices.choose("auto")
    assert paddle.get_device() == chosen.place
    assert devices.choose("cpu").place == paddle.get_device() == "cpu"
    if chosen.card is None:
        with pytest.raises(EnvironmentUnfitError, match="device: gpu is requested"):
            devices.choose("gpu")
    environment.start()
    assert paddle.get_device() == "cpu"


def test_a_build_that_wants_a_gpu_does_not_start_to_train_without(tmp_path: Path) -> None:
    rows = {"train": "好\t1\n差\t0", "dev": "挺好\t1\n很差\t0", "test": "真好\t1\n真差\t0"}
    for split, lines in rows.items():
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\n{lines}\n", encoding="utf-8")
    (tmp_path / "r.yaml").write_text(
        "edgepack: 1\nname: tiny\nversion: 0.1.0\n"
        "data: {train: train.tsv, dev: dev.tsv, test: test.tsv}\n"
        "teacher: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}}\n"
        'student: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}, device: "gpu:77"}\n',
        encoding="utf-8",
    )
    done = warm().run(["build", "r.yaml"], tmp_path)
    assert done.returncode == ExitCode.ENVIRONMENT_UNFIT, done.stderr
    assert "error: student.device: gpu:77 is requested, but cannot be used" in done.stderr
    assert "  why: " in done.stderr
    assert "  fix: " in done.stderr
    assert "train teacher" not in done.stderr
    assert not list((tmp_path / ".edgepack").glob("teacher/*/seal.json"))
