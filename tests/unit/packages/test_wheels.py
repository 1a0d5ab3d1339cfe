from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.errors import EnvironmentUnfitError
from edgepack.packages import wheels
from edgepack.packages.target_spec import TargetSpec
from edgepack.progress import SILENT
from edgepack.targets import package_data
from edgepack.targets.context import BuildContext
from edgepack.targets.profiles import Profile
from edgepack.targets.tags import Python

MakeWheel = Callable[..., Path]
UseLock = Callable[[str], None]
Fetch = Callable[..., list[Path]]
DIGEST = "a" * 64


@pytest.fixture(autouse=True)
def small_locks_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two wheels are enough to see how they are had; what a bundle needs is `test_wheels_required.py`'s matter."""
    monkeypatch.setattr(wheels, "require", lambda *names, **options: None)


def lock_of(*files: Path) -> str:
    return "".join(f"{'=='.join(file.name.split('-')[:2])} \\\n    --hash=sha256:{digest_of(file)}\n" for file in files)


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def use_lock(monkeypatch: pytest.MonkeyPatch) -> UseLock:
    return lambda text: monkeypatch.setattr(package_data, "text", lambda *path: text)


class Index:
    """Stands in for pip: serves wheels of a folder whose hash the requirements name, and counts calls."""

    def __init__(self, *files: Path) -> None:
        self.files = files
        self.calls: list[str] = []

    def __call__(self, requirements: Path, folder: Path, profile: Profile, python: Python | None) -> None:
        text = requirements.read_text(encoding="utf-8")
        self.calls.append(text)
        for file in self.files:
            if digest_of(file) in text:
                shutil.copy(file, folder)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def fetch(cache: Path, profile: Profile) -> Fetch:
    """Fetches what the locks of a target name: `fetch(index, offline=, given=, serve=, target=)`."""

    def run(
        download: wheels.Download = Index(),  # noqa: B008 (it serves nothing)
        *,
        offline: bool = False,
        given: tuple[Path, ...] = (),
        serve: bool = False,
        target: Profile = profile,
    ) -> list[Path]:
        context = BuildContext({}, cache, offline=offline, given={target.name: given} if given else {})
        return list(wheels.fetch(TargetSpec(target, serve=serve), context, SILENT, download=download))

    return run


@pytest.fixture
def two(make_wheel: MakeWheel) -> tuple[Path, Path]:
    return make_wheel({"a.py": "1"}, name="aaa"), make_wheel({"b.py": "2"}, name="bbb")


def test_a_wheel_is_fetched_once_by_its_hash_and_then_found(
    two: tuple[Path, Path], use_lock: UseLock, fetch: Fetch, cache: Path
) -> None:
    one, other = two
    use_lock(lock_of(one))
    fetch(Index(one))
    use_lock(lock_of(other, one))
    index = Index(*two)
    found = fetch(index)
    assert [path.name for path in found] == [one.name, other.name]
    assert [path.parent.name for path in found] == [digest_of(one), digest_of(other)]
    assert index.calls == [f"bbb==1.0 \\\n    --hash=sha256:{digest_of(other)}\n"]
    assert fetch(index) == found
    assert len(index.calls) == 1
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []


def test_what_came_stays_when_the_next_cannot_be_had(two: tuple[Path, Path], use_lock: UseLock, fetch: Fetch) -> None:
    use_lock(lock_of(*two))
    with pytest.raises(EnvironmentUnfitError, match=r"(?m): bbb==1\.0$"):
        fetch(Index(two[0]))
    index = Index(two[1])
    fetch(index)
    assert len(index.calls) == 1


def test_what_serves_comes_from_a_lock_of_its_own(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, fetch: Fetch, profile: Profile
) -> None:
    locks = {profile.lock: lock_of(two[1]), "serve.txt": lock_of(two[0])}
    monkeypatch.setattr(package_data, "text", lambda folder, name: locks[name])
    assert [path.name for path in fetch(Index(*two), serve=True)] == [file.name for file in two]
    assert [path.name for path in fetch()] == [two[1].name]


