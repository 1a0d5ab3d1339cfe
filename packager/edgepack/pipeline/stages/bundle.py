"""Stage `bundle`: write one file for a target from runtime, model, wheels, golden rows, bill of materials, manifest.

Equal inputs give equal bytes: nothing depends on the clock, on paths, or on the order of directory listings.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import edgepack_runtime
from edgepack import __version__
from edgepack.artifacts import ROWS_SUFFIX, SPLITS, BundleArtifact, Checks, DataArtifact, ExportArtifact, LedgerRow
from edgepack.bundle import baseline, debian, golden, interpreter, opsets, sbom, wheels
from edgepack.bundle.archive import write_bundle
from edgepack.bundle.head import HEAD_TEMPLATE, head
from edgepack.bundle.inspect import bytes_by_part
from edgepack.bundle.interpreter import Compiler
from edgepack.bundle.main_program import main_source
from edgepack.bundle.site_packages import LICENSES, SITE, Package, SiteFacts, assemble
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.recipe.model import Recipe
from edgepack.recipe.training import is_local_folder
from edgepack.targets import package_data
from edgepack.targets.context import BuildContext
from edgepack.targets.profiles import BUNDLED, Profile
from edgepack.util.hashing import files_below, sha256_file
from edgepack.util.text import counted, mib
from edgepack.util.versions import tool_versions
from edgepack_runtime.bundle import golden as names
from edgepack_runtime.bundle import interpreter as carried
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.model_config import CONFIG_NAME, MODEL_NAME, VOCAB_NAME
from edgepack_runtime.device.doctor import version_numbers

VERSION = 9
MAIN_NAME = "__main__.py"
README_NAME = "README.txt"
_ANYWHERE = "-none-any.whl"
Members = dict[str, Path | bytes]
_README = Path(__file__).parent / "device_readme.txt"


def inputs(profile: Profile, context: BuildContext) -> list[str]:
    """Digests that decide a bundle besides recipe, data, model and runtime: of profile, packages, head and README."""
    given = [sha256_file(wheel) for wheel in context.given.get(profile.name, ())]
    return [package_data.digest(), repr(profile), *given, sha256_file(HEAD_TEMPLATE), sha256_file(_README)]


def run(
    recipe: Recipe,
    target: str,
    export: ExportArtifact,
    data: DataArtifact,
    ledger: tuple[LedgerRow, ...],
    context: BuildContext,
    out: Path,
    progress: Progress,
) -> BundleArtifact:
    """Write `NAME-VERSION-TARGET.edgepack` into `out`, and the golden rows beside it if the bundle does not carry them.

    Raises:
        RecipeInvalidError, TargetUnreachableError: the target is unknown, or cannot be built on this machine.
        EnvironmentUnfitError: a wheel is missing and cannot be fetched.
        StageFailedError: a wheel or a model folder is invalid.
    """
    profile = context.profile(target)
    expected = _golden(recipe, export, data, progress)
    carried = recipe.gates.golden.carry
    file = out / f"{recipe.name}-{recipe.version}-{target}.edgepack"
    rows_file = file.with_suffix(ROWS_SUFFIX)
    if not carried:
        rows_file.touch(mode=0o600)
        rows_file.write_bytes(expected.rows_jsonl)
    with tempfile.TemporaryDirectory(prefix=".bundle-", dir=out) as scratch:
        site = _site_of(recipe, profile, context, Path(scratch), progress)
        model_file = export.folder / export.shipped_model.folder / MODEL_NAME
        checks = site.checks.and_also(opsets.check(model_file, site.packages))
        _report(site, checks, progress)
        members = _runtime() | _model(export) | site.members
        members[names.GOLDEN_FILE] = expected.golden_jsonl
        members |= _rows(expected)
        inside = _Interpreters()
        if profile.interpreter == BUNDLED:
            inside = _interpreters(profile, context, members, Path(scratch), progress)
            members |= inside.members
        listed = sbom.bill_of_materials(_listed(recipe, export, data), site.packages, inside.packages, target)
        members[sbom.SBOM_NAME] = listed
        members[README_NAME] = _readme(recipe, profile, site, file.name, data.example(own=carried))
        model, gates = _shipped(export, expected), _gates(recipe, expected)
        title = f"{recipe.name} {recipe.version} for {target}"
        first = head(recipe.name, title, {packed.machine: packed for packed in inside.packed})
        manifest = _manifest(recipe, _target_facts(profile, site), model, gates, ledger, members, inside, first)
        raw = contract.dump(manifest)
        contract.parse(raw)  # the device's first check
        unpacked = max(manifest.bytes_for(machine) for machine in profile.machines)
        progress.line(f"writing {file.name}: {len(members) + 1} files, {mib(unpacked)} unpacked")
        zipped = {path: content for path, content in members.items() if path not in inside.files}
        write_bundle({**zipped, **inside.archives, contract.MANIFEST_NAME: raw}, file, first)
    return BundleArtifact(
        folder=out,
        file_name=file.name,
        target=target,
        bundle_bytes=file.stat().st_size,
        unpacked_bytes=unpacked + len(raw),
        manifest_sha256=hashlib.sha256(raw).hexdigest(),
        bytes_by_part={part: size.packed for part, size in bytes_by_part(file).items()},
        checks=checks,
        libc_min=site.libc_min,
        examples=expected.examples,
        rows_name=None if carried else rows_file.name,
    )


def sequence(version: str) -> int:
    """The number that orders releases: 1.2.3 is 1002003.

    Raises:
        StageFailedError: minor or patch exceeds 999, so two versions would share a number.
    """
    major, minor, patch = (int(part) for part in version.split("."))
    if max(minor, patch) > 999:
        raise StageFailedError(
            f"bundle: version {version} has no sequence number",
            why="devices order releases by major x 1,000,000 + minor x 1,000 + patch",
            fix="keep minor and patch below 1000",
        )
    return major * 10**6 + minor * 10**3 + patch


def recipe_sha256(recipe: Recipe) -> str:
    """Digest of the resolved recipe. Absolute paths count by their last part, since a project may move.

    The `sign` section does not count: bundles are signed at delivery.
    """
    document = _without_folders(recipe.model_dump(mode="json", by_alias=True, exclude={"sign"}))
    return hashlib.sha256(json.dumps(document, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def _without_folders(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_folders(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_folders(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _runtime() -> Members:
    """The sources of the runtime, and the program that `python3 FILE` runs."""
    folder = Path(edgepack_runtime.__path__[0])
    found = [*folder.rglob("*.py"), *folder.rglob("*.html"), folder / "py.typed"]
    members: Members = {f"{folder.name}/{path.relative_to(folder).as_posix()}": path for path in found}
    return members | {MAIN_NAME: main_source()}


def _model(export: ExportArtifact) -> Members:
    folder = export.folder / export.shipped_model.folder
    files = {f"{names.MODEL_FOLDER}/{name}": folder / name for name in (CONFIG_NAME, MODEL_NAME, VOCAB_NAME)}
    missing = [file.name for file in files.values() if not file.is_file()]
    if missing:
        raise StageFailedError(f"bundle: {folder} lacks {', '.join(missing)}", fix="build again")
    return dict(files)


def _golden(recipe: Recipe, export: ExportArtifact, data: DataArtifact, progress: Progress) -> golden.Golden:
    rows = data.read("test")
    if not rows:
        raise StageFailedError("bundle: the test split is empty", fix="give `data.test` rows for the gates")
    model = export.shipped_model
    reference = export.folder / export.float_model.folder
    return golden.make(
        export.folder / model.folder,
        reference,
        model.precision,
        rows,
        data.answer,
        progress,
        wanted=recipe.gates.golden,
        baseline_bundle=recipe.gates.baseline,
    )


def _rows(expected: golden.Golden) -> Members:
    """The labelled rows, or the texts alone if the rows are kept out of the bundle."""
    if expected.texts_jsonl is None:
        return {names.ROWS_FILE: expected.rows_jsonl}
    return {names.TEXTS_FILE: expected.texts_jsonl}


def _shipped(export: ExportArtifact, expected: golden.Golden) -> dict[str, Any]:
    """`model` of the manifest."""
    return {
        "precision": export.shipped_model.precision,
        "onnx_bytes": export.shipped_model.onnx_bytes,
        "float_onnx_bytes": export.float_model.onnx_bytes,
        "golden_tolerance": expected.tolerance,
    }


@dataclass(frozen=True)
class _Site:
    """The unpacked wheels: those of any machine in `site/`, the others in `MACHINE/site/`."""

    members: Members
    packages: tuple[Package, ...]
    libc_min: str
    system_libraries: tuple[str, ...]
    checks: Checks


def _site_of(recipe: Recipe, profile: Profile, context: BuildContext, scratch: Path, progress: Progress) -> _Site:
    """Fetch and unpack the wheels for each machine, with their licences, and add edgepack's licence."""
    given = context.given.get(profile.name, ())
    parts: dict[str, SiteFacts] = {}
    for machine in profile.machines:
        fetched = wheels.fetch(profile.on(machine), context, progress, serve=recipe.serve)
        anywhere = [wheel for wheel in fetched if wheel.name.endswith(_ANYWHERE)]
        if not parts:  # the same for every machine
            parts[""] = assemble(anywhere, scratch / "any", profile.on(machine), given=given)
        native = [wheel for wheel in fetched if wheel not in anywhere]
        parts[f"{machine}/"] = assemble(native, scratch / machine, profile.on(machine), given=given)
    own = f"{LICENSES}/edgepack-{__version__}/{sbom.EDGEPACK_LICENSE}.txt"
    members: Members = {own: package_data.text("licenses", f"{sbom.EDGEPACK_LICENSE}.txt").encode()}
    for prefix, part in parts.items():
        for path in filter(Path.is_file, part.folder.rglob("*")):
            name = path.relative_to(part.folder).as_posix()
            members[name if name.startswith(LICENSES) else prefix + name] = path
    return _Site(
        members,
        tuple(package for part in parts.values() for package in part.packages),
        max((part.libc_min for part in parts.values()), key=version_numbers),
        tuple(sorted({library for part in parts.values() for library in part.system_libraries})),
        Checks(
            tuple(check for part in parts.values() for check in part.checks.passed),
            tuple(dict.fromkeys(note for part in parts.values() for note in part.checks.notes)),
        ),
    )


