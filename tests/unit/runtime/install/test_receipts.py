"""Receipts, and the clock, which nothing else may look at."""

from __future__ import annotations

import ast
import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import edgepack_runtime
from edgepack_runtime.errors import StageFailedError
from edgepack_runtime.install import receipts
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.install.receipts import last_receipt, write_receipt

RUNTIME = Path(edgepack_runtime.__path__[0])
_WALL_CLOCK = {"time", "time_ns", "ctime", "localtime", "gmtime", "asctime", "strftime"}


@dataclasses.dataclass
class Run(receipts.Journal):
    prefix: Prefix
    said: list[str]
    receipt: dict[str, Any]

    def say(self, text: str) -> None:  # type: ignore[override]
        self.said.append(text)


def test_steps_and_notes_are_told_and_kept(tmp_path: Path) -> None:
    run = Run(Prefix(tmp_path), [], receipts.begin("rollback", "rolled back"))
    with run.step("good"):
        run.note("odd")
    with pytest.raises(ZeroDivisionError), run.step("bad"):
        _ = 1 / 0
    assert [(step["step"], step["ok"]) for step in run.receipt["steps"]] == [("good", True), ("bad", False)]
    assert run.receipt["notes"] == ["odd"]
    assert run.said[0] == "  note  odd"
    assert [line.split()[:2] for line in run.said[1:]] == [["ok", "good"], ["FAIL", "bad"]]


def test_a_failure_is_left_behind(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path)
    receipt = receipts.begin("rollback", "rolled back")
    receipts.fail(receipt, "not rolled back", StageFailedError("it broke", why="so"))
    said: list[str] = []
    assert receipts.leave(prefix, receipt, said.append, best_effort=False) is None
    assert said == [f"  receipt {prefix.receipts}/000001-rollback.json"]
    found = last_receipt(prefix, "rollback")
    assert found is not None
    assert (found["verdict"], found["exit_code"], found["error"]) == ("not rolled back", 5, "it broke\n  why: so")


def test_receipts_of_several_writers_have_numbers_of_their_own(tmp_path: Path) -> None:
    prefix = Prefix(tmp_path)
    with ThreadPoolExecutor(8) as writers:
        paths = list(
            writers.map(
                lambda index: write_receipt(prefix, ("gate", "install")[index % 2], {"index": index}, print), range(40)
            )
        )
    assert sorted(int(path.name[:6]) for path in paths) == list(range(1, 41))
    assert [json.loads(path.read_text(encoding="utf-8"))["index"] for path in paths] == list(range(40))
    assert sorted(prefix.receipts.iterdir()) == sorted(paths)


def _wall_clock_uses(file: Path) -> set[str]:
    """Functions of `file` that read the clock on the wall, and how."""
    found: set[str] = set()
    for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                dotted = f"{node.value.id}.{node.attr}"
                if (node.value.id == "time" and node.attr in _WALL_CLOCK) or node.value.id in ("datetime", "date"):
                    found.add(f"{function.name}: {dotted}")
            if isinstance(node, (ast.Import, ast.ImportFrom)) and "datetime" in ast.unparse(node):
                found.add(f"{function.name}: {ast.unparse(node)}")
    return found


def test_nothing_depends_on_the_clock() -> None:
    """The clock of a device may say 1970: receipts and logs tell it to whoever reads them, and nothing goes by it."""
    uses = {file.stem: found for file in sorted(RUNTIME.rglob("*.py")) if (found := _wall_clock_uses(file))}
    logs = {"format: time.strftime", "format: time.gmtime"}
    conditions = {"device_clock_utc: time.strftime", "device_clock_utc: time.gmtime"}
    assert uses == {"receipts": {"begin: time.time"}, "conditions": conditions, "logs": logs}
    imports = [file.stem for file in RUNTIME.rglob("*.py") if "import datetime" in file.read_text(encoding="utf-8")]
    assert imports == []
