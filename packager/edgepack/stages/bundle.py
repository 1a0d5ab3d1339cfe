"""Stage `bundle`: write one file for a target from runtime, model, wheels, golden rows, bill of materials, manifest.

Equal inputs give equal bytes: nothing depends on the clock, on paths, or on the order of directory listings.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Any, ClassVar, Final

import edgepack_runtime
from edgepack import __version__
from edgepack.artifacts import (
    ROWS_SUFFIX,
    BundleArtifact,
    Examples,
    LedgerRow,
    Members,
)
from edgepack.binaries import fit
from edgepack.binaries.fit import SystemRequirements
from edgepack.bundle import bundled_interpreters
from edgepack.bundle.archive import listed, write_bundle
from edgepack.bundle.bundled_interpreters import Interpreters
from edgepack.bundle.inspect import bytes_by_part
from edgepack.bundle.main_program import main_source
from edgepack.bundle.stub import STUB_TEMPLATE, stub
from edgepack.packages import opsets, sbom, site_packages
from edgepack.packages.site_packages import LICENSES, Package
from edgepack.packages.target_spec import target_specs
from edgepack.progress import Progress
from edgepack.recipe.model import AnyRecipe
from edgepack.recipe.paths import without_folders
from edgepack.results import Build
from edgepack.stages import keys
from edgepack.stages.stage import Context, Input, Stage
from edgepack.targets import package_data
from edgepack.targets.context import BuildContext
from edgepack.targets.machines import BY_NAME
from edgepack.targets.profiles import Profile
from edgepack.util.folders import scratch_folder
from edgepack.util.hashing import sha256_file
from edgepack.util.text import counted, mib
from edgepack.util.versions import tool_versions
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.manifest import BUNDLED, HOST
from edgepack_runtime.util.fs import user_cache

_README = Path(__file__).parent / "device_readme.txt"


@dataclass(frozen=True)
class Payload:
    """What a bundle ships of a model.

    Attributes:
        model: the files of the model folder, by their path in the release.
        golden: the golden files, by their path in the release.
        kept_rows: the labelled rows, if they are kept out of the bundle; else None.
        facts: `model` of the manifest.
        gates: `gates` of the manifest.
        described: the model, for the bill of materials.
        examples: wrong and changed answers, for the report; None for a handler.
        readme: values of the README's placeholders.
    """

    model: Members
    golden: Members
    kept_rows: bytes | None
    facts: Mapping[str, Any]
    gates: Mapping[str, Any]
    described: sbom.Model
    examples: Examples | None
    readme: Mapping[str, str]


class Shipment(ABC):
    """What the bundles of a recipe ship, once its stages have results.

    Attributes:
        is_imported: whether edgepack did not train the model: then the build runs it confined.
    """

    is_imported: ClassVar[bool] = False

    @property
    @abstractmethod
    def needs(self) -> tuple[Stage[Any], ...]:
        """The stages whose results decide what ships."""

    @abstractmethod
    def recipe(self, ctx: Context) -> AnyRecipe:
        """The recipe, with the values of the chosen candidate."""

    @abstractmethod
    def made(self, ctx: Context) -> Sequence[Stage[Any]]:
        """The stages that made what ships, with those before them."""

    @abstractmethod
    def packed(self, ctx: Context) -> Sequence[Stage[Any]]:
        """The stages whose results go into a bundle."""

    def decides(self, ctx: Context) -> Any:
        """JSON value that changes the bundle besides recipe, ledger and results."""
        return None

    @abstractmethod
    def weight_bytes(self, ctx: Context, target: str) -> int:
        """Bytes of the weights in the bundle of a target."""

    @abstractmethod
    def payload(self, ctx: Context, target: str, scratch: Path) -> Payload:
        """Make the files. `scratch` is a folder for temporary files."""

    def build(self, ctx: Context) -> Build:
        """The artifacts of what ships."""
        return Build(self.recipe(ctx), {stage.name: ctx.artifact(stage) for stage in self.made(ctx)})


@dataclass(frozen=True, eq=False)
class BundleStage(Stage[BundleArtifact]):
    """Writes `NAME-VERSION-TARGET.edgepack`, and the golden rows beside it if the bundle does not carry them.

    Errors of `run`: RecipeInvalidError or TargetUnreachableError if the target is unknown or cannot be built on this
    machine; EnvironmentUnfitError if a wheel cannot be fetched; StageFailedError if a wheel or a model folder is
    invalid.
    """

    target: str = field()  # no default, though the base class has one
    shipment: Shipment

    name = "bundle"
    version = 22
    kind = BundleArtifact
    recipe_keys = {"": ""}  # noqa: RUF012 - never changed

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return self.shipment.needs

    def _ledger(self, ctx: Context) -> tuple[LedgerRow, ...]:
        return tuple(row.timeless() for row in self.shipment.build(ctx).ledger)

    def decides(self, ctx: Context) -> Any:
        recipe = self.shipment.recipe(ctx)
        return {
            "version": recipe.version,  # a part of the recipe, for `plan` to name
            "recipe": recipe_sha256(recipe),
            "target": self.target,
            "ledger": [asdict(row) for row in self._ledger(ctx)],
            "tools": tool_versions(),  # the manifest lists them
            "ships": self.shipment.decides(ctx),
        }

    def inputs(self, ctx: Context) -> list[Input]:
        recipe, profile = self.shipment.recipe(ctx), ctx.targets.profile(self.target)
        return [
            *(keys.whole(ctx[stage]) for stage in self.shipment.packed(ctx)),
            *keys.runtime(),
            *keys.named("packages, profile or templates", packages_and_templates(recipe, profile, ctx.targets)),
            *keys.baseline(recipe.gates),
        ]

    def run(self, ctx: Context, out: Path) -> BundleArtifact:
        recipe, target, progress = self.shipment.recipe(ctx), self.target, ctx.progress
        profile = ctx.targets.profile(target)
        file = out / f"{recipe.name}-{recipe.version}-{target}.edgepack"
        rows_file = file.with_suffix(ROWS_SUFFIX)
        with scratch_folder(".bundle-", out) as scratch:
            payload = self.shipment.payload(ctx, target, scratch)
            if payload.kept_rows is not None:
                rows_file.touch(mode=0o600)
                rows_file.write_bytes(payload.kept_rows)
            specs = target_specs(recipe, profile)
            site = site_packages.site_for(specs, ctx.targets, scratch, progress)
            members = _runtime() | payload.model | site.members
            inside, members = bundled_interpreters.assemble(
                recipe, profile, ctx.targets, members, scratch, progress, added=site.added
            )
            members |= inside.members
            needs = fit.together([site.needs, *(one.needs for one in inside.built if one.needs is not None)])
            passed = needs.checks
            for name, content in payload.model.items():
                if name.endswith(".onnx") and isinstance(content, Path):
                    passed = passed.and_also(opsets.check(content, site.packages))
            _report(site.packages, replace(needs, checks=passed), progress)
            members |= payload.golden
            members[sbom.SBOM_NAME] = sbom.bill_of_materials(payload.described, site.packages, inside.origins, target)
            members[contract.README_NAME] = _readme(recipe, profile, needs, file.name, payload.readme)
            title = f"{recipe.name} {recipe.version} for {target}"
            first = stub(recipe.name, title, {packed.machine: packed for packed in inside.packed})
            target_facts, ledger = _target_facts(profile, needs.glibc), self._ledger(ctx)
            manifest = _manifest(recipe, target_facts, payload.facts, payload.gates, ledger, members, inside, first)
            raw = contract.dump(manifest)
            contract.parse(raw)  # the device's first check
            unpacked = max(manifest.bytes_for(machine) for machine in profile.machines)
            progress.line(f"writing {file.name}: {len(members) + 1} files, {mib(unpacked)} unpacked")
            zipped = {path: content for path, content in members.items() if path not in inside.members}
            zipped |= {**inside.archives, contract.MANIFEST_NAME: raw}
            lzma_cache = user_cache() / "lzma" if profile.interpreter == BUNDLED else None
            write_bundle(zipped, file, first, lzma_cache=lzma_cache, progress=progress)
        return BundleArtifact(
            folder=out,
            file_name=file.name,
            target=target,
            bundle_bytes=file.stat().st_size,
            unpacked_bytes=unpacked + len(raw),
            manifest_sha256=hashlib.sha256(raw).hexdigest(),
            bytes_by_part={part: size.packed for part, size in bytes_by_part(file).items()},
            checks=passed,
            libc_min=needs.glibc,
            examples=payload.examples,
            rows_name=None if payload.kept_rows is None else rows_file.name,
        )


def packages_and_templates(recipe: AnyRecipe, profile: Profile, context: BuildContext) -> list[str]:
    """Digests that decide a bundle besides recipe, data, model and runtime: of profile, packages, stub and README."""
    given = [sha256_file(wheel) for wheel in context.given.get(profile.name, ())]
    given += [] if recipe.requirements is None else [sha256_file(recipe.requirements)]
    return [package_data.digest(), repr(profile), *given, sha256_file(STUB_TEMPLATE), sha256_file(_README)]


def recipe_sha256(recipe: AnyRecipe) -> str:
    """Digest of the resolved recipe. Absolute paths count by their last part, since a project may move.

    The `sign` section does not count: bundles are signed when they are written to `dist`.
    """
    document = without_folders(recipe.model_dump(mode="json", by_alias=True, exclude={"sign"}))
    return hashlib.sha256(json.dumps(document, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def _runtime() -> Members:
    """The sources of the runtime with their licence, and the program that `python3 FILE` runs."""
    folder = Path(edgepack_runtime.__path__[0])
    members: Members = {path.relative_to(folder.parent).as_posix(): path for path in keys.runtime_files()}
    members[f"{LICENSES}/edgepack-{__version__}/{sbom.EDGEPACK_LICENSE}.txt"] = package_data.text(
        "licenses", f"{sbom.EDGEPACK_LICENSE}.txt"
    ).encode()
    return members | {contract.MAIN_NAME: main_source()}


def _target_facts(profile: Profile, libc_min: str) -> contract.TargetFacts:
    return contract.TargetFacts(
        profile=profile.name,
        machines=profile.machines,
        libc_min=libc_min,
        interpreter=profile.interpreter,
        provider=profile.provider,
    )


def _manifest(
    recipe: AnyRecipe,
    target: contract.TargetFacts,
    model: Mapping[str, Any],
    gates: Mapping[str, Any],
    ledger: tuple[LedgerRow, ...],
    members: Members,
    inside: Interpreters,
    first: bytes,
) -> contract.Manifest:
    return contract.Manifest(
        name=recipe.name,
        version=recipe.version,
        sequence=contract.sequence_of(recipe.version),
        task=recipe.task,
        target=target,
        model=model,
        gates=gates,
        ledger=tuple(asdict(row) for row in ledger),
        tools=tool_versions(),
        recipe_sha256=recipe_sha256(recipe),
        stub_sha256=hashlib.sha256(first).hexdigest(),
        interpreters=inside.packed,
        files=tuple(listed(path, members[path]) for path in sorted(members)),
    )


def _readme(
    recipe: AnyRecipe, profile: Profile, needs: SystemRequirements, file: str, words: Mapping[str, str]
) -> bytes:
    """The README; `words` has `example`, `kind`, `ask`, `several` and `reads` with their Chinese forms."""
    serve, serve_zh = _NO_SERVE, _NO_SERVE_ZH
    if recipe.serve:
        serve, serve_zh = _SERVE.format(ask=words["ask"]), _SERVE_ZH.format(ask=words["ask"])
    text = Template(_README.read_text(encoding="utf-8")).substitute(
        name=recipe.name,
        version=recipe.version,
        target=profile.name,
        needs=_needs(profile, needs),
        needs_zh=_needs_in_chinese(profile, needs),
        file=file,
        serve=serve,
        serve_zh=serve_zh,
        **{key: words[key] for key in ("example", "kind", "kind_zh", "several", "several_zh", "reads", "reads_zh")},
    )
    return text.encode()


_NO_SERVE: Final = "not in this file: it was built without `serve: true`"
_NO_SERVE_ZH: Final = "本文件没有此功能：构建时没有 `serve: true`"
_SERVE: Final = """HTTP, and a page to try it: http://127.0.0.1:8000/
      curl {ask} http://127.0.0.1:8000/predict
      for other machines, which send a token (16 or more characters):
          (umask 077; head -c 24 /dev/urandom | base64 > token)
          serve --host 0.0.0.0 --token-file token
          curl -H 'Authorization: Bearer TOKEN' ...   as above, from the other machine
      at every start of the device: sh FILE install --systemd prints what to type, and the
      unit's comment how other machines may ask"""
