"""The folder that a Trainer of PaddleNLP or of Hugging Face wrote: which files it has, and what its settings say.

Nothing here reads weights. `read` never raises for what is in a folder: `problems` say what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from edgepack.recipe import huggingface_config, tokenizer_settings
from edgepack.recipe.encoder_shapes import CONFIG_FILE, PADDLE_WEIGHTS, Shape, shape_of_config, too_large
from edgepack.recipe.huggingface_config import CHECKPOINT_FIX, HUGGINGFACE_WEIGHTS, read_object
from edgepack.recipe.messages import listed
from edgepack.recipe.paths import is_file, is_folder, path_fix
from edgepack.recipe.tokenizer_settings import FAST_TOKENIZER, TOKENIZER_FILES, TOKENIZER_SETTINGS
from edgepack.util import confined_files
from edgepack_runtime.bundle.model_config import BERT, ERNIE, VOCAB_NAME
from edgepack_runtime.schema.maxima import MAX_LABELS, MAX_TOKENS
from edgepack_runtime.tasks.number import NUMBER_LABELS
from edgepack_runtime.tasks.reading import START_END
from edgepack_runtime.util.fs import read_regular

OLD_CONFIG: Final = "model_config.json"  # of PaddleNLP before 2.5
WEIGHTS: Final = (PADDLE_WEIGHTS, "model_state.safetensors", *HUGGINGFACE_WEIGHTS)  # the first existing one counts
LABEL_FILES: Final = ("label_list.txt", "label.txt", "labels.txt", "label_dict.json")  # of PaddleNLP's examples
_FIX: Final = "give the folder that `save_pretrained` or a Trainer's `save_model` wrote, with its head"
_TOKENIZER_FIX: Final = (
    "remove the setting from the tokenizer's files if no text needs it, and train and evaluate the model so; else ship "
    "your own tokenizer with a handler (docs/how-to/your-own-model.md)"
)
_ADAPTERS: Final = (
    "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin", "lora_config.json",
    "lora_model_state.pdparams", "prefix_config.json",
)  # fmt: skip
_TENSORFLOW: Final = ("tf_model.h5", "saved_model.pb", "*/*/saved_model.pb", "flax_model.msgpack", "*.ckpt*.index")
_GRAPHS: Final = ("*.pdiparams", "*.pdmodel", "*.onnx")
_KIND: Final = re.compile(r"(?:WidthPruned)?(?:Bert|Ernie)For(?:(Sequence|Token)Classification|QuestionAnswering)")
_HEADLESS: Final = re.compile(r"\w*(?:Model|ForMaskedLM|ForPretraining|ForPreTraining)")
_PLACEHOLDER: Final = re.compile(r"LABEL_\d+")
_MAX_HEADER_BYTES: Final = 2**24  # of a .safetensors: names and shapes


@dataclass(frozen=True)
class TrainedFolder:
    """What a folder says of its model. Of a folder with `problems`, the rest may be missing.

    Attributes:
        weights: the file with the weights; None if there is none.
        is_paddle: whether weights have PaddleNLP's names and layout, not those of torch.
        fields: keys of config.json; of PaddleNLP's older file the same keys, and `num_labels`.
        per_token, multi_label: None if the folder does not say.
        is_number: whether its only output is a number (regression).
        is_reading: whether its outputs are start and end of an answer.
        labels: in the order of the outputs; None if the folder does not name them. `labels_from` is where.
        outputs: the number of labels; None if the folder does not say.
        positions: the most tokens that the model can read; 0 if unknown.
        tokenizer: type of the tokenizer, as `model.json` names it.
        problems: reason and fix of what cannot be used.
    """

    folder: Path
    weights: Path | None = None
    is_paddle: bool = True
    fields: Mapping[str, Any] = field(default_factory=dict)
    per_token: bool | None = None
    multi_label: bool | None = None
    is_number: bool = False
    is_reading: bool = False
    labels: tuple[str, ...] | None = None
    labels_from: str = ""
    outputs: int | None = None
    positions: int = 0
    max_length: int = 0
    tokenizer: str = ERNIE
    problems: tuple[tuple[str, str], ...] = ()

    @property
    def is_labelled(self) -> bool:
        """Whether its outputs are labels."""
        return not self.is_number and not self.is_reading

    @property
    def files(self) -> list[Path]:
        """The files that decide the model."""
        names = (CONFIG_FILE, OLD_CONFIG, VOCAB_NAME, *TOKENIZER_FILES)
        there = [self.folder / name for name in names if is_file(self.folder / name)]
        return [*there, *([] if self.weights is None else [self.weights])]


def is_trained_folder(folder: Path) -> bool:
    """Whether a folder has weights of a training beside their config, and no graph."""
    has_config = any(is_file(folder / name) for name in (CONFIG_FILE, OLD_CONFIG))
    return has_config and _weights(folder) is not None and not _there(folder, _GRAPHS)


def read(folder: Path) -> TrainedFolder:
    """The settings of a folder."""
    problems = list(_not_a_model(folder))
    if problems:
        return TrainedFolder(folder, problems=tuple(problems[:1]))
    weights = _weights(folder)
    assert weights is not None, "it is a problem"
    try:
        fields = _fields(folder)
        is_paddle = _is_paddle(weights, fields)
        tokenizer = read_object(folder / TOKENIZER_SETTINGS)
    except (OSError, ValueError, RecursionError) as error:
        return TrainedFolder(folder, problems=((f"its settings cannot be read: {error}", _FIX),))
    name = next(iter(_texts(fields.get("architectures"))), "")
    kind = _KIND.fullmatch(name)
    config = fields if is_paddle else huggingface_config.paddlenlp_config({"model_type": "bert", **fields})
    shape = shape_of_config(config)
    positions = 0 if shape is None else shape.positions
    problem_type = fields.get("problem_type")
    outputs, named = _outputs(fields)
    labels, source = named, CONFIG_FILE
    is_reading = kind is not None and kind[1] is None
    is_number = not is_reading and (problem_type == "regression" or outputs == 1)
    if is_reading:
        labels, outputs = START_END, len(START_END)
    elif is_number:
        labels, outputs = NUMBER_LABELS, 1
    elif named is None or all(map(_PLACEHOLDER.fullmatch, named)):
        labels, source = _labels_of_files(folder)
    problems += _problems(folder, fields, name, shape, is_paddle=is_paddle)
    return TrainedFolder(
        folder,
        weights,
        is_paddle,
        fields,
        per_token=None if kind is None else kind[1] != "Sequence",
        multi_label=None if problem_type is None else problem_type == "multi_label_classification",
        is_number=is_number,
        is_reading=is_reading,
        labels=labels,
        labels_from=source,
        outputs=outputs if outputs is not None or labels is None else len(labels),
        positions=positions,
        max_length=_max_length(tokenizer, positions),
        tokenizer=ERNIE if is_paddle or is_ernie(tokenizer) else BERT,
        problems=tuple(problems),
    )


def is_ernie(tokenizer: Mapping[str, Any]) -> bool:
    """Whether a tokenizer_config.json names PaddleNLP's ErnieTokenizer."""
    return str(tokenizer.get("tokenizer_class")).startswith("Ernie")


