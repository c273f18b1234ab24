"""A limit for what is unpacked from others: an empty map takes a byte on the wire and sixty in memory.

>>> import msgpack
>>> msgpack.unpackb(msgpack.packb([{}, {}]), object_hook=few_maps(2))
[{}, {}]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MAPS_LIMIT = 100_000
"""More than any message has."""


def few_maps(most: int = MAPS_LIMIT) -> Callable[[dict[Any, Any]], dict[Any, Any]]:
    """A hook for one call of msgpack: it raises ValueError with the first map too many, before the rest is made."""
    count = 0

    def hook(found: dict[Any, Any]) -> dict[Any, Any]:
        nonlocal count
        count += 1
        if count > most:
            raise ValueError(f"more than {most} maps")
        return found

    return hook
