"""The command line of a bundle, of an installed release, and of `edgert` (which works on either).

One scheme: inside a bundle or release, that one is meant and never named; `edgert` names it. Results go to
stdout (UTF-8, whatever the locale), everything else to stderr. Each verb imports what it alone needs when it runs:
numpy and onnxruntime exist only in an unpacked release (from a bundle that is not installed, a verb that needs
them runs in a temporary unpacked copy), and a cold start of `predict` should not wait for what `install` needs.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Mapping, NoReturn, Optional, Sequence

from edgepack_runtime import golden, model_config, predict_verb, texts, tuning, verify
from edgepack_runtime import manifest as contract
from edgepack_runtime.archive import Archive
from edgepack_runtime.errors import DeviceError, EnvironmentUnfitError, UsageError
from edgepack_runtime.exit_codes import ExitCode
from edgepack_runtime.located import locate
from edgepack_runtime.options import BENCH_TEXTS, Context, build_parser
from edgepack_runtime.state import (
    Prefix,
    default_prefix,
    lock,
    os_errors,
    read_state,
    unfit,
    write_atomic,
    write_receipt,
)
from edgepack_runtime.texts import Item

_INTERRUPTED, _BROKEN_PIPE, _TERMINATED = 128 + 2, 128 + 13, 128 + 15  # as a shell reports those signals

__all__ = ["Context", "main", "run"]


def main() -> int:
    """Entry point of `edgert`."""
    return run(sys.argv[1:], Context("edgert", bundle=None, release=None))


def run(arguments: Sequence[str], context: Context) -> int:
    """Run one command line and return its exit code. The one place where errors become messages."""
    _open_streams()
    # Half a surrogate pair, which JSON may hold, is printed as JSON escapes it.
    for stream, errors in ((sys.stdout, "backslashreplace"), (sys.stdin, "strict")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    # ONNX Runtime's own wheels (1.31 on Linux) otherwise write a device id and a database below HOME when they are
    # imported, and try to send them. It has to be set before that; the processes we start inherit it.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    # NumPy's OpenBLAS otherwise starts a thread for each core when it is imported, for products that nobody computes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, _terminate)  # so that temporary folders and half-staged releases are cleared
    try:
        options = build_parser(context).parse_args(list(arguments))
        code = _VERBS[options.verb](options, context, list(arguments))
        sys.stdout.flush()
    except DeviceError as error:
        print(f"error: {error}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has had enough.
        _drop_output()
        return _BROKEN_PIPE
    except (ImportError, MemoryError) as error:
        print(f"error: {_unloadable(context, error)}", file=sys.stderr)
        return ExitCode.ENVIRONMENT_UNFIT
    except OSError as error:  # a result that finds no room on the disk its reader chose, most of all
        _drop_output()
        print(f"error: {unfit(f'{context.prog} could not go on', error)}", file=sys.stderr)
        return ExitCode.ENVIRONMENT_UNFIT
    return int(code)


def _unloadable(context: Context, error: Exception) -> EnvironmentUnfitError:
    """What it means that a library cannot be loaded, or that there is no memory for what is."""
    if isinstance(error, MemoryError):
        return EnvironmentUnfitError(
            f"memory ran out in {context.prog}", why=str(error), fix="stop something, or build a smaller model"
        )
    missing = re.search(r"(lib\S*\.so[\w.]*): cannot open shared object file", str(error))
    fix = "verify it; where it is intact, build it for a target that this system is like"
    if missing:
        fix = f"install the system package with {missing.group(1)}"
    first = str(error).strip().splitlines() or [type(error).__name__]
    return EnvironmentUnfitError(
        f"a library that {context.prog} needs cannot be loaded", why=missing.group(0) if missing else first[0], fix=fix
    )


def _open_streams() -> None:
    """Give a process that was started with closed streams some that lead nowhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - for as long as we run


