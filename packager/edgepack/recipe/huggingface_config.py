"""Config files of Hugging Face checkpoints: can the model be converted, and what is PaddleNLP's config of it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.paths import is_file
from edgepack_runtime.bundle.model_config import VOCAB_NAME
from edgepack_runtime.util.fs import read_regular

HUGGINGFACE_WEIGHTS: Final = ("model.safetensors", "pytorch_model.bin")  # the first existing file, as in transformers
CHECKPOINT_FIX: Final = "use a BERT or ERNIE checkpoint; docs/reference/recipe-file.md lists the conditions"
MAX_EPSILON: Final = 1e-3  # of LayerNorm; Paddle computes with at most this
MAX_LAYERS: Final = 256  # a layer takes memory and time even with few weights; the deepest of `PRESETS` has 24
_MODEL_TYPES: Final = ("bert", "ernie")
TOKENIZER_SETTINGS: Final = "tokenizer_config.json"
FAST_TOKENIZER: Final = "tokenizer.json"  # of the library tokenizers: vocabulary and settings in one file
TOKENIZER_FILES: Final = (TOKENIZER_SETTINGS, "special_tokens_map.json", "added_tokens.json", FAST_TOKENIZER)
# Defaults of keys that a checkpoint's config.json lacks, from transformers' BertConfig and ErnieConfig.
_INT_DEFAULTS: Final[Mapping[str, int]] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "task_type_vocab_size": 3,
}
FLOAT_DEFAULTS: Final[Mapping[str, float]] = {
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
# Keys with only one value that the runtime's tokenizer supports.
_TOKENIZER_DEFAULTS: Final[Mapping[str, Any]] = {
    "do_basic_tokenize": True,
    "truncation_side": "right",
    "padding_side": "right",
}
_OPTIONS: Final = ("lstrip", "rstrip", "single_word")  # of an added token: what may stand beside it
_IDEOGRAPHS: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_LINE_ENDS: Final = {"\r", "\n"}  # of vocab.txt, as `read_vocab` of the runtime takes them
_MORE_TOKENS: Final = ("additional_special_tokens", "extra_special_tokens")
_UNSPLIT: Final = ("never_split", "do_not_split")  # of words between spaces: never of ideographs, which have none
_FAST_PARTS: Final = {"model": "WordPiece", "normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
_TOKENIZERS: Final = ("BertTokenizer", "BertTokenizerFast", "ErnieTokenizer", "ErnieTokenizerFast")


def huggingface_weights(folder: Path) -> Path | None:
    """The file in `folder` with the weights of a checkpoint; None if there is none."""
    return next((folder / name for name in HUGGINGFACE_WEIGHTS if is_file(folder / name)), None)


def config_problems(fields: Mapping[str, Any]) -> list[str]:
    """Reasons why a checkpoint's config.json cannot be converted, each with its key; empty if it can."""
    model_type = fields.get("model_type")
    if model_type not in _MODEL_TYPES:
        known = " and ".join(f"`{name}`" for name in _MODEL_TYPES)
        return [f"`model_type` is {_shown(model_type)}, and only {known} can be converted"]
    problems = [
        f"`{key}` is {_shown(fields[key])}, and only {_shown(value)} can be converted"
        for key, value in _FIXED.items()
        if fields.get(key, value) != value
    ]
    sizes = {key: fields.get(key, default) for key, default in _INT_DEFAULTS.items()}
    invalid = [key for key, size in sizes.items() if type(size) is not int or size < 1]
    problems += [f"`{key}` is {_shown(sizes[key])}, which is not a size" for key in invalid]
    if not invalid and sizes["hidden_size"] % sizes["num_attention_heads"]:
        problems.append(f"`hidden_size` is {sizes['hidden_size']}, which is not a multiple of `num_attention_heads`")
    problems += too_many_layers(fields)
    epsilon = fields.get("layer_norm_eps", FLOAT_DEFAULTS["layer_norm_eps"])
    if type(epsilon) is float and epsilon > MAX_EPSILON:
        problems.append(f"`layer_norm_eps` is {epsilon}, and Paddle computes with at most {MAX_EPSILON}")
    fractions = {key: fields.get(key, default) for key, default in FLOAT_DEFAULTS.items()}
    fractions["classifier_dropout"] = 0.0 if fields.get("classifier_dropout") is None else fields["classifier_dropout"]
    for key, value in fractions.items():
        if type(value) not in (int, float) or not 0 <= value < 1 or (key == "layer_norm_eps" and value == 0):
            problems.append(f"`{key}` is {_shown(value)}, which is not a fraction")
    if type(fields.get("use_task_id", False)) is not bool:
        problems.append(f"`use_task_id` is {_shown(fields['use_task_id'])}, which is neither true nor false")
    return problems