def test_a_damaged_cached_wheel_is_fetched_again_and_offline_is_missing_and_stays(
    make_wheel: MakeWheel, use_lock: UseLock, fetch: Fetch
) -> None:
    """A cache may be on a stick that cannot be written."""
    wheel = make_wheel({"a.py": "1"})
    use_lock(lock_of(wheel))
    index = Index(wheel)
    (cached,) = fetch(index)
    content = bytearray(cached.read_bytes())
    content[len(content) // 2] ^= 1
    cached.write_bytes(content)
    with pytest.raises(EnvironmentUnfitError, match="could not be downloaded"):
        fetch(offline=True)
    assert cached.read_bytes() == content
    (again,) = fetch(index)
    assert again.read_bytes() == wheel.read_bytes()
    assert len(index.calls) == 2


def test_offline_never_asks_pip(two: tuple[Path, Path], use_lock: UseLock, fetch: Fetch) -> None:
    use_lock(lock_of(two[0]))
    fetch(Index(two[0]))
    index = Index(*two)
    assert fetch(index, offline=True)[0].name == two[0].name
    use_lock(lock_of(*two))
    with pytest.raises(EnvironmentUnfitError, match=r"bbb==1\.0") as caught:
        fetch(index, offline=True)
    assert "without --offline" in caught.value.fix
    assert index.calls == []


def test_a_cache_that_takes_no_wheel_is_an_error(
    make_wheel: MakeWheel, use_lock: UseLock, fetch: Fetch, cache: Path
) -> None:
    wheel = make_wheel({"a.py": "1"})
    use_lock(lock_of(wheel))
    cache.mkdir()
    (cache / digest_of(wheel)).write_bytes(b"a file where a folder is to be")
    with pytest.raises(EnvironmentUnfitError, match="cannot be written") as caught:
        fetch(Index(wheel))
    assert "--wheel-cache" in caught.value.fix


def test_a_wheel_with_another_hash_or_for_another_machine_never_enters_the_cache(
    make_wheel: MakeWheel, use_lock: UseLock, fetch: Fetch, cache: Path, profile: Profile
) -> None:
    """A lock may name one of another machine: locks name the wheels of all platforms."""
    wheel = make_wheel({"a.py": "1"})
    use_lock(f"fakelib==1.0 --hash=sha256:{DIGEST}")
    with pytest.raises(EnvironmentUnfitError, match=r"fakelib==1\.0"):
        fetch(lambda requirements, folder, profile, python: shutil.copy(wheel, folder))
    foreign = make_wheel({"a.py": "1"}, tag="cp311-cp311-manylinux_2_17_aarch64")
    use_lock(lock_of(foreign))
    with pytest.raises(EnvironmentUnfitError, match="fakelib") as caught:
        fetch(Index(foreign), target=replace(profile, glibc="2.31"))
    assert "does not load on the target" in caught.value.why
    assert not list(cache.rglob("*.whl"))


def test_a_wheel_that_cannot_be_had_is_named_with_what_to_do(use_lock: UseLock, fetch: Fetch, cache: Path) -> None:
    use_lock(f"numpy==2.4.6 --hash=sha256:{DIGEST}")

    def unreachable(requirements: Path, folder: Path, profile: Profile, python: Python | None) -> None:
        raise EnvironmentUnfitError("pip could not", why="no route to host")

    with pytest.raises(EnvironmentUnfitError) as caught:
        fetch(unreachable)
    assert "numpy==2.4.6" in caught.value.what and str(cache) in caught.value.what
    assert caught.value.why == "no route to host"
    assert "edgepack fetch --target test-target --wheel-cache" in caught.value.fix
    assert "PIP_FIND_LINKS" in caught.value.fix


def test_a_wheel_of_another_platform_is_not_taken_from_the_cache(
    make_wheel: MakeWheel, use_lock: UseLock, fetch: Fetch, cache: Path
) -> None:
    tags = ("cp311-cp311-win_amd64", "cp310-abi3-manylinux_2_5_x86_64", "cp39-abi3-manylinux_2_5_x86_64")
    files = [make_wheel({"a.py": tag}, tag=tag) for tag in tags]
    use_lock("fakelib==1.0 " + " ".join(f"--hash=sha256:{digest_of(file)}" for file in files) + "\n")
    for file in files:
        place = cache / digest_of(file) / file.name
        place.parent.mkdir(parents=True)
        shutil.copy(file, place)
    (found,) = fetch()
    assert found.name == files[1].name


def test_a_wheel_by_path_is_taken_instead_of_the_locked_one(
    two: tuple[Path, Path], make_wheel: MakeWheel, use_lock: UseLock, fetch: Fetch
) -> None:
    use_lock(lock_of(*two))
    mine = make_wheel({"a.py": "mine"}, name="aaa", version="2.0")
    index = Index(*two)
    found = fetch(index, given=(mine,))
    assert found[0] == mine
    assert found[1].name == two[1].name
    assert len(index.calls) == 1


def test_pip_is_asked_for_hashed_wheels_of_the_targets_platforms_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pip_download: wheels.Download, profile: Profile
) -> None:
    asked: list[list[str]] = []

    class Done:
        returncode, stdout, stderr = 0, "looking\n", "ERROR: nothing found"

    monkeypatch.setattr(wheels.subprocess, "run", lambda command, **_: (asked.append(command), Done())[1])
    target = replace(profile, machines=("aarch64",), glibc="2.31")
    pip_download(tmp_path / "r.txt", tmp_path, target, (3, 11))
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:"} <= set(asked[0])
    assert not [word for word in asked[0] if re.match("--(extra-)?index|--find|-i$|-f$", word)]
    pairs = list(zip(asked[0], asked[0][1:], strict=False))
    assert {("--python-version", "3.11"), ("--implementation", "cp"), ("--abi", "cp311"), ("--abi", "none")} <= set(
        pairs
    )
    platforms = [value for name, value in pairs if name == "--platform"]
    assert platforms[0] == "manylinux_2_31_aarch64"
    assert platforms[-2:] == ["manylinux2014_aarch64", "linux_aarch64"]
    assert not [value for value in platforms if "x86" in value]
    Done.returncode = 1
    with pytest.raises(EnvironmentUnfitError) as caught:
        pip_download(tmp_path / "r.txt", tmp_path, target, (3, 11))
    assert "nothing found" in caught.value.why
