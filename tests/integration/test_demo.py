"""`edgepack demo` as a new user runs it, with the packages of the light install."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
LIGHT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {absent!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Absent())
"""

PREDICT = """
import json, sys
from edgepack_runtime import Predictor

for path in sys.argv[1:]:
    answers = Predictor(path).predict(["房间很干净，早餐也好吃。", "服务态度差，房间又小又旧。", "味道不好吃。"])
    print(json.dumps([answer.as_json(with_scores=False) for answer in answers]))
"""


def packages(file: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (REQUIREMENTS / file).read_text("utf-8").lower(), re.MULTILINE))


def test_the_whole_way_is_shown(tmp_path: Path) -> None:
    absent = {"tensorboardX", *(name.replace("-", "_") for name in packages("build.txt") - packages("base.txt"))}
    (tmp_path / "light").mkdir()
    (tmp_path / "light" / "sitecustomize.py").write_text(LIGHT.format(absent=absent), encoding="utf-8")
    command = [sys.executable, "-m", "edgepack.cli", "demo", "--keep", str(tmp_path / "demo")]
    variables = {**os.environ, "PYTHONPATH": str(tmp_path / "light")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('  {"label"')]
    assert [answer["label"] for answer in answers] == ["正面", "负面", "负面"]
    assert "is damaged" in done.stdout
    bundle, prefix = tmp_path / "demo/dist/demo-1.0.0-local.edgepack", tmp_path / "demo/app"
    command = [sys.executable, "-c", PREDICT, str(bundle), str(prefix)]
    variables["EDGEPACK_CACHE"] = str(tmp_path / "cache")
    same = subprocess.run(command, capture_output=True, text=True, check=True, env=variables, encoding="utf-8")
    assert [json.loads(line) for line in same.stdout.splitlines()] == [answers, answers]
    program = prefix / "bin" / "demo"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith("demo 1.0.0 ")
