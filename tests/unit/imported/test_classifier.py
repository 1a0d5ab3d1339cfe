"""Stage `graphs` of an imported classifier: what its graph does to padding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.unit.onnx_graph.imported_texts import NAMES, model

from edgepack.imported import classifier, conversion
from edgepack.onnx_graph.imported_classifier import ImportedClassifier

PAD_ID = 0


@pytest.mark.parametrize(("names", "hides"), [(NAMES, True), (NAMES[:1], False), (NAMES[:2], False)])
@pytest.mark.parametrize("lengths", [(5,), (5, 5), (16,), (3, 16)])
def test_padding_is_tried_whatever_the_lengths(
    tmp_path: Path, names: Sequence[str], hides: bool, lengths: Sequence[int]
) -> None:
    """Rows of one length need no padding, and show nothing of it."""
    file = tmp_path / "model.onnx"
    onnx.save(ImportedClassifier(model(names=names)).adapted(PAD_ID), str(file))
    drawn = np.random.default_rng(0)
    batches = [
        (drawn.integers(1, 12, (1, length)).astype(np.int64), np.zeros((1, length), np.int64)) for length in lengths
    ]
    assert classifier._hides_padding(conversion.session(file), batches, PAD_ID, 16) is hides
