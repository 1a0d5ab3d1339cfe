"""What bytes that are not UTF-8 are instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgepack_runtime.rows.encodings import guess, is_binary, is_damaged_utf8, not_utf8

SIMPLIFIED = "房间很大，服务员也很热情，早餐品种不多，但是味道不错。\n隔音太差，晚上吵得睡不着，下次不会再来了。\n"
NEWS = "央行下调存款准备金率\n多地楼市成交量回升\n国足主场战平对手\n新款手机开售，首批现货售罄\n"
TRADITIONAL = "房間很大，服務員也很熱情，早餐種類不多，但是味道不錯。\n隔音太差，晚上吵得睡不著，下次不會再來了。\n"
JAPANESE = "部屋はとても広くて、スタッフも親切でした。\n壁が薄くて夜はうるさく、あまり眠れませんでした。\n"
KOREAN = "방이 아주 넓고 직원들도 친절했습니다.\n방음이 안 되어 밤에 시끄러워서 잠을 잘 수 없었어요.\n"
GERMAN = "Das Zimmer war groß und schön, das Frühstück könnte besser sein.\nNachts hört man die Straße.\n"
FRENCH = "La chambre était très agréable, le petit déjeuner un peu léger.\nÀ éviter côté rue.\n"
CZECH = "Pokoj byl velký a čistý, snídaně dobrá.\nV noci je slyšet ulice, příště raději jinam.\n"
RUSSIAN = "Номер большой и чистый, завтрак хороший.\nНочью слышно улицу, больше не приедем.\n"


@pytest.mark.parametrize(
    ("text", "codec", "name"),
    [
        (SIMPLIFIED, "gb18030", "GB18030"),
        (SIMPLIFIED, "gbk", "GB18030"),
        (NEWS, "gb18030", "GB18030"),
        ("很好\n太吵\n", "gb18030", "GB18030"),
        (TRADITIONAL, "big5", "Big5"),
        (TRADITIONAL, "cp950", "Big5"),
        (JAPANESE, "shift_jis", "Shift_JIS"),
        (JAPANESE, "euc_jp", "EUC-JP"),
        (KOREAN, "euc_kr", "EUC-KR"),
        (KOREAN, "cp949", "EUC-KR"),
        (SIMPLIFIED, "utf-16", "UTF-16"),
        (SIMPLIFIED, "utf-16-le", "UTF-16LE"),
        (SIMPLIFIED, "utf-16-be", "UTF-16BE"),
        (GERMAN, "utf-16-le", "UTF-16LE"),
    ],
)
def test_what_reads_like_its_language_is_certain(text: str, codec: str, name: str) -> None:
    raw = f"text\tlabel\n{text}".encode(codec)
    found = guess(raw).certain
    assert found is not None
    assert found.name == name
    assert not is_binary(raw)
    assert f"the file is probably {name}" in not_utf8(raw, "a.tsv")[0]


@pytest.mark.parametrize("text", [GERMAN, FRENCH, CZECH])
def test_latin_letters_are_never_taken_for_chinese(text: str) -> None:
    raw = text.encode("cp1250" if text is CZECH else "latin-1")
    raw.decode("cp1250")
    found = guess(raw)
    assert found.certain is None
    assert [encoding.codec for encoding in found.possible[:2]] == ["cp1252", "cp1250"]
    assert "may be Windows-1252 (Latin-1) or Windows-1250, which is not certain" in not_utf8(raw, "a.tsv")[0]


def test_a_curly_quote_between_letters_is_no_ideograph() -> None:
    raw = "It isn\u2019t far, and we\u2019d come again.\n".encode("cp1252")
    assert "\u62b0" in raw.decode("gb18030")
    assert guess(raw).possible[0].codec == "cp1252"


@pytest.mark.parametrize("codec", ["cp1251", "koi8_r"])
def test_what_is_not_known_is_not_named(codec: str) -> None:
    raw = RUSSIAN.encode(codec)
    raw.decode("gb18030", errors="ignore")
    assert guess(raw).certain is None
    assert guess(raw).possible == ()
    assert not_utf8(raw, "a.tsv") == (
        "this line is not UTF-8",
        "convert it: iconv -f ENCODING -t UTF-8 a.tsv > utf8-a.tsv",
    )


def test_few_characters_are_not_certain() -> None:
    reason, fix = not_utf8("酒店评论".encode("gb18030"), "a.tsv")
    assert reason == "this line is not UTF-8; the file may be GB18030 or EUC-KR, which is not certain"
    assert fix.startswith("see if it reads well: iconv -f GB18030 -t UTF-8 a.tsv | head")


def test_a_sample_may_end_in_the_middle_of_a_character() -> None:
    raw = (SIMPLIFIED * 3).encode("gb18030")
    for end in range(60, 70):
        certain = guess(raw[:end]).certain
        assert certain is not None
        assert certain.codec == "gb18030"


def test_utf8_with_some_other_bytes_is_called_that() -> None:
    raw = SIMPLIFIED.encode() + b"caf\xe9\n" + SIMPLIFIED.encode()
    assert is_damaged_utf8(raw)
    assert guess(raw).certain is None
    assert "but others are" in not_utf8(raw, "a.tsv")[0]
    assert not is_damaged_utf8(SIMPLIFIED.encode("gb18030"))


@pytest.mark.parametrize(
    "raw", [b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, b"\x7fELF" + bytes(100), bytes(range(1, 256)) * 20]
)
def test_what_is_no_text_is_called_that(raw: bytes) -> None:
    assert is_binary(raw)
    reason, fix = not_utf8(raw, "a.tsv")
    assert reason == "this is not a text file"
    assert "iconv" not in fix


@given(st.binary(max_size=300))
def test_any_bytes_have_an_answer(raw: bytes) -> None:
    found = guess(raw)
    if found.certain is not None and not found.certain.codec.startswith("utf"):
        raw.decode(found.certain.codec, errors="ignore")
    assert all(not_utf8(raw, "a.tsv"))
