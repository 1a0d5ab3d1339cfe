"""Verbs, options and help texts of the command line (standard library only)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Tuple

from edgepack_runtime import model_options
from edgepack_runtime.errors import UsageError
from edgepack_runtime.parsing import EXIT_CODES, Context, Parser, Verbs, at_least_one, threads

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
    model_options.add_bench(verbs)
    model_options.add_predict(verbs)
    model_options.add_serve(verbs)
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