def _drop_output() -> None:
    """Send what is left in stdout's buffer nowhere: Python would fail on it once more when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(number: int, frame: Optional[FrameType]) -> NoReturn:
    raise SystemExit(_TERMINATED)


def say(text: str) -> None:
    """One line of progress for people."""
    print(text, file=sys.stderr, flush=True)


def emit(options: argparse.Namespace, result: Mapping[str, Any], text: str) -> None:
    """The result on stdout: `text` for people, or one line of JSON when asked for."""
    print(json.dumps(result, ensure_ascii=False, sort_keys=True) if options.json else text)


def _doctor(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime import doctor, probe

    facts = probe.collect()
    if options.probe is not None:
        with os_errors(f"the probe {options.probe} cannot be written"):
            write_atomic(options.probe, probe.dump(facts))
        say(f"facts of this device: {options.probe}")
    if context.release is not None:
        manifest, _ = verify.read_manifest(context.release)
        checks = doctor.check_device(manifest)
    else:
        manifest = _manifest_of(context.bundle or options.bundle)
        checks = doctor.check_device(manifest, prefix=options.prefix or default_prefix(manifest.name))
    good = all(check.ok for check in checks)
    result = {"ok": good, "checks": [dataclasses.asdict(check) for check in checks], "device": facts}
    verdict = f"this device {'can' if good else 'cannot'} run {manifest.name} {manifest.version}"
    emit(options, result, doctor.render(checks) + "\n" + verdict)
    return ExitCode.OK if good else ExitCode.ENVIRONMENT_UNFIT


def _verify(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    path = _named(options, context)
    manifest, raw = verify.verify_folder(path) if path.is_dir() else verify.verify_file(path)
    release = contract.release_id(manifest, raw)
    result = {
        "ok": True,
        "name": manifest.name,
        "version": manifest.version,
        "target": manifest.target.profile,
        "release_id": release,
        "files": len(manifest.files) + 1,
    }
    emit(options, result, f"ok: {manifest.name} {release}: {len(manifest.files) + 1} files, each as it was built")
    return ExitCode.OK


def _install(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime import install as installer

    bundle: Path = context.bundle or options.bundle
    own = _own_prefix(context)
    root = options.prefix or (own.root if own else default_prefix(_manifest_of(bundle).name))
    if options.systemd:
        from edgepack_runtime import serve_verb

        serve_verb.check_carried(_manifest_of(bundle))
    receipt = installer.install(bundle, root, say=say, tune=not options.no_tune)
    release = receipt["bundle"]["release_id"]
    command = Path(root).absolute() / "bin" / receipt["bundle"]["name"]
    lines = {
        "installed": f"installed: {release} serves",
        "repaired": f"repaired: {release} serves, every file as it was built",
        "already installed": f"already installed: {release} serves and is intact; nothing had to be changed",
    }
    hints = [f"try: {shlex.quote(str(command))} predict TEXT"]
    if options.systemd:
        from edgepack_runtime.serve import systemd

        unit = systemd.write(Prefix(Path(root).absolute()), command.name)
        receipt = {**receipt, "systemd_unit": str(unit)}
        hints += [f"unit {unit}; to start it, now and with the device:", *map("  {}".format, systemd.commands(unit))]
    emit(options, receipt, "\n".join([lines[receipt["verdict"]], *hints]))
    return ExitCode.OK


def _status(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime import status as reporter

    found = reporter.status(_prefix_of(options, context))
    emit(options, found, reporter.render(found))
    if found["ok"]:
        return ExitCode.OK
    return ExitCode.BUNDLE_INVALID if reporter.holds_install(found) else ExitCode.ENVIRONMENT_UNFIT


def _rollback(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime import rollback

    receipt = rollback.rollback(_prefix_of(options, context).root, _bundle_name(context), say=say)
    emit(options, receipt, f"rolled back: {receipt['serving']} serves; {receipt['previous']} is kept")
    return ExitCode.OK


def _uninstall(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime import uninstall

    prefix = _prefix_of(options, context)
    if not options.yes and sys.stdin.isatty():
        say(
            f"remove the install in {prefix.root}{', its receipts and its pinned keys' if options.purge else ''}? [y/N]"
        )
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError("nothing was removed", why="the answer was not yes", fix="answer y, or give --yes")
    receipt = uninstall.uninstall(prefix.root, _bundle_name(context), purge=options.purge, say=say)
    kept = "" if options.purge else f"; receipts and pinned keys stay in {prefix.root} (--purge removes them)"
    emit(options, receipt, f"uninstalled: {receipt['bundle']['name']}{kept}")
    return ExitCode.OK


def _prefix_of(options: argparse.Namespace, context: Context) -> Prefix:
    """The prefix that a verb about an install means."""
    prefix = Prefix(options.prefix.absolute()) if options.prefix else _own_prefix(context)
    if prefix is None and context.bundle is not None:
        prefix = Prefix(default_prefix(_manifest_of(context.bundle).name))
    if prefix is None:
        raise UsageError(f"{options.verb} needs to know where", fix=f"{context.prog} {options.verb} --prefix DIR")
    return prefix


def _bundle_name(context: Context) -> Optional[str]:
    """The bundle that a bundle or a release means; `edgert` means whichever is installed."""
    return context.name if context.bundle or context.release else None


def _selftest(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    if context.release is None:
        return _elsewhere(options, context, arguments)
    from edgepack_runtime import selftest

    result = selftest.run(context.release)
    text = "ok: {texts} texts, largest difference of a logit {max_difference:.2g} (allowed: {tolerance:.2g})"
    emit(options, result, text.format(**result))
    return ExitCode.OK


def _gate(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    if context.release is None:
        return _elsewhere(options, context, arguments)
    from edgepack_runtime import gate

    manifest, _ = verify.read_manifest(context.release)
    prefix = _own_prefix(context)
    size = options.bundle_bytes
    if size is None and prefix is not None:
        state = read_state(prefix)
        size = state.bundle_bytes if state and state.current == context.release.name else None
    receipt = gate.run(context.release, manifest, bundle_bytes=size, progress=say)
    emit(options, receipt, gate.render(receipt))
    if prefix is not None:
        _keep_receipt(prefix, receipt)
    return int(gate.exit_code(receipt))


def _keep_receipt(prefix: Prefix, receipt: Mapping[str, Any]) -> None:
    try:
        say(f"receipt {write_receipt(prefix, 'gate', receipt)}")
    except OSError as error:  # measuring is open to users who may not write the prefix; the result stands on stdout
        say(f"note: the receipt was not kept: {error.filename}: {error.strerror}")


def _tune(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    if context.release is None:
        return _elsewhere(options, context, arguments)
    from edgepack_runtime import gate_limits, tune

    manifest, _ = verify.read_manifest(context.release)
    most = options.threads or gate_limits.parse(manifest.gates).threads
    prefix = _own_prefix(context)
    with contextlib.ExitStack() as held:
        if prefix is not None:  # before anything is measured: whoever may not write it need not wait to hear so
            held.enter_context(lock(prefix))
        result = tune.run(context.release, most_threads=most, progress=say)
        if prefix is not None:
            file = prefix.tuning_of(context.release)
            with os_errors(f"{file} cannot be written"):
                tuning.keep(file, result)
            say(f"kept in {file}")
    emit(options, result, tune.render(result))
    return ExitCode.OK


def _env(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime import isolated

    prefix = _own_prefix(context)
    if prefix is None or context.release is None:
        raise UsageError(
            "env tells how an application finds an installed release",
            why="what this command runs from is not installed",
            fix="install it, then ask PREFIX/bin/NAME env",
        )
    found = {
        "EDGEPACK_PYTHON": isolated.interpreter(),
        "PYTHONPATH": f"{context.release}:{context.release / 'site'}",
        # Bytecode never lies inside a release: it would be a file that the manifest does not list.
        "PYTHONPYCACHEPREFIX": str(prefix.pycache),
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in found.items()]
    emit(options, found, "\n".join(lines))
    return ExitCode.OK


def _bench(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
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
        return _elsewhere(options, context, arguments)
    if options.texts is None:
        given = texts.evenly(given, BENCH_TEXTS)
    from edgepack_runtime import bench

    result = bench.compare(folders, given, threads=options.threads, runs=options.runs, progress=say)
    emit(options, result, bench.render(result))
    return ExitCode.OK


def _predict(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    words = predict_verb.check(options)
    folders = [locate(options.model).model] if context.bundle is None and context.release is None else []
    if context.release is not None:
        folders = [context.release / golden.MODEL_FOLDER]
    given = predict_verb.read(options, words, pairs=_takes_pairs(context, folders))
    if context.bundle is not None:
        return _elsewhere(options, context, arguments)
    with _damage_first(context.release):
        predictor = predict_verb.open_model(options, folders[0])
    predict_verb.answer(options, given, folders[0], predictor, say)
    return ExitCode.OK


def _serve(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    from edgepack_runtime import serve_verb

    if context.bundle is not None:
        serve_verb.check_carried(_manifest_of(context.bundle))
        return _elsewhere(options, context, arguments)
    with _damage_first(context.release):
        code = serve_verb.run(options, context.release)
    return _INTERRUPTED if code == signal.SIGINT else ExitCode.OK


def _takes_pairs(context: Context, folders: Sequence[Path]) -> bool:
    """Whether the bundle's model, or else the first of `folders`, is asked about two texts at a time."""
    if context.bundle is not None:
        return _manifest_of(context.bundle).task == model_config.PAIR
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


