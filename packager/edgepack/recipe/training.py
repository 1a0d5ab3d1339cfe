"""The sections of a recipe that say what is trained and how: teacher, student, and what one learns from the other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from edgepack.recipe.section import PositiveInt, Section

MODEL = "PaddleNLP name, local folder, or `{scratch: {...}}`."
STUDENT_MODEL = "PaddleNLP name, local folder, `{scratch: {...}}`, or `{from: teacher, layers: ...}`."
Device = Literal["auto", "cpu", "gpu"] | Annotated[str, Field(pattern=r"^gpu:[0-9]{1,3}(,[0-9]{1,3})*$")]


class Scratch(Section):
    """Shape of an ERNIE that starts from random weights; the vocabulary is built from the training data."""

    layers: int = Field(ge=1, le=48, description="Transformer layers.")
    hidden: int = Field(ge=8, le=4096, description="Width of the hidden states, a multiple of `heads`.")
    heads: int = Field(ge=1, le=64, description="Attention heads of each layer.")
    feed_forward: int | None = Field(None, ge=8, description="Width of the feed-forward layer; 4 x hidden if null.")
    dropout: float = Field(0.1, ge=0, lt=1, description="Of hidden states and attention, while training.")
    max_vocabulary: int = Field(20_000, ge=16, description="Most entries the built vocabulary may hold.")


class FromScratch(Section):
    """A model from random weights instead of pre-trained ones."""

    scratch: Scratch = Field(description="Shape of the model.")


class FromTeacher(Section):
    """A student that starts as some layers of the trained teacher, with its embeddings, hidden size and vocabulary."""

    from_: Literal["teacher"] = Field(alias="from", description="Where the weights come from.")
    layers: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = Field(
        description="How many, evenly spread up to the top one; or which, counted from 1."
    )
    width: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Part of the attention heads and feed-forward neurons that each layer keeps: those that matter "
        "most to the teacher's answers. The hidden size stays.",
    )


class Nodes(Section):
    """Machines that train one model together; the same build is started on each of them."""

    count: int = Field(ge=2, le=1024, description="How many machines.")
    master: str = Field(
        pattern=r"^[A-Za-z0-9_.-]+:[0-9]{1,5}$",
        description="Address and free port of one of them, at which they meet: `10.0.0.1:8379`.",
    )


class Training(Section):
    """How one model is trained."""

    epochs: float = Field(3.0, gt=0, le=1000, description="Passes over the training rows; may be a fraction.")
    patience: int | None = Field(
        None, ge=1, description="Epochs without a better dev score that end the training; null trains all `epochs`."
    )
    batch_size: int = Field(
        32, ge=1, le=4096, description="Rows a step; with several GPUs or machines, rows a step of each process."
    )
    gradient_accumulation: int = Field(
        1, ge=1, le=4096, description="Parts in which the rows of a step are run, one after the other, to save memory."
    )
    learning_rate: float = Field(3e-5, gt=0, le=1.0, description="Peak, between warm-up and decay to 0.")
    scale_learning_rate: Literal["sqrt", "linear", "none"] = Field(
        "sqrt", description="What `learning_rate` is multiplied with for N processes: the root of N, N, or 1."
    )
    schedule: Literal["linear", "cosine"] = Field("linear", description="How the rate falls after its peak.")
    warmup: float = Field(0.1, ge=0, le=0.9, description="Fraction of the steps over which the rate rises linearly.")
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="Rate of a layer as a part of that of the layer above it; 1 trains all alike."
    )
    weight_decay: float = Field(0.01, ge=0, le=1, description="AdamW's, of matrices only.")
    clip_norm: float = Field(1.0, gt=0, le=1000, description="Largest norm of all gradients of a step together.")
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="`balanced` gives rare labels the same say in the loss as frequent ones."
    )
    precision: Literal["auto", "fp32", "fp16", "bf16"] = Field(
        "auto", description="Of matrix products; `auto` is fp32 on a CPU, bf16 or fp16 on a GPU."
    )
    max_length: int = Field(128, ge=4, le=2048, description="Tokens a text is cut to, [CLS] and [SEP] included.")
    seed: int = Field(0, ge=0, lt=2**31, description="Seed of initial weights, shuffling and dropout.")
    device: Device = Field(
        "auto", description="What trains; `auto` says what it chose, `gpu` never falls back to a CPU."
    )
    nodes: Nodes | None = Field(None, description="Machines that train together; null trains on this one.")

    @property
    def local_ranks(self) -> int:
        """Processes that train on one machine: one for each GPU that is named, else one."""
        return self.device.count(",") + 1

    @property
    def ranks(self) -> int:
        """Processes that train together, on all machines."""
        return self.local_ranks * (self.nodes.count if self.nodes is not None else 1)


class Teacher(Training):
    """The larger model that is fine-tuned first."""

    model: str | FromScratch = Field(description=MODEL)


class Distill(Section):
    """Loss = hard_weight x cross-entropy + (1 - hard_weight) x T^2 x KL(teacher || student), both at temperature T.

    With `hidden` or `relations`, match_weight x their loss is added.
    """

    temperature: float = Field(2.0, ge=0.1, le=100, description="T: above 1 it shows the student the runners-up.")
    hard_weight: float = Field(
        0.3, ge=0, le=1, description="Share of the labels in the loss; the teacher has the rest."
    )
    hidden: bool = Field(False, description="Also match the hidden states of mapped layers, through a projection.")
    relations: bool = Field(False, description="Also match how tokens relate in the top mapped layers' attention.")
    layers: tuple[PositiveInt, ...] | None = Field(
        None, min_length=1, description="The teacher's layer for each of the student's, from 1; null spreads evenly."
    )
    match_weight: float = Field(1.0, gt=0, le=1000, description="Weight of `hidden` and `relations` in the loss.")


class Pruning(Section):
    """Tokens of the vocabulary that stay: those that the texts of the training need, and those named here.

    Special tokens and single letters, digits and signs of ASCII stay in any case; a character that goes is [UNK].
    """

    min_count: int = Field(
        1,
        ge=1,
        description="How often a token has to occur to stay: in the training texts, unlabelled ones and `texts` too.",
    )
    characters: Literal["none", "all"] = Field(
        "none", description="`all` also keeps every Chinese character that the vocabulary has."
    )
    texts: str | None = Field(
        None,
        description="File of further texts whose tokens count, read as `data.unlabelled` is: as texts from the field.",
    )


class PrunedVocabulary(Section):
    """A vocabulary that is pruned in a way of its own."""

    prune: Pruning = Field(description="Which tokens stay.")


class Student(Training):
    """The model that ships. `max_length` is what the device cuts texts to."""

    model: str | FromScratch | FromTeacher = Field(description=STUDENT_MODEL)
    distill: Distill | None = Field(Distill(), description="Loss against the teacher; null trains on the labels alone.")
    width: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Part of the attention heads and feed-forward neurons that each layer keeps after the training: "
        "those that matter most to the student's own answers. So cut, it is trained once more. 1 keeps all.",
    )
    vocabulary: Literal["keep", "prune"] | PrunedVocabulary = Field(
        "keep",
        description="`prune` leaves out, after the training, the tokens that none of its texts holds; "
        "`{prune: {...}}` says which.",
    )

    @property
    def is_narrowed(self) -> bool:
        """Whether it is cut to a part of its width when it is trained."""
        return self.width < 1

    @property
    def pruning(self) -> Pruning | None:
        """How the vocabulary is pruned; None where it is kept."""
        if isinstance(self.vocabulary, PrunedVocabulary):
            return self.vocabulary.prune
        return Pruning() if self.vocabulary == "prune" else None


class Qat(Section):
    """Quantization-aware training: the student goes on learning, from itself in float and from the labels, while it
    rounds as INT8 will. What is not said here is as in `student`.
    """

    quanter: Literal["abs_max", "lsq"] = Field(
        "abs_max",
        description="What moves the ranges of activations: a moving average of the largest magnitudes (Paddle), or the "
        "loss, by learnt steps (PaddleSlim's LSQ+), which takes longer.",
    )
    epochs: float = Field(1.0, gt=0, le=1000, description="Passes over the training rows; may be a fraction.")
    batch_size: int = Field(32, ge=1, le=4096, description="Rows a step; one process trains.")
    learning_rate: float = Field(3e-5, gt=0, le=1.0, description="Peak, between warm-up and decay to 0.")
    hard_weight: float = Field(
        0.3, ge=0, le=1, description="Share of the labels in the loss; the float student has the rest."
    )


def is_local_folder(model: str | FromScratch | FromTeacher) -> bool:
    """Whether a model source names a folder on this machine instead of a PaddleNLP hub name."""
    return isinstance(model, str) and Path(model).is_absolute()