def labels_of_config(folder: Path) -> tuple[str, ...] | None:
    """The labels in `id2label` of config.json in the order of the outputs; None if it does not name them.

    Raises:
        OSError, ValueError, RecursionError: the file cannot be read.
    """
    _, labels = _outputs(read_object(folder / CONFIG_FILE))
    return None if labels is None or all(map(_PLACEHOLDER.fullmatch, labels)) else labels


def _not_a_model(folder: Path) -> Iterator[tuple[str, str]]:
    """Reason and fix if a folder is another thing than a model with its config."""
    if not is_folder(folder):
        what = "is a file" if is_file(folder) else "is not there"
        yield f"the folder {str(folder)[:200]!r} {what}", path_fix(str(folder)) or _FIX
        return
    shown = f"the folder {folder.name[:200]!r}"
    for name in (*WEIGHTS, CONFIG_FILE, OLD_CONFIG, VOCAB_NAME, *TOKENIZER_FILES, *LABEL_FILES):
        try:
            confined_files.below(folder, name)
        except ValueError as error:
            yield f"{shown} cannot be used: {error}", "copy it with the files that links lead to: `cp -rL FOLDER COPY`"
        except OSError:
            continue
    if found := _there(folder, _ADAPTERS):
        yield (
            f"{shown} holds a LoRA adapter ({found}), not a whole model",
            "merge it into its model where it was trained (`merge_and_unload` of peft, PaddleNLP's "
            "`merge_lora_params.py`), and save that",
        )
    if _weights(folder) is None:
        yield _without_weights(folder, shown)
    elif not any(is_file(folder / name) for name in (CONFIG_FILE, OLD_CONFIG)):
        yield f"{shown} lacks {CONFIG_FILE}", _FIX


