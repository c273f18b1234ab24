"""Unpacking what others send: what is small on the wire must not be large in memory.

What is nested more than about a thousand levels deep is refused by the library, which keeps its own stack and does not recurse.
An empty map takes a byte on the wire and sixty in memory, a list of one item two bytes and fifty. What has more of them than any message
is refused while it is unpacked, before the rest is made.

>>> unpack_foreign(msgpack.packb([1, [2, {"a": 3}]]))
(1, (2, {'a': 3}))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

MAPS_LIMIT = 100_000
"""More than any message has."""
LISTS_LIMIT = 100_000
SMALL_BYTES = min(MAPS_LIMIT, LISTS_LIMIT)
"""Each takes a byte at least, so that no data of this size have too many, and nothing has to be counted."""
BYTES_OF_A_LIST = 8
"""Fewer than any list of a message takes where there are many, so that a list for each of them is allowed besides."""

BROKEN = (ValueError, TypeError, RecursionError, msgpack.UnpackException)
"""What `unpack_foreign` raises of data that are no msgpack, or too much of it."""


def unpack_foreign(data: bytes, *, use_list: bool = False) -> Any:
    """The value; lists as tuples, if not asked for. Raises one of `BROKEN`."""
    if len(data) <= SMALL_BYTES:
        return msgpack.unpackb(data, use_list=use_list, strict_map_key=True, max_ext_len=0)
    return msgpack.unpackb(
        data,
        use_list=use_list,
        strict_map_key=True,
        max_ext_len=0,
        object_hook=_at_most(MAPS_LIMIT, "maps"),
        list_hook=_at_most(LISTS_LIMIT + len(data) // BYTES_OF_A_LIST, "lists"),
    )


def _at_most(most: int, what: str) -> Callable[[Any], Any]:
    """A hook for one call: it raises ValueError with the first one too many."""
    count = 0

    def hook(found: Any) -> Any:
        nonlocal count
        count += 1
        if count > most:
            raise ValueError(f"more than {most} {what}")
        return found

    return hook
