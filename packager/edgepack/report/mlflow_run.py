"""One run on an MLflow tracking server for a finished build: parameters, metrics, artifacts and tags."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edgepack import __version__
from edgepack.artifacts import METRICS_FILE, GateArtifact
from edgepack.errors import EnvironmentUnfitError
from edgepack.report import document
from edgepack.report.model import Report
from edgepack.results import Build
from edgepack.util.hashing import sha256_file
from edgepack.util.process import find_program
from edgepack.util.text import as_text, flat

# MLflow's limits of a value, of a tag and of the entries of a request.
_VALUE_CHARACTERS: Final = 6000
_BATCH: Final = 100
_NOT_IN_NAMES: Final = re.compile(r"[^\w.\- ]")
_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
_PASSWORD: Final = re.compile(r"(?<=://)[^/@\s]*@")
_FIGURES: Final = ("model_mib", "mean_ms", "p50_ms", "p95_ms", "parity", "seconds")  # of a row of the ledger


class MlflowExperiment:
    """The experiment of a recipe on the tracking server at `uri`, which is created if it does not exist.

    Raises:
        EnvironmentUnfitError: MLflow is not installed, or the server does not answer or refuses.
    """

    def __init__(self, uri: str, name: str) -> None:
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # to MLflow's makers
        os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # which may be JSON
        # MLflow's own defaults wait for minutes.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
        self._uri = _PASSWORD.sub("", uri)
        try:
            from mlflow import MlflowClient

            with self._reached():
                self._client = MlflowClient(uri, registry_uri=uri)
                found = self._client.get_experiment_by_name(name)
                self._id = str(found.experiment_id if found else self._client.create_experiment(name))
                if not _ID.fullmatch(self._id):
                    raise ValueError("the server gives an experiment an id that is none")
        except ImportError as error:
            raise EnvironmentUnfitError(
                "--mlflow: MLflow's client cannot be imported",
                why=str(error),
                fix="run `pip install 'edgepack[mlflow]'`",
            ) from error
        if found and found.lifecycle_stage != "active":
            raise EnvironmentUnfitError(
                f"--mlflow: the experiment {name} was deleted on {self._uri}",
                fix=f"run `mlflow experiments restore --experiment-id {self._id}`",
            )

    def log(self, build: Build, report: Report, dist: Path, recipe: Path) -> str:
        """Log a build whose reports are in `dist`; return the id of the run.

        Args:
            report: of the build. It names no path of this machine.
            recipe: the file of the recipe.

        Raises:
            EnvironmentUnfitError: the server does not answer or refuses.
        """
        from mlflow.entities import Metric, Param, RunTag

        now = time.time_ns() // 1_000_000
        metrics = [Metric(name, value, now, step) for name, step, value in _metrics(build, report)]
        params = [Param(key, as_text(value)[:_VALUE_CHARACTERS]) for key, value in flat(report.recipe)]
        tags = [RunTag(key, value) for key, value in _tags(build, report, dist, recipe)]
        name, stem = f"{report.name}-{report.version}", document.stem(report, dist)
        with self._reached():
            run = str(self._client.create_run(self._id, run_name=name).info.run_id)
            for start in range(0, max(len(metrics), len(params), len(tags)), _BATCH):
                part = slice(start, start + _BATCH)
                self._client.log_batch(run, metrics[part], params[part], tags[part])
            for file in (dist / f"{stem}.report.json", dist / f"{stem}.report.html", recipe):
                self._client.log_artifact(run, str(file))
            for item in build.target_results:
                if isinstance(item.gate, GateArtifact):
                    receipt = str(item.gate.folder / "receipt.json")
                    self._client.log_artifact(run, receipt, f"receipts/{item.bundle.target}")
            self._client.set_terminated(run)
        return run

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Report MLflow's errors. They may quote the URI, with a password in it."""
        from google.protobuf.json_format import ParseError
        from mlflow.exceptions import MlflowException

        try:
            yield
        # Of requests: OSError. Of an answer of another shape: protobuf's errors, and those of attributes it lacks.
        except (MlflowException, OSError, ValueError, KeyError, TypeError, AttributeError, ParseError) as error:
            raise EnvironmentUnfitError(
                f"--mlflow: {self._uri} cannot be used",
                why=_PASSWORD.sub("", str(error)),
                fix="check the server, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, then run the command "
                "again: finished stages are kept",
            ) from error


def _name(*parts: str) -> str:
    """The name of a metric: the parts with a slash between them, without characters that MLflow refuses."""
    return "/".join(_NOT_IN_NAMES.sub("_", part) for part in parts)


def _metrics(build: Build, report: Report) -> Iterator[tuple[str, int, float]]:
    """Name, step and value: of the ledger, of the checks of each gate, of the trainings."""
    for row in report.ledger:
        score = row.score
        for name, value in [(score.metric, score.value), *((name, getattr(row, name)) for name in _FIGURES)]:
            if value is not None:
                yield _name("ledger", row.stage, name), 0, value
    for target in report.targets:
        for check in target.receipt.checks if target.receipt else ():
            if check.value is not None:
                yield _name("gate", target.target, check.gate), 0, check.value
    for role, folder in _trainings(build):
        for name, points in json.loads((folder / METRICS_FILE).read_text(encoding="utf-8")).items():
            for step, value in points:
                yield f"{role}/{name}", step, value


def _trainings(build: Build) -> Iterator[tuple[str, Path]]:
    """The trainings of the build, with the folders of their results."""
    for role, model in build.models:
        if model.is_trained:
            yield role, model.folder
    if build.scales is None:
        return
    for quantization in build.scales.ways:
        if quantization.weights is not None:
            yield "quantized", build.scales.folder / quantization.weights


def _tags(build: Build, report: Report, dist: Path, recipe: Path) -> Iterator[tuple[str, str]]:
    yield "edgepack.version", __version__
    yield "edgepack.targets", ", ".join(build.recipe.targets)
    yield "edgepack.verdict", report.verdict
    for item in build.target_results:
        delivered = dist / item.bundle.file_name
        if delivered.is_file():
            yield f"edgepack.bundle_sha256.{item.bundle.target}", sha256_file(delivered)
    git = find_program("git")
    if git is not None:
        command = (git, "-C", str(recipe.absolute().parent), "rev-parse", "HEAD")
        found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if found.returncode == 0:  # else there is no commit
            yield "mlflow.source.git.commit", found.stdout.strip()
