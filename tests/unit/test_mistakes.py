"""The most frequent mistakes of users, as docs/how-to/troubleshooting.md lists them, in Chinese and in English."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests.unit.runtime.tiny_model import write_model_folder

from edgepack import cli
from edgepack_runtime.cli import main
from edgepack_runtime.cli.parser import Context

OUTSIDE: Final = Context("edgert", bundle=None, release=None)
NAMES: Final = {
    "FOLDER",
    "YAML",
    "UTF",
    "GB18030",
    "PaddleNLP",
    "ERNIE",
    "RECIPE",
    "txt",
    "NAME",
    "gb18030",
    "JSON",
    "FILE",
    "ACTION",
    "train",
    "test",
}
# A mistake: (what is written before, command line, its words in Chinese and in English).
Case = tuple[Callable[[], object], str, str, str]


def recipe(old: str = "", new: str = "") -> Callable[[], object]:
    """Change the recipe `r.yaml`."""
    file = Path("r.yaml")
    return lambda: file.write_text(file.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")


def written(name: str, content: bytes) -> Callable[[], object]:
    return lambda: Path(name).write_bytes(content)


def bundle() -> None:
    """A file that was cut short on its way."""
    Path("a.edgepack").write_bytes(b"#!/bin/sh\n" * 20)


GB18030: Final = "text\tlabel\n这个酒店的服务很好，房间也很干净，下次还会来\t好\n".encode("gb18030") * 9
MIXED: Final = "text\tlabel\n很好\t好\n".encode() + GB18030
CASES: Final[dict[str, Case]] = {
    "YAML syntax": (recipe("name: tiny", "name: [tiny"), "edgepack check r.yaml", "YAML 语法错误", "not YAML"),
    "tab in YAML": (recipe("  train", "\ttrain"), "edgepack check r.yaml", "缩进中有制表符", "has a tab"),
    "duplicate key": (recipe("name", "name: a\nname"), "edgepack check r.yaml", "键 `name` 重复", "duplicate key"),
    "unknown key": (recipe("student", "sudent"), "edgepack check r.yaml", "未知的键 `sudent`", "unknown key `sudent`"),
    "missing key": (recipe("version: 0.1.0"), "edgepack check r.yaml", "`version`：缺少该键", "it is missing"),
    "missing data file": (recipe("train.tsv", "trian.tsv"), "edgepack check r.yaml", "不存在", "there is no file"),
    "missing column": (written("train.tsv", b"txt\tlabel\na\t1\n"), "edgepack check r.yaml", "没有列 `text`", "`text`"),
    "rows that are not UTF-8": (written("train.tsv", MIXED), "edgepack check r.yaml", "混用了两种编码", "mixes two"),
    "wrong ending of rows": (recipe("train.tsv", "train.doc"), "edgepack check r.yaml", "不是表格文件", "not a table"),
    "unknown model": (
        recipe("{scratch: {layers: 1, hidden: 8, heads: 2}}", "ernie-3.0-nano"),
        "edgepack check r.yaml", "没有 ERNIE 模型", "no ERNIE model",
    ),
    "init over a recipe": (recipe(), "edgepack init train.tsv --output r.yaml", "r.yaml 已存在", "r.yaml exists"),
    "unknown command": (recipe(), "edgepack biuld r.yaml", "是不是想写 `build`", "Did you mean `build`?"),
    "unknown option": (recipe(), "edgepack check r.yaml --sets a", "没有选项 --sets", "--sets"),
    "missing argument": (recipe(), "edgepack check", "缺少参数 RECIPE", "RECIPE"),
    "missing bundle": (recipe(), "edgepack gate none.edgepack", "none.edgepack 不存在", "there is no file"),
    "damaged bundle": (bundle, "edgert verify a.edgepack", "a.edgepack 已损坏", "is damaged"),
    "encoding of --input": (
        written("gb.tsv", GB18030), "edgert predict --model model --input gb.tsv", "编码不是 UTF-8", "is not UTF-8"
    ),
    "ending of --input": (
        written("a.doc", b"a"), "edgert predict --model model --input a.doc", "扩展名无法识别", "no known ending"
    ),
    "column of --input": (
        written("a.tsv", b"txt\na\n"), "edgert predict --model model --input a.tsv", "没有列 `text`", "no column `text`"
    ),
    "missing --input": (recipe(), "edgert predict --model model --input a.csv", "a.csv 不存在", "there is no file"),
    "model that is not there": (recipe(), "edgert predict --model an/empty x", "empty 中没有模型", "holds no model"),
    "nothing installed": (recipe(), "edgert uninstall --prefix an/empty", "没有安装任何版本", "nothing is installed"),
    "missing key to trust": (recipe(), "edgert trust add k.pub --prefix app", "k.pub 不存在", "there is no file k.pub"),
    "mistyped verb": (recipe(), "edgert predcit x", "是不是想写 `edgert predict`", "did you mean `edgert predict`"),
    "option before the verb": (recipe(), "edgert --json status", "写在了子命令之前", "is before the verb"),
    "missing action of trust": (recipe(), "edgert trust", "缺少参数 ACTION", "are required: ACTION"),
    "wrong value of --long": (
        recipe(), "edgert predict --model model --long all x", "参数 --long：不能是 'all'", "invalid choice: 'all'"
    ),
    "option without its value": (recipe(), "edgert predict --model", "参数 --model：缺少值", "expected one argument"),
    "rollback of nothing": (recipe(), "edgert rollback", "只用于已安装的版本", "only for an installed release"),
    "text that shows nothing": (
        recipe(), "edgert predict --model model \u200b", "文本 1 为空", "text 1 is empty"
    ),
    "empty cell of --input": (
        written("a.tsv", b"text\tid\n\t1\n"), "edgert predict --model model --input a.tsv",
        "a.tsv 的第 2 行的列 `text` 为空", "column `text` of line 2 of a.tsv is empty",
    ),
    "row of --input with too few columns": (
        written("a.tsv", b"text\tid\na\n"), "edgert predict --model model --input a.tsv",
        "有 1 列，而表头有 2 列", "has 1 field, and the header has 2",
    ),
    "line of --input that is not JSON": (
        written("a.jsonl", b'{"text": 1\n'), "edgert predict --model model --input a.jsonl", "不是 JSON", "is not JSON"
    ),
    "key of --input": (
        written("a.jsonl", b'{"txt": "a"}\n'), "edgert predict --model model --input a.jsonl",
        "不是含有键 `text` 的 JSON 对象", "is not a JSON object with a key `text`",
    ),
    "ending of --output": (
        written("a.tsv", b"text\na\n"), "edgert predict --model model --input a.tsv --output b.doc",
        "b.doc 无法写入", "b.doc cannot be written",
    ),
    "wrong --port": (recipe(), "edgert serve --model model --port 99999", "不是 1 到 65535 的整数", "from 1 to 65535"),
}  # fmt: skip


def run(line: str) -> int:
    program, *words = line.split()
    if program == "edgert":
        return main.run(words, OUTSIDE)
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    return int(ended.value.code or 0)


@pytest.mark.parametrize("mistake", CASES)
@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_frequent_mistake_is_told_in_the_language_of_the_locale(
    mistake: str, language: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", {"zh": "zh_CN.UTF-8", "en": "en_US.UTF-8"}[language])
    write_model_folder(project / "model")
    (project / "an/empty").mkdir(parents=True)
    prepare, line, chinese, english = CASES[mistake]
    prepare()
    assert run(line) != 0
    printed = capsys.readouterr().err.replace(str(project), "")
    if language == "en":
        assert english in printed and not re.search("[\u4e00-\u9fff]", printed)
        return
    assert chinese in printed
    # What is in quotes, and what a command line or a path holds, are names.
    words = re.sub(r"可用的有：.*|[\w .-]+ --help|`[^`\n]*`|'[^'\n]*'|\S*[-./]\S*", " ", printed, flags=re.ASCII)
    assert [word for word in re.findall("[A-Za-z][A-Za-z0-9]+", words) if word not in NAMES] == []


def test_a_run_of_predict_is_reported_in_chinese(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    write_model_folder(project / "model")
    Path("a.jsonl").write_text('{"text": "a"}\n\n{"text": ""}\n', encoding="utf-8")
    assert run("edgert predict --model model --input a.jsonl --output b.jsonl") == 0
    assert capsys.readouterr().err.splitlines() == [
        "1 个预测已写入 b.jsonl",
        "跳过 1 个空行",
        "2 行中有 1 行没有预测：原因见 b.jsonl.errors.jsonl",
    ]


def test_a_draft_is_described_in_chinese(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert run("edgepack init train.tsv --output new/r.yaml") == 0
    printed = re.sub(r"`[^`]*`|\S*[./]\S*", " ", "".join(capsys.readouterr()), flags=re.ASCII)
    assert set(re.findall("[A-Za-z][A-Za-z0-9]+", printed)) <= {
        "UTF",
        "INT8",
        "train",
        "dev",
        "test",
        "edgepack",
        "check",
    }


def test_the_docs_list_the_mistakes_that_are_told_in_chinese() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8")
    listed = " ".join(page.partition("in the language of the locale: ")[2].partition(".\n")[0].split())
    assert listed.split("; ") == list(CASES)
