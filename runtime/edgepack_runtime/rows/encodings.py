"""Detection of the encoding of bytes that are not UTF-8.

Most East Asian encodings decode most bytes of the others without an error, so decoding alone proves nothing. Instead
the decoded text must look like a language: in each of them a few dozen characters make up a third to two thirds of
every text, and wrongly decoded text hardly contains them.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from dataclasses import dataclass
from shlex import quote
from typing import Final

from edgepack_runtime.messages import message

UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SAMPLE_BYTES: Final = 64 * 1024  # enough characters, decoded in 10 ms

_ENOUGH: Final = 0.2  # least share of frequent characters of a certain encoding
_AHEAD: Final = 2.5  # least ratio to the share of the next best encoding
_POSSIBLE: Final = 0.08  # least share of a possible encoding
_UNSAID: Final = 4  # rare characters that are added, so that short texts decide less
_DAMAGED: Final = 0.25  # invalid bytes per UTF-8 character of a damaged file; more is another encoding
_BINARY: Final = 0.01  # largest share of control characters in a text

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
# Characters of every encoding: punctuation, full-width signs.
_NEUTRAL: Final = re.compile("[\x00-\x7f\u00b7\u2010-\u2027\u2030-\u203b\u3000-\u3020\uff00-\uff60\uffe0-\uffe6]")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x19\x1c-\x1f\x7f]")
_HIGH: Final = re.compile(rb"[\x80-\xff]")
# An accented letter is between ASCII letters; two-byte characters mostly come in pairs.
_ACCENTED: Final = re.compile(rb"(?<=[A-Za-z])[\x80-\xff](?![\x80-\xff])|(?<![\x80-\xff])[\x80-\xff](?=[A-Za-z])")


@dataclass(frozen=True)
class Charset:
    """An encoding: Python's name (`codec`), the common name, and a name that every iconv knows."""

    codec: str
    name: str
    iconv: str


@dataclass(frozen=True)
class Guess:
    """The `certain` encoding of some bytes; if that is None, the `possible` ones, the likeliest first."""

    certain: Charset | None
    possible: tuple[Charset, ...] = ()

    @property
    def is_asian(self) -> bool:
        """Whether the likeliest of the possible encodings is of an East Asian language."""
        return self.possible[:1] != () and self.possible[0] in _LANGUAGES


GB18030: Final = Charset("gb18030", "GB18030", "GB18030")
BIG5: Final = Charset("cp950", "Big5", "CP950")
UTF16: Final = Charset("utf-16", "UTF-16", "UTF-16")
CONVERTED: Final = (UTF16, GB18030, BIG5)  # which readers of rows convert
_LANGUAGES: Final = {
    GB18030: frozenset(_SIMPLIFIED),
    BIG5: frozenset(_TRADITIONAL),
    Charset("cp932", "Shift_JIS", "CP932"): frozenset(_KANA),
    Charset("euc_jp", "EUC-JP", "EUC-JP"): frozenset(_KANA),
    Charset("cp949", "EUC-KR", "CP949"): frozenset(_KOREAN),
}
_LATIN: Final = (  # of western and central Europe
    Charset("cp1252", "Windows-1252 (Latin-1)", "CP1252"),
    Charset("cp1250", "Windows-1250", "CP1250"),
)
_WIDE: Final = (Charset("utf_16_le", "UTF-16LE", "UTF-16LE"), Charset("utf_16_be", "UTF-16BE", "UTF-16BE"))


def recognise(start: bytes) -> Guess | None:
    """The guess about a file that begins with `start`; None for UTF-8, empty for UTF-8 with lines that are not.

    Only characters beyond ASCII show the encoding, and they may begin late.
    """
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError as error:
        line = start.rfind(b"\n", 0, error.start) + 1
        if start.startswith(UTF16_MARKS):
            return Guess(UTF16)
        return Guess(None) if is_surely_utf8(start[:line]) else guess(start[line:])
    return None


