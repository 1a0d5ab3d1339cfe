"""The head of bundles that carry no interpreter, for bundles that tests write."""

from __future__ import annotations

import hashlib

from edgepack.bundle.head import head

HEAD = head("test", "a bundle of the tests", {})
HEAD_SHA256 = hashlib.sha256(HEAD).hexdigest()
