"""The argument parser: verbs, options and help texts."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from pathlib import Path
from typing import Any, Iterable, NoReturn, Optional, Tuple

from edgepack_runtime.errors import UsageError, printable
from edgepack_runtime.inference.windows import LONG_TEXTS, TRUNCATE
from edgepack_runtime.messages import joined, message
from edgepack_runtime.schema.maxima import MAX_THREADS
from edgepack_runtime.tasks.registry import answer_examples
from edgepack_runtime.util.texts import ENCODING_NAMES, ENCODINGS, UTF8

EXIT_CODES = """\
exit codes:
  0 ok           2 usage               4 device not fit              5 a step failed
  6 gate failed  7 gate inconclusive   8 bundle or release refused   10 rolled back
  1 unexpected   130 interrupted       141 reader of output ended    143 terminated
"""


@dataclasses.dataclass(frozen=True)
class Context:
    """The running program: a `bundle` file, an unpacked `release`, or `edgert` (both None)."""

    name: str
    bundle: Optional[Path]
    release: Optional[Path]

    @property
    def prog(self) -> str:
        """The command that started it, for help texts."""
        return f"sh {self.bundle.name}" if self.bundle else self.name


# What argparse says in English, with what a message takes from it.
_SAID = (
    ("argument (?P<name>[^:]+): (?P<reason>.+)", "error.argument"),
    ("the following arguments are required: (?P<names>.+)", "error.required"),
    (r"invalid choice: (?P<value>.+) \(choose from (?P<names>.+)\)", "error.choice"),
    ("invalid .+ value: (?P<value>.+)", "error.value"),
    ("expected (?:one|at least one|[0-9]+) arguments?", "error.no_value"),
    ("ignored explicit argument (?P<value>.+)", "error.no_value_wanted"),
    ("not allowed with argument (?P<other>.+)", "error.not_with"),
    ("ambiguous option: (?P<option>.+) could match (?P<names>.+)", "error.ambiguous"),
    ("one of the arguments (?P<names>.+) is required", "error.one_required"),
)


def _said(text: str) -> str:
    """What argparse says as a message, if it is known."""
    for pattern, name in _SAID:
        if found := re.fullmatch(pattern, text):
            fields = found.groupdict()
            if name == "error.argument":
                return message(name, **{**fields, "reason": _said(fields["reason"])})
            return message(name, said=text, **fields)
    return text


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises UsageError."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(_said(message), fix=f"{self.prog} --help")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        try:
            return super()._get_value(action, arg_string)
        except UsageError as error:  # of a type below: argparse itself would keep the English text alone
            name = "/".join(action.option_strings) or str(action.metavar)
            fix = f"{self.prog} --help"
            raise UsageError(message("error.argument", name=name, reason=error.what), fix=fix) from None


class Verbs:
    """Adds verbs to a parser. In a bundle or release, they have no argument that names it."""

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
        raise UsageError(message("error.not_number", text=repr(text)))
    return number


def at_least_one(text: str) -> int:
    return _number(text, 2**53)


def threads(text: str) -> int:
    return _number(text, MAX_THREADS)


def _number(text: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise UsageError(message("error.not_whole", text=repr(text), most=most))
    return int(text)


WAIT_S = 60.0  # default of `install`
BENCH_TEXTS = 200  # with 20 rounds 4000 predictions a model: seconds on a desktop, a minute on a small board


def add_bench(verbs: Verbs) -> None:
    texts = "golden/rows.jsonl"
    if verbs.named:
        texts += " of the\nmodel's release, or texts.txt beside the model folder"
    parser = verbs.add(
        "bench",
        "measure latency, from item to answer; compare several models",
        "Models are measured in turns, under the same conditions. Texts come from --texts; without it,\n"
        f"{BENCH_TEXTS} are drawn evenly from {texts}.\n"
        "A text-pair model needs two columns, `text` and `text_pair`, or two texts per line separated by a tab.",
    )
    parser.add_argument(
        "models",
        type=Path,
        nargs="+" if verbs.named else "*",
        metavar="MODEL",
        help="model folder, or the model.onnx in it" + ("" if verbs.named else " (the bundle's own model)"),
    )
    parser.add_argument(
        "--texts", type=Path, metavar="FILE", help=".txt (one text per line), or .tsv .csv .jsonl (with --column)"
    )
    parser.add_argument("--column", metavar="NAME", help="column or key of --texts that holds the texts (text)")
    _add_encoding(parser, "--texts")
    parser.add_argument("--threads", type=threads, metavar="N", help="threads a model may use (as tuned, else 1)")
    parser.add_argument("--runs", type=at_least_one, default=20, metavar="N", help="rounds over all texts (20)")
    verbs.add_json(parser)


def add_predict(verbs: Verbs) -> None:
    parser = verbs.add(
        "predict",
        "classify texts or files: one JSON value per line",
        "Texts come from the arguments, from --input, or from standard input, one per line. Each gives one line, in\n"
        "the same order. Put -- before a text that begins with a dash. The form depends on the model:\n\n"
        + "".join(f"  {example}\n" for example in answer_examples())
        + "\n"
        "A text-pair model takes two arguments (TEXT TEXT_PAIR), two columns of a file, or two texts per line\n"
        "separated by a tab. Spans count characters from 0; the end is exclusive. The model reads the first\n"
        "`max_length` tokens of a text; with --long windows, all of them.\n\n"
        "A model with a handler reads texts, JSON values or files, from arguments or standard input, and takes\n"
        "neither --input nor --output. Standard input is one file, or a text or JSON value in each line.\n\n"
        "With --output, an invalid row does not stop the run: its line has nulls or empty cells, and\n"
        "OUTPUT.errors.jsonl names the reason. --resume continues an interrupted run. With --strict, and without\n"
        "--output, the first invalid row ends the run with exit code 2.",
    )
    if verbs.named:
        parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="model folder, or its model.onnx")
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="TEXT",
        help="texts to classify, or items for a handler; put -- before one that begins with -",
    )
    parser.add_argument(
        "--input",
        type=Path,
        metavar="FILE",
        help=".txt (one text or pair per line), .tsv or .csv with a header, .jsonl",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=".jsonl or .txt (as on stdout), .tsv or .csv; always UTF-8. A table begins with a byte order mark, which "
        "Excel needs, if the input does, if --encoding names another encoding, or if it is a .csv of single lines",
    )
    _add_encoding(parser, "--input or standard input")
    parser.add_argument("--column", metavar="NAME", help="column or key that holds the texts (text)")
    parser.add_argument("--pair-column", metavar="NAME", help="column or key of the second texts of pairs (text_pair)")
    parser.add_argument(
        "--label-column",
        metavar="NAME",
        help="column with the right answers: also prints how good the model's are (--input of a table, --output)",
    )
    parser.add_argument(
        "--raw-cells",
        action="store_true",
        help="of a table: write cells that begin with = + - @ as they are; else an apostrophe keeps spreadsheet "
        "programs from running them (--output)",
    )
    parser.add_argument("--scores", action="store_true", help="add the scores of all labels (not for spans)")
    parser.add_argument(
        "--long",
        choices=LONG_TEXTS,
        default=TRUNCATE,
        help="how to read texts of more than `max_length` tokens: cut off, or in overlapping windows (truncate)",
    )
    parser.add_argument("--threads", type=threads, metavar="N", help="cores to use (files: all; else as tuned, or 1)")
    parser.add_argument(
        "--batch-tokens", type=at_least_one, metavar="N", help="tokens per batch, for files (512, on a GPU 4096)"
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first invalid row (--output)")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run (--output)")
    parser.add_argument("--quiet", action="store_true", help="no progress (--output)")


def _add_encoding(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--encoding",
        type=lambda name: ENCODING_NAMES.get(name.lower(), name.lower()),
        choices=ENCODINGS,
        default=UTF8,
        help=f"encoding of {what} (utf-8); gbk, gb2312 and cp936 are names of gb18030 too, cp950 of big5",
    )


def add_serve(verbs: Verbs) -> None:
    """Add `serve`. A test compares the help with `serve.settings` and `serve.server`, which no other verb may load."""
    parser = verbs.add(
        "serve",
        "serve the model over HTTP, on this machine only unless there is a token",
        'Open http://127.0.0.1:8000/ to try a text. Programs POST {"text": "..."} as JSON to /predict, or use the\n'
        "KServe v2 protocol below /v2; /openapi.json describes all routes, /metrics is for Prometheus. Each request\n"
        "is logged on stderr as one JSON object per line, without its text. After SIGTERM it is not ready, answers\n"
        "for --drain-s, then what has begun, and ends with exit code 0.\n\n"
        "The token comes from --token-file or the variable EDGEPACK_TOKEN. It is required to listen on an address\n"
        "that other machines can reach.",
    )
    if verbs.named:
        parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="model folder, release or prefix")
    add = parser.add_argument
    add("--host", metavar="ADDRESS", help="address to listen on (127.0.0.1)")
    add("--port", type=port, metavar="N", help="port to listen on (8000); 0 takes a free one")
    add("--uds", type=Path, metavar="PATH", help="listen on a Unix socket instead, for its user and group")
    add("--fd", type=descriptor, metavar="N", help="listen on a socket passed by systemd (the first is 3)")
    add("--allow-host", action="append", metavar="NAME", help="also accept this `Host` header, as behind a proxy")
    add("--token-file", type=Path, metavar="FILE", help="file that holds the token clients must send")
    add("--threads", type=threads, metavar="N", help="threads per batch (as tuned, else 1)")
    add("--workers", type=at_least_one, metavar="N", help="batches that run at the same time (1)")
    add("--max-batch", type=at_least_one, metavar="N", help="most texts per batch; 1 turns batching off (8)")
    add("--max-wait-ms", type=positive, metavar="MS", help="how long a batch may wait to become full (0)")
    add("--queue", type=at_least_one, metavar="N", help="texts that may wait; more get status 429 (256)")
    add("--timeout-s", type=positive, metavar="S", help="longest time to receive a body, and to answer (10)")
    add("--max-body-kib", type=at_least_one, metavar="N", help="largest body of a request (64; for files 16384)")
    add("--max-texts", type=at_least_one, metavar="N", help="most texts of a request (32)")
    add(
        "--long",
        choices=LONG_TEXTS,
        help="how to read texts of more than `max_length` tokens, as in `predict` (truncate)",
    )
    add("--max-windows", type=at_least_one, metavar="N", help="most windows of a text with --long windows (256)")
    add("--drain-s", type=positive, metavar="S", help="how long to answer new requests after SIGTERM (5)")
    add("--stuck-s", type=positive, metavar="S", help="longest run of the model; then the server ends with 5 (60)")
    add("--metrics-port", type=port, metavar="N", help="serve /metrics on this port too, without the token")
    add("--metrics-host", metavar="ADDRESS", help="address of that port (127.0.0.1)")
    add("--log-level", choices=("debug", "info", "warning", "error"), help="least important lines to log (info)")


_BUNDLE_INTRO = """\
{name}: a text classifier that installs and runs without a network or pip.

  {prog} readme              how to use it, in English and Chinese
  {prog} doctor              check whether this device can run it
  {prog} install             test it on this device, then switch to it
  {prog} predict TEXT        try it without installing
