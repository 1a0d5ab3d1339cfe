"""What lies in `dist` is whole, has passed, and is written again when it is not as it was."""

from __future__ import annotations

import errno
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgepack.delivery import deliver as deliver_report
from edgepack.delivery import require_writable
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.report import document, html


def deliver(build: Any, dist: Path) -> list[Path]:
    return deliver_report(build, document.make(build), dist)


NAMES = ["report.html", "report.json", "junit.xml", "models", "sha256"]


@pytest.fixture
def passed(built: Any, tmp_path: Path) -> Any:
    """A build whose gate passed, with files where its artifacts say."""
    item = built.deliveries[0]
    bundle = replace(item.bundle, folder=tmp_path / "made")
    bundle.folder.mkdir()
    bundle.path.write_bytes(b"the bundle")
    exported = tmp_path / "export"
    (exported / "onnx-int8").mkdir(parents=True)
    (exported / "onnx-int8" / "model.onnx").write_bytes(b"the model")
    (exported / "texts.txt").write_text("好\n", encoding="utf-8")
    gate = replace(item.gate, verdict="pass", exit_code=0)
    delivery = replace(item, bundle=bundle, gate=gate)
    return replace(built, export=replace(built.export, folder=exported), deliveries=(delivery,))


def test_everything_is_there_and_its_sums_agree(passed: Any, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    paths = deliver(passed, dist)
    assert paths[0].read_bytes() == b"the bundle"
    assert [path.name.removeprefix("hotel-sentiment-1.2.0.") for path in paths[1:]] == NAMES
    done = subprocess.run(["sha256sum", "-c", paths[-1].name], cwd=dist, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "onnx-int8/model.onnx: OK" in done.stdout
    assert not [path for path in dist.iterdir() if path not in paths]


def test_nothing_is_drawn_again_when_nothing_changed(
    passed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(passed, tmp_path / "dist")

    def never(report: object) -> str:
        raise AssertionError("the page was drawn again")

    monkeypatch.setattr(html, "render", never)
    deliver(passed, tmp_path / "dist")


@pytest.mark.parametrize("name", ["report.html", "junit.xml", "sha256", "report.json", "models/onnx-int8/model.onnx"])
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


def test_a_bundle_that_did_not_pass_is_taken_away(passed: Any, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    bundle = deliver(passed, dist)[0]
    item = passed.deliveries[0]
    failed = replace(passed, deliveries=(replace(item, gate=replace(item.gate, verdict="fail", exit_code=6)),))
    assert bundle not in deliver(failed, dist)
    assert not bundle.exists()


def test_a_full_disk_keeps_the_older_delivery(passed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist = tmp_path / "dist"
    deliver(passed, dist)
    before = {path: path.read_bytes() for path in dist.rglob("*") if path.is_file()}

    def full(report: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(html, "render", full)
    changed = replace(passed, recipe=passed.recipe.model_copy(update={"task": "another"}))
    with pytest.raises(StageFailedError, match="cannot be written"):
        deliver(changed, dist)
    assert {path: path.read_bytes() for path in dist.rglob("*") if path.is_file()} == before
    assert len(list(dist.iterdir())) == 6  # and no folder of half-written files


def test_a_place_that_cannot_be_written_shows_before_anything_is_built(tmp_path: Path) -> None:
    require_writable(tmp_path / "new" / "dist")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(EnvironmentUnfitError, match="cannot be written") as caught:
        require_writable(tmp_path / "file" / "dist")
    assert "--dist" in caught.value.fix
