"""Handlers: what they may be, and what becomes of all that goes wrong in them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.unit.runtime.imported_model import HANDLER, write_graph, write_imported

from edgepack_runtime.errors import BundleInvalidError, EdgepackError, StageFailedError, UsageError
from edgepack_runtime.inference.loaded_model import JsonPrediction
from edgepack_runtime.inference.predictor import Predictor

SCORE = "    def score(self, answer, expected):\n        return 1\n"
TWO_GRAPHS = (
    """\
class Handler:
    item = "json"
    def predict(self, item, graphs):
        first = graphs["first"]({"x": [item]})["y"]
        second = graphs["second"]({"x": first})
        return {"shape": first.shape, "of": sorted(graphs), "y": second["y"].tolist()[0]}
"""
    + SCORE
)


def with_lines(*lines: str, method: str = "postprocess(self, outputs)") -> str:
    """A handler with these lines in one of its methods; the first is line 4."""
    methods = {"preprocess(self, item)": 'return {"x": [[1.0] * 4]}', "postprocess(self, outputs)": "return 1"}
    methods["score(self, answer, expected)"] = "return 1"
    body = "\n        ".join(lines)
    rest = "".join(f"    def {name}:\n        {code}\n" for name, code in methods.items() if name != method)
    return f'class Handler:\n    item = "json"\n    def {method}:\n        {body}\n{rest}'


def opened(folder: Path, source: str, **options: Any) -> Predictor:
    return Predictor(write_imported(folder / "m", handler=source, **options))


def test_one_graph_answers_between_preprocess_and_postprocess(tmp_path: Path) -> None:
    predictor = Predictor(write_imported(tmp_path / "m"))
    found, split = predictor.timed_predict([0, 0, 0])
    assert found == JsonPrediction(7.0)
    assert found.as_json(with_scores=False) == 7.0
    assert split.tokenize_ms >= 0
    assert split.run_ms > 0
    assert split.post_ms >= 0
    assert predictor.providers == ("CPUExecutionProvider",)
    assert predictor.engine.startswith("onnxruntime ")
    assert [one.answer for one in predictor.predict_batch([[], [0]])] == [1.0, 3.0]
    assert predictor.predict([0, 0, 0]) == found  # a list is one item, and a text may be empty
    assert [one.answer for one in predictor.stream([[], [0], [0, 0]])] == [1.0, 3.0, 5.0]
    assert (predictor.score(7.0, 7), predictor.score(7.0, 7.25), predictor.score(7.0, 9)) == (1.0, 0.75, 0.0)
    assert (predictor.labels, predictor.cut_texts, predictor.combined) == ((), 0, None)
    with pytest.raises(UsageError, match="no logits"):
        predictor.logits(["a"])


def test_several_graphs_are_called_by_name_and_their_tensors_passed_on(tmp_path: Path) -> None:
    predictor = opened(tmp_path, TWO_GRAPHS, graphs=("first", "second"))
    answer = {"shape": [1, 4], "of": ["first", "second"], "y": [7.0, 11.0, 15.0, 19.0]}
    assert predictor.predict([1, 2, 3, 4]) == JsonPrediction(answer)


def test_a_handler_is_loaded_once_with_its_folder(tmp_path: Path) -> None:
    load = '    def load(self, folder):\n        self.word = (folder / "word.txt").read_text()\n'
    source = with_lines("return self.word") + load
    (tmp_path / "m").mkdir()
    (tmp_path / "m/word.txt").write_text("好", encoding="utf-8")
    predictor = opened(tmp_path, source)
    assert predictor.predict(0) == JsonPrediction("好")
    assert not list((tmp_path / "m").glob("__pycache__"))


def test_numpy_may_come_and_go(tmp_path: Path) -> None:
    lines = ("import numpy", 'array = numpy.asarray(outputs["y"])', "return float(array.sum())")
    assert opened(tmp_path, with_lines(*lines)).predict(0) == JsonPrediction(12.0)
    source = with_lines(
        "import numpy", 'return {"x": numpy.ones((2, 4), "float32").T.copy().T}', method="preprocess(self, item)"
    )
    assert opened(tmp_path / "b", source).predict(0) == JsonPrediction(1)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "it has no class Handler"),
        ("Handler = 3", "it has no class Handler"),
        ("class Handler:\n    pass", "has no `score`"),
        ("class Handler:\n" + SCORE, "neither `predict` nor `preprocess` and `postprocess`"),
        ("class Handler:\n    postprocess = 3\n    def preprocess(self, item): ...\n" + SCORE, "neither `predict`"),
    ],
)
def test_a_class_without_its_methods_is_no_handler(tmp_path: Path, source: str, words: str) -> None:
    with pytest.raises(BundleInvalidError, match="is not a handler") as caught:
        opened(tmp_path, source)
    assert words in str(caught.value)


def test_several_graphs_need_predict(tmp_path: Path) -> None:
    with pytest.raises(BundleInvalidError, match="there are 2 graphs, which need the method `predict`"):
        opened(tmp_path, HANDLER.format(item="json"), graphs=("a", "b"))


def test_a_model_folder_without_its_handler_is_refused(tmp_path: Path) -> None:
    (write_imported(tmp_path / "m") / "handler.py").unlink()
    with pytest.raises(BundleInvalidError, match="No such file"):
        Predictor(tmp_path / "m")


@pytest.mark.parametrize(
    ("source", "what", "why"),
    [
        ("class Handler:\n  def", "cannot be loaded", "line 2"),
        ("x = 1\nimport a_package_that_is_not_there\n", "cannot be loaded", "handler.py, line 2"),
        ("class Handler:\n    def __init__(self):\n        1 / 0\n", "cannot be loaded",
         "ZeroDivisionError: division by zero (handler.py, line 3)"),
        (with_lines("return 1") + "    def load(self, folder):\n        (folder / 'no').read_text()\n",
         "load failed", "FileNotFoundError"),
    ],
)  # fmt: skip
def test_what_fails_while_it_is_loaded_names_the_line(tmp_path: Path, source: str, what: str, why: str) -> None:
    with pytest.raises(StageFailedError, match=what) as caught:
        opened(tmp_path, source)
    assert why in str(caught.value)
    assert "handler.py, line" in str(caught.value)


@pytest.mark.parametrize(
    "method", ["preprocess(self, item)", "postprocess(self, outputs)", "score(self, answer, expected)"]
)
def test_what_fails_in_a_method_names_the_method_and_the_line(tmp_path: Path, method: str) -> None:
    lines = ("def deeper():", "    return {}[5]", "return deeper()")
    predictor = opened(tmp_path, with_lines(*lines, method=method))
    with pytest.raises(StageFailedError, match=f"the handler's {method.partition('(')[0]} failed") as caught:
        predictor.score(predictor.predict(0).answer, 0)  # type: ignore[union-attr]
    assert caught.value.why == "KeyError: 5 (handler.py, line 5)"


@pytest.mark.parametrize(
    "answer", ["{1, 2}", "object()", "float('nan')", "float('inf')", "outputs", "outputs['y']", "b'a'", "{(1, 2): 3}"]
)
def test_an_answer_that_is_no_json_is_refused(tmp_path: Path, answer: str) -> None:
    with pytest.raises(StageFailedError, match="the handler's answer is not JSON"):
        opened(tmp_path, with_lines(f"return {answer}")).predict(0)


def test_an_answer_that_contains_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="the handler's answer is not JSON"):
        opened(tmp_path, with_lines("found = []", "found.append(found)", "return found")).predict(0)


def test_an_answer_is_what_json_makes_of_it(tmp_path: Path) -> None:
    answer = opened(tmp_path, with_lines("return {1: (True, None), 'a': '\\ud800'}")).predict(0)
    assert answer == JsonPrediction({"1": [True, None], "a": "\ud800"})


@pytest.mark.parametrize(
    "score", ["1.0001", "-0.1", "float('nan')", "float('inf')", "10**400", "None", "'right'", "[1]", "1j"]
)
def test_a_score_that_is_not_from_0_to_1_is_refused(tmp_path: Path, score: str) -> None:
    predictor = opened(tmp_path, with_lines(f"return {score}", method="score(self, answer, expected)"))
    with pytest.raises(StageFailedError, match="not a number from 0 to 1"):
        predictor.score(1, 1)


@pytest.mark.parametrize("score", ["True", "0", "'0.5'", "__import__('numpy').float32(0.5)"])
def test_a_score_is_whatever_a_float_is_made_of(tmp_path: Path, score: str) -> None:
    predictor = opened(tmp_path, with_lines(f"return {score}", method="score(self, answer, expected)"))
    assert 0 <= predictor.score(1, 1) <= 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{}", "it gave []; the graph reads ['x']"),
        ("{'y': [[1.0] * 4]}", "it gave ['y']"),
        ("{'x': [[1.0] * 4], 'z': 1}", "it gave ['x', 'z']"),
        ("{1: 2}", "it gave ['1']"),
        ("[[1.0] * 4]", "it gave list"),
        ("None", "it gave NoneType"),
        ("{'x': 'text'}", "the handler's input 'x' does not fit"),
        ("{'x': [[1.0] * 3]}", "could not be run"),
        ("{'x': [1.0] * 4}", "could not be run"),
    ],
)
def test_inputs_that_the_graph_does_not_read_are_refused(tmp_path: Path, given: str, words: str) -> None:
    predictor = opened(tmp_path, with_lines(f"return {given}", method="preprocess(self, item)"))
    with pytest.raises(StageFailedError) as caught:
        predictor.predict(0)
    assert words in str(caught.value)


def test_no_rows_are_a_batch_too(tmp_path: Path) -> None:
    import_numpy = "import numpy"
    source = with_lines(import_numpy, 'return {"x": numpy.zeros((0, 4), "float32")}', method="preprocess(self, item)")
    predictor = opened(tmp_path, source.replace("return 1\n", 'return outputs["y"].tolist()\n', 1))
    assert predictor.predict(0) == JsonPrediction([])


@pytest.mark.parametrize(("item", "wrong"), [("text", b"a"), ("text", 1), ("file", "a"), ("file", None)])
def test_an_item_of_another_kind_is_refused(tmp_path: Path, item: str, wrong: Any) -> None:
    predictor = Predictor(write_imported(tmp_path / "m", item=item))
    assert predictor.predict("ab" if item == "text" else b"ab") == JsonPrediction(5.0)
    with pytest.raises(UsageError, match="an item of this model is"):
        predictor.predict(wrong)


@pytest.mark.parametrize("dtype", [TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32, TensorProto.FLOAT16])
def test_graphs_of_other_types_run(tmp_path: Path, dtype: int) -> None:
    write_imported(tmp_path / "m", handler=with_lines('return outputs["y"].dtype'))
    write_graph(tmp_path / "m/model.onnx", dtype=dtype)
    if dtype in (TensorProto.INT64, TensorProto.INT32):
        source = (tmp_path / "m/handler.py").read_text().replace("1.0", "1")
        (tmp_path / "m/handler.py").write_text(source, encoding="utf-8")
    assert Predictor(tmp_path / "m").predict(0) == JsonPrediction(np.dtype(helper.tensor_dtype_to_np_dtype(dtype)).name)


def test_a_graph_of_texts_cannot_be_called(tmp_path: Path) -> None:
    write_imported(tmp_path / "m")
    texts = [helper.make_tensor_value_info(name, TensorProto.STRING, ["N"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "texts", texts[:1], texts[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m/model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(BundleInvalidError, match="its input 'x' is of type 8"):
        Predictor(tmp_path / "m")


def test_windows_and_other_options_of_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="reads each item as a whole"):
        Predictor(write_imported(tmp_path / "m"), long_texts="windows")


def test_threads_get_their_own_answers(tmp_path: Path) -> None:
    predictor = Predictor(write_imported(tmp_path / "m"))
    found: dict[int, Any] = {}

    def ask(length: int) -> None:
        found[length] = [predictor.predict([0] * length).answer for _ in range(20)]  # type: ignore[union-attr]

    threads = [threading.Thread(target=ask, args=(length,)) for length in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {length: [2.0 * length + 1] * 20 for length in range(8)}


def test_a_handler_does_not_end_the_program(tmp_path: Path) -> None:
    predictor = opened(tmp_path, with_lines("import sys", "sys.exit(0)"))
    with pytest.raises(StageFailedError, match="the handler's postprocess failed") as caught:
        predictor.predict(0)
    assert caught.value.why == "SystemExit: 0 (handler.py, line 5)"


def test_the_panic_of_a_package_is_an_error_of_the_handler(tmp_path: Path) -> None:
    predictor = opened(tmp_path, with_lines("raise type('PanicException', (BaseException,), {})('boom')"))
    with pytest.raises(StageFailedError) as caught:
        predictor.predict(0)
    assert str(caught.value.why).startswith("PanicException: boom (handler.py, line ")


def test_our_own_errors_pass_through_a_handler(tmp_path: Path) -> None:
    source = with_lines("raise KeyboardInterrupt", method="preprocess(self, item)")
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path, source).predict(0)
    with pytest.raises(EdgepackError, match="does not give the inputs"):
        opened(tmp_path / "b", TWO_GRAPHS.replace('{"x": [item]}', "{}"), graphs=("first", "second")).predict([1])


def test_what_a_handler_prints_goes_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = with_lines("print('a', 1, sep='-')", "return 1") + "print('loaded')\n"
    assert opened(tmp_path, source).predict(0) == JsonPrediction(1)
    assert capsys.readouterr() == ("", "loaded\na-1\n")


def test_an_error_outside_of_the_handler_names_no_line(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError) as caught:
        opened(tmp_path, HANDLER.format(item="json").replace("(self, item)", "(self)")).predict(0)
    assert caught.value.why.startswith("TypeError:")
    assert "line" not in caught.value.why
    with pytest.raises(StageFailedError) as caught:
        opened(tmp_path, "class Handler:\n\n\n  def")
    assert caught.value.why.endswith("(handler.py, line 4)")
    assert caught.value.why.count("handler.py") == 1
