"""A linear model alone (`linear: only`), built without Paddle: from a table to answers of an installed release."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.stage_lists import known, ordered

from .conftest import Project
from .test_custom import sh

pytestmark = pytest.mark.integration
RECIPE = """\
edgepack: 1
name: tiny
version: 0.1.0
data: {train: train.tsv, dev: dev.tsv, test: test.tsv}
student: {model: ernie-3.0-tiny-nano-v2-zh}
linear: only
serve: true
gates:
  accuracy: {min: 0.7, per_class: {recall: 0.5}}
  latency: {p50_ms: 50}
  cold_start: {ms: 60000}
  size: {model_mib: 1}
"""
QUICK = ("--set", "serve=false", "--set", "gates.cold_start=null")
# `edgepack` as in an install without the Paddle stack.
WITHOUT_PADDLE = """\
import importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("paddle", "paddlenlp", "paddleslim", "paddle2onnx"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocked())
from edgepack.cli import main
main()
"""
GOOD, BAD, THINGS = "好 棒 舒服 干净", "差 脏 吵 失望", "房间 早餐 服务 位置 大堂"


def write_table(file: Path, rows: int, seed: int, noise: float = 0.1) -> None:
    """Reviews of which a share says the opposite of its label, each with its number so that none repeats."""
    source = random.Random(seed)
    lines = ["text\tlabel"]
    for number in range(rows):
        label = source.choice(("good", "bad"))
        means_good = (label == "good") != (source.random() < noise)
        words = (GOOD if means_good else BAD).split()
        parts = [source.choice(THINGS.split()) + "很" + source.choice(words) for _ in range(3)]
        lines.append(f"{'，'.join(parts)}{seed}-{number}\t{label}")
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def edgepack(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", WITHOUT_PADDLE, *arguments],
        cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False, timeout=300,
    )  # fmt: skip


def test_it_is_built_gated_installed_and_answers(tmp_path: Path) -> None:
    for seed, (split, rows) in enumerate({"train": 400, "dev": 120, "test": 300}.items()):
        write_table(tmp_path / f"{split}.tsv", rows, seed)
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    checked = edgepack(tmp_path, "check", "recipe.yaml")
    assert checked.returncode == 0 and checked.stderr.count("not used: `student`") == 1, checked.stderr
    done = edgepack(tmp_path, "build", "recipe.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("not used: `student`") == 1
    report = json.loads(done.stdout)
    assert (report["verdict"], report["export"], report["models"], report["warnings"]) == ("pass", None, [], [])
    linear, gated = report["ledger"]
    assert (linear["stage"], gated["stage"]) == ("linear", "on local")
    checks = report["targets"][0]["receipt"]["checks"]
    assert "cold_start.ms" in {check["gate"] for check in checks}
    assert gated["score"]["value"] == pytest.approx(linear["score"]["value"], abs=1e-6)
    planned = json.loads(edgepack(tmp_path, "plan", "recipe.yaml", "--json").stdout)["stages"]
    assert known(stage["stage"] for stage in planned) == ordered({"data", "linear", "bundle", "gate"})
    assert {stage["state"] for stage in planned} == {"cached"}

    dist = tmp_path / "dist"
    bundle = dist / "tiny-0.1.0-local.edgepack"
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
        rows = [json.loads(line) for line in archive.read("golden/rows.jsonl").decode().splitlines()]
    assert sorted(name for name in names if name.startswith("model/")) == ["model/linear.json", "model/model.json"]
    assert not [name for name in names if name.startswith("site/onnxruntime")]
    assert all(row.keys() == {"text", "label"} for row in rows)
    assert report["targets"][0]["bundle"]["bundle_bytes"] < 2**20
    for name in ("report.html", "report.md", "junit.xml"):
        text = (dist / f"tiny-0.1.0.{name}").read_text(encoding="utf-8")
        assert "linear" in text and "None" not in text
    assert [file.name for file in (dist / "tiny-0.1.0.models").iterdir()] == ["linear.json"]
    project = Project(tmp_path)
    shown = project.edgepack("inspect", str(bundle))
    assert shown.returncode == 0 and "a linear model on characters" in shown.stdout, shown.stderr
    assert project.edgepack("diff", str(bundle), str(bundle)).returncode == 0
    assert project.edgepack("report", str(dist)).returncode == 0

    installed = sh(bundle, "install", "--wait", "0", "--prefix", str(tmp_path / "prefix"))
    assert installed.returncode == 0, installed.stderr
    program = tmp_path / "prefix" / "bin" / "tiny"
    answered = sh(program, "predict", "房间很干净，服务很好", "早餐很差，大堂很脏")
    assert [json.loads(line)["label"] for line in answered.stdout.splitlines()] == ["good", "bad"], answered.stderr
    assert sh(program, "selftest").returncode == 0


def test_the_rows_may_stay_at_home(tmp_path: Path) -> None:
    for seed, (split, rows) in enumerate({"train": 200, "dev": 60, "test": 160}.items()):
        write_table(tmp_path / f"{split}.tsv", rows, seed)
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    settings = ("--set", "gates.golden.carry=false", "--set", "gates.accuracy.min=0.6", *QUICK)
    done = Project(tmp_path).edgepack("build", "recipe.yaml", *settings)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(tmp_path / "dist" / "tiny-0.1.0-local.edgepack") as archive:
        texts = [json.loads(line)["text"] for line in archive.read("golden/texts.jsonl").decode().splitlines()]
    rows = (tmp_path / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert sorted(map(len, texts)) == sorted(len(row.split("\t")[0]) for row in rows)


def test_a_model_that_learnt_nothing_gets_no_bundle_whose_rows_stay_at_home(tmp_path: Path) -> None:
    for seed, (split, rows) in enumerate({"train": 200, "dev": 60, "test": 160}.items()):
        write_table(tmp_path / f"{split}.tsv", rows, seed, noise=0.5)
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    settings = ("--set", "gates.golden.carry=false", "--set", "gates.accuracy=null", *QUICK)
    done = Project(tmp_path).edgepack("build", "recipe.yaml", *settings)
    assert done.returncode == 7 and "bundle: " in done.stderr, done.stderr
    assert not list(tmp_path.rglob("tiny-*.edgepack"))
