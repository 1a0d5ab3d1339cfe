"""The model in a given path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.runtime.tiny_model import write_model_folder

import edgepack_runtime
from edgepack_runtime import Predictor
from edgepack_runtime.device.tuning import Tuning, dump
from edgepack_runtime.errors import UsageError
from edgepack_runtime.install.locate import locate, locate_own_release
from edgepack_runtime.install.prefix import Prefix

RELEASE = "1.0.0-0123456789ab"


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    """A prefix with one release in it; only what is looked at."""
    prefix = Prefix(tmp_path / "prefix")
    release = prefix.releases / RELEASE
    release.mkdir(parents=True)
    (release / "manifest.json").touch()
    write_model_folder(release / "model")
    prefix.current.symlink_to(f"releases/{RELEASE}")
    return prefix


def test_locate_finds_the_model_of_a_prefix_a_release_a_folder_and_a_file(prefix: Prefix) -> None:
    release = prefix.releases / RELEASE
    for path in (prefix.root, prefix.current, release, release / "model", prefix.current / "model" / "model.onnx"):
        assert locate(path) == (release / "model", release, prefix)


def test_a_release_that_is_being_staged_has_its_own_tuning(prefix: Prefix) -> None:
    staged = prefix.staging / RELEASE
    prefix.staging.mkdir()
    (prefix.releases / RELEASE).rename(staged)
    assert locate(staged).prefix == prefix
    (prefix.staging / f"{RELEASE}.tuning.json").write_bytes(dump(Tuning(threads=2), {}))
    assert locate(staged).tuning() == Tuning(threads=2)


def test_a_model_outside_a_prefix_has_no_tuning(prefix: Prefix, tmp_path: Path) -> None:
    elsewhere = tmp_path / "unpacked"
    (prefix.releases / RELEASE).rename(elsewhere)
    assert locate(elsewhere) == (elsewhere / "model", elsewhere, None)
    folder = (elsewhere / "model").rename(tmp_path / "onnx-int8")
    assert locate(folder) == (folder, None, None)
    assert locate(folder).tuning() is None


def test_locate_refuses_a_path_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"holds no model"):
        locate(tmp_path)
    with pytest.raises(UsageError, match="no model was given"):
        locate_own_release()
    with pytest.raises(UsageError, match="no model was given"):
        Predictor()


def test_a_predictor_of_a_prefix_is_opened_as_tuned(prefix: Prefix) -> None:
    assert Predictor(str(prefix.root)).tuning == Tuning()
    file = prefix.tuning_file(prefix.releases / RELEASE)
    file.parent.mkdir()
    file.write_bytes(dump(Tuning(threads=2, spinning=True, disabled_optimizers=("MatMulAddFusion",)), {}))
    tuned = Predictor(prefix.root)
    assert tuned.tuning == Tuning(2, True, ("MatMulAddFusion",))
    assert Predictor(prefix.root, threads=1).tuning == Tuning(1, True, ("MatMulAddFusion",))
    assert Predictor(prefix.root, tuned=Tuning()).tuning == Tuning()
    assert tuned.predict("很好") == Predictor(prefix.root, threads=1).predict("很好")


def test_importing_the_package_loads_none_of_it() -> None:
    code = "import sys, edgepack_runtime; print(sorted(name for name in sys.modules if 'edgepack_runtime' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['edgepack_runtime']"


def test_every_public_name_is_there_and_no_other() -> None:
    for name in edgepack_runtime.__all__:
        assert getattr(edgepack_runtime, name).__name__ == name
    assert set(edgepack_runtime.__all__) <= set(dir(edgepack_runtime))
    with pytest.raises(AttributeError, match="has no attribute 'Predicter'"):
        edgepack_runtime.Predicter  # noqa: B018 - the look-up is the test
