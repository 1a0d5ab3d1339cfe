"""`predict` from rows to a file, of any size: in order, in bounded memory, resumed after an interrupt."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import itertools
import json
from typing import Any, Iterator, Optional, Sequence, Tuple

from edgepack_runtime.batch.inputs import STDIN, InputRow, Source, no_text, opened, standard_input
from edgepack_runtime.batch.outputs import Form
from edgepack_runtime.batch.resume import Output
from edgepack_runtime.bundle.manifest import MANIFEST_NAME
from edgepack_runtime.errors import EnvironmentUnfitError, StageFailedError, UsageError
from edgepack_runtime.install.locate import locate
from edgepack_runtime.messages import message
from edgepack_runtime.stats.intervals import CONFIDENCE, proportion
from edgepack_runtime.tasks.task import Task
from edgepack_runtime.util.fs import os_errors
from edgepack_runtime.util.progress import Log, Progress
from edgepack_runtime.util.texts import UTF8, Item


def answer(
    options: argparse.Namespace,
    given: Sequence[Item],
    columns: Tuple[str, Optional[str]],
    predictor: Any,
    log: Log,
) -> None:
    """Predict every row of `options.input`, of `given`, or of standard input, into `options.output`.

    Args:
        columns: columns of the texts, and of the second texts of pairs.

    Raises:
        UsageError: no row is valid; a row is invalid and `options.strict` is set; or an interrupted run left answers,
            and `options.resume` is not set, or the input, the model or an option differs.
        EnvironmentUnfitError: a file cannot be read or written.
        StageFailedError: the model cannot be run.
    """
    config = predictor.config
    outputs = [one for one in config.text_task.outputs(config.labels) if options.scores or not one.is_extra]
    labels = config.labels if options.scores and any(output.by_label for output in outputs) else ()
    with contextlib.ExitStack() as stack:
        if options.input:
            source = stack.enter_context(opened(options.input, *columns, encoding=options.encoding))
        else:
            source = _lines([column for column in columns if column is not None], given, options.encoding)
        suffix = options.output.suffix.lower()
        # Spreadsheet programs need it in a .csv. A table that was given without one may be for programs that do not.
        mark = source.file.lines.has_mark or options.encoding != UTF8 or (suffix == ".csv" and not source.header)
        form = Form(
            suffix,
            outputs,
            labels,
            pairs=config.takes_pairs,
            columns=source.header,
            delimiter=source.file.separator,
            mark=mark,
            raw_cells=options.raw_cells,
        )
        run_of = json.dumps([_model(predictor), columns, suffix, options.scores, options.long, options.raw_cells])
        output = stack.enter_context(Output(options.output, suffix, form.header(), run_of, resume=options.resume))
        run = _Run(options, predictor, form, source, output)
        try:
            run.skip(log)
            run.answer()
        except (KeyboardInterrupt, SystemExit, EnvironmentUnfitError, StageFailedError):
            if output.rows:
                log(message("predict.not_finished", file=str(options.output)))
            raise
        run.finish(log)


def _lines(columns: Sequence[str], given: Sequence[Item], encoding: str) -> Source:
    """The rows of `given`, else of standard input."""
    if not given:
        return standard_input(columns, encoding)
    fields = ((item,) if isinstance(item, str) else item for item in given)
    lines = "".join(json.dumps(dict(zip(columns, row))) + "\n" for row in fields)
    return Source(io.BufferedReader(io.BytesIO(lines.encode("ascii"))), message("predict.arguments"), ".jsonl", columns)


class _Run:
    """The rows of one run."""

    def __init__(self, options: argparse.Namespace, predictor: Any, form: Form, source: Source, output: Output) -> None:
        self._options, self._predictor, self._form, self._output = options, predictor, form, output
        self._source = source
        # The column of right answers, rows that have one, those with a right answer, and the sum of all errors.
        self._labels: Optional[int] = None if options.label_column is None else source.place(options.label_column)
        self._task = None if self._labels is None else predictor.config.text_task
        self._judged = self._right = 0
        self._error = 0.0
        self._rows = self._read(source)
        self._first: Optional[UsageError] = None  # of the first invalid row

    def skip(self, log: Log) -> None:
        """Skip the rows that an interrupted run has answered."""
        before, last, count = self._output.before, 0, 0
        for row in itertools.islice(self._rows, before):
            self._output.skip(_content(row), row.line)
            last, count = row.line, count + 1
        if count < before:
            raise UsageError(message("predict.fewer", n=count, before=before), fix=message("predict.same_input"))
        self._output.cut_errors(last)
        if before and not self._options.quiet:
            log(message("predict.continuing", row=before))
        elif self._options.resume and not self._options.quiet:
            replaced = self._options.output
            log(message("predict.replacing" if replaced.exists() else "predict.starting", file=str(replaced)))

    def answer(self) -> None:
        options, output = self._options, self._output
        tagged = ((row, row.item) for row in self._rows)
        progress = Progress("rows", self._source.total_bytes, quiet=options.quiet)
        try:
            with contextlib.closing(
                self._predictor.stream_tagged(tagged, workers=options.threads, batch_tokens=options.batch_tokens)
            ) as found:
                for row, prediction in found:
                    self._write(row, prediction)
                    progress.update(output.rows, output.before, row.end)
        finally:
            progress.close()

    def finish(self, log: Log) -> None:
        """Rename the output, and report the rows without an answer."""
        rows, bad = self._output.rows, self._output.bad
        if not rows:
            raise no_text(self._options.input or STDIN)
        self._output.finish()
        if not self._options.quiet:
            log(message("predict.done", n=rows - bad, file=str(self._options.output)))
        if self._labels is not None:
            log(self._accuracy())
        for note in self._source.notes():
            log(note)
        text = message("predict.one_bad" if bad == 1 else "predict.bad", n=bad, rows=rows)
        errors = str(self._output.errors_path)
        if bad == rows:
            raise UsageError(
                text,
                why=_in_a_line(self._first) if self._first else message("predict.none_before"),
                fix=message("predict.see_form", file=errors),
            )
        if bad:
            log(message("predict.reasons", text=text, file=errors))

    def _accuracy(self) -> str:
        """The share of right answers of this run, in a sentence."""
        if not self._judged:
            return message("predict.no_label", column=self._options.label_column)
        assert self._task is not None, "without a column nothing is judged"
        if not self._task.exact:
            return message("predict.mean_error", n=self._judged, value=self._error / self._judged)
        value, low, high = (100 * share for share in proportion(self._right, self._judged, CONFIDENCE))
        return message(
            "predict.accuracy",
            right=self._right,
            n=self._judged,
            part=message("predict.this_run") if self._output.before else "",
            value=value,
            low=low,
            high=high,
            confidence=100 * CONFIDENCE,
        )

    def _read(self, source: Source) -> Iterator[InputRow]:
        with os_errors(f"{self._options.input or STDIN} cannot be read"):
            yield from source.rows()

    def _write(self, row: InputRow, prediction: Any) -> None:
        error = row.error
        line = ""
        if row.item is not None:
            try:
                line = self._form.answer(row, prediction.as_json(with_scores=self._options.scores))
            except UsageError as refused:
                error = refused
        if error is None:
            self._output.add(line, _content(row))
            if self._labels is not None and self._task is not None:
                self._judge(self._task, row.fields[self._labels], prediction)
            return
        if self._options.strict:
            raise UsageError(error.what, why=error.why, fix=message("predict.strict"))
        self._first = self._first or error
        text = {"line": row.line, "error": error.what, **({"why": error.why} if error.why else {})}
        self._output.add(self._form.missing(row), _content(row), text)

    def _judge(self, task: Task, cell: str, prediction: Any) -> None:
        truth = task.answer_in(cell)
        if truth is None:
            return
        error = task.error(truth, prediction.answer)
        self._judged += 1
        self._right += error == 0
        self._error += error


def _content(row: InputRow) -> str:
    return repr((row.item, row.fields))


def _model(predictor: Any) -> str:
    """What a model is known by: the digest of its release's manifest, else its folder."""
    release = locate(predictor.folder).release
    if release is None:
        return str(predictor.folder)
    return hashlib.sha256((release / MANIFEST_NAME).read_bytes()).hexdigest()


def _in_a_line(error: UsageError) -> str:
    return message("error.because", what=error.what, why=error.why) if error.why else error.what
