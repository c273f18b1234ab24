"""ETags of keys: a text that names a value by its content, the same on every node and at every door.

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
    """The ETag of a value, with the quotes that belong to it."""
    return f'"{blake2b(value, digest_size=_DIGEST_BYTES).hexdigest()}"'


def is_etag(text: str) -> bool:
    """Whether a value could have this ETag."""
    return _ETAG.match(text) is not None
