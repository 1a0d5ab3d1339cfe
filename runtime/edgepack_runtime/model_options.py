"""Options and help texts of the verbs that ask a model: bench, predict, serve (standard library only)."""

from __future__ import annotations

from pathlib import Path

from edgepack_runtime.parsing import Verbs, above_zero, at_least_one, descriptor, port, positive, threads
from edgepack_runtime.windows import LONG_TEXTS, TRUNCATE

BENCH_TEXTS = 200  # 20 rounds of them: 4000 predictions a model, seconds on a desktop, a minute on a small board


def add_bench(verbs: Verbs) -> None:
    texts = "golden/rows.jsonl"
    if verbs.named:
        texts += " of the release that\nthe model lies in, or texts.txt beside the model folder"
    parser = verbs.add(
        "bench",
        "measure latency, text in to label out; compare several models",
        "Models are measured in turns, so that all meet the same conditions. Texts come from --texts; without it\n"
        f"they are {BENCH_TEXTS} drawn evenly from {texts}.\n"
        "A model of pairs needs pairs: two columns, `text` and `text_pair`, or two texts a line with a tab between.",
    )
    parser.add_argument(
        "models",
        type=Path,
        nargs="+" if verbs.named else "*",
        metavar="MODEL",
        help="model folder, or the model.onnx in it" + ("" if verbs.named else " (the bundle's own model)"),
    )
    parser.add_argument("--texts", type=Path, metavar="FILE", help=".txt (a text a line), or .tsv .csv .jsonl (`text`)")
    parser.add_argument("--threads", type=threads, metavar="N", help="threads a model may use (as tuned, else 1)")
    parser.add_argument("--runs", type=at_least_one, default=20, metavar="N", help="rounds over all texts (20)")
    parser.add_argument(
        "--rate",
        type=above_zero,
        metavar="R",
        help="then let R texts a second arrive at random, at least 662, and tell the time from arrival to answer",
    )
    verbs.add_json(parser)


def add_predict(verbs: Verbs) -> None:
    parser = verbs.add(
        "predict",
        "answer for texts: one JSON object a line",
        "Texts come from the arguments, from --input, or from standard input, one a line. Each gives one line, in\n"
        "the same order. Put -- in front of a text that begins with a dash. The model decides what a line looks\n"
        "like:\n\n"
        '  {"label": "1", "score": 0.98}                    one label\n'
        '  {"labels": ["a", "b"], "scores": {...}}          any number of labels, with the scores of those\n'
        '  {"spans": [{"start": 0, "end": 2, "label": "name", "score": 0.97, "text": "..."}]}\n\n'
        "A model of pairs takes two arguments (TEXT TEXT_PAIR), two columns of a file, or lines with a tab between\n"
        "the two texts. Spans count characters from 0, the end is not included; they are looked for in as much of\n"
        "a text as the model reads, which is its `max_length` tokens; with --long windows, in all of it.\n\n"
        "With --output, a row that cannot be used does not stop the run: its line has nulls or empty cells, and\n"
        "OUTPUT.errors.jsonl tells what is wrong with it. An interrupted run continues with --resume. Where\n"
        "answers are printed, the first such row ends the run with exit code 2, as it does with --strict.",
    )
    if verbs.named:
        parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="model folder, or its model.onnx")
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="texts to ask about; put -- before one that begins with -"
    )
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help=".txt (a text or pair a line), .tsv or .csv with a header, .jsonl"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help=".jsonl or .txt (as on stdout), .tsv or .csv")
    parser.add_argument("--column", default="text", metavar="NAME", help="column or key that holds the texts (text)")
    parser.add_argument("--pair-column", metavar="NAME", help="the one of the second texts of pairs (text_pair)")
    parser.add_argument("--scores", action="store_true", help="add the scores of all labels (spans have their own)")
    parser.add_argument(
        "--long",
        choices=LONG_TEXTS,
        default=TRUNCATE,
        help="texts of more than `max_length` tokens: cut them, or read them in overlapping windows (truncate)",
    )
    parser.add_argument(
        "--threads", type=threads, metavar="N", help="cores to use (files: all; else what `tune` found, or 1)"
    )
    parser.add_argument(
        "--batch-tokens", type=at_least_one, metavar="N", help="tokens of a batch, for files (512 is near the best)"
    )
    parser.add_argument("--strict", action="store_true", help="end at the first bad row (--output)")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run (--output)")
    parser.add_argument("--quiet", action="store_true", help="no progress (--output)")


def add_serve(verbs: Verbs) -> None:
    """The options' defaults, which the help names, are those of `serve.settings` and `serve.run`: a test compares."""
    parser = verbs.add(
        "serve",
        "answer over HTTP, on this machine alone unless there is a token",
        "Open http://127.0.0.1:8000/ to try a text; programs POST to /predict, or to the KServe v2 protocol below\n"
        "/v2; /openapi.json describes it all, /metrics is for Prometheus. One JSON object a line on stderr tells of\n"
        "each request, never with its text. SIGTERM ends it when what waits is answered, with exit code 0.\n\n"
        "A token is read from --token-file or from the variable EDGEPACK_TOKEN, and is needed to listen on an\n"
        "address that other machines can reach.",
    )
    if verbs.named:
        parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="model folder, release or prefix")
    add = parser.add_argument
    add("--host", metavar="ADDRESS", help="address to listen on (127.0.0.1)")
    add("--port", type=port, metavar="N", help="port to listen on (8000); 0 takes a free one")
    add("--uds", type=Path, metavar="PATH", help="listen on a Unix socket instead, for its user and group")
    add("--fd", type=descriptor, metavar="N", help="listen on a socket that systemd hands over (the first one is 3)")
    add("--allow-host", action="append", metavar="NAME", help="answer under this `Host` too, as behind a proxy")
    add("--token-file", type=Path, metavar="FILE", help="file that holds the token clients must send")
    add("--threads", type=threads, metavar="N", help="threads a batch may use (as `tune` found; without it, 1)")
    add("--workers", type=at_least_one, metavar="N", help="batches that run at the same time (1)")
    add("--max-batch", type=at_least_one, metavar="N", help="most texts of a batch; 1 turns batching off (8)")
    add("--max-wait-ms", type=positive, metavar="MS", help="how long a batch may wait to become full (0)")
    add("--queue", type=at_least_one, metavar="N", help="texts that may wait; more get status 429 (256)")
    add("--timeout-s", type=positive, metavar="S", help="longest time for a body to arrive, and for an answer (10)")
    add("--max-body-kib", type=at_least_one, metavar="N", help="largest body of a request (64)")
    add("--max-texts", type=at_least_one, metavar="N", help="most texts of a request (32)")
    add("--long", choices=LONG_TEXTS, help="texts of more tokens than the model reads: as `predict` does it (truncate)")
    add("--drain-s", type=positive, metavar="S", help="how long to answer what waits when told to stop (10)")
    add("--log-level", choices=("debug", "info", "warning", "error"), help="least important lines to log (info)")