"""

_RELEASE_INTRO = """\
{name}: an installed model for texts.

  {prog} predict TEXT        one JSON object per line: {{"label": "1", "score": 0.98}}
  {prog} predict --input reviews.csv --output labels.csv
  {prog} serve               HTTP for programs on this machine, and a page to try it
  {prog} status              show the active release and the last operations
  {prog} rollback            return to the previous release
  {prog} gate                check accuracy and latency on this device again
"""

_EDGERT_INTRO = """\
edgert: the device side of edgepack, on any machine.

  edgert verify FILE.edgepack                 check every byte of a bundle
  edgert install FILE.edgepack --prefix DIR   install it here
  edgert bench onnx-float onnx-int8           compare models, from text to answer
  edgert predict --model onnx-int8 TEXT       run a model folder
"""


def build_parser(context: Context) -> argparse.ArgumentParser:
    """The parser for `context`; parsing errors are raised as UsageError."""
    intro = _BUNDLE_INTRO if context.bundle else _RELEASE_INTRO if context.release else _EDGERT_INTRO
    parser = _TopParser(
        prog=context.prog,
        usage=f"{context.prog} VERB [options]",
        description=intro.format(name=context.name, prog=context.prog),
        epilog=EXIT_CODES + f"\n`{context.prog} VERB --help` explains a verb.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.installed = context.release is not None
    parser.add_argument("--version", action=_Version, nargs=0, const=context, help="print name, version and target")
    verbs = Verbs(parser, context)
    _add_doctor(verbs)
    _add_verify(verbs)
    _add_readme(verbs)
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


class _Version(argparse.Action):
    """The option --version, for the context in `const`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from edgepack_runtime import __version__
        from edgepack_runtime.bundle import manifest as contract
        from edgepack_runtime.bundle import verify
        from edgepack_runtime.bundle.archive import Archive

        context: Context = self.const
        line = f"{context.name} {__version__}"
        manifest = None
        if context.bundle is not None:
            with Archive(context.bundle) as archive:
                manifest = contract.parse(verify.read_signed_manifest(archive)[0])
        elif context.release is not None:
            manifest = verify.read_manifest(context.release)[0]
        if manifest is not None:
            line = f"{manifest.name} {manifest.version} ({manifest.target.profile})"
        sys.stdout.write(printable(line) + "\n")
        parser.exit()


