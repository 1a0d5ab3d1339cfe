"""The target's wheels: locked by hash, fetched once into a cache, the cache checked on every use.

A wheel lies at `<cache>/wheels/<sha256>/<file name>`. pip does the fetching, from whatever index, mirror or
folder the user's pip configuration names; this module decides what, by hash, and never trusts what came back.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from edgepack.digest import sha256_file
from edgepack.errors import EnvironmentUnfitError
from edgepack.progress import Progress
from edgepack.targets import facts
from edgepack.targets.profiles import Profile

Download = Callable[[Path, Path], None]
CACHE_VARIABLE = "EDGEPACK_CACHE"
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\Z")
_PIP_SAID_BYTES = 1500  # the end of pip's output holds the cause


@dataclass(frozen=True)
class Locked:
    """One package of a lock: canonical name, exact version, and the sha256 of every wheel that may be it."""

    name: str
    version: str
    sha256: frozenset[str]


def default_cache() -> Path:
    """`$EDGEPACK_CACHE`, else `$XDG_CACHE_HOME/edgepack`, else `~/.cache/edgepack`."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "edgepack"


def fetch(
    profile: Profile,
    engine: str,
    cache: Path,
    progress: Progress,
    *,
    serve: bool = False,
    download: Download | None = None,
) -> list[Path]:
    """The wheels of one of the profile's engines, sorted by package name, each with a hash that the lock names.

    Args:
        profile: the target; its `python` evaluates the markers of the packages.
        engine: one of those that the profile has; its `lock` decides the packages.
        cache: edgepack's cache folder (`default_cache()`); wheels lie in `wheels/` below it.
        progress: gets one step a package.
        serve: those that the verb `serve` needs as well.
        download: puts the wheels of a requirements file (first argument) into a folder (second); pip, unless
            given.

    Raises:
        EnvironmentUnfitError: a wheel is neither in the cache nor to be had, the lock is damaged, or there is no
            server for this target.
    """
    store = cache / "wheels"
    locks = [facts.text("locks", name) for name in _locks(profile, engine, serve=serve)]
    locked = [package for text in locks for package in parse_lock(text, profile)]
    tags = _tags(profile)
    with progress.task(f"wheels for {profile.name}", len(locked)) as task:
        found: dict[str, Path] = {}
        for package in locked:
            wheel = _cached(package, store, tags, progress)
            if wheel is not None:
                found[package.name] = wheel
                task.advance(1, wheel.name)
        missing = [package for package in locked if package.name not in found]
        if missing:
            found.update(_download(missing, store, profile, download or pip_download))
            task.advance(len(missing), "fetched")
    return [found[name] for name in sorted(found)]


def _locks(profile: Profile, engine: str, *, serve: bool) -> list[str]:
    if serve and not profile.serve_lock:
        raise EnvironmentUnfitError(
            f"target {profile.name} has no wheels for `serve: true`", fix="take that out of the recipe"
        )
    return [profile.engines[engine].lock, *([profile.serve_lock] if serve else [])]


def parse_lock(text: str, profile: Profile) -> tuple[Locked, ...]:
    """The packages of a hash-locked requirements file whose markers hold on the target.

    Only what a lock needs is understood: `name==version ; marker` and `--hash=sha256:`. Any other option, a
    package without a hash, or a version that is not exact makes the file invalid: nothing unlocked gets in.

    Raises:
        EnvironmentUnfitError: naming the line.
    """
    environment = _marker_environment(profile)
    packages: dict[str, Locked] = {}
    for line in _logical_lines(text):
        package = _locked(line, environment)
        if package is None:
            continue
        if package.name in packages:
            raise _damaged(line, "the package stands twice for this target")
        packages[package.name] = package
    return tuple(packages[name] for name in sorted(packages))