def _without_weights(folder: Path, shown: str) -> tuple[str, str]:
    checkpoints = [one for one in folder.glob("checkpoint-*") if _weights(one) is not None]
    if checkpoints:
        last = max(checkpoints, key=lambda one: (len(one.name), one.name)).name
        return f"{shown} holds checkpoints of a training alone", f"name one of them, such as `{folder.name}/{last}`"
    if found := _there(folder, ("*.index.json",)):
        return f"{shown} has weights in parts ({found})", "save them as one file: `max_shard_size` of `save_pretrained`"
    if found := _there(folder, _TENSORFLOW):
        fix = "load it with `from_tf=True` or `from_flax=True`, and save it with `save_pretrained`"
        return f"{shown} holds weights of TensorFlow or Flax ({found})", fix
    if found := _there(folder, _GRAPHS):
        fix = f"use `model: {{graph: {folder.name}, vocab: ..., labels: ...}}` (docs/how-to/your-own-classifier.md)"
        return f"{shown} holds a frozen graph ({found}), not a trained model", fix
    return f"{shown} has none of {listed(WEIGHTS)}", _FIX


def _problems(
    folder: Path, fields: Mapping[str, Any], name: str, shape: Shape | None, *, is_paddle: bool
) -> Iterator[tuple[str, str]]:
    """Reason and fix of settings that cannot be used."""
    weights = _weights(folder)
    if weights is not None and (reason := too_large(weights, shape)):
        yield reason, _FIX
    if name and not _KIND.fullmatch(name):
        if _HEADLESS.fullmatch(name):
            fix = "give the folder of the trained classifier; or train it: `student: {model: FOLDER}`"
            yield f"it is an encoder without a head for labels: `architectures` is {name[:80]}", fix
        else:
            yield (
                f"`architectures` is {name[:80]}",
                "give one of BertFor... or ErnieFor...SequenceClassification, ...TokenClassification or "
                "...QuestionAnswering; or export this one to ONNX (docs/how-to/your-own-classifier.md)",
            )
    problems = huggingface_config.paddle_problems(fields) if is_paddle else huggingface_config.config_problems(fields)
    if is_paddle and shape_of_config(fields) is None:
        problems.append(f"{CONFIG_FILE} does not describe an ERNIE or a BERT")
    if is_paddle and fields.get("pool_act", "tanh") != "tanh":
        problems.append(f"`pool_act` is {str(fields['pool_act'])[:40]}, and only tanh can be converted")
    unlike = tokenizer_settings.tokenizer_problems(folder)
    for problem in unlike:
        yield f"the runtime would tokenize texts otherwise: {problem}", _TOKENIZER_FIX
    if not any(is_file(folder / one) for one in (VOCAB_NAME, FAST_TOKENIZER)):
        problems.append(f"it lacks {VOCAB_NAME}")
    elif not problems and not unlike:
        problems += tokenizer_settings.vocabulary_problems(folder, fields.get("vocab_size"))
    for problem in problems:
        yield f"it cannot be converted: {problem}", CHECKPOINT_FIX


def _weights(folder: Path) -> Path | None:
    return next((folder / name for name in WEIGHTS if is_file(folder / name)), None)


