from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import edgepack_runtime
from edgepack.artifacts import BundleArtifact, Checks, DataArtifact, ExportArtifact, LedgerRow, ModelFile, proportion
from edgepack.bundle.main_program import main_source
from edgepack.errors import StageFailedError
from edgepack.packages import wheels
from edgepack.packages.site_packages import Package
from edgepack.recipe.model import Recipe
from edgepack.stages import bundle, text_payload
from edgepack.stages.bundle import BundleStage, Payload, Shipment
from edgepack.stages.stage import Context, Stage
from edgepack.targets import context
from edgepack.targets.context import BuildContext
from edgepack.targets.profile_file import load_profiles
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.cli import parser
from edgepack_runtime.errors import ExitCode

MakeWheel = Callable[..., Path]
MakeModel = Callable[..., Path]
TARGET = "local"
LEDGER = (LedgerRow("student", proportion(18, 20)), LedgerRow("onnx-int8", proportion(17, 20), 1.5, 1.2, 1.4, 0.03))


@pytest.fixture(autouse=True)
def a_target_of_this_machine(monkeypatch: pytest.MonkeyPatch, make_wheel: MakeWheel) -> None:
    """Whatever runs the tests can build; its wheels are one fake."""
    monkeypatch.setattr(context, "check_host", lambda profile: None)
    wheel = make_wheel({"fakelib/__init__.py": "x = 1\n", "fakelib-1.0.dist-info/LICENSE": "free\n"})
    server = make_wheel({"starlette/__init__.py": "x = 1\n", "aserver-1.0.dist-info/LICENSE": "free\n"}, name="aserver")
    both = {False: [wheel], True: [wheel, server]}
    monkeypatch.setattr(wheels, "fetch", lambda spec, context, progress: both[spec.serve])


@pytest.fixture
def recipe() -> Recipe:
    return Recipe.model_validate(
        {
            "edgepack": 1,
            "name": "hotel",
            "version": "1.2.3",
            "data": {"train": "/somewhere/train.tsv", "test": "/somewhere/test.tsv"},
            "student": {"model": "ernie-3.0-tiny-nano-v2-zh"},
            "gates": {"accuracy": {"min": 0.8}},
        }
    )


@pytest.fixture
def data(tmp_path: Path) -> DataArtifact:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [{"text": f"房间很大{'不好' * (i % 3)}", "label": str(i % 2)} for i in range(20)]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "test.jsonl").write_text(text, encoding="utf-8")
    return DataArtifact(folder, labels=("0", "1"), rows={"test": 20}, warnings=())


@pytest.fixture
def export(tmp_path: Path, make_model: MakeModel) -> ExportArtifact:
    folder = tmp_path / "export"
    make_model(folder / "onnx-float", seed=1)
    make_model(folder / "onnx-int8", seed=2, precision="int8")
    float_model = ModelFile("onnx-float", "float32", 4_000, LEDGER[1], {})
    small_model = ModelFile("onnx-int8", "int8", 1_000, LEDGER[1], {})
    return ExportArtifact(folder, LEDGER[0], float_model, small_model, "int8", "smaller and faster")


@dataclass(frozen=True, eq=False)
class Given(Shipment):
    """What ships is given, and the ledger too."""

    asked: Recipe
    export: ExportArtifact
    data: DataArtifact

    needs = ()

    def recipe(self, ctx: Context) -> Recipe:
        return self.asked

    def made(self, ctx: Context) -> list[Stage[Any]]:
        return []

    packed = made

    def weight_bytes(self, ctx: Context, target: str) -> int:
        return self.export.shipped_model.onnx_bytes

    def payload(self, ctx: Context, target: str, scratch: Path) -> Payload:
        return text_payload.make(
            self.asked, text_payload.text_model_of_export(self.export), self.data, scratch, ctx.progress
        )

    def build(self, ctx: Context) -> Any:
        return SimpleNamespace(ledger=LEDGER)


Build = Callable[..., BundleArtifact]


@pytest.fixture
def build(recipe: Recipe, export: ExportArtifact, data: DataArtifact) -> Build:
    def run(out: Path, *, export: ExportArtifact = export, **changed: Any) -> BundleArtifact:
        out.mkdir(parents=True)
        asked = recipe.model_copy(update=changed)
        return BundleStage(TARGET, Given(asked, export, data)).run(Context(), out)

    return run