def pip_download(requirements: Path, folder: Path) -> None:
    """Run this interpreter's pip so that the wheels of `requirements` lie in `folder`.

    Raises:
        EnvironmentUnfitError: with the end of what pip said.
    """
    command = [sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps"]
    command += ["--only-binary=:all:", "--no-input", "-r", str(requirements), "-d", str(folder)]
    # In `folder`, because `python -m` looks for pip in the current folder first.
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise EnvironmentUnfitError(
            "pip could not fetch the target's wheels",
            why=(done.stdout + done.stderr)[-_PIP_SAID_BYTES:].strip(),
        )


def _logical_lines(text: str) -> Iterable[str]:
    """Lines joined at a trailing backslash, comments and blank ones left out."""
    whole = ""
    for line in text.splitlines():
        part = line.strip()
        if not whole and (not part or part.startswith("#")):
            continue
        whole += " " + part.removesuffix("\\")
        if not part.endswith("\\"):
            yield whole.strip()
            whole = ""
    if whole:
        yield whole.strip()


def _locked(line: str, environment: dict[str, str]) -> Locked | None:
    """The package that a logical line locks; null when its marker does not hold."""
    text, *options = re.split(r"\s(?=--)", line)
    hashes = [_HASH.match(option.strip()) for option in options]
    if not hashes or None in hashes:
        raise _damaged(line, "every package needs hashes, all `--hash=sha256:`, and no other option")
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise _damaged(line, str(error)) from error
    pins = list(requirement.specifier)
    exact = len(pins) == 1 and pins[0].operator == "==" and "*" not in pins[0].version
    if not exact or requirement.url or requirement.extras:
        raise _damaged(line, "a package is locked as `name==version`")
    if requirement.marker is not None and not requirement.marker.evaluate(environment):
        return None
    digests = frozenset(match.group(1) for match in hashes if match is not None)
    return Locked(canonicalize_name(requirement.name), pins[0].version, digests)


def _marker_environment(profile: Profile) -> dict[str, str]:
    """What environment markers see on the target, whatever runs here."""
    environment = {key: str(value) for key, value in default_environment().items()}
    return {
        **environment,
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_machine": profile.machine,
        "platform_python_implementation": "CPython",
        "platform_system": profile.system,
        "python_full_version": profile.python + ".0",
        "python_version": profile.python,
        "sys_platform": profile.system.lower(),
    }


def _tags(profile: Profile) -> dict[Tag, int]:
    """Wheel tags that load on the target, with their rank: the lowest is the best fit."""
    major, minor = (int(part) for part in profile.python.split("."))
    platforms = list(platform_tags())
    ordered = [*cpython_tags((major, minor), platforms=platforms)]
    ordered += compatible_tags((major, minor), f"cp{major}{minor}", platforms)
    return {tag: rank for rank, tag in reversed(list(enumerate(ordered)))}


def _cached(package: Locked, store: Path, tags: dict[Tag, int], progress: Progress) -> Path | None:
    """The best fitting undamaged wheel of `package` in the store; a damaged one is deleted."""
    ranked: list[tuple[int, Path]] = []
    for digest in sorted(package.sha256):
        for wheel in sorted((store / digest).glob("*.whl")):
            rank = _rank(wheel, tags)
            if rank is None:
                continue
            if sha256_file(wheel) == digest:
                ranked.append((rank, wheel))
            else:
                wheel.unlink()
                progress.line(f"cached wheel {wheel.name} is damaged and will be fetched anew")
    return min(ranked)[1] if ranked else None


def _rank(wheel: Path, tags: dict[Tag, int]) -> int | None:
    try:
        fits = parse_wheel_filename(wheel.name)[3]
    except InvalidWheelFilename:
        return None
    return min((tags[tag] for tag in fits if tag in tags), default=None)


def _download(missing: list[Locked], store: Path, profile: Profile, download: Download) -> dict[str, Path]:
    """Fetch `missing` and move each wheel into the store, under the digest that was computed here."""
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentUnfitError(
            f"the wheel cache {store} cannot be made",
            why=f"{error.strerror}: {error.filename}",
            fix=f"set {CACHE_VARIABLE} to a folder that can be written",
        ) from error
    found: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=store) as temporary:
        arrived = Path(temporary, "wheels")
        arrived.mkdir()
        subset = Path(temporary, "requirements.txt")
        subset.write_text("".join(_requirement(package) for package in missing), encoding="utf-8")
        try:
            download(subset, arrived)
        except EnvironmentUnfitError as error:
            raise _not_to_be_had(missing, store, profile, error.why or error.what) from error
        by_digest = {sha256_file(wheel): wheel for wheel in sorted(arrived.glob("*.whl"))}
        for package in missing:
            digests = sorted(package.sha256 & by_digest.keys())
            if not digests:
                raise _not_to_be_had([package], store, profile, "what came has none of the locked hashes")
            wheel = by_digest[digests[0]]
            place = store / digests[0] / wheel.name
            place.parent.mkdir(exist_ok=True)
            wheel.replace(place)
            found[package.name] = place
    return found


def _requirement(package: Locked) -> str:
    hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(package.sha256))
    return f"{package.name}=={package.version}{hashes}\n"


def _damaged(line: str, why: str) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(f"the wheel lock is damaged at {line[:80]!r}", why=why, fix="install edgepack anew")


def _not_to_be_had(missing: list[Locked], store: Path, profile: Profile, why: str) -> EnvironmentUnfitError:
    names = ", ".join(f"{package.name}=={package.version}" for package in missing)
    return EnvironmentUnfitError(
        f"wheels of target {profile.name} are neither in the cache nor to be had: {names}",
        why=why,
        fix=(
            f"connect this machine to a package index and run the command again; or copy the folder {store} "
            f"from a machine that has built for this target with CPython {profile.python}; or put the wheels "
            "into a folder and name it in PIP_FIND_LINKS"
        ),
    )
