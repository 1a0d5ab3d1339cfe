"""Text to ids exactly as PaddleNLP's `ErnieTokenizer` does it, at the speed of the `tokenizers` library.

PaddleNLP's steps: lower-case character by character; drop control, format, private-use and unassigned characters
and U+FFFD; decompose (NFD) and drop combining marks; make a word of its own of every CJK ideograph, punctuation
mark and symbol; split the rest at white space; WordPiece. The library's own BERT normaliser and pre-tokenizer come
close but carry old Unicode tables, keep unassigned characters and do not isolate symbols, so the steps are
spelled out here as character classes of its regular-expression engine.

Character data is that of Unicode 14.0 (Python 3.11, where ERNIE is trained), whatever the library was built
with: the same text gives the same ids on every device.
"""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, normalizers, pre_tokenizers

from edgepack_runtime.bundle.model_config import TokenizerConfig
from edgepack_runtime.errors import BundleInvalidError

# `ErnieTokenizer.from_pretrained` keeps these spellings whole when a text holds them; [MASK] is its default
# and has no key in model.json because no task of this runtime masks anything.
MASK_TOKEN = "[MASK]"
_MAX_WORD_CHARS = 100  # PaddleNLP's WordpieceTokenizer: a longer word is one [UNK]

# Assigned after Unicode 14.0 (up to 16.0), and the unassigned gaps between: dropped, as Python 3.11 does.
_AFTER_UNICODE_14 = (
    "897 CF3 ECE 1B4E-1B4F 1B7F 1C89-1C8A 2427-2429 2FFC-2FFF 31E4-31EF A7CB-A7CD A7DA-A7DC 105C0-105F3 10D40-10D8F "
    "10EC2-10EFF 1123F-11241 11380-113E2 116D0-116E3 11B00-11BF9 11F00-11F5A 1342F 13439-143FA 16100-16139 "
    "16D40-16D79 18CFF 1B132 1B155 1CC00-1CEB3 1D2C0-1D2D3 1DF25-1DF2A 1E030-1E08F 1E4D0-1E5FF 1F6DC 1F774-1F77F "
    "1F7D9 1F8B2-1F8C1 1FA75-1FA77 1FA87-1FA8F 1FAAD-1FAAF 1FABB-1FABF 1FAC6-1FACF 1FADA-1FADF 1FAE8-1FAE9 "
    "1FAF7-1FAF8 1FBCB-1FBEF 2B739 2EBF0-2EE5D 31350-323AF"
)
_CJK = (  # PaddleNLP's list; the library's BERT normaliser misses 2B820-2B91F
    "3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B73F 2B740-2B81F 2B820-2CEAF 2F800-2FA1F"
)
_ASCII_PUNCTUATION = "21-2F 3A-40 5B-60 7B-7E"
_PADDLENLP_SYMBOLS = "B2 B5 BA D8 14B 1B1 3007"  # no symbols to Unicode, but listed in PaddleNLP's `_is_symbol`
_MARKS_SINCE_RECLASSIFIED = "1171E"  # Mn in Unicode 14.0, Mc later
_CHARACTERS_A_TOKEN = 8  # more than texts of any language have
# No word, mark or special token goes on over one of these: blanks and what is a word by itself, emoji and punctuation
# among it, of which a text without a blank may be full; or behind a `]`, with which special tokens end.
_BOUNDARY = re.compile(r"(?<=\])|[ \n\t!\"#$%&'()*+,.:;=?@{}\[\u3001\u3002\u4e00-\u9fff\uff0c\U0001f300-\U0001f64f]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _ranges(codes: str) -> str:
    """`codes` ("21-2F B2") as the inside of a character class."""
    return "".join(r"\x{" + code.replace("-", r"}-\x{") + "}" for code in codes.split())


# \p{Cc} without the tabulator and the line ends, which are white space to PaddleNLP.
_DROPPED = _ranges("0-8 B-C E-1F 7F-9F FFFD " + _AFTER_UNICODE_14) + r"\p{Cf}\p{Co}\p{Cn}"
_SINGLE = _ranges(_ASCII_PUNCTUATION + " " + _PADDLENLP_SYMBOLS + " " + _CJK) + r"\p{P}\p{S}"
_MARK = r"\p{Mn}" + _ranges(_MARKS_SINCE_RECLASSIFIED)


class ErnieTokenizer:
    """One vocabulary, loaded; safe to share between threads.

    Args:
        vocab: `vocab.txt`, one entry per line, id = line number from 0. An entry that stands twice has its last id.
        config: which special tokens it holds and whether texts are lower-cased.

    Raises:
        BundleInvalidError: when the file cannot be read as UTF-8 or lacks a special token.
    """

    def __init__(self, vocab: Path, config: TokenizerConfig) -> None:
        # The library would otherwise start one thread for each core on the first batch, behind the back of whoever
        # asked for `threads=1`, and warn after every fork. A setting made by the application is respected.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        ids = {entry: number for number, entry in enumerate(read_vocab(vocab))}
        for token in (config.unk_token, config.cls_token, config.sep_token, config.pad_token):
            if token not in ids:
                raise _invalid(vocab, f"it lacks the special token {token!r} that model.json names")
        self.vocab_size = max(ids.values()) + 1
        self.unk_id = ids[config.unk_token]
        self.cls_id = ids[config.cls_token]
        self.sep_id = ids[config.sep_token]
        self.pad_id = ids[config.pad_token]
        self._pipeline = _pipeline(ids, config)

    def encode(self, texts: Sequence[str], max_length: int) -> List[List[int]]:
        """Ids of each text, `[CLS] ... [SEP]`. Lone surrogates are dropped, as PaddleNLP drops them.

        Args:
            max_length: tokens that a text is cut to, at least the two or three special ones.
        """
        room = max_length - 2
        encodings = self._encodings(self._pipeline.encode_batch_fast, texts, room)
        return [[self.cls_id, *encoding.ids[:room], self.sep_id] for encoding in encodings]

    def encode_with_offsets(
        self, texts: Sequence[str], max_length: int
    ) -> Tuple[List[List[int]], List[List[Tuple[int, int]]]]:
        """`encode`, and where each token stands.

        Returns:
            The ids of each text, and for each of them one (start, end): indices of the Python str, end exclusive,
            (0, 0) for [CLS] and [SEP].
            A combining mark belongs to the character that it stands on, whether the model sees it or not; other
            characters that the model does not see belong to a token only where they stand inside it.
        """
        room = max_length - 2
        encodings = self._encodings(self._pipeline.encode_batch, texts, room)
        rows = [[self.cls_id, *encoding.ids[:room], self.sep_id] for encoding in encodings]
        offsets = [
            [(0, 0), *_in_text(text, encoding.offsets)[:room], (0, 0)] for text, encoding in zip(texts, encodings)
        ]
        return rows, offsets

    def encode_pairs(
        self, texts: Sequence[str], pairs: Sequence[str], max_length: int
    ) -> Tuple[List[List[int]], List[int]]:
        """Ids of each pair, `[CLS] text [SEP] pair [SEP]`, and how many of them are of type 0, the others of type 1.

        Raises:
            ValueError: there are more of the one than of the other.
        """
        if len(texts) != len(pairs):
            raise ValueError(f"{len(texts)} texts and {len(pairs)} second texts make no pairs")
        # Of a text with as many tokens as there is room for, `_cut` need not know how many more there are.
        encodings = self._encodings(self._pipeline.encode_batch_fast, [*texts, *pairs], max_length - 3)
        rows, n_first = [], []
        for first, second in zip(encodings[: len(texts)], encodings[len(texts) :]):
            ids, other_ids = first.ids, second.ids
            left, other_left = _cut(len(ids), len(other_ids), max_length - 3)
            rows.append([self.cls_id, *ids[:left], self.sep_id, *other_ids[:other_left], self.sep_id])
            n_first.append(left + 2)
        return rows, n_first

    def lengths(self, input_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many tokens each row (B, T) has before its padding; one that a text spells inside it counts."""
        padding: NDArray[np.int64] = np.argmax(input_ids[:, ::-1] != self.pad_id, axis=1)  # [SEP] ends every text
        return input_ids.shape[1] - padding

    def _encodings(self, encode: Callable[..., List[Any]], texts: Sequence[str], room: int) -> List[Any]:
        """What the library makes of `texts`: of each all tokens, or at least `room` of them.

        A text that is far longer than that is read only as far as it takes: the library would cut all of it, at 500
        bytes a token. What is read ends before a character that is, or ends, a word by itself, so that its tokens are
        those with which the tokens of the whole text begin.
        """
        if not any(len(text) > _CHARACTERS_A_TOKEN * room for text in texts):
            return self._all(encode, texts)
        parts = [_beginning(text, _CHARACTERS_A_TOKEN * room) for text in texts]
        found = self._all(encode, parts)
        for place, (text, part) in enumerate(zip(texts, parts)):
            if len(part) < len(text) and len(found[place].ids) < room:  # blanks, or what is dropped, most of it
                found[place] = self._all(encode, [text])[0]
        return found

    def _all(self, encode: Callable[..., List[Any]], texts: Sequence[str]) -> List[Any]:
        try:
            return encode(list(texts), add_special_tokens=False)
        except (UnicodeEncodeError, TypeError):
            # Half a surrogate pair cannot cross into the library. This happens next to never, so it costs nothing
            # before it does. Anything but a text fails again here, with Python's own message.
            clean = [text.encode("utf-8", "ignore").decode("utf-8") for text in texts]
            return encode(clean, add_special_tokens=False)

    def padded(self, rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
        """`rows` of ids as one array (B, T), each filled up with `pad_id` to the longest."""
        width = max(map(len, rows), default=0)
        padded = np.full((len(rows), width), self.pad_id, dtype=np.int64)  # (B, T)
        for i, row in enumerate(rows):
            padded[i, : len(row)] = row
        return padded


def _beginning(text: str, characters: int) -> str:
    """The first `characters` of `text` and what comes up to the next `_BOUNDARY`; all of it where there is none."""
    if len(text) <= characters:
        return text
    found = _BOUNDARY.search(text, characters)
    return text[: found.start()] if found else text


def _cut(n_first: int, n_second: int, room: int) -> Tuple[int, int]:
    """How many tokens are left of each text of a pair.

    PaddleNLP's "longest first" (`PretrainedTokenizerBase.truncate_sequences`): as long as there are more than `room`,
    the longer text loses its last token, and the second where they are of one length.
    """
    if n_first + n_second <= room:
        return n_first, n_second
    second_left = min(n_second, max(room - n_first, room // 2))
    return room - second_left, second_left


def _in_text(text: str, offsets: List[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """`offsets` as the library tells them -> offsets in `text`, combining marks included."""
    if _LONE_SURROGATE.search(text):  # the library got the text without them
        places = [i for i, character in enumerate(text) if not _LONE_SURROGATE.match(character)]
        offsets = [(places[start], places[end - 1] + 1) for start, end in offsets]
    found = []
    next_starts = [start for start, _ in offsets[1:]] + [len(text)]
    for (start, end), limit in zip(offsets, next_starts):
        # Between two tokens are blanks, characters that are dropped, and marks on what stands before them.
        while end < limit and unicodedata.category(text[end]) == "Mn":
            end += 1
        found.append((start, end))
    return found


def read_vocab(path: Path) -> List[str]:
    """The entries of a `vocab.txt`. Read line by line as PaddleNLP reads it: one may hold any character but a line end.

    Raises:
        BundleInvalidError: when the file cannot be read as UTF-8.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            return [line.rstrip("\n") for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(path, str(error)) from error


def _pipeline(ids: Dict[str, int], config: TokenizerConfig) -> Any:
    pipeline = tokenizers.Tokenizer(
        models.WordPiece(vocab=ids, unk_token=config.unk_token, max_input_chars_per_word=_MAX_WORD_CHARS)
    )
    steps = [normalizers.Replace(_class(_DROPPED), "")]
    if config.lower_case:
        steps += [normalizers.Lowercase(), normalizers.NFD(), normalizers.Replace(_class(_MARK), "")]
    pipeline.normalizer = normalizers.Sequence(steps)
    # One pass: a word is one character of _SINGLE, or a run of others that are not white space.
    word = tokenizers.Regex("[" + _SINGLE + r"]|[^\s" + _SINGLE + "]+")
    pipeline.pre_tokenizer = pre_tokenizers.Split(word, "removed", invert=True)
    special = {config.unk_token, config.cls_token, config.sep_token, config.pad_token, MASK_TOKEN}
    # Sorted, because the library matches them in the order in which they were added.
    pipeline.add_special_tokens([token for token in sorted(special) if token in ids])
    return pipeline


def _class(inside: str) -> Any:
    return tokenizers.Regex("[" + inside + "]")


def _invalid(path: Path, why: str) -> BundleInvalidError:
    return BundleInvalidError(
        f"{path.name} is not a vocabulary this model can use",
        why=why,
        fix="copy the bundle again from where it was built",
    )
