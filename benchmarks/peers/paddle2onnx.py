"""The float ONNX file exactly as paddle2onnx writes it. Made in the project's environment, run in that of the peers."""

from __future__ import annotations

from pathlib import Path

from peers.model import InParts
from peers.source import Source


def prepare(source: Source, out: Path) -> None:
    from edgepack.training import environment

    environment.start()
    from edgepack.training.models import export

    export.float_onnx(source.static, files(source, out, "float")[0])


def files(source: Source, out: Path, variant: str) -> list[Path]:
    return [out / "model.onnx"]


def open_model(source: Source, out: Path, variant: str, threads: int) -> InParts:
    from peers.onnx_file import open_file

    return open_file(files(source, out, variant)[0], source, threads)
