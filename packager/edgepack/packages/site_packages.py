"""The bundle's `site/` folder: the target's wheels, unpacked, slimmed after `slim.toml`, checked by content.

Nothing of a wheel runs here: no scripts are made, no bytecode is compiled, and the same wheels give the same
files.
"""

from __future__ import annotations

import configparser
import fnmatch
import stat
import sys
import warnings
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from email.parser import HeaderParser
from os import PathLike, fspath
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO
from zipfile import BadZipFile, ZipFile

from installer import install
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import RecordEntry
from installer.sources import WheelFile
from packaging.utils import parse_wheel_filename

from edgepack.artifacts import Members
from edgepack.binaries import fit
from edgepack.errors import StageFailedError
from edgepack.packages import checks, licences, wheels
from edgepack.packages.target_spec import TargetSpec
from edgepack.progress import Progress
from edgepack.targets import package_data
from edgepack.targets.context import BuildContext
from edgepack.targets.profiles import Profile
from edgepack.targets.tags import Python
from edgepack.util.hashing import files_below, sha256_file
from edgepack.util.text import counted
from edgepack_runtime.bundle.manifest import safe_path

SITE = "site"
LICENSES = "licenses"
_ANYWHERE = "-none-any.whl"
_ANOTHER = "lock another wheel"
_FETCH_AGAIN = "delete the wheel cache and build again"
_GIVE_AGAIN = "give the file as it was built; `python3 -m wheel pack FOLDER` makes one of a wheel that was unpacked"
_LIBRARY = "onnxruntime/capi/libonnxruntime.so*"
_LIBRARY_FIX = (
    "build ONNX Runtime with --build_shared_lib and --build_wheel; or add the library of the same build to the wheel: "
    "`python3 -m wheel unpack`, copy it to onnxruntime/capi/, `python3 -m wheel pack`"
)
_TAKEN = sys.stdlib_module_names | {"edgepack_runtime", "sitecustomize", "usercustomize"}
_SAID = 600  # characters: a wheel may have thousands of files
_DIST_INFO_KEPT = ("METADATA",)  # read by importlib.metadata and by scanners
_DIST_INFO_LICENSES = ("licenses/*", "sboms/*", "license*", "licence*", "copying*", "notice*", "authors*")  # any case

# What no program needs of the packages that a recipe adds: modules of tests and their data, and files for compilers.
# Other modules in folders of tests stay: numpy.testing imports one. Headers stay: some packages compile them.
_FOR_DEVELOPMENT = ("*/tests/test_*.py", "*/tests/*/test_*.py", "*/tests/data/*", "*.pxd", "*.a")
_STUBS = ("*.pyi",)
_STUBS_READER = b"attach_stub"  # lazy_loader's function that reads them when a package is imported


