"""A run may end at any moment: whoever goes on ends with the same files, no row lost and none twice."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgepack_runtime import journal, resume, rows
from edgepack_runtime.errors import EnvironmentUnfitError, UsageError
from edgepack_runtime.resume import Output
from edgepack_runtime.rows import Position

IDENTITY = {"model": "m", "scores": "False"}
OPERATIONS = ("_write", "_sync", "_replace_journal", "_rename", "_remove")


class Crash(BaseException):
    """The process is gone: nothing that it would still do is done."""


class Disk:
    """Stops at the operation number `fatal`; a write may be `half` done then."""

    def __init__(self, patch: pytest.MonkeyPatch, fatal: int, *, half: bool) -> None:
        self._count, self._fatal, self._half = 0, fatal, half
        for name in OPERATIONS:
            patch.setattr(resume, name, self._wrapped(name, getattr(resume, name)))

    def _wrapped(self, name: str, operation: Any) -> Any:
        def call(*arguments: Any) -> None:
            self._count += 1
            if self._count == self._fatal:
                if name == "_write" and self._half:
                    file, data, offset = arguments
                    operation(file, data[: len(data) // 2], offset)
                raise Crash
            operation(*arguments)

        return call


def run(folder: Path, *, every: int = 3, stop_after: int | None = None, **options: Any) -> None:
    """Copy a file row by row, as if its lines were answers; rows that are empty are bad. Every few rows are a block."""
    source = folder / "in.txt"
    with Output(folder / "out.jsonl", source, IDENTITY, restart=False, **options) as output:
        if output.complete:
            return
        output.head("head\n")
        with rows.opened(source) as given_rows:
            if output.before.rows:
                given_rows.skip_to(output.before.position)
            for number, row in enumerate(given_rows.rows(), start=1):
                if row.item is None:
                    output.add("-\n", row.end, {"line": row.line})
                else:
                    output.add(f"{row.item}\n", row.end)
                if number % every == 0:
                    output.commit()
                if number == stop_after:
                    raise KeyboardInterrupt
        output.finish()


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def make(folder: Path, lines: list[str]) -> dict[str, str]:
    """Write the input; return what must be there in the end."""
    (folder / "in.txt").write_text("".join(line + "\n" for line in lines))
    bad = [number for number, line in enumerate(lines, start=1) if not line]
    return {
        "in.txt": (folder / "in.txt").read_text(),
        "out.jsonl": "head\n" + "".join((line or "-") + "\n" for line in lines),
        **({"out.jsonl.errors.jsonl": "".join(f'{{"line": {number}}}\n' for number in bad)} if bad else {}),
    }


@given(
    lines=st.lists(st.sampled_from(["a", "bb", "好", ""]), min_size=1, max_size=9),
    every=st.integers(1, 4),
    half=st.booleans(),
    data=st.data(),
)
@settings(max_examples=40)
def test_stopped_at_every_change_of_the_disk_it_ends_with_the_same_files(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], every: int, half: bool, data: st.DataObject
) -> None:
    fatal = 0
    ended = False
    while not ended:  # one folder for each place to stop at; then a second stop, anywhere
        fatal += 1
        folder = tmp_path_factory.mktemp("run")
        expected = make(folder, lines)
        (folder / "out.jsonl.errors.jsonl").write_text("of an older run")
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, fatal, half=half)
            ended = not crashes(folder, every)
        if ended:
            assert fatal > 4
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, data.draw(st.integers(1, 12)), half=half)
            crashes(folder, every)
        run(folder, every=every)
        assert files(folder) == expected


def crashes(folder: Path, every: int) -> bool:
    try:
        run(folder, every=every)
    except Crash:
        return True
    return False


def test_what_was_not_flushed_may_be_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal counts what was flushed before it: what the disk made of the rest does not matter."""
    expected = make(tmp_path, list("abcdefg"))
    synced: list[int] = []
    monkeypatch.setattr(resume, "_sync", lambda file: (os.fsync(file), synced.append(os.fstat(file).st_size))[0])
    monkeypatch.setattr(resume, "_replace_journal", journal_needs(synced, resume._replace_journal))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stop_after=5)
    partial = tmp_path / "out.jsonl.partial"
    with partial.open("ab") as file:
        file.write(b"\0\0torn")
    run(tmp_path)
    assert files(tmp_path) == expected


def journal_needs(synced: list[int], replace: Any) -> Any:
    def call(path: Path, data: bytes) -> None:
        counted = journal.Journal.parse(data).output_bytes
        assert counted <= max(synced), "the journal counts what is not on the disk yet"
        replace(path, data)

    return call


