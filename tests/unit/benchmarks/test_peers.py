"""What `benchmarks/peers.py` makes of its measurements, and how it talks to the processes that measure."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from peers import build, figures, ours, process, registry, source
from peers.figures import Spread
from peers.model import InParts
from peers.process import BackendFailed, Burst


def a_source(folder: Path) -> source.Source:
    return source.Source(
        "hotel", folder, True, ("bad", "good"), 130, 4, 312, 12, folder / "hf", folder / "paddle", folder / "nlp",
        folder / "float", folder / "int8", folder / "train.tsv", folder / "test.tsv", 2,
    )  # fmt: skip


def test_everybody_is_first_once_and_follows_more_than_one() -> None:
    everyone = ["a", "b", "c", "d"]
    rounds = [figures.turns(everyone, number) for number in range(8)]
    assert all(sorted(order) == everyone for order in rounds)
    assert {order[0] for order in rounds} == set(everyone)
    before_b = {order[order.index("b") - 1] for order in rounds if order[0] != "b"}
    assert before_b == {"a", "c"}


def test_a_spread_is_the_median_and_quartiles() -> None:
    assert figures.spread([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(3.0, 2.0, 4.0)
    assert figures.spread([7.0]) == Spread(7.0, 7.0, 7.0)
    with pytest.raises(ValueError, match="no values"):
        figures.spread([])


def test_ratios_are_taken_within_rounds() -> None:
    # The machine is ten times slower in the third round, for both.
    assert figures.times_faster([1.0, 1.0, 10.0], [2.0, 2.0, 20.0]) == Spread(2.0, 2.0, 2.0)
    with pytest.raises(ValueError, match="shorter"):
        figures.times_faster([1.0, 1.0], [2.0])


def test_a_drop_is_paired_and_in_points() -> None:
    truths = ["a"] * 100
    drop = figures.drop_points(truths, ["a"] * 100, ["a"] * 98 + ["b"] * 2)
    assert drop.value == pytest.approx(2.0)
    assert drop.low < 2.0 < drop.high < 10.0


def test_texts_that_are_cut_otherwise_do_not_count_as_disagreement() -> None:
    ids, others = [[1, 5, 2], [1, 6, 2]], [[1, 5, 2], [1, 7, 2]]
    assert figures.most_apart(ids, [[0.0, 1.0], [0.0, 1.0]], others, [[0.5, 1.0], [9.0, 9.0]]) == (0.5, 1)


def test_the_label_is_that_of_the_largest_number() -> None:
    assert figures.labels_of([[0.1, 0.2], [3.0, 3.0]], ("bad", "good")) == ["good", "bad"]


ORT = registry.INT8.name


def driver() -> ModuleType:
    """`benchmarks/peers.py`, which has the name of the package beside it."""
    file = Path(registry.__file__).parent.with_suffix(".py")
    spec = importlib.util.spec_from_file_location("peers_driver", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


NNCF = registry.NNCF.name


def a_run(driver: ModuleType, milliseconds: dict[str, float]) -> Any:
    """Two rounds at one thread, a backend as long as `milliseconds` says; the second round is twice as slow for all."""
    run = driver.Run.__new__(driver.Run)
    run.case, run.failed = build.CASES[0], {}
    run.found = {}
    for name, ms in milliseconds.items():
        bursts = [Burst((0.0,), (scale * ms,), scale * ms) for scale in (1, 2)]
        times = {(1, length): bursts for length in driver.LENGTHS}
        run.found[name] = driver.Measured(10 if name == registry.FLOAT.name else 2, times=times)
    return run


def test_rivals_are_compared_with_our_int8() -> None:
    peers = driver()
    run = a_run(peers, {registry.FLOAT.name: 3.0, ORT: 1.0, NNCF: 1.2})
    assert run.faster(NNCF, 1, 64).median == pytest.approx(1.2)
    assert f"| {ORT} | " in peers.table(run, 1)
    told = peers.document(run)
    assert told["backends"][ORT]["times"][0]["times_int8"]["median"] == 1.0
    assert told["backends"][NNCF]["times"][0]["times_int8"]["median"] == pytest.approx(1.2)


def test_each_of_our_ways_opens_a_folder_of_its_own(tmp_path: Path) -> None:
    folders = [ours.files(a_source(tmp_path), tmp_path, backend.variant) for backend in (registry.FLOAT, registry.INT8)]
    assert folders == [[tmp_path / name / "model.onnx"] for name in ("float", "int8")]


def test_ways_name_ways_that_there_are() -> None:
    names = [backend.name for backend in registry.BACKENDS]
    assert len(set(names)) == len(names)
    assert {backend.float_backend for backend in registry.BACKENDS} - {None} <= set(names)
    assert registry.BACKENDS[0] is registry.FLOAT  # what the others have to agree with
    folder = Path(registry.__file__).parent
    assert all((folder / f"{backend.module}.py").is_file() for backend in registry.BACKENDS)


def test_a_source_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = a_source(tmp_path)
    source.save(written)
    assert source.load(tmp_path) == written


def test_texts_of_a_length_are_beginnings(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("label\ttext\n" + "1\t很好很好\n0\t差\n1\t不错啊\n", encoding="utf-8")
    assert a_source(tmp_path).calibration() == ["很好很好", "差"]
    texts = [text for text, _ in source.read(tmp_path / "train.tsv")]
    assert source.of_length(texts, 3, 2) == ["很好很", "不错啊"]
    with pytest.raises(ValueError, match="only 1 of 3"):
        source.of_length(texts, 4, 2)


def test_a_model_in_parts_answers_with_its_own_tokens() -> None:
    model = InParts(lambda text: [1, len(text), 2], lambda ids: (0.25, ids[1]), lambda ids: ids)
    assert model.ids("很好") == [1, 2, 2]
    assert model.logits("很好") == [0.25, 2.0]
    assert min(model.timed("很好")) >= 0


PEER = """
from pathlib import Path
from peers.model import InParts

