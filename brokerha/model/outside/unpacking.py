"""Foreign msgpack: small input must not become large in memory.

The library refuses more than about a thousand levels; it keeps its own stack and does not recurse. An empty map takes one byte on
the wire and sixty in memory, a list of one item two bytes and fifty. Data with more of them than any message has is refused
during unpacking, before the rest is made.

>>> unpack_foreign(msgpack.packb([1, [2, {"a": 3}]]))
(1, (2, {'a': 3}))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack

MAPS_LIMIT = 100_000
"""More maps than any message has."""
LISTS_LIMIT = 100_000
SMALL_BYTES = min(MAPS_LIMIT, LISTS_LIMIT)
"""Each takes at least one byte, so data of this size cannot have too many, and is not counted."""
BYTES_OF_A_LIST = 8
"""Fewer bytes than any list takes in a message with many lists, so that one list for each of these is allowed in addition."""

BROKEN = (ValueError, TypeError, RecursionError, msgpack.UnpackException)
"""Exceptions of `unpack_foreign` for data that is not msgpack, or too much of it."""


def unpack_foreign(data: bytes, *, use_list: bool = False) -> Any:
    """Return the value; lists as tuples by default. Raises one of `BROKEN`."""
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
    """Return a hook for one call: it raises ValueError at the first map or list above the limit."""
    count = 0

    def hook(found: Any) -> Any:
        nonlocal count
        count += 1
        if count > most:
            raise ValueError(f"more than {most} {what}")
        return found

    return hook
