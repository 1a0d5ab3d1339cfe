"""Text to ids exactly as PaddleNLP's `ErnieTokenizer` does it, or as the BERT tokenizer of Google and Hugging Face.

PaddleNLP's steps: keep special tokens whole; lower-case character by character; drop control, format, private-use and
unassigned characters, lone surrogates and U+FFFD; make a word of its own of every CJK ideograph; split at white space;
decompose (NFD) and drop combining marks; make a word of its own of every punctuation mark and symbol; WordPiece.

Most characters of a Chinese text are words by themselves whatever stands beside them: a table gives their ids. Words of
other characters are cut into pieces once, and their ids are remembered.

BERT's tokenizer differs in one thing: of symbols only those of ASCII are words by themselves.

Character data is that of Unicode 14.0 (Python 3.11, where ERNIE is trained) on any Python: the same text gives the same
ids on every device.
"""

from __future__ import annotations

import io
import re
import string
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence, Tuple, TypeVar, Union, cast

from edgepack_runtime.bundle.model_config import ERNIE, TokenizerConfig
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.inference import unicode_data
from edgepack_runtime.util.fs import read_regular

# `ErnieTokenizer.from_pretrained` keeps these spellings whole when a text holds them; [MASK] is its default
# and has no key in model.json because no task of this runtime masks anything.
MASK_TOKEN = "[MASK]"
MAX_WORD_CHARS = 100  # PaddleNLP's WordpieceTokenizer: a longer word is one [UNK]
_IDEOGRAPHS = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\U0002f800-\U0002fa1f]"
)
_ASCII_PUNCTUATION = frozenset(string.punctuation)  # some are symbols to Unicode, and punctuation to every tokenizer
_SYMBOLS = frozenset("\u00b2\u00b5\u00ba\u00d8\u014b\u01b1\u3007")  # to PaddleNLP, and not to Unicode
_BEFORE_MARKS = "\u02ff"  # the last character in front of all combining marks
_ALL = 2**53  # tokens: no text has more
_REMEMBERED = 16_384  # characters, and words
_REMEMBERED_CHARS = 32  # of a word: with the pieces that it is cut into, a longer one takes kilobytes

_Span = Tuple[int, int]
_Item = Union[int, str, None]  # see `_read_character`
_Value = TypeVar("_Value")


class _Memory(Dict[str, _Value]):
    """Values that `compute` gives, computed once. Bounded, and safe to share between threads without a lock.

    Threads that miss the same key compute the same value, and one that has just been forgotten is computed again.
    """

    def __init__(self, compute: Callable[[str], _Value]) -> None:
        self._compute = compute

    def __missing__(self, key: str) -> _Value:
        value = self._compute(key)
        if len(key) <= _REMEMBERED_CHARS:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[key] = value
        return value


