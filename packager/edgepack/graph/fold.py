"""Constant folding of what paddle2onnx wrote, by ONNX Runtime's own basic optimisations.

paddle2onnx leaves hundreds of Identity nodes and constants as nodes; among them the word embedding multiplied by
the mask of its padding row, which stores the table twice (72 MB become 122). Its own folder, polygraphy,
pip-installs packages at run time (it sets POLYGRAPHY_AUTOINSTALL_DEPS=1 itself), so it is never called.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx
import onnxruntime as ort

from edgepack.errors import StageFailedError
from edgepack.graph.view import drop_unused, foreign_domains

# Optimisations that would put ONNX Runtime's own fused operators into a file that is to stay neutral.
_KEEP_NEUTRAL = ["MatMulAddFusion", "GeluFusionL1", "LayerNormFusionL1"]


def fold_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """A graph that computes the same with constants folded and identities removed.

    A graph that has operators outside the standard domain, or would have them after folding, is given back as it is:
    the versions of such operators are ONNX Runtime's own affair.

    Raises:
        StageFailedError: when ONNX Runtime cannot load `model`.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "folded.onnx"
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(target)
        options.log_severity_level = 3
        try:
            ort.InferenceSession(
                model.SerializeToString(),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=_KEEP_NEUTRAL,
            )
        except Exception as error:
            raise StageFailedError("export: ONNX Runtime cannot load the exported graph", why=str(error)) from error
        folded = onnx.load(str(target))
    if foreign_domains(folded.graph) or foreign_domains(model.graph):
        return model
    opset = next(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))
    del folded.opset_import[:]
    folded.opset_import.append(onnx.helper.make_opsetid("", opset))
    folded.ir_version = model.ir_version
    drop_unused(folded)
    onnx.checker.check_model(folded, full_check=True)
    return folded
