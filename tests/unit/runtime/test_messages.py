"""Messages: English texts that know their id and fields, in documents and in Chinese."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from edgepack_runtime import messages
from edgepack_runtime.messages import Message, joined, message, render

ONE = message("gate.would_decide", n=3200, of=message("unit.rows"))
SEVERAL = joined(message("gate.right", right=1, n=1), "score", "", ONE)


def test_a_message_is_its_english_text_and_can_be_rendered_in_chinese() -> None:
    assert ONE == "about 3200 rows would decide"
    assert render(ONE, "zh") == "约需 3200 个样本才能判定"
    assert SEVERAL == "1 of 1 row right; score; about 3200 rows would decide"
    assert render(SEVERAL, "zh") == "1 个样本中答对 1 个；score；约需 3200 个样本才能判定"
    assert (render("no message", "zh"), render(ONE, "en"), joined("", "one")) == ("no message", str(ONE), "one")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one)), copy.copy])
def test_a_copy_is_the_same_message(copied: Any) -> None:
    found = copied(SEVERAL)
    assert isinstance(found, Message) and (found, found.id, found.fields) == (SEVERAL, SEVERAL.id, SEVERAL.fields)


def test_messages_in_messages_do_not_grow_without_end() -> None:
    nested: Any = "x"
    for _ in range(60):  # this template shows its field twice: 2 ** 60 characters
        nested = {"id": "predict.is_file", "fields": {"file": nested}}
    assert messages.read({"messages": {"x": nested}}) == {}
    long = message("predict.is_file", file="x" * 100_000)
    assert messages.read({"messages": messages.table([joined(long, ONE)])}).keys() == {joined(long, ONE)}


def test_a_document_lists_the_messages_in_it() -> None:
    document = json.loads(json.dumps({"checks": [{"detail": SEVERAL}], "messages": messages.table([{"a": SEVERAL}])}))
    assert document["checks"][0]["detail"] == SEVERAL
    found = messages.read(document)
    assert found == {SEVERAL: SEVERAL} and render(found[SEVERAL], "zh") == render(SEVERAL, "zh")
    assert render(messages.unpacked(json.loads(json.dumps(messages.packed(SEVERAL)))), "zh") == render(SEVERAL, "zh")
    assert messages.unpacked(messages.packed("text")) == "text"


@pytest.mark.parametrize(
    "row",
    [
        {"id": "gate.of_a_later_version", "fields": {}},
        {"id": "gate.right", "fields": {"right": 1}},
        {"id": "gate.right", "fields": {"right": 7, "n": 7}},  # says something else than the English text
        {"id": "gate.unstable", "fields": {"drift": "x", "n": 1}},
        {"id": "gate.right", "fields": []},
        {"id": ["gate.right"], "fields": {}},
        "text",
        None,
    ],
)
def test_a_message_of_another_version_stays_english(row: Any) -> None:
    assert messages.read({"messages": {"1 of 1 row right": row}}) == {}
    assert messages.read({"messages": row}) == {}


def test_a_message_that_cannot_be_said_in_each_language_stays_english() -> None:
    huge = 10**400  # an English `#point` takes any integer, a Chinese `g` does not
    messages.add({"odd.points": ("{points:#point}", "{points:g}")})
    text = str(messages.message("odd.points", points=huge))
    assert messages.read({"messages": {text: {"id": "odd.points", "fields": {"points": huge}}}}) == {}


def test_the_language_is_that_of_the_locale() -> None:
    assert messages.language({"LANG": "zh_CN.UTF-8"}) == "zh"
    assert messages.language({"LC_ALL": "C.UTF-8", "LANG": "zh_CN.UTF-8"}) == "en"
    assert messages.language({}) == "en"
