"""Write a build to `dist/`: bundles that their gates do not refuse, reports, and the exported models."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from edgepack.artifacts import ROWS_SUFFIX
from edgepack.bundle import signing
from edgepack.bundle.archive import BUNDLE_SUFFIX, write_signed
from edgepack.errors import EdgepackError, EnvironmentUnfitError, StageFailedError
from edgepack.export.selection import TEXTS_FILE
from edgepack.progress import Progress
from edgepack.recipe.model import Sign
from edgepack.report import document
from edgepack.report.model import Report, dumps
from edgepack.results import Build, TargetResult
from edgepack.util.folders import make_own
from edgepack.util.hashing import files_below, sha256_file
from edgepack.util.text import safe
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.manifest import MAX_README_BYTES, README_NAME
from edgepack_runtime.bundle.model_config import LINEAR_NAME
from edgepack_runtime.bundle.verify import read_signed_manifest
from edgepack_runtime.util.fs import EXECUTABLE_MODE, remove_tree, set_mode

README_SUFFIX = ".README.txt"  # beside each bundle: its README, for anyone who has the file and no terminal yet
REPORTS = ("report.html", "report.json", "report.md", "junit.xml", "models")


def require_writable(dist: Path) -> None:
    """Check, before hours of building, that `dist` can be created and written. Nothing is left behind.

    Raises:
        EnvironmentUnfitError: it cannot be created or written, or another user may have planted it.
    """
    missing = [folder for folder in (dist, *dist.parents) if not os.path.lexists(folder)]
    try:
        make_own(dist)
        with tempfile.TemporaryDirectory(prefix=".try.", dir=dist):
            pass
    except OSError as error:
        raise EnvironmentUnfitError(
            f"{dist} cannot be written", why=_reason(error), fix="choose another folder with --dist"
        ) from error
    finally:
        for folder in missing:
            with contextlib.suppress(OSError):  # not created, or in use by another process
                folder.rmdir()


def write(build: Build, report: Report, dist: Path, progress: Progress, language: str | None = None) -> list[Path]:
    """Write the bundles, the reports and the models to `dist`; return their paths, bundles first.

    Bundles are signed here, not in their stage: a hardware key is not needed again for a bundle that is signed already.
    A bundle that its gate refuses is not delivered; an earlier one of the same name is removed, unless it is signed. A
    line says so, and where another bundle is replaced. A signed bundle is replaced by an unsigned one only if their
    manifests differ. The README beside an inconclusive bundle begins with what was not shown. Reports are written
    whatever the verdict, and list the bundles of this build. They keep the report of an earlier build of the same
    version for other targets (`report.document.stem`). `NAME-VERSION.sha256` lists all digests for `sha256sum -c`,
    those of earlier bundles and reports of the same version for other targets too. Golden rows that the bundle does not
    carry are written beside it, readable by their owner only, and are not listed.

    Args:
        report: that of `report.document.make`.
        language: that `report.html` opens in; None for the reader's.

    Raises:
        StageFailedError: `dist` cannot be written, or a bundle cannot be signed.
        UsageError, EnvironmentUnfitError: the key cannot be used, ssh-keygen is missing, or another user may have
            planted `dist`.
    """
    stem = f"{build.recipe.name}-{build.recipe.version}"
    text = dumps(report)
    names = [f"{document.stem(report, dist)}.{name}" for name in REPORTS]
    sums, sign = dist / f"{stem}.sha256", build.recipe.sign
    try:
        make_own(dist)
        with tempfile.TemporaryDirectory(prefix=f".{stem}.", dir=dist) as temporary:
            staged = Path(temporary)
            fresh = [name for item in build.target_results for name in _bundle(item, dist, staged, sign, progress)]
            json_file = dist / names[REPORTS.index("report.json")]
            if not (
                json_file.is_file()
                and json_file.read_bytes() == text.encode()
                and _agrees(sums, [dist / name for name in names], dist)
            ):
                _write_reports(
                    build, report, dict(zip(REPORTS, (staged / name for name in names), strict=True)), language
                )
            # Everything is written before `dist` changes: a full disk keeps the earlier files.
            kept = [name for item in build.target_results if (name := _rows(item, dist, staged))]
            for path in sorted(staged.iterdir()):
                _put(path, dist / path.name)
            everything = [dist / name for name in [*fresh, *names]]
            suffixes = (BUNDLE_SUFFIX, README_SUFFIX, *(f".{name}" for name in REPORTS))
            patterns = [f"{stem}{between}{suffix}" for suffix in suffixes for between in ("", "-*")]
            earlier = {path for pattern in patterns for path in dist.glob(pattern) if _is_readable(path)}
            listed = [*everything, *sorted(earlier.difference(everything))]
            (staged / sums.name).write_text(_sums(listed, dist), encoding="utf-8")
            _put(staged / sums.name, sums)
    except OSError as error:
        raise StageFailedError(
            f"{dist} cannot be written", why=_reason(error), fix="free space or choose --dist; the stages are kept"
        ) from error
    return [*everything, *(dist / name for name in kept), sums]


def _put(source: Path, target: Path) -> None:
    """Move a file or folder to `target` and replace what is there; of a link, the link."""
    if target.is_symlink() or target.is_dir():
        remove_tree(target)
    source.replace(target)


def _reason(error: OSError) -> str:
    """The message of an error; of a list of errors that `shutil` collected, the first."""
    first = error.args[0][0] if isinstance(error, shutil.Error) and error.args and error.args[0] else None
    return str(first[-1]) if first else str(error)


def _is_readable(path: Path) -> bool:
    """Whether it is a file or a folder: a pipe or a device in somebody else's folder has no end."""
    return path.is_file() or path.is_dir()


