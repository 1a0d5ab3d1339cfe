"""A workspace or dist/ that another user planted in a folder that everybody may write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgepack.build.dist_folder import require_writable
from edgepack.build.workspace import Workspace
from edgepack.commands import options
from edgepack.errors import EnvironmentUnfitError


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("kind", ["folder", "link", "folder around it", "folder behind a link"])
def test_a_folder_that_another_user_planted_is_refused(tmp_path: Path, kind: str) -> None:
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    for folder in (shared, victim):
        folder.mkdir()
    planted = shared / "planted"
    if kind == "link":
        planted.symlink_to(victim)
    else:
        planted.mkdir()
    os.chown(planted, 65534, 65534, follow_symlinks=False)
    named = planted / "within" if kind == "folder around it" else planted
    if kind == "folder behind a link":
        named = tmp_path / "link"
        named.symlink_to(planted)
    shared.chmod(0o755)
    require_writable(named)  # here nobody else could have put it
    shared.chmod(0o1777)
    with pytest.raises(EnvironmentUnfitError, match="belongs to another user"):
        require_writable(named)
    with pytest.raises(EnvironmentUnfitError, match="belongs to another user"), Workspace(named).in_use():
        pass
    assert list(victim.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_a_folder_that_another_user_makes_first_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o1777)
    mkdir = Path.mkdir

    def second(folder: Path, *arguments: Any, **options: Any) -> None:
        if not folder.exists():
            mkdir(folder)
            os.chown(folder, 65534, 65534)
        mkdir(folder, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", second)
    with pytest.raises(EnvironmentUnfitError, match="belongs to another user"):
        require_writable(tmp_path / "dist")
    with pytest.raises(EnvironmentUnfitError, match="belongs to another user"), Workspace(tmp_path / "ws").in_use():
        pass


def test_an_output_replaces_a_link_to_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "out.md").symlink_to(tmp_path / "pipe")
    options.write(tmp_path / "out.md", "text")
    assert (tmp_path / "out.md").read_text(encoding="utf-8") == "text"
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("plant", [Path.symlink_to, Path.hardlink_to])
def test_an_output_that_becomes_a_file_of_the_user_meanwhile_leaves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path, Path], None]
) -> None:
    """Another user, in a folder that all may write, puts a link in place of a pipe after it was judged."""
    out, victim = tmp_path / "out.md", tmp_path / "victim"
    victim.write_text("mine")
    os.mkfifo(out)

    def is_symlink(path: Path) -> bool:
        path.unlink()
        plant(path, victim)
        return False

    monkeypatch.setattr(Path, "is_symlink", is_symlink)
    with contextlib.suppress(EnvironmentUnfitError):
        options.write(out, "text")
    assert victim.read_text() == "mine"