class _TopParser(Parser):
    """The parser before the verbs. It suggests a verb for a mistyped one."""

    verbs: Tuple[str, ...] = ()
    installed = False  # the command of an installed release

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        if not args:
            raise UsageError(
                message("error.no_verb"), why=message("error.one_of", names=list(self.verbs)), fix=f"{self.prog} --help"
            )
        first = args[0]
        if first.startswith("-") and first not in self._option_string_actions:
            word = first.strip("-")
            near = word if word in self.verbs else _near(first, self._option_string_actions, 0.75)
            command = f"`{self.prog} {near or f'VERB {first}'}`"
            hint: str = message("error.did_you_mean", word=command) if near else message("error.type", command=command)
            raise UsageError(message("error.before_verb", option=first), why=message("error.verb_first"), fix=hint)
        if not first.startswith("-") and first not in self.verbs:
            near = _ALSO_CALLED.get(first.lower()) or _near(first.lower(), self.verbs)
            hint = message("error.did_you_mean", word=f"`{self.prog} {near}`") if near else f"{self.prog} --help"
            raise UsageError(
                message("error.unknown_verb", verb=first), why=message("error.one_of", names=list(self.verbs)), fix=hint
            )
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            raise UsageError(
                message("error.unrecognized", words=" ".join(unknown)), fix=self._meant(options.verb, unknown[0])
            )
        return options

    def _meant(self, verb: str, unknown: str) -> str:
        [verbs] = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        known = [name for name in verbs.choices[verb]._option_string_actions if name.startswith("--")]
        option = unknown.partition("=")[0]
        if option == "--prefix":
            return message("error.own_install" if self.installed else "error.type", command=f"PREFIX/bin/NAME {verb}")
        near = _near(option, known)
        if near:
            return message("error.did_you_mean", word=near)
        dashes = unknown.startswith("-") and verb == "predict"
        return joined(f"{self.prog} {verb} --help", message("error.dashes") if dashes else "")


