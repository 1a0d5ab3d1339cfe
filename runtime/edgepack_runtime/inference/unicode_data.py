"""Character data of Unicode 14.0 on any Python from 3.8 on.

`unicodedata` knows Unicode 12.1 on Python 3.8, 14.0 on Python 3.11, and later versions on newer Pythons. The tables
hold the differences between 14.0 and the versions 12.1 to 18.0; `scripts/unicode_tables.py` prints them.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect
from functools import lru_cache
from itertools import accumulate
from typing import Dict, List, Tuple

# Ranges of code points. "Lo" stands for all letters, digits and spacing marks, "So" for all symbols and punctuation.
# "Cn" is unassigned in Unicode 14.0.
_CATEGORIES = {
    "Lo": (
        "870-887 889-88E 8B5-8C9 C5D CDD D04 170D 1715 171F 1734 1B4C 2C2F-2C5F 31BB-31BF 4DB6-4DBF 9FF0-9FFF "
        "A7C0-A7CA A7D0-A7D1 A7D3 A7D5-A7D9 A7F2-A7F6 AB68-AB69 10570-1057A 1057C-1058A 1058C-10592 10594-10595 "
        "10597-105A1 105A3-105B1 105B3-105B9 105BB-105BC 10780-10785 10787-107B0 107B2-107BA 10E80-10EA9 10EB0-10EB1 "
        "10F70-10F81 10FB0-10FCB 11071-11072 11075 11147 111CE 11460-11461 11740-11746 11900-11906 11909 1190C-11913 "
        "11915-11916 11918-11935 11937-11938 1193D 1193F-11942 11950-11959 11AB0-11ABF 11FB0 12F90-12FF0 16A70-16ABE "
        "16AC0-16AC9 16FF0-16FF1 18AF3-18CD5 18D00-18D08 1AFF0-1AFF3 1AFF5-1AFFB 1AFFD-1AFFE 1B11F-1B122 1DF00-1DF1E "
        "1E290-1E2AD 1E7E0-1E7E6 1E7E8-1E7EB 1E7ED-1E7EE 1E7F0-1E7FE 1FBF0-1FBF9 2A6D7-2A6DF 2B735-2B738 30000-3134A"
    ),
    "Mn": (
        "898-89F 8CA-8D2 B55 C3C D81 180F 1ABF-1ACE 1DFA A82C 10EAB-10EAC 10F82-10F85 11070 11073-11074 110C2 111CF "
        "1171E 1193B-1193C 1193E 11943 16FE4 1CF00-1CF2D 1CF30-1CF46 1E2AE"
    ),
    "So": (
        "61D 888 1B7D-1B7E 20C0 2B97 2E50-2E5D AB6A-AB6B FBC2 FD40-FD4F FDCF FDFE-FDFF 1019C 10EAD 10F86-10F89 1145A "
        "116B9 11944-11946 12FF1-12FF2 1CF50-1CFC3 1D1E9-1D1EA 1F10D-1F1AD 1F6D6-1F6D7 1F6DD-1F6DF 1F6FB-1F6FC 1F7F0 "
        "1F8B0-1F8B1 1F90C-1F9CC 1FA74 1FA7B-1FA7C 1FA83-1FA86 1FA96-1FAAC 1FAB0-1FABA 1FAC0-1FAC5 1FAD0-1FAD9 "
        "1FAE0-1FAE7 1FAF0-1FAF6 1FB00-1FB92 1FB94-1FBCA"
    ),
    "Cn": (
        "558 58B-58C 5C8-5C9 88F-897 B53-B54 C5C CDC CF3 ECE 1ACF-1AF0 1B4E-1B4F 1B7F 1C89-1C8A 208F 209D-209F "
        "20C1-20C4 2427-2429 2B96 2E60-2E63 2FFC-2FFF 31E4-31EF A7CB-A7CF A7D2 A7D4 A7DA-A7F1 AB6C-AB6D FBC3-FBD2 "
        "FD90-FD91 FDC8-FDCE 105C0-105F3 107BB-107BF 10940-10959 10D40-10D8F 10EC2-10EFF 1123F-11241 11380-113E2 "
        "116D0-116E3 11B00-11BF9 11DB0-11DF1 11F00-11F5A 1246F 12475-1247F 12550-12686 1342F-143FA 16100-16139 "
        "16D40-16D79 16EA0-16ED3 16FF2-16FF6 187F8-187FF 18CD6-18CFF 18D09-191D2 1B123-1B132 1B155 1B168 1CC00-1CEFD "
        "1D127-1D128 1D1EB-1D1FF 1D250-1D2D3 1D6A6 1DB00-1DB1C 1DF1F-1DFFF 1E030-1E08F 1E4D0-1E6FF 1F1AE 1F6D8-1F6DC "
        "1F774-1F77F 1F7D9-1F7DB 1F7F1-1F7FF 1F8B2-1F8D8 1FA54-1FA57 1FA75-1FA77 1FA87-1FA8F 1FAAD-1FAAF 1FABB-1FABF "
        "1FAC6-1FACF 1FADA-1FADF 1FAE8-1FAEF 1FAF7-1FAFA 1FBCB-1FBEF 1FBFA 2B739-2B73F 2B81E 2CEA2-2CEAD 2EBF0-2EE5D "
        "31350-3FC3F"
    ),
}
_COMBINING = {
    6: "16FF0-16FF1",
    7: "C3C 11943",
    9: "1715 A82C 11070 1193D-1193E",
    218: "1DFA",
    220: "899-89B 8CF-8D2 1ABF-1AC0 1AC3-1AC4 1ACA 10F83 10F85",
    230: "898 89C-89F 8CA-8CE 1AC1-1AC2 1AC5-1AC9 1ACB-1ACE 10EAB-10EAC 10F82 10F84 1E2AE",
}
_LOWER = {  # by the distance from upper to lower case
    1: "A7C0 A7C7 A7C9 A7D0 A7D6 A7D8 A7F5",
    0x27: "10570-1057A 1057C-1058A 1058C-10592 10594-10595",
    0x30: "2C2F",
}
_DECOMPOSED = {"\U00011938": "\U00011935\U00011930"}


def ranges(codes: str) -> List[Tuple[int, int]]:
    """The first and last code point of each range in `codes`, such as "21-2F B2"."""
    found = []
    for part in codes.split():
        first, _, last = part.partition("-")
        found.append((int(first, 16), int(last or first, 16)))
    return found


def _by_character(table: Dict[int, str]) -> Dict[str, int]:
    return {
        chr(code): value
        for value, codes in table.items()
        for first, last in ranges(codes)
        for code in range(first, last + 1)
    }


_RANGES = sorted((*span, name) for name, codes in _CATEGORIES.items() for span in ranges(codes))
_STARTS = [first for first, _, _ in _RANGES]
_COMBINING_CLASS, _DISTANCE = _by_character(_COMBINING), _by_character(_LOWER)


@lru_cache(maxsize=4096)
def category(character: str) -> str:
    """The general category of `character`; for one of the tables, the category that stands for its kind."""
    code = ord(character)
    first, last, name = _RANGES[bisect(_STARTS, code) - 1]
    return name if first <= code <= last else unicodedata.category(character)


def lower(character: str) -> str:
    """The lower case of an assigned character: one character, or several as for U+0130."""
    distance = _DISTANCE.get(character)
    return character.lower() if distance is None else chr(ord(character) + distance)


@lru_cache(maxsize=4096)
def combining(character: str) -> int:
    """The canonical combining class of an assigned character."""
    return _COMBINING_CLASS.get(character) or unicodedata.combining(character)


def decomposed(character: str) -> str:
    """The canonical decomposition (NFD) of an assigned character."""
    return _DECOMPOSED.get(character) or unicodedata.normalize("NFD", character)


def canonical_order(text: str) -> List[int]:
    """The indices of the characters of a decomposed text in canonical order.

    Between two characters of class 0, those of another class are sorted by it.
    """
    classes = list(map(combining, text))
    if not any(classes):
        return list(range(len(text)))
    runs = accumulate(not number for number in classes)
    keys = list(zip(runs, classes))
    return sorted(range(len(text)), key=keys.__getitem__)
