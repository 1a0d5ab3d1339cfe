from __future__ import annotations

import io
from dataclasses import replace

import pytest

from edgepack.artifacts import BundleArtifact, Checks, ContentCheck
from edgepack.console.console import Console
from edgepack.results import Build


@pytest.fixture
def bundle(built: Build) -> BundleArtifact:
    return built.target_results[0].bundle


def shown(*bundles: BundleArtifact) -> list[str]:
    out = io.StringIO()
    Console(stdout=out, stderr=io.StringIO()).checks(bundles)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_each_bundle_has_a_row_and_what_takes_room_stands_below(bundle: BundleArtifact) -> None:
    checks = Checks((ContentCheck("glibc", "2.34", "<= 2.35"), ContentCheck("opset", "17", "<= 23")))
    jetson = replace(bundle, target="jetpack6", checks=checks)
    assert shown(bundle, jetson) == [
        "checked for  ELF  glibc         opset",
        "local        18   2.28          -",
        "jetpack6     -    2.34 <= 2.35  17 <= 23",
        "value found, and the target's limit; without a limit the device compares",
        "local: onnxruntime-gpu 1.23.0: machine code for sm_87, no PTX; for sm_87",
        "local: a.so looks for libraries in /opt/lib, as it was on the machine that built it",
    ]
    assert shown() == shown(replace(bundle, checks=Checks())) == []
