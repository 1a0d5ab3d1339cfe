"""Files of a tokenizer in a model's folder: vocab.txt and tokenizer_config.json, as PaddleNLP has them.

PaddleNLP's own reader is not used. A folder of somebody else could name any file there, to be read or overwritten.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from edgepack.errors import StageFailedError
from edgepack.recipe.huggingface_config import CHECKPOINT_FIX
from edgepack.recipe.tokenizer_settings import (
    SPECIAL_TOKENS,
    TOKENIZER_SETTINGS,
    checked_vocabulary,
    kept_tokens,
    lower_case,
    tokenizer_problems,
)
from edgepack_runtime.bundle.model_config import BERT, ERNIE, VOCAB_NAME, TokenizerConfig
from edgepack_runtime.inference.tokenizer import ErnieTokenizer

_KEPT: Final = "additional_special_tokens"  # in tokenizer_config.json
_CLASSES: Final = {ERNIE: "ErnieTokenizer", BERT: "BertTokenizer"}  # type in model.json -> `tokenizer_class`


def write_settings(folder: Path, *, lowers: bool, kind: str = ERNIE, kept: Sequence[str] = ()) -> None:
    """Write tokenizer_config.json.

    Args:
        lowers: whether texts are lower-cased and lose their accents.
        kind: as in `take`.
        kept: tokens that are kept whole, besides the usual special tokens.
    """
    settings: dict[str, Any] = {"do_lower_case": lowers, **SPECIAL_TOKENS, "tokenizer_class": _CLASSES[kind]}
    settings |= {_KEPT: list(kept)} if kept else {}
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
    raw, unfit = checked_vocabulary(source, rows)
    if problems := [*tokenizer_problems(source), *unfit]:
        raise StageFailedError(
            f"the tokenizer of model {name!r} cannot be used", why="; ".join(problems), fix=CHECKPOINT_FIX
        )
    (out / VOCAB_NAME).write_bytes(raw)
    write_settings(out, lowers=lower_case(source), kind=kind, kept=kept_tokens(source))


def config_of(folder: Path) -> TokenizerConfig:
    """The tokenizer's settings in a folder that a build wrote.

    Raises:
        StageFailedError: the folder does not describe a tokenizer.
    """
    try:
        config = json.loads((folder / TOKENIZER_SETTINGS).read_text(encoding="utf-8"))
        special = {key: config[key] for key in SPECIAL_TOKENS if key != "mask_token"}
        kind = next(kind for kind, name in _CLASSES.items() if name == config["tokenizer_class"])
        kept = tuple(config.get(_KEPT, ()))
        return TokenizerConfig(kind, lower_case=bool(config["do_lower_case"]), **special, kept_tokens=kept)
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise StageFailedError(
            f"{folder / TOKENIZER_SETTINGS} does not describe a tokenizer", why=str(error), fix="copy the model again"
        ) from error


def open_tokenizer(folder: Path) -> ErnieTokenizer:
    """The tokenizer of a folder that a build wrote. Raises as `config_of`."""
    return ErnieTokenizer(folder / VOCAB_NAME, config_of(folder))
