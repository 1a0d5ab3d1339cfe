from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.bundle import wheels
from edgepack.errors import EnvironmentUnfitError
from edgepack.progress import SILENT
from edgepack.targets import profiles
from edgepack.targets.context import BuildContext
from edgepack.targets.profiles import Profile

KNOWN = profiles.load_profiles()
PYTHONS = [(one, python) for one in KNOWN.values() for python in one.pythons]
ENGINE = {"onnxruntime"}


def with_locks(folder: Path, engine: Sequence[str], serve: Sequence[str] = (), name: str = "rpi-bookworm") -> Profile:
    """A profile whose locks were written by hand, and name these."""
    profile = replace(KNOWN[name], locks=folder)
    for file, names in ((profile.lock, engine), (profile.serve_lock, serve)):
        text = "".join(f"{one} --hash=sha256:{'a' * 64}\n" for one in names)
        (folder / file).write_text(text, encoding="utf-8")
    return profile


@pytest.mark.parametrize(("profile", "python"), PYTHONS, ids=[f"{one.name} {python}" for one, python in PYTHONS])
def test_every_lock_that_ships_is_complete(profile: Profile, python: str) -> None:
    wheels.wanted(replace(profile, python=python), BuildContext(KNOWN), serve=True, without_given=True)


@pytest.mark.parametrize(
    ("names", "lacking"),
    [
        ([], "onnxruntime"),
        (["onnxruntime-gpu==1.31.1"], "onnxruntime"),
        (["onnxruntime==1.31.1 ; python_version < '3.11'"], "onnxruntime"),
    ],
)
def test_a_lock_that_names_too_little_is_refused_before_anything_is_fetched(
    tmp_path: Path, names: list[str], lacking: str
) -> None:
    profile = with_locks(tmp_path, names)
    with pytest.raises(EnvironmentUnfitError, match=f"(?m)rpi-bookworm would lack {lacking}$") as caught:
        wheels.fetch(profile, BuildContext(KNOWN, tmp_path / "cache"), SILENT)
    assert f"{tmp_path / 'onnxruntime-cp311.txt'} names none for CPython 3.11" in caught.value.why
    assert "edgepack targets lock rpi-bookworm" in caught.value.fix
    assert not (tmp_path / "cache").exists()


def test_a_lock_that_names_a_second_onnxruntime_is_refused(tmp_path: Path) -> None:
    profile = with_locks(tmp_path, ["onnxruntime==1.0", "onnxruntime-gpu==1.0"])
    with pytest.raises(EnvironmentUnfitError, match="would carry onnxruntime-gpu, which it does not run on") as caught:
        wheels.wanted(profile, BuildContext(KNOWN))
    assert "onnxruntime-cp311.txt names that besides onnxruntime" in caught.value.why


def test_what_serves_has_a_lock_of_its_own(tmp_path: Path) -> None:
    profile = with_locks(tmp_path, [f"{one}==1.0" for one in ENGINE], ["uvicorn==1.0", "starlette==1.0"])
    wheels.wanted(profile, BuildContext(KNOWN))
    with pytest.raises(EnvironmentUnfitError, match="would lack anyio, click, h11, prometheus-client") as caught:
        wheels.wanted(profile, BuildContext(KNOWN), serve=True)
    assert "serve-cp311.txt" in caught.value.why


def test_a_wheel_by_path_stands_for_what_the_lock_names() -> None:
    jetson = KNOWN["jetpack6"]
    wheels.require({"onnxruntime-gpu"}, jetson)
    wheels.require((), jetson, without_onnxruntime=True)
    with pytest.raises(EnvironmentUnfitError, match="would lack onnxruntime-gpu"):
        wheels.require((), jetson)
