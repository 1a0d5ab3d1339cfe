"""The verb `predict`: what is asked, from arguments, a file or standard input, and the answers (standard library only).

The command line opens the model and hands it over, so that texts that make no sense are refused before that.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Callable, Dict, Iterator, List, Sequence

from edgepack_runtime import texts
from edgepack_runtime.errors import UsageError
from edgepack_runtime.model_config import TOKENS
from edgepack_runtime.texts import Item

PAIR_COLUMN = "text_pair"
_BATCH = 32
_STDIN = "standard input"


def check(options: argparse.Namespace) -> List[str]:
    """The texts among the arguments, and what can be said of them before it is known which model is meant.

    Raises:
        UsageError: they make no sense, or there is no file `--input`.
    """
    if options.texts and options.input:
        raise UsageError("texts were given both as arguments and with --input", fix="give one of them")
    if options.input:
        texts.check_file(options.input)
    return texts.from_arguments(options.texts)


def read(options: argparse.Namespace, arguments: Sequence[str], *, pairs: bool) -> List[Item]:
    """What a model of `pairs`, or of single texts, is asked; nothing, where that is to come from standard input.

    Args:
        arguments: what `check` returned.

    Raises:
        UsageError: naming the line, when that is not what such a model takes.
        EnvironmentUnfitError: the file cannot be read.
    """
    if options.pair_column is not None and not pairs:
        raise UsageError("this model takes one text at a time", fix="leave out --pair-column")
    if pairs and options.column == pair_column(options):
        raise UsageError(
            f"both texts of a pair would be `{options.column}`",
            fix="name two columns: --column NAME --pair-column NAME",
        )
    if options.input:
        return texts.read_texts(options.input, options.column, pair_column(options) if pairs else None)
    if pairs and arguments:
        return [texts.one_pair(arguments)]
    return list(arguments)


def pair_column(options: argparse.Namespace) -> str:
    """The column of the second texts of pairs."""
    return PAIR_COLUMN if options.pair_column is None else str(options.pair_column)


def answer(options: argparse.Namespace, given: List[Item], predictor: Any, say: Callable[[str], None]) -> None:
    """Ask `predictor` about `given`, or else about what stands on standard input; print or write the answers.

    Raises:
        UsageError: naming the line, when standard input makes no sense.
        EnvironmentUnfitError: the file `--output` cannot be written.
        StepFailedError: the model cannot be run.
    """
    pairs: bool = predictor.config.takes_pairs

    def as_json(prediction: Any) -> Dict[str, Any]:
        found: Dict[str, Any] = prediction.as_json(with_scores=options.scores)
        return found

    if options.output:
        given = given or list(texts.from_stream(sys.stdin.buffer, _STDIN, pairs=pairs))
        with texts.replacing(options.output) as out:
            answers = map(as_json, in_batches(predictor.predict_batch, given))
            labels = predictor.labels if options.scores and predictor.config.task != TOKENS else ()
            texts.write_predictions(out, options.output.suffix, given, answers, labels)
        say(f"{len(given)} predictions in {options.output}")
        return
    if options.input:
        predictions: Iterator[Any] = in_batches(predictor.predict_batch, given)
    else:
        if not given and sys.stdin.isatty():
            say("one {} a line, please; Ctrl-D ends".format("pair of texts, with a tab between," if pairs else "text"))
        predictions = map(predictor.predict, given or texts.from_stream(sys.stdin.buffer, _STDIN, pairs=pairs))
    for prediction in predictions:
        sys.stdout.write(json.dumps(as_json(prediction), ensure_ascii=False) + "\n")
        if not options.input:  # whoever feeds line after line waits for each answer; a file's reader does not
            sys.stdout.flush()


def in_batches(predict: Callable[[Sequence[Item]], Sequence[Any]], given: Sequence[Item]) -> Iterator[Any]:
    """Predictions for `given` in order, with a line on a terminal that tells how far it is."""
    shown = sys.stderr.isatty()
    for start in range(0, len(given), _BATCH):
        yield from predict(given[start : start + _BATCH])
        if shown:
            sys.stderr.write(f"\r{min(start + _BATCH, len(given))} of {len(given)}")
            sys.stderr.flush()
    if shown:
        sys.stderr.write("\n")
