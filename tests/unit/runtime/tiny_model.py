"""Models of a few hundred bytes that are real model folders, one for every task, and a release around one.

Every token of the vocabulary has one number for each label. The logits of a text are their sums over it; those of a
pair are the first text's less the second's; those of a token are the token's own. So `好` says "good", `差` says
"bad", `店` is a place wherever it stands, and a test can tell what must come out.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

from edgepack_runtime.bundle import golden, model_config
from edgepack_runtime.bundle.manifest import Manifest, TargetFacts, dump
from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.tasks import registry
from edgepack_runtime.tasks.reading import START_END

# An editable install is found by a hook and not by sys.path; the processes of a release have only sys.path.
RUNTIME = Path(golden.__file__).parents[2]
LABELS = ("bad", "good")
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
WORDS = ("好", "差", "店", "很", "，", "！", "ok", "##ay", "～", "★", "〇", "1", "##2")
VOCAB = (*SPECIAL, *WORDS, "[UNK]")  # [UNK] is the last entry, as in ERNIE's vocabularies
SCORES = {"好": (-1.0, 2.0), "差": (2.5, -1.5), "很": (0.25, 0.25)}
TAGS = ("O", "B-name", "I-name", "B-place", "I-place")
TAG_OF = {"店": "B-place", "很": "I-place", "ok": "B-name", "##ay": "I-name"}  # all other tokens are O
TUNED = {  # what the verb `tune` prints
    "tune": 1,
    "tuning": {"threads": 2, "spinning": False, "disabled_optimizers": ["A"]},
    "measured": {"trials": []},
}
TAG_LOGIT = 3.0  # of the tag of a token; the others have 0


def write_model_folder(
    folder: Path,
    *,
    labels: Sequence[str] = LABELS,
    vocab: Sequence[str] = VOCAB,
    outputs: int | None = None,
    **config: Any,
) -> Path:
    """Write `model.onnx`, `vocab.txt` and `model.json`; return `folder`. The vocabulary has no final line end.

    `config` are fields of `ModelConfig`; with `task="token-classification"` the labels are TAGS. With `task="reading"`
    an answer begins at the first 好 of the second text and ends at the first 差 behind it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    task = config.get("task")
    tokens = task in (registry.TOKENS, registry.READING)
    if tokens and labels is LABELS:
        labels = TAGS if task == registry.TOKENS else START_END
    (folder / model_config.VOCAB_NAME).write_text("\n".join(vocab), encoding="utf-8")
    fields = {"task": registry.ONE_TEXT, "labels": tuple(labels), "max_length": 16, "precision": "float32", **config}
    (folder / model_config.CONFIG_NAME).write_bytes(model_config.dump(ModelConfig(**fields)))
    write_onnx(
        folder / model_config.MODEL_NAME,
        vocab,
        outputs or len(labels),
        tokens=tokens,
        unpadded=not config.get("hides_padding", True),
    )
    return folder


def write_onnx(
    path: Path,
    vocab: Sequence[str] = VOCAB,
    n_labels: int = 2,
    *,
    input_name: str = "input_ids",
    tokens: bool = False,
    unpadded: bool = False,
) -> None:
    """logits[b] = sum over t of table[input_ids[b, t]] * signs[token_type_ids[b, t]]; without the sum for `tokens`.

    With `unpadded` there are no token types, and padding would turn the answer.
    """
    table = np.zeros((len(vocab), n_labels), dtype=np.float32)  # (V, n_labels); the row of [PAD] is zero
    if tokens and n_labels >= len(TAGS):
        for number, token in enumerate(vocab):
            table[number, TAGS.index(TAG_OF.get(token, "O"))] = TAG_LOGIT
    else:
        for token, scores in SCORES.items():
            if token in vocab:
                table[vocab.index(token), : len(scores)] = scores[:n_labels]
    if unpadded:
        table[vocab.index("[PAD]")] = (100.0, *[0.0] * (n_labels - 1))
    summed = "rows" if unpadded else "signed"
    last = helper.make_node("ReduceSum", [summed, "axis"], ["logits"], keepdims=0)
    if tokens:
        last = helper.make_node("Identity", [summed], ["logits"])
    signing = [
        helper.make_node("Gather", ["signs", "token_type_ids"], ["sign"]),
        helper.make_node("Mul", ["rows", "sign"], ["signed"]),
    ]
    ids = [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "t"]) for n in (input_name, "token_type_ids")]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", input_name], ["rows"]), *([] if unpadded else signing), last],
        "tiny",
        ids[: 2 - unpadded],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", *(["t"] if tokens else []), n_labels])],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.array([[1], [-1]], dtype=np.float32), "signs"),
            numpy_helper.from_array(np.array([1]), "axis"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def logits_of(text: str) -> list[float]:
    """What the tiny model gives for a text of one-character words."""
    rows = [SCORES.get(character, (0.0, 0.0)) for character in text[:14]]
    return [sum(row[label] for row in rows) for label in range(2)]


def write_release(
    folder: Path,
    *,
    rows: Iterable[tuple[str, str, str] | dict[str, Any]],
    texts: Iterable[str | dict[str, Any]] = ("店很好", "店很差", "好好差"),
    gates: dict[str, Any] | None = None,
    tolerance: Any = 1e-4,
    extra: str = "",
    **config: Any,
) -> tuple[Path, Manifest]:
    """An unpacked release whose `__main__.py` runs verbs as a real one does; returns the folder and its manifest.

    `rows` and `texts` are the lines of the golden files, in full where a task other than the usual one wants that.
    `extra` is code that `__main__.py` runs before the verb.
    """
    write_model_folder(folder / golden.MODEL_FOLDER, **config)
    (folder / "golden").mkdir()
    keys = ("text", "label", "float_label")
    lines = [row if isinstance(row, dict) else dict(zip(keys, row, strict=True)) for row in rows]
    write_lines(folder / golden.ROWS_FILE, lines)
    lines = [text if isinstance(text, dict) else {"text": text, "logits": logits_of(text)} for text in texts]
    write_lines(folder / golden.GOLDEN_FILE, lines)
    (folder / "__main__.py").write_text(_MAIN.format(path=[str(RUNTIME), *sys.path], extra=extra), encoding="utf-8")
    return folder, write_manifest(folder, config.get("task", registry.ONE_TEXT), gates or {}, tolerance)


def write_manifest(folder: Path, task: str, gates: dict[str, Any], tolerance: Any) -> Manifest:
    """Write the manifest of a release, without its list of files."""
    manifest = Manifest(
        name="tiny",
        version="1.0.0",
        sequence=1,
        task=task,
        target=TargetFacts("test", (platform.machine(),), "2.17", "host", "CPUExecutionProvider"),
        model={"precision": "float32", "golden_tolerance": tolerance},
        gates=gates,
        ledger=(),
        tools={},
        recipe_sha256="0" * 64,
        stub_sha256="0" * 64,
        interpreters=(),
        files=(),
    )
    (folder / "manifest.json").write_bytes(dump(manifest))
    return manifest


def write_lines(path: Path, objects: Iterable[Any]) -> None:
    """JSON objects, one per line."""
    path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in objects), encoding="utf-8")


_MAIN = """\
import sys
sys.path[:] = {path!r}
sys.dont_write_bytecode = True
from pathlib import Path
from edgepack_runtime.cli import main
{extra}
sys.exit(main.run(sys.argv[1:], main.Context("tiny", None, Path(__file__).parent)))
"""