_SERVE_ZH: Final = """HTTP 服务和试用页面：http://127.0.0.1:8000/
      curl {ask} http://127.0.0.1:8000/predict
      供其他机器访问，需要令牌（至少 16 个字符）：
          (umask 077; head -c 24 /dev/urandom | base64 > token)
          serve --host 0.0.0.0 --token-file token
          curl -H 'Authorization: Bearer 令牌' ...   其余同上，在其他机器上运行
      开机自动启动：sh FILE install --systemd，它会显示要输入的命令；
      供其他机器访问的方法写在该单元文件的注释里"""


def _needs(profile: Profile, needs: SystemRequirements) -> str:
    """What the device must have, for the README."""
    lines = [f"Linux on {' or '.join(BY_NAME[machine].description for machine in profile.machines)}"]
    if profile.interpreter == HOST:
        lines.append("Python 3.8 or newer of the system")
    else:
        lines.append("a shell with tail, head, gzip, tar, mktemp, ls and id, as every Linux and busybox has them")
    if profile.interpreter != BUNDLED:
        lines.append(f"glibc {needs.glibc} or newer of the system")
        lines.append(f"these system libraries: {', '.join(needs.libraries) or 'none'}")
    return "\n".join(f"  - {line}" for line in lines)


def _needs_in_chinese(profile: Profile, needs: SystemRequirements) -> str:
    lines = [f"Linux，{'或 '.join(BY_NAME[machine].description_zh for machine in profile.machines)}"]
    if profile.interpreter == HOST:
        lines.append("系统自带的 Python 3.8 或更新")
    else:
        lines.append("shell 以及 tail、head、gzip、tar、mktemp、ls、id：各种 Linux 和 busybox 都有")
    if profile.interpreter != BUNDLED:
        lines.append(f"系统自带的 glibc {needs.glibc} 或更新")
        lines.append(f"以下系统库：{', '.join(needs.libraries) or '无'}")
    return "\n".join(f"  - {line}" for line in lines)


def _report(packages: Sequence[Package], needs: SystemRequirements, progress: Progress) -> None:
    for package in packages:
        before, after = mib(package.bytes_before), mib(package.bytes_after)
        if before != mib(0):
            progress.line(f"{package.name} {package.version}: {before} -> {after} after slimming")
    progress.line(
        f"{counted(len(needs.checks.passed), 'content check')} passed; binaries need glibc {needs.glibc} or newer"
    )
    for line in needs.checks.notes:
        progress.line(f"note: {line}")