@dataclass(frozen=True)
class _Interpreters:
    """The carried interpreters: their files in a release, and the archives of these in the bundle file."""

    packed: tuple[contract.Interpreter, ...] = ()
    files: frozenset[str] = frozenset()  # members that are in an archive
    members: Members = field(default_factory=dict)
    archives: Members = field(default_factory=dict)
    packages: tuple[debian.DebianPackage, ...] = ()


def _interpreters(
    profile: Profile, context: BuildContext, members: Members, scratch: Path, progress: Progress
) -> _Interpreters:
    """An interpreter for each machine, and the bytecode of all modules among `members`.

    Packages travel as bytecode alone, without the source. Of the runtime both do: any Python can open the file.
    """
    compiler = Compiler(context, progress, scratch)
    sources = {name: file for name, file in members.items() if isinstance(file, Path) and file.suffix == ".py"}
    extra: Members = {}
    for name, file in compiler.bytecode(sources, scratch / "bytecode").items():
        if name.startswith(f"{SITE}/"):
            del members[name]
            extra[f"{name}c"] = file
        else:
            extra[interpreter.cached(name)] = file
    packed: list[contract.Interpreter] = []
    archives: Members = {}
    inside: set[str] = set()
    packages: list[debian.DebianPackage] = []
    for machine in profile.machines:
        built = interpreter.build(machine, context, compiler, scratch, progress)
        prefix = carried.folder(machine)
        files = {prefix + path.relative_to(built.folder).as_posix(): path for path in files_below(built.folder)}
        raw = interpreter.pack([(_entry(path, file), file) for path, file in sorted(files.items())], prefix)
        one = contract.Interpreter(machine, built.version, len(raw), hashlib.sha256(raw).hexdigest())
        packed.append(one)
        archives[one.member] = raw
        extra |= files
        extra |= {f"{LICENSES}/{name}": file for name, file in built.licenses.items()}
        inside |= files.keys()
        packages += built.packages
    return _Interpreters(tuple(packed), frozenset(inside), extra, archives, tuple(packages))


