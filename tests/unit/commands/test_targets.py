"""`edgepack targets` and `edgepack fetch`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from tests.unit.targets.test_from_probe import ORIN

from edgepack.bundle import bundled_interpreters
from edgepack.cli import main
from edgepack.commands import options
from edgepack.errors import RecipeInvalidError
from edgepack.packages import wheels
from edgepack.packages.target_spec import TargetSpec
from edgepack.recipe.model import OwnInterpreter
from edgepack.targets import profile_file, profiles
from edgepack.targets.context import BuildContext
from edgepack_runtime.errors import ExitCode


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDGEPACK_PROFILES", raising=False)
    (tmp_path / "probe.json").write_text(json.dumps(ORIN), encoding="utf-8")
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_the_list_has_a_row_and_a_sentence_for_each() -> None:
    told = run("targets", "list").stdout
    for name, profile in profile_file.load_profiles().items():
        assert f"\n{name} " in told
        assert f"{name}: {profile.summary}" in told
    assert "0 locked, 1 by path" in told
    rows = {row["name"]: row for row in json.loads(run("targets", "list", "--json").stdout)}
    assert rows["jetpack6"]["by_path"] == "onnxruntime-gpu"
    assert rows["linux-aarch64"]["wheels"] == 1
    assert not rows["linux-aarch64"]["own"]


def test_show_prints_every_fact() -> None:
    told = run("targets", "show", "jetpack6").stdout
    for fact in ("aarch64", "2.35", "3.4.30", "onnxruntime-gpu (given by path)", '["87"]'):
        assert fact in told
    refused = run("targets", "show", "jetpak6")
    assert refused.exit_code == ExitCode.RECIPE_INVALID
    assert "did you mean jetpack6?" in refused.stderr
    assert "edgepack targets list" in refused.stderr
    assert "recipe" not in refused.stderr


def test_a_probe_becomes_a_target_that_recipes_can_name(folder: Path) -> None:
    made = run("targets", "add", "probe.json", "--name", "line-3")
    assert made.exit_code == 0, made.stderr
    assert "targets: [line-3]" in made.stdout
    assert "add --gpu" in made.stderr.lower()
    assert "line-3: Ubuntu 22.04.5 LTS" in run("targets", "list").stdout
    again = run("targets", "add", "probe.json", "--name", "line-3")
    assert again.exit_code == ExitCode.USAGE
    assert "a target line-3 already" in again.stderr
    (folder / "r.yaml").write_text(
        "edgepack: 1\nname: hotel\nversion: 1.2.0\ndata: {train: builtin:reviews-zh}\n"
        "student: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}}\ntargets: [line-3]\n",
        encoding="utf-8",
    )
    assert run("check", "r.yaml").exit_code == 0
    planned = run("plan", "r.yaml")
    assert planned.exit_code == 0, planned.stderr
    assert "not run here" in planned.stdout
    (folder / "edgepack-targets.toml").rename(folder / "own.toml")
    refused = run("check", "r.yaml")
    assert refused.exit_code == ExitCode.RECIPE_INVALID
    assert "there is no target `line-3`" in refused.stderr
    assert "`jetpack6`" in refused.stderr
    assert run("check", "r.yaml", "--profiles", "own.toml").exit_code == 0


def test_fetch_fills_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool, Path, bool]] = []

    def fetch(spec: TargetSpec, context: BuildContext, progress: Any, **options: bool) -> list[Path]:
        asked.append((spec.profile.name, spec.serve, context.wheel_cache, options["without_given"]))
        return [folder / "probe.json"]

    monkeypatch.setattr(wheels, "fetch", fetch)
    monkeypatch.setattr(bundled_interpreters, "fetch", lambda recipe, profile, *options: [folder / profile.name])
    (folder / "jetpack6").touch()
    (folder / "linux-aarch64").touch()
    done = run("fetch", "--target", "jetpack6", "--target", "linux-aarch64", "--wheel-cache", "w")
    assert done.exit_code == 0, done.stderr
    assert asked == [(name, True, folder / "w", True) for name in ("jetpack6", "linux-aarch64")]
    assert "3 packages" in done.stdout
    assert "onnxruntime-gpu is on no index" in done.stderr
    assert run("fetch").exit_code == ExitCode.USAGE
    assert run("fetch", "--target", "jetpak6").exit_code == ExitCode.RECIPE_INVALID


def test_a_target_for_two_machines_is_fetched_for_both(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(spec: TargetSpec, *_: Any, **__: bool) -> list[Path]:
        asked.append(spec.profile.machine)
        return []

    monkeypatch.setattr(wheels, "fetch", fetch)
    monkeypatch.setattr(bundled_interpreters, "fetch", lambda recipe, profile, *_: asked.extend(profile.machines) or [])
    assert run("fetch", "--target", "linux").exit_code == 0
    assert asked == ["aarch64", "x86_64", "aarch64", "x86_64"]


def test_a_recipe_chooses_interpreter_and_cuda(folder: Path) -> None:
    recipe = (
        "edgepack: 1\nname: hotel\nversion: 1.2.0\ndata: {train: builtin:reviews-zh}\n"
        "student: {model: {scratch: {layers: 1, hidden: 8, heads: 2}}}\n"
    )
    (folder / "r.yaml").write_text(recipe, encoding="utf-8")
    loaded, known = options.load_recipe(folder / "r.yaml", [], None)
    assert (loaded.targets, loaded.interpreter, loaded.cuda) == (("local",), None, None)
    assert known == profile_file.load_profiles()
    settings = ["targets=[local, linux-x86_64-cuda13]", "cuda=system"]
    known = options.load_recipe(folder / "r.yaml", settings, None)[1]
    assert known["linux-x86_64-cuda13"].cuda == profiles.Cuda("13.0", ("75", "80", "86", "89", "90", "120"), "system")
    known = options.load_recipe(folder / "r.yaml", ["targets=[local]", "interpreter=bundled"], None)[1]
    assert known["local"].interpreter == "bundled"
    refused = run("check", "r.yaml", "--set", "targets=[jetpack6]", "--set", "interpreter=bundled")
    assert refused.exit_code == ExitCode.RECIPE_INVALID
    assert "target jetpack6 cannot carry an interpreter" in refused.stderr
    assert "fix: write `interpreter: host`" in refused.stderr
    own = ["interpreter.path=mine.tar.gz", f"interpreter.sha256={'a' * 64}"]
    (folder / "mine.tar.gz").touch()
    loaded, known = options.load_recipe(folder / "r.yaml", ["targets=[local]", *own], None)
    assert isinstance(loaded.interpreter, OwnInterpreter)
    assert (loaded.interpreter.path, known["local"].interpreter) == (str(folder / "mine.tar.gz"), "own")
    with pytest.raises(RecipeInvalidError, match="target linux cannot carry an interpreter of your own"):
        options.load_recipe(folder / "r.yaml", ["targets=[linux]", *own], None)
    (folder / "mine.tar.gz").unlink()
    with pytest.raises(RecipeInvalidError, match=r"`interpreter\.path`: there is no file"):
        options.load_recipe(folder / "r.yaml", ["targets=[local]", *own], None)
    refused = run("check", "r.yaml", "--set", "interpreter=python3")
    assert refused.exit_code == ExitCode.RECIPE_INVALID
    assert "`interpreter`" in refused.stderr


@pytest.mark.parametrize("typed", [["targets", "show"], ["targets", "lock"], ["fetch", "--target"]])
def test_the_shell_completes_names_of_targets(folder: Path, typed: list[str]) -> None:
    def offered(incomplete: str) -> list[str]:
        completion = ShellComplete(main, {}, "edgepack", "_EDGEPACK_COMPLETE")
        return [item.value for item in completion.get_completions(typed, incomplete)]

    assert offered("linux-x86_64-") == ["linux-x86_64-cuda12", "linux-x86_64-cuda13"]
    assert run("targets", "add", "probe.json", "--name", "line-3").exit_code == 0
    assert offered("line") == ["line-3"]
    (folder / "edgepack-targets.toml").write_text("[line-3", encoding="utf-8")
    assert offered("line") == []


def test_the_variable_names_a_file_of_profiles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("targets", "add", "probe.json", "--name", "line-3", "--profiles", "own.toml")
    assert "line-3" not in run("targets", "list").stdout
    monkeypatch.setenv("EDGEPACK_PROFILES", str(folder / "own.toml"))
    assert "line-3" in run("targets", "list").stdout
