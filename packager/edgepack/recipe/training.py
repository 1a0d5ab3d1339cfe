"""Recipe sections of the trainings: teacher, student, distillation, vocabulary trimming, QAT."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from edgepack.recipe.paths import is_folder
from edgepack.recipe.section import MEANT, FilePath, PositiveInt, Section, beside

MOST_EPOCHS = 1000
MODEL = "PaddleNLP name, local folder, or `{scratch: {...}}`."
STUDENT_MODEL = "PaddleNLP name, local folder, `{scratch: {...}}`, or `{from: teacher, layers: ...}`."
Device = Literal["auto", "cpu", "gpu"] | Annotated[str, Field(pattern=r"^gpu:[0-9]{1,3}(,[0-9]{1,3})*$")]


def _located(model: str, info: ValidationInfo) -> str:
    """An absolute path if `model` is a folder on this machine, there or not; else the name of a PaddleNLP model."""
    folder = Path((info.context or {}).get("folder", ""))
    by_form = model.startswith(("./", "../", "/", "~")) or model in (".", "..")
    # `weights/nano` could be a name of the hub as well, but hardly where there is a folder `weights`.
    by_place = "/" in model and is_folder(folder / model.split("/")[0])
    is_local = model.strip() and (by_form or by_place or is_folder(folder / model))
    return beside(model, info) if is_local else model


ModelName = Annotated[str, AfterValidator(_located)]


class Scratch(Section):
    """Shape of an ERNIE with random initial weights. Its vocabulary is built from the training data."""

    layers: int = Field(ge=1, le=48, description="Transformer layers.")
    hidden: int = Field(ge=8, le=4096, description="Width of the hidden states, a multiple of `heads`.")
    heads: int = Field(ge=1, le=64, description="Attention heads of each layer.")
    feed_forward: int | None = Field(None, ge=8, description="Width of the feed-forward layer; 4 x hidden if null.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Dropout of hidden states and attention during training.")
    max_vocabulary: int = Field(20_000, ge=16, description="Maximum size of the built vocabulary.")


class FromScratch(Section):
    """A model with random initial weights instead of pre-trained ones."""

    scratch: Scratch = Field(description="Shape of the model.")


class FromTeacher(Section):
    """A student that starts from layers of the trained teacher, with its embeddings, hidden size and vocabulary."""

    from_: Literal["teacher"] = Field(alias="from", description="Source of the weights.")
    layers: Annotated[PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)], MEANT] = Field(
        description="Number of layers, evenly spread up to the top one; or their numbers, counted from 1."
    )
    width: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the attention heads and feed-forward neurons that each layer keeps: those that matter "
        "most to the teacher's answers. The hidden size stays.",
    )


class Nodes(Section):
    """Machines that train one model together; the same build is started on each of them."""

    count: int = Field(ge=2, le=1024, description="How many machines.")
    master: str = Field(
        pattern=r"^[A-Za-z0-9_.-]+:[0-9]{1,5}$",
        description="Address and free port of one of them, for the connection of all: `10.0.0.1:8379`.",
    )


class Training(Section):
    """Settings of one training."""

    epochs: float | None = Field(
        None,
        gt=0,
        le=MOST_EPOCHS,
        description="Passes over the training rows; may be a fraction. null is about 400 steps, within 3 to 40 epochs.",
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="Epochs without a better dev score after which the training ends, counted once the model is better "
        "than the same answer to every row; null trains all `epochs`.",
    )
    batch_size: int = Field(
        32, ge=1, le=4096, description="Rows per step; with several GPUs or machines, rows per step and process."
    )
    gradient_accumulation: int = Field(
        1, ge=1, le=4096, description="Number of parts in which the rows of a step are run, to save memory."
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        le=1.0,
        description="Peak learning rate, between warm-up and decay to 0. null is 20 / square of the hidden size, at "
        "most 3e-4; for a model from scratch 0.1 / hidden size.",
    )
    scale_learning_rate: Literal["sqrt", "linear", "none"] = Field(
        "sqrt", description="Factor of `learning_rate` for N processes: the square root of N, N, or 1."
    )
    schedule: Literal["linear", "cosine"] = Field("linear", description="Decay of the rate after its peak.")
    warmup: float = Field(0.1, ge=0, le=0.9, description="Fraction of the steps over which the rate rises linearly.")
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Learning rate of a layer relative to the layer above it; 1 trains all layers equally.",
    )
    weight_decay: float = Field(0.01, ge=0, le=1, description="Weight decay of AdamW, for matrices only.")
    clip_norm: float = Field(1.0, gt=0, le=1000, description="Maximum global norm of the gradients of a step.")
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="`balanced` gives every label the same total weight in the loss."
    )
    precision: Literal["auto", "fp32", "fp16", "bf16"] = Field(
        "auto", description="Precision of matrix products; `auto` is fp32 on a CPU, bf16 or fp16 on a GPU."
    )
    max_length: int = Field(
        128,
        ge=4,
        le=2048,  # no ERNIE has more positions
        description="Maximum number of tokens of a text, with [CLS] and [SEP]; longer texts are truncated.",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="Seed of initial weights, shuffling and dropout.")
    device: Device = Field(
        "auto", description="Device of the training. `auto` prints its choice; `gpu` never falls back to a CPU."
    )
    nodes: Nodes | None = Field(None, description="Machines that train together; null trains on this machine.")

    @property
    def local_ranks(self) -> int:
        """Number of training processes on one machine: one per named GPU, else one."""
        return self.device.count(",") + 1

    @property
    def ranks(self) -> int:
        """Number of training processes on all machines."""
        return self.local_ranks * (self.nodes.count if self.nodes is not None else 1)


class Teacher(Training):
    """The larger model that is fine-tuned first."""

    model: Annotated[ModelName | FromScratch, MEANT] = Field(description=MODEL)


class Distill(Section):
    """Loss = hard_weight x cross-entropy + (1 - hard_weight) x T^2 x KL(teacher || student), both at temperature T.

    With `hidden` or `relations`, match_weight x their loss is added.
    """

    temperature: float = Field(
        1.0,
        ge=0.1,
        le=100,
        description="Temperature T. Above 1 the student learns more from less likely labels, which takes more steps.",
    )
    hard_weight: float = Field(
        0.3, ge=0, le=1, description="Share of the labels in the loss; the rest is the teacher's."
    )
    hidden: bool = Field(False, description="Also match the hidden states of mapped layers, through a projection.")
    relations: bool = Field(
        False,
        description="Also match the relations of tokens in the student's top layer (queries, keys, values).",
    )
    layers: tuple[PositiveInt, ...] | None = Field(
        None,
        min_length=1,
        description="Layer of the teacher for each layer of the student, from 1; null spreads them evenly.",
    )
    match_weight: float = Field(1.0, gt=0, le=1000, description="Weight of `hidden` and `relations` in the loss.")


class Trimming(Section):
    """Tokens of the vocabulary that stay: those of the training texts, and those selected here.

    Special tokens and single ASCII letters, digits and signs always stay. A removed character becomes [UNK].
    """

    min_count: int = Field(
        1,
        ge=1,
        description="Least number of occurrences of a token that stays, in training texts, unlabelled texts "
        "and `texts`.",
    )
    characters: Literal["none", "all"] = Field(
        "none", description="`all` also keeps every Chinese character of the vocabulary."
    )
    texts: FilePath | None = Field(
        None,
        description="File of further texts whose tokens count, such as texts from the field; read "
        "as `data.unlabelled`.",
    )


class TrimmedVocabulary(Section):
    """A vocabulary that is trimmed with settings."""

    trim: Trimming = Field(description="Which tokens stay.")


class Student(Training):
    """The model that ships. The device truncates texts to its `max_length`."""

    model: Annotated[ModelName | FromScratch | FromTeacher, MEANT] = Field(description=STUDENT_MODEL)
    distill: Distill | None = Field(
        Distill(), description="Distillation from the teacher; null trains on the labels alone."
    )
    width: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the attention heads and feed-forward neurons that each layer keeps after the training: "
        "those that matter most to the student's answers. It is then trained again. 1 keeps all.",
    )
    vocabulary: Annotated[Literal["keep", "trim"] | TrimmedVocabulary, MEANT] = Field(
        "keep",
        description="`trim` removes, after the training, the tokens that occur in none of its texts; "
        "`{trim: {...}}` has settings.",
    )

    @property
    def is_width_pruned(self) -> bool:
        """Whether it is pruned in width after its training."""
        return self.width < 1

    @property
    def trimming(self) -> Trimming | None:
        """Settings of vocabulary trimming; None if the vocabulary is kept."""
        if isinstance(self.vocabulary, TrimmedVocabulary):
            return self.vocabulary.trim
        return Trimming() if self.vocabulary == "trim" else None


class Qat(Section):
    """Quantization-aware training: the student trains further, rounding as INT8, from its float version and the labels.

    Other settings are those of `student`.
    """

    quanter: Literal["abs_max", "lsq"] = Field(
        "abs_max",
        description="Update of activation ranges: by a moving average of the largest magnitudes (Paddle), or by the "
        "loss (learnt steps, PaddleSlim's LSQ+), which takes longer.",
    )
    epochs: float = Field(1.0, gt=0, le=MOST_EPOCHS, description="Passes over the training rows; may be a fraction.")
    batch_size: int = Field(32, ge=1, le=4096, description="Rows per step. One process trains.")
    learning_rate: float = Field(3e-5, gt=0, le=1.0, description="Peak learning rate, between warm-up and decay to 0.")
    hard_weight: float = Field(
        0.3, ge=0, le=1, description="Share of the labels in the loss; the rest is the float student's."
    )


def is_local_folder(model: str | FromScratch | FromTeacher) -> bool:
    """Whether a model source is a folder on this machine instead of a name of PaddleNLP's hub."""
    return isinstance(model, str) and Path(model).is_absolute()
