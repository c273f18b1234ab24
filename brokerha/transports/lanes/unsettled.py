"""Delivery tags of messages of apps, from delivery until they are settled: as few acknowledgements as possible.

AMQP can acknowledge one delivery, or all up to one. Apps' messages are settled in groups, mostly in the order in
which they came, but a slow read may hold one back; it must not hold back the others, or prefetch would stop the node.

>>> tags = Unsettled()
>>> for tag in (1, 2, 3, 4, 5):
...     tags.deliver(tag)
>>> tags.settle([1, 2, 4])
[(2, True), (4, False)]
>>> tags.settle([3])
[(3, True)]
>>> tags.settle([3])
[]

Invariants: a tag is acknowledged once, also when it is settled twice; a tag that was never delivered is ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Unsettled:
    """The tags of one channel; made anew with it, used by one thread."""

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        """Delivered tags, ascending, from the oldest that is not settled on."""
        self._open: set[int] = set()

    def __len__(self) -> int:
        """How many are not settled."""
        return len(self._open)

    def deliver(self, tag: int) -> None:
        """Note a delivery; tags ascend."""
        self._order.append(tag)
        self._open.add(tag)

    def settle(self, tags: Iterable[int]) -> list[tuple[int, bool]]:
        """Settle tags; return the acknowledgements to send, as (tag, multiple)."""
        settled = self._open.intersection(tags)
        self._open -= settled
        up_to = 0
        while self._order and self._order[0] not in self._open:
            tag = self._order.popleft()
            if tag in settled:
                settled.discard(tag)
                up_to = tag
        acknowledgements = [(up_to, True)] if up_to else []
        return acknowledgements + [(tag, False) for tag in sorted(settled)]