def too_many_layers(fields: Mapping[str, Any]) -> list[str]:
    """The reason to refuse a config.json, of PaddleNLP too, with over `MAX_LAYERS` layers; else empty."""
    layers = fields.get("num_hidden_layers")
    if type(layers) is not int or layers <= MAX_LAYERS:
        return []
    return [f"`num_hidden_layers` is {_shown(layers)}, and at most {MAX_LAYERS} layers are supported"]


def tokenizer_problems(folder: Path) -> list[str]:
    """Reasons why PaddleNLP's ErnieTokenizer would tokenize differently, each with its key; else empty."""
    try:
        config, special, _, fast = (read_object(folder / name) for name in TOKENIZER_FILES)
    except (OSError, ValueError, RecursionError) as error:
        return [f"one of {', '.join(TOKENIZER_FILES)} is not a JSON object ({error})"]
    problems = []
    if (kind := config.get("tokenizer_class", _TOKENIZERS[0])) not in _TOKENIZERS:
        problems.append(f"`tokenizer_class` is {_shown(kind)}, and only BERT's and ERNIE's can be converted")
    lower = config.get("do_lower_case", _normalizer(fast).get("lowercase", True))
    if type(lower) is not bool:
        problems.append(f"`do_lower_case` is {_shown(lower)}, which is neither true nor false")
    if config.get("strip_accents") not in (None, lower):  # PaddleNLP drops accents exactly where it lower-cases
        problems.append(
            f"`strip_accents` is {_shown(config['strip_accents'])}, and has to be `do_lower_case`: {_shown(lower)}"
        )
    if config.get("tokenize_chinese_chars", True) is not True:
        problems.append(f"`tokenize_chinese_chars` is {_shown(config['tokenize_chinese_chars'])}, and only true works")
    for key, usual in _TOKENIZER_DEFAULTS.items():
        if config.get(key) not in (None, usual):
            problems.append(f"`{key}` is {_shown(config[key])}, and only {_shown(usual)} is supported")
    for key in _UNSPLIT:
        words = [word for word in _listed(config.get(key)) if word not in SPECIAL_TOKENS.values()]
        if unknown := [word for word in words if not (isinstance(word, str) and _IDEOGRAPHS.fullmatch(word))]:
            fix = "only the five usual tokens and added ones are kept whole"
            problems.append(f"`{key}` has {_shown(unknown[0])}, and {fix}")
    problems += _added_problems(folder, lower)
    problems += _fast_problems(fast, lower)
    for key, usual in SPECIAL_TOKENS.items():
        if (token := _content({**config, **special}.get(key, usual))) != usual:
            problems.append(f"`{key}` is {_shown(token)}, and only {usual} can be converted")
    return problems


@dataclass
class _AddedToken:
    """A token that was added to a tokenizer; `number` is its id, -1 if no file says it. `options` are those set."""

    number: int = -1
    special: bool = False
    options: set[str] = field(default_factory=set)


