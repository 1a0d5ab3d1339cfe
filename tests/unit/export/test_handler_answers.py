"""Answers of a handler from a process of its own, whatever the handler does."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.imported_model import HANDLER, write_imported

from edgepack.artifacts import EXAMPLES_FILE, ExamplesArtifact
from edgepack.errors import StageFailedError
from edgepack.export import handler_answers
from edgepack.progress import SILENT


def answer(
    folder: Path, source: str, *rows: dict[str, Any], item: str = "json", **options: Any
) -> handler_answers.Answers:
    """The answers of a handler of this source to examples; three lists of length 0 to 2 by default."""
    rows = rows or tuple({"item": [0] * n, "expected": 2 * n + 1} for n in range(3))
    (folder / EXAMPLES_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    model = write_imported(folder / "model", handler=source, item=item)
    found = ExamplesArtifact(folder, item, len(rows))
    [answers] = handler_answers.answer([model], found, options.pop("packages", None), "answers", SILENT, **options)
    return answers


def doing(line: str, *, method: str = "postprocess", head: str = "") -> str:
    """HANDLER with a line at the start of a method."""
    arguments = {"preprocess": "self, item", "postprocess": "self, outputs", "score": "self, answer, expected"}[method]
    place = f"    def {method}({arguments}):\n"
    return head + HANDLER.format(item="json").replace(place, f"{place}        {line}\n")


def test_examples_are_answered_scored_and_timed(tmp_path: Path) -> None:
    found = answer(tmp_path, HANDLER.format(item="json"))
    assert (found.scores, found.answers) == ((1.0, 1.0, 1.0), (1.0, 3.0, 5.0))
    assert len(found.times_ms) == 15
    assert min(found.times_ms) > 0
    assert (found.score.metric, found.score.n, found.score.value) == ("score", 3, 1.0)
    assert found.p50_ms > 0
    assert found.mean_ms > 0
    assert found.p95_ms is None  # of too few times


def test_runs_are_recorded_as_examples_are_answered(tmp_path: Path) -> None:
    """A handler of some seconds would exceed the time for its first answer if all runs were recorded before."""
    (tmp_path / "runs").mkdir()
    counted = doing("self.calls = getattr(self, 'calls', 0) + 1; return self.calls")
    found = answer(tmp_path, counted, runs=tmp_path / "runs", most_runs=2)
    assert found.answers == (2, 8, 13)  # the first two: recorded, then timed five times
    runs = handler_answers.read_runs(tmp_path / "runs", "model")
    assert [len(run.inputs) for run in runs] == [1, 1]


def test_files_are_read_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\0\xff")
    found = answer(tmp_path, HANDLER.format(item="file"), {"file": "a", "expected": 4.5}, item="file")
    assert (found.scores, found.answers) == ((0.5,), (5.0,))


def test_what_a_handler_prints_is_passed_over(tmp_path: Path) -> None:
    lines = ("import sys", "print('好', 3, {}, '[1]')", "print('{\"a\": 1}')", "sys.stderr.write('x' * 200_000)")
    assert answer(tmp_path, doing("; ".join(lines))).answers == (1.0, 3.0, 5.0)


def test_text_without_a_line_end_does_not_swallow_an_answer(tmp_path: Path) -> None:
    assert answer(tmp_path, doing("print('...', end='')")).answers == (1.0, 3.0, 5.0)


def test_bytes_that_are_no_text_are_passed_over(tmp_path: Path) -> None:
    assert answer(tmp_path, doing("import os; os.write(1, b'\\xff\\n')")).answers == (1.0, 3.0, 5.0)


def test_a_handler_cannot_print_answers_of_its_own(tmp_path: Path) -> None:
    forged = 'print(\'{"score": 1, "ms": [1], "answer": 99}\')'
    found = answer(tmp_path, doing(forged))
    assert found.answers == (1.0, 3.0, 5.0)


def test_a_handler_that_loops_is_stopped(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(StageFailedError, match="does not answer example 2") as caught:
        answer(tmp_path, doing("if item:\n            while True: pass", method="preprocess"), timeout_s=2)
    assert caught.value.why == "there is no answer after 2 s"
    assert time.monotonic() - begin < 30


def test_a_handler_that_loops_and_prints_is_stopped(tmp_path: Path) -> None:
    loop = "import time\n        while True: print(1, flush=True); time.sleep(0.1)"
    begin = time.monotonic()
    with pytest.raises(StageFailedError, match="does not answer example 1"):
        answer(tmp_path, doing(loop), timeout_s=2)
    assert time.monotonic() - begin < 30


def test_a_handler_that_ends_python_is_named(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="does not answer example 3") as caught:
        answer(tmp_path, doing("import os; len(item) < 2 or os._exit(0)", method="preprocess"))
    assert caught.value.why == "its process ended early"


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSEGV"])
def test_a_handler_that_crashes_is_named(tmp_path: Path, signal: str) -> None:
    with pytest.raises(StageFailedError, match="does not answer example 1"):
        answer(tmp_path, doing(f"import os, signal; os.kill(os.getpid(), signal.{signal})"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (doing("1 / len(item)", method="preprocess"), "ZeroDivisionError: division by zero (handler.py, line 5)"),
        (doing("raise ValueError(answer)", method="score"), "ValueError: 1.0 (handler.py, line 11)"),
        (doing("return 3", method="score"), "`score` returned 3"),
        (doing("return {1}"), "is not JSON serializable"),
        (doing("import sys; sys.exit(0)"), "SystemExit: 0"),
    ],
)
def test_what_goes_wrong_names_the_example_and_the_line(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(StageFailedError, match=r"\(example 1\)") as caught:
        answer(tmp_path, source)
    assert words in str(caught.value)


def test_only_the_packages_of_the_recipe_are_there(tmp_path: Path) -> None:
    import numpy

    assert numpy.__version__  # in this environment, and not in that process
    with pytest.raises(StageFailedError, match="cannot be loaded") as caught:
        answer(tmp_path, doing("pass", head="import numpy\n"))
    assert "No module named 'numpy' (handler.py, line 1)" in str(caught.value)
    assert "`packages`" in str(caught.value)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/numpy.py").write_text("three = 3", encoding="utf-8")
    source = doing("return numpy.three", head="import numpy\n")
    assert answer(tmp_path, source, packages=tmp_path / "site").answers == (3, 3, 3)


def test_the_environment_of_python_does_not_reach_the_handler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/planted.py").write_text("", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
    with pytest.raises(StageFailedError, match="cannot be loaded"):
        answer(tmp_path, doing("pass", head="import planted\n"))
