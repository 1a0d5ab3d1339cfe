"""`predict` and `bench` with a model that has a handler."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.imported_model import HANDLER, write_imported

from edgepack_runtime.cli import main
from edgepack_runtime.cli.parser import Context
from edgepack_runtime.errors import ExitCode

OUTSIDE = Context("edgert", bundle=None, release=None)
Capture = pytest.CaptureFixture[str]


def predict(model: Path, *arguments: str | Path) -> int:
    return main.run(["predict", "--model", str(model), *map(str, arguments)], OUTSIDE)


def answers(capsys: Capture) -> list[Any]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def type_in(monkeypatch: pytest.MonkeyPatch, raw: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="ascii"))


def test_texts_are_arguments_or_lines(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_imported(tmp_path / "m", item="text")
    assert predict(model, "很好", "a") == 0
    type_in(monkeypatch, "很好\r\na\n".encode())
    assert predict(model) == 0
    assert answers(capsys) == [5.0, 3.0, 5.0, 3.0]


def test_json_values_are_arguments_or_lines(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_imported(tmp_path / "m", item="json")
    assert predict(model, "[1, 2]", '{"a": "好"}') == 0
    type_in(monkeypatch, b'[1, 2]\n"abc"\n')
    assert predict(model) == 0
    assert answers(capsys) == [5.0, 3.0, 5.0, 7.0]


def test_files_are_named_or_piped(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_imported(tmp_path / "m", item="file")
    (tmp_path / "图.bin").write_bytes(b"\0\xff\n")
    assert predict(model, tmp_path / "图.bin", model / "model.json") == 0
    type_in(monkeypatch, b"\0\xff")
    assert predict(model) == 0
    found = answers(capsys)
    assert (found[0], found[2]) == (7.0, 5.0)
    assert found[1] == 2.0 * (model / "model.json").stat().st_size + 1


@pytest.mark.parametrize(
    ("item", "words", "named"),
    [
        ("json", ["{"], "item 1 is not JSON"),
        ("json", ["[]", "["], "item 2 is not JSON"),
        ("json", ["[" * 100_000], "item 1 is not JSON"),
        ("json", [""], "text 1 is empty"),
        ("text", [" "], "text 1 is empty"),
        ("file", ["there-is-no-such-file"], "there-is-no-such-file cannot be read"),
        ("file", ["."], ". cannot be read"),
        ("text", ["a", "--scores"], "--scores is for models of texts"),
        ("text", ["a", "--long", "windows"], "--long is for models of texts"),
        ("text", ["--input", "in.txt"], "--input is for models of texts"),
        ("file", ["a", "--output", "out.jsonl"], "--output is for models of texts"),
    ],
)
def test_items_and_options_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, item: str, words: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a\n", encoding="utf-8")
    assert predict(write_imported(tmp_path / "m", item=item), *words) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert named in shown.err
    assert len(shown.out.splitlines()) < 2


@pytest.mark.parametrize(
    ("item", "raw", "named"),
    [
        ("text", b"a\n\nb\n", "line 2 is empty"),
        ("text", b"\xff\n", "line 1 is not UTF-8"),
        ("json", b"1 2\n", "line 1 is not JSON"),
    ],
)
def test_lines_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, item: str, raw: bytes, named: str
) -> None:
    type_in(monkeypatch, raw)
    assert predict(write_imported(tmp_path / "m", item=item)) == ExitCode.USAGE
    assert named in capsys.readouterr().err


def test_a_handler_that_fails_is_reported(tmp_path: Path, capsys: Capture) -> None:
    source = HANDLER.format(item="text").replace("return outputs", "return missing")
    assert predict(write_imported(tmp_path / "m", handler=source, item="text"), "a") == ExitCode.STAGE_FAILED
    assert "NameError: name 'missing' is not defined (handler.py, line 8)" in capsys.readouterr().err


def test_bench_has_no_texts_for_a_handler(tmp_path: Path, capsys: Capture) -> None:
    model = write_imported(tmp_path / "m")
    (tmp_path / "texts.txt").write_text("a\n", encoding="utf-8")
    assert main.run(["bench", str(model), "--texts", str(tmp_path / "texts.txt")], OUTSIDE) == ExitCode.USAGE
    assert "--texts is for models of texts" in capsys.readouterr().err
