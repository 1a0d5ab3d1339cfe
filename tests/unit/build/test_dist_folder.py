"""What lies in `dist` is whole, has passed, and is written again when it is not as it was."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.stubs import STUB, STUB_SHA256
from tests.unit.conftest import check, having, ungated_of
from tests.unit.far import Heard
from tests.unit.runtime.ssh_keys import make_key, needs_ssh_keygen

from edgepack.artifacts import GateArtifact
from edgepack.build import dist_folder
from edgepack.build.dist_folder import require_writable
from edgepack.bundle.archive import write_bundle
from edgepack.bundle.signing import verify_signed
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.recipe.gates import GoldenRows
from edgepack.recipe.model import Sign
from edgepack.report import document, html
from edgepack.results import NotRunHere, TargetResult
from edgepack_runtime.bundle.manifest import MANIFEST_NAME, README_NAME, FileEntry, Manifest, TargetFacts, dump


def deliver(build: Any, dist: Path, heard: Heard | None = None) -> list[Path]:
    return dist_folder.write(build, document.make(build), dist, heard or Heard())


def sums_checked(dist: Path) -> str:
    command = ["sha256sum", "-c", "hotel-sentiment-1.2.0.sha256"]
    done = subprocess.run(command, cwd=dist, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def judged(item: TargetResult, verdict: Literal["pass", "fail", "inconclusive"], **receipt: Any) -> TargetResult:
    """A target's result whose gate ended with `verdict`."""
    assert isinstance(item.gate, GateArtifact)
    code = {"pass": 0, "fail": 6, "inconclusive": 7}[verdict]
    gate = replace(
        item.gate, verdict=verdict, exit_code=code, receipt={**item.gate.receipt, "verdict": verdict, **receipt}
    )
    return replace(item, gate=gate)


README = b"read me\n"
NAMES = ["report.html", "report.json", "report.md", "junit.xml", "models", "sha256"]


@pytest.fixture
def passed(built: Any, tmp_path: Path) -> Any:
    """A build whose gate passed, with files where its artifacts say."""
    item = built.target_results[0]
    bundle = replace(item.bundle, folder=tmp_path / "made")
    bundle.folder.mkdir()
    write_bundle({README_NAME: README}, bundle.path, STUB)
    exported = tmp_path / "export"
    (exported / "onnx-int8").mkdir(parents=True)
    (exported / "onnx-int8" / "model.onnx").write_bytes(b"the model")
    (exported / "texts.txt").write_text("好\n", encoding="utf-8")
    result = judged(replace(item, bundle=bundle), "pass")
    return replace(having(built, export=replace(built.export, folder=exported)), target_results=(result,))


