from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from edgepack.errors import EnvironmentUnfitError
from edgepack.packages import wheels
from edgepack.packages.target_spec import TargetSpec
from edgepack.progress import SILENT
from edgepack.targets import package_data, profile_file
from edgepack.targets.context import BuildContext
from edgepack.targets.profiles import Profile

KNOWN = profile_file.load_profiles()
ENGINE = {"onnxruntime"}


def use_locks(monkeypatch: pytest.MonkeyPatch, engine: Sequence[str], serve: Sequence[str] = ()) -> Profile:
    """A profile whose locks name these."""
    profile = KNOWN["linux-aarch64"]
    texts = {
        file: "".join(f"{one} --hash=sha256:{'a' * 64}\n" for one in names)
        for file, names in ((profile.lock, engine), (wheels.SERVE_LOCK, serve))
    }
    monkeypatch.setattr(package_data, "text", lambda folder, name: texts[name])
    return profile


@pytest.mark.parametrize(
    ("names", "lacking"),
    [
        ([], "onnxruntime"),
        (["onnxruntime-gpu==1.31.1"], "onnxruntime"),
        (["onnxruntime==1.31.1 ; python_version < '3.11'"], "onnxruntime"),
    ],
)
def test_a_lock_that_names_too_little_is_refused_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], lacking: str
) -> None:
    profile = use_locks(monkeypatch, names)
    with pytest.raises(EnvironmentUnfitError, match=f"(?m)linux-aarch64 would lack {lacking}$") as caught:
        wheels.fetch(TargetSpec(profile), BuildContext(KNOWN, tmp_path / "cache"), SILENT)
    assert "the lock onnxruntime.txt names none" in caught.value.why
    assert "edgepack targets lock linux-aarch64" in caught.value.fix
    assert not (tmp_path / "cache").exists()


def test_a_lock_that_names_a_second_onnxruntime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = use_locks(monkeypatch, ["onnxruntime==1.0", "onnxruntime-gpu==1.0"])
    with pytest.raises(EnvironmentUnfitError, match="would carry onnxruntime-gpu, which it does not run on") as caught:
        wheels.wanted(TargetSpec(profile), BuildContext(KNOWN))
    assert "onnxruntime.txt names that besides onnxruntime" in caught.value.why


def test_what_serves_has_a_lock_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = use_locks(monkeypatch, [f"{one}==1.0" for one in ENGINE], ["uvicorn==1.0", "starlette==1.0"])
    wheels.wanted(TargetSpec(profile), BuildContext(KNOWN))
    with pytest.raises(EnvironmentUnfitError, match="would lack anyio, click, h11, prometheus-client") as caught:
        wheels.wanted(TargetSpec(profile, serve=True), BuildContext(KNOWN))
    assert "serve.txt" in caught.value.why


def test_a_wheel_by_path_stands_for_what_the_lock_names() -> None:
    jetson = KNOWN["jetpack6"]
    wheels.require({"onnxruntime-gpu"}, jetson)
    wheels.require((), jetson, without_onnxruntime=True)
    with pytest.raises(EnvironmentUnfitError, match="would lack onnxruntime-gpu"):
        wheels.require((), jetson)
