"""Facts about pre-trained models, before they are loaded: names, shapes, Hugging Face checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.paths import is_file
from edgepack.recipe.training import FromScratch, Scratch, is_local_folder
from edgepack.util import confined_files
from edgepack_runtime.util.fs import read_regular

WEIGHTS_FILES: Final = ("model.safetensors", "pytorch_model.bin")  # the first existing file is used, as in transformers
MOST_EPSILON: Final = 1e-3
_MOST_CONFIG_BYTES: Final = 2**20
MOST_LAYERS: Final = 256  # a layer takes memory and time even with few weights; the deepest of `PRESETS` has 24
KINDS: Final = ("bert", "ernie")
UNFIT: Final = "use a BERT or ERNIE checkpoint; docs/reference/recipe-file.md lists the conditions"

TOKENIZER_SETTINGS: Final = "tokenizer_config.json"
_TOKENIZER_FILES: Final = (TOKENIZER_SETTINGS, "special_tokens_map.json", "added_tokens.json")
# Defaults of keys that a checkpoint's config.json lacks, from transformers' BertConfig and ErnieConfig.
_SIZES: Final[Mapping[str, int]] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "task_type_vocab_size": 3,
}
_FRACTIONS: Final[Mapping[str, float]] = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# Keys with only one value that PaddleNLP's ERNIE supports, which is also the default of a missing key.
_FIXED: Final[Mapping[str, Any]] = {
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "pad_token_id": 0,
    "is_decoder": False,
    "add_cross_attention": False,
}
SPECIAL_TOKENS: Final[Mapping[str, str]] = {
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "mask_token": "[MASK]",
}
_TOKENIZERS: Final = ("BertTokenizer", "BertTokenizerFast", "ErnieTokenizer", "ErnieTokenizerFast")


def file_problems(folder: Path) -> list[str]:
    """Reasons why files of a model's folder are not taken: they lie elsewhere, or are not files. Else empty."""
    problems = []
    for name in (CONFIG_FILE, WEIGHTS_FILE, *WEIGHTS_FILES, "vocab.txt", *_TOKENIZER_FILES):
        try:
            confined_files.below(folder, name)
        except ValueError as error:
            problems.append(str(error))
        except OSError:  # who needs the file reports that it is missing
            continue
    return problems


def weights_of(folder: Path) -> Path | None:
    """The weights of a checkpoint in `folder`; None if there are none."""
    return next((folder / name for name in WEIGHTS_FILES if is_file(folder / name)), None)


def config_problems(fields: Mapping[str, Any]) -> list[str]:
    """Reasons why a checkpoint's config.json cannot be converted, each with its key; empty if it can."""
    kind = fields.get("model_type")
    if kind not in KINDS:
        known = " and ".join(f"`{name}`" for name in KINDS)
        return [f"`model_type` is {_shown(kind)}, and only {known} can be converted"]
    problems = [
        f"`{key}` is {_shown(fields[key])}, and only {_shown(value)} can be converted"
        for key, value in _FIXED.items()
        if fields.get(key, value) != value
    ]
    sizes = {key: fields.get(key, absent) for key, absent in _SIZES.items()}
    wrong = [key for key, size in sizes.items() if type(size) is not int or size < 1]
    problems += [f"`{key}` is {_shown(sizes[key])}, which is not a size" for key in wrong]
    if not wrong and sizes["hidden_size"] % sizes["num_attention_heads"]:
        problems.append(f"`hidden_size` is {sizes['hidden_size']}, which is not a multiple of `num_attention_heads`")
    problems += layer_problems(fields)
    epsilon = fields.get("layer_norm_eps", _FRACTIONS["layer_norm_eps"])
    if type(epsilon) is float and epsilon > MOST_EPSILON:
        problems.append(f"`layer_norm_eps` is {epsilon}, and Paddle computes with at most {MOST_EPSILON}")
    shares = {key: fields.get(key, absent) for key, absent in _FRACTIONS.items()}
    shares["classifier_dropout"] = 0.0 if fields.get("classifier_dropout") is None else fields["classifier_dropout"]
    for key, share in shares.items():
        if type(share) not in (int, float) or not 0 <= share < 1 or (key == "layer_norm_eps" and share == 0):
            problems.append(f"`{key}` is {_shown(share)}, which is not a fraction")
    if type(fields.get("use_task_id", False)) is not bool:
        problems.append(f"`use_task_id` is {_shown(fields['use_task_id'])}, which is neither true nor false")
    return problems


