"""Folders that a Trainer wrote become bundles whose float model has the framework's own logits.

Models are made by PaddleNLP's classes, and one by its Trainer. Those in Hugging Face's layout are the same numbers,
renamed and transposed here as transformers and torch lay them out, since neither is installed: their logits have to be
PaddleNLP's.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file
from tests.unit.training.torch_pickle import save as torch_save

from edgepack import evaluation
from edgepack.artifacts import Row
from edgepack.training import environment
from edgepack_runtime.inference.predictor import Predictor

from .conftest import Project
from .test_custom import sh

pytestmark = pytest.mark.integration
Array = npt.NDArray[Any]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"好坏房间服务很大小ab", "##b"]
RECIPE = """\
edgepack: 1
name: given
version: 1.0.0
model: {folder: trained}
data: {test: test.jsonl}
"""
TAGS = ("B-y", "O", "I-y", "I-x", "B-x")  # neither sorted nor with O first
SIZES = {
    "vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 24,
}  # fmt: skip


class Given(NamedTuple):
    """A folder of PaddleNLP, with rows and the framework's logits for each."""

    folder: Path
    rows: list[Row]
    logits: list[Array]  # (C,), or (T, C) for tokens
    project: Project


def make(
    place: Path,
    labels: Sequence[str],
    *,
    family: str = "Ernie",
    pairs: bool = False,
    per_token: bool = False,
    lower: bool = True,
    safe: bool = False,
    added: Mapping[str, bool] = MappingProxyType({}),
    **config: Any,
) -> Given:
    """A model of random weights, whose head is shifted so that each label is answered about as often.

    `added` are tokens that are added to the vocabulary, and whether as special ones.
    """
    environment.start()
    import paddle
    from paddlenlp import transformers

    folder = place / "trained"
    folder.mkdir()
    (place / "words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    tokenizer = getattr(transformers, f"{family}Tokenizer")(str(place / "words.txt"), do_lower_case=lower)
    tokenizer.add_special_tokens({"additional_special_tokens": [one for one, special in added.items() if special]})
    tokenizer.add_tokens([one for one, special in added.items() if not special])
    paddle.seed(5)
    sizes = {**SIZES, "vocab_size": len(WORDS) + len(added)}
    kind = getattr(transformers, f"{family}For{'Token' if per_token else 'Sequence'}Classification")
    network = kind(getattr(transformers, f"{family}Config")(**sizes, id2label=dict(enumerate(labels)), **config))
    for weight in network.parameters():
        weight.set_value(paddle.randn(weight.shape) * 0.3 + (1.0 if "norm" in weight.name else 0.0))
    network.eval()
    generator = random.Random(7)

    def text() -> str:
        return "".join(generator.choices([*"好坏房间服务很大小?abA", *added], k=generator.randint(1, 30)))

    texts = list({(text(), text() if pairs else None): None for _ in range(160)})

    def logits(one: tuple[str, str | None]) -> Array:
        cut = {"max_length": 24, "truncation": True}
        encoded = tokenizer(one[0], text_pair=one[1], **cut) if pairs else tokenizer(one[0], **cut)
        ids = [paddle.to_tensor([encoded[key]]) for key in ("input_ids", "token_type_ids")]
        with paddle.no_grad():
            return np.asarray(network(*ids).numpy())[0]

    found = np.stack([row.reshape(-1, len(labels)).mean(axis=0) for row in map(logits, texts)])
    network.classifier.bias.set_value(network.classifier.bias - paddle.to_tensor(np.median(found, axis=0)))
    network.save_pretrained(str(folder), safe_serialization=safe)
    tokenizer.save_pretrained(str(folder))
    given = [logits(one) for one in texts]
    rows = [Row(first, (), second) for first, second in texts]
    (place / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return Given(folder, rows, given, Project(place))


def write_rows(given: Given, labels: Sequence[str]) -> None:
    """Test rows that the framework answers right, but for one in eight."""
    answers = [labels[int(row.argmax())] for row in given.logits]
    answers[::8] = [labels[-1]] * len(answers[::8])
    lines = [{**row.document(None), "label": label} for row, label in zip(given.rows, answers, strict=True)]
    write_lines(given.project.folder / "test.jsonl", lines)


def write_lines(file: Path, lines: Sequence[Any]) -> None:
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def as_of_torch(given: Given, file: str, prefix: str = "bert.", *, pooler: bool = True) -> None:
    """Replace the weights by those that transformers writes: other names, linear weights (out, in) not (in, out)."""
    import paddle

    weights = {}
    for name, value in paddle.load(str(given.folder / "model_state.pdparams")).items():
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        for ours, theirs in (
            ("layer_norm", "LayerNorm"), ("encoder.layers", "encoder.layer"), ("norm1", "attention.output.LayerNorm"),
            ("norm2", "output.LayerNorm"), ("linear1", "intermediate.dense"), ("linear2", "output.dense"),
            ("self_attn.q_proj", "attention.self.query"), ("self_attn.k_proj", "attention.self.key"),
            ("self_attn.v_proj", "attention.self.value"), ("self_attn.out_proj", "attention.output.dense"),
            ("ernie.", prefix),
        ):  # fmt: skip
            name = name.replace(ours, theirs)
        if pooler or "pooler" not in name:
            weights[name] = array.T.copy() if array.ndim == 2 and "embeddings" not in name else array
    (given.folder / "model_state.pdparams").unlink()
    (save_file if file.endswith(".safetensors") else torch_save)(weights, given.folder / file)
    config = json.loads((given.folder / "config.json").read_bytes())
    name = config["architectures"][0].replace("Ernie", prefix[:-1].capitalize())
    config |= {"model_type": prefix[:-1], "architectures": [name]}
    del config["paddlenlp_version"]
    (given.folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (given.folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}', encoding="utf-8")
    for added in ("special_tokens_map.json", "added_tokens.json"):
        (given.folder / added).unlink(missing_ok=True)


def largest_difference(given: Given, order: Sequence[int] | None = None) -> float:
    """Of the float ONNX to the framework, over all logits of all rows."""
    [float_folder] = given.project.folder.glob(".edgepack/export/*/onnx-float")
    found = evaluation.logits(Predictor(float_folder), given.rows)
    wanted = given.logits if order is None else [row[:, order] for row in given.logits]
    return max(float(np.abs(one.reshape(other.shape) - other).max()) for one, other in zip(found, wanted, strict=True))


def built(given: Given, *arguments: str) -> dict[str, Any]:
    done = given.project.edgepack("build", "recipe.yaml", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Given:
    given = make(tmp_path_factory.mktemp("labelled"), ("b", "a", "c"))
    write_rows(given, ("b", "a", "c"))
    return given


def test_five_lines_package_a_folder_of_paddlenlp(labelled: Given) -> None:
    report = built(labelled)
    rows = {row["stage"]: row for row in report["ledger"]}
    assert list(rows) == ["model", "static graph", "float ONNX", "INT8 ONNX", "on local"]
    assert rows["model"]["note"] == "0.0 M weights, trained elsewhere"
    assert report["data"]["labels"] == ["b", "a", "c"]
    assert {name: split["rows"] for name, split in report["data"]["splits"].items()} == {
        "dev": len(labelled.rows) // 4,
        "test": len(labelled.rows) - len(labelled.rows) // 4,
    }
    assert "are not scored" in report["data"]["warnings"][0]
    assert report["quantization"]["calibration_rows"] == len(labelled.rows) // 4
    assert report["models"] == []
    assert largest_difference(labelled) < 1e-4
    [file] = (labelled.project.folder / "dist").glob("*.edgepack")
    answered = sh(file, "predict", *(row.text for row in labelled.rows[:20]))
    assert answered.returncode == 0, answered.stderr
    found = [json.loads(line)["label"] for line in answered.stdout.splitlines()]
    assert found == ["bac"[int(row.argmax())] for row in labelled.logits[:20]]


ADDED = {"[品牌]": True, "房间": False, "[A]": True}


@pytest.mark.parametrize(
    "made", [{"family": "Bert", "safe": True}, {"lower": False, "use_task_id": True}, {"added": ADDED}]
)
def test_other_forms_of_paddlenlp(tmp_path: Path, made: dict[str, Any]) -> None:
    given = make(tmp_path, ("b", "a", "c"), **made)
    write_rows(given, ("b", "a", "c"))
    built(given, "--until", "export", "--set", "quantize.method=none")
    assert (given.folder / "model.safetensors").is_file() == made.get("safe", False)
    assert largest_difference(given) < 1e-4


def copied(given: Given, place: Path, *left_out: str) -> Given:
    project = given.project.copy(place, ".edgepack", *left_out)
    return given._replace(folder=place / "trained", project=project)


@pytest.mark.parametrize(("file", "prefix"), [("model.safetensors", "bert."), ("pytorch_model.bin", "ernie.")])
def test_the_layout_of_hugging_face_has_the_same_logits(
    labelled: Given, tmp_path: Path, file: str, prefix: str
) -> None:
    given = copied(labelled, tmp_path / "copy")
    as_of_torch(given, file, prefix)
    built(given, "--until", "export")
    assert largest_difference(given) < 1e-4
    [config] = given.project.folder.glob(".edgepack/export/*/onnx-float/model.json")
    assert json.loads(config.read_bytes())["tokenizer"]["type"] == "bert-wordpiece"


def test_labels_in_another_order_are_an_error_that_names_the_right_one(labelled: Given, tmp_path: Path) -> None:
    given = copied(labelled, tmp_path / "copy")
    config = tmp_path / "copy" / "trained" / "config.json"
    fields = json.loads(config.read_bytes())
    config.write_text(json.dumps({**fields, "id2label": {n: f"LABEL_{n}" for n in range(3)}}), encoding="utf-8")
    done = given.project.edgepack("build", "recipe.yaml", "--set", "model.labels=[c, b, a]")
    assert done.returncode == 3, done.stderr
    assert "as c, b, a (the recipe), and " in done.stderr
    assert "write `model: {folder: trained, labels: [b, a, c]}`" in done.stderr


def test_labels_of_the_data_that_the_model_lacks_name_both_lists(labelled: Given, tmp_path: Path) -> None:
    given = copied(labelled, tmp_path / "copy")
    write_rows(given, ("b", "a", "other"))
    for command in ("check", "build"):
        done = given.project.edgepack(command, "recipe.yaml")
        assert done.returncode == 3, done.stderr
        assert "the label `other` is none of the model's: the model has `b`, `a`, `c`; the rows have" in done.stderr


def test_training_rows_fit_a_linear_model_beside_it(labelled: Given, tmp_path: Path) -> None:
    given = copied(labelled, tmp_path / "copy")
    lines = [json.loads(line) for line in (tmp_path / "copy" / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    write_lines(tmp_path / "copy" / "train.jsonl", lines[:60])
    write_lines(tmp_path / "copy" / "test.jsonl", lines[60:])
    report = built(
        given, "--set", "data.train=train.jsonl", "--set", "linear=baseline", "--set", "quantize.method=none"
    )
    assert [row["stage"] for row in report["ledger"]] == ["linear", "model", "static graph", "float ONNX", "on local"]
    assert report["combined"]["chosen"] == "encoder"


@pytest.mark.parametrize("of_torch", [pytest.param(False, marks=pytest.mark.sweep), True])
def test_tags_in_any_order(tmp_path: Path, of_torch: bool) -> None:
    given = make(tmp_path, TAGS, per_token=True)
    lines = [
        {"text": row.text, "spans": [{"start": 0, "end": 1, "label": "xy"[n % 2]}]} for n, row in enumerate(given.rows)
    ]
    write_lines(tmp_path / "test.jsonl", lines)
    if of_torch:  # BertForTokenClassification of transformers has no pooler
        as_of_torch(given, "model.safetensors", pooler=False)
    built(given, "--until", "export", "--set", "quantize.method=none")
    ours = ["O", "B-x", "I-x", "B-y", "I-y"]
    assert largest_difference(given, [TAGS.index(tag) for tag in ours]) < 1e-4


def test_pairs_of_texts_with_several_labels(tmp_path: Path) -> None:
    labels = ("z", "y", "x")
    given = make(tmp_path, labels, pairs=True, problem_type="multi_label_classification")
    config = json.loads((given.folder / "config.json").read_bytes())
    config["problem_type"] = "multi_label_classification"
    (given.folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    answers = [[name for name, value in zip(labels, row, strict=True) if value >= 0] for row in given.logits]
    lines = [{**row.document(None), "labels": answer} for row, answer in zip(given.rows, answers, strict=True)]
    write_lines(tmp_path / "test.jsonl", lines)
    report = built(
        given, "--until", "export", "--set", "task=text-pair-classification", "--set", "quantize.method=none"
    )
    assert report["ledger"][0]["score"]["value"] == 1.0
    assert largest_difference(given) < 1e-4


TRAINER = """\
import sys
import paddle
from edgepack.training import environment
environment.start()
from paddlenlp.data import DataCollatorWithPadding
from paddlenlp.trainer import Trainer, TrainingArguments
from paddlenlp.transformers import ErnieConfig, ErnieForSequenceClassification, ErnieTokenizer
tokenizer = ErnieTokenizer("words.txt")
places = ("", "小", "大", "服务", "大大")
rows = [{**tokenizer(places[n // 2 % 5] + "房间很" + "好坏"[n % 2]), "labels": n % 2} for n in range(60)]
class Rows(paddle.io.Dataset):
    def __getitem__(self, index):
        return rows[index]
    def __len__(self):
        return len(rows)
arguments = TrainingArguments(
    "trained", max_steps=60, per_device_train_batch_size=16, learning_rate=3e-3, device="cpu", save_steps=60,
    report_to=[], disable_tqdm=True,
)
paddle.seed(1)
network = ErnieForSequenceClassification(ErnieConfig(**eval(sys.argv[1]), num_labels=2))
trainer = Trainer(
    network, args=arguments, train_dataset=Rows(), tokenizer=tokenizer, data_collator=DataCollatorWithPadding(tokenizer)
)
trainer.train()
trainer.save_model("trained")
"""


def test_what_paddlenlps_trainer_wrote_needs_its_labels_alone(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-c", TRAINER, repr(SIZES)]
    trained = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert trained.returncode == 0, trained.stderr
    places = ("", "小", "大", "服务", "大大")
    lines = [{"text": f"{place}房间很{'好坏'[n]}", "label": ("正面", "负面")[n]} for place in places for n in (0, 1)]
    write_lines(tmp_path / "test.jsonl", lines * 8)
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    project = Project(tmp_path)
    done = project.edgepack("check", "recipe.yaml")
    assert done.returncode == 3
    assert "config.json does not name the labels" in done.stderr
    (tmp_path / "label.txt").write_text("正面\n负面\n", encoding="utf-8")
    done = project.edgepack("build", "recipe.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ledger"][0]["score"]["value"] > 0.9
    (tmp_path / "label.txt").write_text("负面\n正面\n", encoding="utf-8")
    done = project.edgepack("build", "recipe.yaml")
    assert done.returncode == 3
    assert "(label.txt), and 100% as 正面, 负面" in done.stderr
    (tmp_path / "trained" / "model_state.pdparams").unlink()
    done = project.edgepack("check", "recipe.yaml")
    assert "name one of them, such as `trained/checkpoint-60`" in done.stderr


def test_a_head_of_another_number_of_labels_is_one_clear_error(labelled: Given, tmp_path: Path) -> None:
    given = copied(labelled, tmp_path / "copy")
    config = json.loads((given.folder / "config.json").read_bytes())
    config["id2label"] = {"0": "b", "1": "a", "2": "c", "3": "d"}
    (given.folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    done = given.project.edgepack("build", "recipe.yaml")
    assert done.returncode == 5, done.stderr
    assert "its head has 3 outputs, and the labels are b, a, c, d" in done.stderr
    assert "Traceback" not in done.stderr
