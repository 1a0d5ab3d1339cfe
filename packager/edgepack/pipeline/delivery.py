"""Put what a build made where people look for it: bundles that passed, reports, and the exported models."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgepack.artifacts import ROWS_SUFFIX
from edgepack.bundle import signing
from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.export.selection import TEXTS_FILE
from edgepack.recipe.model import Sign
from edgepack.report import document
from edgepack.results import NOT_RUN_HERE, Build, Delivery
from edgepack.util.hashing import files_below, sha256_file
from edgepack.util.text import UNGATED

BUNDLE_SUFFIX = ".edgepack"
REPORTS = ("report.html", "report.json", "junit.xml", "models")


def require_writable(dist: Path) -> None:
    """Try to make `dist` and write there, and leave all as it was.

    A build of hours must not come before it shows that its bundle cannot be put there.

    Raises:
        EnvironmentUnfitError: it cannot be made, or not be written.
    """
    missing = [folder for folder in (dist, *dist.parents) if not folder.exists()]
    try:
        dist.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".try.", dir=dist):
            pass
    except OSError as error:
        raise EnvironmentUnfitError(
            f"{dist} cannot be written", why=_reason(error), fix="choose another folder with --dist"
        ) from error
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):  # not made, or somebody uses it already
                folder.rmdir()


def deliver(build: Build, report: dict[str, Any], dist: Path) -> list[Path]:
    """Fill `dist` and return what was put there, bundles first. `report` is that of `report.document`.

    Where the recipe says so bundles are signed here and not in their stage: a key in hardware then need not be touched
    for a bundle that lies there signed already.

    A bundle whose gate did not pass stays out, and one of the same name from an earlier build is removed: what lies
    in `dist` has passed. Reports are written whatever the verdict. `NAME.sha256` lists the digests of it all, for
    `sha256sum -c` and for the next build, which writes again what is not as it was. Golden rows that do not travel lie
    beside their bundle, readable for their owner, and are not listed: they are not to be copied along.

    Raises:
        StageFailedError: when `dist` cannot be written, or a bundle not be signed.
        UsageError, EnvironmentUnfitError: the key cannot be used, or there is no ssh-keygen.
    """
    stem = f"{build.recipe.name}-{build.recipe.version}"
    text = document.dumps(report)
    names = [f"{stem}.{name}" for name in REPORTS]
    sums = dist / f"{stem}.sha256"
    try:
        dist.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{stem}.", dir=dist) as temporary:
            staged = Path(temporary)
            fresh = [name for item in build.deliveries if (name := _bundle(item, dist, staged, build.recipe.sign))]
            json_file = dist / f"{stem}.report.json"
            if not (
                json_file.is_file()
                and json_file.read_bytes() == text.encode()
                and _agrees(sums, [dist / name for name in names], dist)
            ):
                _write_reports(build, report, dict(zip(REPORTS, (staged / name for name in names), strict=True)))
            # All of it is written before anything in `dist` is replaced: a full disk leaves what was there.
            kept = [name for item in build.deliveries if (name := _rows(item, dist, staged))]
            for path in sorted(staged.iterdir()):
                _put(path, dist / path.name)
            everything = [dist / name for name in [*fresh, *names]]
            (staged / sums.name).write_text(_sums(everything, dist), encoding="utf-8")
            _put(staged / sums.name, sums)
    except OSError as error:
        raise StageFailedError(
            f"{dist} cannot be written", why=_reason(error), fix="free space or choose --dist; the stages are kept"
        ) from error
    return [*everything, *(dist / name for name in kept), sums]


def _put(source: Path, target: Path) -> None:
    """Move a file or folder to its place, over what is there."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    source.replace(target)


def _reason(error: OSError) -> str:
    """`shutil` gathers what went wrong in a list; the first of it says enough."""
    first = error.args[0][0] if isinstance(error, shutil.Error) and error.args and error.args[0] else None
    return str(first[-1]) if first else str(error)


def _sums(delivered: Sequence[Path], dist: Path) -> str:
    """Digest and name of each delivered file, as `sha256sum` writes them."""
    files = [file for path in delivered for file in (files_below(path) if path.is_dir() else [path])]
    return "".join(f"{sha256_file(file)}  {file.relative_to(dist).as_posix()}\n" for file in files)


def _agrees(sums: Path, reports: Sequence[Path], dist: Path) -> bool:
    """Whether `sums` is there and lists `reports` as they are now. Bundles are copied anyway."""
    if not sums.is_file() or not all(path.exists() for path in reports):
        return False
    listed = sums.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in listed if not line.endswith(BUNDLE_SUFFIX)] == _sums(reports, dist).splitlines()


def _write_reports(build: Build, report: dict[str, Any], files: dict[str, Path]) -> None:
    from edgepack.report import html, junit  # matplotlib takes longer to import than an unchanged build takes

    files["report.html"].write_text(html.render(report), encoding="utf-8")
    files["report.json"].write_text(document.dumps(report), encoding="utf-8")
    files["junit.xml"].write_text(junit.render(report), encoding="utf-8")
    _models(build, files["models"])


def _bundle(item: Delivery, dist: Path, staged: Path, sign: Sign | None) -> str | None:
    """Copy or sign a bundle that passed and return its name; of one that did not, remove what an earlier build left.

    One that could not be gated here is delivered as well: its device gates it when it is installed. So is one of a
    recipe that sets no gates, of which the data's findings warn.
    """
    name = item.bundle.file_name
    if item.verdict not in ("pass", NOT_RUN_HERE, UNGATED):
        (dist / name).unlink(missing_ok=True)
        return None
    if sign is not None:
        signing.sign(item.bundle.path, Path(sign.key), staged / name, known=dist / name)
        return name
    with item.bundle.path.open("rb") as read, (staged / name).open("wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)
        write.flush()
        os.fsync(write.fileno())
    return name


def _rows(item: Delivery, dist: Path, staged: Path) -> str | None:
    """Copy the golden rows of a delivered bundle that stay at home and return their name; else remove earlier ones."""
    rows = item.bundle.rows_path
    if rows is None or not (staged / item.bundle.file_name).is_file():
        (dist / item.bundle.file_name).with_suffix(ROWS_SUFFIX).unlink(missing_ok=True)
        return None
    file = staged / rows.name
    file.touch(mode=0o600)
    file.write_bytes(rows.read_bytes())
    return rows.name


def _models(build: Build, target: Path) -> None:
    """The exported forms side by side: Paddle static graph, float ONNX, INT8 ONNX."""
    target.mkdir()
    for folder in sorted(path for path in build.export.folder.iterdir() if path.is_dir()):
        shutil.copytree(folder, target / folder.name)
    if build.recipe.gates.golden.carry:  # they are texts of the test rows
        shutil.copy(build.export.folder / TEXTS_FILE, target)