@dataclass(frozen=True)
class Drop:
    """Files that do not travel: patterns (`*` also crosses folders), and the reason."""

    files: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Rules:
    """The rules of one package, as `slim.toml` explains them."""

    drop: tuple[Drop, ...] = ()
    licenses: tuple[str, ...] = ()
    license: str = ""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Patterns of the files that do not travel."""
        return tuple(pattern for drop in self.drop for pattern in drop.files)


@dataclass(frozen=True)
class Package:
    """One wheel. Bytes are unpacked: before is the wheel as it came, after is what lies in `site/`."""

    name: str
    version: str
    wheel: str
    sha256: str
    license: str  # SPDX expression
    license_files: tuple[str, ...]  # relative to the assembled folder
    files: int
    bytes_before: int
    bytes_after: int
    outside: tuple[str, ...] = ()  # files that it installs outside of its packages, which do not travel


@dataclass(frozen=True)
class SiteFacts:
    """What was assembled in `folder`: `site/` and `licenses/`.

    `added` are the files in `site/` of packages that the recipe adds.
    """

    folder: Path
    packages: tuple[Package, ...]
    needs: fit.SystemRequirements
    added: tuple[str, ...] = ()

    @property
    def site_bytes(self) -> int:
        """Unpacked bytes of `site/`."""
        return sum(package.bytes_after for package in self.packages)


@dataclass(frozen=True)
class Site:
    """The unpacked wheels of a bundle: those for any machine in `site/`, the others in `MACHINE/site/`.

    `added` are the members of packages that the recipe adds.
    """

    members: Members
    packages: tuple[Package, ...]
    needs: fit.SystemRequirements
    added: frozenset[str] = frozenset()


def load_rules() -> dict[str, Rules]:
    """The rules of `slim.toml` by package name."""
    return {name: _rules(table) for name, table in package_data.tables("slim.toml").items()}


def assemble(
    wheels: Iterable[Path],
    folder: Path,
    profile: Profile,
    rules: Mapping[str, Rules] | None = None,
    *,
    given: Collection[Path] = (),
    added: Collection[str] = (),
    python: Python | None = None,
) -> SiteFacts:
    """Unpack `wheels` into `folder/site` and their licences into `folder/licenses`, and check every binary.

    Args:
        wheels: wheel files; order does not matter.
        folder: where to; it must not exist.
        profile: what the binaries must run on.
        rules: by package name; those of `slim.toml`, unless given. A package without rules travels whole.
        given: those of `wheels` that no lock names: their files have to be as their RECORD says, and of a build that
            nobody here has seen a rule may match nothing.
        added: names of the packages that the recipe adds. Tests, stubs and files outside of the packages are left out;
            a licence may be unknown.
        python: version of the Python that these run on: modules in C for it may be among them.

    Raises:
        StageFailedError: a wheel is damaged or installs files outside its packages, two wheels hold the same
            file, a rule matches nothing, a licence is unknown, or a file is not for the target, as in `checks.run`.
    """
    rules = load_rules() if rules is None else rules
    for made in (folder, folder / SITE, folder / LICENSES):
        made.mkdir(parents=True)
    unpacked = [
        (wheel, *_unpack(wheel, folder, rules, strict=wheel not in given, added=added))
        for wheel in sorted(wheels, key=lambda one: one.name)
    ]
    for wheel, package, files in unpacked:
        if package.name == profile.package and not any(fnmatch.fnmatchcase(name, _LIBRARY) for name in files):
            raise _failed(wheel, f"it has no {_LIBRARY}, which the runtime calls", _LIBRARY_FIX)
    carried = [
        checks.Carried(
            f"{package.name} {package.version}",
            package.wheel,
            files,
            package.license_files,
            is_given=wheel in given or package.name in added,
            has_extensions=package.name in added and python is not None,
        )
        for wheel, package, files in unpacked
    ]
    packages = tuple(package for _, package, _ in unpacked)
    added_files = tuple(name for _, package, files in unpacked if package.name in added for name in files)
    return SiteFacts(folder, packages, checks.run(folder / SITE, carried, profile), added_files)


def site_for(specs: Sequence[TargetSpec], context: BuildContext, scratch: Path, progress: Progress) -> Site:
    """Fetch and unpack the wheels for each machine of a target, with their licences.

    Raises:
        RecipeInvalidError, EnvironmentUnfitError: as `wheels.fetch`.
        StageFailedError: as `assemble`.
    """
    parts: dict[str, SiteFacts] = {}
    for spec in specs:
        locked, _ = wheels.wanted(spec, context)
        added = {package.name for package in locked if package.is_added}
        fetched = wheels.fetch(spec, context, progress)
        if not parts:  # what only another machine needs goes into that one's folder
            anywhere = [wheel for wheel in fetched if wheel.name.endswith(_ANYWHERE)]
        native = [wheel for wheel in fetched if wheel not in anywhere]
        for prefix, some in (("", anywhere), (f"{spec.profile.machine}/", native)):
            if prefix not in parts:
                parts[prefix] = assemble(
                    some,
                    scratch / (prefix.rstrip("/") or "any"),
                    spec.profile,
                    given=context.given.get(spec.profile.name, ()),
                    added=added,
                    python=spec.python,
                )
    members: Members = {}
    for prefix, part in parts.items():
        for folder, above in ((SITE, prefix), (LICENSES, "")):
            for path in files_below(part.folder / folder):
                members[above + path.relative_to(part.folder).as_posix()] = path
    unpacked = tuple(package for part in parts.values() for package in part.packages)
    report_outside(unpacked, progress)
    added_files = frozenset(f"{prefix}{SITE}/{name}" for prefix, part in parts.items() for name in part.added)
    return Site(members, unpacked, fit.together(part.needs for part in parts.values()), added_files)


def report_outside(packages: Iterable[Package], progress: Progress) -> None:
    """Print for each package the files outside of it that were left out."""
    for package in packages:
        if package.outside:
            count = counted(len(package.outside), "file")
            progress.line(
                f"{package.name} {package.version}: left out {count} outside of its packages, such as "
                f"{package.outside[0]}"
            )


@dataclass
class _Destination(WheelDestination):
    """Where pypa/installer writes to: it puts aside what does not travel, and counts."""

    wheel: Path
    folder: Path
    dist_info: str
    licenses_folder: str
    drop: tuple[str, ...]
    licenses: tuple[str, ...]
    is_added: bool = False
    outside: list[str] = field(default_factory=list)
    matched: set[str] = field(default_factory=set)
    license_files: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # in the site folder
    bytes_before: int = 0
    bytes_after: int = 0

    def write_script(self, name: str, module: str, attr: str, section: object) -> RecordEntry:
        """Scripts do not travel: the bundle has its own launcher."""
        return RecordEntry(name, None, None)

    def write_file(self, scheme: str, path: str | PathLike[str], stream: BinaryIO, is_executable: bool) -> RecordEntry:
        name = fspath(path)
        if self.is_added and scheme not in ("purelib", "platlib"):
            if scheme != "scripts":
                self.outside.append(name)
            return RecordEntry(name, None, None)
        if name.partition("/")[0].partition(".")[0] in _TAKEN:
            raise _failed(self.wheel, f"{name} in it has the name of a module of Python or of the runtime", _ANOTHER)
        if scheme not in ("purelib", "platlib"):
            raise _failed(self.wheel, f"it installs {name} outside its packages ({scheme})", _ANOTHER)
        content = stream.read()
        self.bytes_before += len(content)
        place = self._place(name)
        if place is not None:
            _write_new(self.folder, place, content, self.wheel)
            if place.startswith(LICENSES):
                self.license_files.append(place)
            else:
                self.files.append(place.removeprefix(f"{SITE}/"))
                self.bytes_after += len(content)
        return RecordEntry(name, None, len(content))

    def finalize_installation(self, scheme: str, record_file_path: str, records: Iterable[object]) -> None:
        """RECORD does not travel: the bundle's manifest lists every file with its hash."""

    def _place(self, name: str) -> str | None:
        """Path in the assembled folder of the wheel's file `name`; null when it does not travel."""
        parent, _, rest = name.partition("/")
        if parent == self.dist_info:
            if any(fnmatch.fnmatchcase(rest.lower(), pattern) for pattern in _DIST_INFO_LICENSES):
                return f"{self.licenses_folder}/{rest.removeprefix('licenses/')}"
            return f"{SITE}/{name}" if rest in _DIST_INFO_KEPT else None
        if name in self.licenses:
            self.matched.add(name)
            return f"{self.licenses_folder}/{PurePosixPath(name).name}"
        hits = {pattern for pattern in self.drop if fnmatch.fnmatchcase(name, pattern)}
        self.matched |= hits
        return None if hits else f"{SITE}/{name}"