def _elsewhere(options: argparse.Namespace, context: Context, arguments: List[str]) -> int:
    """Run the verb in the named release, or in a temporary unpacked copy of the bundle."""
    from edgepack_runtime import isolated

    path = _named(options, context)
    if context.bundle is None:  # `edgert` names it; inside it is meant
        threads = ["--threads", str(options.threads)] if getattr(options, "threads", None) else []
        arguments = [options.verb, *threads, *(["--json"] if options.json else [])]
    if path.is_dir():
        verify.verify_folder(path)
        return isolated.run(path, arguments)
    with isolated.unpacked(path) as release:
        if options.verb == "gate":
            arguments = [*arguments, "--bundle-bytes", str(path.stat().st_size)]
        return isolated.run(release, arguments, to_drain=options.verb == "serve")


def _named(options: argparse.Namespace, context: Context) -> Path:
    """The bundle or release that is meant: the one named on the command line, or the one we run from."""
    path: Optional[Path] = getattr(options, "path", None) or context.bundle or context.release
    assert path is not None  # argparse insists on it where there is no context
    return path


def _own_prefix(context: Context) -> Optional[Prefix]:
    """The prefix that the running release is installed in; None for a bundle, and for a release not installed."""
    if context.release is None:
        return None
    prefix = Prefix.around(context.release)
    staged = prefix is None or context.release.parent != prefix.releases
    return None if prefix is None or staged or not prefix.state_file.exists() else prefix


def _manifest_of(bundle: Path) -> contract.Manifest:
    with Archive(bundle) as archive:
        return contract.parse(archive.read(contract.MANIFEST_NAME, contract.MAX_MANIFEST_BYTES))


def _texts_beside(folder: Path, release: Optional[Path]) -> Path:
    rows = (release or folder.absolute().parent) / golden.ROWS_FILE
    beside = folder.absolute().parent / "texts.txt"
    for path in (rows, beside):
        if path.is_file():
            return path
    raise UsageError(
        "there are no texts to measure with", why=f"neither {rows} nor {beside} exists", fix="give some: --texts FILE"
    )


_VERBS: Dict[str, Callable[[argparse.Namespace, Context, List[str]], int]] = {
    "doctor": _doctor,
    "verify": _verify,
    "install": _install,
    "status": _status,
    "rollback": _rollback,
    "uninstall": _uninstall,
    "selftest": _selftest,
    "gate": _gate,
    "tune": _tune,
    "env": _env,
    "bench": _bench,
    "predict": _predict,
    "serve": _serve,
}