def is_surely_utf8(raw: bytes) -> bool:
    """Whether `raw` has a character of three bytes in UTF-8, as Chinese ones have; one of two may be GB18030 too."""
    return max(raw.decode("utf-8", "ignore"), default="") >= "\u0800"


def guess(raw: bytes) -> Guess:
    """Guess the encoding of the first SAMPLE_BYTES of `raw`, which may end inside a character.

    The guess is empty if `raw` is damaged UTF-8, not a text, or in an unknown encoding.
    """
    raw = raw[:SAMPLE_BYTES]
    if raw.startswith(UTF16_MARKS):
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
    # The bytes do not distinguish the two: accented letters of one are accented letters of the other.
    return Guess(None, (*_LATIN, *possible) if accented >= max(_ENOUGH, best) else possible)


def not_utf8(raw: bytes, name: str) -> tuple[str, str]:
    """Reason and fix for text of a file called `name` that is not UTF-8."""
    if is_binary(raw):
        return message("encoding.no_text"), message("encoding.name_text")
    if is_damaged_utf8(raw):
        return message("encoding.mixed"), message("encoding.export")
    found = guess(raw)
    if found.certain is not None:
        probably = message("encoding.probably", name=found.certain.name)
        return probably, conversion(found.certain.iconv, name)
    if not found.possible:
        return message("encoding.line"), conversion("ENCODING", name)
    reason, fix = uncertain(found, name)
    return message("encoding.line_maybe", reason=reason), fix


def uncertain(found: Guess, name: str) -> tuple[str, str]:
    """What a file called `name` may be, and how to see whether it is."""
    may_be = [encoding.name for encoding in found.possible]
    first = f"iconv -f {found.possible[0].iconv} -t UTF-8 {quote(name)}"
    return message("encoding.may_be", names=may_be), message("encoding.see", command=first)


def conversion(encoding: str, name: str) -> str:
    """How to convert a file called `name`, to be typed."""
    command = f"iconv -f {encoding} -t UTF-8 {quote(name)} > {quote(f'utf8-{name}')}"
    return message("encoding.convert", command=command)


def is_binary(raw: bytes) -> bool:
    """Whether `raw` is an image, an archive or the like, and not a text in any encoding."""
    raw = raw[:SAMPLE_BYTES]
    if raw.startswith(UTF16_MARKS):
        return False
    if b"\x00" in raw:
        return not any(_is_wide(raw, encoding) for encoding in _WIDE)
    return len(_CONTROL.findall(raw)) > _BINARY * len(raw)


def is_damaged_utf8(raw: bytes) -> bool:
    """Whether `raw` is UTF-8 with a few invalid bytes, from cut characters or single rows."""
    text = raw[:SAMPLE_BYTES].decode("utf-8", errors="replace")
    damaged = text.count("\ufffd")
    return damaged < _DAMAGED * (sum(character > "\x7f" for character in text) - damaged)


def _is_wide(raw: bytes, encoding: Charset) -> bool:
    """Whether two-byte characters form a text. In the wrong byte order there are not even line ends."""
    text = raw[: len(raw) // 2 * 2].decode(encoding.codec, errors="replace")
    plain = sum("\x20" <= character <= "\x7e" or character in "\t\r\n" for character in text)
    return plain + sum(map(text.count, _SIMPLIFIED + _TRADITIONAL)) >= _ENOUGH * len(text)


def _score(raw: bytes, encoding: Charset, frequent: frozenset[str]) -> float:
    """The share (0 to 1) of `frequent` characters; 0 if the bytes cannot be decoded."""
    try:
        text = codecs.getincrementaldecoder(encoding.codec)().decode(raw)
    except UnicodeDecodeError:
        return 0.0
    counts = Counter(_NEUTRAL.sub("", text))
    return sum(counts[character] for character in frequent) / (sum(counts.values()) + _UNSAID)