def _listed(recipe: Recipe, export: ExportArtifact, data: DataArtifact) -> sbom.Model:
    """The shipped model, for the bill of materials."""
    shipped = export.shipped_model
    return sbom.Model(
        name=recipe.name,
        version=recipe.version,
        sha256=sha256_file(export.folder / shipped.folder / MODEL_NAME),
        task=recipe.task,
        precision=shipped.precision,
        labels=data.labels,
        score=shipped.ledger.score,
        float_score=export.float_model.ledger.score,
        datasets=tuple(
            sbom.Dataset(split, data.rows[split], sha256_file(data.folder / f"{split}.jsonl"))
            for split in SPLITS
            if split in data.rows
        ),
        ancestors=_ancestors(recipe),
    )


def _ancestors(recipe: Recipe) -> tuple[str, ...]:
    """Names of the pretrained models of student and teacher; of local folders the last part."""
    sections = [section for section in (recipe.student, recipe.teacher) if section is not None]
    named = [section.model for section in sections if isinstance(section.model, str)]
    return tuple(dict.fromkeys(Path(name).name if is_local_folder(name) else name for name in named))


def _target_facts(profile: Profile, site: _Site) -> contract.TargetFacts:
    return contract.TargetFacts(
        profile=profile.name,
        machines=profile.machines,
        libc_min=site.libc_min,
        interpreter=profile.interpreter,
        provider=profile.provider,
    )