def test_everything_is_there_and_its_sums_agree(passed: Any, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    (tmp_path / "export/onnx-int8/more").mkdir()
    paths = deliver(passed, dist)
    assert paths[0].read_bytes() == passed.target_results[0].bundle.path.read_bytes()
    assert paths[1].name == f"{paths[0].stem}.README.txt" and paths[1].read_bytes() == README
    assert [path.name.removeprefix("hotel-sentiment-1.2.0.") for path in paths[2:]] == NAMES
    assert "onnx-int8/model.onnx: OK" in sums_checked(dist)
    assert not list(dist.rglob("more"))
    assert not [path for path in dist.iterdir() if path not in paths]


def test_sums_keep_the_bundles_of_other_targets(passed: Any, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    deliver(passed, dist)
    for name in ("hotel-sentiment-1.2.0-linux.edgepack", "hotel-sentiment-1.2.0-linux.README.txt"):
        (dist / name).write_bytes(b"of an earlier build")
    (dist / "hotel-sentiment-1.2.1-linux.edgepack").write_bytes(b"of another version")
    deliver(passed, dist)
    listed = sums_checked(dist)
    assert "1.2.0-linux.edgepack: OK" in listed and "1.2.0-linux.README.txt: OK" in listed and "1.2.1" not in listed


@pytest.mark.parametrize("name", ["report.json", "x.report.json", "report.html", "sha256"])
@pytest.mark.parametrize("place", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_what_has_no_end_is_not_read(passed: Any, tmp_path: Path, name: str, place: Callable[[Path], None]) -> None:
    """A dist/ that came with somebody's project."""
    dist = tmp_path / "dist"
    dist.mkdir()
    place(dist / f"hotel-sentiment-1.2.0{'-' if name[0] == 'x' else '.'}{name}")
    deliver(passed, dist)
    assert "1.2.0.report.json: OK" in sums_checked(dist)


def test_the_report_of_other_targets_is_kept_and_found(passed: Any, tmp_path: Path) -> None:
    def made(*targets: str) -> Any:
        return replace(passed, recipe=passed.recipe.model_copy(update={"targets": targets}))

    dist, plain = tmp_path / "dist", tmp_path / "dist" / "hotel-sentiment-1.2.0.report.json"
    deliver(made("linux"), dist)
    first = plain.read_bytes()
    for _ in range(2):
        second = {path.name for path in deliver(made("local"), dist)}
        assert {f"hotel-sentiment-1.2.0-local.{name}" for name in NAMES[:-1]} <= second
        assert plain.name not in second and plain.read_bytes() == first
        listed = sums_checked(dist)
        assert f"{plain.name}: OK" in listed and "hotel-sentiment-1.2.0-local.report.json: OK" in listed
    deliver(made("linux", "local"), dist)  # all that the first one has
    assert plain.read_bytes() != first
    plain.write_text("[]", encoding="utf-8")
    assert plain in deliver(made("local"), dist)  # nothing to keep


def test_a_bundle_without_gates_or_whose_gate_cannot_run_here_is_delivered(passed: Any, tmp_path: Path) -> None:
    (item,) = passed.target_results
    not_run = replace(passed, target_results=(replace(item, gate=NotRunHere("it is for aarch64", "type this")),))
    assert deliver(not_run, tmp_path / "dist")[0].read_bytes() == item.bundle.path.read_bytes()
    ungated = ungated_of(passed)
    assert ungated.target_results[0].verdict == "no gates"
    assert deliver(ungated, tmp_path / "ungated")[0].read_bytes() == item.bundle.path.read_bytes()


def test_doubt_is_delivered_and_the_readme_begins_with_it(passed: Any, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    doubtful = judged(passed.target_results[0], "inconclusive")
    deliver(replace(passed, target_results=(doubtful,)), dist)
    assert "local.edgepack: OK" in sums_checked(dist)
    (readme,) = dist.glob("*.README.txt")
    told = readme.read_text()
    assert told.startswith("INCONCLUSIVE: ") and "  accuracy.min: " in told and told.endswith(README.decode())
    report = json.loads((dist / "hotel-sentiment-1.2.0.report.json").read_text())
    assert [(target["verdict"], target["delivered"]) for target in report["targets"]] == [("inconclusive", True)]
    junit = (dist / "hotel-sentiment-1.2.0.junit.xml").read_text()
    assert '<skipped type="inconclusive"' in junit and "<error" not in junit


@pytest.mark.parametrize(
    ("changes", "policy"),
    [
        ({"refuses_doubt": True}, {}),
        ({}, {"inconclusive": "refuse"}),
        ({}, {"checks": [check("accuracy.above_majority", "inconclusive", (0.5, -1, 2, 0, 60), "points")]}),
    ],
)
def test_doubt_that_is_refused_leaves_no_bundle(
    passed: Any, tmp_path: Path, changes: dict[str, Any], policy: dict[str, Any]
) -> None:
    dist = tmp_path / "dist"
    deliver(passed, dist)
    refused = replace(judged(passed.target_results[0], "inconclusive", **policy), **changes)
    assert refused.refused == "inconclusive"
    deliver(replace(passed, target_results=(refused,)), dist)
    assert not [*dist.glob("*.edgepack"), *dist.glob("*.README.txt")]
    junit = (dist / "hotel-sentiment-1.2.0.junit.xml").read_text()
    assert '<error type="inconclusive"' in junit and "<skipped" not in junit


def test_rows_that_a_bundle_does_not_carry_lie_beside_it_until_it_fails(passed: Any, tmp_path: Path) -> None:
    item, dist = passed.target_results[0], tmp_path / "dist"
    bundle = replace(item.bundle, rows_name=f"{item.bundle.path.stem}.rows.jsonl")
    (bundle.folder / str(bundle.rows_name)).write_text("很好\n", encoding="utf-8")
    paths = deliver(replace(passed, target_results=(replace(item, bundle=bundle),)), dist)
    rows = dist / str(bundle.rows_name)
    assert rows in paths and rows.read_text(encoding="utf-8") == "很好\n"
    assert rows.stat().st_mode & 0o777 == 0o600
    assert rows.name not in paths[-1].read_text(encoding="utf-8")
    assert "texts.txt" in paths[-1].read_text(encoding="utf-8")  # texts of the test rows
    gates = passed.recipe.gates.model_copy(update={"golden": GoldenRows(carry=False)})
    not_carried = replace(passed, recipe=passed.recipe.model_copy(update={"gates": gates}))
    assert "texts.txt" not in deliver(not_carried, tmp_path / "other")[-1].read_text(encoding="utf-8")
    assert not list((tmp_path / "other").rglob("texts.txt"))
    failed = judged(replace(item, bundle=bundle), "fail")
    heard = Heard()
    assert not {rows, *paths[:2]} & {*deliver(replace(passed, target_results=(failed,)), dist, heard), *dist.iterdir()}
    assert heard.lines == [f"removed {paths[0]}: an earlier build made it, and its successor did not pass its gate"]
    rows.touch()
    deliver(passed, dist)  # the next build carries them
    assert not rows.exists()


def test_another_bundle_of_the_same_version_is_replaced_with_a_word(passed: Any, tmp_path: Path) -> None:
    def made(manifest: bytes) -> Any:
        (item,) = passed.target_results
        write_bundle({README_NAME: README, MANIFEST_NAME: manifest}, item.bundle.path, STUB)
        bundle = replace(item.bundle, manifest_sha256=hashlib.sha256(manifest).hexdigest())
        return replace(passed, target_results=(replace(item, bundle=bundle),))

    for manifest, words in ((b"one", []), (b"one", []), (b"two", ["is replaced"])):
        heard = Heard()
        deliver(made(manifest), tmp_path / "dist", heard)
        assert [line.partition(":")[0].rpartition(".edgepack ")[2] for line in heard.lines] == words


def test_nothing_is_drawn_again_when_nothing_changed(
    passed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(passed, tmp_path / "dist")

    def never(report: object) -> str:
        raise AssertionError("the page was drawn again")

    monkeypatch.setattr(html, "render", never)
    deliver(passed, tmp_path / "dist")


@pytest.mark.parametrize(
    "name", ["report.html", "report.md", "junit.xml", "sha256", "report.json", "models/onnx-int8/model.onnx"]
)
@pytest.mark.parametrize("damage", ["emptied", "removed"])
def test_what_is_not_as_it_was_is_written_again(passed: Any, tmp_path: Path, name: str, damage: str) -> None:
    dist = tmp_path / "dist"
    deliver(passed, dist)
    file = dist / f"hotel-sentiment-1.2.0.{name}"
    before = file.read_bytes()
    if damage == "emptied":
        file.write_bytes(b"")
    else:
        file.unlink()
    deliver(passed, dist)
    assert file.read_bytes() == before


def test_a_full_disk_keeps_the_older_files(passed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist = tmp_path / "dist"
    deliver(passed, dist)
    before = {path: path.read_bytes() for path in dist.rglob("*") if path.is_file()}

    def full(report: object, language: str) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(html, "render", full)
    changed = replace(passed, recipe=passed.recipe.model_copy(update={"task": "another"}))
    with pytest.raises(StageFailedError, match="cannot be written"):
        deliver(changed, dist)
    assert {path: path.read_bytes() for path in dist.rglob("*") if path.is_file()} == before
    assert len(list(dist.iterdir())) == 8  # and no folder of half-written files


def test_a_place_that_cannot_be_written_shows_before_anything_is_built(tmp_path: Path) -> None:
    require_writable(tmp_path / "new" / "dist")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(EnvironmentUnfitError, match="cannot be written") as caught:
        require_writable(tmp_path / "file" / "dist")
    assert "--dist" in caught.value.fix


@needs_ssh_keygen
def test_a_bundle_is_signed_when_it_is_delivered(passed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stage's result stays unsigned, and the key is not touched again for one that lies there signed."""
    key = make_key(tmp_path, "release")
    passed = replace(passed, recipe=passed.recipe.model_copy(update={"sign": Sign(key=str(key))}))
    made = passed.target_results[0].bundle.path
    entry = FileEntry(README_NAME, len(README), hashlib.sha256(README).hexdigest())
    facts = TargetFacts("test", ("x86_64",), "2.5", "host", "CPUExecutionProvider")
    manifest = Manifest("hotel", "1.2.0", 1, "task", facts, {}, {}, (), {}, "0" * 64, STUB_SHA256, (), (entry,))
    write_bundle({README_NAME: README, "manifest.json": dump(manifest)}, made, STUB)
    before, dist = made.read_bytes(), tmp_path / "dist"
    bundle = deliver(passed, dist)[0]
    assert verify_signed(bundle, key.with_name("release.pub"))[1].proven
    assert made.read_bytes() == before
    first = bundle.read_bytes()
    monkeypatch.setattr("edgepack.bundle.signing._signature", lambda *args: pytest.fail("the key was touched again"))
    deliver(passed, dist)
    assert bundle.read_bytes() == first
    text = (dist / "hotel-sentiment-1.2.0.report.json").read_text(encoding="utf-8")
    unsigned = replace(passed, recipe=passed.recipe.model_copy(update={"sign": None}))
    (item,) = unsigned.target_results
    same = replace(item.bundle, manifest_sha256=hashlib.sha256(dump(manifest)).hexdigest())
    heard = Heard()
    deliver(replace(unsigned, target_results=(replace(item, bundle=same),)), dist, heard)
    assert bundle.read_bytes() == first and heard.lines == [f"{bundle} has the same content, and keeps its signature"]
    (rows := bundle.with_suffix(".rows.jsonl")).touch()
    deliver(replace(passed, target_results=(judged(item, "fail"),)), dist)
    assert bundle.read_bytes() == first  # somebody signed it, and nothing makes it again
    assert rows.exists()
    heard = Heard()
    deliver(unsigned, dist, heard)
    assert heard.lines[0].partition(": ")[0] == f"{bundle} was signed, and is replaced"
    assert not verify_signed(bundle, None)[1].proven
    assert '"key": "release"' in text
    assert str(tmp_path) not in text
    sums_checked(dist)
