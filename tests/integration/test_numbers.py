"""Models that answer with a number: trained, linear alone, from a trained folder, and as a graph of somebody else."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper
from tests.unit.onnx_graph.imported_texts import VOCABULARY, model

from .conftest import Project
from .test_custom import sh
from .test_imported_text import write_project
from .test_linear_only import edgepack as without_paddle
from .test_trained_folder import built, largest_difference, make, write_lines

pytestmark = pytest.mark.integration
WORDS = ("房间", "早餐", "服务", "位置", "大堂", "价格", "阳台", "电梯")
# Numbers as of prices, far from 0 and 1: 5000 and 250 for each of the first four words, in both texts together.
RECIPE = """\
edgepack: 1
name: alike
version: 0.1.0
task: text-pair-regression
data: {train: train.tsv, dev: dev.tsv, test: test.tsv, columns: {text: a, text_pair: b, value: score}}
teacher:
  model: {scratch: {layers: 1, hidden: 64, heads: 4, dropout: 0}}
  epochs: 12
  learning_rate: 3e-3
  max_length: 32
student:
  model: {scratch: {layers: 1, hidden: 32, heads: 4, dropout: 0}}
  epochs: 12
  learning_rate: 3e-3
  max_length: 32
linear: baseline
gates:
  accuracy: {metric: mae, max: 600, max_drop_points: 50}
"""


def write_table(file: Path, rows: int, seed: int, *, pairs: bool = True) -> list[tuple[str, ...]]:
    source, made = random.Random(seed), []
    for number in range(rows):
        chosen = [source.sample(WORDS, 4) for _ in range(1 + pairs)]
        texts = ["".join(words) for words in chosen]
        texts[-1] += f"{seed}{number}"  # so that none repeats
        made.append((*texts, str(5000 + 250 * sum(words.count(word) for words in chosen for word in WORDS[:4]))))
    lines = ["\t".join(row) for row in [("a", "b", "score")[not pairs :], *made]]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return made


def correlation(rows: Sequence[tuple[float, float]]) -> float:
    return float(np.corrcoef(*zip(*rows, strict=True))[0, 1])


def test_a_number_of_pairs_is_learnt_built_gated_installed_and_answered(tmp_path: Path) -> None:
    for seed, (split, rows) in enumerate({"train": 600, "dev": 100, "test": 200}.items()):
        write_table(tmp_path / f"{split}.tsv", rows, seed)
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    project = Project(tmp_path)
    checked = project.edgepack("check", "recipe.yaml")
    assert checked.returncode == 0, checked.stderr
    done = project.edgepack("build", "recipe.yaml", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == "pass"
    scores = {row["stage"]: row["score"] for row in report["ledger"]}
    assert all(score["metric"] == "mae" for score in scores.values())
    assert scores["INT8 ONNX"]["value"] < 250 and scores["linear"]["value"] < 250
    dist = tmp_path / "dist"
    for name in ("report.html", "report.md", "junit.xml"):
        text = (dist / f"alike-0.1.0.{name}").read_text(encoding="utf-8")
        assert "mean absolute error" in text or name != "report.html"
        assert not re.search(r"\b(None|nan|inf)\b", text)
    [bundle] = dist.glob("*.edgepack")
    installed = sh(bundle, "install", "--wait", "0", "--prefix", str(tmp_path / "prefix"))
    assert installed.returncode == 0, installed.stderr

    program = tmp_path / "prefix" / "bin" / "alike"
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("a", "b", "score"), *write_table(tmp_path / "more.tsv", 50, 9)])
    columns = ("--column", "a", "--pair-column", "b", "--label-column", "score")
    asked = sh(program, "predict", "--input", str(tmp_path / "rows.csv"), "--output", str(tmp_path / "o.csv"), *columns)
    assert asked.returncode == 0 and "mean absolute error: " in asked.stderr, asked.stderr
    with (tmp_path / "o.csv").open(encoding="utf-8-sig", newline="") as stream:
        answered = [(float(row["score"]), float(row["value"])) for row in csv.DictReader(stream)]
    assert correlation(answered) > 0.9
    assert np.mean([abs(truth - answer) for truth, answer in answered]) < 300


def test_a_linear_model_answers_with_a_number_alone(tmp_path: Path) -> None:
    for seed, (split, rows) in enumerate({"train": 400, "dev": 100, "test": 200}.items()):
        write_table(tmp_path / f"{split}.tsv", rows, seed, pairs=False)
    recipe = RECIPE.replace("text-pair-regression", "text-regression").replace("text: a, text_pair: b", "text: b")
    recipe = recipe.replace("linear: baseline", "linear: only").replace(", max_drop_points: 50", "")
    (tmp_path / "recipe.yaml").write_text(recipe, encoding="utf-8")
    done = without_paddle(tmp_path, "build", "recipe.yaml", "--json")
    assert done.returncode == 0, done.stderr
    [bundle] = (tmp_path / "dist").glob("*.edgepack")
    answered = sh(bundle, "predict", "".join(WORDS[:4]), "".join(WORDS[4:]))
    most, least = (json.loads(line)["value"] for line in answered.stdout.splitlines())
    assert (most, least) == (pytest.approx(6000, abs=250), pytest.approx(5000, abs=250))


def test_a_trained_folder_keeps_its_numbers(tmp_path: Path) -> None:
    given = make(tmp_path, ("LABEL_0",), pairs=True, problem_type="regression")
    config = json.loads((given.folder / "config.json").read_bytes())
    (given.folder / "config.json").write_text(json.dumps({**config, "problem_type": "regression"}), encoding="utf-8")
    lines = [
        {**row.document(None), "value": float(logits[0])} for row, logits in zip(given.rows, given.logits, strict=True)
    ]
    write_lines(tmp_path / "test.jsonl", lines)
    (tmp_path / "recipe.yaml").write_text(
        (tmp_path / "recipe.yaml")
        .read_text(encoding="utf-8")
        .replace("test.jsonl", "test.jsonl, columns: {text_pair: text_pair}"),
        encoding="utf-8",
    )
    report = built(given, "--until", "export", "--set", "quantize.method=none")
    assert report["ledger"][0]["score"]["metric"] == "spearman"
    assert report["ledger"][0]["score"]["value"] > 0.95
    assert largest_difference(given) < 1e-4


def test_a_graph_of_somebody_else_needs_no_labels(tmp_path: Path) -> None:
    graph = model(labels=1)
    votes = np.arange(len(VOCABULARY), dtype=np.float32)[:, None]
    for place, constant in enumerate(graph.graph.initializer):
        if constant.name == "votes":
            graph.graph.initializer[place].CopyFrom(numpy_helper.from_array(votes, "votes"))
    rows: list[dict[str, Any]] = [{"text": text * n, "value": float(n)} for n in range(1, 11) for text in ("好", "坏")]
    project = write_project(tmp_path, graph, rows, labels="null", task="text-regression")
    recipe = (
        (tmp_path / "imported.yaml").read_text(encoding="utf-8").replace("accuracy: {min: 0.8}", "accuracy: {min: 0.1}")
    )
    (tmp_path / "imported.yaml").write_text(recipe.replace("labels: null, ", ""), encoding="utf-8")
    done = project.edgepack("build", "imported.yaml", "--until", "graphs", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ledger"][0]["score"]["metric"] == "spearman"
