"""A container image of finished bundles: nothing but the release, its interpreter and its C library, from scratch.

    /app/                      the release for one machine, exactly the files of its manifest
    /lib64/ld-linux-x86-64.so.2, /lib/x86_64-linux-gnu    links to its C library: the kernel starts CPython by itself
    /etc/passwd, /etc/group, /tmp

Two layers: interpreter, ONNX Runtime and runtime, which releases of one version of edgepack share; and the model with
its golden rows. There is no shell. The folder is the same for every release, so that the first layer is, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from edgepack.bundle.inspect import part_of
from edgepack.errors import StageFailedError, UsageError
from edgepack.oci import layout
from edgepack.oci.layout import Descriptor, ImageLayer, ImageLayout, TarEntry
from edgepack.packages.sbom import SBOM_NAME
from edgepack.progress import Progress
from edgepack.targets import machines
from edgepack_runtime.bundle import extract, interpreter, verify
from edgepack_runtime.bundle import manifest as contract
from edgepack_runtime.bundle.archive import Archive
from edgepack_runtime.bundle.golden import MODEL_FOLDER
from edgepack_runtime.bundle.manifest import (
    BUNDLE_BYTES,
    BUNDLED,
    MANIFEST_NAME,
    PYTHON_FOLDER,
    SIGNATURE_NAME,
    FileEntry,
    Manifest,
)
from edgepack_runtime.install import trust
from edgepack_runtime.util.fs import replacing

APP: Final = "app"
USER: Final = 65532  # `nonroot` of other images from scratch
PORT: Final = 8000
_CHANGED: Final = "it changed after it was checked"
_SBOM_TYPE: Final = "application/vnd.cyclonedx+json"
_LICENSES: Final = "licenses/"
_CREATED: Final = "1970-01-01T00:00:00Z"
_SECOND_NS: Final = 1_000_000_000
_ENGINE, _MODEL = "interpreter and engine", "model"
_PASSWD: Final = f"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:{USER}:{USER}:nonroot:/tmp:/sbin/nologin\n".encode()
_GROUP: Final = f"root:x:0:\nnonroot:x:{USER}:\n".encode()


@dataclass(frozen=True)
class Image:
    """The image for one platform: its manifest and its layers by what they hold. Sizes are in bytes."""

    platform: str  # "linux/amd64"; "any" of a model alone
    manifest: Descriptor
    layers: Mapping[str, ImageLayer]


@dataclass(frozen=True)
class WrittenImage:
    """The file with all images, and the reference of the whole in it."""

    file: Path
    reference: str  # NAME:VERSION, or NAME-model:VERSION
    digest: str
    images: tuple[Image, ...]

    def as_json(self) -> dict[str, Any]:
        """Digests and sizes in bytes, as plain JSON values."""
        return {
            "file": str(self.file),
            "reference": self.reference,
            "digest": self.digest,
            "images": [
                {
                    "platform": image.platform,
                    "digest": image.manifest.digest,
                    "layers": [
                        {
                            "name": name,
                            "digest": layer.blob.digest,
                            "diff_id": layer.diff_id,
                            "packed_bytes": layer.blob.size,
                            "unpacked_bytes": layer.unpacked_bytes,
                        }
                        for name, layer in image.layers.items()
                    ],
                }
                for image in self.images
            ],
        }


def write(bundles: Sequence[Path], out: Path | None, *, model_only: bool, progress: Progress) -> WrittenImage:
    """Write one image of `bundles`, which are of one version of one recipe, for each machine that they are for.

    Args:
        out: the file; NAME-VERSION.oci.tar beside the first bundle by default.
        model_only: only the files of the model, for a volume; of one bundle.

    Raises:
        UsageError: a bundle does not fit into an image, or the bundles do not belong together.
        BundleInvalidError: a bundle is damaged, or its signature is wrong.
        EnvironmentUnfitError: a bundle is signed, and ssh-keygen is not installed.
        StageFailedError: the file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        opened = [_OpenBundle.open(path, stack) for path in bundles]
        first = opened[0].manifest
        _require_one_release(opened, model_only=model_only)
        suffix = ".model.oci.tar" if model_only else ".oci.tar"
        # Under another name: in a registry it would take the place of the image.
        reference = f"{first.name}-model:{first.version}" if model_only else f"{first.name}:{first.version}"
        target = out or bundles[0].with_name(f"{first.name}-{first.version}{suffix}")
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="edgepack-image-", dir=target.parent))
            collected = ImageLayout(Path(folder))
            images = [_model_image(collected, opened[0])] if model_only else _images(collected, opened, progress)
            whole = images[0].manifest if model_only else _index(collected, images, opened)
            with replacing(target) as file:
                collected.write(file, whole, reference)
        except (OSError, ValueError) as error:
            raise StageFailedError(
                f"the image {target.name} cannot be written", why=str(error), fix="check the folder and its disk"
            ) from error
    return WrittenImage(target, reference, whole.digest, tuple(images))