def prepare(source, out):
    (out / "file").write_bytes(b"12345")

def files(source, out, variant):
    return [out / "file"]

def open_model(source, out, variant, threads):
    if variant == "broken":
        raise RuntimeError("it is broken")
    print("a library that prints")
    return InParts(lambda text: [len(text)], lambda ids: [threads, ids[0]], lambda ids: ids)
"""


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> registry.Backend:
    """A backend whose module lies outside the package, as a namespace of the same name would have it."""
    source.save(a_source(tmp_path))
    package = tmp_path / "path" / "peers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"__path__.append({str(Path(process.__file__).parent)!r})\n", encoding="utf-8")
    (package / "made_up.py").write_text(PEER, encoding="utf-8")
    monkeypatch.setattr(process, "HERE", tmp_path / "path")
    return registry.Backend("made up", "made_up", "whole")


PYTHONS: dict[registry.Environment, str] = {"peers": sys.executable, "paddle26": "/nowhere/python"}


def test_a_backend_is_made_opened_and_asked_in_its_own_process(peer: registry.Backend, tmp_path: Path) -> None:
    out, log = tmp_path / "made_up", tmp_path / "log"
    process.prepare(peer, PYTHONS, tmp_path, out, log)
    opened = process.serve(peer, PYTHONS, tmp_path, out, 1, log)
    assert opened.file_bytes == 5
    assert opened.ids(["很好", "差"]) == [[2], [1]]
    assert opened.logits(["很好"]) == [[1.0, 2.0]]
    burst = opened.time(["很好", "差"], uncounted=1)
    assert len(burst.total_ms) == 2
    opened.close()
    assert "a library that prints" in log.read_text(encoding="utf-8")


def test_a_backend_that_fails_says_why(peer: registry.Backend, tmp_path: Path) -> None:
    out, log = tmp_path / "made_up", tmp_path / "log"
    process.prepare(peer, PYTHONS, tmp_path, out, log)
    with pytest.raises(BackendFailed, match="it is broken"):
        process.serve(replace(peer, variant="broken"), PYTHONS, tmp_path, out, 1, log)
    with pytest.raises(BackendFailed, match="there is no /nowhere/python"):
        process.serve(replace(peer, run_in="paddle26"), PYTHONS, tmp_path, out, 1, log)


def test_a_burst_adds_its_parts() -> None:
    assert Burst((1.0, 2.0), (3.0, 4.0), 5.0).total_ms == [4.0, 6.0]