class ErnieTokenizer:
    """One vocabulary, loaded; safe to share between threads.

    Args:
        vocab: `vocab.txt`, one entry per line, id = line number from 0. A duplicate entry has its last id.
        config: which special tokens it holds and whether texts are lower-cased.

    Raises:
        BundleInvalidError: when the file cannot be read as UTF-8 or lacks a special token.
    """

    def __init__(self, vocab: Path, config: TokenizerConfig) -> None:
        self._vocabulary = ids = {entry: number for number, entry in enumerate(read_vocab(vocab))}
        special = [config.unk_token, config.cls_token, config.sep_token, config.pad_token]
        for token in (*special, *config.kept_tokens):
            if token not in ids:
                raise _invalid(vocab, f"it lacks the special token {token!r} that model.json names")
        self.vocab_size = max(ids.values()) + 1
        self.unk_id, self.cls_id, self.sep_id, self.pad_id = (ids[token] for token in special)
        self._lower_case, self._symbols = config.lower_case, config.type == ERNIE
        self._continuations = {entry[2:]: number for entry, number in ids.items() if entry.startswith("##")}
        self._longest_entry = max(map(len, ids))
        # The longest first, for one may begin with another.
        self._special = sorted({*special, MASK_TOKEN, *config.kept_tokens} & ids.keys(), key=len, reverse=True)
        self._find_special = re.compile("|".join(map(re.escape, self._special))).search
        self._items: _Memory[_Item] = _Memory(self._read_character)
        self._words: _Memory[Tuple[List[int], List[_Span]]] = _Memory(self._read_word)

    def encode(self, texts: Sequence[str], max_length: int) -> List[List[int]]:
        """Ids of each text, `[CLS] ... [SEP]`.

        Args:
            max_length: tokens that a text is cut to, at least the two or three special ones. The rest is not read.
        """
        return [[self.cls_id, *self._ids(text, max_length - 2), self.sep_id] for text in texts]

    def encode_with_offsets(self, texts: Sequence[str], max_length: int) -> Tuple[List[List[int]], List[List[_Span]]]:
        """`encode`, and where each token stands.

        Returns:
            The ids of each text, and for each of them one (start, end): indices of the Python str, end exclusive,
            (0, 0) for [CLS] and [SEP].
            A combining mark belongs to the character that it stands on, whether the model sees it or not; other
            characters that the model does not see belong to a token only where they stand inside it.
        """
        rows, offsets = [], []
        for text in texts:
            tokens = list(islice(self._tokens(text, max_length - 2), max_length - 1))  # and one that limits the last
            spans = _with_marks(text, [span for _, span in tokens])[: max_length - 2]
            rows.append([self.cls_id, *(number for number, _ in tokens[: max_length - 2]), self.sep_id])
            offsets.append([(0, 0), *spans, (0, 0)])
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
        room = max_length - 3
        rows, n_first = [], []
        for text, pair in zip(texts, pairs):
            # Of a text with as many tokens as there is room for, `_cut` need not know how many more there are.
            ids, other_ids = self._ids(text, room), self._ids(pair, room)
            if self._symbols:
                left, other_left = _cut(len(ids), len(other_ids), room)
            else:
                if len(ids) == len(other_ids) == room:
                    ids, other_ids = self._ids(text, _ALL), self._ids(pair, _ALL)
                left, other_left = _cut_as_bert(len(ids), len(other_ids), room)
            rows.append([self.cls_id, *ids[:left], self.sep_id, *other_ids[:other_left], self.sep_id])
            n_first.append(left + 2)
        return rows, n_first

    def _ids(self, text: str, room: int) -> List[int]:
        """The ids of the first `room` tokens of `text`."""
        ids: List[int] = []
        word = ""
        for _, _, items in self._parts(text, room):
            for item in items:
                if isinstance(item, int):
                    if word:
                        ids += self._words[word][0]
                        word = ""
                    ids.append(item)
                elif item is not None:
                    word += item
                elif word:
                    ids += self._words[word][0]
                    word = ""
            if len(ids) >= room:
                break
        return ids[:room]

    def _tokens(self, text: str, room: int) -> Iterator[Tuple[int, _Span]]:
        """The id of each token of `text`, and where it stands, without combining marks behind it."""
        word, first = "", 0
        for start, width, items in self._parts(text, room):
            for place, item in enumerate(items, start):
                if isinstance(item, str):
                    if not word:
                        first = place
                    word += item
                    continue
                if word:
                    places: Sequence[int] = range(first, place)
                    # Some characters add nothing to a word, and some, none of which is of ASCII, several characters.
                    if len(word) < len(places) or not word.isascii():
                        places = [index for index in places for _ in cast(str, self._items[text[index]])]
                    for number, (begin, last) in zip(*self._words[word]):
                        yield number, (places[begin], places[last] + 1)
                    word = ""
                if item is not None:
                    yield item, (place, place + width)

    def _parts(self, text: str, room: int) -> Iterator[Tuple[int, int, List[_Item]]]:
        """`text` as items, in parts of about `room` characters: place of the first, characters per item, items."""
        step = max(0, min(room, len(text))) + 1
        place = 0
        while place < len(text):
            # No special token that begins within `step` characters ends later than this.
            special = self._find_special(text, place, place + step + len(self._special[0]) - 1)
            if special and special.start() >= place + step:
                special = None  # it may be cut, and found in full by the next step
            end = special.start() if special else place + step
            yield place, 1, list(map(self._items.__getitem__, text[place:end]))
            place = end
            if special:
                yield place, len(special.group()), [self._vocabulary[special.group()]]
                place = special.end()
        yield len(text), 0, [None]

    def _read_character(self, character: str) -> _Item:
        """The item of a character: its id if it is a word by itself; None if it ends words; or what it adds to one."""
        category = unicode_data.category(character)
        if category[0] == "Z" or character in "\t\n\r":
            return None
        if category[0] == "C" or character == "\ufffd":
            return ""
        if self._lower_case:
            parts = "".join(map(unicode_data.decomposed, unicode_data.lower(character)))
            # A mark of combining class 0 stays for now: the characters around it cannot change places across it.
            character = "".join(c for c in parts if unicode_data.category(c) != "Mn" or not unicode_data.combining(c))
        return self._vocabulary.get(character, self.unk_id) if _stands_alone(character, self._symbols) else character

    def _read_word(self, word: str) -> Tuple[List[int], List[_Span]]:
        """The ids of the tokens of `word`, and the index of the first and last character of each.

        `word` is what its characters add to it. Left to do are marks, and symbols within a decomposed character.
        """
        if word.isalnum() or not self._lower_case:
            return self._pieces(word)
        kept = [i for i in unicode_data.canonical_order(word) if unicode_data.category(word[i]) != "Mn"]
        bare = "".join(word[i] for i in kept)
        places = sorted(kept)  # a character that changes its place is taken to stand where it is put
        alone = [_stands_alone(part, self._symbols) for part in bare]
        cuts = [i for i in range(1, len(bare)) if alone[i - 1] or alone[i]]
        ids: List[int] = []
        spans: List[_Span] = []
        for start, end in zip([0, *cuts], [*cuts, len(bare)]):
            more_ids, more_spans = self._pieces(bare[start:end])
            ids += more_ids
            spans += [(places[start + first], places[start + last]) for first, last in more_spans]
        return ids, spans

    def begun(self, word: str) -> List[int]:
        """The ids of the pieces of an unknown word, one of those that `encode` makes [UNK], up to where there is none.

        Without them in the vocabulary, shorter pieces might match, and the word might be known.
        """
        bare = "".join(item for item in map(self._items.__getitem__, word) if isinstance(item, str))
        if self._lower_case:
            bare = "".join(character for character in bare if unicode_data.category(character) != "Mn")
        return self._begun(bare[:MAX_WORD_CHARS])[0]

    def _pieces(self, word: str) -> Tuple[List[int], List[_Span]]:
        """The pieces of a word, or [UNK]. Returns as `_read_word`."""
        if len(word) <= MAX_WORD_CHARS:
            ids, spans = self._begun(word)
            if not word or (spans and spans[-1][1] == len(word) - 1):
                return ids, spans
        return [self.unk_id], [(0, len(word) - 1)]

    def _begun(self, word: str) -> Tuple[List[int], List[_Span]]:
        """WordPiece: always the longest piece that the vocabulary has, up to where it has none."""
        ids: List[int] = []
        spans: List[_Span] = []
        start, entries = 0, self._vocabulary
        while start < len(word):
            for end in range(min(start + self._longest_entry, len(word)), start, -1):
                number = entries.get(word[start:end])
                if number is not None:
                    break
            else:
                break
            ids.append(number)
            spans.append((start, end - 1))
            start, entries = end, self._continuations
        return ids, spans


