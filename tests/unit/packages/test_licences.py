from __future__ import annotations

from email.parser import HeaderParser

import pytest

from edgepack.packages import licences


@pytest.mark.parametrize(
    ("metadata", "expression"),
    [
        ("License-Expression: MIT-CMU\nLicense: other", "MIT-CMU"),
        ("License: Apache 2.0\nClassifier: License :: OSI Approved :: Apache Software License", "Apache-2.0"),
        ("License: Apache License, Version 2.0", "Apache-2.0"),
        ("License: BSD 3-Clause\nClassifier: License :: OSI Approved :: BSD License", "BSD-3-Clause"),
        (
            "License: MIT\nClassifier: License :: OSI Approved\nClassifier: License :: OSI Approved :: MIT License",
            "MIT",
        ),
        ("License: The MIT License (MIT)", "NOASSERTION"),
        ("License: mit", "MIT"),
        ("License: Apache-2.0 OR BSD-2-Clause", "Apache-2.0 OR BSD-2-Clause"),
        ("Classifier: License :: OSI Approved :: ISC License (ISCL)", "ISC"),
        ("Classifier: License :: OSI Approved :: BSD License", "NOASSERTION"),  # of two or three clauses
        (
            "Classifier: License :: OSI Approved :: MIT License\n"
            "Classifier: License :: OSI Approved :: Apache Software License",
            "NOASSERTION",  # one of them, or both
        ),
        ("License: MIT\nClassifier: License :: OSI Approved :: Apache Software License", "NOASSERTION"),
        ("License: Copyright (c) 2005-2024, NumPy Developers.\n        All rights reserved.", "NOASSERTION"),
        ("Summary: nothing", "NOASSERTION"),
    ],
)
def test_the_expression_is_named_only_without_doubt(metadata: str, expression: str) -> None:
    assert licences.expression_of(HeaderParser().parsestr(f"{metadata}\n\n")) == expression
