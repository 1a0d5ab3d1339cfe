from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.bundle import locks, wheels
from edgepack.errors import EnvironmentUnfitError
from edgepack.targets import package_data, profiles

KNOWN = profiles.load_profiles()
DIGEST = "a" * 64
PRINTED = "".join(f"{name}==9.9 --hash=sha256:{DIGEST}\n" for name in ("numpy", "onnxruntime", "tokenizers"))


def option(lock: locks.Lock, name: str) -> str:
    return lock.command[lock.command.index(name) + 1]


@pytest.mark.parametrize(
    ("name", "platform", "python"),
    [
        ("jetpack5", "aarch64-manylinux_2_31", "3.8"),
        ("jetpack6-cpu", "aarch64-manylinux_2_35", "3.10"),
        ("rpi-bookworm", "aarch64-manylinux_2_36", "3.11"),
        ("ubuntu24.04-x86_64", "x86_64-manylinux_2_39", "3.12"),
    ],
)
def test_uv_resolves_for_the_target(name: str, platform: str, python: str) -> None:
    engine, serve = locks.locks_of(KNOWN[name])
    assert (engine.wanted.name, serve.wanted.name) == ("onnxruntime.in", "serve.in")
    for lock in (engine, serve):
        assert option(lock, "--python-platform") == platform
        assert option(lock, "--python-version") == python
        assert {"--generate-hashes", "--no-deps"} <= set(lock.command)


def test_a_glibc_that_uv_does_not_know_is_rounded_down() -> None:
    for glibc, minor in (("2.29", 28), ("2.30", 28), ("2.41", 40), ("2.17", 17)):
        lock = locks.locks_of(replace(KNOWN["rpi-bookworm"], glibc=glibc))[0]
        assert option(lock, "--python-platform") == f"aarch64-manylinux_2_{minor}"


def test_every_lock_that_ships_is_of_what_its_input_names() -> None:
    for profile in KNOWN.values():
        for lock in locks.locks_of(profile):
            assert lock.wanted.is_file(), lock
            assert lock.file.is_file(), lock
            wanted = {
                line.split("=")[0].split(" ")[0]
                for line in lock.wanted.read_text(encoding="utf-8").splitlines()
                if line and not line.startswith("#")
            }
            locked = wheels.parse_lock(lock.file.read_text(encoding="utf-8"), profile)
            assert {package.name for package in locked} <= wanted


def test_the_lock_of_a_users_profile_lies_beside_its_file(tmp_path: Path) -> None:
    profile = replace(KNOWN["rpi-bookworm"], locks=tmp_path / "edgepack-locks")
    before = package_data.text("locks", "onnxruntime-cp311.txt")
    asked: list[Sequence[str]] = []

    def resolve(command: Sequence[str], folder: Path) -> str:
        asked.append(command)
        return PRINTED

    lock = locks.locks_of(profile)[0]
    assert locks.write(profile, lock, resolve) == ("numpy==9.9", "onnxruntime==9.9", "tokenizers==9.9")
    assert lock.file == tmp_path / "edgepack-locks/onnxruntime-cp311.txt"
    assert lock.file.read_text(encoding="utf-8").startswith("# Wheels of onnxruntime.in for CPython 3.11.")
    assert wheels.locked_for(profile)[0].version == "9.9"
    assert package_data.text("locks", "onnxruntime-cp311.txt") == before
    (tmp_path / "edgepack-locks/onnxruntime.in").write_text("numpy\n", encoding="utf-8")
    assert locks.locks_of(profile)[0].wanted == tmp_path / "edgepack-locks/onnxruntime.in"


def test_comments_at_the_top_stay_and_what_is_no_lock_replaces_none(tmp_path: Path) -> None:
    profile = replace(KNOWN["rpi-bookworm"], locks=tmp_path)
    lock = locks.locks_of(profile)[0]
    lock.file.write_text("# mine\n# own\nnumpy==1.0\n", encoding="utf-8")
    locks.write(profile, lock, lambda command, folder: PRINTED)
    assert lock.file.read_text(encoding="utf-8") == f"# mine\n# own\n{PRINTED}"
    for printed in ("", f"# scheme://somewhere\n{PRINTED}", "numpy==1.0\n"):
        with pytest.raises(EnvironmentUnfitError):
            locks.write(profile, lock, lambda command, folder, printed=printed: printed)
        assert lock.file.read_text(encoding="utf-8") == f"# mine\n# own\n{PRINTED}"


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("rpi-bookworm", "onnxruntime"),
        ("ubuntu24.04-x86_64-cuda13", "onnxruntime-gpu"),
    ],
)
def test_a_lock_without_what_every_bundle_needs_is_none(tmp_path: Path, name: str, lacking: str) -> None:
    profile = replace(KNOWN[name], locks=tmp_path)
    engine, serve = locks.locks_of(profile)
    printed = f"numpy==9.9 --hash=sha256:{DIGEST}\n"
    with pytest.raises(EnvironmentUnfitError, match=f"(?m)would lack {lacking}$") as caught:
        locks.write(profile, engine, lambda command, folder: printed)
    assert str(engine.wanted) in caught.value.fix
    assert not engine.file.exists()
    assert locks.write(profile, serve, lambda command, folder: printed) == ("numpy==9.9",)


def test_without_uv_the_error_has_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    profile = replace(KNOWN["rpi-bookworm"], locks=tmp_path)
    with pytest.raises(EnvironmentUnfitError) as caught:
        locks.write(profile, locks.locks_of(profile)[0])
    assert "uv pip compile onnxruntime.in --python-platform aarch64-manylinux_2_36" in caught.value.fix
