"""What a build would download, as `check` prints it, `plan` and `doctor` list it and `fetch` fetches it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from edgepack import cli
from edgepack.build import downloads, preflight
from edgepack.errors import EnvironmentUnfitError
from edgepack.packages import wheels
from edgepack.packages.target_spec import TargetSpec
from edgepack.recipe import hub
from edgepack.recipe.loader import load_recipe
from edgepack.recipe.model import CustomRecipe, ImportedTextRecipe
from edgepack.targets.context import BuildContext
from edgepack.targets.profile_file import load_profiles

TEACHER, STUDENT = "ernie-3.0-medium-zh", "ernie-3.0-tiny-nano-v2-zh"
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(hub.HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.setenv("EDGEPACK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "home"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(models: Mapping[str, Any] = {"teacher": TEACHER, "student": STUDENT}, **more: Any) -> Path:
        for split, words in {"train": "好差", "dev": "棒坏", "test": "美丑"}.items():
            rows = "\n".join(f"{word * length}\t{word == words[0]:d}" for word in words for length in range(1, 9))
            (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\n{rows}\n", encoding="utf-8")
        document = {"edgepack": 1, "name": "tiny", "version": "0.1.0", "linear": "off"} | more
        document["data"] = {split: f"{split}.tsv" for split in ("train", "dev", "test")}
        document |= {role: {"model": model} for role, model in models.items()}
        file = tmp_path / "recipe.yaml"
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        return file

    return make


def cache_model(name: str) -> None:
    folder = hub.model(name).folder
    folder.mkdir(parents=True)
    (folder / "model_state.pdparams").write_bytes(b"weights")


def run(*command: str) -> Result:
    return CliRunner().invoke(cli.main, list(command))


def test_the_folder_is_that_of_paddlenlp(home: Path) -> None:
    assert hub.model(STUDENT).folder == home / "models" / STUDENT
    assert hub.home({}) == Path.home() / ".paddlenlp"
    assert hub.home({"PPNLP_HOME": "/srv/models"}) == Path("/srv/models")


def test_a_size_is_that_of_the_weights_and_unknown_for_models_of_the_community() -> None:
    assert hub.model(STUDENT).size_bytes == 71_628_960  # the file of PaddleNLP has 71,636,311
    assert hub.model("somebody/ernie").size_bytes is None


def test_models_of_teacher_and_students_are_named_once_and_folders_are_none(write: Write, tmp_path: Path) -> None:
    def names(models: Mapping[str, Any], **more: Any) -> list[str]:
        return [model.name for model in hub.models(load_recipe(write(models, **more), load_profiles()))]

    assert names({"teacher": TEACHER, "student": TEACHER}) == [TEACHER]
    over = {"search": {"over": {"student.model": [STUDENT, "ernie-3.0-tiny-micro-v2-zh"]}}}
    assert names({"teacher": TEACHER, "student": STUDENT}, **over) == [TEACHER, STUDENT, "ernie-3.0-tiny-micro-v2-zh"]
    scratch = {"scratch": {"layers": 1, "hidden": 8, "heads": 2}}
    assert names({"teacher": scratch, "student": {"from": "teacher", "layers": 1}}) == []


def test_cached_models_and_packages_are_not_downloaded(write: Write, tmp_path: Path) -> None:
    recipe = load_recipe(write(targets=["linux-x86_64"]), load_profiles())
    context = BuildContext(wheel_cache=tmp_path / "wheels")
    found = downloads.missing(recipe, context)
    assert [model.name for model in found.models] == [TEACHER, STUDENT]
    assert any(package.startswith("onnxruntime ") for package in found.packages)
    assert any(package.endswith("_amd64.deb") for package in found.packages)
    assert str(found).startswith(f"downloads: {TEACHER} (about 28")

    cache_model(TEACHER)
    [onnxruntime] = [
        one for one in wheels.missing(TargetSpec(context.profile("linux-x86_64")), context) if one.name == "onnxruntime"
    ]
    profile = context.profile("linux-x86_64")
    folder = context.wheel_cache / min(onnxruntime.sha256)
    folder.mkdir(parents=True)
    (folder / f"onnxruntime-{onnxruntime.version}-cp311-cp311-manylinux_2_28_{profile.machine}.whl").touch()
    fewer = downloads.missing(recipe, context)
    assert [model.name for model in fewer.models] == [STUDENT]
    assert set(found.packages) - set(fewer.packages) == {f"onnxruntime {onnxruntime.version} {profile.machine}"}


def test_a_graph_of_paddle_is_converted_with_paddle_and_onnx_is_not() -> None:
    for graph, needed in (("a.onnx", False), ("exported", True), ("exported/inference.json", True)):
        for kind in (ImportedTextRecipe, CustomRecipe):
            model: Any = SimpleNamespace(graph=graph, graphs={"model": graph})
            assert kind.model_construct(model=model).needs_paddle == needed


def test_no_downloads_are_reported_too() -> None:
    absent = downloads.Downloads((), (), uninstalled=("paddlepaddle", "paddlenlp"))
    assert str(absent) == "downloads: no file, but packages of this Python are missing: paddlepaddle, paddlenlp"
    assert str(downloads.Downloads((), ())) == "downloads: none, everything is on this machine"
    assert str(downloads.Downloads((), ("a 1",), offline=True)).startswith(
        "missing: 1 package for the bundles; with --offline"
    )


def test_check_plan_and_doctor_report_them(write: Write, home: Path) -> None:
    cache_model(STUDENT)
    recipe = str(write())
    checked = run("check", recipe)
    assert checked.exit_code == 0, checked.output
    assert f"downloads: {TEACHER} (about 28" in checked.output.replace("\n", " ")
    planned = json.loads(run("plan", recipe, "--json").stdout)["downloads"]
    assert [model["name"] for model in planned["models"]] == [TEACHER]
    assert "downloads: " in run("plan", recipe).output


@pytest.mark.parametrize("target", sorted(name for name, one in load_profiles().items() if not one.by_path))
def test_each_target_can_be_planned(write: Write, home: Path, target: str) -> None:
    """Some have several machines, and wheels for each."""
    planned = run("plan", str(write(targets=[target])))
    assert planned.exit_code == 0, planned.output


def test_models_that_cannot_be_downloaded_are_named_together(
    write: Write, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    lacking = [TEACHER, STUDENT]

    def probe(name: str) -> None:
        if name in lacking:
            raise EnvironmentUnfitError(f"model {name!r} cannot be downloaded", why="no network", fix="fetch it")

    monkeypatch.setattr("edgepack.stages.train.probe", probe)
    recipe = load_recipe(write(), load_profiles())
    with pytest.raises(EnvironmentUnfitError) as caught:
        preflight.require_models(recipe)
    assert caught.value.what == f"models '{TEACHER}', '{STUDENT}' cannot be downloaded"
    assert (caught.value.why, caught.value.fix) == ("no network", "fetch it")
    lacking.remove(TEACHER)
    with pytest.raises(EnvironmentUnfitError, match=f"^model '{STUDENT}' cannot be downloaded"):
        preflight.require_models(recipe)


def test_fetch_loads_every_model_of_the_hub(write: Write, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    loaded: list[str] = []
    monkeypatch.setattr("edgepack.stages.train.probe", loaded.append)
    monkeypatch.setattr("edgepack.packages.wheels.fetch", lambda *inputs, **options: [])
    monkeypatch.setattr("edgepack.bundle.bundled_interpreters.fetch", lambda *inputs: [])
    fetched = run("fetch", str(write()))
    assert loaded == [TEACHER, STUDENT]
    assert f"{home / 'models' / TEACHER}: {TEACHER}" in fetched.stdout
    assert f"copy {home / 'models'} to the same folder" in fetched.output.replace("\n", " ")
