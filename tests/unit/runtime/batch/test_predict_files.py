"""`predict` from a file to a file: order, bad rows, interruptions."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.tiny_model import write_lines, write_model_folder

from edgepack_runtime.batch import inputs, resume
from edgepack_runtime.cli import main, model_commands
from edgepack_runtime.cli.parser import Context
from edgepack_runtime.errors import EnvironmentUnfitError, ExitCode, StageFailedError
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.rows.encodings import SAMPLE_BYTES

OUTSIDE = Context("edgert", bundle=None, release=None)


def given_on_stdin(monkeypatch: pytest.MonkeyPatch, content: str | bytes) -> None:
    raw = content.encode() if isinstance(content, str) else content
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(raw))))


Capture = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model that the process is in."""
    write_model_folder(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def predict(*options: str, given: str = "in.txt", output: str = "out.jsonl") -> int:
    return main.run(["predict", "--model", "model", "--input", given, "--output", output, *options], OUTSIDE)


def labels(path: Path) -> list[Any]:
    return [json.loads(line)["label"] for line in path.read_text(encoding="utf-8").splitlines()]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"model"}


@pytest.mark.parametrize("threads", ["1", "3"])
def test_answers_stand_in_the_order_of_the_rows(here: Path, capsys: Capture, threads: str) -> None:
    texts = ["好" * (1 + n % 13) if n % 3 else "差" * (1 + n % 7) for n in range(500)]
    (here / "in.txt").write_text("\n".join(texts), encoding="utf-8")
    assert predict("--threads", threads, "--batch-tokens", "64") == 0
    assert labels(here / "out.jsonl") == ["bad" if text.startswith("差") else "good" for text in texts]
    assert names(here) == {"in.txt", "out.jsonl"}
    assert capsys.readouterr() == ("", "500 predictions in out.jsonl\n")


def test_answers_are_counted_that_a_column_of_labels_confirms(here: Path, capsys: Capture) -> None:
    rows = [("好", "good"), ("差", "bad"), ("差", "good"), ("好", ""), ("好", " good "), ("", "good")]
    rows += [("好", "nan"), ("差", "NULL"), ("好", "['good']")]
    (here / "in.csv").write_text(
        "text,truth\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8"
    )
    assert predict("--label-column", "truth", given="in.csv", output="out.csv") == 0
    assert "accuracy: 4 of 5 rows right, 80.0 % (28.4 to 99.5, 95 % confidence)" in capsys.readouterr().err
    (here / "in.csv").write_text("text,truth\n好,\n", encoding="utf-8")
    assert predict("--label-column", "truth", given="in.csv", output="out.csv") == 0
    assert "column `truth` holds no right answer of an answered row" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "output", "words"),
    [
        (["--label-column", "none"], "out.csv", "in.csv has no column `none`"),
        (["--label-column", "text"], None, "compares the answers with a column of a table"),
    ],
)
def test_a_column_of_labels_that_cannot_be_used_is_refused(
    here: Path, capsys: Capture, options: list[str], output: str | None, words: str
) -> None:
    (here / "in.csv").write_text("text\n好\n", encoding="utf-8")
    line = ["predict", "--model", "model", "--input", "in.csv", *options, *(["--output", output] if output else [])]
    assert main.run(line, OUTSIDE) == ExitCode.USAGE
    assert words in capsys.readouterr().err
    assert main.run(["predict", "--model", "model", "--label-column", "a", "好"], OUTSIDE) == ExitCode.USAGE


