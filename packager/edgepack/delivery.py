"""Put what a build made where people look for it: bundles that passed, reports, and the exported models."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgepack.digest import files_below, sha256_file
from edgepack.errors import StageFailedError
from edgepack.outcome import Build, Delivery
from edgepack.report import document
from edgepack.stages.export import TEXTS_FILE

BUNDLE_SUFFIX = ".edgepack"


def deliver(build: Build, dist: Path) -> list[Path]:
    """Fill `dist` and return what was put there, bundles first.

    A bundle whose gate did not pass stays out, and one of the same name from an earlier build is removed: what lies
    in `dist` has passed. Reports are written whatever the verdict. `NAME.sha256` lists the digests of it all, for
    `sha256sum -c` and for the next build, which writes again what is not as it was.

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
        sums = dist / f"{stem}.sha256"
        json_file = files["report.json"]
        if not (json_file.is_file() and json_file.read_bytes() == text.encode() and _agrees(sums, dist)):
            json_file.write_text(text, encoding="utf-8")
            _write_reports(build, report, files)
        everything = [*delivered, *files.values()]
        sums.write_text(_sums(everything, dist), encoding="utf-8")
    except OSError as error:
        raise StageFailedError(
            f"{dist} cannot be written", why=str(error), fix="free space or choose --dist"
        ) from error
    return [*everything, sums]


def _sums(delivered: Sequence[Path], dist: Path) -> str:
    """Digest and name of each delivered file, as `sha256sum` writes them."""
    files = [file for path in delivered for file in (files_below(path) if path.is_dir() else [path])]
    return "".join(f"{sha256_file(file)}  {file.relative_to(dist).as_posix()}\n" for file in files)


def _agrees(sums: Path, dist: Path) -> bool:
    """Whether `sums` is there and every file that it names is as it says, bundles aside: they are copied anyway."""
    if not sums.is_file():
        return False
    listed = [line.partition("  ") for line in sums.read_text(encoding="utf-8", errors="replace").splitlines()]
    reports = {name: digest for digest, _, name in listed if not name.endswith(BUNDLE_SUFFIX)}
    return bool(reports) and all(
        (dist / name).is_file() and sha256_file(dist / name) == digest for name, digest in reports.items()
    )


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
