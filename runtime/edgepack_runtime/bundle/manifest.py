"""The manifest of a bundle (`manifest.json`) as frozen dataclasses.

It lists path, size and sha256 of every file of a release except itself and its signature. Unlisted, missing and changed
files are errors, so that the manifest vouches for every byte. The build side writes it with `dump`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
import unicodedata
from typing import Any, Dict, Iterator, List, Mapping, Tuple

from edgepack_runtime.bundle.model_config import MANIFEST_NAME as MANIFEST_NAME  # there, because predictions load that
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.schema.fields import Exact, Problem, field, valid
from edgepack_runtime.util.texts import whole

FORMAT = 2
SIGNATURE_NAME = "manifest.json.sig"
README_NAME = "README.txt"
MAIN_NAME = "__main__.py"
MAX_README_BYTES = 2**20
MAX_SIGNATURE_BYTES = 64 * 1024  # 1.6 KB with a 4096-bit RSA key
MAX_MANIFEST_BYTES = 4 * 1024 * 1024  # a manifest of 600 files has about 90 KB
MAX_FILES = 20_000
MAX_FILE_BYTES = 8 * 1024**3
MAX_RELEASE_BYTES = 16 * 1024**3  # unpacked; a bundle has at most 4 GiB, compressed to about a third
MAX_PATH_CHARACTERS = 240
# A variable of a container image: the size of the bundle file that it was made from.
BUNDLE_BYTES = "EDGEPACK_BUNDLE_BYTES"
MACHINES = ("aarch64", "x86_64")  # as `platform.machine()` has them; a folder of a release has this name
PYTHON_FOLDER = "python"  # of a machine: `x86_64/python/` is its interpreter
# Whose interpreter runs a release: the device's; a carried one with its C library; a carried one on the device's.
HOST, BUNDLED, OWN = "host", "bundled", "own"
_MAX_DIGITS = 20  # of an integer: 64 bits and a sign
# Names are also names of files and folders, on FAT disks too.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_NUMBERS = r"[0-9]{1,9}\.[0-9]{1,3}\.[0-9]{1,3}"  # with more digits, two versions would share a sequence
VERSION = re.compile(_NUMBERS + r"\Z")
RELEASE_ID = re.compile(_NUMBERS + r"-[0-9a-f]{12}\Z")
_SHA256: Mapping[str, Any] = {"pattern": r"\A[0-9a-f]{64}\Z"}
# Terminals print texts: no control characters, and no half of a surrogate pair.
_TEXT: Mapping[str, Any] = {"pattern": r"\A[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,4096}\Z"}


@dataclasses.dataclass(frozen=True)
class FileEntry(Exact):
    """One file of the release: POSIX path relative to the release folder, size in bytes, sha256 in hex."""

    path: str = field(**_TEXT)
    size: int = field(ge=0, le=MAX_FILE_BYTES)
    sha256: str = field(**_SHA256)

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        if not safe_path(self.path) or self.path in (MANIFEST_NAME, SIGNATURE_NAME):
            yield Problem(("path",), f"{self.path!r} is not a path a release may hold")


@dataclasses.dataclass(frozen=True)
class TargetFacts(Exact):
    """Requirements of the bundle for its device, which `doctor` checks."""

    profile: str = field(**_TEXT)  # name in profiles.toml
    machines: Tuple[str, ...] = field(values={"one_of": MACHINES})  # sorted
    libc_min: str = field(**_TEXT)  # oldest glibc that every carried binary loads on, e.g. "2.28"
    interpreter: str = field(one_of=(HOST, BUNDLED, OWN))  # HOST: any Python >= 3.8 of the device
    provider: str = field(**_TEXT)  # ONNX Runtime execution provider that must be active, e.g. "CPUExecutionProvider"

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        if not self.machines or list(self.machines) != sorted(set(self.machines)):
            yield Problem(("machines",), "is empty or not sorted")


@dataclasses.dataclass(frozen=True)
class Interpreter(Exact):
    """A carried interpreter: a tar.gz in the bundle file, and in `files` what is in it, below `MACHINE/python/`."""

    machine: str = field(one_of=MACHINES)
    version: str = field(**_TEXT)  # of CPython, e.g. "3.11.2"
    size: int = field(ge=0, le=MAX_FILE_BYTES)
    sha256: str = field(**_SHA256)

    @property
    def member(self) -> str:
        """Its name in the bundle file. It sorts before all others, so that its place does not depend on theirs."""
        return f"CPYTHON-{self.machine}.tar.gz"


@dataclasses.dataclass(frozen=True)
class Manifest(Exact):
    """A parsed manifest. `gates`, `ledger`, `model` and `tools` are plain JSON values, checked by their readers."""

    name: str = field(pattern=r"\A" + NAME.pattern)
    version: str = field(pattern=r"\A" + VERSION.pattern)
    sequence: int = field(ge=0, le=2**53)  # increasing; a device refuses a lower one, except in a rollback
    task: str = field(**_TEXT)
    target: TargetFacts = field()
    model: Mapping[str, Any] = field()  # precision, engine, bytes and reference of the shipped model
    gates: Mapping[str, Any] = field()  # as in the recipe
    ledger: Tuple[Mapping[str, Any], ...] = field()  # rows of the ledger
    tools: Mapping[str, str] = field(values=_TEXT)  # versions of the build tools
    recipe_sha256: str = field(**_SHA256)
    stub_sha256: str = field(**_SHA256)  # of the shell program at the beginning of the file
    interpreters: Tuple[Interpreter, ...] = field()  # sorted by machine
    # Sorted by path. A folder named in MACHINES is unpacked on that machine only.
    files: Tuple[FileEntry, ...] = field(max_length=MAX_FILES)

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        machines, paths = [one.machine for one in self.interpreters], [entry.path for entry in self.files]
        if machines != sorted(set(machines)):
            yield Problem(("interpreters",), "is not sorted by machine")
        if paths != sorted(paths):
            yield Problem(("files",), "is not sorted by path")
        yield from _collisions(paths)
        if sum(entry.size for entry in self.files) > MAX_RELEASE_BYTES:
            yield Problem(("files",), f"has more than {MAX_RELEASE_BYTES} bytes in all")

    def files_for(self, machine: str) -> Tuple[FileEntry, ...]:
        """The files of the release on `machine`, or with "" those of every machine."""
        others = tuple(f"{other}/" for other in MACHINES if other != machine)
        return tuple(entry for entry in self.files if not entry.path.startswith(others))

    def bytes_for(self, machine: str) -> int:
        """Bytes of the unpacked release on `machine`, manifest excluded."""
        return sum(entry.size for entry in self.files_for(machine))


def release_id(manifest: Manifest, manifest_bytes: bytes) -> str:
    """Folder name of an installed release: version and the first 12 hex digits of the manifest's sha256."""
    return manifest.version + "-" + hashlib.sha256(manifest_bytes).hexdigest()[:12]


