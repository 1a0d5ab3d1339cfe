"""The engine on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Tuple

from edgepack_runtime.bundle.model_config import CPU, EngineConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import model_file
from edgepack_runtime.engine.batch import InputBatch
from edgepack_runtime.engine.denormals import DenormalsAsZero
from edgepack_runtime.engine.ort_api import OrtError
from edgepack_runtime.errors import StageFailedError


class CpuEngine:
    """One session. See `edgepack_runtime.engine.Engine` and `open_engine`."""

    def __init__(self, config: EngineConfig, folder: Path, tuning: Tuning) -> None:
        # The first session of a process sets the mode of the thread that opens it, too, and for good.
        with DenormalsAsZero():
            self._session = model_file.open_classifier(config, folder, tuning)

    @property
    def providers(self) -> Tuple[str, ...]:
        return (CPU,)

    @property
    def version(self) -> str:
        return self._session.api.version

    def run(self, batch: InputBatch) -> List[Any]:
        try:
            with DenormalsAsZero():
                return self._session.run(batch.rows, batch.length, batch.by_name)
        except OrtError as error:
            raise StageFailedError("the model could not be run", why=str(error)) from error
