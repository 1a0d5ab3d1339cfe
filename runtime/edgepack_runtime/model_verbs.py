"""The verbs that ask a model: bench, predict, serve."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

from edgepack_runtime import golden, model_config, predict_verb, texts, verify
from edgepack_runtime.errors import ExitCode, UsageError
from edgepack_runtime.located import locate
from edgepack_runtime.meant import elsewhere, emit, manifest_of, say
from edgepack_runtime.model_options import BENCH_TEXTS
from edgepack_runtime.parsing import Context
from edgepack_runtime.texts import Item


def run_bench(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    folders = [locate(path).model for path in options.models]
    if context.release is not None and not folders:
        folders = [context.release / golden.MODEL_FOLDER]
    source = options.texts
    if source is None and context.bundle is None:
        source = _texts_beside(folders[0], context.release)
    given: List[Item] = []
    if source is not None:
        from edgepack_runtime import rows

        pairs = _takes_pairs(context, folders)
        given = rows.read_texts(source, pair_column=predict_verb.PAIR_COLUMN if pairs else None)
    if context.bundle is not None:
        return elsewhere(options, context, arguments)
    if options.texts is None:
        given = texts.evenly(given, BENCH_TEXTS)
    from edgepack_runtime import bench

    result = bench.compare(folders, given, threads=options.threads, runs=options.runs, progress=say)
    shown = bench.render(result)
    if options.rate is not None:
        from edgepack_runtime import open_loop

        result["open_loop"] = open_loop.compare(folders, given, options.rate, threads=options.threads, progress=say)
        shown += "\n" + open_loop.render(result["open_loop"])
    emit(options, result, shown)
    return ExitCode.OK


def run_predict(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    words = predict_verb.check(options)
    folders = [locate(options.model).model] if context.bundle is None and context.release is None else []
    if context.release is not None:
        folders = [context.release / golden.MODEL_FOLDER]
    given = predict_verb.read(options, words, pairs=_takes_pairs(context, folders))
    if context.bundle is not None:
        return elsewhere(options, context, arguments)
    with _damage_first(context.release):
        predictor = predict_verb.open_model(options, folders[0])
    predict_verb.answer(options, given, predictor, say)
    return ExitCode.OK


def run_serve(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime import serve_verb

    if context.bundle is not None:
        serve_verb.check_carried(manifest_of(context.bundle))
        return elsewhere(options, context, arguments)
    with _damage_first(context.release):
        return serve_verb.run(options, context.release)


def _takes_pairs(context: Context, folders: Sequence[Path]) -> bool:
    """Whether the bundle's model, or else the first of `folders`, is asked about two texts at a time."""
    if context.bundle is not None:
        return manifest_of(context.bundle).task == model_config.PAIR
    with _damage_first(context.release):
        return model_config.load(folders[0]).takes_pairs


@contextlib.contextmanager
def _damage_first(release: Optional[Path]) -> Iterator[None]:
    """When the block fails and `release` is damaged, that is the error to report."""
    try:
        yield
    except Exception:
        if release is not None:
            verify.verify_folder(release)
        raise


def _texts_beside(folder: Path, release: Optional[Path]) -> Path:
    around = release or folder.absolute().parent
    places = [around / golden.ROWS_FILE, around / golden.TEXTS_FILE, folder.absolute().parent / "texts.txt"]
    for path in places:
        if path.is_file():
            return path
    raise UsageError(
        "there are no texts to measure with",
        why=f"neither {places[0]} nor {places[-1]} exists",
        fix="give some: --texts FILE",
    )