_ALSO_CALLED = {"update": "install", "upgrade": "install", "remove": "uninstall"}  # by other installers


def _near(word: str, known: Iterable[str], alike: float = 0.7) -> Optional[str]:
    import difflib  # slow to import

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=alike)), None)


def _add_doctor(verbs: Verbs) -> None:
    parser = verbs.add(
        "doctor",
        "check whether this device can run the bundle",
        "Checks system, C library, Python, GPU, CPU, memory and disk, and names a fix for each problem. With\n"
        "--probe, the facts of this device are written to a file, for the machine that builds bundles.",
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
        "A damaged file is named, with exit code 8. In a release, a file that the manifest does not list counts\n"
        "as damage too.",
    )
    own = "bundle" if verbs.context.bundle else "release"
    parser.add_argument(
        "path",
        type=Path,
        metavar="PATH",
        nargs=None if verbs.named else "?",
        help="a .edgepack file or an unpacked release" + ("" if verbs.named else f" (this {own})"),
    )
    if not verbs.context.release:
        parser.add_argument(
            "--prefix",
            type=Path,
            metavar="DIR",
            help="folder that holds the install: one of the trusted keys there must have signed it",
        )
    verbs.add_json(parser)


def _add_readme(verbs: Verbs) -> None:
    parser = verbs.add(
        "readme",
        "how to install, use, update and remove it, in English and Chinese",
        "Prints README.txt of the bundle or release. Nothing is unpacked or written.",
    )
    if verbs.named:
        parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a .edgepack file")


