"""A tiny classifier of texts as others export them: embeddings, their mean over the tokens of a mask, one product.

The logits of a text are the shares of the tokens that vote for each label; a token votes for `id % labels`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, checker, helper, numpy_helper

VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "好", "坏", "的", "房", "间", "￥", "##1", "1")
NAMES = ("input_ids", "token_type_ids", "attention_mask")


def model(
    *,
    names: Sequence[str] = NAMES,
    integer: int = TensorProto.INT64,
    mask: int = TensorProto.INT64,
    labels: int = 2,
    tokens: bool = False,
    end: str = "",
    shape: Sequence[str | int] = ("batch", "sequence"),
    output: str = "logits",
) -> onnx.ModelProto:
    """The graph: one to three inputs; `tokens` gives logits of each token; `end` is a last operator, as Softmax."""
    size = len(VOCABULARY)
    votes = np.eye(labels, dtype=np.float32)[np.arange(size) % labels] * 4
    constants = [numpy_helper.from_array(votes, "votes")]
    inputs = [helper.make_tensor_value_info(names[0], integer, shape)]
    nodes = [helper.make_node("Gather", ["votes", names[0]], ["voted"])]
    found = "voted"
    if len(names) > 1:  # types add nothing; they must be fed
        inputs.append(helper.make_tensor_value_info(names[1], integer, shape))
        constants += [numpy_helper.from_array(np.zeros((2, labels), np.float32), "types")]
        nodes += [
            helper.make_node("Gather", ["types", names[1]], ["typed"]),
            helper.make_node("Add", ["voted", "typed"], ["summed"]),
        ]
        found = "summed"
    if not tokens:
        constants += [numpy_helper.from_array(np.array([-1]), "last"), numpy_helper.from_array(np.array([1]), "one")]
        weight = "weights"
        if len(names) > 2:
            inputs.append(helper.make_tensor_value_info(names[2], mask, shape))
            nodes += [
                helper.make_node("Cast", [names[2]], ["as_float"], to=TensorProto.FLOAT),
                helper.make_node("Unsqueeze", ["as_float", "last"], [weight]),
            ]
        else:
            nodes += [
                helper.make_node("Shape", [names[0]], ["size"]),
                helper.make_node("ConstantOfShape", ["size"], ["ones"], value=helper.make_tensor("v", 1, [1], [1.0])),
                helper.make_node("Unsqueeze", ["ones", "last"], [weight]),
            ]
        nodes += [
            helper.make_node("Mul", [found, weight], ["weighted"]),
            helper.make_node("ReduceSum", ["weighted", "one"], ["total"], keepdims=0),
            helper.make_node("ReduceSum", [weight, "one"], ["count"], keepdims=0),
            helper.make_node("Div", ["total", "count"], ["mean"]),
        ]
        found = "mean"
    last = [helper.make_node(end or "Identity", [found], [output])]
    axes = [*shape, labels] if tokens else [shape[0], labels]
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, axes)
    graph = helper.make_graph([*nodes, *last], "given", inputs, [result], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(made)
    return made


def write_vocabulary(file: Path) -> Path:
    """`vocab.txt` with VOCABULARY."""
    file.write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    return file
