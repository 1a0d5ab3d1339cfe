"""A checkpoint in Hugging Face's layout becomes PaddleNLP's network: compared with a forward pass in NumPy."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors import numpy as safetensors
from tests.unit.training.torch_pickle import save as torch_save

from edgepack.errors import StageFailedError
from edgepack.recipe.encoder_shapes import parameters, shape_of_folder
from edgepack.training import environment
from edgepack_runtime.tasks.registry import task_by_name

pytestmark = pytest.mark.integration
ONE_LABEL = task_by_name("text-classification")

Array = npt.NDArray[Any]
Weights = dict[str, Array]
LABELS = ("a", "b", "c")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"房间很大服务不好ABab", "##b"]
CONFIG: dict[str, Any] = {
    "model_type": "bert", "hidden_act": "gelu", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 24, "type_vocab_size": 2, "vocab_size": 20,
    "layer_norm_eps": 1e-12, "pad_token_id": 0,
}  # fmt: skip
ERNIE = {**CONFIG, "model_type": "ernie", "use_task_id": True, "task_type_vocab_size": 3, "layer_norm_eps": 1e-3}
LENGTHS = (11, 3, 7, 1)


@pytest.fixture(scope="module")
def models() -> Any:
    """`edgepack.training.models.classifiers`, which imports Paddle."""
    environment.start()
    from edgepack.training.models import classifiers as models

    return models


def random_weights(config: dict[str, Any]) -> Weights:
    """As transformers names and lays them out: linear weights are (out, in)."""
    random = np.random.default_rng(7)
    hidden, between = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
    }
    if config.get("use_task_id"):
        shapes["embeddings.task_type_embeddings.weight"] = (config["task_type_vocab_size"], hidden)
    linear = {"pooler.dense": (hidden, hidden)}
    norms = ["embeddings.LayerNorm"]
    for layer in (f"encoder.layer.{number}" for number in range(config["num_hidden_layers"])):
        linear |= {f"{layer}.attention.self.{part}": (hidden, hidden) for part in ("query", "key", "value")}
        linear[f"{layer}.attention.output.dense"] = (hidden, hidden)
        linear |= {f"{layer}.intermediate.dense": (between, hidden), f"{layer}.output.dense": (hidden, between)}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    shapes |= {f"{name}.{part}": (hidden,) for name in norms for part in ("weight", "bias")}
    # As small as trained embeddings are: an epsilon counts where there is little variance.
    spread = {name: 0.03 if name.startswith("embeddings") else 0.3 for name in shapes}
    return {name: random.normal(0, spread[name], shape).astype(np.float32) for name, shape in shapes.items()}


def write(folder: Path, config: dict[str, Any], weights: Weights, file: str = "model.safetensors") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY), encoding="utf-8")
    save = safetensors.save_file if file == "model.safetensors" else torch_save
    save(weights, folder / file)
    return folder


def batch() -> tuple[Array, Array, Array]:
    """Token ids and types (B, T), padded with 0, and which of them are tokens."""
    random = np.random.default_rng(1)
    there = np.arange(max(LENGTHS)) < np.array(LENGTHS)[:, None]
    ids = random.integers(1, len(VOCABULARY), there.shape)
    return ids * there, random.integers(0, 2, there.shape) * there, there


def forward(weights: Weights, config: dict[str, Any]) -> tuple[list[Array], Array]:
    """Hidden states (B, T, H) and pooled outputs (B, H) of `batch` as BERT's paper defines them, in float64."""
    w = {name: weight.astype(np.float64) for name, weight in weights.items()}
    ids, types, there = batch()
    heads = config["num_attention_heads"]

    def dense(x: Array, name: str) -> Array:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def split(x: Array) -> Array:  # (B, T, H) -> (B, heads, T, H / heads)
        return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)

    def attention(x: Array, name: str) -> Array:
        query, key, value = (split(dense(x, f"{name}.{part}")) for part in ("query", "key", "value"))
        scores = query @ key.swapaxes(2, 3) / math.sqrt(query.shape[-1])
        scores = np.where(there[:, None, None, :], scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        return (shares / shares.sum(-1, keepdims=True) @ value).swapaxes(1, 2).reshape(x.shape)

    gelu = np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][types]
    x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    if "embeddings.task_type_embeddings.weight" in w:
        x = x + w["embeddings.task_type_embeddings.weight"][0]
    states = [norm(x, "embeddings.LayerNorm")]
    for layer in (f"encoder.layer.{number}" for number in range(config["num_hidden_layers"])):
        x = states[-1]
        x = norm(x + dense(attention(x, f"{layer}.attention.self"), f"{layer}.attention.output.dense"),
                 f"{layer}.attention.output.LayerNorm")  # fmt: skip
        between = gelu(dense(x, f"{layer}.intermediate.dense"))
        states.append(norm(x + dense(between, f"{layer}.output.dense"), f"{layer}.output.LayerNorm"))
    return states, np.tanh(dense(states[-1][:, 0], "pooler.dense"))


