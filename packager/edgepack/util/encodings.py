"""Bytes that are not UTF-8 -> what they are instead, where that can be told.

Most encodings of East Asia read most bytes of the others without an error, GB18030 nearly any bytes at all: that a
file can be read as one says nothing. What tells is whether what is read so looks like a language. In each of the
languages here some dozens of characters make up a third to two thirds of every text; read wrongly, text is made of
characters from all over the code page, and hardly ever of those.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

SAMPLE_BYTES: Final = 64 * 1024  # enough characters to tell, and read in a hundredth of a second

_ENOUGH: Final = 0.2  # of the characters are frequent ones, or the encoding is not certain
_AHEAD: Final = 2.5  # times as many as in the next best encoding
_POSSIBLE: Final = 0.08  # is named among those that it may be
_UNSAID: Final = 4  # characters that are taken to be rare ones, beside those that are there: a few say little
_DAMAGED: Final = 0.25  # bytes that are no UTF-8, for each character that is: more is another encoding
_BINARY: Final = 0.01  # of the bytes are control characters that no text has

_SIMPLIFIED: Final = (
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然家种事成方"
    "多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日者意无它与长把机十民第公已工使情明性知"
    "全三又关点正业外将两高间由问很最重并物手应向头文体美相见被利什二等产或新己身果加月话合回特内信表老给位次度门常先海通东声"
    "提比员解水名真走口条平题更别打女变太少报才再感做接场件直吗住服务房店差钱买电价便吃错快慢"
)
_TRADITIONAL: Final = (
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後作裡用道行所然家種事成方"
    "多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心她本前開但因只從想實日者意無它與長把機十民第公已工使情明性知"
    "全三又關點正業外將兩高間由問很最重並物手應向頭文體美相見被利什二等產或新己身果加月話合回特內信表老給位次度門常先海通東聲"
    "提比員解水名真走口條平題更別打女變太少報才再感做接場件直嗎住服務房店差錢買電價便吃錯快慢"
)
_KOREAN: Final = (
    "이다는에을가의하고지도로은를한어서기사자나리아대시그인들해일있과수정라으제만했것게부보주전적안여스요음상니습면거구원장등말없"
    "데때더우성공까조선동소마오무야러었았네신용"
)
_KANA: Final = "".join(map(chr, (*range(0x3041, 0x3097), *range(0x30A1, 0x30FB), 0x30FC)))
# What every one of them has, and what says nothing: punctuation, full-width signs.
_NEUTRAL: Final = re.compile("[\x00-\x7f\u00b7\u2010-\u2027\u2030-\u203b\u3000-\u3020\uff00-\uff60\uffe0-\uffe6]")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x19\x1c-\x1f\x7f]")
_HIGH: Final = re.compile(rb"[\x80-\xff]")
# A letter with an accent stands between letters of ASCII; what has two bytes a character has most of them in pairs.
_ACCENTED: Final = re.compile(rb"(?<=[A-Za-z])[\x80-\xff](?![\x80-\xff])|(?<![\x80-\xff])[\x80-\xff](?=[A-Za-z])")


@dataclass(frozen=True)
class Encoding:
    """`codec` is Python's name of it, `name` that which people know, `iconv` that which iconv knows everywhere."""

    codec: str
    name: str
    iconv: str


@dataclass(frozen=True)
class Guess:
    """`certain` is what the bytes are; where that is null, `possible` are what they may be, the likeliest first."""

    certain: Encoding | None
    possible: tuple[Encoding, ...] = ()


GB18030: Final = Encoding("gb18030", "GB18030", "GB18030")
BIG5: Final = Encoding("cp950", "Big5", "CP950")
UTF16: Final = Encoding("utf-16", "UTF-16", "UTF-16")
_LANGUAGES: Final = {
    GB18030: frozenset(_SIMPLIFIED),
    BIG5: frozenset(_TRADITIONAL),
    Encoding("cp932", "Shift_JIS", "CP932"): frozenset(_KANA),
    Encoding("euc_jp", "EUC-JP", "EUC-JP"): frozenset(_KANA),
    Encoding("cp949", "EUC-KR", "CP949"): frozenset(_KOREAN),
}
_LATIN: Final = (  # of the west and of the middle of Europe
    Encoding("cp1252", "Windows-1252 (Latin-1)", "CP1252"),
    Encoding("cp1250", "Windows-1250", "CP1250"),
)
_WIDE: Final = (Encoding("utf_16_le", "UTF-16LE", "UTF-16LE"), Encoding("utf_16_be", "UTF-16BE", "UTF-16BE"))


