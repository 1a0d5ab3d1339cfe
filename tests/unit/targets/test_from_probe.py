from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.errors import RecipeInvalidError, UsageError
from edgepack.targets import from_probe, profile_file, profiles
from edgepack_runtime.device import probe

ORIN: dict[str, Any] = {
    "edgepack_probe": 1, "system": "Linux", "machine": "aarch64", "libc": "glibc 2.35", "libstdcxx": "3.4.30",
    "distribution": {"name": "Ubuntu 22.04.5 LTS", "version": "22.04"}, "board": "NVIDIA Jetson Orin NX",
    "cpu_flags": ["asimd", "asimddp"],
    "python": {"version": "3.10.12", "implementation": "CPython", "bits": 64, "abi_flags": ""},
    "gpu": {"name": "Orin", "sm": "8.7", "driver": "12.6", "memory_mib": 7619}, "cuda_runtime": "12.6",
    "jetson": {"l4t": "36.4.3", "jetpack": "6.2", "power_mode": "MAXN (0)"},
}  # fmt: skip
SERVER = {
    **ORIN, "machine": "x86_64", "jetson": None, "board": None,
    "gpu": {"name": "NVIDIA H200", "sm": "9.0", "driver": "13.0", "memory_mib": 144000},
}  # fmt: skip


def added(folder: Path, facts: dict[str, Any], name: str, *, gpu: bool = False) -> profiles.Profile:
    file = folder / "own.toml"
    from_probe.add(file, name, from_probe.table_of(from_probe.facts_of(facts), gpu=gpu), {})
    return profile_file.load_profiles(file)[name]


def test_an_orin_is_like_the_profile_of_its_jetpack(tmp_path: Path) -> None:
    known = profile_file.load_profiles()
    for gpu, like in ((False, known["linux-aarch64"]), (True, known["jetpack6"])):
        made = added(tmp_path, ORIN, f"orin-{gpu}".lower(), gpu=gpu)
        for key in ("machines", "interpreter", "glibc", "glibcxx", "lock", "by_path", "cuda"):
            assert getattr(made, key) == getattr(like, key), key
    assert made.jetpack == "6"
    assert made.isa == ("asimd", "asimddp")
    assert made.summary.startswith("Ubuntu 22.04.5 LTS on NVIDIA Jetson Orin NX, its Orin; from a probe")


@pytest.mark.parametrize(
    ("flags", "isa"),
    [(["asimd", "asimddp"], ("asimd", "asimddp")), ([], ()), (None, None), ("asimd", None), ([7, "!", "avx9"], ())],
)
def test_what_its_cpu_has_is_taken_over(tmp_path: Path, flags: Any, isa: tuple[str, ...] | None) -> None:
    assert added(tmp_path, {**ORIN, "cpu_flags": flags}, "orin").isa == isa


def test_a_server_carries_cuda_of_its_driver(tmp_path: Path) -> None:
    made = added(tmp_path, SERVER, "hall.server", gpu=True)
    assert made.cuda == profiles.Cuda("13.0", ("90",))
    assert made.lock == "onnxruntime-cuda13.txt"
    assert (made.by_path, made.interpreter) == (False, "host")
    older = added(tmp_path, {**SERVER, "gpu": {**SERVER["gpu"], "driver": "12.4"}}, "older", gpu=True)
    assert older.lock == "onnxruntime-cuda12.txt"


@pytest.mark.parametrize("libc", ["musl 1.2", "glibc 2.17", ""])
def test_a_cpu_target_needs_no_c_library(tmp_path: Path, libc: str) -> None:
    assert added(tmp_path, {**ORIN, "libc": libc, "libstdcxx": None, "python": None}, "old").interpreter == "bundled"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"system": "Darwin"}, "it runs Darwin"),
        ({"machine": "riscv64"}, "riscv64"),
        ({"libc": "musl 1.2"}, "musl 1.2"),
        ({"libc": ""}, "unknown"),
        ({"libstdcxx": None}, "libstdc++"),
    ],
)
def test_a_device_that_no_bundle_can_be_for(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_probe.table_of(from_probe.facts_of({**ORIN, **change}), gpu=True)
    assert why in caught.value.why


def test_a_gpu_that_is_not_there_is_not_promised() -> None:
    with pytest.raises(UsageError, match="GPU profile"):
        from_probe.table_of(from_probe.facts_of({**ORIN, "gpu": None}), gpu=True)


def test_the_probe_of_this_machine_is_read(tmp_path: Path) -> None:
    file = tmp_path / "probe.json"
    file.write_bytes(probe.dump(probe.collect()))
    assert from_probe.read_probe(file) == from_probe.facts_of(json.loads(file.read_bytes()))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"edgepack_probe": 2}', "[" * 100_000, "\udcff"])
def test_what_is_no_probe_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "probe.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match="not a probe file"):
        from_probe.read_probe(file)


def test_a_name_is_used_once_and_a_refusal_leaves_the_file_alone(tmp_path: Path) -> None:
    added(tmp_path, ORIN, "orin")
    before = (tmp_path / "own.toml").read_bytes()
    table = from_probe.table_of(from_probe.facts_of(ORIN), gpu=False)
    for name, taken in (("orin", {"orin": 1}), ("No Name", {})):
        with pytest.raises(UsageError):
            from_probe.add(tmp_path / "own.toml", name, table, taken)
    assert (tmp_path / "own.toml").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["own.toml"]


def test_a_profile_is_not_written_through_a_planted_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("# mine")
    for planted in ("own.toml", ".own.toml.tmp"):
        (tmp_path / planted).symlink_to(tmp_path / "victim")
    added(tmp_path, ORIN, "orin")
    assert (tmp_path / "victim").read_text() == "# mine"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(ORIN)), anything, st.booleans())
def test_a_damaged_probe_is_a_profile_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any, gpu: bool
) -> None:
    for facts in ({**ORIN, key: value}, {**SERVER, key: value}):
        try:
            assert added(tmp_path_factory.mktemp("own"), facts, "some", gpu=gpu).machines in (("aarch64",), ("x86_64",))
        except (UsageError, RecipeInvalidError) as error:
            assert error.why


@given(st.text(max_size=80), st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True))
def test_whatever_a_device_is_called_the_file_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, distribution: str, name: str
) -> None:
    facts = json.loads(json.dumps({**ORIN, "distribution": {"name": distribution, "version": "1"}}))
    made = added(tmp_path_factory.mktemp("own"), facts, name)
    assert made.name == name
    assert made.summary.isprintable() or any(not character.isprintable() for character in distribution)
