"""The walk to the fastest way to run a model: what is tried, what stays, and what comes out for a real one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.runtime.installing import Device, silent
from tests.unit.runtime.tiny_model import write_lines, write_release

from edgepack_runtime.bundle import golden
from edgepack_runtime.bundle.model_config import EngineConfig
from edgepack_runtime.device import info as device
from edgepack_runtime.device import tuning
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.errors import ExitCode, StageFailedError
from edgepack_runtime.inference import tune
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.install.prefix import Prefix
from edgepack_runtime.stats.intervals import Interval
from edgepack_runtime.util import progress

CPU = EngineConfig(disabled_optimizers=("SkipLayerNormFusion",))
Times = Callable[[Tuning], float]


def duel_of(times: Times, spread: float = 0.01) -> tune.Duel:
    def duel(first: Tuning, second: Tuning) -> Interval:
        ratio = times(second) / times(first)
        return Interval(ratio, ratio - spread, ratio + spread)

    return duel


def a_release(folder: Path) -> Path:
    return write_release(folder, rows=[("店很好", "good", "good"), ("店很差", "bad", "bad")] * 8)[0]


def walked(times: Times, most: int = 4, **more: Any) -> tuple[Tuning, dict[str, tune.Trial]]:
    lines: list[str] = []
    best, trials = tune.walk(
        Tuning(),
        tune.steps(CPU, most),
        more.pop("duel", duel_of(times)),
        more.pop("objection", lambda _: None),
        lines.append,
    )
    assert len(lines) == len(trials)
    return best, {trial.what: trial for trial in trials}


def test_what_is_tried_depends_on_provider_model_and_threads() -> None:
    def names(config: EngineConfig, most: int) -> list[str]:
        return [step.what for step in tune.steps(config, most)]

    assert names(CPU, 1) == ["with SkipLayerNormFusion"]
    assert names(EngineConfig(), 1) == ["without SkipLayerNormFusion"]
    assert names(CPU, 4) == ["with SkipLayerNormFusion", "2 threads", "4 threads", "spinning"]
    assert names(CPU, 6) == ["with SkipLayerNormFusion", "2 threads", "4 threads", "6 threads", "spinning"]
    assert names(EngineConfig("CUDAExecutionProvider"), 4) == []
    assert [step.what for step in tune.steps(CPU, 2, rewrites=False)] == ["2 threads", "spinning"]


def test_other_optimizers_that_a_model_switches_off_stay_off() -> None:
    with_two = EngineConfig(disabled_optimizers=("A", "SkipLayerNormFusion"))
    assert tune.steps(with_two, 1)[0].change(Tuning()).disabled_optimizers == ("A",)
    assert tune.steps(EngineConfig(disabled_optimizers=("A",)), 1)[0].change(Tuning()).disabled_optimizers == (
        "A",
        "SkipLayerNormFusion",
    )


def test_threads_that_halve_the_time_stay_and_such_that_do_not_go() -> None:
    best, trials = walked(lambda tuning: 1 / min(tuning.threads, 2))
    assert best == Tuning(threads=2)
    assert [(what, trial.kept) for what, trial in trials.items()] == [
        ("with SkipLayerNormFusion", False),
        ("2 threads", True),
        ("4 threads", False),
        ("spinning", False),
    ]
    assert trials["2 threads"].ratio == 0.5


def test_four_threads_have_to_save_more_than_two() -> None:
    # 1 -> 2 is not worth it; 1 -> 4 saves 20 %, and has to save 1 - 0.85^2 = 27.75 %.
    best, trials = walked(lambda tuning: {1: 1.0, 2: 0.9, 4: 0.8}[tuning.threads])
    assert best == Tuning()
    assert "28%" in trials["4 threads"].why


def test_spinning_is_tried_with_the_threads_that_stayed_if_they_are_several() -> None:
    _, trials = walked(lambda tuning: 1.0)
    assert "spinning" not in trials
    best, _ = walked(lambda tuning: (0.6 if tuning.threads == 2 else 1.0) * (0.8 if tuning.spinning else 1.0), most=2)
    assert best == Tuning(threads=2, spinning=True)


def test_a_gain_that_may_be_none_is_left() -> None:
    def times(tuning: Tuning) -> float:
        return 1 / tuning.threads

    best, trials = walked(times, most=2, duel=duel_of(times, spread=0.6))
    assert best == Tuning()
    assert trials["2 threads"].high > 1


def test_what_answers_otherwise_is_left_however_fast_it_is() -> None:
    best, trials = walked(
        lambda tuning: 0.5 if tuning.disabled_optimizers == () else 1.0,
        objection=lambda tuning: "a logit differs" if tuning.disabled_optimizers == () else None,
    )
    assert best == Tuning()
    assert trials["with SkipLayerNormFusion"].why == "a logit differs"


def test_a_real_release_is_tuned(tmp_path: Path) -> None:
    release = a_release(tmp_path / "release")
    lines: list[str] = []
    result = tune.run(release, most_threads=2, progress=lines.append)
    fields = result["tuning"]
    assert set(fields) == {"threads", "spinning", "disabled_optimizers"}
    assert 1 <= fields["threads"] <= 2
    trials = result["measured"]["trials"]
    assert trials[0]["what"] == "without SkipLayerNormFusion"
    assert all(0 < trial["low"] <= trial["ratio"] <= trial["high"] for trial in trials)
    assert result["measured"]["conditions"]["providers"] == ["CPUExecutionProvider"]
    text = tune.render(result)
    assert "without SkipLayerNormFusion" in text and "graph optimizers" in text
    tuning.write(tmp_path / "kept.json", result)
    kept = tuning.read(tmp_path / "kept.json")
    assert kept is not None and kept.threads == fields["threads"]
    json.dumps(result, allow_nan=False)


def test_an_arena_objects_to_other_answers(tmp_path: Path) -> None:
    release = a_release(tmp_path / "release")
    arena = tune._Arena(release, silent)
    assert arena.objection(Tuning()) is None
    write_lines(release / golden.GOLDEN_FILE, [{"text": "好", "logits": [1.0, 1.0]}])
    assert "the self-test fails with it" in (arena.objection(Tuning()) or "")


def test_a_long_comparison_reports_its_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOG_S", 0.0)
    lines: list[str] = []
    tune._Arena(a_release(tmp_path / "release"), lines.append).duel(Tuning(), Tuning(disabled_optimizers=()))
    assert [line.partition(": ")[0] for line in lines] == [
        f"comparing two settings, round {number} of {tune.ROUNDS}" for number in range(1, tune.ROUNDS + 1)
    ]


def test_an_emulated_machine_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "emulation", lambda machine, root: "the kernel is other")
    result = tune.run(a_release(tmp_path / "release"), most_threads=2, progress=silent)
    assert result["tuning"] == {"threads": 1, "spinning": False, "disabled_optimizers": None}
    assert result["measured"]["trials"] == []
    assert "emulated (the kernel is other)" in tune.render(result)


@pytest.mark.parametrize("damaged", [{}, {"tuning": {}}, {"tuning": {"threads": 0}}])
def test_only_a_tuning_is_kept(tmp_path: Path, damaged: dict[str, Any]) -> None:
    with pytest.raises(StageFailedError, match="did not print a tuning"):
        tuning.write(tmp_path / "kept.json", damaged)
    assert not list(tmp_path.iterdir())


def test_an_install_tunes_and_the_release_is_opened_so(bundle: Path, prefix: Prefix, device: Device) -> None:
    done = device(sys.executable, bundle, "install", "--prefix", prefix.root, "--json")
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)
    assert receipt["tuning"]["tuning"] == {"threads": 2, "spinning": False, "disabled_optimizers": ["A"]}
    release = prefix.releases / str(prefix.current_id())
    assert tuning.read(prefix.tuning_file(release)) == Tuning(2, False, ("A",))
    assert not prefix.staging.exists()
    told = device(prefix.bin / "sentiment", "status")
    assert "tuned    2 threads; graph optimizers: all but A" in told.stdout
    prefix.tuning_file(release).write_text("{")
    told = device(prefix.bin / "sentiment", "status")
    assert told.returncode == 0 and "json is damaged" in told.stdout
    prefix.tuning_file(release).unlink()
    again = device(prefix.bin / "sentiment", "tune", "--threads", "7")
    assert again.returncode == 0, again.stderr
    assert again.stdout == "tuned: 2 threads\n"
    assert json.loads(prefix.tuning_file(release).read_text())["measured"] == {"most_threads": 7}


def test_an_install_with_no_tune_measures_nothing(bundle: Path, prefix: Prefix, device: Device) -> None:
    done = device(sys.executable, bundle, "tune")
    assert (done.returncode, done.stdout) == (0, "tuned: 2 threads\n"), done.stderr
    done = device(sys.executable, bundle, "install", "--prefix", prefix.root, "--json", "--no-tune")
    assert json.loads(done.stdout)["tuning"] is None
    assert not prefix.tuning.exists()


@pytest.mark.parametrize("behaviour", ["fail", "nonsense"])
def test_an_install_that_cannot_tune_leaves_nothing(
    make_bundle: Callable[..., Path], prefix: Prefix, device: Device, behaviour: str
) -> None:
    done = device(sys.executable, make_bundle(tune=behaviour), "install", "--prefix", prefix.root)
    assert done.returncode == ExitCode.STAGE_FAILED
    assert "tun" in done.stderr
    assert prefix.current_id() is None and not prefix.tuning.exists() and not prefix.staging.exists()


def test_a_predictor_runs_with_every_tuning(tmp_path: Path) -> None:
    folder = a_release(tmp_path / "release") / "model"
    expected = Predictor(folder).predict("很好")
    for threads in (1, 2):
        for spinning in (False, True):
            for disabled in (None, (), ("SkipLayerNormFusion",)):
                tuned = Tuning(threads, spinning, disabled)
                assert Predictor(folder, tuned=tuned).predict("很好") == expected, tuned