def _unpack(
    wheel: Path, folder: Path, rules: Mapping[str, Rules], *, strict: bool, added: Collection[str]
) -> tuple[Package, tuple[str, ...]]:
    """The package of a wheel, and its files in the site folder."""
    name, version = parse_wheel_filename(wheel.name)[:2]
    is_added = name in added
    mine = Rules() if is_added else rules.get(name, Rules())
    try:
        _require_plain_files(wheel)
        patterns = _for_development(wheel) if is_added else mine.patterns
        with WheelFile.open(wheel) as source, warnings.catch_warnings():
            # pypa/installer leaves bytecode out, as we want, and says so.
            warnings.filterwarnings("ignore", message="Skip installing .*__pycache__", category=RuntimeWarning)
            destination = _Destination(
                wheel, folder, source.dist_info_dir, f"{LICENSES}/{name}-{version}", patterns, mine.licenses, is_added
            )
            if not strict:  # no lock has its digest: of damage its own list of files alone can tell
                source.validate_record()
            metadata = HeaderParser().parsestr(source.read_dist_info("METADATA"))
            install(source, destination, additional_metadata={})
    # What a damaged wheel makes of pypa/installer, zipfile, zlib and the decoders, in this order.
    except (InstallerError, BadZipFile, zlib.error, EOFError, ValueError, KeyError, configparser.Error) as error:
        raise _failed(wheel, str(error)[:_SAID], _FETCH_AGAIN if strict else _GIVE_AGAIN) from error
    unmatched = sorted({*patterns, *mine.licenses} - destination.matched)
    if unmatched and strict and not is_added:
        raise _failed(wheel, f"nothing in it matches {', '.join(unmatched)}", "correct targets/slim.toml")
    expression = licences.expression_of(metadata) if is_added else metadata.get("License-Expression", mine.license)
    if not expression:
        raise _failed(wheel, "its licence is unknown", f"add `license` to [{name}] in targets/slim.toml")
    package = Package(
        name=name,
        version=str(version),
        wheel=wheel.name,
        sha256=sha256_file(wheel),
        license=expression,
        license_files=tuple(sorted(destination.license_files)),
        files=len(destination.files),
        bytes_before=destination.bytes_before,
        bytes_after=destination.bytes_after,
        outside=tuple(sorted(destination.outside)),
    )
    return package, tuple(destination.files)


