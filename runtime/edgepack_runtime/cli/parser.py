"""The argument parser: verbs, options and help texts."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any, NoReturn, Optional, Tuple

from edgepack_runtime.device.tuning import MAX_THREADS
from edgepack_runtime.errors import UsageError
from edgepack_runtime.inference.windows import LONG_TEXTS, TRUNCATE

EXIT_CODES = """\
exit codes:
  0 ok           2 usage              4 this device is not fit      5 a step failed
  6 gate failed  7 gate undecided     8 bundle or release refused   10 rolled back
"""


@dataclasses.dataclass(frozen=True)
class Context:
    """From where the command line runs: `bundle` is the zip, `release` the unpacked folder; both None for `edgert`."""

    name: str
    bundle: Optional[Path]
    release: Optional[Path]

    @property
    def prog(self) -> str:
        """How the user started it, as far as we know."""
        return f"python3 {self.bundle.name}" if self.bundle else self.name


class Parser(argparse.ArgumentParser):
    """argparse whose errors are UsageError, so that they look and end like all others."""

    def error(self, message: str) -> NoReturn:
        dashed = message.startswith("unrecognized arguments: -")
        text = "; put -- before a text that begins with -" if dashed else ""
        raise UsageError(message, fix=f"{self.prog} --help{text}")


class Verbs:
    """Adds the verbs to a parser; the ones of a bundle or release leave out the argument that names it."""

    def __init__(self, parser: argparse.ArgumentParser, context: Context) -> None:
        self.context = context
        self.named = context.bundle is None and context.release is None
        self.group = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", parser_class=Parser)

    def add(self, verb: str, summary: str, details: str) -> argparse.ArgumentParser:
        return self.group.add_parser(
            verb,
            prog=f"{self.context.prog} {verb}",
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.\n\n{details}",
            epilog=EXIT_CODES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def add_json(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print the result as one line of JSON on stdout")

    def add_prefix(self, parser: argparse.ArgumentParser) -> None:
        default = "root: /opt/NAME, else ~/.local/share/edgepack/NAME"
        if self.context.release:
            default = "the one this release is in"
        parser.add_argument("--prefix", type=Path, metavar="DIR", help=f"folder that holds the install ({default})")

    def add_bundle(self, parser: argparse.ArgumentParser, *, what: str = "a .edgepack file") -> None:
        if self.named:
            parser.add_argument("path", type=Path, metavar="BUNDLE", help=what)


def port(text: str) -> int:
    return 0 if text == "0" else _number(text, 65_535)


def descriptor(text: str) -> int:
    return 0 if text == "0" else _number(text, 2**20)


def positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of at least 0")
    return number


def above_zero(text: str) -> float:
    """A number that something may be divided by."""
    number = positive(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return number


def at_least_one(text: str) -> int:
    return _number(text, 2**53)


def threads(text: str) -> int:
    return _number(text, MAX_THREADS)


def _number(text: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
    return int(text)


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


_BUNDLE_INTRO = """\
{name}: a text classifier that installs and runs without a network, pip, or anything but this Python.

  {prog} doctor              can this device run it?
  {prog} install             prove it on this device, then switch to it
  {prog} predict TEXT        try it without installing
"""

_RELEASE_INTRO = """\
{name}: an installed model for texts.

  {prog} predict TEXT        one JSON object a line: {{"label": "1", "score": 0.98}}
  {prog} predict --input reviews.csv --output labels.csv
  {prog} serve               a page to try it, and HTTP for programs on this machine
  {prog} status              what serves, and what happened last
  {prog} rollback            back to the release before
  {prog} gate                is it still accurate and fast enough on this device?
"""

_EDGERT_INTRO = """\
edgert: what runs on the device, for use on any machine.

  edgert verify FILE.edgepack                 is every byte as it was built?
  edgert install FILE.edgepack --prefix DIR   install it here
  edgert bench onnx-float onnx-int8           compare models, text in to label out
  edgert predict --model onnx-int8 TEXT       ask a model folder
