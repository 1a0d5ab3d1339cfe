"""The interface between `Predictor` and a loaded model.

`TextModel` and `HandlerModel` implement it. Gates, files, HTTP and timing go through `Predictor` and know no other way.
"""

from __future__ import annotations

from typing import (
    Any,
    Callable,
    Generator,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Tuple,
    TypeVar,
)

from edgepack_runtime.engine.tensors import Tensor
from edgepack_runtime.tasks.task import Prediction

T = TypeVar("T")
Wanted = Callable[[], bool]  # whether anybody still waits for the answers


def always() -> bool:
    """Somebody waits for the answers until they are there."""
    return True


class UnwantedError(Exception):
    """Nobody waits for the answers any more, so the rest of them was not computed."""


class GraphInputs(NamedTuple):
    """An item that runs a graph of a model with a handler, and not the handler.

    Attributes:
        graph: its name.
        most_bytes: maximum size of all outputs.
    """

    graph: str
    inputs: Mapping[str, Tensor]
    most_bytes: int


class JsonPrediction(NamedTuple):
    """The answer of a handler: any JSON value."""

    answer: Any

    def as_json(self, *, with_scores: bool) -> Any:
        """The answer. There are no further scores."""
        return self.answer


class TensorsPrediction(NamedTuple):
    """The outputs of a graph that ran without its handler, by name."""

    tensors: Mapping[str, Tensor]

    @property
    def answer(self) -> Any:
        """The outputs as nested lists."""
        return {name: tensor.tolist() for name, tensor in self.tensors.items()}

    def as_json(self, *, with_scores: bool) -> Any:
        """The answer. There are no further scores."""
        return self.answer


class Split(NamedTuple):
    """Times of one prediction: preparing the inputs, running the model, making the answer.

    A linear model is part of the first; what a handler does between two graphs is part of the last.
    """

    tokenize_ms: float
    run_ms: float
    post_ms: float

    @property
    def total_ms(self) -> float:
        return self.tokenize_ms + self.run_ms + self.post_ms


class StreamOptions(NamedTuple):
    """Options of `Predictor.stream`; None: as the model finds best."""

    workers: Optional[int] = None
    batch_tokens: Optional[int] = None
    block_items: Optional[int] = None


class LoadedModel(Protocol):
    """A loaded model that answers items. All methods may be called from several threads at once."""

    @property
    def providers(self) -> Tuple[str, ...]:
        """Active execution providers; empty without a graph."""

    @property
    def engine(self) -> str:
        """Name and version of the engine."""

    def answer(self, items: Sequence[Any], wanted: Wanted = always) -> Tuple[List[Prediction], Split]:
        """Answers for `items`, at least one, in their order, with the time of each part.

        Args:
            wanted: asked before each run of the engine.

        Raises:
            UnwantedError: `wanted` said no.
            UsageError: an item is not what the model reads.
            StageFailedError: the model cannot be run, or its output is no answer.
        """

    def stream(
        self, items: Iterable[Tuple[T, Optional[Any]]], options: StreamOptions
    ) -> Generator[Tuple[T, Optional[Prediction]], None, None]:
        """Answers for a stream of items, in their order, in bounded memory; an item of None has no answer.

        Raises:
            As `answer`, and any error of `items`, at the position of that item.
        """

    def score(self, answer: Any, expected: Any) -> float:
        """How right the `answer` of a prediction is, from 0 (wrong) to 1 (right). Raises as `answer`."""
