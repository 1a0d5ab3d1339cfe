from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack.errors import RecipeInvalidError
from edgepack.targets import profile_file

GOOD = """\
[kiosk]
summary = "the kiosk in the hall"
machines = ["aarch64"]
interpreter = "host"
glibc = "2.36"
glibcxx = "3.4.30"
"""


def findings(folder: Path, text: str) -> list[str]:
    file = folder / "own.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RecipeInvalidError) as caught:
        profile_file.load_profiles(file)
    return [f"{finding.line}: {finding.reason} -> {finding.fix}" for finding in caught.value.findings]


def test_a_profile_of_ones_own_stands_beside_the_others(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(GOOD, encoding="utf-8")
    found = profile_file.load_profiles(file)
    assert set(found) == {"kiosk", *profile_file.load_profiles()}
    assert list(found) == sorted(found)
    kiosk, like = found["kiosk"], found["linux-aarch64"]
    assert (kiosk.machines, kiosk.glibc, kiosk.lock) == (like.machines, like.glibc, like.lock)
    assert (kiosk.interpreter, kiosk.is_own, like.is_own) == ("host", True, False)


def test_an_interpreter_is_carried_by_default_with_its_c_library(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[kiosk]\nsummary = "x"\nmachines = ["x86_64", "aarch64"]\n', encoding="utf-8")
    kiosk, like = profile_file.load_profiles(file)["kiosk"], profile_file.load_profiles()["linux"]
    for key in ("machines", "interpreter", "glibc", "glibcxx"):
        assert getattr(kiosk, key) == getattr(like, key)


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("glibc =", "glibcc =", "5: unknown key `glibcc` in `kiosk` -> did you mean `glibc`?"),
        ('glibc = "2.36"\n', "", "1: `kiosk` lacks `glibc`, and carries no C library"),
        ("machines =", "machine =", "3: unknown key `machine` in `kiosk` -> did you mean `machines`?"),
        ("machines =", "machine =", "1: `kiosk` lacks `machines`"),
        ('glibc = "2.36"', 'glibc = "3.0"', "5: `glibc` in `kiosk` cannot be '3.0'"),
        ('glibc = "2.36"', 'glibc = "2.99999999999"', "5: `glibc` in `kiosk` cannot be '2.99999999999'"),
        ('"host"', '"bundle"', '4: `interpreter` in `kiosk` cannot be \'bundle\' -> write "bundled", or "host"'),
        ("glibcxx =", 'isa = [\n"avx 2"]\nglibcxx =', "6: `isa` in `kiosk` cannot be 'avx 2' -> write a list"),
        (
            "glibcxx =",
            'isa = ["avx2", "avx512vnni"]\nglibcxx =',
            "6: `isa` in `kiosk`: 'avx512vnni' is not a flag that edgepack looks at -> did you mean `avx512_vnni`?",
        ),
        (
            "glibcxx =",
            'isa = ["tsc"]\nglibcxx =',
            "6: `isa` in `kiosk`: 'tsc' is not a flag that edgepack looks at -> take it out; known are `sse4_2`",
        ),
        ('["aarch64"]', "[]", "3: `machines` in `kiosk` cannot be []"),
        ("glibcxx =", "name = 3\nglibcxx =", "6: unknown key `name` in `kiosk` -> remove it; it takes `summary`"),
        ("glibcxx =", "by_path = 1\nglibcxx =", "6: `by_path` in `kiosk` cannot be 1 -> write true or false"),
        ("glibcxx =", 'cuda = {version = "12.6"}\nglibcxx =', "6: `kiosk.cuda` lacks `sm` -> write a list"),
        ('"aarch64"', '"riscv64"', "3: `machines` in `kiosk` cannot be 'riscv64'"),
        ("[kiosk]", "[Kiosk]", "1: `Kiosk` cannot be a target's name"),
        ("[kiosk]", "[jetpack6]", "1: `jetpack6` is a profile of this version"),
        ("glibcxx =", "by_path = true\nglibcxx =", "6: `kiosk` takes a wheel for a GPU by path, and lacks `cuda`"),
        ('"host"', '"bundled"\ncuda = {version = "12.6", sm = ["87"]}', "4: `kiosk` has a GPU and would carry"),
        ("glibcxx =", 'lock = "x.txt"\nglibcxx =', "6: unknown key `lock` in `kiosk` -> "),
        ("glibcxx =", 'python = "3.8"\nglibcxx =', "6: unknown key `python` in `kiosk` -> "),
        ("[kiosk]", "other = 3\n[kiosk]", "1: `other` is a value"),
        ("[kiosk]", "[kiosk", "None: it is not TOML"),
    ],
)
def test_what_is_wrong_is_told_by_key(tmp_path: Path, old: str, new: str, finding: str) -> None:
    assert any(finding in found for found in findings(tmp_path, GOOD.replace(old, new, 1)))


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("glibc =", "glibcc =") + GOOD.replace("kiosk", "second").replace("2.36", "4.1", 1)
    found = findings(tmp_path, text)
    assert [line.split(":")[0] for line in found] == ["5", "11"]


@given(st.text() | st.text("[]a=\"'.\n1kiosk", max_size=60))
def test_any_text_is_a_file_of_profiles_or_clear_findings(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("own") / "own.toml"
    file.write_text(text, encoding="utf-8", newline="")
    try:
        profile_file.read(file, ())
    except RecipeInvalidError as error:
        assert all(finding.fix for finding in error.findings)
