"""The bundle's bill of materials: CycloneDX 1.6 as JSON, with the same bytes for the same content.

It lists the model with its measurements, digests of the data for training and gates, the pretrained models, the
runtime, every wheel, and the packages of the interpreter.

cyclonedx-python-lib writes the document. Afterwards the timestamp is removed, the random serial number is replaced by
one derived from the content, and the model card is added, which the library cannot express.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType, Pedigree
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from edgepack import __version__
from edgepack.artifacts import Score
from edgepack.interpreter.built import OwnBuild
from edgepack.interpreter.debian import DebianPackage
from edgepack.packages.site_packages import Package

SBOM_NAME = "sbom.cdx.json"
_MODEL_REF = "model"
EDGEPACK_LICENSE = "Apache-2.0"
# Use of a split -> its description.
_USES = {
    "train": "training",
    "dev": "early stopping and selection",
    "test": "measurement; golden rows of the gates",
    "unlabelled": "distillation, without labels",
    "examples": "golden examples of the gates",
}


@dataclass(frozen=True)
class Dataset:
    """One split with the digest of its normalised rows."""

    split: str
    rows: int
    sha256: str


@dataclass(frozen=True)
class Architecture:
    """Of the model card: a name such as `ERNIE, int8`, and its family, such as `transformer`."""

    name: str
    family: str | None = None


@dataclass(frozen=True)
class Model:
    """The shipped model: digest of its file, task, and measurements on the test split."""

    name: str
    version: str
    sha256: str  # of model.onnx, or of linear.json without an encoder
    task: str
    architecture: Architecture
    labels: tuple[str, ...]
    score: Score
    float_score: Score | None  # of the float file of the same student; None if that ships
    datasets: tuple[Dataset, ...] = ()
    ancestors: tuple[str, ...] = ()  # names of its pretrained models


def bill_of_materials(
    model: Model, packages: Sequence[Package], interpreter: Sequence[DebianPackage | OwnBuild], target: str
) -> bytes:
    """CycloneDX JSON of a bundle: the model, the runtime, and what it runs on, with package URLs and hashes.

    Args:
        model: the shipped model.
        packages: the wheels.
        interpreter: what the carried interpreters are made of.
        target: name of the profile.
    """
    bundle = Component(
        name=model.name,
        version=model.version,
        type=ComponentType.APPLICATION,
        bom_ref="bundle",
        properties=[Property(name="edgepack:target", value=target)],
    )
    runtime = Component(
        name="edgepack-runtime",
        version=__version__,
        type=ComponentType.LIBRARY,
        bom_ref="edgepack-runtime",
        licenses=[LicenseExpression(EDGEPACK_LICENSE)],
    )
    network = Component(
        name=f"{model.name}-model",
        version=model.version,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=_MODEL_REF,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=model.sha256)],
        pedigree=_pedigree(model),
    )
    libraries = [_wheel(package, packages) for package in packages] + [_interpreter(origin) for origin in interpreter]
    data = [_data(model, dataset) for dataset in model.datasets]
    bom = Bom(components=[network, runtime, *data, *libraries])
    bom.metadata.component = bundle
    bom.metadata.tools.components.add(Component(name="edgepack", version=__version__, type=ComponentType.APPLICATION))
    bom.register_dependency(bundle, [network, runtime])
    bom.register_dependency(network, data)
    bom.register_dependency(runtime, libraries)
    written = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    return _settled(json.loads(written), model)


def _pedigree(model: Model) -> Pedigree | None:
    models = [Component(name=name, type=ComponentType.MACHINE_LEARNING_MODEL) for name in model.ancestors]
    return Pedigree(ancestors=models) if models else None


def _data(model: Model, dataset: Dataset) -> Component:
    return Component(
        name=f"{model.name}-{dataset.split}",
        type=ComponentType.DATA,
        bom_ref=_data_ref(dataset),
        description=_USES[dataset.split],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=dataset.sha256)],
        properties=[Property(name="edgepack:rows", value=str(dataset.rows))],
    )


def _data_ref(dataset: Dataset) -> str:
    return f"data-{dataset.split}"


def _wheel(package: Package, packages: Sequence[Package]) -> Component:
    file = {"file_name": package.wheel}
    nested = [path for path in package.license_files if path.endswith(".cyclonedx.json")]
    texts = [path for path in package.license_files if not path.endswith(".json")]
    # Of two equal references the library makes random ones. A package may have a wheel for each machine.
    is_one = [other.name for other in packages].count(package.name) == 1
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}@{package.version}" if is_one else package.wheel,
        purl=PackageURL("pypi", name=package.name, version=package.version, qualifiers=file),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)],
        licenses=[LicenseExpression(package.license)],
        # Members of the bundle: the builders' list of components in the wheel's binaries, and licence texts.
        external_references=[
            *(ExternalReference(type=ExternalReferenceType.BOM, url=XsUri(path)) for path in nested),
            *(ExternalReference(type=ExternalReferenceType.LICENSE, url=XsUri(path)) for path in texts),
        ],
    )


def _interpreter(origin: DebianPackage | OwnBuild) -> Component:
    if isinstance(origin, OwnBuild):
        return Component(
            name="cpython",
            version=origin.version,
            type=ComponentType.LIBRARY,
            bom_ref=f"cpython@{origin.version}",
            purl=PackageURL(
                "generic", name="cpython", version=origin.version, qualifiers={"file_name": origin.archive}
            ),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=origin.sha256)],
        )
    return _debian(origin)


def _debian(package: DebianPackage) -> Component:
    architecture = package.file_name.removesuffix(".deb").rpartition("_")[2]
    purl = PackageURL("deb", "debian", package.name, package.version, qualifiers={"arch": architecture})
    replaced = [Property(name="edgepack:replaces-locked", value=package.replaces)] if package.replaces else []
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}@{package.version}-{architecture}",
        purl=purl,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)],
        properties=replaced,
    )


def _settled(document: dict[str, Any], model: Model) -> bytes:
    """The document's canonical bytes: without a timestamp, with a serial number derived from the content."""
    del document["metadata"]["timestamp"]
    del document["serialNumber"]
    for component in document["components"]:
        if component["bom-ref"] == _MODEL_REF:
            component["modelCard"] = _model_card(model)
    digest = hashlib.sha256(_canonical(document)).digest()
    document["serialNumber"] = uuid.UUID(bytes=digest[:16], version=5).urn
    return _canonical(document)


def _model_card(model: Model) -> dict[str, Any]:
    """CycloneDX modelCard; the standard writes figures as texts."""
    metrics = [_metric(model.score, "the shipped file")]
    if model.float_score is not None:
        metrics.append(_metric(model.float_score, "the float file of the same student, for comparison"))
    family, labels = model.architecture.family, model.labels
    answers = f"one of {len(labels)} labels: {', '.join(labels)}" if labels else "JSON"
    return {
        "modelParameters": {
            "task": model.task,
            "datasets": [{"ref": _data_ref(dataset)} for dataset in model.datasets],
            **({} if family is None else {"architectureFamily": family}),
            "modelArchitecture": model.architecture.name,
            "outputs": [{"format": answers}],
        },
        "quantitativeAnalysis": {"performanceMetrics": metrics},
    }


def _metric(score: Score, of: str) -> dict[str, Any]:
    return {
        "type": score.metric,
        "value": f"{score.value:.6f}",
        "slice": f"{of}: test split, {score.n} rows, {score.confidence:g} confidence",
        "confidenceInterval": {"lowerBound": f"{score.low:.6f}", "upperBound": f"{score.high:.6f}"},
    }


def _canonical(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()
