"""Golden files: texts with the model's logits, labelled rows, and placeholder texts for rows kept out of the bundle.

`golden.jsonl` holds a few texts with their logits (the self-test); `rows.jsonl` holds labelled test rows with
the label that the float model of the same student gives (the gate: accuracy, paired drop, texts to time). If the rows
are kept out of the bundle, `texts.jsonl` has placeholder texts to time, and the self-test uses placeholder texts too.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from edgepack import evaluation
from edgepack.artifacts import Examples, Precision, Row
from edgepack.bundle.report_rows import choose_examples
from edgepack.errors import StageFailedError
from edgepack.progress import Progress
from edgepack.recipe.gates import GoldenRows
from edgepack_runtime.bundle import model_config
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.inference.tokenizer import ErnieTokenizer, read_vocab
from edgepack_runtime.stats.metrics import Answer
from edgepack_runtime.tasks.task import Prediction, Task

_SEED: Final = 20261122  # the same texts in every build
_WHOLE: Final = 2**53  # tokens: no text is truncated
_SPECIAL: Final = 2  # [CLS] and [SEP]


def placeholder_rows(rows: Sequence[Row], model: Path) -> list[Row]:
    """A placeholder for each row: no answer, and texts as long as the row's, in tokens of the model in that folder.

    Each token is a random Chinese character of its vocabulary. For a linear model alone, a text is made of its n-grams
    and as long in characters. The latency of a text depends on these numbers.

    Raises:
        BundleInvalidError: the folder holds no model.
    """
    config = model_config.load(model)
    drawn = random.Random(_SEED)
    if config.needs_encoder:
        vocab = model / model_config.VOCAB_NAME
        tokenizer = ErnieTokenizer(vocab, config.tokenizer)
        entries = [entry for entry in read_vocab(vocab) if len(entry) == 1]
    else:
        entries = json.loads((model / model_config.LINEAR_NAME).read_bytes())["ngrams"]
    known = sorted({entry for entry in entries if all("一" <= character <= "鿿" for character in entry)})

    def like(texts: Sequence[str]) -> list[str]:
        lengths = [len(text) for text in texts]
        if config.needs_encoder:
            lengths = [len(ids) - _SPECIAL for ids in tokenizer.encode(texts, _WHOLE)]
        lengths = [max(1, length) for length in lengths]  # a text may have no token that a model sees, but is not empty
        return ["".join(drawn.choices(known or "好", k=length))[:length] for length in lengths]

    firsts = like([row.text for row in rows])
    seconds = like([row.text_pair for row in rows if row.text_pair is not None])
    if not seconds:
        return [Row(text, ()) for text in firsts]
    return [Row(text, (), other) for text, other in zip(firsts, seconds, strict=True)]


Float = npt.NDArray[np.float32]
SAMPLED_TEXTS = 24
# Frequent errors of tokenizers and of a device's encoding: full-width forms, symbols, emoji, Latin case and accents,
# digits, characters outside the basic plane, a text beyond any `max_length`.
PROBES = (
    "好",
    "ＡＢＣ１２３，．！",
    "～～★★☆😀👍🏽",
    "WiFi信号Très BON, don't worry!",
    "2026-11-20 13:45 ￥399.00 5%",
    "𠮷野家𠀋",
    "「很好」——……、。",
    "房间很大，服务也很好，下次还会再来。" * 160,
)
SHARES: Final[Mapping[Precision, float]] = {"float32": 1e-3, "float16": 0.01, "int8": 0.02}  # of the logits' spread
ERRORS: Final[Mapping[Precision, float]] = {"float32": 0, "float16": 8, "int8": 2}  # of the largest error of rounding
LEAST_TOLERANCE = 1e-5  # ten times what rounding to _DECIMALS takes
_BATCH = 32
_DECIMALS = 6


class Models(NamedTuple):
    """The model folders that golden files are made with.

    Attributes:
        shipped: what goes into the bundle.
        reference: the same in float; it decides the tolerance.
        encoder: the float encoder alone; `accuracy.max_drop_points` compares with its answers. None without one.
    """

    shipped: Path
    reference: Path
    encoder: Path | None


@dataclass(frozen=True)
class Golden:
    """Contents of the files, and the absolute tolerance of a logit on a device.

    `timing_texts_jsonl` is in the bundle instead of `rows_jsonl` if the rows are kept out of it; else None. `examples`
    are wrong answers of the shipped model, and answers that differ from those of the float model.
    """

    selftest_texts: tuple[Row, ...]
    golden_jsonl: bytes
    rows_jsonl: bytes
    timing_texts_jsonl: bytes | None
    tolerance: float
    examples: Examples


@dataclass(frozen=True)
class Said:
    """What the models say: logits of the self-test's texts, and answers to the rows.

    `probabilities` are those of the true answers.
    """

    logits: list[Any]
    reference_logits: list[Any]
    float_answers: list[Any] | None
    answers: list[Any]
    probabilities: list[float | None]


def make(
    models: Models,
    precision: Precision,
    rows: Sequence[Row],
    task: Task,
    progress: Progress,
    *,
    wanted: GoldenRows = GoldenRows(),  # noqa: B008 (frozen)
    baseline_answers: Sequence[Answer] | None = None,
    ask: Callable[[Callable[..., Said], type[Said]], Said] | None = None,
) -> Golden:
    """Run the models on the test split and return the golden files.

    Texts, true answers and tolerance are written here, not where the models run, which a model may have taken over.

    Args:
        precision: of the shipped model.
        rows: the test split.
        task: of the rows.
        progress: advances one step a row.
        wanted: number of rows, and whether the bundle carries them.
        baseline_answers: of an earlier release to the `stratified` rows, recorded too.
        ask: calls the job that runs the models, and checks that it returns a `Said`; None: calls it here.

    Raises:
        StageFailedError: what the models say is not about these rows.
    """
    chosen, key = stratified(rows, wanted.rows, task), task.answer_key
    asked = chosen if wanted.carry else placeholder_rows(chosen, models.shipped)
    texts = golden_texts(rows if wanted.carry else asked)
    job = functools.partial(_say, models, texts, chosen, task)
    said = job(progress=progress) if ask is None else ask(job, Said)
    try:
        answers = [task.answer_of(value) for value in said.answers]
        float_answers = None if models.encoder is None else [task.answer_of(one) for one in said.float_answers or ()]
        logits, reference = (_arrays(found, len(texts)) for found in (said.logits, said.reference_logits))
        recorded = {f"float_{key}": float_answers, f"baseline_{key}": baseline_answers}
        given = {name: values for name, values in recorded.items() if values is not None}
        return Golden(
            selftest_texts=tuple(texts),
            golden_jsonl=_jsonl(
                {**row.document(None), "logits": np.round(found.astype(np.float64), _DECIMALS).tolist()}
                for row, found in zip(texts, logits, strict=True)
            ),
            rows_jsonl=_jsonl(
                {**row.document(key), **{name: values[number] for name, values in given.items()}}
                for number, row in enumerate(chosen)
            ),
            timing_texts_jsonl=None if wanted.carry else _jsonl(row.document(None) for row in asked),
            tolerance=tolerance(precision, _units(logits), _units(reference)),
            examples=choose_examples(
                task,
                [row.texts if wanted.carry else None for row in chosen],
                [row.label for row in chosen],
                float_answers,
                answers,
                said.probabilities,
            ),
        )
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise StageFailedError("bundle: the model's answers are not about these rows", why=str(error)[:500]) from error


def _say(models: Models, texts: Sequence[Row], rows: Sequence[Row], task: Task, progress: Progress) -> Said:
    """Run the models, in the sandbox if the build does not trust them."""
    opened = {folder: evaluation.opened(folder, threads=1) for folder in set(models) if folder is not None}
    model = opened[models.shipped]
    encoder = None if models.encoder is None else opened[models.encoder]
    answers: list[Answer] = []
    predictions: list[Prediction] = []
    with progress.task("golden rows", len(rows)) as bar:
        for start in range(0, len(rows), _BATCH):
            part = [row.item for row in rows[start : start + _BATCH]]
            if encoder is not None:
                answers += [prediction.answer for prediction in encoder.predict_batch(part)]
            predictions += model.predict_batch(part)
            bar.advance(len(part))
    # The gate compares answers: what a device writes of them is seen here first.
    json.dumps([prediction.as_json(with_scores=True) for prediction in predictions], allow_nan=False)
    return Said(
        _alone(model, texts),
        _alone(opened[models.reference], texts),
        None if encoder is None else answers,
        [prediction.answer for prediction in predictions],
        [task.probability(prediction, row.label) for prediction, row in zip(predictions, rows, strict=True)],
    )


def _arrays(logits: Sequence[Any], texts: int) -> list[Float]:
    """Logits of so many texts. Raises ValueError if they are others, or no numbers."""
    arrays = [np.asarray(found, np.float32) for found in logits]
    if len(arrays) != texts or not all(np.isfinite(found).all() for found in arrays):
        raise ValueError(f"it gave {len(arrays)} lists of finite logits for {texts} texts")
    return arrays


def tolerance(precision: Precision, logits: Float, reference_logits: Float) -> float:
    """Tolerance of golden logits, shape (U, C), on another CPU; beyond it the self-test fails.

    It is relative to the spread of the reference's logits, which are in float, over texts or tokens. Measured on a 4 x
    312 model with a spread of 0.57, against CPUs without AVX-512 and VNNI (emulated Haswell and Nehalem): float logits
    moved by 4e-7, INT8 ones by 0.012 with a quantization error of 0.031. INT8 kernels differ in rounding and
    saturation, which are of the size of that error, so twice the largest error on these texts is allowed. Its effect on
    accuracy is judged by the gate.

    A float16 graph that is computed in float32 rounds little except its weights; an engine that computes in float16
    rounds after every node. With rounding after each node, logits moved by up to 0.0005
    of the spread on a trained ERNIE nano, 0.0015 with an untrained head and 0.0027 with random weights; computed in
    float32 they moved by 0.0002, 0.0004 and 0.001: 2 to 4 times less. So 8 times the largest error on these texts is
    allowed, and at least a hundredth of the spread.

    It is at most a third of the spread of `logits`: a wider one would accept logits that were made up.
    """
    spread = float(np.ptp(reference_logits, axis=0).max())
    error = float(np.abs(logits - reference_logits).max())
    allowed = max(SHARES[precision] * spread, ERRORS[precision] * error)
    most = float(np.ptp(logits, axis=0).max()) / 3
    return round(max(min(allowed, most), LEAST_TOLERANCE), _DECIMALS)


def golden_texts(rows: Sequence[Row]) -> list[Row]:
    """Texts of the self-test: a sample that covers the lengths in `rows`, then `PROBES`; no text twice.

    For pairs, every probe is the first text of one pair and the second of another.
    """
    plain = {Row(row.text, (), row.text_pair) for row in rows}
    by_length = sorted(plain, key=lambda row: (len(row.text) + len(row.text_pair or ""), row.text, row.text_pair or ""))
    pairs = any(row.text_pair is not None for row in rows)
    probes = [
        Row(text, (), other if pairs else None) for text, other in zip(PROBES, (*PROBES[1:], PROBES[0]), strict=True)
    ]
    return list(dict.fromkeys([*_evenly(by_length, SAMPLED_TEXTS), *probes]))


def stratified(rows: Sequence[Row], limit: int, task: Task) -> list[Row]:
    """A stratified sample of at most `limit` rows, in their order.

    The rows are ordered by the digest of their rarest label, then by the digest of their texts, and taken at even
    distances. So the rows of each rarest label get their share, to within one row. Digests are as good as
    random; the orders of files and label names are not: a file may alternate between texts and noisy copies, and rows
    at even distances would all be of one kind.
    """
    if len(rows) <= limit:
        return list(rows)
    frequency = Counter(name for row in rows for name in task.classes_of(row.label))

    def place(index: int) -> tuple[bytes, bytes, int]:
        row = rows[index]
        rarest = min(task.classes_of(row.label), key=lambda name: (frequency[name], name), default="")
        return _digest(rarest), _digest("\0".join(row.texts)), index

    order = sorted(range(len(rows)), key=place)
    chosen = sorted(order[(2 * number + 1) * len(rows) // (2 * limit)] for number in range(limit))
    return [rows[index] for index in chosen]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _evenly(items: Sequence[Any], count: int) -> list[Any]:
    """`count` of the items (at least two), with the first and the last; all if there are fewer."""
    if len(items) <= count:
        return list(items)
    return [items[position * (len(items) - 1) // (count - 1)] for position in range(count)]


def _alone(model: Predictor, texts: Sequence[Row]) -> list[Any]:
    """Logits of each text, each in its own batch as in the self-test: shape (C,), or (T, C) for tokens."""
    return [np.asarray(model.logits([row.item])[0], np.float32).tolist() for row in texts]


def _units(logits: Sequence[Float]) -> Float:
    """Shape (U, C): a row for each text, or for each token in token classification."""
    return np.concatenate([np.atleast_2d(found) for found in logits])


def _jsonl(lines: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines).encode()