@lru_cache(maxsize=4096)
def _stands_alone(part: str, symbols: bool) -> bool:
    """Whether `part` is one character, and a word by itself. With `symbols` those are words, too."""
    if len(part) != 1:
        return False
    kind = unicode_data.category(part)[0]
    if kind == "P" or part in _ASCII_PUNCTUATION or _IDEOGRAPHS.match(part):
        return True
    return symbols and (kind == "S" or part in _SYMBOLS)


def _cut(n_first: int, n_second: int, room: int) -> Tuple[int, int]:
    """How many tokens are left of each text of a pair.

    PaddleNLP's "longest first" (`PretrainedTokenizerBase.truncate_sequences`): as long as there are more than `room`,
    the longer text loses its last token, and the second where they are of one length.
    """
    if n_first + n_second <= room:
        return n_first, n_second
    second_left = min(n_second, max(room - n_first, room // 2))
    return room - second_left, second_left


def _cut_as_bert(n_first: int, n_second: int, room: int) -> Tuple[int, int]:
    """How many tokens are left of each text of a pair, as Hugging Face's tokenizers cut them.

    As `_cut`, but where both are cut and `room` is odd, the longer text keeps one token more; the second if they are of
    one length (`truncate_encodings` with `LongestFirst`).
    """
    if n_first + n_second <= room:
        return n_first, n_second
    shorter = min(n_first, n_second, room // 2)
    return (room - shorter, shorter) if n_first > n_second else (shorter, room - shorter)


def _with_marks(text: str, spans: Sequence[_Span]) -> List[_Span]:
    """`spans` of `text`, each with the combining marks behind it."""
    found = []
    next_starts = [start for start, _ in spans[1:]] + [len(text)]
    for (start, end), limit in zip(spans, next_starts):
        # Between two tokens are blanks, characters that are dropped, and marks on what stands before them.
        while end < limit and text[end] > _BEFORE_MARKS and unicode_data.category(text[end]) == "Mn":
            end += 1
        found.append((start, end))
    return found


def read_vocab(path: Path) -> List[str]:
    """The entries of a `vocab.txt`. Read line by line as PaddleNLP reads it: one may hold any character but a line end.

    Raises:
        BundleInvalidError: when the file cannot be read as UTF-8.
    """
    try:
        with io.StringIO(read_regular(path).decode("utf-8"), newline=None) as lines:
            return [line.rstrip("\n") for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(path, str(error)) from error


def _invalid(path: Path, why: str) -> BundleInvalidError:
    return BundleInvalidError(
        f"{path.name} is not a vocabulary this model can use",
        why=why,
        fix="copy the bundle again from where you got it",
    )