def layer_problems(fields: Mapping[str, Any]) -> list[str]:
    """The reason why a config.json has too many layers; empty if it has not, or if it says no number of layers."""
    layers = fields.get("num_hidden_layers")
    if type(layers) is not int or layers <= MOST_LAYERS:
        return []
    return [f"`num_hidden_layers` is {_shown(layers)}, and at most {MOST_LAYERS} layers are supported"]


def tokenizer_problems(folder: Path) -> list[str]:
    """Reasons why PaddleNLP's ErnieTokenizer would tokenize differently, each with its key; else empty."""
    try:
        config, special, added = (read_object(folder / name) for name in _TOKENIZER_FILES)
    except (OSError, ValueError, RecursionError) as error:
        return [f"one of {', '.join(_TOKENIZER_FILES)} is not a JSON object ({error})"]
    problems = []
    if (kind := config.get("tokenizer_class", _TOKENIZERS[0])) not in _TOKENIZERS:
        problems.append(f"`tokenizer_class` is {_shown(kind)}, and only BERT's and ERNIE's can be converted")
    lower = config.get("do_lower_case", True)
    if type(lower) is not bool:
        problems.append(f"`do_lower_case` is {_shown(lower)}, which is neither true nor false")
    if config.get("strip_accents") not in (None, lower):  # PaddleNLP drops accents exactly where it lower-cases
        problems.append(f"`strip_accents` is {_shown(config['strip_accents'])}, and `do_lower_case` is {_shown(lower)}")
    if config.get("tokenize_chinese_chars", True) is not True:
        problems.append(f"`tokenize_chinese_chars` is {_shown(config['tokenize_chinese_chars'])}, and only true works")
    for key, usual in SPECIAL_TOKENS.items():
        if (token := _content({**config, **special}.get(key, usual))) != usual:
            problems.append(f"`{key}` is {_shown(token)}, and only {usual} can be converted")
    decoder = config.get("added_tokens_decoder")
    more = [*added, *(map(_content, decoder.values()) if isinstance(decoder, dict) else ())]
    if unknown := [token for token in more if token not in SPECIAL_TOKENS.values()]:
        problems.append(f"`added_tokens` has {_shown(unknown[0])}, and only the five usual tokens are supported")
    return problems


def lower_case(folder: Path) -> bool:
    """Whether the checkpoint's tokenizer lower-cases, by default true. Call `tokenizer_problems` first."""
    return bool(read_object(folder / TOKENIZER_SETTINGS).get("do_lower_case", True))


