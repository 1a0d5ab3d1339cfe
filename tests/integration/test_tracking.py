"""Figures of a training that other tools read: TensorBoard's files, and runs of an MLflow tracking server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration import trainings
from tests.integration.conftest import Project
from tests.integration.test_resume import Killed, Killing
from tests.integration.trainings import ONE
from tests.unit.training.event_files import scalars, the_file

from edgepack.artifacts import METRICS_FILE
from edgepack.training.checkpoint import Checkpoint
from edgepack.util.hashing import sha256_file

pytestmark = pytest.mark.integration


def series(folder: Path) -> dict[str, Any]:
    """`metrics.json` of a training without the figures of time."""
    found: dict[str, Any] = json.loads((folder / METRICS_FILE).read_text(encoding="utf-8"))
    assert all(value > 0 for _, value in found.pop("train/tokens_per_second"))
    return found


@pytest.mark.parametrize(("stage", "epochs"), [("teacher", 3), ("student", 1)])
def test_a_build_leaves_the_series_of_each_training(project: Project, stage: str, epochs: int) -> None:
    (folder,) = (path.parent for path in (project.folder / ".edgepack" / stage).glob(f"*/{METRICS_FILE}"))
    written = json.loads((folder / METRICS_FILE).read_text(encoding="utf-8"))
    assert {name: [step for step, _ in points] for name, points in written.items()} == {
        **{f"train/{name}": [*range(10, 15 * epochs, 10)] for name in ("loss", "learning_rate", "tokens_per_second")},
        "dev/accuracy": [15 * epoch for epoch in range(1, epochs + 1)],
    }
    artifact = json.loads((folder / "artifact.json").read_text(encoding="utf-8"))
    assert written["dev/accuracy"][artifact["best_epoch"] - 1][1] == pytest.approx(artifact["dev_score"]["value"])
    assert scalars(the_file(folder)) == {
        name: [[step, float(np.float32(value))] for step, value in points] for name, points in written.items()
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("undisturbed")
    trainings.learn(ONE, folder)
    found = series(folder)
    assert [step for step, _ in found["train/loss"]] == [10] and [step for step, _ in found["dev/accuracy"]][-1] == 18
    return found


@pytest.mark.parametrize("steps", [(7,), (12,), (3, 7, 8)], ids=str)
def test_a_resumed_training_ends_with_the_same_series(
    tmp_path: Path, undisturbed: dict[str, Any], steps: tuple[int, ...]
) -> None:
    for deadly in steps:
        with pytest.raises(Killed):
            trainings.learn(ONE, tmp_path, checkpoint=Killing(tmp_path / "checkpoint", deadly))
        the_file(tmp_path).unlink()  # as the workspace does with an unfinished result
    trainings.learn(ONE, tmp_path, checkpoint=Checkpoint(tmp_path / "checkpoint", seconds=1e9))
    assert series(tmp_path) == undisturbed
    assert {name: len(points) for name, points in scalars(the_file(tmp_path)).items()} == {
        "train/tokens_per_second": 1, **{name: len(points) for name, points in undisturbed.items()}
    }  # fmt: skip


def logged(project: Project, store: Path, *arguments: str) -> Any:
    """The run that a build of the tiny recipe logs to a file store."""
    from mlflow import MlflowClient

    client = MlflowClient(f"file:{store}")
    before = {run.info.run_id for run in runs(client)}
    done = project.edgepack("build", "tiny.yaml", "--mlflow", f"file:{store}", *arguments)
    assert done.returncode in (0, 6), done.stderr
    (run,) = (run for run in runs(client) if run.info.run_id not in before)
    assert f"logged to MLflow as run {run.info.run_id}" in done.stderr
    return client, run


def runs(client: Any) -> list[Any]:
    experiment = client.get_experiment_by_name("tiny")
    return [] if experiment is None else list(client.search_runs([experiment.experiment_id]))


def test_a_build_logs_one_run(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    copy = project.copy(tmp_path / "copy")
    client, run = logged(copy, tmp_path / "mlruns")
    assert (run.info.run_name, run.info.status) == ("tiny-0.1.0", "FINISHED")
    report = json.loads((copy.folder / "dist" / "tiny-0.1.0.report.json").read_text(encoding="utf-8"))
    params, metrics, tags = run.data.params, run.data.metrics, run.data.tags
    assert params["student.learning_rate"] == "0.001" and params["targets"] == '["local"]'
    assert params["student.model.scratch.hidden"] == "312" and params["data.train"] == "train.tsv"
    for row in report["ledger"]:
        assert metrics[f"ledger/{row['stage']}/accuracy"] == row["score"]["value"]
    for check in report["targets"][0]["receipt"]["checks"]:
        assert metrics[f"gate/local/{check['gate']}"] == check["value"]
    for stage in ("teacher", "student"):
        (file,) = (copy.folder / ".edgepack" / stage).glob(f"*/{METRICS_FILE}")
        for name, points in json.loads(file.read_text(encoding="utf-8")).items():
            history = client.get_metric_history(run.info.run_id, f"{stage}/{name}")
            assert [[point.step, point.value] for point in history] == points
    assert tags["edgepack.verdict"] == "pass" and tags["edgepack.targets"] == "local"
    assert tags["edgepack.bundle_sha256.local"] == sha256_file(copy.bundle)
    assert str(tmp_path) not in json.dumps([params, tags])
    names = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert names == {"tiny-0.1.0.report.json", "tiny-0.1.0.report.html", "tiny.yaml", "receipts"}
    (receipt,) = client.list_artifacts(run.info.run_id, "receipts/local")
    assert receipt.path == "receipts/local/receipt.json"

    _, failed = logged(copy, tmp_path / "mlruns", "--set", "gates.accuracy.min=0.999")
    assert failed.data.tags["edgepack.verdict"] == "fail"
    assert "edgepack.bundle_sha256.local" not in failed.data.tags
    assert failed.data.params["gates.accuracy.min"] == "0.999"


def test_nothing_is_sent_without_the_option(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = project.copy(tmp_path / "copy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    done = copy.edgepack("build", "tiny.yaml")
    assert done.returncode == 0 and "MLflow" not in done.stderr
