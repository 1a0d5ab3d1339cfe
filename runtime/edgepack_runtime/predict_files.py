"""`predict` from rows to a file, of any size: in order, in bounded memory, taken up again where it was interrupted."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from edgepack_runtime.durable import os_errors
from edgepack_runtime.errors import UsageError
from edgepack_runtime.model_config import CONFIG_NAME, MODEL_NAME, TOKENS, VOCAB_NAME
from edgepack_runtime.progress import Progress
from edgepack_runtime.resume import Output
from edgepack_runtime.rows import STDIN, Row, Source, no_text, opened
from edgepack_runtime.texts import Item
from edgepack_runtime.writing import Form, answer_keys


def answer(
    options: argparse.Namespace,
    given: Sequence[Item],
    columns: Tuple[str, Optional[str]],
    predictor: Any,
    identity: Mapping[str, Any],
    say: Callable[[str], None],
) -> None:
    """Answer every row of `options.input`, or what is `given`, or every row of standard input, into `options.output`.

    Args:
        columns: of the texts, and of the second texts of pairs.
        identity: what must be the same where an interrupted run is taken up again.

    Raises:
        UsageError: no row is good; or one is bad, and `options.strict`; or what an earlier run left is of another.
        EnvironmentUnfitError: a file cannot be read or written.
        StageFailedError: the model cannot be run.
    """
    with contextlib.ExitStack() as stack:
        if options.input:
            source = stack.enter_context(opened(options.input, *columns))
        else:
            source = _lines([column for column in columns if column is not None], given)
        output = stack.enter_context(Output(options.output, options.input, identity, restart=options.restart))
        if output.before.rows:
            source.skip_to(output.before.position)
            if not options.quiet:
                say(f"going on behind row {output.before.rows}, where an earlier run was interrupted")
        run = _Run(options, predictor, source, output)
        try:
            if not output.complete:
                run.answer()
        except (KeyboardInterrupt, SystemExit):
            if options.input:
                say(f"{options.output} is not finished: the same command goes on where this one was")
            raise
        run.finish(say)


def _lines(columns: Sequence[str], given: Sequence[Item]) -> Source:
    """What is `given`, as rows, or else what stands on standard input."""
    if not given:
        return Source(sys.stdin.buffer, STDIN, ".txt", columns)
    fields = ((item,) if isinstance(item, str) else item for item in given)
    lines = "".join(json.dumps(dict(zip(columns, row))) + "\n" for row in fields)
    return Source(io.BytesIO(lines.encode("ascii")), "the arguments", ".jsonl", columns)


class _Run:
    """The rows of one run."""

    def __init__(self, options: argparse.Namespace, predictor: Any, source: Source, output: Output) -> None:
        self._options, self._predictor, self._source, self._output = options, predictor, source, output
        config = predictor.config
        labels = predictor.labels if options.scores and config.task != TOKENS else ()
        keys = answer_keys(config, with_scores=options.scores)
        self._form = Form(options.output.suffix, keys, labels, pairs=config.takes_pairs)
        self._first: Optional[UsageError] = None  # what was wrong with the first bad row

    def answer(self) -> None:
        """Write a line for each row."""
        options, output = self._options, self._output
        output.head(self._form.header())
        tagged = ((row, row.item) for row in self._rows())
        progress = Progress("rows", options.input.stat().st_size if options.input else None, quiet=options.quiet)
        try:
            with contextlib.closing(
                self._predictor.stream_tagged(tagged, workers=options.threads, batch_tokens=options.batch_tokens)
            ) as found:
                for row, prediction in found:
                    self._write(row, prediction)
                    progress.update(output.done.rows, output.before.rows, row.end.offset)
        finally:
            progress.close()

    def finish(self, say: Callable[[str], None]) -> None:
        """Rename what was written, and tell what came of it."""
        rows, bad, _ = self._output.done
        if not rows:
            raise no_text(self._options.input or STDIN)
        if not self._output.complete:
            self._output.finish()
        if not self._options.quiet:
            say(f"{rows - bad} predictions in {self._options.output}")
        told = f"{bad} of {rows} rows {'has' if bad == 1 else 'have'} no answer"
        if bad == rows:
            raise UsageError(
                told,
                why=_in_a_line(self._first) if self._first else "an earlier run found so",
                fix=f"see to the form of the file, or to its encoding; {self._output.errors_path} tells of each row",
            )
        if bad:
            say(f"{told}: {self._output.errors_path} tells why")

    def _rows(self) -> Iterator[Row]:
        with os_errors(f"{self._options.input or STDIN} cannot be read"):
            yield from self._source.rows()

    def _write(self, row: Row, prediction: Any) -> None:
        error = row.error
        line = ""
        if row.item is not None:
            try:
                line = self._form.answer(row.item, prediction.as_json(with_scores=self._options.scores))
            except UsageError as refused:
                error = refused
        if error is None:
            self._output.add(line, row.end)
            return
        if self._options.strict:
            raise error
        self._first = self._first or error
        told = {"line": row.line, "error": error.what, **({"why": error.why} if error.why else {})}
        self._output.add(self._form.missing(), row.end, told)


def _in_a_line(error: UsageError) -> str:
    return f"{error.what} ({error.why})" if error.why else error.what


def identity(
    options: argparse.Namespace, columns: Tuple[str, Optional[str]], model: Path, engine: str
) -> Dict[str, str]:
    """What decides the answers, and how they are written: of two runs with the same, one can go on with the other's.

    Args:
        model: a model folder; its files count, and not where it lies.
        engine: what runs it, with its version.
    """
    digest = hashlib.sha256()
    for name in (CONFIG_NAME, VOCAB_NAME, MODEL_NAME):
        with os_errors(f"{model / name} cannot be read"), (model / name).open("rb") as file:
            for data in iter(lambda: file.read(2**20), b""):
                digest.update(data)
    return {
        "model": digest.hexdigest(),
        "engine": engine,
        "columns": " ".join(column for column in columns if column is not None),
        "form": options.input.suffix if options.input else STDIN,
        "form of the answers": options.output.suffix,
        "scores": str(options.scores),
        "long texts": options.long,
    }
