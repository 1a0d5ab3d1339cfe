"""Write the characters that a recogniser of PP-OCR knows, from the metadata of its graph.

../../.venv/bin/python write_characters.py ch_PP-OCRv4_rec_infer.onnx characters.txt
"""

import sys
from pathlib import Path

import onnx

model, out = sys.argv[1:]
metadata = {entry.key: entry.value for entry in onnx.load(model).metadata_props}
Path(out).write_text("\n".join(metadata["character"].splitlines()), encoding="utf-8")