def _for_development(wheel: Path) -> tuple[str, ...]:
    """Patterns of the files of an added wheel that do not travel. Stubs do where one of its modules reads them."""
    with ZipFile(wheel) as archive:
        modules = [member for member in archive.namelist() if member.endswith(".py")]
        reads_stubs = any(_STUBS_READER in archive.read(module) for module in modules)
    return _FOR_DEVELOPMENT if reads_stubs else _FOR_DEVELOPMENT + _STUBS


def _require_plain_files(wheel: Path) -> None:
    """A link would be unpacked as a text file that holds its target's name."""
    with ZipFile(wheel) as archive:
        for member in archive.infolist():
            mode = member.external_attr >> 16  # as Unix has it; nothing where the wheel was made elsewhere
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                kind = "a link" if stat.S_ISLNK(mode) else "no file"
                raise _failed(wheel, f"{member.filename} in it is {kind}, and a wheel holds plain files", _ANOTHER)


def _write_new(folder: Path, place: str, content: bytes, wheel: Path) -> None:
    """Write a file that must not exist yet, so that no wheel overwrites another's."""
    if not safe_path(place):
        raise _failed(wheel, f"{place!r} is not a path that a bundle may hold", _ANOTHER)
    target = folder / place
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as stream:
            stream.write(content)
    except FileExistsError as error:
        raise _failed(wheel, f"duplicate file {place}, in this wheel or in another one", _ANOTHER) from error
    except OSError as error:
        raise _failed(wheel, str(error), f"free some space on the disk of {folder}") from error


def _rules(table: Mapping[str, Any]) -> Rules:
    drop = [Drop(tuple(d["files"]), d["reason"]) for d in table.get("drop", ())]
    return Rules(
        drop=tuple(drop),
        licenses=tuple(table.get("licenses", ())),
        license=table.get("license", ""),
    )


def _failed(wheel: Path, why: str, fix: str) -> StageFailedError:
    return StageFailedError(f"wheel {wheel.name} cannot be unpacked for the target", why=why, fix=fix)


def require_fitting(target: str, context: BuildContext, progress: Progress) -> None:
    """Look into the wheels of a bundle for `target` as its own stage will.

    Raises:
        EnvironmentUnfitError, StageFailedError: as for the bundle itself.
    """
    progress.line(f"looking into the wheels that were given for {target}")
    profile = context.profile(target)
    for machine in profile.machines:
        with TemporaryDirectory() as scratch:
            fetched = wheels.fetch(TargetSpec(profile.on(machine)), context, progress)
            assemble(fetched, Path(scratch) / "assembled", profile.on(machine), given=context.given.get(target, ()))
