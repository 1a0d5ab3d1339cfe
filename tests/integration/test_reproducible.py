"""Two whole builds, from the rows on, that share nothing but their input and a wheel cache: equal to the last byte.

What may differ between two machines and must not decide anything differs here: where the project, the code and HOME
lie, how long their paths are and which characters they have, umask, time zone, language, the order of Python's sets.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

import edgepack
import edgepack_runtime
from edgepack.targets.context import default_wheel_cache

from .conftest import RECIPE, Project, write_rows

pytestmark = pytest.mark.integration
LEGIBLE_BY_OWNER_ALONE = 0o077


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of another length than the project's, with a space and a Chinese character; a copy of the code in it."""
    folder = tmp_path / "another machine with a path that is a good deal longer" / "酒店 一"
    for package in (edgepack, edgepack_runtime):
        source = Path(package.__path__[0])
        shutil.copytree(source, folder / "code" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "home").mkdir()
    return folder


def differing(one: Path, other: Path) -> list[str]:
    """Members of two bundles that are in one of them alone, or hold something else."""
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        names = [set(archive.namelist()) for archive in (first, second)]
        return sorted(names[0] ^ names[1]) + sorted(n for n in names[0] & names[1] if first.read(n) != second.read(n))


def test_paths_apart_the_same_recipe_gives_the_same_bytes(project: Project, elsewhere: Path) -> None:
    folder = elsewhere / "project"
    folder.mkdir()
    write_rows(folder)
    (folder / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    surroundings = {
        "PYTHONPATH": str(elsewhere / "code"),
        "HOME": str(elsewhere / "home"),
        "LANG": "C",
        "LC_ALL": "C",
        "TZ": "Pacific/Chatham",
        "PYTHONHASHSEED": "8",
        "SOURCE_DATE_EPOCH": "1",
    }
    options = ("--offline", "--wheel-cache", str(default_wheel_cache()), "--until", "bundle")
    done = Project(folder).edgepack_alone(
        "build", "tiny.yaml", *options, environment=surroundings, umask=LEGIBLE_BY_OWNER_ALONE, flags=()
    )
    assert done.returncode == 0, done.stderr[-4000:]
    [other] = (folder / ".edgepack").rglob(project.bundle.name)
    assert "train student" in done.stderr, "nothing is taken from the other build"
    assert differing(project.bundle, other) == []
    assert other.read_bytes() == project.bundle.read_bytes()
