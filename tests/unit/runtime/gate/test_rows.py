"""Golden rows that the bundle does not carry: what a device gates without them, and with them."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.tiny_model import write_lines, write_release

from edgepack_runtime.bundle import golden, model_config
from edgepack_runtime.bundle.manifest import Manifest, dump
from edgepack_runtime.errors import BundleInvalidError, ExitCode, UsageError
from edgepack_runtime.gate import rows as gate_rows
from edgepack_runtime.gate import runner
from edgepack_runtime.inference import tune
from edgepack_runtime.schema.gates import ABOVE_MAJORITY, Limits, ManifestAccuracy, declared, is_per_class
from edgepack_runtime.tasks.registry import PAIR

ROWS = [("很好", "good", "good")] * 190 + [("很差", "good", "bad")] * 10  # the model is wrong on the last ten
TEXTS = ["一二", "三四五"]
ACCURACY = {"metric": "accuracy", "min": 0.85, "per_class": {"recall_of": {"good": 0.1}}, "confidence": 0.95}


@dataclasses.dataclass
class Rowless:
    """A release without rows, and where they are."""

    release: Path
    manifest: Manifest
    rows: Path

    def gate(self, **more: Any) -> dict[str, Any]:
        return runner.run(self.release, self.manifest, bundle_bytes=None, progress=self.heard.append, **more)

    heard: list[str] = dataclasses.field(default_factory=list)


@pytest.fixture
def rowless(tmp_path: Path) -> Rowless:
    release, manifest = write_release(tmp_path / "release", rows=ROWS)
    rows = (release / golden.ROWS_FILE).rename(tmp_path / "tiny.rows.jsonl")
    write_lines(release / golden.TEXTS_FILE, [{"text": text} for text in TEXTS])
    about = {"rows": 2000, "carry": False, "sha256": hashlib.sha256(rows.read_bytes()).hexdigest()}
    manifest = dataclasses.replace(manifest, gates={"accuracy": ACCURACY, "golden": about})
    (release / "manifest.json").write_bytes(dump(manifest))
    return Rowless(release, manifest, rows)


def test_the_gate_without_the_rows_measures_no_accuracy_and_passes_only_where_that_is_waived(rowless: Rowless) -> None:
    receipt = rowless.gate()
    assert (receipt["verdict"], runner.exit_code(receipt)) == ("inconclusive", ExitCode.GATE_INCONCLUSIVE)
    assert (receipt["accuracy"], receipt["classes"], receipt["checks"]) == (None, None, [])
    assert [one["gate"] for one in receipt["unmeasured"]] == ["accuracy.min", "accuracy.per_class.recall"]
    assert receipt["latency"]["n"] >= 130  # of texts that stand in for theirs
    assert "accuracy.min: not measured: the labelled rows are not in the bundle" in runner.render(receipt)
    assert any(line.startswith("accuracy: not measured: ") for line in rowless.heard)
    receipt = rowless.gate(without_rows=True)
    assert receipt["verdict"] == "pass"
    assert [one["waived"] for one in receipt["unmeasured"]] == [True, True]


def test_without_the_rows_a_model_is_not_shown_to_be_better_than_one_answer(rowless: Rowless) -> None:
    about = {**rowless.manifest.gates["golden"]}
    for other, asked in (({"latency": {"p50_ms": 5000}}, ["accuracy.above_majority"]), ({}, ["gates"])):
        gates = {"accuracy": {"above_majority": True}, "golden": about, **other}
        manifest = dataclasses.replace(rowless.manifest, gates=gates)
        (rowless.release / "manifest.json").write_bytes(dump(manifest))
        receipt = runner.run(rowless.release, manifest, bundle_bytes=None, progress=rowless.heard.append)
        assert receipt["verdict"] == "inconclusive"
        assert [one["gate"] for one in receipt["unmeasured"]] == asked


OF_ROWS = [gate for gate in declared() if gate.startswith("accuracy.") and not is_per_class(gate)]


@pytest.mark.parametrize("gate", [gate for gate in OF_ROWS if gate != ABOVE_MAJORITY])
def test_each_limit_on_accuracy_alone_is_unmeasured_without_the_rows(gate: str) -> None:
    several = gate == "accuracy.min_of"
    asked: Any = {gate.partition(".")[2]: {"macro_f1": 1.0} if several else 1.0}
    limits = Limits(accuracy=dataclasses.replace(ManifestAccuracy(), **asked))
    found = gate_rows.unmeasured(limits, others=False, waived=False)
    assert [one.gate for one in found] == [f"{gate}.macro_f1" if several else gate]


def test_the_gate_with_the_rows_measures_the_accuracy(rowless: Rowless) -> None:
    receipt = rowless.gate(rows_file=rowless.rows)
    assert {row["gate"]: row["verdict"] for row in receipt["checks"]} == {
        "accuracy.min": "pass",
        "accuracy.per_class.recall": "pass",
    }
    assert (receipt["accuracy"]["n"], receipt["accuracy"]["value"], receipt["unmeasured"]) == (200, 0.95, [])


def test_the_gate_refuses_other_rows(rowless: Rowless) -> None:
    rowless.rows.write_bytes(rowless.rows.read_bytes().replace(b'"good", "float', b'"bad", "float', 1))
    with pytest.raises(UsageError, match="does not hold the rows of this bundle") as caught:
        rowless.gate(rows_file=rowless.rows)
    assert rowless.manifest.gates["golden"]["sha256"] in caught.value.why
    with pytest.raises(UsageError, match="cannot be read"):
        rowless.gate(rows_file=rowless.rows.with_name("none"))


def test_a_bundle_that_carries_its_rows_takes_no_others(tmp_path: Path) -> None:
    release, manifest = write_release(tmp_path / "release", rows=ROWS)
    with pytest.raises(UsageError, match="--rows is for bundles without their rows"):
        runner.run(release, manifest, bundle_bytes=None, progress=print, rows_file=release / golden.ROWS_FILE)


def test_tuning_times_the_texts_that_stand_in_for_the_rows(rowless: Rowless) -> None:
    config = model_config.load(rowless.release / golden.MODEL_FOLDER)
    assert golden.read_items(rowless.release, config) == TEXTS
    assert tune.run(rowless.release, most_threads=1, progress=print)["measured"]["texts"] == len(TEXTS)
    with pytest.raises(BundleInvalidError, match=r"golden/rows\.jsonl"):
        golden.read_rows(rowless.release, config)


@pytest.mark.parametrize("line", [{"text": 5}, {"text": "一", "label": "good"}, {"text": "一", "text_pair": "二"}, {}])
def test_texts_are_of_the_models_form(rowless: Rowless, line: dict[str, Any]) -> None:
    write_lines(rowless.release / golden.TEXTS_FILE, [{"text": "一"}, line])
    config = model_config.load(rowless.release / golden.MODEL_FOLDER)
    with pytest.raises(BundleInvalidError, match=r"line 2 of golden/texts\.jsonl"):
        golden.read_items(rowless.release, config)
    write_lines(rowless.release / golden.TEXTS_FILE, [{"text": "一", "text_pair": "二"}])
    pairs = model_config.ModelConfig(PAIR, ("bad", "good"), 16, "int8")
    assert golden.read_items(rowless.release, pairs) == [("一", "二")]


DIGEST = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "about",
    [
        {"carry": False},
        {"carry": True, "sha256": DIGEST},
        {"sha256": DIGEST},
        {"carry": None, "sha256": DIGEST},
        {"carry": False, "sha256": DIGEST.upper()},
        {"carry": False, "sha256": DIGEST + "\n"},
        {"carry": False, "sha256": 5},
        {"stay": True},
    ],
)
def test_the_limits_name_the_rows_in_one_way(about: dict[str, Any]) -> None:
    with pytest.raises(BundleInvalidError):
        Limits.parse({"golden": about})
    assert Limits.parse({"golden": {"rows": 5, "carry": False, "sha256": DIGEST}}).golden.sha256 == DIGEST
    assert Limits.parse({"golden": {"rows": 5, "carry": True}}).golden.sha256 is None
