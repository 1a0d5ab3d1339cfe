"""A loaded model of texts: an encoder, a linear model, or both."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any, Dict, Generator, Iterable, List, Optional, Sequence, Tuple, TypeVar

from edgepack_runtime.bundle import model_config
from edgepack_runtime.bundle.model_config import ModelConfig
from edgepack_runtime.device.tuning import Tuning
from edgepack_runtime.engine import Engine, open_engine
from edgepack_runtime.engine.batch import shape_of
from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.inference.combined import Combined
from edgepack_runtime.inference.encoding import Encoded, EncodedRow, Encoding
from edgepack_runtime.inference.loaded_model import Split, StreamOptions, UnwantedError, Wanted, always
from edgepack_runtime.inference.tokenizer import ErnieTokenizer
from edgepack_runtime.tasks.task import Prediction
from edgepack_runtime.util.texts import Item

T = TypeVar("T")
ROWS = 32  # windows in one batch


class TextModel:
    """See `edgepack_runtime.inference.loaded_model.LoadedModel`. It is run once: the first answer is not slower.

    `encoder` is None where a linear model answers everything. `max_windows` is as in `Predictor`.

    Raises:
        UsageError: `long_texts` is unknown or not possible for this model.
        BundleInvalidError: a file is missing or invalid.
        EnvironmentUnfitError: the model's execution provider is not active.
        StageFailedError: the engine cannot load or run the model.
    """

    def __init__(
        self, folder: Path, config: ModelConfig, tuning: Tuning, long_texts: str, max_windows: Optional[int] = None
    ) -> None:
        self.config, self._tuning = config, tuning
        self.combined = Combined.load(folder, config)
        tokenizer = None  # a linear model alone reads characters
        if config.needs_encoder:
            tokenizer = ErnieTokenizer(folder / model_config.VOCAB_NAME, config.tokenizer)
        self.encoding = Encoding(tokenizer, config, self.combined, long_texts, max_windows)
        self._per_token = config.text_task.per_token
        self.encoder: Optional[Engine] = None
        if config.needs_encoder:
            self.encoder = open_engine(config.engine, folder, tuning)
            self._check_shape(self.encoder, ("好", "好") if config.takes_pairs else "好")

    @property
    def cut_texts(self) -> int:
        """How many single texts were cut so far, because the model reads `max_length` tokens. Pairs are not counted."""
        return self.encoding.cut_texts

    @property
    def tokenizer(self) -> ErnieTokenizer:
        """As `Encoding.tokenizer`."""
        return self.encoding.tokenizer

    @property
    def providers(self) -> Tuple[str, ...]:
        return () if self.encoder is None else self.encoder.providers

    @property
    def engine(self) -> str:
        """As `onnxruntime 1.31.1`; `linear` without an encoder."""
        return "linear" if self.encoder is None else f"onnxruntime {self.encoder.version}"

    def answer(self, items: Sequence[Item], wanted: Wanted = always) -> Tuple[List[Prediction], Split]:
        """They are one batch; with windows, batches of 32 rows."""
        begin = time.perf_counter()
        encoded = self.encoding.encode(items)
        tokenized = time.perf_counter()
        logits = self._logits_of(encoded, wanted)
        ran = time.perf_counter()
        predictions = [self.encoding.decide(*found) for found in zip(encoded, logits)]
        done = time.perf_counter()
        return predictions, Split((tokenized - begin) * 1e3, (ran - tokenized) * 1e3, (done - ran) * 1e3)

    def stream(
        self, items: Iterable[Tuple[T, Optional[Item]]], options: StreamOptions
    ) -> Generator[Tuple[T, Optional[Prediction]], None, None]:
        """Batches of similar length on several threads."""
        from edgepack_runtime.inference import (
            streaming,
        )  # slow to import

        one_at_a_time = self.config.engine.one_at_a_time
        tokens = streaming.GPU_BATCH_TOKENS if one_at_a_time else streaming.BATCH_TOKENS
        settings = streaming.StreamSettings(
            workers=options.workers or self.workers,
            batch_tokens=options.batch_tokens or tokens,
            block_items=options.block_items or streaming.BLOCK_ITEMS,
            alone=self.config.run_alone,
            alike=not self.config.hides_padding,
        )
        return streaming.in_order(items, streaming.StreamModel(self.encoding, self._run_rows), settings)

    @property
    def workers(self) -> int:
        """Default number of threads on which `stream` runs batches."""
        if self.config.engine.one_at_a_time:  # the second tokenizes while the first runs
            return 2
        from edgepack_runtime.device.cores import usable_cores

        return max(1, usable_cores() // self._tuning.threads)

    def score(self, answer: Any, expected: Any) -> float:
        """1 for the expected answer, else 0."""
        return float(self.config.text_task.error(expected, answer) == 0)

    def logits(self, texts: Sequence[Item]) -> List[List[Any]]:
        """See `Predictor.logits`."""
        if self.combined is not None and self.encoder is None:
            return self.combined.logits(self.encoding.checked(texts))
        return self.encoding.combined(texts, self._run_rows(self.encoding.cut(texts)))

    def tokens(self, item: Item) -> int:
        """Number of tokens that the model reads of a text or pair, with [CLS] and [SEP].

        Raises:
            BundleInvalidError: the model has no tokenizer.
        """
        return len(self.encoding.cut([item])[0].ids)

    def needs_encoder(self, item: Item) -> bool:
        """Whether the encoder runs for a text or pair: a linear model may answer it alone."""
        if self.combined is None:
            return True
        return not self.combined.answers_alone(self.combined.logits(self.encoding.checked((item,))))[0]

    def _logits_of(self, encoded: Sequence[Encoded], wanted: Wanted) -> List[Sequence[List[Any]]]:
        """Logits of the rows of each item."""
        rows = [row for item in encoded for row in item.rows]
        most = ROWS if self.encoding.in_windows else max(1, len(rows))
        logits: List[List[Any]] = []
        for start in range(0, len(rows), most):
            if not wanted():
                raise UnwantedError
            logits += self._run_rows(rows[start : start + most])
        found = iter(logits)
        return [list(itertools.islice(found, len(item.rows))) for item in encoded]

    def _run_rows(self, rows: Sequence[EncodedRow]) -> List[List[Any]]:
        """Logits of each row. If the graph has no padding mask, rows of each length are run separately.

        With `run_alone` each row is run by itself, so that its answer does not depend on the batch.
        """
        if not rows or self.encoder is None:
            return []
        if len(rows) > 1 and (self.config.run_alone or not self.config.hides_padding):
            found: List[List[Any]] = [[]] * len(rows)
            for group in _groups(rows, alone=self.config.run_alone):
                for number, logits in zip(group, self.encoder.run(self.encoding.batch([rows[i] for i in group]))):
                    found[number] = logits
            return found
        found = self.encoder.run(self.encoding.batch(rows))
        return [logits[: len(row.ids)] for row, logits in zip(rows, found)] if self._per_token else found

    def _check_shape(self, engine: Engine, item: Item) -> None:
        """Run the encoder once on an item of at least one token, to load everything."""
        batch = self.encoding.batch(self.encoding.cut([item]))
        found, n_labels = shape_of(engine.run(batch)), len(self.config.labels)
        wanted = (1, batch.length, n_labels) if self._per_token else (1, n_labels)
        if found != wanted:
            raise BundleInvalidError(
                f"{model_config.MODEL_NAME} and {model_config.CONFIG_NAME} do not belong together",
                why=f"one text gives logits of shape {found}; {self.config.task} with {n_labels} labels has {wanted}",
                fix="build the bundle again",
            )


def _groups(rows: Sequence[EncodedRow], *, alone: bool) -> List[List[int]]:
    """Groups of rows that are run together: rows of the same length, or each row `alone`."""
    if alone:
        return [[number] for number in range(len(rows))]
    groups: Dict[int, List[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(len(row.ids), []).append(number)
    return list(groups.values())