def sequence_of(version: str) -> int:
    """The number that orders releases, of a version like `VERSION`: 1.2.3 is 1002003."""
    major, minor, patch = (int(part) for part in version.split("."))
    return major * 10**6 + minor * 10**3 + patch


def dump(manifest: Manifest) -> bytes:
    """Canonical bytes of `manifest`: sorted keys, two-space indent, UTF-8, one final newline."""
    document: Dict[str, Any] = {"edgepack_bundle": FORMAT, **dataclasses.asdict(manifest)}
    text = json.dumps(document, ensure_ascii=False, indent=2, sort_keys=True, allow_nan=False)
    return (text + "\n").encode("utf-8")


def parse(raw: bytes) -> Manifest:
    """Read and check a manifest.

    Raises:
        BundleInvalidError: `raw` is not a manifest of this format, is too large, or lists a path that could leave the
            release folder or collide with another on a case-insensitive disk. The message names the field.
    """
    if len(raw) > MAX_MANIFEST_BYTES:
        raise _invalid(f"it has {len(raw)} bytes; at most {MAX_MANIFEST_BYTES} are read")
    try:
        document = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_int=functools.partial(whole, most_digits=_MAX_DIGITS),
            parse_float=_finite,
            parse_constant=_finite,
        )
    except (ValueError, RecursionError) as error:  # ValueError: bad UTF-8, bad JSON, or a number of many digits
        raise _invalid(f"it is not JSON: {error}") from error
    found = document.pop("edgepack_bundle", None) if isinstance(document, dict) else None
    if found != FORMAT or isinstance(found, bool):  # True is 1 to Python
        raise _invalid(f"`edgepack_bundle` is not {FORMAT}: it was made by another version")
    return valid(Manifest, document, _invalid)


def safe_path(path: str) -> bool:
    """Whether `path` is a plain relative POSIX path, valid on every file system."""
    if not path or len(path) > MAX_PATH_CHARACTERS or path != unicodedata.normalize("NFC", path):
        return False
    if any(unicodedata.category(c).startswith("C") or c in '\\:*?"<>|' for c in path):
        return False
    parts = path.split("/")
    return all(part not in ("", ".", "..") and part == part.strip(" ") and not part.endswith(".") for part in parts)


def _collisions(paths: List[str]) -> Iterator[Problem]:
    """Paths that are equal on a case-insensitive file system, and files used as a folder."""
    seen: Dict[str, str] = {name: name for name in (MANIFEST_NAME, SIGNATURE_NAME)}  # in the same folder
    for path in paths:
        key = unicodedata.normalize("NFC", path.casefold())
        if key in seen:
            yield Problem(("files",), f"lists {seen[key]!r} and {path!r}, which collide")
        seen[key] = path
    for path in paths:
        parent = path.casefold()
        while "/" in parent:
            parent = parent.rsplit("/", 1)[0]
            if parent in seen:
                yield Problem(("files",), f"uses {seen[parent]!r} both as a file and as a folder")


def _unique_keys(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _invalid("a key occurs twice in one object")
    return result


def _finite(text: str) -> float:
    """A float in JSON. NaN, Infinity and numbers like 1e999 are refused."""
    value = float(text)
    if not math.isfinite(value):
        raise _invalid(f"{text[:20]} is not a finite number")
    return value


def _invalid(why: str) -> BundleInvalidError:
    return BundleInvalidError(
        f"{MANIFEST_NAME} is not valid", why=why, fix="copy the bundle again from where you got it"
    )
