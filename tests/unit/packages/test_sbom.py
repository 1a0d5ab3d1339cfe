from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import ComponentType

from edgepack import __version__
from edgepack.artifacts import Score
from edgepack.interpreter import debian
from edgepack.packages import sbom
from edgepack.packages.site_packages import Package

MODEL = sbom.Model(
    name="hotel-sentiment",
    version="1.2.0",
    sha256="1" * 64,
    task="text-classification",
    architecture=sbom.Architecture("ERNIE, int8", "transformer"),
    labels=("负面", "正面"),
    score=Score(0.9, 0.88, 0.92, 2000, 0.95),
    float_score=Score(0.905, 0.885, 0.925, 2000, 0.95),
    datasets=(sbom.Dataset("train", 8000, "a" * 64), sbom.Dataset("test", 2000, "b" * 64)),
    ancestors=("ernie-3.0-tiny-nano-v2-zh",),
)
NUMPY = Package("numpy", "2.4.6", "numpy-2.4.6-cp311.whl", "2" * 64, "BSD-3-Clause AND 0BSD", (), 9, 100, 50)
CRATES = "licenses/tokenizers-0.23.3/sboms/crates.cyclonedx.json"
TOKENIZERS = Package("tokenizers", "0.23.3", "tokenizers.whl", "3" * 64, "Apache-2.0", (CRATES,), 3, 70, 60)

LIBC = debian.DebianPackage("libc6", "2.36-9", "4" * 64, "pool/main/g/glibc/libc6_2.36-9_amd64.deb", replaces="2.36-8")


@pytest.fixture
def document() -> dict[str, Any]:
    return dict(json.loads(sbom.bill_of_materials(MODEL, [NUMPY, TOKENIZERS], [LIBC], "local")))


