"""Write the graphs that lie here, as paddle2onnx exports them: once with each version of Paddle, by hand.

    python tests/unit/golden/graphs/make.py 33     # in the default environment
    python tests/unit/golden/graphs/make.py 26     # in that of Paddle 2.6

Two layers of two heads, hidden size 8, 16 tokens, 3 labels, random weights.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import onnx

from edgepack.onnx_graph.utils import fold_constants, name_by_position
from edgepack.training import environment

HERE: Final = Path(__file__).parent
TASKS: Final = {"texts": "text-classification", "tokens": "token-classification"}
SHAPE: Final = {
    "vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
    "max_position_embeddings": 12, "type_vocab_size": 2, "task_type_vocab_size": 3, "use_task_id": True,
    "initializer_range": 0.5, "num_classes": 3,
}  # fmt: skip


def main(version: str) -> None:
    environment.start()
    import paddle
    from paddlenlp.transformers import ErnieConfig

    from edgepack.training.models import classifiers, export
    from edgepack.training.models.classifiers import Classifier

    for name, task in TASKS.items():
        paddle.seed(1)
        network = classifiers.build(task, ErnieConfig(**SHAPE))  # type: ignore[arg-type]
        nothing: Any = None
        with tempfile.TemporaryDirectory() as folder:
            static = Path(folder)
            export.static_graph(Classifier(network, nothing, task, (), 12), static)  # type: ignore[arg-type]
            export.float_onnx(static, static / "raw.onnx")
            model = fold_constants(onnx.load(str(static / "raw.onnx")))
        name_by_position(model, "logits")
        onnx.save(model, str(HERE / f"{name}-{version}.onnx"))


if __name__ == "__main__":
    main(sys.argv[1])
