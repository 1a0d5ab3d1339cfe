"""The target's wheels: locked by hash, fetched once into a cache, the cache checked on every use.

A wheel lies at `<wheel cache>/<sha256>/<file name>`. pip does the fetching, from whatever index, mirror or
folder the user's pip configuration names; this module decides what, by hash and for which platform, and never trusts
what came back. Wheels that are on no index are given by path.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from edgepack.errors import EnvironmentUnfitError, RecipeInvalidError
from edgepack.packages import local_wheels, requirements
from edgepack.packages.requirements import Locked
from edgepack.packages.target_spec import TargetSpec
from edgepack.progress import Progress, Task
from edgepack.targets import package_data, tags
from edgepack.targets.context import BuildContext
from edgepack.targets.downloads import download_folder
from edgepack.targets.profiles import ONNXRUNTIMES, SYSTEM, Profile
from edgepack.targets.tags import Python
from edgepack.util.hashing import sha256_file

SERVE_LOCK: Final = "serve.txt"
SERVING: Final = ("anyio", "click", "h11", "prometheus-client", "starlette", "uvicorn")
_NVIDIA: Final = "nvidia-"  # CUDA and cuDNN, which a device may have itself


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
    if others := sorted({*carried} & ONNXRUNTIMES - {own}):
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
            fix=f"edgepack targets lock {profile.name}, which makes it again from the file .in beside it",
        )


Download = Callable[[Path, Path, Profile, "Python | None"], None]
_PIP_SAID_BYTES = 1500  # the end of pip's output holds the cause


def fetch(
    spec: TargetSpec,
    context: BuildContext,
    progress: Progress,
    *,
    without_given: bool = False,
    download: Download | None = None,
) -> list[Path]:
    """The wheels of a target, sorted by package name, each with a hash that its lock names.

    Wheels that `context` has by path for this target are taken instead of those of the lock.

    Args:
        context: where wheels are kept and come from.
        progress: gets one step a package.
        without_given: leave out what has to be given by path and is not, to fill a cache.
        download: puts the wheels of a requirements file (first argument) for a target (third) and its Python (fourth)
            into a folder (second); pip, unless given.

    Raises:
        RecipeInvalidError: as `wanted`, or a package has no wheel that any Python takes.
        EnvironmentUnfitError: as `wanted`, or a wheel is not cached, and could not be downloaded.
    """
    locked, found = wanted(spec, context, without_given=without_given)
    return _fetch(locked, found, spec.profile, context, progress, download)


def _fetch(
    locked: Sequence[Locked],
    found: dict[str, Path],
    profile: Profile,
    context: BuildContext,
    progress: Progress,
    download: Download | None,
) -> list[Path]:
    """The wheels that are `found`, and those of the `locked` packages, sorted by package name."""
    with progress.task(f"wheels for {profile.name}", len(locked) + len(found)) as task:
        for name in found:
            task.advance(1, f"{name}, given by path")
        missing: list[Locked] = []
        for package in locked:
            wheel_or_none = _cached(package, context, profile, progress)
            if wheel_or_none is None:
                missing.append(package)
                continue
            found[package.name] = wheel_or_none
            task.advance(1, wheel_or_none.name)
        if missing and context.offline:
            _require_no_python(missing, context, profile)
            raise _unavailable(missing, context, profile, "--offline: nothing is fetched")
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
    return requirements.parse_lock(text, profile)


def wanted(
    spec: TargetSpec, context: BuildContext, *, without_given: bool = False
) -> tuple[list[Locked], dict[str, Path]]:
    """What of the locks is available, and the wheels that are there by path instead. Nothing is fetched.

    Args:
        without_given: as in `fetch`.

    Raises:
        RecipeInvalidError: the requirements file of the recipe is invalid, or has another version of a package that the
            bundle carries anyway.
        EnvironmentUnfitError: a wheel that was given does not fit, or one that has to be given is not; a lock is
            damaged, or does not name what a bundle needs.
    """
    profile = spec.profile
    locked = locked_for(profile, serve=spec.serve, engine=spec.engine)
    found: dict[str, Path] = {}
    without_onnxruntime = not spec.engine or (without_given and profile.by_path)
    if not without_onnxruntime:
        given = context.given.get(profile.name, ())
        whole = context.profiles.get(profile.name, profile)  # with all of its machines
        mine = local_wheels.for_machine(given, whole, profile.machine)
        found = local_wheels.checked(mine, profile, {package.name for package in locked})
    replaced = local_wheels.replaced(found, profile)
    left = [package for package in locked if package.name not in replaced]
    names = {*found, *(package.name for package in left)}
    require(names, profile, serve=spec.serve, without_onnxruntime=without_onnxruntime)
    if spec.packages is not None:
        left += _added(spec.packages, profile, spec.python, left, found)
    return left, found


def _added(
    file: Path, profile: Profile, python: Python | None, locked: Sequence[Locked], found: Mapping[str, Path]
) -> list[Locked]:
    """The packages of the requirements file that the bundle does not carry anyway."""
    carried = {name: parse_wheel_filename(wheel.name)[1] for name, wheel in found.items()}
    carried |= {package.name: Version(package.version) for package in locked}
    added = []
    for package in requirements.load(file, profile, python):
        version = carried.get(package.name)
        if version is None:
            added.append(package)
        elif version != Version(package.version):
            raise RecipeInvalidError(
                f"{file}: {package.name}=={package.version} cannot go into a bundle for {profile.name}",
                why=f"the bundle carries {package.name} {version} for edgepack's runtime",
                fix=f"write `{package.name}=={version}` in requirements.in, and lock {file.name} again",
            )
    return added


def missing(spec: TargetSpec, context: BuildContext) -> list[Locked]:
    """The packages that `fetch` would download. Cached wheels are not read.

    Raises:
        RecipeInvalidError, EnvironmentUnfitError: as `wanted`.
    """
    locked, _ = wanted(spec, context, without_given=True)
    return [package for package in locked if not any(_wheels(package, context, spec.profile, package.python))]


def fetch_for(
    file: Path,
    profile: Profile,
    python: Python,
    context: BuildContext,
    progress: Progress,
    *,
    download: Download | None = None,
) -> list[Path]:
    """The wheels of the requirements file alone, for one Python.

    Raises:
        RecipeInvalidError: the file is invalid.
        EnvironmentUnfitError: a wheel is not cached, and could not be downloaded.
    """
    return _fetch([*requirements.load(file, profile, python)], {}, profile, context, progress, download)


def pip_download(requirements: Path, folder: Path, profile: Profile, python: Python | None) -> None:
    """Run this interpreter's pip so that the wheels of `requirements` for the target lie in `folder`.

    Args:
        requirements: a requirements file with hashes.
        folder: where to.
        profile: the target.
        python: version of its Python; None for wheels that any Python takes.

    Raises:
        EnvironmentUnfitError: with the end of what pip said.
    """
    command = [sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "-r", str(requirements), "-d", str(folder)]
    command += ["--implementation", "py" if python is None else "cp"]
    command += ["--python-version", "{}.{}".format(*(python or tags.PYTHON))]
    abis = ["none"] if python is None else [tags.interpreter(python), "abi3", "none"]
    command += [word for abi in abis for word in ("--abi", abi)]
    command += [word for platform in tags.platforms(profile) for word in ("--platform", platform)]
    # In `folder`, because `python -m` looks for pip in the current folder first.
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise EnvironmentUnfitError(
            "pip could not fetch the target's wheels",
            why=(done.stdout + done.stderr)[-_PIP_SAID_BYTES:].strip(),
        )


def _cached(package: Locked, context: BuildContext, profile: Profile, progress: Progress) -> Path | None:
    """The best fitting undamaged wheel of `package` in the store; one that is damaged counts as missing."""
    ranked: list[tuple[int, Path]] = []
    for rank, wheel in _wheels(package, context, profile, package.python):
        if sha256_file(wheel) == wheel.parent.name:
            ranked.append((rank, wheel))
        else:
            then = "" if context.offline else "; fetching it again"
            progress.line(f"cached wheel {wheel.name} is damaged{then}")
    return min(ranked)[1] if ranked else None


def _wheels(
    package: Locked, context: BuildContext, profile: Profile, python: Python | None
) -> Iterator[tuple[int, Path]]:
    """The cached wheels of `package` that fit target and Python, each with its rank. Their bytes are not checked."""
    fitting = tags.ranked(profile, python)
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
            _require_no_python([package], context, profile, download, scratch)
            raise _unavailable(missing[number:], context, profile, error.why or error.what) from error
        task.advance(1, f"{found[package.name].name}, fetched")


def _download(package: Locked, scratch: Path, store: Path, profile: Profile, download: Download) -> Path:
    """Fetch `package` into `scratch` and move its wheel into the store, under the digest that was computed here."""
    arrived = scratch / "wheels"
    arrived.mkdir(parents=True)
    subset = scratch / "requirements.txt"
    subset.write_text(_requirement(package), encoding="utf-8")
    download(subset, arrived, profile, package.python)
    came = {sha256_file(wheel): wheel for wheel in sorted(arrived.glob("*.whl"))}
    digests = sorted(package.sha256 & came.keys())
    if not digests:
        raise EnvironmentUnfitError("what came has none of the locked hashes")
    wheel = came[digests[0]]
    if tags.rank(wheel.name, tags.ranked(profile, package.python)) is None:
        raise EnvironmentUnfitError(f"what came, {wheel.name}, does not load on the target")
    place = store / digests[0] / wheel.name
    place.parent.mkdir(exist_ok=True)
    wheel.replace(place)
    return place


def _require_no_python(
    missing: Sequence[Locked],
    context: BuildContext,
    profile: Profile,
    download: Download | None = None,
    scratch: Path | None = None,
) -> None:
    """Check that the `missing` packages for any Python are not those of which only wheels for one Python exist.

    Args:
        missing: what is not available.
        context: its cache may have wheels of them.
        profile: the target.
        download: fetches such a wheel, to see whether there is one; null when nothing may be fetched.
        scratch: folder to fetch it into.
    """
    for package in missing:
        if package.python is not None:
            continue
        exists = any(_wheels(package, context, profile, tags.PYTHON))
        if not exists and download is not None and scratch is not None:
            folder = scratch / f"{package.name}-for-one-python"
            folder.mkdir()
            subset = scratch / f"{package.name}.txt"
            subset.write_text(_requirement(package), encoding="utf-8")
            with contextlib.suppress(EnvironmentUnfitError):
                download(subset, folder, profile, tags.PYTHON)
            exists = any(folder.glob("*.whl"))
        if exists:
            raise RecipeInvalidError(
                f"{package.name} needs one version of Python, and {profile.name} runs on whichever the device has",
                why=f"of {package.name} {package.version} there are wheels for one version of Python only",
                fix=_carry(profile),
            )


def _carry(profile: Profile) -> str:
    if profile.cuda is None:
        return "write `interpreter: bundled`"
    return "give the bundle a Python: `interpreter: {path: FILE.tar.gz, sha256: ...}`; or leave the package out"


def _requirement(package: Locked) -> str:
    hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(package.sha256))
    return f"{package.name}=={package.version}{hashes}\n"


def _unavailable(missing: Sequence[Locked], context: BuildContext, profile: Profile, why: str) -> EnvironmentUnfitError:
    names = ", ".join(f"{package.name}=={package.version}" for package in missing)
    connect = "without --offline, " if context.offline else ""
    wanted = "RECIPE" if any(package.is_added for package in missing) else f"--target {profile.name}"
    return EnvironmentUnfitError(
        f"wheels of target {profile.name} are not in {context.wheel_cache}, and could not be downloaded: {names}",
        why=why,
        fix=(
            f"on a machine with a package index, type `edgepack fetch {wanted} --wheel-cache wheels`, "
            "bring the folder `wheels` here and name it with `--wheel-cache`; or connect this machine and run the "
            f"command again{', ' + connect.rstrip(', ') if connect else ''}; or put the wheels into a folder and name "
            "it in PIP_FIND_LINKS"
        ),
    )
