"""A folder of an ERNIE without weights, as far as a recipe reads it."""

from __future__ import annotations

from pathlib import Path

WORDS = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


def write_model(folder: Path, config: str = '{"max_position_embeddings": 512}') -> None:
    """Write its settings, its vocabulary and an empty file of weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config, encoding="utf-8")
    (folder / "vocab.txt").write_text(WORDS, encoding="utf-8")
    (folder / "model_state.pdparams").write_bytes(b"")