def _add_install(verbs: Verbs) -> None:
    parser = verbs.add(
        "install",
        "test the bundle on this device, then switch to it",
        "Steps: signature, verify, doctor, stage, re-hash from disk, self-test, wait, tune, gate, commit, read back.\n"
        "The commit is one atomic rename. If a step fails, the old release stays active. From `stage` on, and for a\n"
        "bundle that is older than one before, a receipt in PREFIX/receipts names the cause. The previous release\n"
        "is kept. Installing the active release again repairs damaged files.\n\n"
        "If keys are trusted (`trust`), one of them must have signed the bundle. Bundles older than the newest ever\n"
        "installed are refused. PREFIX/bin/NAME install FILE checks both before any code of the new release runs.\n\n"
        "A gate that fails refuses. One that is inconclusive goes on, and receipt and `status` say what was not\n"
        "shown, unless the recipe has `gates.inconclusive: refuse` or --strict is given. On a busy device an update\n"
        "is compared with the active release: both answer the same texts in turns.\n\n"
        "A release that carries no interpreter will run on the Python that starts this command.",
    )
    if verbs.context.bundle is None:
        parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a .edgepack file")
    verbs.add_prefix(parser)
    parser.add_argument(
        "--no-tune", action="store_true", help="skip the search for the fastest settings on this device"
    )
    parser.add_argument(
        "--wait",
        type=positive,
        default=WAIT_S,
        metavar="S",
        help=f"how long to wait for other programs to leave the processor, before measuring ({WAIT_S:g})",
    )
    doubt = parser.add_mutually_exclusive_group()
    doubt.add_argument(
        "--accept-inconclusive",
        action="store_true",
        help="install although the gate is inconclusive and the recipe refuses that; the receipt names it",
    )
    doubt.add_argument("--strict", action="store_true", help="refuse an inconclusive gate, whatever the recipe says")
    parser.add_argument("--systemd", action="store_true", help="also write a systemd unit that runs `serve`")
    verbs.add_json(parser)


def _add_status(verbs: Verbs) -> None:
    parser = verbs.add(
        "status",
        "show the active release and the last operations",
        "Changes nothing. The exit code is 4 if nothing is installed, and 8 if the install is damaged: a file of the\n"
        "active release is missing, has another size or is not listed. `verify` compares every byte.",
    )
    verbs.add_prefix(parser)
    verbs.add_json(parser)


