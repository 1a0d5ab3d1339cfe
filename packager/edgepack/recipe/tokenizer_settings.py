"""Files of a tokenizer in a model's folder: does the runtime tokenize as they say, and with which vocabulary."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from edgepack.recipe.huggingface_config import read_object, shown
from edgepack.recipe.paths import is_file
from edgepack_runtime.bundle.model_config import VOCAB_NAME
from edgepack_runtime.util.fs import read_regular
from edgepack_runtime.util.texts import has_surrogate

TOKENIZER_SETTINGS: Final = "tokenizer_config.json"
FAST_TOKENIZER: Final = "tokenizer.json"  # of the library tokenizers: vocabulary and settings in one file
TOKENIZER_FILES: Final = (TOKENIZER_SETTINGS, "special_tokens_map.json", "added_tokens.json", FAST_TOKENIZER)
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
_MOST_ADDED: Final = 1000  # tokens, each of so many characters at most
_MOST_CHARACTERS: Final = 4096
_LONGEST_ADDED: Final = 64
_MOST_DIGITS: Final = 10  # of an id
_OPTIONS: Final = ("lstrip", "rstrip", "single_word")  # of an added token: what may stand beside it
_IDEOGRAPHS: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+")
_LINE_ENDS: Final = {"\r", "\n"}  # of vocab.txt, as `read_vocab` of the runtime takes them
_MORE_TOKENS: Final = ("additional_special_tokens", "extra_special_tokens")
_UNSPLIT: Final = ("never_split", "do_not_split")  # of words between spaces: never of ideographs, which have none
_FAST_PARTS: Final = {"model": "WordPiece", "normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
_TOKENIZERS: Final = ("BertTokenizer", "BertTokenizerFast", "ErnieTokenizer", "ErnieTokenizerFast")


def tokenizer_problems(folder: Path) -> list[str]:
    """Reasons why PaddleNLP's ErnieTokenizer would tokenize differently, each with its key; else empty."""
    try:
        files = _read(folder)
    except (OSError, ValueError, RecursionError) as error:
        return [f"one of {', '.join(TOKENIZER_FILES)} is not a JSON object ({error})"]
    config, special, _, fast = files
    problems = []
    if (kind := config.get("tokenizer_class", _TOKENIZERS[0])) not in _TOKENIZERS:
        problems.append(f"`tokenizer_class` is {shown(kind)}, and only BERT's and ERNIE's can be converted")
    lower = config.get("do_lower_case", _normalizer(fast).get("lowercase", True))
    if type(lower) is not bool:
        problems.append(f"`do_lower_case` is {shown(lower)}, which is neither true nor false")
    if config.get("strip_accents") not in (None, lower):  # PaddleNLP drops accents exactly where it lower-cases
        problems.append(
            f"`strip_accents` is {shown(config['strip_accents'])}, and has to be `do_lower_case`: {shown(lower)}"
        )
    if config.get("tokenize_chinese_chars", True) is not True:
        problems.append(f"`tokenize_chinese_chars` is {shown(config['tokenize_chinese_chars'])}, and only true works")
    for key, usual in _TOKENIZER_DEFAULTS.items():
        if config.get(key) not in (None, usual):
            problems.append(f"`{key}` is {shown(config[key])}, and only {shown(usual)} is supported")
    for key in _UNSPLIT:
        words = [word for word in _listed(config.get(key)) if word not in SPECIAL_TOKENS.values()]
        if unknown := [word for word in words if not (isinstance(word, str) and _IDEOGRAPHS.fullmatch(word))]:
            fix = "only the five usual tokens and added ones are kept whole"
            problems.append(f"`{key}` has {shown(unknown[0])}, and {fix}")
    problems += _added_problems(_added_tokens(files), lower)
    problems += _fast_problems(fast, lower)
    for key, usual in SPECIAL_TOKENS.items():
        if (token := _content({**config, **special}.get(key, usual))) != usual:
            problems.append(f"`{key}` is {shown(token)}, and only {usual} can be converted")
    return problems


@dataclass
class _AddedToken:
    """A token that was added to a tokenizer; `number` is its id, -1 if no file says it. `options` are those set."""

    number: int = -1
    special: bool = False
    options: set[str] = field(default_factory=set)


def _read(folder: Path) -> list[dict[str, Any]]:
    """The content of TOKENIZER_FILES, in their order; empty for a file that is missing.

    Raises:
        OSError, ValueError, RecursionError: a file cannot be read.
    """
    return [read_object(folder / name) for name in TOKENIZER_FILES]


