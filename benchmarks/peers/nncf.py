"""Intel's OpenVINO, and INT8 by NNCF's post-training quantization for transformers, as NNCF's documentation has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openvino
from transformers import AutoTokenizer

from peers.model import InParts
from peers.source import Source

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def prepare(source: Source, out: Path) -> None:
    import nncf
    from transformers import AutoModelForSequenceClassification

    encode = _encoder(source, "pt")
    model = AutoModelForSequenceClassification.from_pretrained(source.huggingface).eval()
    converted = openvino.convert_model(model, example_input=encode("好"))
    converted.reshape({name: [1, -1] for name in INPUTS})
    openvino.save_model(converted, files(source, out, "float")[0], compress_to_fp16=False)
    texts = nncf.Dataset(source.calibration(), _encoder(source, "np"))
    kind, preset = nncf.ModelType.TRANSFORMER, nncf.QuantizationPreset.MIXED
    quantized = nncf.quantize(converted, texts, model_type=kind, preset=preset, subset_size=source.calibration_rows)
    openvino.save_model(quantized, files(source, out, "int8")[0], compress_to_fp16=False)


def files(source: Source, out: Path, variant: str) -> list[Path]:
    return [out / f"{variant}.xml", out / f"{variant}.bin"]


def open_model(source: Source, out: Path, variant: str, threads: int) -> InParts:
    # Left to itself, OpenVINO computes in bfloat16 where the processor can. A float model that is compared with
    # others' is one in float32.
    wanted: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if variant == "float":
        wanted["INFERENCE_PRECISION_HINT"] = "f32"
    compiled = openvino.Core().compile_model(files(source, out, variant)[0], "CPU", wanted)
    request = compiled.create_infer_request()
    return InParts(
        _encoder(source, "np"),
        lambda encoded: request.infer(encoded)[0][0].tolist(),
        lambda encoded: encoded["input_ids"][0].tolist(),
    )


def _encoder(source: Source, tensors: str) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(source.huggingface)

    def encode(text: str) -> dict[str, Any]:
        return dict(tokenizer(text, truncation=True, max_length=source.max_length, return_tensors=tensors))

    return encode
