"""`Predictor`: item in, answer out. The application and all measurements run a shipped model through it."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generator,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
    overload,
)

from edgepack_runtime.bundle import model_config
from edgepack_runtime.bundle.model_config import MODEL_NAME
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.errors import UsageError
from edgepack_runtime.inference import windows
from edgepack_runtime.inference.combined import Combined
from edgepack_runtime.inference.loaded_model import LoadedModel, Split, StreamOptions, Wanted, always
from edgepack_runtime.inference.text_model import TextModel
from edgepack_runtime.install import locate
from edgepack_runtime.rows.items import item_from_fields
from edgepack_runtime.schema.maxima import MAX_THREADS
from edgepack_runtime.tasks.task import Prediction
from edgepack_runtime.util.texts import Item

if TYPE_CHECKING:
    from edgepack_runtime.engine.graphs import Graph

T = TypeVar("T")


class Predictor:
    """A loaded model. It was run once, so that the first prediction is not slower.

    All methods may be called from several threads at once.

    Args:
        path: a bundle file, the prefix of an install, an unpacked release, or a model folder (`model.json` and its
            files); by default the release that contains this package. The model of a bundle is unpacked into the user's
            cache, and its signature and bytes are verified at each call.
        threads: maximum threads of one prediction; by default the result of `tune` for this release on this device, or
            1 without one.
        tuned: session options instead of the result of `tune`.
        long_texts: handling of texts with more than `max_length` tokens. `truncate` cuts them. `windows` reads all of
            them in windows that overlap by at least a quarter; a token belongs to the window in which it is farthest
            from an edge. For one label the probabilities of the windows are averaged, weighted by their own tokens; for
            several labels each has its highest probability; for spans each token has the tag of its own window.
            A linear model reads up to 16,384 characters of any text.
        max_windows: maximum number of windows of one text; None for any number.

    Raises:
        UsageError: there is no model at `path`; `long_texts` is unknown or not possible for this model; or `threads` is
            not a whole number from 1 to 256.
        BundleInvalidError: a file is missing or invalid, or a bundle is not signed by a key that this machine trusts.
        EnvironmentUnfitError: the model's execution provider is not active, or a bundle cannot be unpacked.
        StageFailedError: the engine cannot load or run the model.
    """

    def __init__(
        self,
        path: Union[str, Path, None] = None,
        *,
        threads: Optional[int] = None,
        tuned: Optional[Tuning] = None,
        long_texts: str = windows.TRUNCATE,
        max_windows: Optional[int] = None,
    ) -> None:
        _at_least_one(threads=threads, max_windows=max_windows)
        if threads is not None and threads > MAX_THREADS:
            raise UsageError(f"threads is {threads}", fix=f"give a number of at most {MAX_THREADS}")
        found = _located(path)
        opened = tuned or found.tuning() or Tuning()
        self.tuning = opened if threads is None else dataclasses.replace(opened, threads=threads)
        self.folder = found.model
        self.config = model_config.load(found.model)
        self._reads_texts = self.config.item in (model_config.TEXT, model_config.TEXTS)
        self._text: Optional[TextModel] = None
        self.graphs: Mapping[str, Graph] = {}  # of a model with a handler; an item `GraphInputs` runs one
        if self.config.handler is None:
            self._text = TextModel(found.model, self.config, self.tuning, long_texts, max_windows)
            self._model: LoadedModel = self._text
        else:
            from edgepack_runtime.inference.handler_model import HandlerModel

            if long_texts != windows.TRUNCATE:
                raise UsageError("this model has a handler, which reads each item as a whole", fix="omit long_texts")
            self._model = adapted = HandlerModel(found.model, self.config, self.tuning)
            self.graphs = adapted.graphs

    @property
    def labels(self) -> Tuple[str, ...]:
        """Labels in the order of the logits; the tags of tokens for token classification."""
        return self.config.labels

    @property
    def cut_texts(self) -> int:
        """How many single texts were cut so far, because the model reads `max_length` tokens. Pairs are not counted."""
        return 0 if self._text is None else self._text.cut_texts

    @property
    def providers(self) -> Tuple[str, ...]:
        """Active execution providers; empty without an encoder."""
        return self._model.providers

    @property
    def engine(self) -> str:
        """Name and version of the engine, as `onnxruntime 1.31.1`; `linear` without an encoder."""
        return self._model.engine

    @property
    def combined(self) -> Optional[Combined]:
        """The linear model, with the number of texts that it answered so far; None without one."""
        return None if self._text is None else self._text.combined

    @overload
    def predict(self, text: Union[List[str], List[Tuple[str, str]]]) -> List[Prediction]: ...

    @overload
    def predict(self, text: Item, text_pair: Optional[str] = None) -> Prediction: ...

    def predict(self, text: Any, text_pair: Optional[str] = None) -> Any:
        """The answer for one text, or one pair of texts, of any length; a list of answers for a list.

        Without windows it is truncated to the model's `max_length` tokens: a pair loses tokens at the end of the longer
        text, and spans beyond the cut are not found.

        Args:
            text: a text; a pair may also be one tuple. A list of them is answered as by `predict_batch`.
            text_pair: the second text, for a text-pair model.

        Returns:
            `LabelPrediction`; `LabelsPrediction` from a multi-label model; `SpansPrediction` from a token classifier.

        Raises:
            UsageError: a pair was given to a single-text model, or one text to a text-pair model; a text is empty (it
                has only white space and invisible characters); or it has more than `max_windows`.
            StageFailedError: the model cannot be run, or a logit is not finite.
        """
        if isinstance(text, list) and text_pair is None and self._reads_texts:
            return self.predict_batch(text)
        return self.timed_predict(text, text_pair)[0]

    def predict_batch(self, texts: Iterable[Item], batch_size: int = 32) -> List[Prediction]:
        """Answers for `texts` (a pair is a tuple), in their order, `batch_size` at a time. Raises as `predict`."""
        _at_least_one(batch_size=batch_size)
        _require_several(texts)
        items = [self._checked(item, f"item {number}") for number, item in enumerate(texts, start=1)]
        predictions: List[Prediction] = []
        for start in range(0, len(items), batch_size):
            predictions += self.timed_batch(items[start : start + batch_size])[0]
        return predictions

    def stream(
        self,
        items: Iterable[Item],
        *,
        workers: Optional[int] = None,
        batch_tokens: Optional[int] = None,
        block_items: Optional[int] = None,
    ) -> Iterator[Prediction]:
        """Answers for a stream of items, in their order, in bounded memory, on several threads.

        The answers equal those of `predict`, up to the rounding of float32. Three blocks of items are in memory: the
        first answer comes after so many items, or all, were read. Closing the iterator ends its threads.

        Args:
            items: texts, or pairs as tuples.
            workers: number of batches at the same time, each on `threads` threads. By default as many as fit the usable
                cores; two on a GPU, which runs one batch at a time.
            batch_tokens: tokens of a batch with padding, in at most 128 rows; a longer text is a batch by itself.
            block_items: items that are read, sorted by length and split into batches together.

        Raises:
            As `predict`, and any error of `items`, at the position of that item.
        """
        _require_several(items)
        tagged = ((None, self._checked(_required(item), f"item {n}")) for n, item in enumerate(items, start=1))
        with contextlib.closing(
            self.stream_tagged(tagged, workers=workers, batch_tokens=batch_tokens, block_items=block_items)
        ) as found:
            for _, prediction in found:
                assert prediction is not None  # no item is None
                yield prediction

    def stream_tagged(
        self,
        items: Iterable[Tuple[T, Optional[Item]]],
        *,
        workers: Optional[int] = None,
        batch_tokens: Optional[int] = None,
        block_items: Optional[int] = None,
    ) -> Generator[Tuple[T, Optional[Prediction]], None, None]:
        """`stream` for items with a value of the caller each; an item of None has no answer."""
        _at_least_one(workers=workers, batch_tokens=batch_tokens, block_items=block_items)
        return self._model.stream(items, StreamOptions(workers, batch_tokens, block_items))

    def logits(self, texts: Sequence[Item]) -> List[List[Any]]:
        """Logits of `texts`, each truncated to `max_length` tokens, as one batch. Raises as `predict`.

        With a linear model and an encoder they are those of both together, for every text.

        Returns:
            Of each text one number per label; for token classification a list of them for each token, with [CLS] first
            and [SEP] last.
        """
        _require_several(texts)
        return self.text_model.logits(texts)

    @property
    def text_model(self) -> TextModel:
        """What only models of texts have: logits and tokens.

        Raises:
            UsageError: the model has a handler.
        """
        if self._text is None:
            raise UsageError("this model has a handler, and no logits of texts", fix="use `predict`")
        return self._text

    def needs_encoder(self, item: Item) -> bool:
        """Whether a graph runs for an item: a linear model may answer a text alone."""
        return self._text is None or self._text.needs_encoder(item)

    def score(self, answer: Any, expected: Any) -> float:
        """How right the `answer` of a prediction is, from 0 to 1. For texts: 1 for the expected answer, else 0."""
        return self._model.score(answer, expected)

    def timed_predict(self, text: Item, text_pair: Optional[str] = None) -> Tuple[Prediction, Split]:
        """`predict` with the time of each part. Raises as `predict`."""
        item = text if text_pair is None else _pair(text, text_pair)
        self._checked(item, "the pair" if isinstance(item, tuple) else "the text")
        predictions, split = self.timed_batch((item,))
        return predictions[0], split

    def timed_batch(self, items: Sequence[Item], wanted: Wanted = always) -> Tuple[List[Prediction], Split]:
        """Answers for `items`, in their order, with the time of each part. Raises as `predict`.

        They are one batch; with windows, batches of 32 rows. Nobody checks here whether a text is empty.

        Args:
            wanted: asked before each batch; once it says no, `UnwantedError` is raised.
        """
        _require_several(items)
        if not items:
            return [], Split(0.0, 0.0, 0.0)
        return self._model.answer(items, wanted)

    def _checked(self, item: Item, where: str) -> Item:
        """`item`; the error for an empty text calls it `where`. The model itself refuses what is no text."""
        fields = item if isinstance(item, tuple) else (item,)
        if self._reads_texts and len(fields) in (1, 2) and all(isinstance(field, str) for field in fields):
            item_from_fields(fields, where)
        return item


def _located(path: Union[str, Path, None]) -> locate.Located:
    if path is None:
        return locate.locate_own_release()
    path = Path(path)
    if path.is_dir() or path.name == MODEL_NAME:
        return locate.locate(path)
    from edgepack_runtime.install.bundle_cache import unpacked_model  # a cold start of `predict` needs none of it

    return locate.locate(unpacked_model(path))


def _at_least_one(**given: Optional[int]) -> None:
    for name, number in given.items():
        if number is not None and (not isinstance(number, numbers.Integral) or number < 1):
            raise UsageError(f"{name} is {number!r}", fix="give a whole number of at least 1")


def _require_several(items: Iterable[Item]) -> None:
    """Refuse one text instead of a list: its characters would be predicted one by one."""
    if isinstance(items, (str, bytes)):
        raise UsageError("one text was given instead of several", fix="put it into a list, or use `predict`")


def _pair(text: Item, text_pair: str) -> Item:
    if isinstance(text, tuple):
        raise UsageError("a pair is two texts", why="it was given three")
    return text, text_pair


def _required(item: Item) -> Item:
    if item is None:
        raise UsageError("None is not a text")
    return item