def _sums(delivered: Sequence[Path], dist: Path) -> str:
    """Digest and name of each delivered file, in the format of `sha256sum`."""
    files = [file for path in delivered for file in (files_below(path) if path.is_dir() else [path])]
    return "".join(f"{sha256_file(file)}  {file.relative_to(dist).as_posix()}\n" for file in files)


def _agrees(sums: Path, reports: Sequence[Path], dist: Path) -> bool:
    """Whether `sums` lists the `reports` with their present digests. Bundles are always copied."""
    if not sums.is_file() or not all(map(_is_readable, reports)):
        return False
    names = {path.name for path in reports}
    listed = sums.read_text(encoding="utf-8", errors="replace").splitlines()
    mine = [line for line in listed if line.partition("  ")[2].partition("/")[0] in names]
    return sorted(mine) == sorted(_sums(reports, dist).splitlines())


def _write_reports(build: Build, report: Report, files: dict[str, Path], language: str | None) -> None:
    from edgepack.report import gates, html, i18n, junit, markdown

    language = language or i18n.language_of_reader(report.data.labels)
    files["report.html"].write_text(html.render(report, language), encoding="utf-8")
    files["report.json"].write_text(dumps(report), encoding="utf-8")
    files["report.md"].write_text(markdown.render_build(report), encoding="utf-8")
    files["junit.xml"].write_text(junit.render(gates.of_build(report)), encoding="utf-8")
    _models(build, files["models"])


def _bundle(item: TargetResult, dist: Path, staged: Path, sign: Sign | None, progress: Progress) -> list[str]:
    """Copy or sign a bundle that is not refused, and its README; return their names. Else remove earlier ones."""
    name = item.bundle.file_name
    readme = name.removesuffix(BUNDLE_SUFFIX) + README_SUFFIX
    earlier = _earlier(dist / name)
    if item.refused is not None:
        if earlier is not None and earlier.signature is not None:
            progress.line(f"{dist / name} is signed and stays: an earlier build made it, not this one")
            return []
        (dist / readme).unlink(missing_ok=True)
        if (dist / name).is_file():
            (dist / name).unlink()
            progress.line(f"removed {dist / name}: an earlier build made it, and its successor did not pass its gate")
        return []
    same = earlier is not None and earlier.manifest_sha256 == item.bundle.manifest_sha256
    signature = earlier.signature if earlier is not None and sign is None else None
    if signature is not None and same:
        progress.line(f"{dist / name} has the same content, and keeps its signature")
    elif signature is not None:
        progress.line(f"{dist / name} was signed, and is replaced: sign it again, or set `sign.key` in the recipe")
    if earlier is not None and not same:
        progress.line(
            f"{dist / name} is replaced: an earlier build made another bundle of the same version; to keep both, give "
            "another `version` or --dist"
        )
    with Archive(item.bundle.path) as archive:
        text = archive.read(README_NAME, MAX_README_BYTES)
        (staged / readme).write_bytes("".join(f"{line}\n" for line in _caveats(item)).encode() + text)
        if signature is not None and same:
            write_signed(archive, signature, staged / name)
            return [name, readme]
    if sign is not None:
        signing.sign(item.bundle.path, Path(sign.key), staged / name, known=dist / name)
        return [name, readme]
    with item.bundle.path.open("rb") as read, (staged / name).open("wb") as write:
        set_mode(write.fileno(), EXECUTABLE_MODE)
        shutil.copyfileobj(read, write, 1 << 20)
        write.flush()
        os.fsync(write.fileno())
    return [name, readme]


def _caveats(item: TargetResult) -> list[str]:
    """What the gate did not show, for the beginning of the README beside the bundle."""
    if not item.caveats:
        return []
    heads = ("INCONCLUSIVE: the gates of the build did not show", "无法判定：构建时的门限未能证实")
    return [*heads, *(f"  {safe(line)}" for line in item.caveats), ""]


class _Earlier(NamedTuple):
    """What an earlier build left under the name of a bundle."""

    manifest_sha256: str
    signature: bytes | None


def _earlier(there: Path) -> _Earlier | None:
    """The bundle at `there`; None if there is none that can be read."""
    try:
        with Archive(there) as archive:
            raw, signature = read_signed_manifest(archive)
    except (EdgepackError, OSError):  # nothing to keep
        return None
    return _Earlier(hashlib.sha256(raw).hexdigest(), signature)


def _rows(item: TargetResult, dist: Path, staged: Path) -> str | None:
    """Copy the golden rows that a delivered bundle does not carry and return their name; else remove earlier ones."""
    rows = item.bundle.rows_path
    if item.refused is not None and (dist / item.bundle.file_name).is_file():  # a signed one stays, with its rows
        return None
    if rows is None or not (staged / item.bundle.file_name).is_file():
        (dist / item.bundle.file_name).with_suffix(ROWS_SUFFIX).unlink(missing_ok=True)
        return None
    file = staged / rows.name
    file.touch(mode=0o600)
    file.write_bytes(rows.read_bytes())
    return rows.name


def _models(build: Build, target: Path) -> None:
    """Copy the exported models: Paddle static graph, float ONNX, and the smaller ONNX; or the linear model alone."""
    target.mkdir()
    if build.export is None:
        assert build.linear is not None, "a build has one of the two"
        shutil.copy(build.linear.folder / LINEAR_NAME, target)
        return
    for folder in sorted(path for path in build.export.folder.iterdir() if path.is_dir()):
        (target / folder.name).mkdir()
        for file in filter(Path.is_file, folder.iterdir()):
            shutil.copy(file, target / folder.name)
    if build.data is not None and build.recipe.gates.golden.carry:  # the texts are test rows
        shutil.copy(build.export.folder / TEXTS_FILE, target)
