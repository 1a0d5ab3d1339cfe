"""The models that all are compared on: built by this project's own pipeline, and handed on as Hugging Face's BERT."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from build_recipe import build_recipe

from peers.source import Source, save

CALIBRATION_ROWS: Final = 256


@dataclass(frozen=True)
class Case:
    """A model with the data it is made for, and a training that two CPU cores finish in minutes."""

    name: str
    data: str
    labels: tuple[str, ...]
    max_length: int
    student: dict[str, Any]
    rows: int | None
    trained: bool = True
    layers: int = 4
    hidden: int = 312
    heads: int = 12
    timed: bool = True


CASES: Final = (
    # 130 tokens hold 128 characters, [CLS] and [SEP].
    Case("hotel", "hotel-sentiment", ("0", "1"), 130, {"epochs": 3, "learning_rate": 2e-4}, 3000),
    Case(
        "news", "news-topics", tuple(map(str, range(10))), 32, {"epochs": 4, "learning_rate": 2e-4}, 8000, timed=False
    ),
    # Trained on short rows that are learnt in some steps: its times are what it is for.
    Case("6x768", "hotel-sentiment", ("0", "1"), 130, {"epochs": 20, "learning_rate": 1e-4}, 64, False, 6, 768, 12),
)
_EASY_ROWS: Final = {"train": range(32), "dev": range(32, 64), "test": range(64, 128)}


def source(case: Case, data: Path, weights: Path, student: str, work: Path) -> Source:
    """Build a case's model and hand it on; what is there from an earlier run is taken as it is.

    Args:
        data: holds a folder of each data set, with train.tsv, dev.tsv and test.tsv.
        weights: holds ERNIE folders.
        student: the one of them that is trained, and whose vocabulary the random model has.
        work: gets everything.
    """
    ours = work / case.name
    ours.mkdir(parents=True, exist_ok=True)
    start = weights / student if case.trained else _random(case, weights / student, ours / "random")
    stages = build_recipe(_recipe(case, data / case.data, start, ours), work / "stages", "export")
    folder = ours / stages["student"].name[:16]  # other weights, other files
    folder.mkdir(exist_ok=True)
    huggingface = folder / "huggingface"
    to_huggingface(stages["student"], case.labels, huggingface)
    made = Source(
        name=case.name,
        folder=folder,
        trained=case.trained,
        labels=case.labels,
        max_length=case.max_length,
        layers=case.layers,
        hidden=case.hidden,
        heads=case.heads,
        huggingface=huggingface,
        static=stages["export"] / "paddle",
        paddlenlp=stages["student"],
        onnx_float=stages["export"] / "onnx-float",
        onnx_int8=stages["export"] / "onnx-int8",
        train=data / case.data / "train.tsv",
        test=data / case.data / "test.tsv",
        calibration_rows=CALIBRATION_ROWS,
    )
    save(made)
    return made


def _recipe(case: Case, data: Path, start: Path, folder: Path) -> Path:
    files = {split: data / f"{split}.tsv" for split in ("train", "dev", "test")}
    if not case.trained:
        files = {split: _easy(case, folder / f"{split}.tsv", rows) for split, rows in _EASY_ROWS.items()}
    document = {
        "edgepack": 1,
        "name": f"peers-{case.name}",
        "version": "1.0.0",
        "task": "text-classification",
        "data": {
            **{split: str(file) for split, file in files.items()},
            "train_rows": case.rows,
            "calibration": {"from": "train", "rows": min(CALIBRATION_ROWS, case.rows or CALIBRATION_ROWS)},
        },
        "student": {"model": str(start), "max_length": case.max_length, "device": "cpu", **case.student},
    }
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(document, ensure_ascii=False, indent=2), encoding="utf-8")  # JSON is YAML
    return path


def _easy(case: Case, out: Path, rows: range) -> Path:
    """A TSV of short rows whose first character tells the label."""
    marks = dict(zip(case.labels, "差好", strict=True))
    lines = (f"{marks[label]}，{row} 号房\t{label}\n" for row in rows for label in case.labels)
    out.write_text("".join(["text\tlabel\n", *lines]), encoding="utf-8")
    return out


def _random(case: Case, vocabulary_of: Path, folder: Path) -> Path:
    """An encoder of a case's shape with random weights, and the vocabulary of another, as PaddleNLP saves it."""
    if (folder / "config.json").is_file():
        return folder
    from edgepack.training import environment

    environment.start()
    import paddle
    from paddlenlp.transformers import ErnieConfig, ErnieModel, ErnieTokenizer

    paddle.seed(0)
    like = ErnieConfig.from_pretrained(str(vocabulary_of))
    network = ErnieModel(
        ErnieConfig(
            vocab_size=like.vocab_size, hidden_size=case.hidden, num_hidden_layers=case.layers,
            num_attention_heads=case.heads, intermediate_size=4 * case.hidden, use_task_id=True,
            max_position_embeddings=512, type_vocab_size=4, task_type_vocab_size=16,
        )
    )  # fmt: skip
    ErnieTokenizer.from_pretrained(str(vocabulary_of)).save_pretrained(str(folder))
    network.save_pretrained(str(folder))
    return folder


def to_huggingface(paddlenlp: Path, labels: tuple[str, ...], folder: Path) -> None:
    """A classifier that PaddleNLP saved, as transformers' BertForSequenceClassification.

    Every exporter knows BERT, and not every one ERNIE. An ERNIE whose task is always 0 is a BERT whose token types
    have the embedding of that task added: the sum of embeddings is the same. Linear weights are (in, out) in Paddle and
    (out, in) in torch.
    """
    from edgepack.training import environment

    environment.start()
    import paddle
    from safetensors.numpy import save_file

    from edgepack.training.models.encoder_names import in_checkpoint, is_linear

    fields = json.loads((paddlenlp / "config.json").read_text(encoding="utf-8"))
    found = {
        name.removeprefix("ernie."): weight.numpy().astype(np.float32)
        for name, weight in paddle.load(str(paddlenlp / "model_state.pdparams")).items()
    }
    task = found.pop("embeddings.task_type_embeddings.weight", None)
    if task is not None:
        found["embeddings.token_type_embeddings.weight"] = found["embeddings.token_type_embeddings.weight"] + task[0]
    weights = {
        ("" if name.startswith("classifier.") else "bert.") + in_checkpoint(name): np.ascontiguousarray(
            weight.T if is_linear(name) else weight
        )
        for name, weight in found.items()
    }
    sizes = (
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings "
        "type_vocab_size hidden_dropout_prob attention_probs_dropout_prob initializer_range"
    )
    config = {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification"],
        **{key: fields[key] for key in sizes.split()},
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,  # whatever config.json says: PaddleNLP computes with this one
        "pad_token_id": 0,
        "position_embedding_type": "absolute",
        "id2label": {str(place): label for place, label in enumerate(labels)},
        "label2id": {label: place for place, label in enumerate(labels)},
    }
    folder.mkdir(exist_ok=True)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    vocabulary = (paddlenlp / "vocab.txt").read_text(encoding="utf-8")
    (folder / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    tokenizer = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
