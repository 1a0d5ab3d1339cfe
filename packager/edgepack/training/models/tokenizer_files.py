"""Files of a tokenizer in a model's folder: vocab.txt and tokenizer_config.json, as PaddleNLP has them.

PaddleNLP's own reader is not used. A folder of somebody else could name any file there, to be read or overwritten.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edgepack.errors import StageFailedError
from edgepack.recipe import huggingface_config
from edgepack.recipe.huggingface_config import (
    CHECKPOINT_FIX,
    SPECIAL_TOKENS,
    TOKENIZER_SETTINGS,
    lower_case,
    tokenizer_problems,
)
from edgepack_runtime.bundle.model_config import BERT, ERNIE, VOCAB_NAME, TokenizerConfig
from edgepack_runtime.inference.tokenizer import MASK_TOKEN, ErnieTokenizer

_CLASSES: Final = {ERNIE: "ErnieTokenizer", BERT: "BertTokenizer"}  # type in model.json -> `tokenizer_class`


def write_settings(folder: Path, *, lowers: bool, kind: str = ERNIE) -> None:
    """Write tokenizer_config.json. `lowers`: whether texts are lower-cased and lose their accents."""
    settings = {"do_lower_case": lowers, **SPECIAL_TOKENS, "tokenizer_class": _CLASSES[kind]}
    (folder / TOKENIZER_SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def copy(source: Path, out: Path) -> None:
    """Copy the files from a folder that a build wrote."""
    for name in (VOCAB_NAME, TOKENIZER_SETTINGS):
        shutil.copyfile(source / name, out / name)


def take(source: Path, out: Path, rows: int, name: str, kind: str = ERNIE) -> None:
    """Write what the tokenizer in a folder of somebody else means to `out`.

    Args:
        source: a folder of PaddleNLP or of Hugging Face.
        rows: of the model's word embedding.
        name: of the model, for the error.
        kind: type of the tokenizer, as `model.json` names it.

    Raises:
        StageFailedError: that tokenizer would tokenize differently, or the vocabulary does not fit.
    """
    problems = tokenizer_problems(source)
    try:
        raw = huggingface_config.vocabulary(source)
        problems += _vocabulary_problems(raw.decode("utf-8"), rows)
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{VOCAB_NAME} cannot be read ({error})")
    if problems:
        raise StageFailedError(
            f"the tokenizer of model {name!r} cannot be used", why="; ".join(problems), fix=CHECKPOINT_FIX
        )
    (out / VOCAB_NAME).write_bytes(raw)
    write_settings(out, lowers=lower_case(source), kind=kind)


def _vocabulary_problems(text: str, rows: int) -> Iterator[str]:
    """Check that the vocabulary has at most `rows` lines, and [PAD] first: batches are padded with id 0."""
    entries = [line.rstrip("\n") for line in io.StringIO(text, newline=None)]  # as `read_vocab` of the runtime
    needed = [token for token in SPECIAL_TOKENS.values() if token != MASK_TOKEN]
    if missing := [token for token in needed if token not in entries]:
        yield f"{VOCAB_NAME} lacks {' '.join(missing)}"
    elif entries[0] != SPECIAL_TOKENS["pad_token"]:
        yield f"{VOCAB_NAME} has {entries[0][:80]!r} in its first line, which must be [PAD]"
    if len(entries) > rows:
        yield f"{VOCAB_NAME} has {len(entries)} lines, and `vocab_size` is {rows}"


def config_of(folder: Path) -> TokenizerConfig:
    """The tokenizer's settings in a folder that a build wrote.

    Raises:
        StageFailedError: the folder does not describe a tokenizer.
    """
    try:
        config = json.loads((folder / TOKENIZER_SETTINGS).read_text(encoding="utf-8"))
        special = {key: config[key] for key in SPECIAL_TOKENS if key != "mask_token"}
        kind = next(kind for kind, name in _CLASSES.items() if name == config["tokenizer_class"])
        return TokenizerConfig(kind, lower_case=bool(config["do_lower_case"]), **special)
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise StageFailedError(
            f"{folder / TOKENIZER_SETTINGS} does not describe a tokenizer", why=str(error), fix="copy the model again"
        ) from error


def open_tokenizer(folder: Path) -> ErnieTokenizer:
    """The tokenizer of a folder that a build wrote. Raises as `config_of`."""
    return ErnieTokenizer(folder / VOCAB_NAME, config_of(folder))
