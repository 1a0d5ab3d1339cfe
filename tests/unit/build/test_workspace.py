"""Stage results: found again, rebuilt when damaged, never half there."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from edgepack.artifacts import DataArtifact
from edgepack.build.workspace import RECORD_FILE, SEAL_FILE, Workspace
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.stages.stage import Input, Key, MadeOf


def key(section: object = "s", inputs: tuple[str, ...] = (), version: int = 1) -> Key:
    return Key.of("data", MadeOf(version, section, tuple(Input("train", digest) for digest in inputs), {}))


def writer(text: str = "row\n") -> Callable[[Path], DataArtifact]:
    def write(out: Path) -> DataArtifact:
        (out / "train.jsonl").write_text(text, encoding="utf-8")
        return DataArtifact(out, labels=("a", "b"), rows={"train": 1}, warnings=())

    return write


def test_a_result_is_found_by_its_section_inputs_and_version(tmp_path: Path) -> None:
    made = Workspace(tmp_path).build(key(), writer())
    assert Workspace(tmp_path).load(DataArtifact, key()) == made
    for other in (key("t"), key(inputs=("0" * 64,)), key(version=2)):
        assert Workspace(tmp_path).load(DataArtifact, other) is None


def test_the_digest_names_the_content_not_the_place(tmp_path: Path) -> None:
    one = Workspace(tmp_path / "one").build(key(), writer())
    two = Workspace(tmp_path / "two").build(key(), writer())
    other = Workspace(tmp_path / "three").build(key(), writer("another row\n"))
    assert one.digest == two.digest != other.digest


def test_names_and_numbers_of_rows_decide_nothing() -> None:
    one = Key.of("data", MadeOf(1, {"a": (1, 2)}, (Input("train", "0", rows=3),), {}))
    two = Key.of("data", MadeOf(1, {"a": [1, 2]}, (Input("rows", "0"),), {}))
    assert one == two
    assert one.made_of.section == two.made_of.section


def test_a_record_says_what_each_result_was_made_of_the_newest_first(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert workspace.earlier("data") == []
    keys = [key({"rows": (1, 2)}, ("0",), version) for version in (1, 2, 3)]
    for number, one in enumerate(keys):
        folder = workspace.build(one, writer()).artifact.folder
        os.utime(folder / RECORD_FILE, (number, number))
    (workspace.folder(keys[0]) / RECORD_FILE).write_text('{"seconds": 1}', encoding="utf-8")
    workspace.unseal(workspace.folder(keys[2]))
    workspace.checkpoint(key()).mkdir(parents=True)
    found = workspace.earlier("data")
    assert [one.record.made_of for one in found] == [keys[2].made_of, keys[1].made_of]
    assert found[1].record.seconds >= 0
    assert workspace.peek(DataArtifact, found[0]) is None
    assert workspace.peek(DataArtifact, found[1]) == workspace.load(DataArtifact, keys[1])


def test_a_record_is_no_part_of_a_result(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    made = workspace.build(key(), writer())
    assert RECORD_FILE not in made.files
    (made.artifact.folder / RECORD_FILE).unlink()
    assert workspace.load(DataArtifact, key()) == made


@pytest.mark.parametrize(
    ("damage", "damaged"),
    [
        (lambda folder: (folder / "train.jsonl").write_text("raw\n", encoding="utf-8"), True),
        (lambda folder: (folder / "train.jsonl").unlink(), True),
        (lambda folder: (folder / "extra").touch(), True),
        (lambda folder: (folder / SEAL_FILE).write_text("{", encoding="utf-8"), True),
        (lambda folder: (folder / SEAL_FILE).unlink(), False),  # as a failed gate leaves it
        (shutil.rmtree, False),
    ],
)
def test_a_damaged_result_is_not_found_and_is_built_again(
    tmp_path: Path, damage: Callable[[Path], object], damaged: bool
) -> None:
    workspace = Workspace(tmp_path)
    folder = workspace.build(key(), writer()).artifact.folder
    damage(folder)
    assert workspace.load(DataArtifact, key()) is None
    assert workspace.is_damaged(key()) is damaged
    workspace.build(key(), writer())
    assert workspace.load(DataArtifact, key()) is not None


def test_a_failed_stage_leaves_nothing(tmp_path: Path) -> None:
    def fail(out: Path) -> DataArtifact:
        (out / "half").write_text("half", encoding="utf-8")
        raise StageFailedError("no")

    workspace = Workspace(tmp_path)
    with pytest.raises(StageFailedError, match=r"^no$"):
        workspace.build(key(), fail)
    assert workspace.load(DataArtifact, key()) is None
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.parametrize(
    ("refusal", "error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "{out}/big"), StageFailedError, "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "{out}/rows"), EnvironmentUnfitError, "permissions"),
        (
            OSError(errno.EROFS, "Read-only file system", "/home/someone/.cache"), StageFailedError,
            "data: /home/someone/.cache cannot be used",
        ),
        (  # as fork() does
            OSError(errno.EAGAIN, "Resource temporarily unavailable"), StageFailedError,
            "data: the operating system refused something",
        ),
    ],
)  # fmt: skip
def test_what_the_operating_system_refuses_is_an_error_of_the_stage(
    tmp_path: Path, refusal: OSError, error: type[StageFailedError | EnvironmentUnfitError], message: str
) -> None:
    def refused(out: Path) -> DataArtifact:
        if isinstance(refusal.filename, str):
            refusal.filename = refusal.filename.format(out=out)
        raise refusal

    with pytest.raises(error) as caught:
        Workspace(tmp_path).build(key(), refused)
    assert message in f"{caught.value.what} {caught.value.why} {caught.value.fix}"
    assert refusal.strerror in caught.value.why
    assert not list((tmp_path / "data").iterdir())


def test_a_second_build_waits_and_takes_the_result(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    said: list[str] = []
    order: list[str] = []

    def second() -> None:
        with Workspace(tmp_path).locked(key(), said.append):
            order.append("second")

    with workspace.locked(key(), said.append):
        other = threading.Thread(target=second)
        other.start()
        while not said:  # it says so before it blocks
            other.join(0.001)
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert said == [
        f"waiting for another build (process {os.getpid()} on {socket.gethostname()}) that makes the same result"
    ]


def test_the_lock_of_a_killed_build_is_free(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with Workspace(tmp_path).locked(key(), print):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    said: list[str] = []
    with Workspace(tmp_path).locked(key(), said.append):
        assert not said


def test_a_build_after_a_killed_one_starts_over_and_keeps_its_checkpoint(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    half = workspace.folder(key()).with_name(f"{key().digest}.partial") / "out-elsewhere-7" / "half"
    half.parent.mkdir(parents=True)
    half.write_text("half", encoding="utf-8")
    checkpoint = workspace.checkpoint(key())
    checkpoint.mkdir(parents=True)
    (checkpoint / "state").write_text("7", encoding="utf-8")

    def fail(out: Path) -> DataArtifact:
        assert not list(out.iterdir())
        raise StageFailedError("no")

    with pytest.raises(StageFailedError):
        workspace.build(key(), fail)
    assert (checkpoint / "state").read_text(encoding="utf-8") == "7"
    assert not half.parent.exists()
    workspace.build(key(), writer())
    assert not checkpoint.exists()
    assert workspace.load(DataArtifact, key()) is not None


@pytest.mark.parametrize("call", ["mkdir", "rename", "write_text"])
def test_a_full_disk_at_any_step_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    workspace = Workspace(tmp_path)
    other = workspace.build(key("t"), writer())

    def full(self: Path, *arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, call, full)
        with pytest.raises(StageFailedError, match="cannot be written") as caught:
            workspace.build(key(), writer())
    assert "free space" in caught.value.fix
    assert workspace.load(DataArtifact, key()) is None
    assert workspace.load(DataArtifact, key("t")) == other


def test_leftovers_are_what_no_build_can_take_up(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    good = workspace.build(key(), writer()).artifact.folder
    failed = workspace.build(key("failed"), writer()).artifact.folder
    workspace.unseal(failed)
    checkpoint = workspace.checkpoint(key("training"))
    checkpoint.mkdir(parents=True)
    unfinished = workspace.checkpoint(key("killed")).with_name("out-elsewhere-7")
    unfinished.mkdir(parents=True)

    def left(*, everything: bool = False, kept: set[Path] | None = None) -> dict[Path, str]:
        return {item.path: item.kind for item in workspace.leftovers(everything=everything, kept=kept)}

    useless = {failed: "not sealed", unfinished.parent: "unfinished"}
    assert left() == useless
    assert left(everything=True) == {**useless, good: "result", checkpoint.parent: "checkpoint"}
    assert left(kept={good}) == {**useless, checkpoint.parent: "checkpoint"}
    assert (failed / "train.jsonl").is_file()  # what is not sealed any more keeps its files


def test_what_is_discarded_is_gone_and_what_is_kept_is_found(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    good = workspace.build(key(), writer())
    workspace.build(key("other"), writer())
    for left in list(workspace.leftovers(kept={good.artifact.folder})):
        workspace.discard(left)
    assert workspace.load(DataArtifact, key("other")) is None
    assert workspace.load(DataArtifact, key()) == good
    assert list((tmp_path / "data").iterdir()) == [good.artifact.folder]


def test_a_removal_that_was_killed_is_finished_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Workspace(tmp_path)
    good = workspace.build(key(), writer())
    (left,) = workspace.leftovers(everything=True)

    def killed(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(shutil, "rmtree", killed)
        workspace.discard(left)
    assert workspace.load(DataArtifact, key()) is None
    (half,) = workspace.leftovers()
    workspace.discard(half)
    assert list(good.artifact.folder.parent.iterdir()) == []


def test_builds_share_a_workspace_and_clean_does_not(tmp_path: Path) -> None:
    one, two = Workspace(tmp_path), Workspace(tmp_path)
    with one.in_use(), two.in_use():
        with pytest.raises(EnvironmentUnfitError, match="is in use") as caught, two.in_use(alone=True):
            pass
        assert f"process {os.getpid()} on {socket.gethostname()}" in caught.value.why
    with one.in_use(alone=True), pytest.raises(EnvironmentUnfitError, match="is in use"), two.in_use():
        pass
    with pytest.raises(BlockingIOError), one.in_use():  # of somebody else: not ours to explain
        raise BlockingIOError


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_lock_file_that_cannot_be_one_is_named(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "lock"
    file.mkdir() if kind == "folder" else file.symlink_to("/dev/zero")
    with pytest.raises(EnvironmentUnfitError) as caught, Workspace(tmp_path).in_use():
        pass
    assert str(file) in caught.value.why


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_result_that_is_no_folder_any_more_is_made_again(tmp_path: Path, kind: str) -> None:
    workspace = Workspace(tmp_path)
    folder = workspace.build(key(), writer()).artifact.folder
    folder.rename(tmp_path / "moved")
    if kind == "file":
        folder.write_text("x", encoding="utf-8")
    else:
        folder.symlink_to(tmp_path / "nowhere")
    assert workspace.load(DataArtifact, key()) is None
    assert workspace.build(key(), writer()).artifact.folder.is_dir()


def test_a_folder_that_no_build_named_is_never_removed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.build(key(), writer())
    for place in ("photos/2020", "data/2020", "data/notes.partial", f"other/{'0' * 64}"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "mine").write_text("hi", encoding="utf-8")
    assert [left.kind for left in workspace.leftovers(everything=True)] == ["result"]


def test_what_a_link_in_place_of_a_stage_leads_to_is_never_removed(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign" / ("a" * 64)
    foreign.mkdir(parents=True)
    (root := tmp_path / "w").mkdir()
    (root / "bundle").symlink_to(foreign.parent)
    (root / "data").mkdir()
    (root / "data" / ("b" * 64)).symlink_to(foreign)
    assert list(Workspace(root).leftovers(everything=True)) == []