def paddlenlp_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same network as PaddleNLP's ErnieConfig. Call `config_problems` first."""
    config: dict[str, Any] = {key: fields.get(key, absent) for key, absent in {**_SIZES, **_FRACTIONS}.items()}
    config["use_task_id"] = fields["model_type"] == "ernie" and fields.get("use_task_id", False)
    config |= {"hidden_act": _FIXED["hidden_act"], "pad_token_id": _FIXED["pad_token_id"]}
    if fields.get("classifier_dropout") is not None:
        config["classifier_dropout"] = fields["classifier_dropout"]
    return config


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if the file is missing.

    Raises:
        OSError, ValueError, RecursionError: it cannot be read, or holds something else.
    """
    if not is_file(file):
        return {}
    fields = json.loads(read_regular(file).decode("utf-8"))
    if not isinstance(fields, dict):
        raise ValueError(f"{file.name} holds {_shown(fields)}")
    return fields


def _content(token: Any) -> Any:
    """The text of a token, which is stored as text or as an object with matching options."""
    return token.get("content") if isinstance(token, dict) else token


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:80] if value is not None else "not given"


CONFIG_FILE: Final = "config.json"  # names of PaddleNLP's save_pretrained
WEIGHTS_FILE: Final = "model_state.pdparams"
# Our key in config.json: attention heads of each layer of a model that was pruned in width.
KEPT_HEADS: Final = "kept_attention_heads"
# Defaults of PaddleNLP's ErnieConfig for missing numbers.
_ABSENT: Final[Mapping[str, int]] = {
    "num_hidden_layers": 12,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 16,
    "task_type_vocab_size": 3,
}
_OTHERS: Final = ("use_task_id", "hidden_act", "pad_token_id", "classifier_dropout")  # fields of no size
# Values of a model from scratch.
SCRATCH_TOKEN_TYPES: Final = 2
SCRATCH_TASK_TYPES: Final = 3


@dataclass(frozen=True)
class Shape:
    """Sizes of one ERNIE encoder, in PaddleNLP's order of configuration."""

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int  # rows of the word embedding; may exceed the lines of vocab.txt
    positions: int  # maximum tokens of a text with [CLS] and [SEP]
    token_types: int
    task_types: int  # 0: no task embedding
    head_size: int | None = None  # for a model that was pruned in width; None: `hidden` / `heads`

    @property
    def attention(self) -> int:
        """Total output width of the heads of a layer."""
        return self.hidden if self.head_size is None else self.heads * self.head_size


def parameters(shape: Shape, labels: int) -> int:
    """Number of weights of PaddleNLP's ErnieForSequenceClassification with `labels` classes."""
    hidden = shape.hidden
    rows = shape.vocabulary + shape.positions + shape.token_types + shape.task_types
    norm = 2 * hidden  # scale and shift
    attention = 4 * hidden * shape.attention + 3 * shape.attention + hidden  # Q, K, V and output, each with its bias
    feed_forward = 2 * hidden * shape.feed_forward + shape.feed_forward + hidden
    layer = attention + feed_forward + 2 * norm
    pooler = hidden * hidden + hidden
    return rows * hidden + norm + shape.layers * layer + pooler + hidden * labels + labels


def spread(count: int, layers: int) -> list[int]:
    """Numbers (from 1) of `count` evenly spread layers of `layers`, with the top one. `count` is at most `layers`."""
    return [round((index + 1) * layers / count) for index in range(count)]


def part_of(count: int, width: float) -> int:
    """Number of heads or neurons, of `count`, that a layer keeps when pruned to `width`: rounded, at least one."""
    return max(1, int(count * width + 0.5))


def cut(shape: Shape, layers: int, width: float) -> Shape:
    """The shape of a student that starts from `layers` layers of a model, pruned to `width` (above 0, at most 1)."""
    if width == 1:
        return replace(shape, layers=layers)
    heads, feed_forward = part_of(shape.heads, width), part_of(shape.feed_forward, width)
    size = shape.head_size or shape.hidden // shape.heads
    return replace(shape, layers=layers, heads=heads, feed_forward=feed_forward, head_size=size)


def of_scratch(scratch: Scratch, max_length: int) -> Shape:
    """The shape of a model from scratch, with the maximum vocabulary."""
    return Shape(
        scratch.layers,
        scratch.hidden,
        scratch.heads,
        scratch.feed_forward or 4 * scratch.hidden,
        scratch.max_vocabulary,
        max_length,
        SCRATCH_TOKEN_TYPES,
        SCRATCH_TASK_TYPES,
    )


def of_folder(folder: Path) -> Shape | None:
    """The shape of a model in a local folder; None if its config.json lacks it."""
    fields = read_config(folder)
    if fields is None:
        return None
    if checkpoint_weights(folder) is None:
        return of_config(fields)
    return of_config(paddlenlp_config(fields)) if not config_problems(fields) else None