class _OpenBundle(NamedTuple):
    path: Path
    archive: Archive
    manifest: Manifest
    raw: bytes
    signature: bytes | None
    signed_by: str | None  # fingerprint of the key that made the signature

    @classmethod
    def open(cls, path: Path, stack: contextlib.ExitStack) -> _OpenBundle:
        """Open a bundle of which every byte is right, its signature included."""
        archive = stack.enter_context(Archive(path))
        raw, signature = verify.read_signed_manifest(archive)
        made = None if signature is None else trust.check_signature(path.name, raw, signature)
        manifest, _ = verify.verify_archive(archive, raw)
        return cls(path, archive, manifest, raw, signature, None if made is None else made.key.fingerprint)

    def common_files(self) -> Iterator[tuple[FileEntry, Iterator[bytes]]]:
        return self.files("")

    def files(self, machine: str) -> Iterator[tuple[FileEntry, Iterator[bytes]]]:
        """The files for a machine, each compared with the manifest again: a disk may return other bytes by now."""
        for entry, chunks in extract.contents(self.archive, self.manifest, machine):
            yield entry, self._as_listed(entry, chunks)

    def _as_listed(self, entry: FileEntry, chunks: Iterator[bytes]) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for data in chunks:
            digest.update(data)
            yield data
        if digest.hexdigest() != entry.sha256:
            raise self.archive.damaged(entry.path, _CHANGED)

    def labels(self) -> dict[str, str]:
        labels = {
            "org.opencontainers.image.title": self.manifest.name,
            "org.opencontainers.image.version": self.manifest.version,
            "edgepack.task": self.manifest.task,
            "edgepack.target": self.manifest.target.profile,
            "edgepack.precision": str(self.manifest.model.get("precision", "")),
            "edgepack.release": contract.release_id(self.manifest, self.raw),
        }
        if self.signed_by is not None:
            labels["edgepack.signed-by"] = self.signed_by
        return labels


def _require_one_release(bundles: Sequence[_OpenBundle], *, model_only: bool) -> None:
    first = bundles[0].manifest
    if model_only and len(bundles) > 1:
        raise UsageError("--model-only takes one bundle", why="a model is the same for every machine")
    taken: dict[str, str] = {}
    for bundle in bundles:
        manifest = bundle.manifest
        if (manifest.name, manifest.version, manifest.recipe_sha256) != (
            first.name, first.version, first.recipe_sha256,
        ):  # fmt: skip
            raise UsageError(
                f"{bundle.path.name} and {bundles[0].path.name} are not of one build",
                why=f"they are {manifest.name} {manifest.version} and {first.name} {first.version}, or of two recipes",
                fix="give bundles of one recipe that differ in the target alone",
            )
        if not model_only:
            _require_fit(bundle)
        for machine in manifest.target.machines:
            if machine in taken and not model_only:
                raise UsageError(f"{bundle.path.name} and {taken[machine]} are both for {machine}")
            taken[machine] = bundle.path.name