def test_the_bundle_is_what_a_device_accepts(tmp_path: Path, build: Build) -> None:
    made = build(tmp_path / "out")
    manifest, raw = verify_file(made.path)
    assert made.file_name == "hotel-1.2.3-local.edgepack"
    assert (manifest.name, manifest.version, manifest.sequence) == ("hotel", "1.2.3", 1_002_003)
    assert made.manifest_sha256 == hashlib.sha256(raw).hexdigest()
    assert made.bundle_bytes == made.path.stat().st_size == sum(made.bytes_by_part.values())
    assert made.unpacked_bytes == manifest.bytes_for(platform.machine()) + len(raw)
    assert os.access(made.path, os.X_OK)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [made.file_name]


def test_the_exact_set_of_files(tmp_path: Path, build: Build) -> None:
    made = build(tmp_path / "out")
    runtime = Path(edgepack_runtime.__path__[0])
    expected = {
        f"edgepack_runtime/{path.relative_to(runtime).as_posix()}"
        for path in runtime.rglob("*")
        if path.suffix in (".py", ".html") or path.name == "py.typed"
    }
    expected |= {"__main__.py", "manifest.json", "README.txt", "sbom.cdx.json"}
    expected |= {"model/model.onnx", "model/model.json", "model/vocab.txt"}
    expected |= {"golden/golden.jsonl", "golden/rows.jsonl"}
    expected |= {"site/fakelib/__init__.py", "site/fakelib-1.0.dist-info/METADATA"}
    expected |= {"licenses/fakelib-1.0/LICENSE", "licenses/edgepack-0.1.0/Apache-2.0.txt"}
    with zipfile.ZipFile(made.path) as opened:
        assert set(opened.namelist()) == expected
        launcher = (runtime / "launcher.py").read_bytes()
        assert opened.read("edgepack_runtime/launcher.py") == launcher
        assert opened.read("__main__.py") == main_source()


def test_a_server_travels_only_where_the_recipe_asks_for_it(tmp_path: Path, build: Build) -> None:
    without, _ = verify_file(build(tmp_path / "without").path)
    with_it, _ = verify_file(build(tmp_path / "with", serve=True).path)
    found = [{entry.path for entry in manifest.files} for manifest in (without, with_it)]
    assert {path.split("/")[1] for path in found[1] - found[0]} >= {"starlette"}
    assert not [path for path in found[0] if path.startswith("site/starlette")]
    assert "edgepack_runtime/serve/page.html" in found[0] & found[1]  # the runtime is the same everywhere


def test_the_manifest_records_what_was_measured_and_asked_for(tmp_path: Path, build: Build, recipe: Recipe) -> None:
    manifest, _ = verify_file(build(tmp_path / "out").path)
    assert manifest.model["precision"] == "int8"
    assert (manifest.model["onnx_bytes"], manifest.model["float_onnx_bytes"]) == (1_000, 4_000)
    assert manifest.model["golden_tolerance"] > 0
    asked = recipe.gates.model_dump(mode="json")
    assert manifest.gates == {**asked, "accuracy": {**asked["accuracy"], "above_majority": True}}
    assert [row["stage"] for row in manifest.ledger] == ["student", "onnx-int8"]
    assert manifest.ledger[1]["score"]["n"] == 20
    assert manifest.target == contract.TargetFacts(TARGET, (platform.machine(),), "2.0", "host", "CPUExecutionProvider")
    assert {"edgepack", "python", "onnxruntime"} <= set(manifest.tools)
    assert manifest.recipe_sha256 == bundle.recipe_sha256(recipe)


