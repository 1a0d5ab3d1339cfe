"""The table of presets against PaddleNLP's own, and what a hub that cannot be reached looks like to a user."""

from __future__ import annotations

import errno
import gc
import http.server
import json
import os
import pickle
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest

from edgepack.errors import EnvironmentUnfitError, StageFailedError
from edgepack.recipe.encoder_shapes import (
    KEPT_HEADS,
    PRESETS,
    SENTENCEPIECE,
    Shape,
    parameters,
    shape_of_config,
    shape_of_folder,
    shape_of_model,
)
from edgepack.recipe.hub import HOME_VARIABLE, models_folder
from edgepack.recipe.training import FromScratch, Scratch
from edgepack.training import environment
from edgepack_runtime.errors import ExitCode
from edgepack_runtime.tasks.registry import task_by_name

pytestmark = pytest.mark.integration
ONE_LABEL = task_by_name("text-classification")

COMMON = "paddlenlp.utils.download.common"
BOS = "paddlenlp.utils.download.bos_download"  # its package has a function of this name, too
TEXTS = ["房间很大", "服务不好"]
TINY = {
    "vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 16, "type_vocab_size": 4, "task_type_vocab_size": 3, "use_task_id": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def ernie() -> Any:
    """PaddleNLP's module of ERNIE."""
    environment.start()
    from paddlenlp.transformers import ernie

    return ernie


@pytest.fixture
def models(ernie: Any) -> Any:
    """`edgepack.training.models.classifiers`, which imports Paddle."""
    from edgepack.training.models import classifiers as models

    return models


def weights(network: Any) -> int:
    return sum(parameter.size for parameter in network.parameters())


def test_the_table_is_paddlenlp_s(ernie: Any) -> None:
    known = ernie.configuration.ERNIE_PRETRAINED_INIT_CONFIGURATION
    assert set(PRESETS) | {SENTENCEPIECE} == set(known)
    for name, shape in PRESETS.items():
        config = ernie.configuration.ErnieConfig(**known[name])
        assert shape == shape_of_config(config.to_dict()), name
        assert shape == shape_of_config(known[name]), name  # what PaddleNLP does not write down, it takes as we do


def test_every_preset_has_a_tokenizer(ernie: Any) -> None:
    assert set(PRESETS) <= set(ernie.tokenizer.ErnieTokenizer.pretrained_init_configuration)


@pytest.mark.parametrize(
    "change",
    [{}, {"use_task_id": False}, {"type_vocab_size": 2, "num_hidden_layers": 1}, {"num_attention_heads": 4}],
    ids=str,
)
@pytest.mark.parametrize("labels", [2, 5])
def test_parameters_are_those_of_a_real_network(
    ernie: Any, tmp_path: Path, change: dict[str, Any], labels: int
) -> None:
    config = ernie.configuration.ErnieConfig(**{**TINY, **change}, num_labels=labels)
    network = ernie.modeling.ErnieForSequenceClassification(config)
    network.save_pretrained(str(tmp_path))
    shape = shape_of_folder(tmp_path)
    assert shape == shape_of_model(str(tmp_path), 16)
    assert shape is not None
    assert parameters(shape, labels) == weights(network)


def test_a_model_from_scratch_has_the_shape_that_is_planned(models: Any, tmp_path: Path) -> None:
    source = FromScratch(scratch=Scratch(layers=1, hidden=8, heads=2, max_vocabulary=17))
    made = models.create(source, ("a", "b", "c"), 12, TEXTS * 9, 0, tmp_path, ONE_LABEL)
    shape = shape_of_model(source, 12)
    assert shape is not None
    actual = shape_of_config(made.network.config.to_dict())
    assert actual is not None
    assert shape == Shape(**{**vars(actual), "vocabulary": 17})
    assert parameters(actual, 3) == made.parameters


@pytest.fixture
def home(models: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty model cache instead of the user's."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "cache"))
    yield models_folder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PaddleNLP leaves the sockets of failed downloads open
        sys.modules[COMMON].reset_sessions()
        gc.collect()


def refuse(*arguments: object, **options: object) -> None:
    raise OSError(errno.ENETUNREACH, "Network is unreachable")


def unknown_host(*arguments: object, **options: object) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def out_of_time(*arguments: object, **options: object) -> None:
    raise TimeoutError("timed out")


@pytest.mark.parametrize("source", ["ernie-3.0-tiny-nano-v2-zh", "someone/ernie"])
@pytest.mark.parametrize("blocked", [refuse, unknown_host, out_of_time], ids=lambda function: function.__name__)
def test_without_a_network_the_folder_that_works_is_named(
    models: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, blocked: Any
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", blocked)
    monkeypatch.setattr(socket.socket, "connect", blocked)
    with pytest.raises(EnvironmentUnfitError, match="cannot be downloaded") as caught:
        models.create(source, ("a", "b"), 16, TEXTS, 0, tmp_path, ONE_LABEL)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT_UNFIT
    assert "retries" not in caught.value.why
    for word in ("config.json", "model_state.pdparams", "vocab.txt", "tokenizer_config.json", "model: ./"):
        assert word in caught.value.fix


class _Hub(http.server.BaseHTTPRequestHandler):
    """It has `files`, by the end of their address; `status` is the answer for all others."""

    status = 404
    files: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        body = self.files.get(self.path.rpartition("/")[2])
        self.send_response(self.status if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body or b"")

    do_HEAD = do_GET

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keep quiet."""


@pytest.fixture
def hub(models: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A hub on this machine that has nothing."""
    bos_download = sys.modules[BOS]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    template = bos_download.BOS_URL_TEMPLATE_WITHOUT_REVISION
    monkeypatch.setattr(
        bos_download, "BOS_URL_TEMPLATE_WITHOUT_REVISION", template.replace(bos_download.ENDPOINT, address)
    )
    yield address
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("status", [404, 503])
def test_what_the_hub_does_not_have_is_no_stage_s_fault(
    models: Any, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(_Hub, "status", status)
    with pytest.raises(EnvironmentUnfitError, match="cannot be downloaded") as caught:
        models.create("someone/ernie", ("a", "b"), 16, TEXTS, 0, tmp_path, ONE_LABEL)
    assert str(status) in caught.value.why


def test_a_folder_with_the_name_of_a_model_of_the_hub_is_not_loaded(
    models: Any, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "someone" / "ernie"
    planted.mkdir(parents=True)
    source = FromScratch(scratch=Scratch(layers=1, hidden=8, heads=2, max_vocabulary=17))
    models.create(source, ("a", "b"), 16, TEXTS, 0, planted, ONE_LABEL).save(planted)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_Hub, "status", 404)
    with pytest.raises(EnvironmentUnfitError, match="cannot be downloaded"):
        models.create("someone/ernie", ("a", "b"), 16, TEXTS, 0, tmp_path, ONE_LABEL)
    assert Path.cwd() == tmp_path
    (tmp_path / "out").mkdir()
    models.create(str(planted), ("a", "b"), 16, TEXTS, 0, tmp_path / "out", ONE_LABEL)


@pytest.fixture(params=["ernie-3.0-tiny-pico-v2-zh", "someone/ernie"])
def hub_model(request: Any, models: Any, hub: str, ernie: Any, tmp_path: Path, monkeypatch: Any) -> Iterator[str]:
    """The name of a tiny model that the hub has: one of PaddleNLP's, or of a user. The folder `tiny` holds it."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    source = FromScratch(scratch=Scratch(layers=1, hidden=8, heads=2, max_vocabulary=17))
    models.create(source, ("a", "b"), 16, TEXTS, 0, folder, ONE_LABEL).save(folder)
    config = json.loads((folder / "config.json").read_bytes())
    shape = ernie.configuration.ErnieConfig.pretrained_init_configuration
    monkeypatch.setitem(shape, "ernie-3.0-tiny-pico-v2-zh", config)
    for table, kind, name in (
        (ernie.tokenizer.ErnieTokenizer.pretrained_resource_files_map, "vocab_file", "tiny_vocab.txt"),
        (ernie.modeling.ErnieForSequenceClassification.pretrained_resource_files_map, "model_state", "tiny.pdparams"),
    ):
        monkeypatch.setitem(table[kind], "ernie-3.0-tiny-pico-v2-zh", f"{hub}/{name}")
    has = {name: (folder / name).read_bytes() for name in ("config.json", "model_state.pdparams", "vocab.txt")}
    has |= {"tiny_vocab.txt": has["vocab.txt"], "tiny.pdparams": has["model_state.pdparams"]}
    monkeypatch.setattr(_Hub, "files", has)
    return request.param


def test_a_model_of_the_hub_is_downloaded_once(
    models: Any, home: Path, hub_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    (tmp_path / "first").mkdir()
    (tmp_path / "again").mkdir()
    first = models.create(hub_model, ("a", "b"), 16, TEXTS, 0, tmp_path / "first", ONE_LABEL)
    monkeypatch.setattr(_Hub, "files", {})
    monkeypatch.setattr(_Hub, "status", 503)
    again = models.create(hub_model, ("a", "b"), 16, TEXTS, 0, tmp_path / "again", ONE_LABEL)
    there = models.load(tmp_path / "tiny", ("a", "b"), 16, ONE_LABEL)
    for name, weight in there.network.ernie.state_dict().items():
        for made in (first, again):
            assert np.array_equal(made.network.ernie.state_dict()[name].numpy(), weight.numpy()), name
    assert first.tokenizer.encode(TEXTS[0], 16) == there.tokenizer.encode(TEXTS[0], 16)
    assert (home / hub_model / "model_state.pdparams").is_file()


def test_code_in_weights_of_the_hub_does_not_run(models: Any, hub_model: str, tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    weights = pickle.loads(_Hub.files["model_state.pdparams"])
    for name in ("model_state.pdparams", "tiny.pdparams"):
        _Hub.files[name] = pickle.dumps({**weights, "ernie.pooler.dense.bias": Runs()})
    with pytest.raises(StageFailedError, match="cannot be used"):
        models.probe(hub_model)
    assert not (tmp_path / "made").exists()


def test_a_preset_that_is_gone_from_the_hub(models: Any, hub: str, ernie: Any, tmp_path: Path) -> None:
    name = "ernie-3.0-tiny-pico-v2-zh"
    files = ernie.tokenizer.ErnieTokenizer.pretrained_resource_files_map["vocab_file"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(files, name, f"{hub}/gone_vocab.txt")
        with pytest.raises(EnvironmentUnfitError, match="cannot be downloaded") as caught:
            models.create(name, ("a", "b"), 16, TEXTS, 0, tmp_path, ONE_LABEL)
    assert "404" in caught.value.why


def test_a_full_disk_is_not_called_a_network(
    models: Any, hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_Hub, "status", 200)
    monkeypatch.setattr(sys.modules[BOS], "http_get", full)
    with pytest.raises(StageFailedError, match="cannot be loaded") as caught:
        models.create("someone/ernie", ("a", "b"), 16, TEXTS, 0, tmp_path, ONE_LABEL)
    assert "No space left" in caught.value.why


def test_a_damaged_folder_is_no_download(models: Any, tmp_path: Path) -> None:
    folder = tmp_path / "ernie"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY), encoding="utf-8")
    (folder / "vocab.txt").write_text("[PAD]\n[CLS]\n[SEP]\n[UNK]\n", encoding="utf-8")
    (folder / "model_state.pdparams").write_bytes(b"no weights" * 100_000)
    with pytest.raises(StageFailedError, match="cannot be used") as caught:
        models.create(str(folder), ("a", "b"), 16, TEXTS, 0, tmp_path, ONE_LABEL)
    assert caught.value.why


def save(ernie: Any, kind: str, folder: Path, **change: Any) -> Any:
    """A tiny model as docs/reference/recipe-file.md tells to save one."""
    network = getattr(ernie.modeling, kind)(ernie.configuration.ErnieConfig(**TINY, **change))
    network.save_pretrained(str(folder))
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *"房间很大服务不好"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    ernie.tokenizer.ErnieTokenizer(str(folder / "vocab.txt")).save_pretrained(str(folder))
    return network


def test_files_of_a_tokenizer_name_no_other_files(models: Any, ernie: Any, tmp_path: Path) -> None:
    """PaddleNLP takes any key of these files for an attribute of its tokenizer: names of files to read and to write."""
    folder, out, secret, victim = (tmp_path / name for name in ("ernie", "out", "secret", "victim"))
    out.mkdir()
    save(ernie, "ErnieModel", folder)
    secret.write_text("[PAD]\n[CLS]\n[SEP]\n[UNK]\n[MASK]\nsecret\n")
    victim.write_text("mine")
    (folder / "special_tokens_map.json").write_text(json.dumps({"tokenizer_config_file": str(victim)}))
    settings = {"vocab_file": str(secret), "chat_template": "{{ 'x' * 10 ** 10 }}", "x": "$(touch ran)"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    models.create(str(folder), ("a", "b"), 16, TEXTS, 0, out, ONE_LABEL)
    assert victim.read_text() == "mine"
    assert (out / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    assert not any(value in (out / "tokenizer_config.json").read_text() for value in settings.values())
    ernie.tokenizer.ErnieTokenizer.from_pretrained(str(out))  # it is PaddleNLP's all the same
    (folder / "vocab.txt").unlink()
    secret.write_text("secret")
    (folder / "vocab.txt").symlink_to(secret)
    with pytest.raises(StageFailedError, match="leads out of the folder"):
        models.create(str(folder), ("a", "b"), 16, TEXTS, 0, tmp_path, ONE_LABEL)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"num_hidden_layers": 10**8}, "describes another model"),
        ({"num_hidden_layers": 257, "hidden_size": 1, "num_attention_heads": 1, "intermediate_size": 1}, "at most 256"),
        ({"vocab_size": 6 * 10**8}, "describes another model"),
        ({"vocab_size": 4 * 10**7, "init_args": []}, "does not describe an ERNIE model"),
        ({"vocab_size": 4 * 10**7, "num_attention_heads": -2}, "does not describe an ERNIE model"),
        ({"vocab_size": 4 * 10**7, KEPT_HEADS: 0}, "describes another model"),
        ({"hidden_size": 48, "num_attention_heads": 48, "intermediate_size": 1, KEPT_HEADS: 1}, "another model"),
        ({"num_labels": 10**9, "id2label": {}}, None),  # no use is made of these
    ],
    ids=str,
)
def test_a_config_takes_no_more_memory_than_its_weights(
    models: Any, ernie: Any, tmp_path: Path, change: dict[str, Any], why: str | None
) -> None:
    folder = tmp_path / "ernie"
    save(ernie, "ErnieModel", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with nullcontext() if why is None else pytest.raises(StageFailedError, match=why):
        models.create(str(folder), ("a", "b"), 16, TEXTS, 0, tmp_path, ONE_LABEL)


def test_a_saved_encoder_serves_any_number_of_labels(models: Any, ernie: Any, tmp_path: Path) -> None:
    saved = save(ernie, "ErnieModel", tmp_path / "ernie").state_dict()
    made = models.create(str(tmp_path / "ernie"), tuple("abcde"), 16, TEXTS, 0, tmp_path, ONE_LABEL).network
    loaded = made.ernie.state_dict()
    assert made.classifier.weight.shape == [8, 5]
    assert all((saved[name] == loaded[name]).all() for name in saved)


def test_a_saved_classifier_of_other_labels_says_so(models: Any, ernie: Any, tmp_path: Path) -> None:
    save(ernie, "ErnieForSequenceClassification", tmp_path / "ernie", num_labels=2)
    with pytest.raises(StageFailedError, match="cannot be loaded") as caught:
        models.create(str(tmp_path / "ernie"), tuple("abcde"), 16, TEXTS, 0, tmp_path, ONE_LABEL)
    assert "ErnieModel" in caught.value.fix
