"""Archives from outside: nothing is written, and no link leads, outside of the folder."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgepack.interpreter.extraction import extract

Entry = tuple[str, str, str]  # kind, name, and target of a link or content


def archive(*entries: Entry) -> tarfile.TarFile:
    kinds = {"file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE,
             "device": tarfile.CHRTYPE, "fifo": tarfile.FIFOTYPE}  # fmt: skip
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as made:
        for kind, name, more in entries:
            member = tarfile.TarInfo(name)
            member.type = kinds[kind]
            content = more.encode() if kind == "file" else b""
            member.size, member.mode = len(content), 0o755
            member.linkname = more if kind in ("link", "hard") else ""
            made.addfile(member, io.BytesIO(content))
    return tarfile.open(fileobj=io.BytesIO(raw.getvalue()))


def outside(folder: Path) -> list[Path]:
    """Links below `folder` that lead outside."""
    links = [path for path in folder.rglob("*") if path.is_symlink()]
    return [link for link in links if not Path(os.path.realpath(link)).is_relative_to(os.path.realpath(folder))]


def test_files_folders_and_links_are_extracted(tmp_path: Path) -> None:
    extract(
        archive(
            ("dir", "./usr/lib", ""), ("file", "./usr/lib/a.so.1", "one"), ("link", "./usr/lib/a.so", "a.so.1"),
            ("link", "./bin", "usr/lib"), ("hard", "b", "./usr/lib/a.so.1"), ("link", "./usr/etc", "/etc/python3"),
            ("link", "./usr/up", "../b"), ("link", "./usr/root", "/"), ("file", "./usr/lib/a.so.1", "two"),
        ),
        tmp_path,
    )  # fmt: skip
    assert (tmp_path / "usr/lib/a.so").read_text() == (tmp_path / "bin/a.so").read_text() == "two"
    assert (tmp_path / "usr/up").read_text() == (tmp_path / "b").read_text() == "one"
    assert (tmp_path / "usr/etc").readlink() == Path("../etc/python3")
    assert (tmp_path / "usr/root").resolve() == tmp_path
    assert outside(tmp_path) == []


LONG = "d" * 247


@pytest.mark.parametrize(
    "entries",
    [
        [("file", "../x", "")],
        [("file", "/x", "")],
        [("dir", "a/../../x", "")],
        [("link", "a", "..")],
        [("link", "d/a", "../../x")],
        [("link", "a", "b/../../x")],
        [("link", "a", "/../x")],
        [("dir", "x/y", ""), ("link", "x/y/b", "../.."), ("link", "x/y/c", "b/..")],
        [("link", "a", "b"), ("file", "a/x", "")],
        [("link", "a", "."), ("dir", "a/x", "")],
        [("device", "a", "")],
        [("fifo", "a", "")],
        # A path longer than PATH_MAX, which is not resolved, to a link that goes up (CVE-2025-4517).
        [
            ("dir", "/".join([LONG] * 16), ""),
            ("link", "long", "/".join([LONG] * 16)),
            ("link", "esc", "long/" + "../" * 20),
        ],
    ],
)
def test_what_leads_outside_is_refused(entries: list[Entry], tmp_path: Path) -> None:
    (folder := tmp_path / "in").mkdir()
    with pytest.raises((ValueError, OSError)):
        extract(archive(*entries), folder)
    assert os.listdir(tmp_path) == ["in"] and outside(folder) == []  # noqa: PTH208


NAMES = st.lists(st.sampled_from(["a", "b", "c", ".."]), min_size=1, max_size=4).map("/".join)
ENTRIES = st.lists(st.tuples(st.sampled_from(["file", "dir", "link", "hard"]), NAMES, NAMES), min_size=1, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(ENTRIES)
def test_no_archive_leads_outside(tmp_path_factory: pytest.TempPathFactory, entries: list[Entry]) -> None:
    base = tmp_path_factory.mktemp("box")
    (folder := base / "in").mkdir()
    (base / "secret").write_text("secret")
    with contextlib.suppress(ValueError, OSError, KeyError, RecursionError):
        extract(archive(*entries), folder)
    assert sorted(os.listdir(base)) == ["in", "secret"] and outside(folder) == []  # noqa: PTH208
    assert (base / "secret").read_text() == "secret"