def test_twice_the_same_bytes(tmp_path: Path, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(tmp_path / "here")
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    monkeypatch.chdir(tmp_path)
    second = build(tmp_path / "a" / "much" / "longer" / "place")
    assert first.path.read_bytes() == second.path.read_bytes()


def test_the_launcher_starts_from_the_bundle(tmp_path: Path, build: Build) -> None:
    made = build(tmp_path / "out")
    command = [sys.executable, "-I", "-S", str(made.path), "verify", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True


def test_float_ships_with_the_float_tolerance(tmp_path: Path, build: Build, export: ExportArtifact) -> None:
    made = build(tmp_path / "out", export=replace(export, shipped="float32"))
    manifest, _ = verify_file(made.path)
    assert manifest.model["precision"] == "float32"
    assert 0 < manifest.model["golden_tolerance"] < 0.01
    with zipfile.ZipFile(made.path) as opened:
        shipped = (export.folder / "onnx-float/model.onnx").read_bytes()
        assert opened.read("model/model.onnx") == shipped


def test_a_model_without_its_vocabulary_and_an_empty_test_split_are_refused(
    tmp_path: Path, build: Build, export: ExportArtifact, data: DataArtifact
) -> None:
    (data.folder / "test.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(StageFailedError, match="test split is empty"):
        build(tmp_path / "out")
    (export.folder / "onnx-int8/vocab.txt").unlink()
    with pytest.raises(StageFailedError, match=r"vocab\.txt"):
        text_payload._model(export.folder / "onnx-int8")


def test_recipe_digest_knows_values_and_not_folders(recipe: Recipe) -> None:
    def changed(**update: Any) -> str:
        return bundle.recipe_sha256(recipe.model_copy(update=update))

    moved = recipe.data.model_copy(update={"train": "/elsewhere/deep/train.tsv"})
    other = recipe.data.model_copy(update={"train": "/somewhere/other.tsv"})
    assert changed(data=moved) == bundle.recipe_sha256(recipe)
    assert changed(data=other) != bundle.recipe_sha256(recipe)
    assert changed(version="1.2.4") != bundle.recipe_sha256(recipe)


def test_the_readme_names_the_bundle_and_in_both_languages_every_verb_and_exit_code(
    tmp_path: Path, build: Build
) -> None:
    made = build(tmp_path / "out")
    with zipfile.ZipFile(made.path) as opened:
        text = opened.read("README.txt").decode()
    assert "$" not in text
    assert made.file_name in text
    assert max(map(len, text.splitlines())) <= 100
    verbs = set(parser.build_parser(parser.Context("hotel", tmp_path / "f", None)).verbs)
    english, chinese = text.split("中文说明")
    for half in (english, chinese):
        assert set(re.findall(r"^  (?:sh FILE|PREFIX/bin/hotel) ([a-z]+)", half, re.MULTILINE)) == verbs
        assert [int(code) for code in re.findall(r"^ {1,3}(\d+)  \S", half, re.MULTILINE)] == [*ExitCode, 130]


def test_the_readme_reports_whether_the_file_has_the_server(tmp_path: Path, build: Build) -> None:
    for serve, line in ((False, "not in this file: it was built without `serve: true`"), (True, "HTTP, and a page")):
        with zipfile.ZipFile(build(tmp_path / str(serve), serve=serve).path) as opened:
            assert f"PREFIX/bin/hotel serve        {line}" in opened.read("README.txt").decode()


def test_the_readme_says_how_much_of_a_text_is_read_and_how_to_ask_over_http(tmp_path: Path, build: Build) -> None:
    with zipfile.ZipFile(build(tmp_path / "made", serve=True).path) as opened:
        text = opened.read("README.txt").decode()
    assert re.search(r"The model reads the first \d+ tokens", text) and re.search(
        r"模型只读取文本的前 \d+ 个词元", text
    )
    for words in ("curl -H", "--token-file FILE", "install --systemd", "trust add KEY.pub"):
        assert text.count(words.removesuffix(" FILE")) >= 2, words


def test_inputs_change_with_the_facts(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    before = bundle.packages_and_templates(recipe, load_profiles()[TARGET], BuildContext())
    assert before == bundle.packages_and_templates(recipe, load_profiles()[TARGET], BuildContext())
    monkeypatch.setattr("edgepack.targets.package_data.digest", lambda: "other")
    assert bundle.packages_and_templates(recipe, load_profiles()[TARGET], BuildContext()) != before


def test_slimming_is_reported_of_packages_that_weigh_something() -> None:
    sizes = {"onnxruntime": (42 << 20, 17 << 20), "click": (30_000, 30_000)}
    packages = [Package(name, "1.0", "w", "0" * 64, "MIT", (), 1, *size) for name, size in sizes.items()]
    lines: list[str] = []
    needs: Any = SimpleNamespace(checks=Checks(), glibc="2.28")
    progress: Any = SimpleNamespace(line=lines.append)
    bundle._report(packages, needs, progress)
    assert lines[:-1] == ["onnxruntime 1.0: 42.0 MiB -> 17.0 MiB after slimming"]