def component(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (entry for entry in document["components"] if entry["name"] == name)
    return dict(found)


def test_it_is_cyclonedx_that_the_library_reads_back(document: dict[str, Any]) -> None:
    [tool] = document["metadata"]["tools"]["components"]
    assert (tool["name"], tool["version"]) == ("edgepack", __version__)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    bom: Any = Bom.from_json(document)  # type: ignore[attr-defined]
    kinds = {found.name: found.type for found in bom.components}
    assert kinds == {
        "hotel-sentiment-model": ComponentType.MACHINE_LEARNING_MODEL,
        "hotel-sentiment-train": ComponentType.DATA,
        "hotel-sentiment-test": ComponentType.DATA,
        "edgepack-runtime": ComponentType.LIBRARY,
        "numpy": ComponentType.LIBRARY,
        "tokenizers": ComponentType.LIBRARY,
        "libc6": ComponentType.LIBRARY,
    }
    assert bom.validate()


def test_each_package_of_the_interpreter_is_named_with_what_it_replaced(document: dict[str, Any]) -> None:
    libc = component(document, "libc6")
    assert libc["purl"] == "pkg:deb/debian/libc6@2.36-9?arch=amd64"
    assert libc["hashes"] == [{"alg": "SHA-256", "content": "4" * 64}]
    assert libc["properties"] == [{"name": "edgepack:replaces-locked", "value": "2.36-8"}]


def test_each_wheel_has_package_url_hash_and_licence(document: dict[str, Any]) -> None:
    numpy = component(document, "numpy")
    assert numpy["purl"] == "pkg:pypi/numpy@2.4.6?file_name=numpy-2.4.6-cp311.whl"
    assert numpy["hashes"] == [{"alg": "SHA-256", "content": "2" * 64}]
    assert numpy["licenses"] == [{"expression": "BSD-3-Clause AND 0BSD"}]
    assert component(document, "tokenizers")["externalReferences"] == [{"type": "bom", "url": CRATES}]
    text = "licenses/numpy-2.4.6/LICENSE.txt"
    licensed = json.loads(sbom.bill_of_materials(MODEL, [replace(NUMPY, license_files=(text,))], [], "t"))
    assert component(licensed, "numpy")["externalReferences"] == [{"type": "license", "url": text}]


def test_the_model_carries_what_was_measured(document: dict[str, Any]) -> None:
    model = component(document, "hotel-sentiment-model")
    assert model["hashes"][0]["content"] == MODEL.sha256
    accuracy, of_float = model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    assert accuracy["value"] == "0.900000"
    assert accuracy["confidenceInterval"] == {"lowerBound": "0.880000", "upperBound": "0.920000"}
    assert accuracy["slice"] == "the shipped file: test split, 2000 rows, 0.95 confidence"
    assert of_float["value"] == "0.905000"
    assert of_float["slice"].startswith("the float file")
    assert "负面, 正面" in model["modelCard"]["modelParameters"]["outputs"][0]["format"]
    parameters = model["modelCard"]["modelParameters"]
    assert (parameters["architectureFamily"], parameters["modelArchitecture"]) == ("transformer", "ERNIE, int8")
    linear = replace(MODEL, architecture=sbom.Architecture("linear model"), float_score=None)
    in_float = json.loads(sbom.bill_of_materials(linear, [NUMPY], [], "t"))
    card = component(in_float, "hotel-sentiment-model")["modelCard"]
    assert len(card["quantitativeAnalysis"]["performanceMetrics"]) == 1
    assert "architectureFamily" not in card["modelParameters"]


def test_the_data_are_named_by_digest(document: dict[str, Any]) -> None:
    model, train = component(document, "hotel-sentiment-model"), component(document, "hotel-sentiment-train")
    assert model["modelCard"]["modelParameters"]["datasets"] == [{"ref": "data-train"}, {"ref": "data-test"}]
    assert (train["bom-ref"], train["type"]) == ("data-train", "data")
    assert train["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert train["properties"] == [{"name": "edgepack:rows", "value": "8000"}]
    [depends] = [entry for entry in document["dependencies"] if entry["ref"] == "model"]
    assert depends["dependsOn"] == ["data-test", "data-train"]


def test_the_model_names_its_ancestor(document: dict[str, Any]) -> None:
    [ancestor] = component(document, "hotel-sentiment-model")["pedigree"]["ancestors"]
    assert (ancestor["name"], ancestor["type"]) == ("ernie-3.0-tiny-nano-v2-zh", "machine-learning-model")
    scratch = json.loads(sbom.bill_of_materials(replace(MODEL, ancestors=()), [], [], "t"))
    assert "pedigree" not in component(scratch, "hotel-sentiment-model")


def test_content_alone_decides_the_bytes_and_the_serial_number() -> None:
    first = sbom.bill_of_materials(MODEL, [NUMPY, TOKENIZERS], [], "t")
    assert sbom.bill_of_materials(MODEL, [TOKENIZERS, NUMPY], [], "t") == first
    assert b"timestamp" not in first
    other = sbom.bill_of_materials(replace(MODEL, version="1.2.1"), [NUMPY, TOKENIZERS], [], "t")
    one, two = (json.loads(document)["serialNumber"] for document in (first, other))
    assert one != two and one.startswith("urn:uuid:")


def test_the_wheels_of_two_machines_have_references_that_stay() -> None:
    wheels = [replace(NUMPY, wheel=f"numpy-2.4.6-{machine}.whl") for machine in ("aarch64", "x86_64")]
    made = {sbom.bill_of_materials(MODEL, wheels, [], "linux") for _ in range(2)}
    [document] = map(json.loads, made)
    found = [one["bom-ref"] for one in document["components"] if one["name"] == "numpy"]
    assert sorted(found) == [wheel.wheel for wheel in wheels]


def test_a_licence_that_is_not_known_is_listed_as_such() -> None:
    made = json.loads(sbom.bill_of_materials(MODEL, [replace(NUMPY, license="NOASSERTION")], [], "local"))
    assert component(made, "numpy")["licenses"] == [{"expression": "NOASSERTION"}]
