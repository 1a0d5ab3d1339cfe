"""A workspace or dist/ that another user planted in a folder that everybody may write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgepack.commands import options
from edgepack.errors import EnvironmentUnfitError
from edgepack.pipeline.delivery import require_writable
from edgepack.pipeline.workspace import Workspace


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_folder_that_another_user_planted_is_refused(tmp_path: Path, kind: str) -> None:
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    for folder in (shared, victim):
        folder.mkdir()
    planted = shared / "planted"
    if kind == "folder":
        planted.mkdir()
    else:
        planted.symlink_to(victim)
    os.chown(planted, 65534, 65534, follow_symlinks=False)
    shared.chmod(0o755)
    require_writable(planted)  # here nobody else could have put it
    shared.chmod(0o1777)
    with pytest.raises(EnvironmentUnfitError, match="belongs to another user"):
        require_writable(planted)
    with pytest.raises(EnvironmentUnfitError, match="belongs to another user"), Workspace(planted).in_use():
        pass
    assert list(victim.iterdir()) == []


def test_an_output_replaces_a_link_to_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "out.md").symlink_to(tmp_path / "pipe")
    options.write(tmp_path / "out.md", "text")
    assert (tmp_path / "out.md").read_text(encoding="utf-8") == "text"
    assert (tmp_path / "pipe").is_fifo()