def _there(folder: Path, patterns: Sequence[str]) -> str:
    """The name of the first file of these names; empty if there is none."""
    return next((file.name for pattern in patterns for file in sorted(folder.glob(pattern))), "")


def _fields(folder: Path) -> dict[str, Any]:
    """config.json; of PaddleNLP's older file the same keys.

    The older one nests the encoder: `{"init_args": [{...}], "num_classes": 3, "init_class": "..."}`.
    """
    if is_file(folder / CONFIG_FILE):
        return read_object(folder / CONFIG_FILE)
    level: Any = read_object(folder / OLD_CONFIG)
    found: dict[str, Any] = {}
    while isinstance(level, dict):
        found = {**level, **found}
        args = found.pop("init_args", None)
        level = next((one for one in args if isinstance(one, dict)), None) if isinstance(args, list) else args
    if "init_class" in found:
        found["architectures"] = [found["init_class"]]
    if "num_classes" in found:
        found["num_labels"] = found["num_classes"]
    return found


def _is_paddle(weights: Path, fields: Mapping[str, Any]) -> bool:
    """Whether weights have PaddleNLP's names: by the file's name, else by the names in it."""
    if weights.suffix != ".safetensors":
        return weights.name == PADDLE_WEIGHTS
    with weights.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(length) if length <= _MAX_HEADER_BYTES else b""
    if not header:
        raise ValueError(f"{weights.name} is not a file of safetensors")
    # Names of both layouts differ in every layer. PaddleNLP can also write those of transformers.
    return b".layers." in header or (b".layer." not in header and "paddlenlp_version" in fields)


def _outputs(fields: Mapping[str, Any]) -> tuple[int | None, tuple[str, ...] | None]:
    """The number of outputs, and their names in order; None for what config.json does not say."""
    found = fields.get("id2label")
    names = dict(enumerate(found)) if isinstance(found, list) else found
    if not isinstance(names, dict) or not names:
        ids = fields.get("label2id")
        pairs = ids.items() if isinstance(ids, dict) else ()
        names = {number: name for name, number in pairs if type(number) is int}
    by_id = {str(number): name for number, name in names.items()}
    ordered = [by_id.get(str(number)) for number in range(len(by_id))]
    labels = tuple(name.strip() for name in ordered if isinstance(name, str) and name.strip())
    count = fields.get("num_labels", len(by_id) or None)
    return count if type(count) is int else None, labels if labels and len(labels) == len(by_id) else None


def _labels_of_files(folder: Path) -> tuple[tuple[str, ...] | None, str]:
    """The labels in a file of a training script, in the folder or beside it, and its name."""
    for place in (folder, folder.parent):
        for name in LABEL_FILES:
            if is_file(place / name):
                try:
                    labels = _labels_of_file(confined_files.below(place, name))
                except (OSError, ValueError, RecursionError):
                    continue
                if labels:
                    return labels, str((place / name).relative_to(folder.parent))
    return None, ""


def _labels_of_file(file: Path) -> tuple[str, ...] | None:
    """The labels of a file with one in each line, or of a JSON object from labels to ids or back."""
    if file.suffix != ".json":
        return read_labels(file)
    fields = read_object(file)
    key = "label2id" if all(type(value) is int for value in fields.values()) else "id2label"
    return _outputs({key: fields})[1]


def read_labels(file: Path) -> tuple[str, ...]:
    """The labels of a file with one in each line. Raises OSError; ValueError if it is not UTF-8, or has too many."""
    text = read_regular(file).decode("utf-8-sig")
    labels = tuple(line.strip() for line in text.splitlines() if line.strip())
    if len(labels) > MAX_LABELS:
        raise ValueError(f"it has {len(labels):,} lines, and at most {MAX_LABELS:,} labels make sense")
    return labels


def _max_length(tokenizer: Mapping[str, Any], positions: int) -> int:
    """Tokens of a text: `model_max_length`, capped by the positions. Transformers writes 1e30 for none."""
    longest = min(positions or MAX_TOKENS, MAX_TOKENS)
    asked = tokenizer.get("model_max_length")
    return min(asked, longest) if type(asked) is int and asked > 0 else longest


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