def _require_fit(bundle: _OpenBundle) -> None:
    target = bundle.manifest.target
    if target.interpreter != BUNDLED:
        raise UsageError(
            f"{bundle.path.name} cannot become an image",
            why=f"an image from scratch has no Python and no C library, and target {target.profile} carries none",
            fix="build it for `linux`, `linux-x86_64` or `linux-aarch64`",
        )
    if not any(entry.path.startswith("site/uvicorn/") for entry in bundle.manifest.files):
        raise UsageError(
            f"{bundle.path.name} was built without `serve: true`",
            why="an image serves, and this bundle carries no server",
            fix="add `serve: true` to its recipe and build it again",
        )


def _images(collected: ImageLayout, bundles: Iterable[_OpenBundle], progress: Progress) -> list[Image]:
    images = []
    with progress.task("layers", sum(1 + len(bundle.manifest.target.machines) for bundle in bundles)) as task:
        for bundle in bundles:
            model = collected.add_layer(_model(bundle))  # the same for each machine
            task.advance(note=_MODEL)
            for machine in bundle.manifest.target.machines:
                layers = {_ENGINE: collected.add_layer(_engine(bundle, machine)), _MODEL: model}
                task.advance(note=f"{machine}, {_ENGINE}")
                platform = machines.BY_NAME[machine].architecture
                config = _config(bundle, platform, layers, run=_run(bundle, machine))
                images.append(_image(collected, bundle, f"linux/{platform}", config, layers))
    return images


def _engine(bundle: _OpenBundle, machine: str) -> Iterator[TarEntry]:
    """What releases of one version of edgepack share: the system, the interpreter, the engine and the runtime."""
    python = f"/{APP}/{machine}/{PYTHON_FOLDER}"
    here = machines.BY_NAME[machine]
    for path, text in (("etc/group", _GROUP), ("etc/passwd", _PASSWD)):
        yield TarEntry(path, size=len(text), content=[text])
    yield TarEntry(f"{here.loader_folder}/{here.loader}", 0o777, link=f"{python}/bin/ld.so")
    yield TarEntry(f"lib/{here.triplet}", 0o777, link=f"{python}/lib")
    yield TarEntry("tmp", 0o1777, is_folder=True)
    for entry, chunks in bundle.files(machine):
        if not _is_of_model(entry.path):
            yield TarEntry(f"{APP}/{entry.path}", interpreter.mode(entry.path), entry.size, chunks)


def _model(bundle: _OpenBundle) -> Iterator[TarEntry]:
    """The model, its golden rows, and the manifest with its signature."""
    for name, text in ((MANIFEST_NAME, bundle.raw), (SIGNATURE_NAME, bundle.signature)):
        if text is not None:
            yield TarEntry(f"{APP}/{name}", size=len(text), content=[text])
    for entry, chunks in bundle.common_files():
        if _is_of_model(entry.path):
            yield TarEntry(f"{APP}/{entry.path}", interpreter.mode(entry.path), entry.size, chunks)


def _is_of_model(path: str) -> bool:
    return part_of(path) in ("model", "golden", "other") and not path.startswith(_LICENSES)


def _run(bundle: _OpenBundle, machine: str) -> dict[str, Any]:
    """How a container starts. It is asked for its health as systemd asks: by a request."""
    python = [f"/{APP}/{machine}/{PYTHON_FOLDER}/bin/cpython", "-I", "-S", "-B"]
    ask = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}/readyz', timeout=3)"
    return {
        "User": f"{USER}:{USER}",
        "Env": [f"PATH=/{APP}/{machine}/{PYTHON_FOLDER}/bin", f"{BUNDLE_BYTES}={bundle.archive.size}"],
        "WorkingDir": "/tmp",
        "Entrypoint": [*python, f"/{APP}/__main__.py"],
        "Cmd": ["serve", "--host", "0.0.0.0"],  # noqa: S104 - it starts only with a token
        "ExposedPorts": {f"{PORT}/tcp": {}},
        "StopSignal": "SIGTERM",
        "Healthcheck": {
            "Test": ["CMD", *python, "-c", ask],
            "Interval": 30 * _SECOND_NS,
            "Timeout": 5 * _SECOND_NS,
            "StartPeriod": 60 * _SECOND_NS,
            "Retries": 3,
        },
    }


