"""The release that is out there answers the rows of the new one, by its model files alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.interpreters import other_machine
from tests.stubs import STUB, STUB_SHA256
from tests.unit.sandbox.attacks import endless, vast

from edgepack.artifacts import Row
from edgepack.bundle import baseline, golden
from edgepack.bundle.archive import write_bundle
from edgepack.errors import BundleInvalidError, RecipeInvalidError, StageFailedError, UsageError
from edgepack.progress import SILENT
from edgepack.sandbox.confinement import SandboxLimits
from edgepack_runtime.bundle.manifest import MANIFEST_NAME, FileEntry, Manifest, TargetFacts, dump
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.tasks.registry import ONE_TEXT, task_by_name

MakeModel = Callable[..., Path]
MakeBundle = Callable[..., Path]
ROWS = [Row("房间很大服务不好也脏吵"[i % 11] * (1 + i % 7), "01"[i % 2]) for i in range(40)]


@pytest.fixture
def released(tmp_path: Path, make_model: MakeModel) -> MakeBundle:
    """A bundle around a model of a seed, for a device that no machine is; `changed` changes its graph."""

    def make(seed: int, changed: Callable[[onnx.ModelProto], onnx.ModelProto] | None = None) -> Path:
        model = make_model(tmp_path / f"model-{seed}", seed=seed)
        if changed is not None:
            onnx.save(changed(onnx.load(str(model / "model.onnx"))), str(model / "model.onnx"))
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
    earlier = baseline.answers(old, ROWS, SILENT)
    made = golden.make(
        golden.Models(new, new, new), "float32", ROWS, task_by_name(ONE_TEXT), SILENT, baseline_answers=earlier
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


def calling_python(graph: onnx.ModelProto) -> onnx.ModelProto:
    graph.graph.node[-1].op_type, graph.graph.node[-1].domain = "PythonOp", "com.microsoft"
    return graph


def taking_3_gib(graph: onnx.ModelProto) -> onnx.ModelProto:
    """The graph, and 3 GiB whose largest number is added to its logits."""
    attack, output = vast(3).graph, graph.graph.output[0].name
    for node in graph.graph.node:
        node.output[:] = ["x" if name == output else name for name in node.output]
    attack.node[-1].output[:] = [output]
    graph.graph.node.extend(attack.node)
    graph.graph.initializer.extend(attack.initializer)
    return graph


def of_one_row(graph: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with the logits of the first row of a batch alone."""
    output = graph.graph.output[0].name
    for node in graph.graph.node:
        node.output[:] = ["all" if name == output else name for name in node.output]
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0], np.int64), "first"))
    graph.graph.node.append(onnx.helper.make_node("Gather", ["all", "first"], [output]))
    return graph


@pytest.mark.parametrize(
    ("attack", "what"),
    [
        (endless, "the model was stopped: no progress within 3 s"),
        (taking_3_gib, "the model was refused more memory than 1024"),
        (of_one_row, "the model of hotel-3.edgepack gives no answers"),
        (calling_python, r".* has operators that are not allowed: com\.microsoft\.PythonOp"),
    ],
)
def test_whoever_asks_it_meets_the_sandbox(
    released: MakeBundle,
    monkeypatch: pytest.MonkeyPatch,
    attack: Callable[[onnx.ModelProto], onnx.ModelProto],
    what: str,
) -> None:
    monkeypatch.setattr(SandboxLimits, "here", lambda _: SandboxLimits(2**30, 2**24, 3))
    with pytest.raises(StageFailedError, match=rf"^`gates\.accuracy\.baseline`: {what}"):
        asked(released(3, attack))


def asked(bundle: Path) -> object:
    return baseline.answers(bundle, ROWS, SILENT)
