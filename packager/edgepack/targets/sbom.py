"""The bundle's bill of materials: CycloneDX 1.6 as JSON, with the same bytes for the same content.

cyclonedx-python-lib writes the document. Three things are done to it afterwards: the time of writing goes
out, the serial number is derived from the content instead of drawn at random, and the model card goes in,
which the library cannot express.
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
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from edgepack import __version__
from edgepack.artifacts import Score
from edgepack.targets.site import Package

SBOM_NAME = "sbom.cdx.json"
_MODEL_REF = "model"
EDGEPACK_LICENSE = "Apache-2.0"


@dataclass(frozen=True)
class Model:
    """The shipped model: its file's digest, what it does, and what was measured on the test split."""

    name: str
    version: str
    sha256: str  # of model.onnx
    task: str
    precision: str
    labels: tuple[str, ...]
    score: Score


def bill_of_materials(model: Model, packages: Sequence[Package], target: str) -> bytes:
    """CycloneDX JSON of a bundle: the model, the runtime, each wheel with package URL, hash and licence."""
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
    )
    wheels = [_wheel(package) for package in packages]
    bom = Bom(components=[network, runtime, *wheels])
    bom.metadata.component = bundle
    bom.register_dependency(bundle, [network, runtime])
    bom.register_dependency(runtime, wheels)
    written = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    return _settled(json.loads(written), model)


def _wheel(package: Package) -> Component:
    file = {"file_name": package.wheel}
    nested = [path for path in package.license_files if path.endswith(".cyclonedx.json")]
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{package.name}@{package.version}",
        purl=PackageURL("pypi", name=package.name, version=package.version, qualifiers=file),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=package.sha256)],
        licenses=[LicenseExpression(package.license)],
        # What is compiled into the wheel's binaries, as its builders list it.
        external_references=[ExternalReference(type=ExternalReferenceType.BOM, url=XsUri(p)) for p in nested],
    )


def _settled(document: dict[str, Any], model: Model) -> bytes:
    """The document's canonical bytes: without a clock, with a name that its content decides."""
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
    score = model.score
    metrics: list[dict[str, Any]] = [
        {
            "type": score.metric,
            "value": f"{score.value:.6f}",
            "slice": f"test split, {score.n} rows, {score.confidence:g} confidence",
            "confidenceInterval": {"lowerBound": f"{score.low:.6f}", "upperBound": f"{score.high:.6f}"},
        }
    ]
    return {
        "modelParameters": {
            "task": model.task,
            "architectureFamily": "transformer",
            "modelArchitecture": f"ERNIE, {model.precision}",
            "outputs": [{"format": f"one of {len(model.labels)} labels: {', '.join(model.labels)}"}],
        },
        "quantitativeAnalysis": {"performanceMetrics": metrics},
    }


def _canonical(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, ensure_ascii=False, indent=1, sort_keys=True) + "\n").encode()