def difference(network: Any, weights: Weights, config: dict[str, Any]) -> float:
    """The largest one at any token of any layer, and in the pooled outputs."""
    import paddle

    ids, types, there = batch()
    network.eval()
    with paddle.no_grad():
        found = network.ernie(
            paddle.to_tensor(ids), paddle.to_tensor(types), output_hidden_states=True, return_dict=True
        )
    states, pooled = forward(weights, config)
    pairs = [(ours.numpy()[there], wanted[there]) for ours, wanted in zip(found.hidden_states, states, strict=True)]
    return max(float(np.abs(ours - wanted).max()) for ours, wanted in [*pairs, (found.pooler_output.numpy(), pooled)])


def head(weights: Weights, prefix: str) -> Weights:
    """With the head of the pre-training, and with numbers that older checkpoints hold."""
    more = {"cls.predictions.bias": np.zeros(20, np.float32), f"{prefix}embeddings.position_ids": np.arange(24)[None]}
    return {f"{prefix}{name}": weight for name, weight in weights.items()} | more


def of_tensorflow(weights: Weights) -> Weights:
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in head(weights, "bert.").items()
    }


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize(
    ("config", "named"),
    [
        (CONFIG, dict),
        (CONFIG, lambda weights: head(weights, "bert.")),
        (CONFIG, of_tensorflow),
        (ERNIE, dict),
        (ERNIE, lambda weights: head(weights, "ernie.")),
        ({**ERNIE, "use_task_id": False}, dict),
    ],
    ids=["bert-encoder", "bert-pre-training", "bert-tensorflow", "ernie-encoder", "ernie-pre-training", "ernie-plain"],
)
def test_the_network_computes_the_same(
    models: Any, tmp_path: Path, config: dict[str, Any], named: Callable[[Weights], Weights], file: str
) -> None:
    weights = random_weights(config)
    folder = write(tmp_path / "hf", config, named(weights), file)
    made = models.create(str(folder), LABELS, 16, [], 0, tmp_path, ONE_LABEL)
    assert difference(made.network, weights, config) < 1e-5
    shape = shape_of_folder(folder)
    assert shape is not None
    assert parameters(shape, len(LABELS)) == made.parameters
    made.save(tmp_path)
    again = models.load(tmp_path, LABELS, 16, ONE_LABEL)
    assert difference(again.network, weights, config) < 1e-5
    written = {path.name for path in tmp_path.iterdir()} - {"hf"}
    assert {"config.json", "model_state.pdparams", "vocab.txt", "tokenizer_config.json"} <= written
    assert not written & {"model.safetensors", "pytorch_model.bin"}


def test_the_comparison_sees_an_epsilon_and_a_transposition() -> None:
    """1e-12 instead of this ERNIE's 1e-3, and a square weight the wrong way round, would not pass for the same."""
    weights = random_weights(ERNIE)
    states, _ = forward(weights, ERNIE)
    name = "encoder.layer.1.attention.output.dense.weight"
    for other in (
        forward(weights, {**ERNIE, "layer_norm_eps": 1e-12}),
        forward({**weights, name: weights[name].T}, ERNIE),
    ):
        assert np.abs(other[0][-1] - states[-1]).max() > 1e-3


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_half_precision_becomes_float32(models: Any, tmp_path: Path, kind: str) -> None:
    weights = random_weights(CONFIG)
    if kind == "F16":
        stored = {name: weight.astype(np.float16) for name, weight in weights.items()}
        rounded = {name: weight.astype(np.float32) for name, weight in stored.items()}
        folder = write(tmp_path / "hf", CONFIG, stored)
    else:  # the upper halves of float32; safetensors' own writer for NumPy knows no bfloat16
        upper = {name: (weight.view(np.uint32) >> 16).astype(np.uint16) for name, weight in weights.items()}
        rounded = {name: (half.astype(np.uint32) << 16).view(np.float32) for name, half in upper.items()}
        folder = write(tmp_path / "hf", CONFIG, upper)
        file = folder / "model.safetensors"
        raw = file.read_bytes()
        length = int.from_bytes(raw[:8], "little")
        header = raw[8 : 8 + length].replace(b'"U16"', b'"BF16"').rstrip()
        file.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + length :])
    made = models.create(str(folder), LABELS, 16, [], 0, tmp_path, ONE_LABEL)
    assert difference(made.network, rounded, CONFIG) < 1e-5


@pytest.mark.parametrize("keeps_case", [True, False])
def test_texts_are_cut_as_the_checkpoint_s_tokenizer_would(models: Any, tmp_path: Path, keeps_case: bool) -> None:
    folder = write(tmp_path / "hf", CONFIG, random_weights(CONFIG))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": not keeps_case}), encoding="utf-8")
    made = models.create(str(folder), LABELS, 16, [], 0, tmp_path, ONE_LABEL)
    made.save(tmp_path)
    again = models.load(tmp_path, LABELS, 16, ONE_LABEL)
    names = ["[CLS]", "房", "A" if keeps_case else "a", "B" if keeps_case else "b", "[SEP]"]
    for classifier in (made, again):
        [ids] = classifier.tokenizer.encode(["房A B"], 16)
        assert [VOCABULARY[index] for index in ids] == names


