"""Files of a tokenizer in a checkpoint: what is taken over, and what a recipe finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.recipe.checkpoints import found, write

from edgepack.recipe.tokenizer_settings import checked_vocabulary, kept_tokens, lower_case, tokenizer_problems


@pytest.mark.parametrize(
    ("tokenizer", "wanted"),
    [(None, True), ({}, True), ({"do_lower_case": False}, False), ({"do_lower_case": True}, True)],
    ids=str,
)
def test_case_is_kept_where_the_checkpoint_keeps_it(tmp_path: Path, tokenizer: object, wanted: bool) -> None:
    folder = write(tmp_path, tokenizer=tokenizer)
    assert tokenizer_problems(folder) == []
    assert lower_case(folder) is wanted


def test_what_transformers_writes_is_understood(tmp_path: Path) -> None:
    settings = {
        "added_tokens_decoder": {"0": {"content": "[PAD]", "special": True}, "4": {"content": "[MASK]"}},
        "backend": "tokenizers", "cls_token": {"content": "[CLS]", "lstrip": False}, "do_lower_case": True,
        "strip_accents": None, "tokenize_chinese_chars": True, "tokenizer_class": "BertTokenizer",
        "model_max_length": 512,
    }  # fmt: skip
    assert tokenizer_problems(write(tmp_path, tokenizer=settings, added_tokens="{}")) == []
    assert kept_tokens(tmp_path) == []


def test_added_tokens_are_entries_of_the_vocabulary_that_are_kept_whole(tmp_path: Path) -> None:
    settings = {"additional_special_tokens": ["[品牌]", {"content": "[C]"}], "never_split": ["酒店", "[CLS]"]}
    folder = write(tmp_path, tokenizer=settings, added_tokens='{"[品牌]": 7, "酒店": 6, "[MASK]": 4}')
    (folder / "special_tokens_map.json").write_text("{}", encoding="utf-8")
    (folder / "vocab.txt").write_text("[PAD]\n[CLS]\n[SEP]\n[UNK]\n[MASK]\n[C]", encoding="utf-8")
    assert tokenizer_problems(folder) == []
    assert kept_tokens(folder) == ["[C]", "[品牌]", "酒店"]
    raw, problems = checked_vocabulary(folder, 8)
    assert (raw.decode().split(), problems) == (
        ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "[C]", "酒店", "[品牌]"],
        [],
    )
    assert checked_vocabulary(folder, 7)[1] == ["vocab.txt has 8 lines, and `vocab_size` is 7"]


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ('{"[X]": 4000000}', "do not follow"), ('{"[X]": 2}', "has the id 2"), ('{"[C]": 6}', "has the id 6"),
        ('{"[X]": 6, "[Y]": 6}', "do not follow"), ('{"[X]": -1}', "has no id"), ('{"a\\nb": 6}', "line end"),
    ],
)  # fmt: skip
def test_ids_of_added_tokens_that_cannot_be_are_named(tmp_path: Path, added: str, words: str) -> None:
    folder = write(tmp_path, added_tokens=added)
    (folder / "vocab.txt").write_text("[PAD]\n[CLS]\n[SEP]\n[UNK]\n[MASK]\n[C]", encoding="utf-8")
    assert words in checked_vocabulary(folder, 8)[1][0]


@pytest.mark.parametrize(
    ("tokenizer", "key"),
    [
        ({"tokenizer_class": "XLMRobertaTokenizer"}, "tokenizer_class"),
        ({"tokenizer_class": ["x"]}, "tokenizer_class"),
        ({"do_lower_case": "no"}, "do_lower_case"), ({"do_lower_case": False, "strip_accents": True}, "strip_accents"),
        ({"strip_accents": False}, "strip_accents"), ({"tokenize_chinese_chars": False}, "tokenize_chinese_chars"),
        ({"sep_token": "</s>"}, "sep_token"), ({"cls_token": {"content": "<s>"}}, "cls_token"),
        ({"pad_token": None}, "pad_token"),
        ({"added_tokens_decoder": {"40": {"content": "<1>", "lstrip": True}}}, "lstrip"),
        ({"added_tokens_decoder": {"40": {"content": ["<e1>"]}}}, "content"),
        ({"never_split": ["<e1>"]}, "never_split"),
    ],
    ids=str,
)  # fmt: skip
def test_another_tokenizer_is_a_finding(tmp_path: Path, tokenizer: dict[str, Any], key: str) -> None:
    folder = write(tmp_path / "checkpoint", tokenizer=tokenizer)
    [problem] = tokenizer_problems(folder)
    assert f"`{key}`" in problem
    assert found(tmp_path) == [problem]


@pytest.mark.parametrize("content", ["[]", "{", "7", "\udcff", '{"a": ' * 100_000])
def test_a_damaged_file_of_the_tokenizer(tmp_path: Path, content: str) -> None:
    folder = write(tmp_path)
    (folder / "added_tokens.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    [problem] = tokenizer_problems(folder)
    assert "not a JSON object" in problem


def test_ids_of_added_tokens_behind_a_hole_are_not_those_of_the_file(tmp_path: Path) -> None:
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    for hole in (0, 1):
        vocab = {word: number + hole * (number == 4) for number, word in enumerate(words)}
        fast = {"model": {"type": "WordPiece", "vocab": vocab}, "added_tokens": [{"id": 5 + hole, "content": "[X]"}]}
        (tmp_path / "tokenizer.json").write_text(json.dumps(fast), encoding="utf-8")
        problems = checked_vocabulary(tmp_path, 9)[1]
        assert ["an id without a word" in problem for problem in problems] == [True] * hole


@pytest.mark.parametrize(
    ("added", "words"),
    [
        ({"长" * 65: 6}, "at most 64 characters"),
        ({f"[{number}]": number for number in range(1001)}, "1,001 added tokens"),
        ({f"{'长' * 60}{number}": number for number in range(100)}, "100 added tokens"),
        ({"[X]": 10**5000}, ""),
    ],
)
def test_added_tokens_have_limits(tmp_path: Path, added: dict[str, int], words: str) -> None:
    digits = json.dumps(dict.fromkeys(added, 0)).replace(": 0", f": {'1' * 5000}") if not words else json.dumps(added)
    folder = write(tmp_path, added_tokens=digits)
    assert any(words in problem for problem in tokenizer_problems(folder))
