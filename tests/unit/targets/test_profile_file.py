from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.errors import RecipeInvalidError
from edgepack.targets import profile_file, profiles

GOOD = """\
[kiosk]
summary = "the kiosk in the hall"
machine = "aarch64"
glibc = "2.36"
glibcxx = "3.4.30"
python = "3.11"
lock = "onnxruntime-cp311.txt"
"""


def findings(folder: Path, text: str) -> list[str]:
    file = folder / "own.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        profiles.load_profiles(file)
    return [f"{finding.line}: {finding.reason} -> {finding.fix}" for finding in caught.value.findings]


def test_a_profile_of_ones_own_stands_beside_the_others(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(GOOD, encoding="utf-8")
    found = profiles.load_profiles(file)
    assert set(found) == {"kiosk", *profiles.load_profiles()}
    assert list(found) == sorted(found)
    kiosk, like = found["kiosk"], found["rpi-bookworm"]
    assert (kiosk.elf_machine, kiosk.elf_bits, kiosk.pythons) == (like.elf_machine, like.elf_bits, ("3.11",))
    assert (kiosk.lock, kiosk.by_path, kiosk.provider) == (like.lock, False, "CPUExecutionProvider")
    assert kiosk.locks == tmp_path / "edgepack-locks"
    assert like.locks is None


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("glibc =", "glibcc =", "4: unknown key `glibcc` in `kiosk` -> did you mean `glibc`?"),
        ("glibc =", "glibcc =", "1: `kiosk` lacks `glibc`"),
        ('glibc = "2.36"', 'glibc = "3.0"', "4: `glibc` in `kiosk` cannot be '3.0'"),
        ('glibc = "2.36"', 'glibc = "2.99999999999"', "4: `glibc` in `kiosk` cannot be '2.99999999999'"),
        ('python = "3.11"', 'python = "3.7"', "6: `python` in `kiosk` cannot be '3.7'"),
        ('python = "3.11"', "python = 3.11", "6: `python` in `kiosk` cannot be 3.11"),
        (
            'python = "3.11"',
            'python = "3.11"\nisa = [\n"avx 2"]',
            "7: `isa` in `kiosk` cannot be 'avx 2' -> write a list",
        ),
        (
            'python = "3.11"',
            'python = "3.11"\nisa = ["avx2", "avx512vnni"]',
            "7: `isa` in `kiosk`: 'avx512vnni' is not a flag that edgepack looks at -> did you mean `avx512_vnni`?",
        ),
        (
            'python = "3.11"',
            'python = "3.11"\nisa = ["tsc"]',
            "7: `isa` in `kiosk`: 'tsc' is not a flag that edgepack looks at -> take it out; known are `sse4_2`",
        ),
        ('"aarch64"', '"riscv64"', "3: `machine` in `kiosk` cannot be 'riscv64'"),
        ("[kiosk]", "[Kiosk]", "1: `Kiosk` cannot be a target's name"),
        ("[kiosk]", "[jetpack6]", "1: `jetpack6` is a profile of this version"),
        ("lock =", "by_path = true\nlock =", "7: `kiosk` takes a wheel for a GPU by path, and lacks `cuda`"),
        ("onnxruntime-cp311.txt", "../secret.txt", "7: `lock` in `kiosk` cannot be"),
        ("lock =", "locks =", "7: unknown key `locks` in `kiosk` -> did you mean"),
        (
            "lock =",
            "engines =",
            "7: unknown key `engines` in `kiosk` -> write `lock` and `by_path` in the profile itself",
        ),
        ("[kiosk]", "other = 3\n[kiosk]", "1: `other` is a value"),
        ("[kiosk]", "[kiosk", "None: it is not TOML"),
    ],
)
def test_what_is_wrong_is_told_by_key(tmp_path: Path, old: str, new: str, finding: str) -> None:
    assert any(finding in found for found in findings(tmp_path, GOOD.replace(old, new, 1)))


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("glibc =", "glibcc =") + GOOD.replace("kiosk", "second").replace("3.11", "2.7", 1)
    found = findings(tmp_path, text)
    assert [line.split(":")[0] for line in found] == ["1", "4", "13"]


@given(st.text() | st.text("[]a=\"'.\n1kiosk", max_size=60))
def test_any_text_is_a_file_of_profiles_or_clear_findings(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("own") / "own.toml"
    file.write_text(text, encoding="utf-8", newline="")
    try:
        profile_file.read(file, ())
    except RecipeInvalidError as error:
        assert all(finding.fix for finding in error.findings)


def test_a_lock_of_its_own_comes_before_the_one_of_edgepack(tmp_path: Path) -> None:
    from edgepack.bundle import wheels

    file = tmp_path / "own.toml"
    file.write_text(GOOD, encoding="utf-8")
    kiosk = profiles.load_profiles(file)["kiosk"]
    assert "onnxruntime" in {one.name for one in wheels.locked_for(kiosk)}
    (tmp_path / "edgepack-locks").mkdir()
    (tmp_path / "edgepack-locks/onnxruntime-cp311.txt").write_text(f"mine==1.0 --hash=sha256:{'a' * 64}\n")
    assert [one.name for one in wheels.locked_for(kiosk)] == ["mine"]
