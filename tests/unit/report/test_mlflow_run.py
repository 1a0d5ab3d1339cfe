"""Runs of MLflow: what is refused before a build, and names and values that MLflow takes."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.json_format import ParseError

from edgepack.errors import EnvironmentUnfitError
from edgepack.report.document import make
from edgepack.report.mlflow_run import MlflowExperiment


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of an empty file store."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return f"file:{tmp_path / 'mlruns'}"


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(EnvironmentUnfitError, match="cannot be imported") as raised:
        MlflowExperiment("http://host", "hotel")
    assert raised.value.fix == "run `pip install 'edgepack[mlflow]'`"


def test_a_deleted_experiment_is_refused(store: str) -> None:
    from mlflow import MlflowClient

    MlflowExperiment(store, "hotel")
    client = MlflowClient(store)
    found = client.get_experiment_by_name("hotel")
    assert found is not None
    client.delete_experiment(found.experiment_id)
    with pytest.raises(EnvironmentUnfitError, match="was deleted"):
        MlflowExperiment(store, "hotel")


@pytest.mark.parametrize(
    "answer", [SimpleNamespace(experiment_id="0; touch x", lifecycle_stage="deleted"), ParseError("a")]
)
def test_an_answer_of_another_shape_is_an_error_of_the_server(
    store: str, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    def get(*given: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("mlflow.MlflowClient.get_experiment_by_name", get)
    with pytest.raises(EnvironmentUnfitError, match="cannot be used") as raised:
        MlflowExperiment(store, "hotel")
    assert "touch" not in str(raised.value.fix)


@pytest.fixture
def finished(built: Any, tmp_path: Path) -> Any:
    """The build, with the files that a run takes: the reports are in `tmp_path`, as the stages' results are."""
    stem = f"{built.recipe.name}-{built.recipe.version}"
    for name in (f"{stem}.report.json", f"{stem}.report.html", "recipe.yaml", "receipt.json"):
        (tmp_path / name).write_text("{}", encoding="utf-8")
    (tmp_path / "metrics.json").write_text('{"train/loss": [[10, 0.5], [20, 0.25]]}', encoding="utf-8")
    return built


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """A tracking server that answers every request with one experiment and one run."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            run = {"run_id": "4d", "run_uuid": "4d", "experiment_id": "1", "artifact_uri": f"file:{tmp_path / 'store'}"}
            experiment = {"experiment_id": "1", "name": "hotel", "lifecycle_stage": "active"}
            text = json.dumps({"experiment": experiment, "run": {"info": run, "data": {}}, "run_info": run}).encode()
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, *given: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def test_a_run_prints_nothing_and_a_server_that_is_lost_is_reported(
    finished: Any,
    server: ThreadingHTTPServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri = f"http://127.0.0.1:{server.server_port}"
    experiment = MlflowExperiment(uri, "hotel")
    given = (finished, make(finished), tmp_path, tmp_path / "recipe.yaml")
    assert experiment.log(*given) == "4d"
    assert capfd.readouterr().out == ""  # --json is there
    assert (tmp_path / "store" / "recipe.yaml").is_file()
    server.shutdown()
    server.server_close()
    with pytest.raises(EnvironmentUnfitError, match=f"{uri} cannot be used"):
        experiment.log(*given)


def test_labels_and_long_values_fit_mlflow(finished: Any, store: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    built = finished
    (item,) = built.target_results
    checks = [{**check, "gate": f"accuracy.per_class.C++/{number}(负面)"} for number, check in enumerate(
        item.gate.receipt["checks"] * 100)]  # fmt: skip
    gate = replace(item.gate, receipt={**item.gate.receipt, "checks": checks})
    report = make(replace(built, target_results=(replace(item, gate=gate),)))
    report = replace(report, recipe={**report.recipe, "data": {**report.recipe["data"], "train": "x" * 7000}})
    run = MlflowExperiment(store, "hotel").log(built, report, tmp_path, tmp_path / "recipe.yaml")
    data = MlflowClient(store).get_run(run).data
    assert data.params["data.train"] == "x" * 6000
    of_gates = [name for name in data.metrics if name.startswith("gate/")]
    assert len(of_gates) == sum(check["value"] is not None for check in checks)
    assert any(name.endswith("/accuracy.per_class.C___1_负面_") for name in of_gates)
    assert data.metrics["student/train/loss"] == 0.25
