"""Intents with slots: from JSON lines to answers of an installed release."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from .conftest import Project
from .test_custom import sh

pytestmark = pytest.mark.integration
SONGS, ROOMS = ("晴天", "稻香", "夜曲", "彩虹"), ("客厅", "卧室", "厨房", "书房")
RECIPE = """\
edgepack: 1
name: assistant
version: 0.1.0
task: intent-slots
data: {train: train.jsonl, dev: dev.jsonl, test: test.jsonl}
teacher:
  model: {scratch: {layers: 1, hidden: 64, heads: 4, dropout: 0}}
  epochs: 8
  learning_rate: 3e-3
  max_length: 24
student:
  model: {scratch: {layers: 1, hidden: 64, heads: 4, dropout: 0}}
  epochs: 16
  learning_rate: 3e-3
  max_length: 24
quantize: {method: auto}
gates:
  accuracy:
    min: 0.8
    max_drop_points: 10
    min_of: {intent_accuracy: 0.9, entity_f1: 0.8}
    per_class: {f1_of: {song: 0.7}}
"""


def write_rows(file: Path, rows: int, seed: int) -> None:
    source, lines = random.Random(seed), []
    for number in range(rows):
        song, room = source.choice(SONGS), source.choice(ROOMS)
        text, intent, slots = source.choice(
            [
                (f"放一首{song}", "play", {"song": song}),
                (f"在{room}放{song}", "play", {"song": song, "room": room}),
                (f"打开{room}的灯", "light", {"room": room}),
                ("停下来", "stop", {}),
            ]
        )
        row = {"text": f"{text}{number}{seed}", "intent": intent, "slots": slots}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    file.write_text("".join(lines), encoding="utf-8")


def test_intents_and_slots_are_learnt_built_gated_installed_and_answered(tmp_path: Path) -> None:
    for seed, (split, rows) in enumerate({"train": 500, "dev": 80, "test": 200}.items()):
        write_rows(tmp_path / f"{split}.jsonl", rows, seed)
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    project = Project(tmp_path)
    done = project.edgepack("build", "recipe.yaml", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == "pass"
    checks = {check["gate"]: check["verdict"] for check in report["targets"][0]["receipt"]["checks"]}
    assert {"accuracy.min_of.intent_accuracy", "accuracy.min_of.entity_f1", "accuracy.per_class.f1"} <= checks.keys()
    [bundle] = (tmp_path / "dist").glob("*.edgepack")
    installed = sh(bundle, "install", "--wait", "0", "--prefix", str(tmp_path / "prefix"))
    assert installed.returncode == 0, installed.stderr
    answered = sh(tmp_path / "prefix" / "bin" / "assistant", "predict", "在卧室放稻香9", "停下来9")
    first, second = map(json.loads, answered.stdout.splitlines())
    assert (first["intent"], second["intent"], second["slots"]) == ("play", "stop", [])
    assert [(slot["label"], slot["text"]) for slot in first["slots"]] == [("room", "卧室"), ("song", "稻香")]
