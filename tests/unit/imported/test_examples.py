"""Stage `examples`: golden examples are checked and copied."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgepack.build.options import STAGES, BuildOptions
from edgepack.errors import RecipeInvalidError
from edgepack.imported import examples
from edgepack.imported.examples import ExamplesStage
from edgepack.stages.stage import Context


def write(folder: Path, *rows: Any) -> Path:
    file = folder / "examples.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def out(folder: Path) -> Path:
    (folder / "out").mkdir()
    return folder / "out"


def findings(file: Path, item: str) -> list[tuple[int | None, str]]:
    with pytest.raises(RecipeInvalidError) as caught:
        ExamplesStage(file, item).run(Context(), out(file.parent))
    return [(finding.line, finding.reason) for finding in caught.value.findings]


@pytest.mark.parametrize("item", ["text", "json"])
def test_items_are_copied_as_they_are(tmp_path: Path, item: str) -> None:
    rows = [{"item": "很好", "expected": {"a": [1]}}, {"item": "a", "expected": None}]
    made = ExamplesStage(write(tmp_path, rows[0], "", rows[1]), item).run(Context(), out(tmp_path))
    assert (made.item, made.rows, made.read()) == (item, 2, rows)


def test_files_are_copied_once_and_named_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, content in (("sub/a.PNG", b"1"), ("b.png", b"1"), ("c", b"2")):
        (tmp_path / name).write_bytes(content)
    rows = [{"file": name, "expected": 1} for name in ("sub/a.PNG", "b.png", "c", "./c")]
    made = ExamplesStage(write(tmp_path, *rows), "file").run(Context(), out(tmp_path))
    names = [row["file"] for row in made.read()]
    assert names[0] == names[1]
    assert names[2] == names[3]
    assert names[0].endswith(".png")
    assert [(made.folder / name).read_bytes() for name in names] == [b"1", b"1", b"2", b"2"]
    assert len(list((made.folder / "files").iterdir())) == 2


def test_every_line_that_does_not_fit_is_found(tmp_path: Path) -> None:
    good = {"item": "a", "expected": 1}
    rows = [
        good,
        {"item": "a"},
        "{",
        [1],
        {"file": "a", "expected": 1},
        {"item": " ", "expected": 1},
        {"item": 3, "expected": 1},
    ]
    found = findings(write(tmp_path, *rows), "text")
    assert [line for line, _ in found] == [2, 3, 4, 5, 6, 7]
    assert found[0][1] == "an example of this handler has the keys `item` and `expected`, and this has item"
    assert "this has list" in found[2][1]
    assert found[4][1] == found[5][1] == "`item` is not a text"


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    assert [line for line, _ in findings(write(tmp_path, "", {"item": 1, "expected": 1}, "", "{"), "json")] == [4]


def test_files_that_are_not_there_are_found(tmp_path: Path) -> None:
    rows = [{"file": "nowhere", "expected": 1}, {"file": ".", "expected": 1}, {"file": None, "expected": 1}]
    found = findings(write(tmp_path, *rows), "file")
    assert [line for line, _ in found] == [1, 2, 3]
    assert found[0][1] == "nowhere: No such file or directory"
    assert found[1][1] == ". is not a regular file"


def test_a_file_of_the_user_does_not_get_into_a_bundle(tmp_path: Path) -> None:
    """A line may name any path, a device that never ends, or a pipe that is waited for."""
    folder = tmp_path / "given"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret", encoding="ascii")
    (folder / "link").symlink_to("../secret.txt")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "self").symlink_to("self")
    os.mkfifo(folder / "pipe")
    names = [
        "../secret.txt",
        str(tmp_path / "secret.txt"),
        "/dev/zero",
        "link",
        "zero",
        "folder/secret.txt",
        "pipe",
        "self",
    ]
    file = write(folder, *({"file": name, "expected": 1} for name in [*names, "a\0b", "x" * 300]))
    assert examples.digests(file, "file")[1:] == ["unreadable"] * 10
    assert [line for line, _ in findings(file, "file")] == list(range(1, 11))
    assert list((folder / "out" / "files").iterdir()) == []


def test_half_a_surrogate_pair_is_found(tmp_path: Path) -> None:
    file = write(tmp_path, {"item": "a", "expected": 1}, '{"item": "\\ud800x", "expected": 1}')
    assert [line for line, _ in findings(file, "text")] == [2]


@pytest.mark.parametrize("name", ["a.b\nc", "a.b\\c:d?", "a." + 240 * "x", "a.onnx", "a.图"])
def test_names_that_no_bundle_can_hold_are_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    (tmp_path / "good.PNG").write_bytes(b"y")
    rows = [{"file": "good.PNG", "expected": 1}, {"file": name, "expected": 1}]
    [(line, reason)] = findings(write(tmp_path, *rows), "file")
    assert (line, "rename it" in reason) == (2, True)


def test_no_examples_and_bytes_that_are_no_text_are_found(tmp_path: Path) -> None:
    assert findings(write(tmp_path, ""), "json") == [(None, "it has no examples")]
    (tmp_path / "b").mkdir()
    file = write(tmp_path / "b")
    file.write_bytes(b"\xff\n")
    [(line, reason)] = findings(file, "json")
    assert line == 1
    assert "can't decode byte 0xff" in reason


def test_too_many_bytes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "_MOST_BYTES", 10)
    for name, content in (("a", bytes(6)), ("b", bytes(5)), ("c", bytes(11))):
        (tmp_path / name).write_bytes(content)
    [(line, reason)] = findings(write(tmp_path, *({"file": name, "expected": 1} for name in "aab")), "file")
    assert line is None
    assert "a bundle carries" in reason
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone/c").write_bytes(bytes(11))
    assert findings(write(tmp_path / "alone", {"file": "c", "expected": 1}), "file") == [(1, "c has more than 0 MiB")]


def test_digests_follow_the_file_and_the_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    file = write(tmp_path, {"file": "a", "expected": 1}, "{", {"file": "b", "expected": 1})
    first = examples.digests(file, "file")
    assert first == examples.digests(file, "file")
    assert first[2:] == ["unreadable", "unreadable"]
    (tmp_path / "a").write_bytes(b"2")
    assert examples.digests(file, "file") != first
    assert len(examples.digests(file, "json")) == 1


def test_every_stage_of_an_imported_model_runs_again_if_forced() -> None:
    assert BuildOptions(force=True).again == set(STAGES)
    assert BuildOptions(start="bundle").again == {"bundle", "gate"}
    assert BuildOptions().again == set()


def test_digests_of_more_files_than_a_bundle_carries_are_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hard links to one sparse file take no space, and would take hours."""
    read: list[Path] = []
    monkeypatch.setattr(examples, "_MOST_BYTES", 100)
    monkeypatch.setattr(examples, "sha256_file", lambda file: read.append(file) or "digest")
    lines = []
    for number in range(30):
        (tmp_path / f"{number}.png").write_bytes(b"x" * 30)
        lines.append(json.dumps({"file": f"{number}.png", "expected": 1}))
    (tmp_path / "examples.jsonl").write_text("\n".join(lines), encoding="utf-8")
    examples.digests(tmp_path / "examples.jsonl", "file")
    assert len(read) == 3
