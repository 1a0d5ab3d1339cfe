"""The target's wheels: locked by hash, fetched once into a cache, the cache checked on every use.

A wheel lies at `<wheel cache>/<sha256>/<file name>`. pip does the fetching, from whatever index, mirror or
folder the user's pip configuration names; this module decides what, by hash and for which platform, and never trusts
what came back. Wheels that are on no index are given by path.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name

from edgepack.bundle import local_wheels
from edgepack.errors import EnvironmentUnfitError
from edgepack.progress import Progress, Task
from edgepack.targets import package_data, tags
from edgepack.targets.context import BuildContext
from edgepack.targets.downloads import download_folder
from edgepack.targets.profiles import SYSTEM, Profile
from edgepack.util.hashing import sha256_file

SERVE_LOCK: Final = "serve.txt"
SERVING: Final = ("anyio", "click", "h11", "prometheus-client", "starlette", "uvicorn")
_NVIDIA: Final = "nvidia-"  # CUDA and cuDNN, which a device may have itself
_ONNXRUNTIMES: Final = frozenset({"onnxruntime", "onnxruntime-gpu"})


def require(
    carried: Collection[str], profile: Profile, *, serve: bool = False, without_onnxruntime: bool = False
) -> None:
    """Whether the packages `carried` are what a bundle for the profile needs.

    Args:
        carried: canonical names, of locked wheels and of those that are given by path.
        serve: with what the verb `serve` imports.
        without_onnxruntime: its wheel is not needed, or will be given by path later.

    Raises:
        EnvironmentUnfitError: one is missing, or there is a second ONNX Runtime among them.
    """
    own = profile.package
    if not without_onnxruntime:
        _require_all({own} - {*carried}, profile, profile.lock)
    if serve:
        _require_all({*SERVING} - {*carried}, profile, SERVE_LOCK)
    if others := sorted({*carried} & _ONNXRUNTIMES - {own}):
        raise EnvironmentUnfitError(
            f"a bundle for {profile.name} would carry {', '.join(others)}, which it does not run on",
            why=f"the lock {profile.lock} names that besides {own}",
            fix="take it out there",
        )


def _require_all(lacking: Collection[str], profile: Profile, lock: str) -> None:
    if lacking:
        names = ", ".join(sorted(lacking))
        raise EnvironmentUnfitError(
            f"a bundle for {profile.name} would lack {names}",
            why=f"the lock {lock} names none, and nothing else travels",
            fix=f"edgepack targets lock {profile.name}, which makes it anew of the file .in beside it",
        )


Download = Callable[[Path, Path, Profile], None]
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\Z")
_PIP_SAID_BYTES = 1500  # the end of pip's output holds the cause


@dataclass(frozen=True)
class Locked:
    """One package of a lock: canonical name, exact version, and the sha256 of every wheel that may be it."""

    name: str
    version: str
    sha256: frozenset[str]


def fetch(
    profile: Profile,
    context: BuildContext,
    progress: Progress,
    *,
    serve: bool = False,
    engine: bool = True,
    without_given: bool = False,
    download: Download | None = None,
) -> list[Path]:
    """The wheels of the profile, sorted by package name, each with a hash that the lock names.

    Wheels that `context` has by path for this target are taken instead of those of the lock.

    Args:
        profile: the target, with one machine; that and its C library decide which wheels fit, whatever runs here.
        context: where wheels are kept and come from.
        progress: gets one step a package.
        serve: those that the verb `serve` needs as well.
        engine: ONNX Runtime; a linear model runs without it.
        without_given: leave out what has to be given by path and is not, to fill a cache.
        download: puts the wheels of a requirements file (first argument) for a target (third) into a folder
            (second); pip, unless given.

    Raises:
        EnvironmentUnfitError: as `wanted`, or a wheel is neither in the cache nor to be had.
    """
    locked, found = wanted(profile, context, serve=serve, engine=engine, without_given=without_given)
    fitting = tags.ranked(profile)
    with progress.task(f"wheels for {profile.name}", len(locked) + len(found)) as task:
        for name in found:
            task.advance(1, f"{name}, given by path")
        missing: list[Locked] = []
        for package in locked:
            wheel_or_none = _cached(package, context, fitting, progress)
            if wheel_or_none is None:
                missing.append(package)
                continue
            found[package.name] = wheel_or_none
            task.advance(1, wheel_or_none.name)
        if missing and context.offline:
            raise _not_to_be_had(missing, context, profile, "--offline: nothing is fetched")
        if missing:
            with download_folder(context.wheel_cache) as scratch:
                _download_all(missing, found, scratch, context, profile, download or pip_download, task)
    return [found[name] for name in sorted(found)]


def locked_for(profile: Profile, *, serve: bool = False, engine: bool = True) -> tuple[Locked, ...]:
    """What the profile's lock names unless the `engine` is left out, and that of the verb `serve` if it is asked for.

    Raises:
        EnvironmentUnfitError: a lock is not there or damaged.
    """
    names = [*([profile.lock] if engine else []), *([SERVE_LOCK] if serve else [])]
    system = profile.cuda is not None and profile.cuda.libraries == SYSTEM
    return tuple(
        package
        for name in names
        for package in locked_in(name, profile)
        if not (system and package.name.startswith(_NVIDIA))
    )


def locked_in(name: str, profile: Profile) -> tuple[Locked, ...]:
    """What the lock called `name` names for the target.

    Raises:
        EnvironmentUnfitError: it is not there or damaged.
    """
    try:
        text = package_data.text("locks", name)
    except OSError as error:
        raise EnvironmentUnfitError(
            f"target {profile.name} has no lock {name}",
            why="this edgepack has locks for CUDA 12 and 13",
            fix="give the wheel of onnxruntime-gpu by path: `by_path = true` in the profile",
        ) from error
    return parse_lock(text, profile)


def wanted(
    profile: Profile,
    context: BuildContext,
    *,
    serve: bool = False,
    engine: bool = True,
    without_given: bool = False,
) -> tuple[list[Locked], dict[str, Path]]:
    """What of the locks is to be had, and the wheels that are there by path instead. Nothing is fetched.

    Raises:
        EnvironmentUnfitError: a wheel that was given does not fit, or one that has to be given is not; a lock is
            damaged, or does not name what a bundle needs.
    """
    locked = locked_for(profile, serve=serve, engine=engine)
    found: dict[str, Path] = {}
    without_onnxruntime = not engine or (without_given and profile.by_path)
    if not without_onnxruntime:
        given = context.given.get(profile.name, ())
        whole = context.profiles.get(profile.name, profile)  # with all of its machines
        mine = local_wheels.for_machine(given, whole, profile.machine)
        found = local_wheels.checked(mine, profile, {package.name for package in locked})
    replaced = local_wheels.replaced(found, profile)
    left = [package for package in locked if package.name not in replaced]
    names = {*found, *(package.name for package in left)}
    require(names, profile, serve=serve, without_onnxruntime=without_onnxruntime)
    return left, found


def missing(profile: Profile, context: BuildContext, *, serve: bool = False) -> list[Locked]:
    """The packages that `fetch` would download. Cached wheels are not read.

    Raises:
        EnvironmentUnfitError: as `wanted`.
    """
    locked, _ = wanted(profile, context, serve=serve, without_given=True)
    fitting = tags.ranked(profile)
    return [package for package in locked if not any(_wheels(package, context, fitting))]


def parse_lock(text: str, profile: Profile) -> tuple[Locked, ...]:
    """The packages of a hash-locked requirements file whose markers hold on the target.

    Only what a lock needs is understood: `name==version ; marker` and `--hash=sha256:`. Any other option, a
    package without a hash, or a version that is not exact makes the file invalid: nothing unlocked gets in.

    Raises:
        EnvironmentUnfitError: naming the line.
    """
    environment = tags.marker_environment(profile)
    packages: dict[str, Locked] = {}
    for line in _logical_lines(text):
        package = _locked(line, environment)
        if package is None:
            continue
        if package.name in packages:
            raise _damaged(line, "the package stands twice for this target")
        packages[package.name] = package
    return tuple(packages[name] for name in sorted(packages))


def pip_download(requirements: Path, folder: Path, profile: Profile) -> None:
    """Run this interpreter's pip so that the wheels of `requirements` for the target lie in `folder`.

    Raises:
        EnvironmentUnfitError: with the end of what pip said.
    """
    command = [sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "-r", str(requirements), "-d", str(folder)]
    command += ["--implementation", "cp", "--python-version", "{}.{}".format(*tags.PYTHON)]
    command += [word for abi in (tags.interpreter(), "abi3", "none") for word in ("--abi", abi)]
    command += [word for platform in tags.platforms(profile) for word in ("--platform", platform)]
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


def _cached(package: Locked, context: BuildContext, fitting: dict[Tag, int], progress: Progress) -> Path | None:
    """The best fitting undamaged wheel of `package` in the store; one that is damaged counts as missing."""
    ranked: list[tuple[int, Path]] = []
    for rank, wheel in _wheels(package, context, fitting):
        if sha256_file(wheel) == wheel.parent.name:
            ranked.append((rank, wheel))
        else:
            then = "" if context.offline else "; fetching it again"
            progress.line(f"cached wheel {wheel.name} is damaged{then}")
    return min(ranked)[1] if ranked else None


def _wheels(package: Locked, context: BuildContext, fitting: dict[Tag, int]) -> Iterator[tuple[int, Path]]:
    """The cached wheels of `package` that fit, each with its rank. Their bytes are not checked."""
    for digest in sorted(package.sha256):
        for wheel in sorted((context.wheel_cache / digest).glob("*.whl")):
            rank = tags.rank(wheel.name, fitting)
            if rank is not None and wheel.is_file():
                yield rank, wheel


def _download_all(
    missing: Sequence[Locked],
    found: dict[str, Path],
    scratch: Path,
    context: BuildContext,
    profile: Profile,
    download: Download,
    task: Task,
) -> None:
    """Fetch what is `missing` and add it to `found`, one at a time: what came stays when the next cannot be had."""
    for number, package in enumerate(missing):
        task.advance(0, f"fetching {package.name}=={package.version}")
        try:
            found[package.name] = _download(package, scratch / package.name, context.wheel_cache, profile, download)
        except EnvironmentUnfitError as error:
            raise _not_to_be_had(missing[number:], context, profile, error.why or error.what) from error
        task.advance(1, f"{found[package.name].name}, fetched")


def _download(package: Locked, scratch: Path, store: Path, profile: Profile, download: Download) -> Path:
    """Fetch `package` into `scratch` and move its wheel into the store, under the digest that was computed here."""
    arrived = scratch / "wheels"
    arrived.mkdir(parents=True)
    subset = scratch / "requirements.txt"
    subset.write_text(_requirement(package), encoding="utf-8")
    download(subset, arrived, profile)
    came = {sha256_file(wheel): wheel for wheel in sorted(arrived.glob("*.whl"))}
    digests = sorted(package.sha256 & came.keys())
    if not digests:
        raise EnvironmentUnfitError("what came has none of the locked hashes")
    wheel = came[digests[0]]
    if tags.rank(wheel.name, tags.ranked(profile)) is None:
        raise EnvironmentUnfitError(f"what came, {wheel.name}, does not load on the target")
    place = store / digests[0] / wheel.name
    place.parent.mkdir(exist_ok=True)
    wheel.replace(place)
    return place


def _requirement(package: Locked) -> str:
    hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(package.sha256))
    return f"{package.name}=={package.version}{hashes}\n"


def _damaged(line: str, why: str) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(f"the wheel lock is damaged at {line[:80]!r}", why=why, fix="install edgepack anew")


def _not_to_be_had(
    missing: Sequence[Locked], context: BuildContext, profile: Profile, why: str
) -> EnvironmentUnfitError:
    names = ", ".join(f"{package.name}=={package.version}" for package in missing)
    connect = "without --offline, " if context.offline else ""
    return EnvironmentUnfitError(
        f"wheels of target {profile.name} are neither in the cache {context.wheel_cache} nor to be had: {names}",
        why=why,
        fix=(
            f"on a machine with a package index, type `edgepack fetch --target {profile.name} --wheel-cache wheels`, "
            "bring the folder `wheels` here and name it with `--wheel-cache`; or connect this machine and run the "
            f"command again{', ' + connect.rstrip(', ') if connect else ''}; or put the wheels into a folder and name "
            "it in PIP_FIND_LINKS"
        ),
    )