def _config(
    bundle: _OpenBundle, architecture: str, layers: Mapping[str, ImageLayer], *, run: Mapping[str, Any]
) -> dict[str, Any]:
    """The configuration of an image. Its time is always the same: another would change the digests."""
    return {
        "created": _CREATED,
        "architecture": architecture,
        "os": "linux",
        "config": {**run, "Labels": bundle.labels()},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers.values()]},
        "history": [{"created": _CREATED, "created_by": f"edgepack: {name}"} for name in layers],
    }


def _image(
    collected: ImageLayout,
    bundle: _OpenBundle,
    platform: str,
    config: Mapping[str, Any],
    layers: Mapping[str, ImageLayer],
) -> Image:
    document = {
        "schemaVersion": 2,
        "mediaType": layout.MANIFEST,
        "config": collected.add_json(layout.CONFIG, config).as_json(),
        "layers": [layer.blob.as_json() for layer in layers.values()],
        "annotations": bundle.labels(),
    }
    return Image(platform, collected.add_json(layout.MANIFEST, document), layers)


def _model_image(collected: ImageLayout, bundle: _OpenBundle) -> Image:
    """The files of the model at the root: a volume, which no machine runs. Its platform is only for tools that ask."""
    files = (
        TarEntry(entry.path[len(MODEL_FOLDER) + 1 :], size=entry.size, content=chunks)
        for entry, chunks in bundle.common_files()
        if entry.path.startswith(f"{MODEL_FOLDER}/")
    )
    layers = {_MODEL: collected.add_layer(files)}
    architecture = machines.BY_NAME[bundle.manifest.target.machines[-1]].architecture
    config = _config(bundle, architecture, layers, run={})
    return _image(collected, bundle, "any", config, layers)


def _index(collected: ImageLayout, images: Sequence[Image], bundles: Sequence[_OpenBundle]) -> Descriptor:
    """The index of all images, each followed by an artifact with its bill of materials.

    The artifact names its image twice: as its `subject`, for registries that list what refers to an image, and as
    Docker's tools do. No machine is of its platform, so that nobody runs it.
    """
    of_machines = [bundle for bundle in bundles for _ in bundle.manifest.target.machines]
    manifests = []
    for image, bundle in zip(images, of_machines, strict=True):
        system, architecture = image.platform.split("/")
        manifests.append({**image.manifest.as_json(), "platform": {"os": system, "architecture": architecture}})
        manifests.append({
            **_sbom(collected, image, bundle).as_json(),
            "platform": {"os": "unknown", "architecture": "unknown"},
            "annotations": {
                "vnd.docker.reference.type": "attestation-manifest",
                "vnd.docker.reference.digest": image.manifest.digest,
            },
        })  # fmt: skip
    return collected.add_json(layout.INDEX, {"schemaVersion": 2, "mediaType": layout.INDEX, "manifests": manifests})


def _sbom(collected: ImageLayout, image: Image, bundle: _OpenBundle) -> Descriptor:
    raw = bundle.archive.read(SBOM_NAME, contract.MAX_MANIFEST_BYTES)
    listed = next((one.sha256 for one in bundle.manifest.files if one.path == SBOM_NAME), None)
    if hashlib.sha256(raw).hexdigest() != listed:
        raise bundle.archive.damaged(SBOM_NAME, _CHANGED)
    sbom = collected.add(_SBOM_TYPE, raw)
    document = {
        "schemaVersion": 2,
        "mediaType": layout.MANIFEST,
        "artifactType": _SBOM_TYPE,
        "config": collected.add(layout.EMPTY, b"{}").as_json(),
        "layers": [{**sbom.as_json(), "annotations": {"org.opencontainers.image.title": SBOM_NAME}}],
        "subject": image.manifest.as_json(),
    }
    return collected.add_json(layout.MANIFEST, document)
