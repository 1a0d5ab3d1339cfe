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
from typing import Any, Dict, FrozenSet, List, Mapping, Tuple

from edgepack_runtime.bundle.model_config import MANIFEST_NAME as MANIFEST_NAME  # there, because predictions load that
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.util.texts import whole

FORMAT = 2
SIGNATURE_NAME = "manifest.json.sig"
README_NAME = "README.txt"
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
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """One file of the release: POSIX path relative to the release folder, size in bytes, sha256 in hex."""

    path: str
    size: int
    sha256: str


@dataclasses.dataclass(frozen=True)
class TargetFacts:
    """Requirements of the bundle for its device, which `doctor` checks."""

    profile: str  # name in profiles.toml
    machines: Tuple[str, ...]  # of MACHINES; sorted
    libc_min: str  # oldest glibc that every carried binary loads on, e.g. "2.28"
    interpreter: str  # HOST (any Python >= 3.8 of the device), BUNDLED or OWN
    provider: str  # ONNX Runtime execution provider that must be active, e.g. "CPUExecutionProvider"


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A carried interpreter: a tar.gz in the bundle file, and in `files` what is in it, below `MACHINE/python/`."""

    machine: str
    version: str  # of CPython, e.g. "3.11.2"
    size: int
    sha256: str

    @property
    def member(self) -> str:
        """Its name in the bundle file. It sorts before all others, so that its place does not depend on theirs."""
        return f"CPYTHON-{self.machine}.tar.gz"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """A parsed manifest. `gates`, `ledger`, `model` and `tools` are plain JSON values, checked by their readers."""

    name: str
    version: str
    sequence: int  # increasing; a device refuses a lower one, except in a rollback
    task: str
    target: TargetFacts
    model: Mapping[str, Any]  # precision, engine, bytes and reference of the shipped model
    gates: Mapping[str, Any]  # as in the recipe
    ledger: Tuple[Mapping[str, Any], ...]  # rows of the ledger
    tools: Mapping[str, str]  # versions of the build tools
    recipe_sha256: str
    stub_sha256: str  # of the shell program at the beginning of the file
    interpreters: Tuple[Interpreter, ...]  # sorted by machine
    files: Tuple[FileEntry, ...]  # sorted by path; a folder named in MACHINES is unpacked on that machine only

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
    fields = _object(document, "the document")
    found = fields.pop("edgepack_bundle", None)
    if found != FORMAT or isinstance(found, bool):  # True is 1 to Python
        raise _invalid(f"`edgepack_bundle` is not {FORMAT}: it was made by another version")
    _exact_keys(fields, _field_names(Manifest), "the document")
    tools = _object(fields["tools"], "tools")
    for key, value in tools.items():
        _text(value, "tools." + key)
    return Manifest(
        name=_matching(fields["name"], NAME, "name"),
        version=_matching(fields["version"], VERSION, "version"),
        sequence=_integer(fields["sequence"], "sequence", 2**53),
        task=_text(fields["task"], "task"),
        target=_target(_object(fields["target"], "target")),
        model=_object(fields["model"], "model"),
        gates=_object(fields["gates"], "gates"),
        ledger=tuple(_object(row, f"ledger[{i}]") for i, row in enumerate(_list(fields["ledger"], "ledger"))),
        tools=tools,
        recipe_sha256=_matching(fields["recipe_sha256"], _SHA256, "recipe_sha256"),
        stub_sha256=_matching(fields["stub_sha256"], _SHA256, "stub_sha256"),
        interpreters=_interpreters(_list(fields["interpreters"], "interpreters")),
        files=_files(_list(fields["files"], "files")),
    )


def safe_path(path: str) -> bool:
    """Whether `path` is a plain relative POSIX path, valid on every file system."""
    if not path or len(path) > MAX_PATH_CHARACTERS or path != unicodedata.normalize("NFC", path):
        return False
    if any(unicodedata.category(c).startswith("C") or c in '\\:*?"<>|' for c in path):
        return False
    parts = path.split("/")
    return all(part not in ("", ".", "..") and part == part.strip(" ") and not part.endswith(".") for part in parts)


def _target(fields: Dict[str, Any]) -> TargetFacts:
    _exact_keys(fields, _field_names(TargetFacts), "target")
    machines = tuple(_machine(name, "target.machines") for name in _list(fields.pop("machines"), "target.machines"))
    if not machines or list(machines) != sorted(set(machines)):
        raise _invalid("target.machines is empty or not sorted")
    for key, value in fields.items():
        _text(value, "target." + key)
    if fields["interpreter"] not in (HOST, BUNDLED, OWN):
        raise _invalid(f"target.interpreter is not {HOST}, {BUNDLED} or {OWN}")
    return TargetFacts(machines=machines, **fields)


def _interpreters(rows: List[Any]) -> Tuple[Interpreter, ...]:
    found = []
    for index, row in enumerate(rows):
        where = f"interpreters[{index}]"
        fields = _object(row, where)
        _exact_keys(fields, _field_names(Interpreter), where)
        found.append(
            Interpreter(
                machine=_machine(fields["machine"], where + ".machine"),
                version=_text(fields["version"], where + ".version"),
                size=_integer(fields["size"], where + ".size", MAX_FILE_BYTES),
                sha256=_matching(fields["sha256"], _SHA256, where + ".sha256"),
            )
        )
    machines = [interpreter.machine for interpreter in found]
    if machines != sorted(set(machines)):
        raise _invalid("`interpreters` is not sorted by machine")
    return tuple(found)


def _machine(value: Any, where: str) -> str:
    if value not in MACHINES:
        raise _invalid(f"{where} is not one of {', '.join(MACHINES)}")
    return str(value)


def _files(rows: List[Any]) -> Tuple[FileEntry, ...]:
    if len(rows) > MAX_FILES:
        raise _invalid(f"`files` lists {len(rows)} files; at most {MAX_FILES} are read")
    entries: List[FileEntry] = []
    for index, row in enumerate(rows):
        where = f"files[{index}]"
        fields = _object(row, where)
        _exact_keys(fields, _field_names(FileEntry), where)
        path = _text(fields["path"], where + ".path")
        if not safe_path(path) or path in (MANIFEST_NAME, SIGNATURE_NAME):
            raise _invalid(f"{where}.path {path!r} is not a path a release may hold")
        entries.append(
            FileEntry(
                path=path,
                size=_integer(fields["size"], where + ".size", MAX_FILE_BYTES),
                sha256=_matching(fields["sha256"], _SHA256, where + ".sha256"),
            )
        )
    paths = [entry.path for entry in entries]
    if paths != sorted(paths):
        raise _invalid("`files` is not sorted by path")
    _no_collisions(paths)
    if sum(entry.size for entry in entries) > MAX_RELEASE_BYTES:
        raise _invalid(f"`files` has more than {MAX_RELEASE_BYTES} bytes in all")
    return tuple(entries)


def _no_collisions(paths: List[str]) -> None:
    """Refuse paths that are equal on a case-insensitive file system, and a file used as a folder."""
    seen: Dict[str, str] = {name: name for name in (MANIFEST_NAME, SIGNATURE_NAME)}  # in the same folder
    for path in paths:
        key = unicodedata.normalize("NFC", path.casefold())
        if key in seen:
            raise _invalid(f"`files` lists {seen[key]!r} and {path!r}, which collide")
        seen[key] = path
    for path in paths:
        parent = path.casefold()
        while "/" in parent:
            parent = parent.rsplit("/", 1)[0]
            if parent in seen:
                raise _invalid(f"`files` uses {seen[parent]!r} both as a file and as a folder")


def _field_names(cls: Any) -> FrozenSet[str]:
    return frozenset(field.name for field in dataclasses.fields(cls))


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


def _exact_keys(fields: Mapping[str, Any], wanted: FrozenSet[str], where: str) -> None:
    missing, unknown = sorted(wanted - set(fields)), sorted(set(fields) - wanted)
    if missing or unknown:
        raise _invalid("{}: missing {}, unknown {}".format(where, missing or "nothing", unknown or "nothing"))


def _object(value: Any, where: str) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise _invalid(f"{where} is not an object")
    return dict(value)


def _list(value: Any, where: str) -> List[Any]:
    if not isinstance(value, list):
        raise _invalid(f"{where} is not a list")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value or len(value) > 4096:
        raise _invalid(f"{where} is not a text of 1 to 4096 characters")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in value):  # terminals print it
        raise _invalid(f"{where} holds a control character, or half a surrogate pair")
    return value


def _matching(value: Any, pattern: re.Pattern[str], where: str) -> str:
    text = _text(value, where)
    if not pattern.match(text):
        raise _invalid(f"{where} {text!r} is not of the form {pattern.pattern}")
    return text


def _integer(value: Any, where: str, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= limit:
        raise _invalid(f"{where} is not a whole number from 0 to {limit}")
    return value


def _invalid(why: str) -> BundleInvalidError:
    return BundleInvalidError(
        f"{MANIFEST_NAME} is not valid", why=why, fix="copy the bundle again from where you got it"
    )