def test_an_interrupt_keeps_what_was_answered(tmp_path: Path) -> None:
    expected = make(tmp_path, list("abcdefgh"))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, every=100, stop_after=5)
    assert (tmp_path / "out.jsonl.partial").read_text() == "head\na\nb\nc\nd\ne\n"
    assert not (tmp_path / "out.jsonl").exists()
    with Output(tmp_path / "out.jsonl", tmp_path / "in.txt", IDENTITY, restart=False) as output:
        assert output.before.rows == 5
    (tmp_path / "in.txt").write_text((tmp_path / "in.txt").read_text() + "new\n")  # it may grow
    run(tmp_path)
    assert (tmp_path / "out.jsonl").read_text() == expected["out.jsonl"] + "new\n"
    assert sorted(files(tmp_path)) == ["in.txt", "out.jsonl"]


@pytest.mark.parametrize("operation", ["_rename", "_remove"])
def test_an_interrupt_between_the_last_renames_leaves_what_the_next_run_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    expected = make(tmp_path, ["a", "", "b"])
    done = getattr(resume, operation)

    def interrupt(*arguments: Any) -> None:
        done(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(resume, operation, interrupt)
        run(tmp_path)
    run(tmp_path)
    assert files(tmp_path) == expected


def test_an_interrupt_before_the_first_row_leaves_one_head(tmp_path: Path) -> None:
    expected = make(tmp_path, list("ab"))
    for _ in range(2):
        with (
            pytest.raises(KeyboardInterrupt),
            Output(tmp_path / "out.jsonl", tmp_path / "in.txt", IDENTITY, restart=False) as output,
        ):
            output.head("head\n")
            raise KeyboardInterrupt
    assert (tmp_path / "out.jsonl.partial").read_text() == "head\n"
    run(tmp_path)
    assert files(tmp_path) == expected


@pytest.mark.parametrize("line", range(1, 12))
def test_an_interrupt_inside_add_costs_no_row_and_doubles_none(tmp_path: Path, line: int) -> None:
    """Ctrl-C comes between any two lines of Python."""
    expected = make(tmp_path, ["a", "", "b"])
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
            run(tmp_path, every=100)
    finally:
        sys.settrace(before)
    run(tmp_path)
    assert files(tmp_path) == expected


@pytest.fixture
def interrupted(tmp_path: Path) -> Iterator[Path]:
    make(tmp_path, list("abcdef"))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stop_after=4)
    yield tmp_path


def take_up(folder: Path, identity: dict[str, str] = IDENTITY, *, restart: bool = False, stream: bool = False) -> int:
    source = None if stream else folder / "in.txt"
    with Output(folder / "out.jsonl", source, identity, restart=restart) as output:
        return output.before.rows


def test_another_run_is_refused(interrupted: Path) -> None:
    before = files(interrupted)
    with pytest.raises(UsageError, match="not of this one") as caught:
        take_up(interrupted, {**IDENTITY, "model": "n"})
    assert caught.value.why == "model is 'n' now, and was 'm'"
    assert "--restart" in caught.value.fix
    with pytest.raises(UsageError, match="not of this one"):
        take_up(interrupted, stream=True)
    assert files(interrupted) == before
    (interrupted / "in.txt").write_text("a\nb\nX\nd\ne\nf\n")
    with pytest.raises(UsageError, match="not of this one") as caught:
        take_up(interrupted)
    assert "what it read of" in caught.value.why
    assert take_up(interrupted, {"model": "n"}, restart=True) == 0
    assert (interrupted / "out.jsonl.partial").read_text() == ""


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"journal_format": 0}', '{"journal_format": 1, "done": []}'])
def test_a_journal_that_is_none_is_named(interrupted: Path, content: str) -> None:
    (interrupted / "out.jsonl.partial.json").write_text(content)
    with pytest.raises(UsageError, match="no journal of this version"):
        take_up(interrupted)
    assert take_up(interrupted, restart=True) == 0


def test_answers_that_are_gone_are_missed(interrupted: Path) -> None:
    (interrupted / "out.jsonl.partial").write_text("a")
    with pytest.raises(UsageError, match="not of this one") as caught:
        take_up(interrupted)
    assert "is shorter than" in caught.value.why


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    make(tmp_path, ["a"])
    with Output(tmp_path / "out.jsonl", tmp_path / "in.txt", IDENTITY, restart=False) as first:
        with pytest.raises(EnvironmentUnfitError, match="another process writes"):
            take_up(tmp_path)
        first.add("a\n", Position(2, 1))
        first.finish()
    assert files(tmp_path) == {"in.txt": "a\n", "out.jsonl": "a\n"}