def _added_tokens(folder: Path) -> dict[Any, _AddedToken]:
    """What the files of a tokenizer add to vocab.txt, besides the usual special tokens.

    Raises:
        OSError, ValueError, RecursionError: a file cannot be read.
    """
    config, special, added, fast = (read_object(folder / name) for name in TOKENIZER_FILES)
    found: dict[Any, _AddedToken] = {}

    def note(token: Any, number: Any, *, is_special: bool = False) -> None:
        content = _content(token)
        if content in SPECIAL_TOKENS.values():
            return
        one = found.setdefault(content if isinstance(content, str) else _shown(content), _AddedToken())
        options = token if isinstance(token, dict) else {}
        one.special |= is_special or options.get("special") is True
        one.options |= {key for key in _OPTIONS if options.get(key) is True}
        one.options |= set() if isinstance(content, str) and content.strip() else {"content"}
        if type(number) is int or (isinstance(number, str) and number.isdecimal()):
            one.number = int(number)

    for key in _MORE_TOKENS:
        for token in _listed({**config, **special}.get(key)):
            note(token, None, is_special=True)
    for token, number in added.items():
        note(token, number)
    for number, token in _part(config, "added_tokens_decoder").items():
        note(token, number)
    for token in _listed(fast.get("added_tokens")):
        note(token, token.get("id") if isinstance(token, dict) else None)
    return found


def kept_tokens(folder: Path) -> list[str]:
    """The tokens that a tokenizer keeps whole besides the usual ones. Call `tokenizer_problems` first."""
    return sorted(_added_tokens(folder))


def _added_problems(folder: Path, lower: object) -> Iterator[str]:
    """Why an added token cannot be kept whole as the tokenizer of the folder does it."""
    for token, one in _added_tokens(folder).items():
        if one.options:
            yield f"the added token {_shown(token)} has `{min(one.options)}`, and only one that is found anywhere works"
        elif lower and not one.special and token.lower() != token.upper():  # it is sought in the lower-cased text
            yield f"the added token {_shown(token)} has letters and is not special, so it is found in any case"


def _listed(value: Any) -> list[Any]:
    """The tokens of a setting, which is a list, one token, or an object whose values are tokens."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and "content" not in value:
        return list(value.values())
    return [] if value in (None, "") else [value]


def lower_case(folder: Path) -> bool:
    """Whether the checkpoint's tokenizer lower-cases, by default true. Call `tokenizer_problems` first."""
    usual = _normalizer(read_object(folder / FAST_TOKENIZER)).get("lowercase", True)
    return bool(read_object(folder / TOKENIZER_SETTINGS).get("do_lower_case", usual))


def vocabulary(folder: Path) -> bytes:
    """The content of vocab.txt; written from tokenizer.json if there is that alone.

    Raises:
        OSError, ValueError, RecursionError: there is neither, or it cannot be read.
    """
    if is_file(folder / VOCAB_NAME) or not is_file(folder / FAST_TOKENIZER):
        return _with_added(read_regular(folder / VOCAB_NAME), folder)
    ids = _part(read_object(folder / FAST_TOKENIZER), "model").get("vocab")
    ids = ids if isinstance(ids, dict) else {}
    by_id = {number: token for token, number in ids.items() if type(number) is int and not _LINE_ENDS & set(token)}
    size = max(by_id, default=-1) + 1
    if not ids or len(by_id) < len(ids) or min(by_id) < 0 or size > 2 * len(ids):
        raise ValueError(f"{FAST_TOKENIZER} has no vocabulary with the ids 0, 1, 2, ...")
    # A word that vocab.txt had twice has its last id; no word has the other, and none is split into such a name.
    if len(by_id) < size and any(token not in ids for token in _added_tokens(folder)):  # the library gives ids anew
        raise ValueError(f"{FAST_TOKENIZER} has added tokens, and its vocabulary has an id without a word")
    entries = (by_id.get(number, f"[unused-{number}]") for number in range(size))
    return _with_added("".join(f"{entry}\n" for entry in entries).encode(), folder)