"""


def build_parser(context: Context) -> argparse.ArgumentParser:
    """The parser for `context`; parsing errors are raised as UsageError."""
    intro = _BUNDLE_INTRO if context.bundle else _RELEASE_INTRO if context.release else _EDGERT_INTRO
    parser = _TopParser(
        prog=context.prog,
        usage=f"{context.prog} VERB [options]",
        description=intro.format(name=context.name, prog=context.prog),
        epilog=EXIT_CODES + f"\n`{context.prog} VERB --help` tells more about a verb.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = Verbs(parser, context)
    _add_doctor(verbs)
    _add_verify(verbs)
    _add_install(verbs)
    _add_status(verbs)
    _add_trust(verbs)
    _add_rollback(verbs)
    _add_uninstall(verbs)
    _add_proofs(verbs)
    _add_tune(verbs)
    _add_env(verbs)
    add_bench(verbs)
    add_predict(verbs)
    add_serve(verbs)
    parser.verbs = tuple(verbs.group.choices)
    return parser


class _TopParser(Parser):
    """The parser in front of the verbs: knows what a mistyped verb was meant to be."""

    verbs: Tuple[str, ...] = ()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = [word for word in args or [] if not word.startswith("-")]
        if not args:
            raise UsageError("no verb was given", why=f"one of: {', '.join(self.verbs)}", fix=f"{self.prog} --help")
        if words and args[0] == words[0] and words[0] not in self.verbs:
            import difflib  # as slow to load as all of this module, for a mistake

            near = difflib.get_close_matches(words[0], self.verbs, n=1)
            hint = f"did you mean `{self.prog} {near[0]}`?" if near else f"{self.prog} --help"
            raise UsageError(f"there is no verb `{words[0]}`", why=f"one of: {', '.join(self.verbs)}", fix=hint)
        return super().parse_args(args, namespace)


def _add_doctor(verbs: Verbs) -> None:
    parser = verbs.add(
        "doctor",
        "check whether this device can run the bundle; installs nothing",
        "System, C library, Python, GPU, CPU, memory, disk. What does not fit is told with what helps. With --probe\n"
        "the facts of this device go into a file, to be carried back to where bundles are built.",
    )
    parser.add_argument("--probe", type=Path, metavar="FILE", help="write the facts of this device to FILE, as JSON")
    if verbs.named:
        parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a .edgepack file")
    if verbs.context.release is None:
        verbs.add_prefix(parser)
    verbs.add_json(parser)


def _add_verify(verbs: Verbs) -> None:
    parser = verbs.add(
        "verify",
        "check every byte against the manifest",
        "A damaged file is named, and the exit code is 8. A release is checked file by file; a file that the\n"
        "manifest does not list is damage too.",
    )
    own = "bundle" if verbs.context.bundle else "release"
    parser.add_argument(
        "path",
        type=Path,
        metavar="PATH",
        nargs=None if verbs.named else "?",
        help="a .edgepack file or an unpacked release" + ("" if verbs.named else f" (this {own})"),
    )
    verbs.add_json(parser)


def _add_install(verbs: Verbs) -> None:
    parser = verbs.add(
        "install",
        "prove the bundle on this device, then switch to it",
        "Signature, verify, doctor, unpack, re-hash from disk, self-test, tune, gate, switch, read back. Until the\n"
        "switch, which is one atomic rename, the release that serves goes on serving; if anything fails it serves on,\n"
        "and the receipt in PREFIX/receipts says why. The release before is kept. Installing the serving release\n"
        "again checks it and repairs damaged files.\n\n"
        "Where keys are pinned (`trust`), one of them must have signed the bundle, and what is older than anything\n"
        "that was installed before is refused. Started as PREFIX/bin/NAME install FILE, all of that is decided by the\n"
        "installed release before any code of the new one runs.\n\n"
        "The install uses the Python it is started with, from then on.",
    )
    if verbs.context.bundle is None:
        parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a .edgepack file")
    verbs.add_prefix(parser)
    parser.add_argument(
        "--no-tune", action="store_true", help="do not look for the fastest way to run the model on this device"
    )
    parser.add_argument("--systemd", action="store_true", help="also write a systemd unit that runs `serve`")
    verbs.add_json(parser)


def _add_status(verbs: Verbs) -> None:
    parser = verbs.add(
        "status",
        "tell what serves, and what happened last",
        "Reads only. Exit code 8 when no release serves or its state is damaged.",
    )
    verbs.add_prefix(parser)
    verbs.add_json(parser)


def _add_trust(verbs: Verbs) -> None:
    parser = verbs.add(
        "trust",
        "pin the keys of which one must have signed what is installed",
        "  add FILE            pin a public key (KEY.pub), or all in a file in OpenSSH's allowed_signers format\n"
        "  list                tell which keys are pinned\n"
        "  remove FINGERPRINT  pin a key no longer\n\n"
        "They lie in PREFIX/trusted_signers. Keys in /etc/edgepack/trusted_signers hold for every install of this\n"
        "machine. Public keys or a KRL in a file `revoked_keys` beside either are not accepted.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=Parser)
    for action, argument in (("add", "file"), ("list", None), ("remove", "fingerprint")):
        below = actions.add_parser(action, prog=f"{verbs.context.prog} trust {action}")
        if argument == "file":
            below.add_argument("file", type=Path, metavar="FILE", help="a public key, or a file of allowed signers")
        elif argument == "fingerprint":
            below.add_argument("fingerprint", metavar="FINGERPRINT", help="as `trust list` prints it: SHA256:...")
        verbs.add_prefix(below)
        verbs.add_json(below)


def _add_rollback(verbs: Verbs) -> None:
    parser = verbs.add(
        "rollback",
        "switch to the release before, which was kept",
        "It is hashed from disk and self-tested first, and asked once more after the switch. What served is kept, so\n"
        "that a second rollback goes forth again. Where it is damaged or fails, what serves goes on serving.",
    )
    verbs.add_prefix(parser)
    verbs.add_json(parser)


def _add_uninstall(verbs: Verbs) -> None:
    parser = verbs.add(
        "uninstall",
        "remove what an install made, and nothing else",
        "Nothing serves after it. The receipts, the pinned keys and state.json stay, unless --purge. Interrupted, the\n"
        "same command goes on; no link is followed. On a terminal it asks first.",
    )
    parser.add_argument("--purge", action="store_true", help="remove receipts, pinned keys and state.json too")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    verbs.add_prefix(parser)
    verbs.add_json(parser)


def _add_proofs(verbs: Verbs) -> None:
    parser = verbs.add(
        "selftest",
        "compare the model's answers with the ones recorded at build time",
        "Every golden text has to give the recorded logits within the tolerance in the manifest.",
    )
    verbs.add_bundle(parser, what="a .edgepack file or an unpacked release")
    verbs.add_json(parser)
    parser = verbs.add(
        "gate",
        "measure accuracy, latency, memory, size and cold start on this device, and judge them",
        "Exit code 0 when every gate of the recipe holds, 6 when one is missed, 7 when one cannot be decided,\n"
        "or when the recipe sets none. With --json the receipt is printed on stdout.",
    )
    verbs.add_bundle(parser, what="a .edgepack file or an unpacked release")
    verbs.add_json(parser)
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument(
        "--rows",
        type=Path,
        metavar="FILE",
        help="the labelled rows of a bundle that does not carry them, as its build wrote them beside it",
    )
    rows.add_argument("--without-rows", action="store_true", help="of such a bundle, judge all but its accuracy")
    # Of a recipe without gates nothing can be judged; who builds or installs its bundle goes on all the same.
    parser.add_argument("--without-gates", action="store_true", help=argparse.SUPPRESS)
    # How many bytes the bundle file had: a release does not know, whoever unpacked it does.
    parser.add_argument("--bundle-bytes", type=at_least_one, help=argparse.SUPPRESS)


def _add_tune(verbs: Verbs) -> None:
    parser = verbs.add(
        "tune",
        "find out how this device runs the model fastest, and keep that",
        "Tries the engine's own rewrites, more threads, and threads that wait in a loop. Each change is timed in\n"
        "turns with the best so far, on the golden rows; it stays if it surely saves time (15 % for twice the\n"
        "threads) and the self-test passes with it. `install` does this before the gate; do it again when the device\n"
        "has changed. What was found lies in PREFIX/tuning and holds for predict, bench and gate; of a release that\n"
        "is not installed it is printed only.",
    )
    verbs.add_bundle(parser, what="a .edgepack file or an unpacked release")
    parser.add_argument(
        "--threads", type=threads, metavar="N", help="most threads to try (as many as the latency gate allows)"
    )
    verbs.add_json(parser)


def _add_env(verbs: Verbs) -> None:
    parser = verbs.add(
        "env",
        "print what lets a Python application import the installed predictor",
        "Lines for a shell, of the release that serves now:\n\n"
        '  eval "$(PREFIX/bin/NAME env)"\n'
        '  "$EDGEPACK_PYTHON" application.py      # from edgepack_runtime import Predictor; Predictor()\n\n'
        "After an update, ask again and start the application anew: until then it has the release it began with.",
    )
    verbs.add_json(parser)
