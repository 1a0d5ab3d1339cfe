"""Put what a build made where people look for it: bundles that passed, reports, and the exported models."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from edgepack.errors import StageFailedError
from edgepack.outcome import Build, Delivery
from edgepack.report import document
from edgepack.stages.export import TEXTS_FILE


def deliver(build: Build, dist: Path) -> list[Path]:
    """Fill `dist` and return what was put there, bundles first.

    A bundle whose gate did not pass stays out, and one of the same name from an earlier build is removed: what lies
    in `dist` has passed. Reports are written whatever the verdict.

    Raises:
        StageFailedError: when `dist` cannot be written.
    """
    try:
        dist.mkdir(parents=True, exist_ok=True)
        delivered = [path for item in build.deliveries if (path := _bundle(item, dist))]
        stem = f"{build.recipe.name}-{build.recipe.version}"
        report = document.make(build)
        text = document.dumps(report)
        files = {name: dist / f"{stem}.{name}" for name in ("report.html", "report.json", "junit.xml", "models")}
        if not all(path.exists() for path in files.values()) or files["report.json"].read_bytes() != text.encode():
            _write_reports(build, report, files)
            files["report.json"].write_text(text, encoding="utf-8")  # last: it vouches for the others
    except OSError as error:
        raise StageFailedError(
            f"{dist} cannot be written", why=str(error), fix="free space or choose --dist"
        ) from error
    return [*delivered, *files.values()]


def _write_reports(build: Build, report: dict[str, Any], files: dict[str, Path]) -> None:
    from edgepack.report import html, junit  # matplotlib takes longer to import than an unchanged build takes

    files["report.html"].write_text(html.render(report), encoding="utf-8")
    files["junit.xml"].write_text(junit.render(report), encoding="utf-8")
    _models(build, files["models"])


def _bundle(item: Delivery, dist: Path) -> Path | None:
    target = dist / item.bundle.file_name
    if item.gate.verdict != "pass":
        target.unlink(missing_ok=True)
        return None
    copy_atomically(item.bundle.path, target)
    return target


def copy_atomically(source: Path, target: Path) -> None:
    """Copy a file so that `target` is never seen half written."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with source.open("rb") as read, os.fdopen(descriptor, "wb") as write:
            shutil.copyfileobj(read, write, 1 << 20)
            write.flush()
            os.fsync(write.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)


def _models(build: Build, target: Path) -> None:
    """The exported forms side by side: Paddle static graph, float ONNX, INT8 ONNX."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for folder in sorted(path for path in build.export.folder.iterdir() if path.is_dir()):
        shutil.copytree(folder, target / folder.name)
    shutil.copy(build.export.folder / TEXTS_FILE, target)
