"""The stub of bundles that carry no interpreter, for bundles that tests write."""

from __future__ import annotations

import hashlib

from edgepack.bundle.stub import stub

STUB = stub("test", "a bundle of the tests", {})
STUB_SHA256 = hashlib.sha256(STUB).hexdigest()