def test_tokens_are_classified_with_it_too_and_a_student_is_cut_out_of_it(models: Any, tmp_path: Path) -> None:
    weights = random_weights(ERNIE)
    folder = write(tmp_path / "hf", ERNIE, weights)
    made = models.create(str(folder), ("O", "B-x", "I-x"), 16, [], 0, tmp_path, task_by_name("token-classification"))
    assert difference(made.network, weights, ERNIE) < 1e-5
    made.save(tmp_path)
    (tmp_path / "student").mkdir()
    student = models.cut(tmp_path, [1], made.labels, 16, tmp_path / "student", made.task)
    assert difference(student.network, weights, {**ERNIE, "num_hidden_layers": 1}) < 1e-5


def test_the_epsilon_that_paddlenlp_s_own_folders_name_counts(models: Any, tmp_path: Path) -> None:
    weights = random_weights(ERNIE)
    models.create(str(write(tmp_path / "hf", ERNIE, weights)), LABELS, 16, [], 0, tmp_path, ONE_LABEL).save(tmp_path)
    (tmp_path / "next").mkdir()
    again = models.create(str(tmp_path), LABELS, 16, [], 0, tmp_path / "next", ONE_LABEL)
    assert difference(again.network, weights, ERNIE) < 1e-5


def refused(models: Any, folder: Path) -> StageFailedError:
    with pytest.raises(StageFailedError) as caught:
        models.probe(str(folder))
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pooler.dense.bias": None}, "missing: pooler.dense.bias"),
        ({"classifier.weight": (3, 32)}, "unexpected: classifier.weight"),
        ({"encoder.layer.2.output.dense.bias": (32,)}, "unexpected: encoder.layer.2.output.dense.bias"),
        ({"embeddings.word_embeddings.weight": (19, 32)}, "float32 [19, 32] instead of float32 [20, 32]"),
        ({"encoder.layer.0.output.dense.weight": (48, 32)}, "float32 [48, 32] instead of float32 [32, 48]"),
        ({"embeddings.task_type_embeddings.weight": (3, 32)}, "unexpected: embeddings.task_type_embeddings.weight"),
        ({"bert.pooler.dense.bias": (32,)}, "there under two names: pooler.dense.bias"),
    ],
    ids=str,
)
def test_weights_that_do_not_fit_are_listed(
    models: Any, tmp_path: Path, change: dict[str, tuple[int, ...] | None], said: str
) -> None:
    weights = random_weights(CONFIG)
    for name, shape in change.items():
        weights.pop(name, None)
        if shape is not None:
            weights[name] = np.zeros(shape, np.float32)
    error = refused(models, write(tmp_path, CONFIG, weights))
    assert "cannot be converted" in error.what
    assert said in error.why


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("content", [b"", b"no weights at all", b"\xff" * 64])
def test_damaged_weights(models: Any, tmp_path: Path, file: str, content: bytes) -> None:
    write(tmp_path, CONFIG, random_weights(CONFIG), file)
    (tmp_path / file).write_bytes(content)
    assert "cannot be read" in refused(models, tmp_path).what


def test_numbers_of_a_kind_that_no_encoder_has(models: Any, tmp_path: Path) -> None:
    folder = write(tmp_path, CONFIG, {"pooler.dense.bias": np.zeros(2, np.complex64)})
    assert "C64" in refused(models, folder).why


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_a_config_takes_no_more_memory_than_the_weights(models: Any, tmp_path: Path, file: str) -> None:
    folder = write(tmp_path, {**CONFIG, "vocab_size": 10**9}, random_weights(CONFIG), file)
    assert f"describes another model than {file} holds" in refused(models, folder).why


def test_settings_that_do_not_fit_stop_it_here_too(models: Any, tmp_path: Path) -> None:
    folder = write(tmp_path, {**CONFIG, "hidden_act": "relu"}, random_weights(CONFIG))
    assert "`hidden_act`" in refused(models, folder).why


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([entry for entry in VOCABULARY if entry != "[SEP]"], "lacks [SEP]"),
        (VOCABULARY[::-1], "'##b' in its first line"),
        ([*VOCABULARY, *"cdefghi"], "25 lines, and `vocab_size` is 20"),
    ],
    ids=["lacks", "order", "long"],
)  # fmt: skip
def test_a_vocabulary_that_does_not_fit(models: Any, tmp_path: Path, entries: list[str], said: str) -> None:
    folder = write(tmp_path, CONFIG, random_weights(CONFIG))
    (folder / "vocab.txt").write_text("\n".join(entries), encoding="utf-8")
    assert said in refused(models, folder).why
