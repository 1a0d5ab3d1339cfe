"""Folders of checkpoints in Hugging Face's layout, and the problems that a recipe finds in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgepack.errors import RecipeInvalidError
from edgepack.recipe.loader import load_recipe

# bert-base-chinese's own config.json, but for the sizes.
BERT: dict[str, Any] = {
    "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "directionality": "bidi",
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 8, "initializer_range": 0.02,
    "intermediate_size": 24, "layer_norm_eps": 1e-12, "max_position_embeddings": 64, "model_type": "bert",
    "num_attention_heads": 2, "num_hidden_layers": 2, "pad_token_id": 0, "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3, "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform", "type_vocab_size": 2, "vocab_size": 40,
}  # fmt: skip
ERNIE = {**BERT, "model_type": "ernie", "use_task_id": True, "task_type_vocab_size": 16, "layer_norm_eps": 1e-5}
RECIPE = """\
edgepack: 1
name: hotel
version: 1.2.0
data: {train: builtin:reviews-zh}
student: {model: ./checkpoint, max_length: 32}
"""


def write(
    folder: Path, config: object = BERT, tokenizer: object = None, weights: str = "model.safetensors", **files: str
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / weights).write_bytes(b"")
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n", encoding="utf-8")
    if tokenizer is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content, encoding="utf-8")
    return folder


def found(folder: Path, recipe: str = RECIPE) -> list[str]:
    (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
    try:
        load_recipe(folder / "recipe.yaml", {"local"})
    except RecipeInvalidError as error:
        return [finding.reason.partition(" cannot be converted: ")[2] or finding.key for finding in error.findings]
    return []
