"""Writer of model folders for the runtime: graph, vocabulary, and their configuration."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import onnx

from edgepack import evaluation
from edgepack.artifacts import DataArtifact, ModelArtifact, Precision
from edgepack.onnx_graph.encoder import Encoder
from edgepack.onnx_graph.float16 import half
from edgepack.onnx_graph.graph_writer import Layout, compose, fastest
from edgepack.onnx_graph.int8_operators import OrtCpuForm
from edgepack_runtime.bundle import model_config
from edgepack_runtime.bundle.model_config import CPU, CUDA, EngineConfig, TokenizerConfig
from edgepack_runtime.inference.predictor import Predictor

# The fused kernel takes 537 us per run; the operators that it replaces take about 120 (4 layers x 312, x86).
ON_CPU: Final = EngineConfig(CPU, disabled_optimizers=("SkipLayerNormFusion",))
_FINDS_RANGE: Final = "DynamicQuantizeLinear"  # one range for a whole batch


def finds_range(graph: onnx.ModelProto) -> bool:
    """Whether a graph computes quantization ranges in each run, over the whole batch."""
    return any(node.op_type == _FINDS_RANGE for node in graph.graph.node)


@dataclass(frozen=True)
class ModelWriter:
    """Writes model folders of one student."""

    student: ModelArtifact
    data: DataArtifact
    tokenizer: TokenizerConfig
    reduced: bool = False  # weights of 7 bits, where they are INT8
    engine: EngineConfig = ON_CPU

    @property
    def layout(self) -> Layout:
        """The fastest layout. A CPU skips the mask and runs each length by itself; a GPU runs all lengths at once."""
        layout = fastest(pairs=self.data.text_task.pairs, tokens=self.student.max_length)
        return replace(layout, unpadded=self.engine.provider != CUDA)

    def write_as(self, precision: Precision, folder: Path, encoder: Encoder) -> None:
        """Write the encoder in `precision`, in the form that ONNX Runtime runs fastest."""
        form = OrtCpuForm(reduced=self.reduced) if precision == "int8" else None
        graph = compose(encoder, self.layout, form)
        self.write(folder, half(graph) if precision == "float16" else graph, precision)

    def trial(self, precision: Precision, beside: Path) -> Callable[[Encoder], Predictor]:
        """A function that loads an encoder in its shipped form, from a temporary folder in `beside`."""

        def opened(encoder: Encoder) -> Predictor:
            with TemporaryDirectory(prefix=".trial-", dir=beside) as scratch:
                self.write_as(precision, Path(scratch) / "model", encoder)
                return evaluation.opened(Path(scratch) / "model")

        return opened

    def write(self, folder: Path, graph: onnx.ModelProto, precision: Precision, *, as_laid_out: bool = True) -> None:
        """Write a model folder. A graph that is not `as_laid_out` is the exported one, with a padding mask."""
        config = model_config.ModelConfig(
            task=self.data.task,
            labels=self.student.labels,
            max_length=self.student.max_length,
            precision=precision,
            multi_label=self.data.multi_label,
            hides_padding=not (as_laid_out and self.layout.unpadded),
            run_alone=finds_range(graph),
            tokenizer=self.tokenizer,
            engine=self.engine,
        )
        folder.mkdir()
        onnx.save(graph, str(folder / "model.onnx"))
        shutil.copy(self.student.folder / "vocab.txt", folder)
        (folder / "model.json").write_bytes(model_config.dump(config))