def _add_trust(verbs: Verbs) -> None:
    parser = verbs.add(
        "trust",
        "list and change the trusted keys: one of them must have signed each installed bundle",
        "  add FILE            trust a public key (KEY.pub), or all keys of an OpenSSH allowed_signers file\n"
        "  list                list the trusted keys\n"
        "  remove FINGERPRINT  remove a trusted key\n\n"
        "Keys are stored in PREFIX/trusted_signers. Keys in /etc/edgepack/trusted_signers apply to every install\n"
        "of this machine. Keys in a file `revoked_keys` (public keys or a KRL) beside either are refused.",
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
        "switch to the previous release",
        "Only for an installed release: PREFIX/bin/NAME rollback. The previous release is hashed and self-tested\n"
        "before and after the switch. If that fails, the active release stays. Rolling back twice returns to the\n"
        "newer release.",
    )
    parser.add_argument("--allow-revoked", action="store_true", help="even if a revoked key signed it (root only)")
    verbs.add_json(parser)


def _add_uninstall(verbs: Verbs) -> None:
    parser = verbs.add(
        "uninstall",
        "remove the install, and no other files",
        "The receipts, the trusted keys and state.json stay, unless --purge. No link is followed. If interrupted,\n"
        "run the same command again. It is refused while `serve` runs. On a terminal it asks for confirmation.",
    )
    parser.add_argument("--purge", action="store_true", help="remove receipts, trusted keys and state.json too")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    verbs.add_prefix(parser)
    verbs.add_json(parser)


def _add_proofs(verbs: Verbs) -> None:
    parser = verbs.add(
        "selftest",
        "compare the model's logits with those recorded at build time",
        "Each golden text must give the recorded logits, within the tolerance in the manifest.",
    )
    verbs.add_bundle(parser)
    verbs.add_json(parser)
    parser = verbs.add(
        "gate",
        "measure accuracy, latency, memory, size and cold start on this device, and judge them",
        "The exit code is 0 if every gate of the recipe passes, 6 if one fails, and 7 if one is inconclusive or the\n"
        "recipe has none. With --json the receipt is printed on stdout.",
    )
    verbs.add_bundle(parser)
    verbs.add_json(parser)
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument(
        "--rows",
        type=Path,
        metavar="FILE",
        help="labelled rows for a bundle without them; its build wrote them beside the bundle",
    )
    rows.add_argument("--without-rows", action="store_true", help="for such a bundle, judge all gates except accuracy")
    # For builds and installs: a recipe without gates is not an error.
    parser.add_argument("--without-gates", action="store_true", help=argparse.SUPPRESS)
    # Size of the bundle file, which an unpacked release does not know.
    parser.add_argument("--bundle-bytes", type=at_least_one, help=argparse.SUPPRESS)
    # For an update: the active release, and what runs in it.
    parser.add_argument("--against", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)


def _add_tune(verbs: Verbs) -> None:
    parser = verbs.add(
        "tune",
        "find the fastest settings for the model on this device",
        "Tries the engine's graph optimizers, more threads, and spinning threads. Each change is timed in turns with\n"
        "the best settings so far, on the golden rows. It is kept if it reliably saves time (15 % for twice the\n"
        "threads) and passes the self-test. `install` tunes before the gate; tune again after changes to the device.\n"
        "The result in PREFIX/tuning applies to predict, serve, bench and gate. Without an install, it is only\n"
        "printed.",
    )
    verbs.add_bundle(parser)
    parser.add_argument(
        "--threads", type=threads, metavar="N", help="most threads to try (as many as the latency gate allows)"
    )
    verbs.add_json(parser)


def _add_env(verbs: Verbs) -> None:
    parser = verbs.add(
        "env",
        "print the environment in which Python applications can import the predictor",
        "Shell commands for the active release:\n\n"
        '  eval "$(PREFIX/bin/NAME env)"\n'
        '  "$EDGEPACK_PYTHON" application.py      # from edgepack_runtime import Predictor; Predictor()\n\n'
        "After an update, run it again and restart the application: it keeps the release that it started with.",
    )
    verbs.add_json(parser)