def checkpoint_weights(folder: Path) -> Path | None:
    """The weights of a Hugging Face checkpoint; None in a folder with PaddleNLP's weights, which are preferred."""
    return None if is_file(folder / WEIGHTS_FILE) else weights_of(folder)


def of_config(fields: Mapping[str, Any]) -> Shape | None:
    """The shape in a PaddleNLP config.json; None for an older format, or without sizes."""
    if "init_args" in fields:  # PaddleNLP before 2.5 nested the sizes below it
        return None
    sizes = [fields.get(name, absent) for name, absent in _ABSENT.items()]
    if any(type(size) is not int or size < 0 for size in sizes):
        return None
    if not fields.get("use_task_id", False):
        sizes[-1] = 0
    shape = Shape(*sizes)
    if KEPT_HEADS not in fields:
        return shape
    kept = kept_heads(fields, shape.heads)
    return None if kept is None else replace(shape, heads=kept, head_size=shape.hidden // shape.heads)


def kept_heads(fields: Mapping[str, Any], heads: int) -> int | None:
    """`KEPT_HEADS` of a config.json; None if it is not a valid number of heads of a model with `heads`."""
    kept = fields[KEPT_HEADS]
    return kept if type(kept) is int and 1 <= kept <= heads else None


def known_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a PaddleNLP config.json says of the encoder. Other keys, which may be of any size, are left out."""
    return {key: fields[key] for key in (*_ABSENT, *_FRACTIONS, *_OTHERS, KEPT_HEADS) if key in fields}


def read_config(folder: Path) -> dict[str, Any] | None:
    """The JSON object in the folder's config.json; None if it is missing or invalid."""
    try:
        fields = json.loads(read_regular(folder / CONFIG_FILE, _MOST_CONFIG_BYTES).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


# PaddleNLP has this model, but with a SentencePiece vocabulary, and edgepack supports WordPiece only.
SENTENCEPIECE: Final = "ernie-tiny"

# layers, hidden, heads, feed-forward, vocabulary, positions, token types, task types
_NAMED: Final[tuple[tuple[Shape, str], ...]] = (
    (Shape(20, 1024, 16, 4096, 40000, 2048, 4, 16), "ernie-3.0-xbase-zh"),
    (
        Shape(12, 768, 12, 3072, 40000, 2048, 4, 3),
        "ernie-3.0-base-zh ernie-3.0-tiny-base-v1-zh uie-base uie-senta-base uie-base-answer-extractor "
        "uie-base-qa-filter rocketqa-base-cross-encoder rocketqa-zh-base-query-encoder rocketqa-zh-base-para-encoder",
    ),
    (
        Shape(6, 768, 12, 3072, 40000, 2048, 4, 16),
        "ernie-3.0-medium-zh ernie-3.0-tiny-medium-v1-zh uie-medium uie-senta-medium "
        "rocketqa-medium-cross-encoder rocketqa-zh-medium-query-encoder rocketqa-zh-medium-para-encoder",
    ),
    (
        Shape(6, 384, 12, 1536, 40000, 2048, 4, 16),
        "ernie-3.0-mini-zh ernie-3.0-tiny-mini-v1-zh uie-mini uie-senta-mini "
        "rocketqa-mini-cross-encoder rocketqa-zh-mini-query-encoder rocketqa-zh-mini-para-encoder",
    ),
    (
        Shape(4, 384, 12, 1536, 40000, 2048, 4, 16),
        "ernie-3.0-micro-zh ernie-3.0-tiny-micro-v1-zh uie-micro uie-senta-micro "
        "rocketqa-micro-cross-encoder rocketqa-zh-micro-query-encoder rocketqa-zh-micro-para-encoder",
    ),
    (
        Shape(4, 312, 12, 1248, 40000, 2048, 4, 16),
        "ernie-3.0-nano-zh ernie-3.0-tiny-nano-v1-zh uie-nano uie-senta-nano "
        "rocketqa-nano-cross-encoder rocketqa-zh-nano-query-encoder rocketqa-zh-nano-para-encoder",
    ),
    (Shape(12, 768, 12, 3072, 40000, 2048, 4, 0), "ernie-3.0-tiny-base-v2-zh"),
    (Shape(6, 768, 12, 3072, 40000, 2048, 4, 0), "ernie-3.0-tiny-medium-v2-zh"),
    (Shape(6, 384, 12, 1536, 40000, 2048, 4, 0), "ernie-3.0-tiny-mini-v2-zh"),
    (Shape(6, 384, 12, 1536, 50265, 514, 1, 0), "ernie-3.0-tiny-mini-v2-en"),
    (Shape(4, 384, 12, 1536, 40000, 2048, 4, 0), "ernie-3.0-tiny-micro-v2-zh"),
    (Shape(4, 312, 12, 1248, 40000, 2048, 4, 0), "ernie-3.0-tiny-nano-v2-zh"),
    (Shape(3, 128, 2, 512, 40000, 2048, 4, 0), "ernie-3.0-tiny-pico-v2-zh"),
    (Shape(12, 768, 12, 3072, 18000, 513, 4, 0), "ernie-2.0-base-zh"),
    (Shape(24, 1024, 16, 4096, 12800, 512, 4, 0), "ernie-2.0-large-zh"),
    (
        Shape(12, 768, 12, 3072, 30522, 512, 4, 0),
        "ernie-2.0-base-en ernie-2.0-base-en-finetuned-squad ernie-search-base-dual-encoder-marco-en uie-base-en "
        "rocketqa-v1-marco-query-encoder rocketqa-v1-marco-para-encoder rocketqa-v1-marco-cross-encoder "
        "rocketqav2-en-marco-query-encoder rocketqav2-en-marco-para-encoder rocketqav2-en-marco-cross-encoder",
    ),
    (
        Shape(24, 1024, 16, 4096, 30522, 512, 4, 0),
        "ernie-2.0-large-en ernie-search-large-cross-encoder-marco-en",
    ),
    (
        Shape(12, 768, 12, 3072, 18000, 513, 2, 0),
        "ernie-1.0 ernie-1.0-base-zh rocketqa-zh-dureader-query-encoder rocketqa-zh-dureader-para-encoder "
        "rocketqa-zh-dureader-cross-encoder",
    ),
    (Shape(12, 768, 12, 3072, 40000, 512, 4, 3), "ernie-1.0-base-zh-cw"),
    (Shape(24, 1024, 16, 3072, 18000, 512, 2, 0), "ernie-1.0-large-zh-cw"),
    (Shape(24, 1024, 16, 3072, 17965, 512, 2, 3), "utc-large"),
    (Shape(20, 1024, 16, 4096, 39981, 2048, 4, 16), "utc-xbase"),
    (Shape(12, 768, 12, 3072, 39981, 2048, 4, 0), "utc-base"),
    (Shape(6, 768, 12, 3072, 39981, 2048, 4, 0), "utc-medium"),
    (Shape(6, 384, 12, 1536, 39981, 2048, 4, 0), "utc-mini"),
    (Shape(4, 384, 12, 1536, 39981, 2048, 4, 0), "utc-micro"),
    (Shape(4, 312, 12, 1248, 39981, 2048, 4, 0), "utc-nano"),
    (Shape(3, 128, 2, 512, 39981, 2048, 4, 0), "utc-pico"),
)
PRESETS: Final[Mapping[str, Shape]] = {name: shape for shape, names in _NAMED for name in names.split()}


def shape_of(model: str | FromScratch, max_length: int) -> Shape | None:
    """The shape of a resolved recipe's model, from local files only.

    Args:
        model: `teacher.model` or `student.model` as `load_recipe` resolves it: local folders are absolute.
        max_length: of the same section; the positions of a model from scratch.

    Returns:
        The shape (for a model from scratch with the maximum vocabulary); None for a model of the hub (`owner/name`),
        or if a folder's config.json lacks it.
    """
    if isinstance(model, FromScratch):
        return of_scratch(model.scratch, max_length)
    return of_folder(Path(model)) if is_local_folder(model) else PRESETS.get(model)