def test_of_a_stream_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Output(tmp_path / "out.jsonl", None, IDENTITY, restart=False) as output:
        output.add("a\n", Position())
        output.commit()
        raise KeyboardInterrupt
    assert files(tmp_path) == {}
    with Output(tmp_path / "out.jsonl", None, IDENTITY, restart=False) as output:
        output.add("a\n", Position(), {"line": 1})
        output.finish()
    assert files(tmp_path) == {"out.jsonl": "a\n", "out.jsonl.errors.jsonl": '{"line": 1}\n'}


def test_a_full_disk_is_told_and_costs_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = make(tmp_path, list("abcdef"))

    def full(file: int, data: bytes, offset: int) -> None:
        os.pwrite(file, data[:1], offset)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(resume, "_write", full)
        with pytest.raises(EnvironmentUnfitError, match="cannot be written") as caught:
            run(tmp_path)
    assert "No space left" in caught.value.why
    run(tmp_path)
    assert files(tmp_path) == expected
    with pytest.raises(EnvironmentUnfitError, match="No such file"):
        take_up(tmp_path / "none")


def test_half_a_surrogate_pair_is_written_as_json_escapes_it(tmp_path: Path) -> None:
    with Output(tmp_path / "out.jsonl", None, IDENTITY, restart=False) as output:
        output.add('{"text": "\ud83d好"}\n', Position())
        output.finish()
    assert (tmp_path / "out.jsonl").read_text() == '{"text": "\\ud83d好"}\n'


def killed_before_the_renames(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(resume, "_rename", lambda *_: crash())
        run(folder)


def crash() -> None:
    raise Crash


def test_a_run_killed_when_nothing_but_names_was_missing_is_not_done_again(tmp_path: Path) -> None:
    expected = make(tmp_path, ["a", "", "b"])
    killed_before_the_renames(tmp_path)
    with Output(tmp_path / "out.jsonl", tmp_path / "in.txt", IDENTITY, restart=False) as output:
        assert (output.complete, output.done.rows, output.done.bad) == (True, 3, 1)
    assert files(tmp_path) == expected


@pytest.mark.parametrize("change", ["model", "input", "restart"])
def test_where_it_was_another_run_it_is_done_anew(tmp_path: Path, change: str) -> None:
    expected = make(tmp_path, ["a", "", "b"])
    killed_before_the_renames(tmp_path)
    if change == "input":
        expected = make(tmp_path, ["a", "", "b", "c"])
    identity = {"model": "other"} if change == "model" else IDENTITY
    with Output(tmp_path / "out.jsonl", tmp_path / "in.txt", identity, restart=change == "restart") as output:
        assert (output.complete, output.before.rows) == (False, 0)
    run(tmp_path)
    assert files(tmp_path) == expected


@pytest.mark.parametrize("lost", ["out.jsonl", "out.jsonl.errors.jsonl"])
@pytest.mark.parametrize("how", ["removed", "shorter"])
@pytest.mark.parametrize("renamed", [False, True])
def test_answers_that_somebody_removed_are_not_said_to_be_complete(
    tmp_path: Path, lost: str, how: str, *, renamed: bool
) -> None:
    expected = make(tmp_path, ["a", "", "b"])
    killed_before_the_renames(tmp_path)
    if renamed:  # it was killed when nothing but the journal was left to remove
        for name in ("out.jsonl", "out.jsonl.errors.jsonl"):
            (tmp_path / f"{name}.partial").rename(tmp_path / name)
    file = tmp_path / (lost if renamed else f"{lost}.partial")
    if how == "removed":
        file.unlink()
    else:
        os.truncate(file, 1)
    with Output(tmp_path / "out.jsonl", tmp_path / "in.txt", IDENTITY, restart=False) as output:
        assert (output.complete, output.before.rows) == (False, 0)
    run(tmp_path)
    assert files(tmp_path) == expected


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_the_file_is_written_that_it_leads_to(tmp_path: Path, *, there: bool) -> None:
    (tmp_path / "links").mkdir()
    expected = make(tmp_path, ["a", "", "b"])
    if there:
        (tmp_path / "out.jsonl").write_text("of an earlier run")
    (tmp_path / "links" / "second.txt").symlink_to("../out.jsonl")
    link = tmp_path / "links" / "latest.csv"
    link.symlink_to("second.txt")
    with Output(link, tmp_path / "in.txt", IDENTITY, restart=False) as output:
        output.head("head\n")
        with rows.opened(tmp_path / "in.txt") as source:
            for row in source.rows():
                output.add(f"{row.item}\n" if row.item else "-\n", row.end, None if row.item else {"line": row.line})
        output.finish()
    assert link.is_symlink() and link.read_text() == expected["out.jsonl"]
    assert {path.name for path in (tmp_path / "links").iterdir()} == {"latest.csv", "second.txt"}
    assert files_only(tmp_path) == expected


def files_only(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()}
