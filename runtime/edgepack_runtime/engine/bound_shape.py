"""Inputs and output of one shape that stay where they are on a device, so that a captured CUDA graph can be replayed.

Launching the kernels of a small model one by one takes longer than running them. A CUDA graph launches all of them at
once, but it reads and writes the very addresses that it was captured with: so each shape gets buffers of its own, and a
graph of its own under a number that ONNX Runtime gets with every run.
"""

from __future__ import annotations

from typing import Any, Dict, Sequence

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edgepack_runtime.engine.graph_inputs import OUTPUTS

NOT_CAPTURED = -1  # ONNX Runtime's word for a run that neither captures nor replays


class BoundShape:
    """Buffers for (B, T) token ids on `device`, and for the logits of them. Not for two threads at once.

    Args:
        session: of ONNX Runtime.
        inputs: names of what the model reads.
        batch: B.
        length: T.
        device: in ONNX Runtime's words: "cuda" or "cpu".
        graph_id: what a graph of this shape is captured under, 1 or more, unlike that of any other shape of this
            session.
    """

    def __init__(
        self, session: Any, inputs: Sequence[str], batch: int, length: int, device: str, graph_id: int
    ) -> None:
        self._session = session
        # An array each: on the CPU a value is not a copy of its array.
        self._inputs: Dict[str, Any] = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((batch, length), dtype=np.int64), device, 0)
            for name in inputs
        }
        shape = self._output_shape(device)
        self._output = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32, device, 0)
        self._binding = self._bound()
        self._binding.bind_ortvalue_output(OUTPUTS[0], self._output)
        self._options = run_options(graph_id)

    def run(self, given: Dict[str, NDArray[np.int64]]) -> NDArray[np.float32]:
        """Logits of `given`, arrays of exactly this shape by the name of their input, int64 and contiguous."""
        for name, value in self._inputs.items():
            value.update_inplace(given[name])
        self._binding.synchronize_inputs()
        self._session.run_with_iobinding(self._binding, self._options)
        self._binding.synchronize_outputs()
        logits: NDArray[np.float32] = np.array(self._output.numpy())  # the next run writes over the buffer
        return logits

    def _bound(self) -> Any:
        binding = self._session.io_binding()
        for name, value in self._inputs.items():
            binding.bind_ortvalue_input(name, value)
        return binding

    def _output_shape(self, device: str) -> Sequence[int]:
        """By running once: what a kernel allocates on its first run must not be allocated while a graph is captured."""
        binding = self._bound()
        binding.bind_output(OUTPUTS[0], device)
        self._session.run_with_iobinding(binding, run_options(NOT_CAPTURED))
        shape: Sequence[int] = binding.get_outputs()[0].shape()
        return shape


def run_options(graph_id: int) -> Any:
    """Options of a run that captures or replays the graph of this number, or none with `NOT_CAPTURED`."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options