def _added_tokens(files: Sequence[dict[str, Any]]) -> dict[str, _AddedToken]:
    """What the files of a tokenizer add to vocab.txt, besides the usual special tokens."""
    config, special, added, fast = files
    found: dict[str, _AddedToken] = {}

    def note(token: Any, number: Any, *, is_special: bool = False) -> None:
        content = _content(token)
        if content in SPECIAL_TOKENS.values():
            return
        one = found.setdefault(content if isinstance(content, str) else shown(content), _AddedToken())
        options = token if isinstance(token, dict) else {}
        one.special |= is_special or options.get("special") is True
        one.options |= {key for key in _OPTIONS if options.get(key) is True}
        one.options |= set() if isinstance(content, str) and content.strip() else {"content"}
        if type(number) is int or (isinstance(number, str) and number.isdecimal() and len(number) < _MOST_DIGITS):
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
    return sorted(_added_tokens(_read(folder)))


def _added_problems(added: Mapping[str, _AddedToken], lower: object) -> Iterator[str]:
    """Why an added token cannot be kept whole as the tokenizer of the folder does it."""
    size = sum(map(len, added))
    if len(added) > _MOST_ADDED or size > _MOST_CHARACTERS:  # all are sought at each character of a text
        most = f"{_MOST_ADDED:,} of {_MOST_CHARACTERS:,} characters together"
        yield f"there are {len(added):,} added tokens of {size:,} characters, and at most {most} are supported"
    for token, one in added.items():
        if len(token) > _LONGEST_ADDED or has_surrogate(token):
            yield f"the added token {shown(token)} is not a text of at most {_LONGEST_ADDED} characters"
        elif one.options:
            yield f"the added token {shown(token)} has `{min(one.options)}`, and only one that is found anywhere works"
        elif lower and not one.special and token.lower() != token.upper():  # it is sought in the lower-cased text
            yield f"the added token {shown(token)} has letters and is not special, so it is found in any case"


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
    files = _read(folder)
    added = _added_tokens(files)
    if is_file(folder / VOCAB_NAME) or not is_file(folder / FAST_TOKENIZER):
        return _with_added(read_regular(folder / VOCAB_NAME), added)
    ids = _part(files[TOKENIZER_FILES.index(FAST_TOKENIZER)], "model").get("vocab")
    ids = ids if isinstance(ids, dict) else {}
    by_id = {number: token for token, number in ids.items() if type(number) is int and not _LINE_ENDS & set(token)}
    size = max(by_id, default=-1) + 1
    if not ids or len(by_id) < len(ids) or min(by_id) < 0 or size > 2 * len(ids):
        raise ValueError(f"{FAST_TOKENIZER} has no vocabulary with the ids 0, 1, 2, ...")
    # A word that vocab.txt had twice has its last id; no word has the other, and none is split into such a name.
    if len(by_id) < size and any(token not in ids for token in added):  # the library counts ids again
        raise ValueError(f"{FAST_TOKENIZER} has added tokens, and its vocabulary has an id without a word")
    entries = (by_id.get(number, f"[unused-{number}]") for number in range(size))
    return _with_added("".join(f"{entry}\n" for entry in entries).encode(), added)


def _with_added(raw: bytes, added: Mapping[str, _AddedToken]) -> bytes:
    """A vocabulary with the added tokens behind it, each in the line of its id.

    Raises:
        ValueError: one has no id, or that of another entry; or the vocabulary is not UTF-8.
    """
    if not added:
        return raw
    entries = [line.rstrip("\n") for line in io.StringIO(raw.decode("utf-8"), newline=None)]
    ids = {entry: number for number, entry in enumerate(entries)}
    beyond = {one.number: token for token, one in added.items() if token not in ids}
    for token, one in added.items():
        if one.number < 0 and token not in ids:
            raise ValueError(f"the added token {shown(token)} has no id")
        if one.number not in (-1, ids.get(token, one.number)) or (token not in ids and one.number < len(entries)):
            raise ValueError(f"the added token {shown(token)} has the id {one.number}, which is that of another entry")
        if _LINE_ENDS & set(token):
            raise ValueError(f"the added token {shown(token)} has a line end")
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
            yield f"`{part}` of {FAST_TOKENIZER} is {shown(found)}, and only {kind} can be converted"
    normalizer = _normalizer(fast)
    if normalizer.get("strip_accents") not in (None, lower):
        found = shown(normalizer["strip_accents"])
        yield f"`strip_accents` of {FAST_TOKENIZER} is {found}, and has to be {shown(lower)}"
    for key in ("clean_text", "handle_chinese_chars"):
        if normalizer.get(key, True) is not True:
            yield f"`{key}` of {FAST_TOKENIZER} is {shown(normalizer[key])}, and only true works"


def _content(token: Any) -> Any:
    """The text of a token, which is stored as text or as an object with matching options."""
    return token.get("content") if isinstance(token, dict) else token