def guess(raw: bytes) -> Guess:
    """What `raw` is, of which there is no need to end where a character does; the first SAMPLE_BYTES are looked at.

    Null and empty where it is UTF-8 but for some bytes, no text at all, or in none of the encodings known here.
    """
    raw = raw[:SAMPLE_BYTES]
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Guess(UTF16)
    if b"\x00" in raw:
        return Guess(next((encoding for encoding in _WIDE if _is_wide(raw, encoding)), None))
    if is_binary(raw) or is_damaged_utf8(raw):
        return Guess(None)
    scores = {encoding: _score(raw, encoding, frequent) for encoding, frequent in _LANGUAGES.items()}
    ranked = sorted(scores, key=lambda encoding: -scores[encoding])
    best, second = (scores[encoding] for encoding in ranked[:2])
    if best >= _ENOUGH and best >= _AHEAD * second:
        return Guess(ranked[0])
    possible = tuple(encoding for encoding in ranked if scores[encoding] >= _POSSIBLE)
    accented = len(_ACCENTED.findall(raw)) / max(1, len(_HIGH.findall(raw)))
    # Which of the two, the bytes alone do not tell: an accented letter of one is an accented letter of the other.
    return Guess(None, (*_LATIN, *possible) if accented >= max(_ENOUGH, best) else possible)


def not_utf8(raw: bytes, name: str) -> tuple[str, str]:
    """Reason and fix for text of a file called `name` that is not UTF-8."""
    if is_binary(raw):
        return "this is no text file", "give a file of text; this is an image, an archive, a model or the like"
    if is_damaged_utf8(raw):
        reason = "this line is not UTF-8, though others are: the file mixes two encodings, or was damaged"
        return reason, "take it from its source again, all of it in UTF-8"
    found = guess(raw)
    if found.certain is not None:
        reason = f"this line is not UTF-8; the file is probably {found.certain.name}"
        return reason, f"convert it: iconv -f {found.certain.iconv} -t UTF-8 {name} > utf8-{name}"
    if not found.possible:
        return "this line is not UTF-8", f"convert it: iconv -f ENCODING -t UTF-8 {name} > utf8-{name}"
    may_be = " or ".join(encoding.name for encoding in found.possible)
    reason = f"this line is not UTF-8; the file may be {may_be}, which is not certain"
    first = found.possible[0].iconv
    return reason, f"see if it reads well: iconv -f {first} -t UTF-8 {name} | head; convert all of it once it does"


def is_binary(raw: bytes) -> bool:
    """Whether `raw` is no text in any encoding, but an image, an archive or the like."""
    raw = raw[:SAMPLE_BYTES]
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    if b"\x00" in raw:
        return not any(_is_wide(raw, encoding) for encoding in _WIDE)
    return len(_CONTROL.findall(raw)) > _BINARY * len(raw)


def is_damaged_utf8(raw: bytes) -> bool:
    """Whether `raw` is UTF-8 but for some bytes: characters that were cut, or a few rows from elsewhere."""
    text = raw[:SAMPLE_BYTES].decode("utf-8", errors="replace")
    damaged = text.count("\ufffd")
    return damaged < _DAMAGED * (sum(character > "\x7f" for character in text) - damaged)


def _is_wide(raw: bytes, encoding: Encoding) -> bool:
    """Whether characters of two bytes make up text: read the wrong way round, even a line end is none."""
    text = raw[: len(raw) // 2 * 2].decode(encoding.codec, errors="replace")
    plain = sum("\x20" <= character <= "\x7e" or character in "\t\r\n" for character in text)
    return plain + sum(map(text.count, _SIMPLIFIED + _TRADITIONAL)) >= _ENOUGH * len(text)


def _score(raw: bytes, encoding: Encoding, frequent: frozenset[str]) -> float:
    """The share of the characters that are `frequent` ones, 0 to 1; 0 where the bytes cannot be read so."""
    try:
        text = codecs.getincrementaldecoder(encoding.codec)().decode(raw)
    except UnicodeDecodeError:
        return 0.0
    counts = Counter(_NEUTRAL.sub("", text))
    return sum(counts[character] for character in frequent) / (counts.total() + _UNSAID)
