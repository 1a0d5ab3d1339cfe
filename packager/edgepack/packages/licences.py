"""The licence of a wheel as an SPDX expression, as far as its metadata names one without doubt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.message import Message
from typing import Final

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

UNKNOWN: Final = "NOASSERTION"  # as SPDX writes it
# Classifiers that stand for one licence in one version. "BSD License", for example, may mean several.
_CLASSIFIERS: Final[Mapping[str, str]] = {
    "Apache Software License": "Apache-2.0",  # no wheel is known under version 1
    "Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "GNU Affero General Public License v3": "AGPL-3.0-only",
    "GNU Affero General Public License v3 or later (AGPLv3+)": "AGPL-3.0-or-later",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v2 (LGPLv2)": "LGPL-2.0-only",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "Historical Permission Notice and Disclaimer (HPND)": "HPND",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "zlib/libpng License": "Zlib",
}
# Names in the field `License`, which is any text: lower case, without "the", "license", "version" and punctuation.
_NAMES: Final[Mapping[str, str]] = {
    "apache 2": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache software 2.0": "Apache-2.0",
    "2 clause bsd": "BSD-2-Clause",
    "bsd 2 clause": "BSD-2-Clause",
    "simplified bsd": "BSD-2-Clause",
    "3 clause bsd": "BSD-3-Clause",
    "bsd 3 clause": "BSD-3-Clause",
    "bsd 3": "BSD-3-Clause",
    "modified bsd": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "isc": "ISC",
    "mit": "MIT",
    "mpl 2.0": "MPL-2.0",
    "mozilla public 2.0": "MPL-2.0",
}
_FILLERS: Final = re.compile(r"\b(?:the|licen[cs]e|version|v(?=[0-9]))|[-,_()\s]+")


def expression_of(metadata: Message) -> str:
    """The SPDX expression of a wheel's METADATA.

    That is its `License-Expression`; else its field `License`, unless a known classifier contradicts it; else its
    classifiers, if all mean one licence; else `NOASSERTION`.
    """
    if expression := metadata.get("License-Expression"):
        return str(expression)
    named = _named(str(metadata.get("License", "")).strip())
    classified = {
        parts[-1]
        for value in metadata.get_all("Classifier", [])
        if (parts := str(value).split(" :: "))[0] == "License" and len(parts) > 1 and parts[-1] != "OSI Approved"
    }
    meant = {_CLASSIFIERS.get(classifier, UNKNOWN) for classifier in classified}
    if named:
        return UNKNOWN if meant - {named, UNKNOWN} else named
    return meant.pop() if len(meant) == 1 else UNKNOWN


def _named(text: str) -> str:
    """The SPDX expression in a field `License`; empty if it is something else, such as the licence's full text."""
    try:
        return canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return _NAMES.get(" ".join(_FILLERS.sub(" ", text.lower()).split()), "")
