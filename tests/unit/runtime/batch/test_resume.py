"""A run may end at any moment: a resumed run ends with the same files, without a lost or a repeated row."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepack_runtime.batch.resume import Output
from edgepack_runtime.errors import EnvironmentUnfitError, UsageError

OPERATIONS = ("pwrite", "fsync", "ftruncate", "replace", "unlink")
HEADER = 'text,"la,bel"\n'


class Crash(BaseException):
    """The process is gone."""


class Disk:
    """Every operation from number `fatal` on fails; a write may be `half` done then."""

    def __init__(self, patch: pytest.MonkeyPatch, fatal: int, *, half: bool) -> None:
        self._count, self._fatal, self._half = 0, fatal, half
        for name in OPERATIONS:
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, operation: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            self._count += 1
            if self._count == self._fatal and name == "pwrite" and self._half:
                file, data, offset = arguments
                operation(file, data[: len(data) // 2], offset)
            if self._count >= self._fatal:
                raise Crash
            return operation(*arguments, **options)

        return call


def line_of(item: str) -> str:
    return f'"{item}",1\n' if "\n" in item else f"{item},1\n"


def run(folder: Path, items: list[str], *, every: int = 3, stop_after: int | None = None, resume: bool = True) -> None:
    """Write a line for each item; an empty item is a row without an answer. Every few rows are a block."""
    with Output(folder / "out.csv", ".csv", HEADER, "model", resume=resume) as output:
        for number, item in enumerate(items[: output.before], start=1):
            output.skip(item, number)
        output.cut_errors(output.before)
        for number, item in list(enumerate(items, start=1))[output.before :]:
            output.add(line_of(item) if item else ",\n", item, None if item else {"line": number})
            if number % every == 0:
                output.commit()
            if number == stop_after:
                raise KeyboardInterrupt
        output.finish()


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()}


def expected(items: list[str]) -> dict[str, str]:
    bad = [number for number, item in enumerate(items, start=1) if not item]
    errors = {"out.csv.errors.jsonl": "".join(f'{{"line": {number}}}\n' for number in bad)}
    return {"out.csv": HEADER + "".join(line_of(item) if item else ",\n" for item in items), **(errors if bad else {})}


@given(
    items=st.lists(st.sampled_from(["a", "bb", "好", "two\nlines", ""]), min_size=1, max_size=9),
    every=st.integers(1, 4),
    half=st.booleans(),
    data=st.data(),
)
@settings(max_examples=40)
def test_a_run_stopped_at_any_change_of_the_disk_ends_with_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, items: list[str], every: int, half: bool, data: st.DataObject
) -> None:
    fatal = 0
    ended = False
    while not ended:  # one folder for each place to stop at; then a second stop, anywhere
        fatal += 1
        folder = tmp_path_factory.mktemp("run")
        (folder / "out.csv").write_text("of an older run")
        (folder / "out.csv.errors.jsonl").write_text('{"line": 1, "error": "of an older run"}\n')
        ended = not crashes(folder, items, every, fatal, half=half)
        if ended:
            assert fatal > 4
        crashes(folder, items, every, data.draw(st.integers(1, 12)), half=half)
        run(folder, items, every=every)
        assert files(folder) == expected(items)


def crashes(folder: Path, items: list[str], every: int, fatal: int, *, half: bool) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        Disk(patch, fatal, half=half)
        try:
            run(folder, items, every=every)
        except Crash:
            return True
        return False


def test_errors_are_on_the_disk_before_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink().name))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, ["a", "", "b"], every=2, stop_after=2)
    assert synced == ["out.csv.errors.jsonl.partial", "out.csv.rows.partial", "out.csv.partial"]


def test_an_incomplete_last_line_is_cut(tmp_path: Path) -> None:
    items = ["a", "", "two\nlines", "b"]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, items, stop_after=2)
    for name, torn in (("out.csv.partial", '"two\n'), ("out.csv.errors.jsonl.partial", '{"line": 3}\n{"li')):
        with (tmp_path / name).open("a") as file:
            file.write(torn)
    run(tmp_path, items)
    assert files(tmp_path) == expected(items)


@pytest.mark.parametrize("junk", ["junk\n", "{}\n", '{"line": null}\n', "[1]\n", "\\xff\n"])
def test_junk_at_the_end_of_the_errors_is_cut(tmp_path: Path, junk: str) -> None:
    items = ["a", "", "b"]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, items, stop_after=2)
    with (tmp_path / "out.csv.errors.jsonl.partial").open("a") as file:
        file.write(junk)
    run(tmp_path, items)
    assert files(tmp_path) == expected(items)


def test_an_interrupt_keeps_what_was_answered(tmp_path: Path) -> None:
    items = list("abcdefgh")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, items, every=100, stop_after=5)
    assert (tmp_path / "out.csv.partial").read_text() == HEADER + "a,1\nb,1\nc,1\nd,1\ne,1\n"
    assert not (tmp_path / "out.csv").exists()
    with Output(tmp_path / "out.csv", ".csv", HEADER, "model", resume=True) as output:
        assert output.before == 5
    run(tmp_path, [*items, "new"])  # the input may grow
    assert files(tmp_path) == expected([*items, "new"])


def test_the_answers_of_an_interrupted_run_are_kept_where_it_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, list("abc"), stop_after=2)
    before = files(tmp_path)
    with pytest.raises(UsageError, match="holds answers of a run that was interrupted") as caught:
        run(tmp_path, list("abc"), resume=False)
    assert "--resume" in caught.value.fix
    with (
        pytest.raises(UsageError, match="has other columns"),
        Output(tmp_path / "out.csv", ".csv", "id\n", "model", resume=True),
    ):
        pytest.fail("it was opened")
    assert files(tmp_path) == before
    (tmp_path / "out.csv.partial").unlink()
    run(tmp_path, list("xyz"), resume=False)
    assert files(tmp_path) == expected(list("xyz"))


@pytest.mark.parametrize("left", ["", "te", HEADER, "id\n"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_was_killed_before_its_first_answer_is_no_obstacle(tmp_path: Path, left: str, resume: bool) -> None:
    if resume and left == "id\n":
        pytest.skip("of other options: refused")
    (tmp_path / "out.csv.partial").write_text(left)
    run(tmp_path, list("ab"), resume=resume)
    assert files(tmp_path) == expected(list("ab"))


def test_an_interrupt_before_the_first_row_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Output(tmp_path / "out.csv", ".csv", HEADER, "model", resume=False):
        raise KeyboardInterrupt
    assert files(tmp_path) == {}


@pytest.mark.parametrize("line", range(1, 12))
def test_an_interrupt_inside_add_costs_no_row_and_doubles_none(tmp_path: Path, line: int) -> None:
    """Ctrl-C comes between any two lines of Python."""
    come = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal come
        if frame.f_code is not Output.add.__code__:
            return None
        come += event == "line"
        if come == line:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, ["a", "", "b"], every=100)
    finally:
        sys.settrace(before)
    run(tmp_path, ["a", "", "b"])
    assert files(tmp_path) == expected(["a", "", "b"])


@pytest.mark.parametrize("resume", [True, False])
def test_two_processes_do_not_write_one_file(tmp_path: Path, resume: bool) -> None:
    with Output(tmp_path / "out.csv", ".csv", HEADER, "model", resume=False) as first:
        with pytest.raises(EnvironmentUnfitError, match="another process writes"):
            run(tmp_path, ["b"], resume=resume)
        first.add("a,1\n", "a")
        first.finish()
    assert files(tmp_path) == expected(["a"])


def test_a_full_disk_is_an_error_and_costs_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items, pwrite = list("abcdef"), os.pwrite

    def full(file: int, data: bytes, offset: int) -> int:
        pwrite(file, data[:20], offset)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(EnvironmentUnfitError, match="cannot be written") as caught:
            run(tmp_path, items)
    assert "No space left" in caught.value.why
    run(tmp_path, items)
    assert files(tmp_path) == expected(items)
    with pytest.raises(EnvironmentUnfitError, match="No such file"):
        run(tmp_path / "none", items)


def test_half_a_surrogate_pair_is_written_as_json_escapes_it(tmp_path: Path) -> None:
    with Output(tmp_path / "out.jsonl", ".jsonl", "", "model", resume=False) as output:
        output.add('{"text": "\ud83d好"}\n', "\ud83d好")
        output.finish()
    assert (tmp_path / "out.jsonl").read_text() == '{"text": "\\ud83d好"}\n'


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize(
    "planted",
    ["out.csv", "out.csv.partial", "out.csv.errors.jsonl", "out.csv.errors.jsonl.partial", "out.csv.rows.partial"],
)
@pytest.mark.parametrize("kind", ["link", "link to nothing", "second name"])
def test_nothing_is_written_to_a_file_that_a_planted_link_leads_to(
    tmp_path: Path, kind: str, planted: str, *, resume: bool
) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "shared"
    folder.mkdir()
    if kind == "second name":
        victim.write_text("mine")
        os.link(victim, folder / planted)
    else:
        if kind == "link":
            victim.write_text("mine")
        (folder / planted).symlink_to(victim)
    with contextlib.suppress(UsageError, EnvironmentUnfitError):
        run(folder, ["a", "", "b"], resume=resume)
    assert victim.exists() == (kind != "link to nothing")
    assert not victim.exists() or victim.read_text() == "mine"


@pytest.mark.parametrize("planted", ["out.csv.partial", "out.csv.errors.jsonl.partial", "out.csv.rows.partial"])
@pytest.mark.parametrize("kind", ["named pipe", "another user"])
def test_only_an_own_file_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, planted: str
) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        run(tmp_path, ["a", "", "b"], stop_after=2, every=1)
    if kind == "named pipe":
        (tmp_path / planted).unlink()
        os.mkfifo(tmp_path / planted)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(EnvironmentUnfitError, match="not a file of this user"):
        run(tmp_path, ["a", "", "b"])


def test_a_new_run_does_not_adopt_errors_that_somebody_left(tmp_path: Path) -> None:
    left = tmp_path / "out.csv.errors.jsonl.partial"
    left.write_text('{"line": 7}\n')
    left.chmod(0o666)
    run(tmp_path, ["a", "", "b"], resume=False)
    assert files(tmp_path) == expected(["a", "", "b"])
    assert (tmp_path / "out.csv.errors.jsonl").stat().st_mode & 0o777 == 0o644
