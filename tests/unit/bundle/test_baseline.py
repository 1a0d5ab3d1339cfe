"""The release that is out there answers the rows of the new one, by its model files alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interpreters import other_machine
from tests.stubs import STUB, STUB_SHA256

from edgepack.artifacts import Row
from edgepack.bundle import baseline, golden
from edgepack.bundle.archive import write_bundle
from edgepack.errors import BundleInvalidError, RecipeInvalidError, UsageError
from edgepack.progress import SILENT
from edgepack_runtime.bundle.manifest import MANIFEST_NAME, FileEntry, Manifest, TargetFacts, dump
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name

MakeModel = Callable[..., Path]
MakeBundle = Callable[[int], Path]
ROWS = [Row("房间很大服务不好也脏吵"[i % 11] * (1 + i % 7), "01"[i % 2]) for i in range(40)]


@pytest.fixture
def released(tmp_path: Path, make_model: MakeModel) -> MakeBundle:
    """A bundle around a model of a seed, for a device that no machine is."""

    def make(seed: int) -> Path:
        model = make_model(tmp_path / f"model-{seed}", seed=seed)
        files = {f"model/{file.name}": file.read_bytes() for file in model.iterdir()}
        files["__main__.py"] = b"raise SystemExit('its code is not run')\n"
        entries = tuple(FileEntry(n, len(d), hashlib.sha256(d).hexdigest()) for n, d in sorted(files.items()))
        facts = TargetFacts("elsewhere", (other_machine(),), "2.99", "host", "CUDAExecutionProvider")
        manifest = Manifest(
            "hotel", "1.1.0", 1_001_000, ONE_TEXT, facts, {}, {}, (), {}, "0" * 64, STUB_SHA256, (), entries
        )
        file = tmp_path / f"hotel-{seed}.edgepack"
        write_bundle({**files, MANIFEST_NAME: dump(manifest)}, file, STUB)
        return file

    return make


def test_its_answers_travel_with_the_rows(released: MakeBundle, tmp_path: Path, make_model: MakeModel) -> None:
    old, new = released(3), make_model(tmp_path / "new", seed=1)
    made = golden.make(
        golden.Models(new, new, new), "float32", ROWS, task_by_name(ONE_TEXT), SILENT, baseline_bundle=old
    )
    rows = [json.loads(line) for line in made.rows_jsonl.decode().splitlines()]
    theirs = Predictor(tmp_path / "model-3")
    assert [row["baseline_label"] for row in rows] == [theirs.predict(row["text"]).label for row in rows]
    assert [row["baseline_label"] for row in rows] != [row["float_label"] for row in rows]
    assert list(rows[0]) == ["text", "label", "float_label", "baseline_label"]
    alone = golden.make(golden.Models(new, new, new), "float32", ROWS, task_by_name(ONE_TEXT), SILENT)
    assert "baseline_label" not in alone.rows_jsonl.decode()


def test_the_manifest_records_which_release_it_was(released: MakeBundle) -> None:
    entry = baseline.manifest_entry(released(3))
    assert set(entry) == {"name", "version", "target", "manifest_sha256"} and len(entry["manifest_sha256"]) == 64
    assert (entry["name"], entry["version"], entry["target"]) == ("hotel", "1.1.0", "elsewhere")


def test_a_release_of_other_questions_or_labels_is_refused(released: MakeBundle) -> None:
    bundle = released(3)
    assert baseline.require_comparable(bundle, ONE_TEXT, ["1", "0"]).version == "1.1.0"
    with pytest.raises(RecipeInvalidError, match="cannot be compared with") as caught:
        baseline.require_comparable(bundle, "text-pair-classification", ["0", "1"])
    assert caught.value.why == "it is for text-classification, and the recipe for text-pair-classification"
    with pytest.raises(RecipeInvalidError) as caught:
        baseline.require_comparable(bundle, ONE_TEXT, ["0", "1", "2"])
    assert caught.value.why == "its labels are 0, 1, and those of the data 0, 1, 2"


def test_a_damaged_one_is_not_asked(released: MakeBundle, tmp_path: Path) -> None:
    bundle = released(3)
    raw = bytearray(bundle.read_bytes())
    raw[len(raw) // 2] ^= 1
    bundle.write_bytes(raw)
    for use in (lambda: baseline.require_comparable(bundle, ONE_TEXT, ["0", "1"]), lambda: asked(bundle)):
        with pytest.raises(BundleInvalidError, match=r"^`gates\.accuracy\.baseline`: .* is damaged"):
            use()
    with pytest.raises(UsageError, match=r"^`gates\.accuracy\.baseline`: "):
        baseline.require_comparable(tmp_path / "none.edgepack", ONE_TEXT, ["0", "1"])


def asked(bundle: Path) -> object:
    return baseline.answers(bundle, ROWS, SILENT)
