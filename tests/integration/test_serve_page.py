"""The page of `serve` in a real browser."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.integration.browser import CHROMIUM, DRIVER, browser
from tests.integration.served import served
from tests.unit.runtime.tiny_model import write_model_folder

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(None in (CHROMIUM, DRIVER), reason="there is no chromium with chromedriver"),
]
ANSWERED = "return document.querySelector('#result').hidden ? null : document.querySelector('#result').innerText"
READY = "return document.querySelector('#facts').innerText.includes('onnxruntime')"


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go: `EDGEPACK_SHOTS`, for anyone who wants to look at them."""
    return Path(os.environ.get("EDGEPACK_SHOTS", tmp_path))


def test_one_label_in_english(tmp_path: Path, shots: Path) -> None:
    folder = write_model_folder(tmp_path / "hotel")
    with served("--model", folder) as server, browser() as page:
        page.open(server.url)
        page.wait_for(READY)
        assert page.text("h1") == "hotel"
        page.type("#first", "店很好<script>document.title='taken'</script>")
        page.click("#go")
        found = page.wait_for(ANSWERED)
        assert found.startswith("good\n")
        assert re.search(r"queue [\d.]+ ms · tokenize [\d.]+ ms · model [\d.]+ ms", found)
        widths = page.run("return [...document.querySelectorAll('.fill')].map(one => parseFloat(one.style.width))")
        assert widths == sorted(widths, reverse=True)
        assert sum(widths) == pytest.approx(100, abs=0.01)
        assert page.run("return document.title") == "hotel"
        page.screenshot(shots / "label.png")
        page.type("#first", " ")
        page.click("#go")
        assert page.wait_for("return document.querySelector('.error')?.innerText") == "Write a text first."
        page.type("#first", "x" * 3000)
        page.click("#go")
        page.wait_for("return document.querySelector('.answer')")
        page.click("#language")
        assert page.text("#go") == "运行模型"
        assert page.run("return document.documentElement.lang") == "zh-Hans"
        assert page.complaints() == []


def test_the_page_of_the_interface_sends_its_examples(tmp_path: Path, shots: Path) -> None:
    with served("--model", write_model_folder(tmp_path / "hotel")) as server, browser() as page:
        page.open(f"{server.url}/docs")
        page.wait_for("return document.querySelectorAll('main > details').length > 10")
        page.run("for (const button of document.querySelectorAll('main button')) button.click()")
        answers = "[...document.querySelectorAll('main > details > pre')].map((one) => one.textContent.slice(0, 4))"
        page.wait_for(f"return {answers}.every((one) => one === '200\\n')")
        page.screenshot(shots / "docs.png")
        assert page.complaints() == []


def test_spans_in_chinese_on_a_dark_phone(tmp_path: Path, shots: Path) -> None:
    folder = write_model_folder(tmp_path / "places", task="token-classification")
    with served("--model", folder) as server, browser(language="zh-CN,zh,en", width=500, height=900, dark=True) as page:
        page.open(server.url)
        page.wait_for(READY)
        assert page.text("#go") == "运行模型"
        page.run("document.querySelector('#first').value = '😀好店很<b>okay'")  # ChromeDriver cannot type an emoji
        page.click("#go")
        page.wait_for("return document.querySelector('mark')")
        marks = page.run("return [...document.querySelectorAll('mark')].map(one => one.firstChild.data)")
        assert marks == ["店很", "okay"]
        line = page.run("return document.querySelector('.text').innerText")
        assert line.startswith("😀好店很")
        assert "<b>" in line
        assert page.run("return document.documentElement.scrollWidth <= window.innerWidth")
        assert page.run("return matchMedia('(prefers-color-scheme: dark)').matches")
        page.screenshot(shots / "spans.png")
        page.run("document.querySelector('#first').value = '好'")
        page.click("#go")
        page.wait_for("return document.querySelector('#result').innerText.includes('没有找到实体')")
        assert page.complaints() == []


def test_pairs_and_several_labels(tmp_path: Path, shots: Path) -> None:
    pairs = write_model_folder(tmp_path / "pairs", task="text-pair-classification")
    several = write_model_folder(tmp_path / "several", multi_label=True)
    with browser() as page:
        with served("--model", pairs) as server:
            page.open(server.url)
            page.wait_for(READY)
            page.type("#first", "好")
            page.type("#second", "差")
            page.click("#go")
            assert page.wait_for(ANSWERED).startswith("good\n")
            page.screenshot(shots / "pairs.png")
        with served("--model", several) as server:
            page.open(server.url)
            page.wait_for(READY)
            page.type("#first", "差")
            page.click("#go")
            assert page.wait_for(ANSWERED).startswith("bad\n")
            assert page.run("return document.querySelectorAll('.bars .chosen').length") == 1
        number = write_model_folder(tmp_path / "number", task="text-pair-regression", labels=("value",))
        with served("--model", number) as server:
            page.open(server.url)
            page.wait_for(READY)
            page.type("#first", "好")
            page.type("#second", "差")
            page.click("#go")
            assert float(page.wait_for(ANSWERED).partition("\n")[0]) != 0
            assert "a number for two texts" in page.run("return document.querySelector('#facts').innerText")
            page.screenshot(shots / "number.png")
        reading = write_model_folder(tmp_path / "reading", task="reading")
        with served("--model", reading) as server:
            page.open(server.url)
            page.wait_for(READY)
            labels = page.run("return [...document.querySelectorAll('form label')].map(one => one.innerText)")
            assert {"Question", "Text"} <= set(labels)
            page.type("#first", "很")
            page.type("#second", "店" * 20 + "好很差店")
            page.click("#go")
            assert page.wait_for(ANSWERED).startswith("好很差\n")
            assert page.run("return document.querySelector('mark').firstChild.data") == "好很差"
            page.screenshot(shots / "reading.png")
        assert page.complaints() == []
        page.click("#go")  # nobody is there any more
        assert "cannot be reached" in page.wait_for("return document.querySelector('.error')?.innerText")


def test_a_token_is_asked_for(tmp_path: Path, shots: Path) -> None:
    folder = write_model_folder(tmp_path / "hotel")
    token = {"EDGEPACK_TOKEN": "a-token-for-the-test"}
    with served("--model", folder, environment=token) as server, browser(language="zh-CN") as page:
        page.open(server.url)
        page.wait_for("return !document.querySelector('#gate').hidden")
        assert "令牌" in page.text("#result")
        page.screenshot(shots / "token.png")
        page.type("#token", "a-token-for-the-test")
        page.click("#unlock button")
        page.wait_for(READY)
        assert page.run("return document.querySelector('#gate').hidden")
        page.type("#first", "好")
        page.click("#go")
        assert page.wait_for(ANSWERED).startswith("good\n")
