"""What is wrong with a recipe that no single field shows: files, models, and keys that contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from edgepack.recipe.columns import check_columns
from edgepack.recipe.distillation import check_distillation
from edgepack.recipe.document import Document, KeyPath, Problem
from edgepack.recipe.findings import Finding
from edgepack.recipe.pretrained import check_models
from edgepack.recipe.signing import check_sign
from edgepack.recipe.splits import check_data, check_unlabelled, check_vocabulary
from edgepack.recipe.targets import check_targets, check_wheels
from edgepack.recipe.training import Training
from edgepack.recipe.validate_gates import check_gates

_WITHOUT_INT8: Final = ("none", "fp16")  # of `quantize.method`


def cross_checks(document: Document, known_targets: Collection[str], said: Collection[KeyPath]) -> list[Finding]:
    """Every such finding. Runs on the raw data, so that it speaks even when a field is wrong.

    Args:
        known_targets: the target profiles that `targets` may use.
        said: paths that have their finding already.
    """
    checks: tuple[Callable[[Document], Iterator[Problem]], ...] = (
        _check_format,
        check_data,
        check_unlabelled,
        check_vocabulary,
        check_columns,
        check_models,
        check_distillation,
        _check_steps,
        _check_precision,
        _check_ranks,
        _check_quantize,
        _check_reduced_range,
        lambda doc: check_targets(doc, known_targets),
        lambda doc: check_wheels(doc, known_targets),
        check_gates,
        check_sign,
    )
    problems = (problem for check in checks for problem in check(document))
    return [document.error(path, reason, fix) for path, reason, fix in problems if path not in said]


def _check_format(document: Document) -> Iterator[Problem]:
    value = document.get("edgepack")
    if value == 1 and not (isinstance(value, int) and value is not True):  # true and 1.0 equal 1
        yield ("edgepack",), "`edgepack` is the recipe format, a whole number", "write `edgepack: 1`"


def _check_precision(document: Document) -> Iterator[Problem]:
    for role in ("teacher", "student"):
        precision = document.get(role, "precision")
        if precision in ("fp16", "bf16") and document.get(role, "device") == "cpu":
            reason = f"`{role}.precision: {precision}` needs a GPU, and `{role}.device` is cpu"
            yield (role, "precision"), reason, "use `auto`, or another device"


def _check_ranks(document: Document) -> Iterator[Problem]:
    for role in ("teacher", "student"):
        device, nodes = document.get(role, "device"), document.get(role, "nodes")
        numbers = device.removeprefix("gpu:").split(",") if isinstance(device, str) else []
        if len(set(numbers)) < len(numbers):
            reason = f"`{role}.device` names a GPU twice, and each trains in one process"
            yield (role, "device"), reason, f"use `gpu:{','.join(dict.fromkeys(numbers))}`"
        if not isinstance(nodes, dict):
            continue
        if device is None or device == "auto":
            reason = f"`{role}.nodes`: each machine would choose its device for itself, and they may not agree"
            yield (role, "nodes"), reason, f"say which: `{role}.device: gpu`, `gpu:0,1` or `cpu`"
        port = str(nodes.get("master")).rpartition(":")[2]
        if port.isascii() and port.isdigit() and not 0 < int(port) < 2**16:
            reason = f"`{role}.nodes.master`: there is no port {port[:10]}"
            yield (role, "nodes", "master"), reason, "name a free one from 1 to 65535"


def _check_steps(document: Document) -> Iterator[Problem]:
    for role in ("teacher", "student"):
        parts, rows = document.get(role, "gradient_accumulation"), document.get(role, "batch_size")
        rows = Training.model_fields["batch_size"].default if rows is None else rows
        if type(parts) is int and type(rows) is int and parts > rows:
            reason = f"`{role}.gradient_accumulation` is {parts}, and a step has {rows} rows (`batch_size`) to part"
            yield (role, "gradient_accumulation"), reason, f"use at most {rows}, or a larger `batch_size`"
        several = document.get("data", "columns", "labels") is not None
        if several and document.get(role, "class_weights") == "balanced":
            reason = f"`{role}.class_weights` is `balanced`, and texts with any number of labels have no such weights"
            yield (role, "class_weights"), reason, "remove it: each label is a loss of its own"


def _check_quantize(document: Document) -> Iterator[Problem]:
    where: KeyPath = ("quantize", "qat")
    method, tried = document.get("quantize", "method"), document.get("search", "over", "quantize.method")
    if isinstance(tried, list) and "qat" in tried:
        return  # it is for those candidates that are trained in this way
    if document.get(*where) is not None and method != "qat":
        now = f"`quantize.method` is {method}" if isinstance(method, str) else "`quantize.method` is not `qat`"
        yield where, f"`quantize.qat` is set, and {now}: nothing would be trained", "set `method: qat`, or remove it"


def _check_reduced_range(document: Document) -> Iterator[Problem]:
    where: KeyPath = ("quantize", "reduced_range")
    method, tried = document.get("quantize", "method"), document.get("search", "over", "quantize.method")
    if isinstance(tried, list) and not all(one in _WITHOUT_INT8 for one in tried):
        return  # it is for those candidates that become INT8
    if document.get(*where) is True and method in _WITHOUT_INT8:
        reason = f"`quantize.reduced_range` is set, and `quantize.method` is {method}: nothing would be INT8"
        yield where, reason, "remove it, or set a `method` that makes INT8, as `ptq`"