def test_a_bad_row_keeps_its_line_and_stands_in_the_file_of_errors(here: Path, capsys: Capture) -> None:
    (here / "in.txt").write_bytes("好\n\n".encode() + b"\xfe\n" + "差\n".encode() + b"\xff\n" + "好\n".encode())
    assert predict() == 0
    assert labels(here / "out.jsonl") == ["good", None, "bad", None, "good"]
    found = [json.loads(line) for line in (here / "out.jsonl.errors.jsonl").read_text().splitlines()]
    assert [(row["line"], row["error"]) for row in found] == [
        (3, "line 3 of in.txt is not UTF-8"),
        (5, "line 5 of in.txt is not UTF-8"),
    ]
    assert found[1]["why"] == "some of its bytes are not valid in that encoding"
    assert capsys.readouterr().err.splitlines() == [
        "3 predictions in out.jsonl",
        "1 blank line skipped",
        "2 of 5 rows have no answer: out.jsonl.errors.jsonl has the reasons",
    ]
    (here / "in.txt").write_text("好\n", encoding="utf-8")
    assert predict() == 0
    assert names(here) == {"in.txt", "out.jsonl"}  # what an older run told is gone


@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030"])
def test_a_table_keeps_its_columns_and_is_resumed(here: Path, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    rows = "编号,text,label\n1,好,x\n\n2,,y\n3,差,z\n"
    (here / "in.csv").write_bytes(rows.encode(encoding))
    more = ["--encoding", "gb18030"] if encoding == "gb18030" else []
    assert predict(*more, given="in.csv", output="out.csv") == 0
    written = (here / "out.csv").read_bytes()
    lines = written.decode("utf-8").splitlines()
    assert lines[0] == "\ufeff编号,text,label,predicted_label,score"
    assert [line.split(",")[:4] for line in lines[1:]] == [
        ["1", "好", "x", "good"], ["2", "", "y", ""], ["3", "差", "z", "bad"],
    ]  # fmt: skip
    half = written[: written.index(b"\n2,,y") + 1]
    (here / "out.csv").unlink()
    (here / "out.csv.partial").write_bytes(half)
    assert predict(*more, "--resume", given="in.csv", output="out.csv") == 0
    assert (here / "out.csv").read_bytes() == written


def test_the_name_of_a_file_as_a_text_is_remarked(here: Path, capsys: Capture) -> None:
    (here / "in.csv").write_text("text\n好\n", encoding="utf-8")
    assert main.run(["predict", "--model", "model", "in.csv"], OUTSIDE) == 0
    shown = capsys.readouterr()
    assert "note: in.csv is a file, and its name is taken for a text; --input in.csv answers its rows" in shown.err
    assert len(shown.out.splitlines()) == 1


def test_a_text_that_cannot_stand_in_the_output_is_a_bad_row(here: Path) -> None:
    write_lines(here / "in.jsonl", [{"text": "好"}, {"text": "好\n差"}, {"text": "差"}])
    assert predict(given="in.jsonl", output="out.tsv") == 0
    lines = (here / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert [line.split("\t")[:2] for line in lines] == [["text", "label"], ["好", "good"], ["", ""], ["差", "bad"]]
    [error] = (here / "out.tsv.errors.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(error)["line"] == 2


def test_a_file_without_a_good_row_is_an_error_until_it_is_mended(here: Path, capsys: Capture) -> None:
    (here / "in.txt").write_bytes(b"\xff\n\xfe\n")
    for _ in range(2):  # nothing is left that would make a second run another one
        assert predict() == ExitCode.USAGE
        shown = capsys.readouterr().err
        assert shown.startswith("0 predictions in out.jsonl\nerror: 2 of 2 rows have no answer\n")
        assert "why: line 1 of in.txt is not UTF-8" in shown and "out.jsonl.errors.jsonl tells of each row" in shown
        assert labels(here / "out.jsonl") == [None, None]
        assert names(here) == {"in.txt", "out.jsonl", "out.jsonl.errors.jsonl"}
    (here / "in.txt").write_text("很好\n很差\n", encoding="utf-8")
    assert predict() == ExitCode.OK
    assert names(here) == {"in.txt", "out.jsonl"}


@pytest.mark.parametrize(
    ("name", "content", "more", "named"),
    [
        ("in.csv", "id\n1\n", [], "no column `text`"),
        ("in.txt", "", [], "in.txt holds no text"),
        ("in.doc", "好", [], "in.doc has no known ending"),
        ("in.txt", "好\n", ["--output", "out.xlsx"], "out.xlsx cannot be written"),
        ("in.txt", "好\n", ["--output", "out"], "name it with one of .txt .tsv .csv .jsonl"),
        ("in.txt", "好\n", ["--output", "none/out.csv"], "there is no folder"),
        ("in.txt", "好\n", ["--output", "-"], "- is not a regular file"),
        ("in.txt", "好\n", ["--output", "/dev/null"], "/dev/null is not a regular file"),
        ("in.txt", "好\n", ["--batch-tokens", "0"], "'0' is not a whole number"),
    ],
)
def test_predict_refuses_senseless_files_before_anything_runs(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, name: str, content: str, more: list[str], named: str
) -> None:
    (here / name).write_text(content, encoding="utf-8")
    monkeypatch.setattr(model_commands, "open_model", lambda *_: pytest.fail("the model was opened"))
    assert predict(*more, given=name) == ExitCode.USAGE
    assert named in capsys.readouterr().err
    assert names(here) == {name}


def test_strict_ends_at_the_first_bad_row_and_goes_on_when_it_is_mended(here: Path, capsys: Capture) -> None:
    (here / "in.txt").write_bytes("好\n".encode() + b"\xff\n" + "差\n".encode())
    assert predict("--strict") == ExitCode.USAGE
    shown = capsys.readouterr().err
    assert "line 2 of in.txt is not UTF-8" in shown and "rerun with --strict --resume" in shown
    assert names(here) == {"in.txt"} | {f"out.jsonl.{name}partial" for name in ("", "errors.jsonl.", "rows.")}
    (here / "in.txt").write_text("好\n很\n差\n", encoding="utf-8")
    assert predict("--strict", "--resume") == 0
    assert "continuing after row 1," in capsys.readouterr().err
    assert labels(here / "out.jsonl") == ["good", "bad", "bad"]


def test_the_first_bad_row_ends_a_run_that_prints_its_answers(here: Path, capsys: Capture) -> None:
    (here / "in.txt").write_bytes("好\n差\n".encode() + b"\xff\n" + "差\n".encode())
    assert main.run(["predict", "--model", "model", "--input", "in.txt"], OUTSIDE) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert [json.loads(line)["label"] for line in shown.out.splitlines()] == ["good", "bad"]
    assert "line 3 of in.txt is not UTF-8" in shown.err


def test_a_pipe_can_be_answered_into_a_file(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    given_on_stdin(monkeypatch, "好\n\n差\n")
    assert main.run(["predict", "--model", "model", "--output", "out.csv"], OUTSIDE) == 0
    lines = (here / "out.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[:2] for line in lines] == [["\ufefftext", "label"], ["好", "good"], ["", ""], ["差", "bad"]]
    assert names(here) == {"out.csv", "out.csv.errors.jsonl"}
    assert "1 of 3 rows has no answer" in capsys.readouterr().err


def test_arguments_can_be_answered_into_a_file(here: Path) -> None:
    assert main.run(["predict", "--model", "model", "好", "差\n，好好", "--output", "out.csv"], OUTSIDE) == 0
    with (here / "out.csv").open(encoding="utf-8-sig", newline="") as table:
        found = [(row["text"], row["label"]) for row in csv.DictReader(table)]
    assert found == [("好", "good"), ("差\n，好好", "good")]
    write_model_folder(here / "model", task="text-pair-classification")
    assert main.run(["predict", "--model", "model", "差", "好", "--output", "out.jsonl"], OUTSIDE) == 0
    assert labels(here / "out.jsonl") == ["bad"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (StageFailedError("the model could not be run"), ExitCode.STAGE_FAILED),
        (EnvironmentUnfitError("out.jsonl cannot be written"), ExitCode.ENVIRONMENT_UNFIT),
    ],
)
def test_a_run_that_an_interrupt_or_an_error_ended_is_resumed(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    (here / "in.txt").write_text("好\n差\n" * 300, encoding="utf-8")
    assert predict(output="whole.jsonl") == 0
    stream = Predictor.stream_tagged

    def stopping(self: Predictor, items: Any, **options: Any) -> Any:
        for number, found in enumerate(stream(self, items, **options)):
            if number == 101:
                raise error
            yield found

    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "stream_tagged", stopping)
        assert predict() == code
    assert "the same command with --resume continues it" in capsys.readouterr().err
    assert predict() == ExitCode.USAGE
    assert "continue that run with --resume" in capsys.readouterr().err
    assert predict("--resume", "--threads", "3") == 0
    assert "continuing after row 101," in capsys.readouterr().err
    assert (here / "out.jsonl").read_bytes() == (here / "whole.jsonl").read_bytes()
    assert names(here) == {"in.txt", "out.jsonl", "whole.jsonl"}
    assert predict("--resume") == 0
    assert "there is nothing to continue: starting at the first row, and replacing out.jsonl" in capsys.readouterr().err


def test_a_shorter_input_is_not_resumed(here: Path, capsys: Capture) -> None:
    (here / "in.txt").write_bytes("好\n差\n".encode() + b"\xff\n")
    assert predict("--strict") == ExitCode.USAGE
    (here / "in.txt").write_text("好\n", encoding="utf-8")
    assert predict("--resume") == ExitCode.USAGE
    assert "the input has 1 row, and the interrupted run answered 2" in capsys.readouterr().err
    assert labels(here / "out.jsonl.partial") == ["good", "bad"]


@pytest.mark.parametrize("changed", ["a row", "an option", "the column", "the model"])
def test_answers_to_something_else_are_not_continued(here: Path, capsys: Capture, changed: str) -> None:
    """The rows are as many as before, and the answers have the same form."""
    rows = [{"text": text, "other": "很好"} for text in ("好", "差", "好")]
    write_lines(here / "in.jsonl", [*rows, {"other": "很好"}])
    assert predict("--strict", given="in.jsonl") == ExitCode.USAGE
    options = {"an option": ["--long", "windows"], "the column": ["--column", "other"]}.get(changed, [])
    if changed == "a row":
        rows[1]["text"] = "店"
    elif changed == "the model":
        (here / "model").rename(here / "old")
        write_model_folder(here / "another")
        (here / "model").symlink_to(here / "another")
    write_lines(here / "in.jsonl", rows)
    before = {path: path.read_bytes() for path in here.glob("*.partial")}
    assert predict("--resume", *options, given="in.jsonl") == ExitCode.USAGE
    line = 2 if changed == "a row" else 1
    assert f"has read something else on line {line} of the input" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in here.glob("*.partial")} == before


def test_standard_input_is_resumed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, exit_code in (["--strict"], ExitCode.USAGE), (["--resume"], ExitCode.OK):
        given_on_stdin(monkeypatch, "好\n差\n\n好\n")
        line = ["predict", "--model", "model", "--output", "out.jsonl", *options]
        assert main.run(line, OUTSIDE) == exit_code
    assert labels(here / "out.jsonl") == ["good", "bad", None, "good"]


KILLED = """\
import os, signal, sys
from edgepack_runtime.batch import inputs, resume
from edgepack_runtime.cli import main as cli
resume._BLOCK_CHARACTERS = 300
write, written = resume._write, []

def kill(file, data, offset):
    written.append(1)
    if len(written) == 3:
        write(file, data[:-7], offset)
        os.kill(os.getpid(), signal.SIGKILL)
    write(file, data, offset)

resume._write = kill
raise SystemExit(cli.main())
"""


def test_a_killed_run_is_resumed_without_a_row_lost_or_twice(here: Path, capsys: Capture) -> None:
    rows = [{"text": text} for text in ("好", "", "差", "很好", "店") for _ in range(40)]
    write_lines(here / "in.jsonl", rows)
    assert predict(given="in.jsonl", output="whole.csv") == 0
    line = ["predict", "--model", "model", "--input", "in.jsonl", "--output", "out.csv", "--threads", "2", "--resume"]
    kills = 0
    while True:
        done = subprocess.run([sys.executable, "-c", KILLED, *line], capture_output=True, timeout=60, check=False)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
        assert not (here / "out.csv").exists()
        kills += 1
    assert kills >= 3
    for name in ("csv", "csv.errors.jsonl"):
        assert (here / f"out.{name}").read_bytes() == (here / f"whole.{name}").read_bytes()
    ends = ("csv", "csv.errors.jsonl")
    assert names(here) == {"in.jsonl", *(f"{run}.{end}" for run in ("out", "whole") for end in ends)}


def test_predict_shows_progress_on_a_terminal_without_quiet(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "in.txt").write_text("好\n" * 50, encoding="utf-8")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("edgepack_runtime.util.progress._TERMINAL_S", -1.0)
    assert predict() == 0
    shown = capsys.readouterr().err
    assert "\r[" in shown and shown.endswith("\n50 predictions in out.jsonl\n")
    assert predict("--quiet") == 0
    assert capsys.readouterr().err == ""


def test_predict_reads_a_long_text_in_windows_where_that_is_asked_for(here: Path) -> None:
    (here / "in.txt").write_text("差" * 14 + "好" * 40, encoding="utf-8")
    assert predict() == 0
    assert labels(here / "out.jsonl") == ["bad"]
    assert predict("--long", "windows") == 0
    assert labels(here / "out.jsonl") == ["good"]


def test_memory_does_not_grow_with_the_file(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are read as they are answered: never more ahead than three blocks."""
    text = "好" * 20 + "\n"
    (here / "in.txt").write_text(text * 9000, encoding="utf-8")
    ahead = []
    add = resume.Output.add

    def watched(self: resume.Output, line: str, row: str, error: Any = None) -> None:
        ahead.append(os.lseek(handle[0], 0, os.SEEK_CUR) - self.rows * len(text.encode()))
        add(self, line, row, error)

    handle: list[int] = []
    opened = inputs.open_stream

    def opening(path: Path) -> Any:
        file = opened(path)
        handle.append(file.fileno())
        return file

    monkeypatch.setattr(resume.Output, "add", watched)
    most = len(text.encode()) * 1024 * 3 + SAMPLE_BYTES
    assert most < 9000 * len(text.encode())
    monkeypatch.setattr(model_commands, "read", lambda *_, **__: [])
    monkeypatch.setattr(inputs, "open_stream", opening)
    assert predict() == 0
    assert len(ahead) == 9000
    assert max(ahead) <= most


def test_predict_replaces_no_pipe_no_folder_no_link_and_no_file_that_it_reads(here: Path, capsys: Capture) -> None:
    (here / "out.jsonl.errors.jsonl").write_text('{"text": "好"}\n', encoding="utf-8")
    os.mkfifo(here / "pipe.jsonl")
    (here / "folder.jsonl").mkdir()
    (here / "to-pipe.jsonl").symlink_to("pipe.jsonl")
    (here / "circle.jsonl").symlink_to("circle.jsonl")
    (here / "to-itself.jsonl").symlink_to("out.jsonl.errors.jsonl")
    for name, words in (
        ("pipe.jsonl", "pipe.jsonl is not a regular file"),
        ("to-pipe.jsonl", "to-pipe.jsonl is not a regular file"),
        ("circle.jsonl", "circle.jsonl is a link"),
        ("folder.jsonl", "folder.jsonl is a folder"),
        ("out.jsonl", "are the same file"),
        ("out.jsonl.errors.jsonl", "--input and --output are the same file"),
        ("to-itself.jsonl", "to-itself.jsonl is a link"),
    ):
        assert predict(given="out.jsonl.errors.jsonl", output=name) == ExitCode.USAGE
        assert words in capsys.readouterr().err
    assert (here / "pipe.jsonl").is_fifo()
    assert predict(given="out.jsonl.errors.jsonl", output="other.jsonl") == 0


def test_predict_refuses_a_folder_that_may_not_be_written(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "in.txt").write_text("好\n", encoding="utf-8")
    monkeypatch.setattr(model_commands, "open_model", lambda *_: pytest.fail("the model was opened"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the user of a test may be root
    assert predict() == ExitCode.ENVIRONMENT_UNFIT
    assert "this user may not write into" in capsys.readouterr().err


@pytest.mark.parametrize("output", [None, "out.jsonl"])
def test_predict_refuses_an_empty_standard_input(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, output: str | None
) -> None:
    more = ["--output", output] if output else []
    given_on_stdin(monkeypatch, b"")
    assert main.run(["predict", "--model", "model", *more], OUTSIDE) == ExitCode.USAGE
    told = "error: standard input holds no text\n"
    assert capsys.readouterr() == ("", told)
    assert names(here) == set()


@pytest.mark.parametrize("output", [[], ["--output", "out.txt"]])
def test_standard_input_is_read_in_the_encoding_that_is_asked_for(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, output: list[str]
) -> None:
    line = ["predict", "--model", "model", *output, "--encoding"]
    for encoding in ("gb18030", "utf-16"):
        given_on_stdin(monkeypatch, "好\n差\n".encode(encoding))
        assert main.run([*line, encoding], OUTSIDE) == 0
        shown = capsys.readouterr().out
        written = (here / "out.txt").read_text() if output else shown
        assert [json.loads(answer)["label"] for answer in written.splitlines()] == ["good", "bad"]
    given_on_stdin(monkeypatch, "好\n差\n")
    assert main.run([*line, "gb18030"], OUTSIDE) == ExitCode.USAGE
    assert "fix: omit --encoding" in capsys.readouterr().err
    given_on_stdin(monkeypatch, "好\n差\n".encode("gbk"))
    assert main.run(line[:-1], OUTSIDE) == ExitCode.USAGE
    assert "standard input is not UTF-8\n  why: it seems to be GB18030" in capsys.readouterr().err


def test_a_line_of_a_pipe_is_answered_before_the_next_one_is_written(here: Path) -> None:
    """Also while it is decoded from another encoding."""
    code = "from edgepack_runtime.cli.main import main; raise SystemExit(main())"
    line = [sys.executable, "-c", code, "predict", "--model", "model", "--encoding", "gb18030"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        for text, label in (("好", "good"), ("差", "bad")):
            process.stdin.write(f"{text}\n".encode("gbk"))
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["label"] == label
        process.stdin.close()
    assert process.returncode == 0


def test_blank_lines_are_counted_where_answers_are_printed(here: Path, capsys: Capture) -> None:
    (here / "in.txt").write_text("好\n\n\n差\n", encoding="utf-8")
    assert main.run(["predict", "--model", "model", "--input", "in.txt"], OUTSIDE) == 0
    shown = capsys.readouterr()
    assert (len(shown.out.splitlines()), shown.err) == (2, "2 blank lines skipped\n")


def test_endings_in_capitals_are_known_and_one_prediction_is_no_plural(here: Path, capsys: Capture) -> None:
    (here / "IN.CSV").write_text("text\n好\n", encoding="utf-8")
    assert predict(given="IN.CSV", output="OUT.CSV") == 0
    assert (here / "OUT.CSV").read_text(encoding="utf-8").startswith("text,label,score\n好,good,")
    assert capsys.readouterr().err == "1 prediction in OUT.CSV\n"


def test_a_table_with_semicolons_is_read_and_written(here: Path) -> None:
    (here / "in.csv").write_text('text;id\n"好;好, 好";1\n差;2\n', encoding="utf-8")
    assert predict(given="in.csv", output="out.csv") == 0
    lines = (here / "out.csv").read_text(encoding="utf-8").splitlines()
    assert [line.rpartition(";")[0] for line in lines] == ["text;id;label", '"好;好, 好";1;good', "差;2;bad"]


@pytest.mark.parametrize(("given", "named"), [("-", "omit --input"), (".", ". is a folder"), ("..", ".. is a folder")])
def test_what_is_no_file_is_named(here: Path, capsys: Capture, given: str, named: str) -> None:
    assert main.run(["predict", "--model", "model", "--input", given], OUTSIDE) == ExitCode.USAGE
    assert named in capsys.readouterr().err
