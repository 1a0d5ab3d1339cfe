"""Signs receipts with the device's own key, where it has one (standard library only).

`/etc/edgepack/receipt_key` is an SSH private key without a passphrase, made on the device and known by its public half
to those who read its receipts. It says which device wrote a receipt, and that nobody changed it on the way; root of
that device may write what it likes. The namespace keeps its signatures from being taken for those of bundles.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Optional

from edgepack_runtime import trust
from edgepack_runtime.durable import write_atomic
from edgepack_runtime.errors import EdgepackError

NAMESPACE = "edgepack-receipt"
KEY_NAME = "receipt_key"
SUFFIX = ".sig"
_TIMEOUT_S = 60.0


def seal(receipt: Path, raw: bytes) -> Optional[str]:
    """Write the signature of the file `receipt`, whose bytes are `raw`, beside it.

    Returns:
        Why it could not be signed; None where it was, and where this device has no key.
    """
    key = trust.MACHINE / KEY_NAME
    try:
        trust.read_regular(key)  # a pipe would keep every verb waiting
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{key}: {error.strerror or error}"
    try:
        done = subprocess.run(
            [trust.tool(), "-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE],
            input=raw,
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            start_new_session=True,  # no terminal: a key with a passphrase is an error and no question
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0 or not done.stdout:
            return " ".join(done.stderr.decode("utf-8", "replace").split())[:200] or "ssh-keygen gave no signature"
        write_atomic(receipt.with_name(receipt.name + SUFFIX), done.stdout)
    except EdgepackError as error:
        return error.what
    except subprocess.TimeoutExpired:
        return f"ssh-keygen did not end within {_TIMEOUT_S:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return None
