"""Hostile bundles are refused before anything is written, with one exit code."""

from __future__ import annotations

import itertools
import shutil
import sys
from pathlib import Path

import pytest
from tests import hostile
from tests.unit.runtime.installing import Device, silent

from edgepack_runtime.bundle import onnx_file, verify
from edgepack_runtime.errors import BundleInvalidError, ExitCode
from edgepack_runtime.install.install import install

CASES = dict(hostile.cases())


@pytest.mark.parametrize("draft", [hostile.good(), hostile.with_interpreter(hostile.tar_of("bin/cpython"))])
def test_the_generator_also_writes_valid_bundles(draft: hostile.Draft, tmp_path: Path) -> None:
    assert hostile.judge(hostile.pack(draft), tmp_path)


@pytest.mark.parametrize("about", CASES)
def test_each_hostile_bundle_is_refused_and_leaves_nothing(about: str, tmp_path: Path) -> None:
    bundle, prefix = tmp_path / "case.edgepack", tmp_path / "prefix"
    bundle.write_bytes(CASES[about]())
    with pytest.raises(BundleInvalidError) as caught:
        verify.verify_file(bundle)
    assert caught.value.exit_code == ExitCode.BUNDLE_INVALID
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    with pytest.raises(BundleInvalidError):
        install(bundle, prefix, log=silent)
    assert {path.name for path in tmp_path.iterdir()} == {"case.edgepack"}


def test_graphs_of_too_many_fields_are_not_walked_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "MOST_FIELDS", 10)
    bundle = tmp_path / "case.edgepack"
    for graphs, fields in ((1, 9), (1, 12), (2, 6)):  # the good one has a field too
        extra = {f"model/a{number}.onnx": b"\x08\x01" * fields for number in range(graphs)}
        bundle.write_bytes(hostile.pack(hostile.good(extra)))
        if fields == 9:
            verify.verify_file(bundle)
        else:
            with pytest.raises(BundleInvalidError, match="more than 10 fields"):
                verify.verify_file(bundle)


@pytest.mark.parametrize("about", ["name: one folder up", "a link", "a model with data elsewhere", "no manifest"])
def test_hostile_bundles_on_the_command_line(about: str, tmp_path: Path, device: Device) -> None:
    bundle = tmp_path / "case.edgepack"
    bundle.write_bytes(CASES[about]())
    for verb in (["verify", bundle], ["install", bundle, "--prefix", tmp_path / "prefix"], ["doctor", bundle]):
        paths = ":".join(path for path in sys.path if path)
        done = device(sys.executable, "-m", "edgepack_runtime", *verb, env={"PYTHONPATH": paths})
        if verb[0] != "doctor" or about == "no manifest":
            assert done.returncode == ExitCode.BUNDLE_INVALID, done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "prefix").exists()


@pytest.mark.parametrize(
    ("seed", "changes"), [(0, 1_000), pytest.param(1, 30_000, marks=pytest.mark.sweep)], ids=["some", "many"]
)
def test_random_changes_are_refused_or_make_another_good_bundle(tmp_path: Path, seed: int, changes: int) -> None:
    refused = 0
    for about, raw in itertools.islice(hostile.mutations(seed), changes):
        folder = tmp_path / "one"
        folder.mkdir()
        try:
            refused += not hostile.judge(raw, folder)
        except Exception as error:
            raise AssertionError(f"{about}: {raw!r}") from error
        shutil.rmtree(folder)
    assert refused > changes * 0.8
