"""The handler of a model: a Python file with what comes before and after its graphs.

`handler.py` defines a class `Handler`, without base class:

    class Handler:
        item = "file"                              # "text": a str, "json": any JSON value, "file": the bytes of a file

        def load(self, folder):                    # once; `folder` holds the files that the recipe names
        def preprocess(self, item):                   # item -> {input of the graph: array}
        def postprocess(self, outputs):                 # {output of the graph: Tensor} -> JSON value
        def score(self, answer, expected):         # -> 0 (wrong) to 1 (right)

A handler of several graphs, or one that needs the item for its answer, has `predict` instead of `prepare` and
`answer`; `graphs["name"](inputs)` runs a graph:

        def predict(self, item, graphs):           # -> JSON value

It is called for one item at a time. It may import the standard library and the packages that the recipe names. For an
item that has no answer, such as a damaged file, it raises `edgepack_runtime.errors.UsageError`: exit code 2, or 422.
"""

from __future__ import annotations

import json
import sys
import traceback
import types
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Tuple

from edgepack_runtime.bundle.model_config import HANDLER_NAME, HandlerConfig
from edgepack_runtime.engine.graphs import Graph
from edgepack_runtime.errors import BundleInvalidError, EdgepackError, StageFailedError, UsageError

CLASS = "Handler"
# Methods with their parameters, without `self`.
METHODS: Mapping[str, Tuple[str, ...]] = {
    "load": ("folder",),
    "preprocess": ("item",),
    "postprocess": ("outputs",),
    "predict": ("item", "graphs"),
    "score": ("answer", "expected"),
}


class Handler:
    """A loaded handler. Whatever it raises becomes an error that names the method and the line.

    Args:
        folder: a model folder.

    Raises:
        BundleInvalidError: there is no `handler.py`, or it has no class `Handler` with these methods.
        StageFailedError: it raises while it is imported or loaded.
    """

    def __init__(self, folder: Path, config: HandlerConfig, graphs: Mapping[str, Graph]) -> None:
        self._item, self._graphs = config.item, graphs
        module = _module(folder / HANDLER_NAME)
        found = getattr(module, CLASS, None)
        if not isinstance(found, type):
            raise _invalid(f"it has no class {CLASS}")
        self._handler: Any = _called("", found)
        has = {name for name in METHODS if callable(getattr(self._handler, name, None))}
        if "score" not in has or ("predict" not in has and not {"preprocess", "postprocess"} <= has):
            raise _invalid(f"{CLASS} has no `score`, or neither `predict` nor `preprocess` and `postprocess`")
        if "predict" not in has and len(graphs) != 1:
            raise _invalid(f"there are {len(graphs)} graphs, which need the method `predict`")
        self._straight = "predict" not in has
        if "load" in has:
            _called("load", self._handler.load, folder)

    def answer(self, item: Any) -> Any:
        """The answer for one item, as JSON makes it: a tuple is a list, a key is a text.

        Raises:
            UsageError: the item is not what the handler declares.
            StageFailedError: the handler raises, gives wrong inputs, or its answer is not JSON.
        """
        self._require_item(item)
        if self._straight:
            [graph] = self._graphs.values()
            outputs = graph(_called("preprocess", self._handler.preprocess, item))
            return _as_json(_called("postprocess", self._handler.postprocess, outputs))
        return _as_json(_called("predict", self._handler.predict, item, self._graphs))

    def score(self, answer: Any, expected: Any) -> float:
        """How right an answer is, 0 to 1.

        Raises:
            StageFailedError: the handler raises, or its score is something else.
        """
        found = _called("score", self._handler.score, answer, expected)
        try:
            number = float(found)
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if not 0 <= number <= 1:
            raise StageFailedError(
                "the handler's score is not a number from 0 to 1",
                why=f"`score` returned {found!r:.200}",
                fix="return 1 for a right answer, 0 for a wrong one",
            )
        return number

    def _require_item(self, item: Any) -> None:
        kind: Dict[str, Any] = {"text": str, "file": bytes}
        wanted = kind.get(self._item, object)
        if not isinstance(item, wanted):
            raise UsageError(
                f"an item of this model is {'a text' if wanted is str else 'the bytes of a file'}",
                why=f"it was given a {type(item).__name__}",
            )


def _module(path: Path) -> types.ModuleType:
    """The module of `path`. No bytecode is written: no manifest would list it."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise _invalid(f"it cannot be read: {error.strerror}") from error
    module = types.ModuleType("edgepack_handler")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look there
    module.__dict__["print"] = _print
    # The manifest has its hash, and a signature covers that.
    _called("", lambda: exec(compile(source, str(path), "exec"), module.__dict__))  # noqa: S102
    return module


def _print(*values: Any, **options: Any) -> None:
    """The `print` of handlers: standard output has answers alone."""
    print(*values, **{"file": sys.stderr, **options})  # noqa: T201


def _called(method: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `function`. Errors that it raises, apart from our own, name the line of the handler."""
    try:
        return function(*arguments)
    except (EdgepackError, KeyboardInterrupt):
        raise
    # A handler does not end the program, nor choose its exit code; the panic of a package in Rust is no `Exception`.
    except BaseException as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if _is_handler(frame.filename)]
        # The text of a SyntaxError names file and line already.
        where = f" ({HANDLER_NAME}, line {lines[-1]})" if lines and not isinstance(error, SyntaxError) else ""
        raise StageFailedError(
            f"the handler's {method} failed" if method else "the handler cannot be loaded",
            why=f"{type(error).__name__}: {error}{where}",
            fix=f"correct {HANDLER_NAME}; the recipe's `packages` name what it imports beyond the standard library",
        ) from error


def _is_handler(file: str) -> bool:
    return Path(file).name == HANDLER_NAME and file != __file__


def _as_json(answer: Any) -> Any:
    try:
        return json.loads(json.dumps(answer, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise StageFailedError(
            "the handler's answer is not JSON",
            why=f"{error}: {answer!r:.200}",
            fix="answer with Python's numbers, texts, lists and dicts; `tolist()` and `float()` convert those of NumPy",
        ) from error


def _invalid(why: str) -> BundleInvalidError:
    return BundleInvalidError(f"{HANDLER_NAME} is not a handler", why=why, fix="correct it and build the bundle again")
