"""PaddleSlim's post-training quantization, saved by Paddle and converted by paddle2onnx: the documented way to INT8.

It is made with Paddle 2.6: `paddle.jit.save` of a quantized model fails in Paddle 3.3.
"""

from __future__ import annotations

from pathlib import Path

from peers.model import InParts
from peers.source import Source


def prepare(source: Source, out: Path) -> None:
    from edgepack.training import environment

    environment.start()
    import paddle
    from paddle.quantization import PTQ, QuantConfig
    from paddleslim.quant.observers import AbsMaxChannelWiseWeightObserver, HistObserver

    from edgepack.artifacts import Row
    from edgepack.training.models import classifiers, export

    classifier = classifiers.load(source.paddlenlp, source.labels, source.max_length, "text-classification")
    config = QuantConfig(activation=None, weight=None)
    config.add_type_config([paddle.nn.Linear], activation=HistObserver(), weight=AbsMaxChannelWiseWeightObserver())
    quantizer = PTQ(config)
    observed = quantizer.quantize(classifier.network, inplace=False)
    for encoded in classifier.encode([Row(text, ()) for text in source.calibration()]):
        observed(paddle.to_tensor([list(encoded.ids)]), paddle.to_tensor([list(encoded.types)]))  # (1, T) each
    quantized = quantizer.convert(observed, inplace=False)
    quantized.eval()
    spec = [paddle.static.InputSpec([None, None], "int64", name=name) for name in export.INPUTS]
    paddle.jit.save(paddle.jit.to_static(quantized, input_spec=spec), str(out / "static" / "model"))
    export.float_onnx(out / "static", files(source, out, "onnx")[0])


def files(source: Source, out: Path, variant: str) -> list[Path]:
    static = [out / "static" / "model.pdmodel", out / "static" / "model.pdiparams"]
    return {"onnx": [out / "model.onnx"], "static": static}[variant]


def open_model(source: Source, out: Path, variant: str, threads: int) -> InParts:
    if variant == "onnx":
        from peers.onnx_file import open_file

        return open_file(files(source, out, variant)[0], source, threads)
    from peers.paddle import open_graph

    return open_graph(files(source, out, variant), source, threads)
