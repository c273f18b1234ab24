"""ETags of keys: a text that identifies a value by its content, the same on every node and interface.

>>> etag_of(b"v")
'"532f4bd209979d816d52ecfb3b2d26df"'
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

_DIGEST_BYTES: Final = 16
_ETAG: Final = re.compile(r'"[0-9a-f]{32}"\Z')


def etag_of(value: bytes) -> str:
    """Return the ETag of a value, including its quotes."""
    return f'"{blake2b(value, digest_size=_DIGEST_BYTES).hexdigest()}"'


def is_etag(text: str) -> bool:
    """Tell whether this is a valid ETag."""
    return _ETAG.match(text) is not None
