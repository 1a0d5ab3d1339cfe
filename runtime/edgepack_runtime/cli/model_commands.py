"""The verbs that use a model: bench, predict and serve."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from edgepack_runtime.bundle import golden, handler_examples, model_config
from edgepack_runtime.cli.context import (
    delegate,
    log,
    print_result,
    read_bundle_manifest,
    report_damage,
    running_prefix,
)
from edgepack_runtime.cli.parser import BENCH_TEXTS, Context
from edgepack_runtime.errors import EnvironmentUnfitError, ExitCode, UsageError, printable
from edgepack_runtime.inference.windows import TRUNCATE
from edgepack_runtime.install.locate import locate
from edgepack_runtime.messages import message
from edgepack_runtime.rows import items
from edgepack_runtime.tasks.registry import task_by_name
from edgepack_runtime.util import texts
from edgepack_runtime.util.texts import Item

COLUMN, PAIR_COLUMN = "text", "text_pair"


def check(options: argparse.Namespace) -> List[str]:
    """Check the options of `predict` that do not depend on the model; return the texts among the arguments.

    Raises:
        UsageError: options contradict each other, `--input` does not exist, or `--output` cannot be a file of results.
        EnvironmentUnfitError: the folder of `--output` cannot be written.
    """
    if options.texts and options.input:
        raise UsageError(message("predict.both"))
    if options.texts == ["-"]:
        raise UsageError(message("predict.dash"), fix=message("predict.omit_dash"))
    named = "--column" if options.column is not None else "--pair-column" if options.pair_column is not None else None
    if named is not None and not options.input:
        raise UsageError(message("predict.of_a_file", option=named), fix=message("predict.give_file"))
    if named is not None and options.input.suffix.lower() == ".txt":
        raise UsageError(
            message("predict.no_columns", file=str(options.input), option=named),
            why=message("predict.lines_of_txt"),
            fix=message("predict.omit_column", option=named),
        )
    if options.input or options.output:
        from edgepack_runtime.batch import inputs
        from edgepack_runtime.rows.formats import OUTPUT_SUFFIXES, TABLES

        if options.input:
            inputs.check_file(options.input)
        if options.label_column is not None and not (
            options.output and options.input and options.input.suffix.lower() in TABLES
        ):
            raise _no_table_of_labels()
        if options.output:
            _check_output(options.output, options.input)
            if options.output.suffix.lower() not in OUTPUT_SUFFIXES:
                raise UsageError(
                    message("predict.cannot_write", file=str(options.output)),
                    why=message("predict.ending"),
                    fix=message("error.endings", endings=" ".join(OUTPUT_SUFFIXES)),
                )
    elif options.label_column is not None:
        raise _no_table_of_labels()
    return items.from_arguments(options.texts)


def _no_table_of_labels() -> UsageError:
    return UsageError(message("predict.label_column"), fix=message("predict.give_table"))


def _check_output(output: Path, source: Optional[Path]) -> None:
    """Check that results can be written to `output` without overwriting the input."""
    from edgepack_runtime.util.fs import os_errors

    with os_errors(f"{output} cannot be written"):
        if output.is_dir():
            raise UsageError(message("error.is_folder", path=str(output)))
        if str(output) == "-" or (output.exists() and not output.is_file()):
            raise UsageError(
                message("predict.irregular", file=str(output)),
                why=message("predict.beside"),
                fix=message("predict.print"),
            )
        if output.is_symlink():
            raise UsageError(message("predict.link", file=str(output)), why=message("predict.never_through"))
        folder = output.absolute().parent
        if not folder.is_dir():
            raise UsageError(message("predict.no_folder", folder=str(folder)), why=f"--output {output}")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise EnvironmentUnfitError(
                message("predict.cannot_write", file=str(output)),
                why=message("predict.may_not_write", folder=str(folder)),
                fix=message("predict.other_folder"),
            )
        beside = output.with_name(output.name + ".errors.jsonl")
        for written, what in ((output, "--output"), (beside, f"{beside.name}, which lists rows without a result,")):
            if source is not None and written.exists() and written.samefile(source):
                raise UsageError(f"--input and {what} are the same file")


def read(options: argparse.Namespace, arguments: Sequence[str], *, pairs: bool) -> List[Item]:
    """The texts or pairs among `arguments` (from `check`); empty if they come from a file or standard input.

    Raises:
        UsageError: the model takes pairs and single texts were given, or vice versa; `--input` lacks a column or rows.
        EnvironmentUnfitError: `--input` cannot be read.
    """
    if options.pair_column is not None and not pairs:
        raise UsageError(message("predict.single"), fix=message("predict.omit", option="--pair-column"))
    first, second = columns(options, pairs=pairs)
    if first == second:
        raise UsageError(
            message("predict.same_column", column=first),
            fix=message("predict.two_columns"),
        )
    if options.input:
        from edgepack_runtime.batch import inputs

        inputs.require_rows(options.input, first, second, options.encoding)
    if not pairs or not arguments:
        return list(arguments)
    if len(arguments) != 2:
        raise UsageError(
            message("predict.pairs"), why=message("predict.given", n=len(arguments)), fix=message("predict.give_two")
        )
    return [(arguments[0], arguments[1])]


def columns(options: argparse.Namespace, *, pairs: bool) -> Tuple[str, Optional[str]]:
    """The columns of the first and second texts; the second is None unless the model takes pairs."""
    second = PAIR_COLUMN if options.pair_column is None else str(options.pair_column)
    return options.column or COLUMN, second if pairs else None


def open_model(options: argparse.Namespace, folder: Path) -> Any:
    """Open the model in `folder`. Raises as `Predictor`."""
    from edgepack_runtime.inference.predictor import Predictor

    threads = options.threads
    # For files, batches run in parallel with one thread each. A GPU runs one batch at a time.
    if (options.input or options.output) and not model_config.load(folder).engine.one_at_a_time:
        threads = 1
    return Predictor(folder, threads=threads, long_texts=options.long)


def _predict(options: argparse.Namespace, given: List[Item], predictor: Any) -> None:
    """Run `predictor` on `given`, on --input or on standard input; print the results or write them to --output."""
    if options.label_column is not None and not predictor.config.text_task.in_cells:
        raise UsageError(message("predict.one_label"))
    asked = columns(options, pairs=predictor.config.takes_pairs)
    for text in filter(os.path.isfile, options.texts):  # here, because a bundle checks its options twice
        log(message("predict.is_file", file=text))
    if options.output:
        from edgepack_runtime.batch import predict_files

        predict_files.answer(options, given, asked, predictor, log)
    elif options.input:
        from edgepack_runtime.batch import inputs

        with inputs.opened(options.input, *asked, encoding=options.encoding) as source:
            stream = predictor.stream(inputs.items(source), workers=options.threads, batch_tokens=options.batch_tokens)
            _show(options, stream)
            for note in source.notes():
                log(note)
    else:
        shown = _show(options, map(predictor.predict, given or _lines(options, asked)), flush=True)
        if not shown:
            from edgepack_runtime.batch import inputs

            raise inputs.no_text(inputs.STDIN)
    if predictor.cut_texts:
        log(message("predict.cut", n=predictor.cut_texts, tokens=predictor.config.max_length))


def _lines(options: argparse.Namespace, asked: Tuple[str, Optional[str]]) -> Iterable[Item]:
    from edgepack_runtime.batch import inputs

    pairs = asked[1] is not None
    if sys.stdin.isatty():
        log(message("predict.enter_pairs" if pairs else "predict.enter"))
    names = [name for name in asked if name is not None]
    return inputs.items(inputs.standard_input(names, options.encoding))


def _show(options: argparse.Namespace, predictions: Iterable[Any], *, flush: bool = False) -> int:
    """Print predictions and return their number. `flush` after each, for an interactive caller."""
    count = 0
    for prediction in predictions:
        count += 1
        found: Dict[str, Any] = prediction.as_json(with_scores=options.scores)
        sys.stdout.write(printable(json.dumps(found, ensure_ascii=False)) + "\n")
        if flush:
            sys.stdout.flush()
    return count


def run_bench(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    if options.models:
        from edgepack_runtime.install import trust

        own = running_prefix(context)
        trust.require_no_trusted_keys(own.root if own else None)
    folders = [locate(path).model for path in options.models]
    if context.release is not None and not folders:
        folders = [context.release / golden.MODEL_FOLDER]
    source = options.texts
    if source is None and context.bundle is None:
        source = _texts_beside(folders[0], context.release)
    task = _task(context, folders)
    given: List[Any] = []
    if task == model_config.CUSTOM:
        if options.texts is not None:
            raise UsageError("--texts is for models of texts", fix="omit it: the examples of the release are timed")
        if context.release is not None:
            given = handler_examples.timing_items(context.release, model_config.load(folders[0]))
    elif source is not None:
        from edgepack_runtime.batch import inputs

        second = PAIR_COLUMN if task_by_name(task).pairs else None
        given = inputs.read_texts(source, options.column or COLUMN, second, encoding=options.encoding)
    if context.bundle is not None:
        return delegate(options, context, arguments)
    if options.texts is None:
        given = texts.evenly(given, BENCH_TEXTS)
    from edgepack_runtime.inference import bench

    with report_damage(context.release):
        result = bench.compare(folders, given, threads=options.threads, runs=options.runs, progress=log)
    print_result(options, result, bench.render(result))
    return ExitCode.OK


def run_predict(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    words = check(options)
    folders = [] if context.release is None else [context.release / golden.MODEL_FOLDER]
    if context.bundle is None and context.release is None:
        from edgepack_runtime.install import trust

        trust.require_no_trusted_keys(None)
        folders = [locate(options.model).model]
    task = _task(context, folders)
    if task == model_config.CUSTOM:
        _require_plain(options)
    given = [] if task == model_config.CUSTOM else read(options, words, pairs=task_by_name(task).pairs)
    if context.bundle is not None:
        return delegate(options, context, arguments)
    with report_damage(context.release):
        predictor = open_model(options, folders[0])
    if task == model_config.CUSTOM:
        _show(options, map(predictor.predict, handler_items(words, predictor.config.item)), flush=True)
    else:
        _predict(options, given, predictor)
    return ExitCode.OK


def _require_plain(options: argparse.Namespace) -> None:
    """Refuse the options of `predict` that are about texts."""
    about_texts = {
        "--input": options.input, "--output": options.output, "--scores": options.scores, "--resume": options.resume,
        "--raw-cells": options.raw_cells, "--long": options.long != TRUNCATE,
    }  # fmt: skip
    given = [name for name, value in about_texts.items() if value]
    if given:
        raise UsageError(
            f"{given[0]} is for models of texts",
            why="this model has a handler, and prints one line of JSON for each item",
            fix="give the items as arguments or on standard input: predict ITEM... > answers.jsonl",
        )


def handler_items(words: Sequence[str], item: str) -> Iterator[Any]:
    """The items of a model with a handler: from arguments, or else from standard input.

    An argument is a text, a JSON value, or the path of a file. Standard input is one file, or a text or JSON value in
    each line.

    Raises:
        UsageError: a file cannot be read, a text is empty, or a line is not UTF-8 or no JSON.
    """
    if item == model_config.FILE:
        if not words and sys.stdin.isatty():
            raise UsageError("there is no file", fix="name one: predict FILE")
        yield from map(_file, words) if words else [sys.stdin.buffer.read()]
        return
    lines: Iterable[bytes] = map(os.fsencode, words) if words else sys.stdin.buffer
    for number, raw in enumerate(lines, start=1):
        where = f"{'item' if words else 'line'} {number}"
        try:
            line = raw.decode("utf-8")  # in any locale
        except UnicodeDecodeError as error:
            raise UsageError(f"{where} is not UTF-8", fix="convert it: iconv -t UTF-8") from error
        try:
            yield items.require_text(line, where) if item == model_config.TEXT else json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where} is not JSON", why=str(error), fix="quote it: '{\"key\": 1}'") from error


def _file(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read", why=error.strerror or str(error)) from error


def run_serve(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime.cli import serve_command

    if context.bundle is not None:
        serve_command.check_carried(read_bundle_manifest(context.bundle, own=True))
        return delegate(options, context, arguments)
    with report_damage(context.release):
        return serve_command.run(options, inside=context.release is not None)


def _task(context: Context, folders: Sequence[Path]) -> str:
    """The task of the bundle, or else of the first of `folders`."""
    if context.bundle is not None:
        return read_bundle_manifest(context.bundle, own=True).task
    with report_damage(context.release):
        return model_config.load(folders[0]).task


def _texts_beside(folder: Path, release: Optional[Path]) -> Path:
    around = release or folder.absolute().parent
    places = [around / golden.ROWS_FILE, around / golden.TEXTS_FILE, folder.absolute().parent / "texts.txt"]
    for path in places:
        if path.is_file():
            return path
    raise UsageError(
        "there are no texts for the benchmark",
        why=f"neither {places[0]} nor {places[-1]} exists",
        fix="give a file of texts: --texts FILE",
    )
