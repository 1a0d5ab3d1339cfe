"""Answers in a text: learnt from SQuAD's form, given by an installed release, over HTTP, and by graphs of others."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from .conftest import Project
from .test_custom import sh

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