def _with_added(raw: bytes, folder: Path) -> bytes:
    """A vocabulary with the added tokens behind it, each in the line of its id.

    Raises:
        ValueError: one has no id, or that of another entry; or the vocabulary is not UTF-8.
    """
    added = _added_tokens(folder)
    if not added:
        return raw
    entries = [line.rstrip("\n") for line in io.StringIO(raw.decode("utf-8"), newline=None)]
    ids = {entry: number for number, entry in enumerate(entries)}
    beyond = {one.number: token for token, one in added.items() if token not in ids}
    for token, one in added.items():
        if one.number < 0 and token not in ids:
            raise ValueError(f"the added token {_shown(token)} has no id")
        if one.number not in (-1, ids.get(token, one.number)) or (token not in ids and one.number < len(entries)):
            raise ValueError(f"the added token {_shown(token)} has the id {one.number}, which is that of another entry")
        if _LINE_ENDS & set(token):
            raise ValueError(f"the added token {_shown(token)} has a line end")
    size = max(beyond, default=-1) + 1
    if size > 2 * len(entries) or len(beyond) < sum(token not in ids for token in added):
        raise ValueError("the ids of the added tokens do not follow those of the vocabulary")
    entries += [beyond.get(number, f"[unused-{number}]") for number in range(len(entries), size)]
    return "".join(f"{entry}\n" for entry in entries).encode()


def vocabulary_problems(folder: Path, rows: object) -> list[str]:
    """`checked_vocabulary` without the content."""
    return checked_vocabulary(folder, rows)[1]


def checked_vocabulary(folder: Path, rows: object) -> tuple[bytes, list[str]]:
    """The `vocabulary`, read once, and why it does not fit: [PAD] is first, since batches are padded with id 0.

    Args:
        rows: of the model's word embedding, as config.json has it.
    """
    try:
        raw = vocabulary(folder)
        text = raw.decode("utf-8")
    except (OSError, ValueError, RecursionError) as error:
        return b"", [f"{VOCAB_NAME} cannot be read ({error})"]
    entries = [line.rstrip("\n") for line in io.StringIO(text, newline=None)]  # as `read_vocab` of the runtime
    needed = [token for key, token in SPECIAL_TOKENS.items() if key != "mask_token"]
    problems = []
    if missing := [token for token in needed if token not in entries]:
        problems.append(f"{VOCAB_NAME} lacks {' '.join(missing)}")
    elif entries[0] != SPECIAL_TOKENS["pad_token"]:
        problems.append(f"{VOCAB_NAME} has {entries[0][:80]!r} in its first line, which must be [PAD]")
    if type(rows) is int and len(entries) > rows:
        problems.append(f"{VOCAB_NAME} has {len(entries)} lines, and `vocab_size` is {rows}")
    return raw, problems


def _part(fast: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of tokenizer.json; empty if it is none."""
    found = fast.get(name)
    return found if isinstance(found, dict) else {}


def _normalizer(fast: Mapping[str, Any]) -> Mapping[str, Any]:
    return _part(fast, "normalizer")


def _fast_problems(fast: Mapping[str, Any], lower: object) -> Iterator[str]:
    """Reasons why a tokenizer.json would tokenize differently."""
    if not fast:
        return
    for part, kind in _FAST_PARTS.items():
        if (found := _part(fast, part).get("type")) != kind:
            yield f"`{part}` of {FAST_TOKENIZER} is {_shown(found)}, and only {kind} can be converted"
    normalizer = _normalizer(fast)
    if normalizer.get("strip_accents") not in (None, lower):
        found = _shown(normalizer["strip_accents"])
        yield f"`strip_accents` of {FAST_TOKENIZER} is {found}, and has to be {_shown(lower)}"
    for key in ("clean_text", "handle_chinese_chars"):
        if normalizer.get(key, True) is not True:
            yield f"`{key}` of {FAST_TOKENIZER} is {_shown(normalizer[key])}, and only true works"


def paddlenlp_config(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same network as PaddleNLP's ErnieConfig. Call `config_problems` first."""
    config: dict[str, Any] = {
        key: fields.get(key, default) for key, default in {**_INT_DEFAULTS, **FLOAT_DEFAULTS}.items()
    }
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
