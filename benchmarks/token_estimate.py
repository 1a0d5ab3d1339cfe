"""How far is the token estimate of `edgepack init` and `check` from what the tokenizer makes of the same texts?

Reads the texts of a table (.tsv .csv .jsonl) with `text` and `label` columns and compares `estimate_tokens` with the
runtime's tokenizer and a given vocabulary, uncut. Ends in one JSON line. Run:

    PYTHONPATH=packager:runtime python benchmarks/token_estimate.py --vocab vocab.txt train.tsv dev.tsv test.tsv
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from edgepack.data.finding_log import FindingLog
from edgepack.data.lengths import Lengths, estimate_tokens
from edgepack.data.tables import read_rows
from edgepack.recipe.model import Columns
from edgepack_runtime.bundle.model_config import TokenizerConfig
from edgepack_runtime.inference.tokenizer import ErnieTokenizer

UNCUT = 1_000_000  # tokens; longer than any line may be


def measure(texts: list[str], vocab: Path) -> dict[str, Any]:
    """Errors of the estimate in tokens a text, [CLS] and [SEP] included on both sides."""
    tokenizer = ErnieTokenizer(vocab, TokenizerConfig())
    true = np.array([len(tokenizer.encode([text], UNCUT)[0]) for text in texts])  # (texts,)
    error = np.array([estimate_tokens(text) for text in texts]) - true  # (texts,)
    estimated = Lengths.from_texts(texts)
    return {
        "texts": len(texts),
        "mean_tokens": round(float(true.mean()), 2),
        "mean_error_percent": round(100 * float(error.mean() / true.mean()), 3),
        "mean_absolute_error_tokens": round(float(np.abs(error).mean()), 3),
        "exact_share": round(float((error == 0).mean()), 4),
        "too_low_share": round(float((error < 0).mean()), 4),
        "largest_error_tokens": int(np.abs(error).max()),
        "p99": int(np.percentile(true, 99, method="inverted_cdf")),
        "p99_estimated": estimated.percentile(0.99),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocab", type=Path, required=True, help="vocab.txt of an ERNIE model")
    parser.add_argument("--columns", default="text,label", help="names of text and label, with a comma between")
    parser.add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()
    text, label = arguments.columns.split(",")
    columns = Columns(text=text, label=label)
    texts = [row.text for file in arguments.files for _, row in read_rows(file, columns, FindingLog(file))]
    names = [file.name for file in arguments.files]
    print(json.dumps({"benchmark": "token_estimate", "files": names, **measure(texts, arguments.vocab)}))


if __name__ == "__main__":
    main()
