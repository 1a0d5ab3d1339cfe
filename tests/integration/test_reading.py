"""Answers in a text: learnt from SQuAD's form, given by an installed release, over HTTP, and by graphs of others."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file
from tests.unit.onnx_graph.imported_texts import model

from edgepack_runtime.tasks.reading import START_END

from .conftest import Project
from .test_custom import sh
from .test_imported_text import write_project
from .test_trained_folder import Given, as_of_torch, built, largest_difference, make, write_lines

pytestmark = pytest.mark.integration
FILLERS = ("早餐很好", "位置安静", "服务周到", "大堂干净")
RECIPE = """\
edgepack: 1
name: reader
version: 0.1.0
task: reading
data:
  train: train.json
  dev: dev.json
  test: test.json
  columns: {text: question, text_pair: context}
teacher:
  model: {scratch: {layers: 1, hidden: 64, heads: 4, dropout: 0}}
  epochs: 10
  learning_rate: 3e-3
  max_length: 24
student:
  model: {scratch: {layers: 1, hidden: 64, heads: 4, dropout: 0}}
  epochs: 20
  learning_rate: 3e-3
  max_length: 24
quantize: {method: auto}
gates:
  accuracy: {min: 0.7, max_drop_points: 10, min_of: {exact_match: 0.6}}
"""


def write_rows(file: Path, rows: int, seed: int) -> list[tuple[str, str, str]]:
    """SQuAD's form: what a room costs and which number it has, in texts of one to three windows; some say neither."""
    source, paragraphs, made = random.Random(seed), [], []
    for _ in range(rows):
        room, price = source.randint(10, 99), source.randint(100, 999)
        facts = [f"房号{room}号", f"房价{price}元"][: source.randint(1, 2)]
        parts = [*facts, *source.choices(FILLERS, k=source.randint(2, 8))]
        source.shuffle(parts)
        context = "，".join(parts)
        asked = []
        for question, fact, answer in (("几号", "房号", f"{room}"), ("多少钱", "房价", f"{price}")):
            start = context.find(fact)
            answers = [{"text": answer, "answer_start": start + 2}] if start >= 0 else []
            asked.append({"question": question, "answers": answers})
            made.append((question, context, answer if answers else ""))
        paragraphs.append({"context": context, "qas": asked})
    document = {"version": "1", "data": [{"title": "rooms", "paragraphs": paragraphs}]}
    file.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return made


def test_answers_are_learnt_built_gated_installed_and_given(tmp_path: Path) -> None:
    for seed, (split, rows) in enumerate({"train": 400, "dev": 60, "test": 120}.items()):
        asked = write_rows(tmp_path / f"{split}.json", rows, seed)
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    project = Project(tmp_path)
    done = project.edgepack("build", "recipe.yaml", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == "pass"
    checks = {check["gate"]: check["verdict"] for check in report["targets"][0]["receipt"]["checks"]}
    assert "accuracy.min_of.exact_match" in checks
    [bundle] = (tmp_path / "dist").glob("*.edgepack")
    installed = sh(bundle, "install", "--wait", "0", "--prefix", str(tmp_path / "prefix"))
    assert installed.returncode == 0, installed.stderr
    lines = "".join(json.dumps({"text": q, "text_pair": c}, ensure_ascii=False) + "\n" for q, c, _ in asked)
    (tmp_path / "asked.jsonl").write_text(lines, encoding="utf-8")
    program = tmp_path / "prefix" / "bin" / "reader"
    answered = sh(program, "predict", "--input", str(tmp_path / "asked.jsonl"))
    found = [json.loads(line) for line in answered.stdout.splitlines()]
    right = 0
    for (_, context, answer), one in zip(asked, found, strict=True):
        assert one["answer"] == context[one["start"] : one["end"]]
        right += one["answer"] == answer
    assert right >= 0.7 * len(asked)
    alone = sh(program, "predict", *asked[0][:2])
    assert json.loads(alone.stdout) == found[0]


def reader(place: Path) -> Given:
    """A folder as of ErnieForQuestionAnswering, with rows that fit one window, and the framework's logits."""
    given = make(place, START_END, pairs=True, per_token=True)
    config = json.loads((given.folder / "config.json").read_bytes())
    del config["id2label"]
    config["architectures"] = ["ErnieForQuestionAnswering"]
    (given.folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    kept = [n for n, row in enumerate(given.rows) if len(row.text) <= 8 and len(row.text_pair or "") <= 12]
    given = given._replace(rows=[given.rows[n] for n in kept], logits=[given.logits[n] for n in kept])
    lines = [{**row.document(None), "answers": [(row.text_pair or "")[:1]]} for row in given.rows]
    write_lines(place / "test.jsonl", lines)
    return given


@pytest.mark.parametrize("of_torch", [False, True], ids=["paddlenlp", "transformers"])
def test_a_trained_folder_has_the_frameworks_logits(tmp_path: Path, of_torch: bool) -> None:
    given = reader(tmp_path)
    if of_torch:
        as_of_torch(given, "model.safetensors", pooler=False)
        weights = load_file(given.folder / "model.safetensors")
        named = {name.replace("classifier.", "qa_outputs."): weight for name, weight in weights.items()}
        save_file(named, given.folder / "model.safetensors")
    report = built(given, "--until", "export", "--set", "quantize.method=none")
    assert report["ledger"][0]["score"]["metric"] == "character_f1"
    assert largest_difference(given) < 1e-4


def test_a_graph_with_a_start_and_an_end_is_read(tmp_path: Path) -> None:
    """As transformers export it: two outputs, each with a number for each token."""
    graph = model(tokens=True)
    nodes, outputs = graph.graph.node, graph.graph.output
    del outputs[:]
    for place, name in enumerate(("end_logits", "start_logits")):  # in this order: the names tell which is which
        graph.graph.initializer.append(numpy_helper.from_array(np.array(1 - place, np.int64), f"at_{name}"))
        nodes.append(helper.make_node("Gather", ["logits", f"at_{name}"], [name], axis=2))
        outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", "sequence")))
    rows: list[dict[str, Any]] = [
        {"text": "房间", "text_pair": "的" * n + "坏" * (1 + n % 3), "answers": ["坏" * (1 + n % 3)]}
        for n in range(1, 40)
    ]
    project = write_project(tmp_path, graph, rows, labels="null", task="reading")
    recipe = (tmp_path / "imported.yaml").read_text(encoding="utf-8").replace("labels: null, ", "")
    (tmp_path / "imported.yaml").write_text(recipe, encoding="utf-8")
    done = project.edgepack("build", "imported.yaml", "--until", "graphs", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ledger"][0]["score"]["metric"] == "character_f1"