def _manifest(
    recipe: Recipe,
    target: contract.TargetFacts,
    model: Mapping[str, Any],
    gates: Mapping[str, Any],
    ledger: tuple[LedgerRow, ...],
    members: Members,
    inside: _Interpreters,
    first: bytes,
) -> contract.Manifest:
    return contract.Manifest(
        name=recipe.name,
        version=recipe.version,
        sequence=sequence(recipe.version),
        task=recipe.task,
        target=target,
        model=model,
        gates=gates,
        ledger=tuple(asdict(row) for row in ledger),
        tools=tool_versions(),
        recipe_sha256=recipe_sha256(recipe),
        head_sha256=hashlib.sha256(first).hexdigest(),
        interpreters=inside.packed,
        files=tuple(_entry(path, members[path]) for path in sorted(members)),
    )


def _gates(recipe: Recipe, expected: golden.Golden) -> dict[str, Any]:
    """The recipe's gates, with the facts of the baseline, and the digest of golden rows that are not carried."""
    gates: dict[str, Any] = recipe.gates.model_dump(mode="json")
    if not recipe.gates.golden.carry:
        gates["golden"]["sha256"] = hashlib.sha256(expected.rows_jsonl).hexdigest()
    if recipe.gates.baseline is not None:
        gates["accuracy"]["baseline"] = baseline.facts(recipe.gates.baseline)
    return gates


def _entry(path: str, content: Path | bytes) -> contract.FileEntry:
    if isinstance(content, bytes):
        return contract.FileEntry(path, len(content), hashlib.sha256(content).hexdigest())
    return contract.FileEntry(path, content.stat().st_size, sha256_file(content))


def _readme(recipe: Recipe, profile: Profile, site: _Site, file: str, example: str) -> bytes:
    text = Template(_README.read_text(encoding="utf-8")).substitute(
        name=recipe.name,
        version=recipe.version,
        target=profile.name,
        needs=_needs(profile, site),
        needs_zh=_needs_in_chinese(profile, site),
        file=file,
        example=example,
    )
    return text.encode()


def _needs(profile: Profile, site: _Site) -> str:
    """What the device must have, for the README."""
    machines = {"x86_64": "x86-64 (also called amd64)", "aarch64": "64-bit ARM (aarch64, arm64)"}
    lines = [f"Linux on {' or '.join(machines[machine] for machine in profile.machines)}"]
    if profile.interpreter == BUNDLED:
        lines.append("a shell with tail, head, gzip, tar and mktemp, as every Linux and busybox has them")
    else:
        lines += [
            f"glibc {site.libc_min} or newer, and Python 3.8 or newer: those of the system",
            f"these system libraries: {', '.join(site.system_libraries) or 'none'}",
        ]
    return "\n".join(f"  - {line}" for line in lines)


def _needs_in_chinese(profile: Profile, site: _Site) -> str:
    machines = {"x86_64": "x86-64（amd64）", "aarch64": "64 位 ARM（aarch64、arm64）"}
    lines = [f"Linux，{'或 '.join(machines[machine] for machine in profile.machines)}"]
    if profile.interpreter == BUNDLED:
        lines.append("shell 以及 tail、head、gzip、tar、mktemp：各种 Linux 和 busybox 都有")
    else:
        lines += [
            f"系统自带的 glibc {site.libc_min} 或更新，Python 3.8 或更新",
            f"以下系统库：{', '.join(site.system_libraries) or '无'}",
        ]
    return "\n".join(f"  - {line}" for line in lines)


def _report(site: _Site, checks: Checks, progress: Progress) -> None:
    for package in site.packages:
        before, after = mib(package.bytes_before), mib(package.bytes_after)
        progress.line(f"{package.name} {package.version}: {before} -> {after} after slimming")
    progress.line(
        f"{counted(len(checks.passed), 'content check')} passed; binaries need glibc {site.libc_min} or newer"
    )
    for line in checks.notes:
        progress.line(f"note: {line}")
