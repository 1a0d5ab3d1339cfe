"""What bundles of imported models ship: what depends on the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.runtime.imported_model import write_imported

from edgepack.artifacts import Members
from edgepack.imported.shipment import for_provider
from edgepack.stages.bundle import Payload
from edgepack_runtime.bundle.model_config import CPU, CUDA, load, parse


@pytest.mark.parametrize("provider", [CPU, CUDA])
def test_the_model_runs_on_the_provider_of_its_target(tmp_path: Path, provider: str) -> None:
    folder, empty = write_imported(tmp_path / "model"), cast(Any, None)
    model: Members = {f"model/{file.name}": file for file in folder.iterdir()}
    made = for_provider(provider, Payload(model, {}, None, {}, {}, empty, None, {}))
    raw = made.model["model/model.json"]
    config, before = parse(raw.read_bytes() if isinstance(raw, Path) else raw), load(folder)
    assert (config.engine.provider, config.handler) == (provider, before.handler)
    assert made.model["model/model.onnx"] == folder / "model.onnx"
