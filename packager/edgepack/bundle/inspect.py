"""Content of a finished bundle, its sizes by part, and differences of two bundles, read from the files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from edgepack.artifacts import LedgerRow
from edgepack.packages.site_packages import SITE
from edgepack.util.text import differences
from edgepack_runtime.bundle import golden, sshsig, verify
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.golden import MODEL_FOLDER
from edgepack_runtime.bundle.manifest import MACHINES, PYTHON_FOLDER, Manifest
from edgepack_runtime.bundle.model_config import CONFIG_NAME
from edgepack_runtime.bundle.verify import verify_file
from edgepack_runtime.errors import BundleInvalidError

PARTS: Final = ("model", "interpreter", "site", "runtime", "golden", "other")
_OF_FOLDER: Final = {
    MODEL_FOLDER: "model",
    SITE: "site",
    "edgepack_runtime": "runtime",
    contract.MAIN_NAME: "runtime",
    "golden": "golden",
}


@dataclass(frozen=True)
class Bytes:
    """Bytes in the bundle and bytes on the device."""

    packed: int
    unpacked: int


def part_of(path: str) -> str:
    """The part of a file of the release, or of a member of the bundle file."""
    first, *rest = path.split("/")
    if first in MACHINES and rest:
        return "interpreter" if rest[0] == PYTHON_FOLDER else "site"
    return "interpreter" if first.endswith(".tar.gz") else _OF_FOLDER.get(first, "other")


def bytes_by_part(bundle: Path) -> dict[str, Bytes]:
    """Sizes of each part. `other` includes stub and zip headers, so the packed sizes add up to the file's size.

    Unpacked is what lies on one device: of a bundle for two machines, on the one where it takes more.

    Raises:
        edgepack_runtime.errors.EdgepackError: it is not a complete bundle.
    """
    packed, unpacked = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0)
    with Archive(bundle) as archive:
        for member in archive.members.values():
            packed[part_of(member.path)] += member.compressed_size
        packed["other"] += archive.size - sum(packed.values())
        manifest = contract.parse(archive.read(contract.MANIFEST_NAME, contract.MAX_MANIFEST_BYTES))
        unlisted = (contract.MANIFEST_NAME, contract.SIGNATURE_NAME)
        unpacked["other"] += sum(archive.members[name].size for name in unlisted if name in archive.members)
    for entry in manifest.files_for(_largest(manifest)):
        unpacked[part_of(entry.path)] += entry.size
    return {part: Bytes(packed[part], unpacked[part]) for part in PARTS}


def _largest(manifest: Manifest) -> str:
    return max(manifest.target.machines, key=manifest.bytes_for)


class _Linear(TypedDict):
    mode: str


class _Handler(TypedDict):
    item: str
    graphs: list[str]


class _ModelFacts(TypedDict):
    """Of a model of texts `labels`, and `max_length` unless a linear model is alone; of one with a handler that."""

    labels: NotRequired[list[str]]
    max_length: NotRequired[int]
    linear: NotRequired[_Linear]
    handler: NotRequired[_Handler]


class _ShippedModel(TypedDict):
    precision: str


class _BuildFacts(TypedDict):
    model: _ShippedModel
    gates: dict[str, dict[str, Any] | str | None]
    ledger: tuple[LedgerRow, ...]
    tools: dict[str, str]


_Model, _Facts = TypeAdapter(_ModelFacts), TypeAdapter(_BuildFacts)


def inspect(bundle: Path) -> dict[str, Any]:
    """Name, target, sizes, gates, ledger and versions of `bundle`, as plain JSON values. Every byte is checked first.

    `signed_by` is the fingerprint in its signature, which only `edgepack verify` checks.

    Raises:
        BundleInvalidError: it is damaged (names the member), or its facts are not of their form.
    """
    manifest = verify_file(bundle)[0]
    with Archive(bundle) as archive:
        raw, signature = verify.read_signed_manifest(archive)
        size = archive.size
        config = archive.read(f"{golden.MODEL_FOLDER}/{CONFIG_NAME}", contract.MAX_MANIFEST_BYTES)
    facts = {name: getattr(manifest, name) for name in ("model", "gates", "ledger", "tools")}
    try:
        _Model.validate_json(config)
        ledger = _Facts.validate_python(facts)["ledger"]
    except ValidationError as error:
        first = error.errors()[0]
        raise BundleInvalidError(
            f"{bundle.name} cannot be shown: what it says of itself has another form",
            why=f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            fix="inspect it with the version of edgepack that built it",
        ) from error
    config = json.loads(config)
    return {
        "file": bundle.name,
        "bundle_bytes": size,
        "unpacked_bytes": manifest.bytes_for(_largest(manifest)) + len(raw) + len(signature or b""),
        "sha256": hashlib.sha256(raw).hexdigest(),
        "signed_by": None if signature is None else sshsig.parse_signature(signature).key.fingerprint,
        "release_id": contract.release_id(manifest, raw),
        "name": manifest.name,
        "version": manifest.version,
        "sequence": manifest.sequence,
        "task": manifest.task,
        "labels": config.get("labels", []),
        "max_length": config.get("max_length"),
        "handler": config.get("handler"),
        "ships": "handler" if "handler" in config else config["linear"]["mode"] if "linear" in config else "encoder",
        "target": asdict(manifest.target),
        "model": dict(manifest.model),
        "parts": {part: asdict(size) for part, size in bytes_by_part(bundle).items()},
        "packages": _packages(manifest),
        "gates": dict(manifest.gates),
        "ledger": [asdict(row) for row in ledger],
        "tools": dict(manifest.tools),
        "recipe_sha256": manifest.recipe_sha256,
        "files": {entry.path: entry.sha256 for entry in manifest.files},
    }


def _packages(manifest: Manifest) -> dict[str, int]:
    """Unpacked bytes of each package, with its libraries (`NAME.libs`)."""
    sizes: dict[str, int] = {}
    for entry in manifest.files_for(_largest(manifest)):
        folder, _, rest = entry.path.removeprefix(f"{_largest(manifest)}/").partition("/")
        if folder == SITE and not rest.split("/")[0].endswith(".dist-info"):
            name = rest.split("/")[0].removesuffix(".libs")
            sizes[name] = sizes.get(name, 0) + entry.size
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Differences of two inspections, as plain JSON values.

    `values` maps dotted names to [before, after]; `files` counts changed, added and removed files of each part.
    """
    values = {name: list(pair) for name, pair in differences(_compared_values(before), _compared_values(after)).items()}
    return {"values": values, "files": _files(before["files"], after["files"])}


def _compared_values(inspection: Mapping[str, Any]) -> dict[str, Any]:
    """The values to compare: without digests, and with the rows of the ledger by name."""
    left_out = ("files", "sha256", "release_id", "ledger", "file")
    values = {key: value for key, value in inspection.items() if key not in left_out}
    values["ledger"] = {
        row["stage"]: {
            row["score"]["metric"]: row["score"]["value"],
            "model_mib": row["model_mib"],
            "parity": row["parity"],
        }
        for row in inspection["ledger"]
    }
    return values


def _files(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted({*before, *after}):
        if before.get(path) == after.get(path):
            continue
        kind = "came" if path not in before else "went" if path not in after else "changed"
        found.setdefault(part_of(path), {}).setdefault(kind, []).append(path)
    return found
