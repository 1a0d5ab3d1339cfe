"""Imported classifiers of texts without a handler: from a recipe to answers of installed releases."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.unit.onnx_graph.imported_texts import model, write_vocabulary

from .conftest import Project
from .test_custom import sh

pytestmark = pytest.mark.integration
RECIPE = """\
edgepack: 1
name: texts
version: 1.0.0
task: {task}
model: {{graph: model.onnx, vocab: vocab.txt, labels: {labels}, max_length: 16}}
data: {{test: test.jsonl, columns: {columns}}}
gates: {{accuracy: {{min: 0.8}}, latency: {{p50_ms: 1000}}}}
"""


def write_project(
    folder: Path, graph: onnx.ModelProto, rows: list[dict[str, Any]], *, labels: str, columns: str = "{}", task: str
) -> Project:
    onnx.save(graph, str(folder / "model.onnx"))
    write_vocabulary(folder / "vocab.txt")
    (folder / "test.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    recipe = RECIPE.format(task=task, labels=labels, columns=columns)
    (folder / "imported.yaml").write_text(recipe, encoding="utf-8")
    return Project(folder)


def test_a_classifier_with_a_mask_and_a_softmax_is_built_and_answers(tmp_path: Path) -> None:
    rows = [
        {"text": text * n, "label": label} for n in (1, 2, 3, 9) for text, label in (("好", "pos"), ("坏", "neg"))
    ] * 6
    labels = tmp_path / "labels.txt"
    labels.write_text("pos\nneg\n", encoding="utf-8")
    project = write_project(tmp_path, model(end="Softmax"), rows, labels="labels.txt", task="text-classification")
    done = project.edgepack("build", "imported.yaml", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ledger"][0]["stage"] == "float ONNX"
    assert report["data"]["labels"] == ["pos", "neg"]
    [file] = (tmp_path / "dist").glob("*.edgepack")
    answered = sh(file, "predict", "好好坏", "坏￥1")
    assert answered.returncode == 0, answered.stderr
    found = [json.loads(line) for line in answered.stdout.splitlines()]
    assert [one["label"] for one in found] == ["pos", "neg"]
    # The logits of 好好坏 are 4 x (3, 2) / 5, for [CLS] votes for the first label and [SEP] for the second.
    assert found[0]["score"] == pytest.approx(1 / (1 + 2.718281828 ** (-4 / 5)), abs=1e-4)


def test_tags_with_O_last_and_a_graph_without_a_mask(tmp_path: Path) -> None:
    # 好 (id 4) votes for B-x, 坏 (id 5) for I-x, every other token of the texts for O or B-x by its id.
    rows = [{"text": "好坏", "spans": [{"start": 0, "end": 2, "label": "x"}]}] * 20
    graph = model(names=("input_ids",), tokens=True, labels=4)  # id 4 -> label 0, id 5 -> label 1
    project = write_project(
        tmp_path, graph, rows, labels="[B-x, I-x, B-y, O]", columns="{spans: spans}", task="token-classification"
    )
    done = project.edgepack("build", "imported.yaml", "--until", "graphs", "--json")
    assert done.returncode == 0, done.stderr
    [config] = tmp_path.glob(".edgepack/graphs/*/onnx-float/model.json")
    found = json.loads(config.read_bytes())
    assert found["labels"] == ["O", "B-x", "I-x", "B-y"]
    ledger = json.loads(done.stdout)["ledger"]
    assert ledger[0]["score"]["value"] == 1.0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"labels": "[pos, neg, other]"}, "does not answer a text of 16 tokens"),
        ({"rows": [{"text": "好", "label": "positive"}]}, "the label `positive` is none of the model's"),
        ({"graph": model(shape=(1, 16))}, "has the fixed shape 1 x 16"),
        ({"graph": model(names=("a", "b", "c"))}, "the graph reads a, b, c"),
    ],
)
def test_what_does_not_fit_is_one_clear_error(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    rows = [{"text": "好", "label": "pos"}, {"text": "坏", "label": "neg"}] * 10
    asked: dict[str, Any] = {"graph": model(), "rows": rows, "labels": "[pos, neg]", **change}
    project = write_project(tmp_path, asked["graph"], asked["rows"], labels=asked["labels"], task="text-classification")
    done = project.edgepack("build", "imported.yaml")
    assert done.returncode not in (0, 1)
    assert what in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "dist").exists()


def test_what_calibrates_int8_is_not_scored(tmp_path: Path) -> None:
    rows = [{"text": "好坏"[n % 2] * (1 + n % 5), "label": ("pos", "neg")[n % 2]} for n in range(40)]
    project = write_project(tmp_path, model(), rows, labels="[pos, neg]", task="text-classification")
    done = project.edgepack("build", "imported.yaml", "--until", "graphs", "--set", "quantize.method=ptq", "--json")
    assert done.returncode == 0, done.stderr
    assert "data: 30 test, 10 unlabelled" in done.stderr
    ledger = json.loads(done.stdout)["ledger"]
    assert [row["score"]["n"] for row in ledger] == [30, 30]
    assert "calibrated on 10 other rows" in ledger[1]["note"]
    few = project.copy(tmp_path / "few", ".edgepack")
    (few.folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:3]), encoding="utf-8")
    done = few.edgepack("build", "imported.yaml", "--until", "graphs", "--set", "quantize.method=ptq")
    assert done.returncode == 5, done.stderr
    assert "too few test rows to calibrate INT8" in done.stderr


PADDLE = """\
import paddle
class Votes(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.votes = paddle.nn.Embedding(12, 2)
        self.votes.weight.set_value(4 * paddle.nn.functional.one_hot(paddle.arange(12) % 2, 2))
        self.norm = paddle.nn.LayerNorm(2)
        self.norm.weight.set_value(paddle.to_tensor([2.0, 3.0]))
        self.norm.bias.set_value(paddle.to_tensor([0.0, 0.5]))
    def forward(self, input_ids):
        mask = (input_ids != 0).astype("float32").unsqueeze(-1)
        return self.norm((self.votes(input_ids) * mask).sum(1) / mask.sum(1))
spec = [paddle.static.InputSpec([None, None], "int64", name="input_ids")]
traced = paddle.jit.to_static(Votes().eval(), input_spec=spec, full_graph=True)
paddle.jit.save(traced, "graph/inference")
"""


def test_a_classifier_of_paddle_is_converted_and_compared(tmp_path: Path) -> None:
    rows = [{"text": "好坏"[n % 2] * (1 + n % 5), "label": ("pos", "neg")[n % 2]} for n in range(40)]
    project = write_project(tmp_path, model(), rows, labels="[pos, neg]", task="text-classification")
    recipe = (tmp_path / "imported.yaml").read_text(encoding="utf-8")
    (tmp_path / "imported.yaml").write_text(recipe.replace("graph: model.onnx", "graph: graph"), encoding="utf-8")
    (tmp_path / "votes.py").write_text(PADDLE, encoding="ascii")  # Paddle reads the source of the layer
    subprocess.run([sys.executable, "votes.py"], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    done = project.edgepack("build", "imported.yaml", "--until", "bundle", "--json")
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["ledger"]
    assert (row["score"]["value"], row["parity_with"]) == (1.0, "Paddle Inference")
    assert row["parity"] < 1e-5
