"""Messages that were in hand when the node ended: one that ends it twice is put aside, unread.

The broker delivers what was not acknowledged again, so a message that ends the process that reads it would end it for ever, and then each
other one that it is given to. So before messages are looked into, their digests are written into a small file that outlives the process, and
taken out afterwards. What stands there at the start was in hand when the node ended:

    in hand      DIGEST_BYTES each, in a map of memory that the kernel writes: nothing is waited for
    suspects     digest -> how often; written at the start, forgotten after SUSPECTS_LIMIT others

A node that was killed while it looked into messages has suspected innocent ones: they are taken as usual, and only at the second time
put into quarantine, from where `brokerha quarantine retry` brings them back. The loss of power forgets suspicions; nothing else is lost.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from brokerha.model.errors import InvalidRequest

DIGEST_BYTES: Final = 16
SLOTS: Final = 4096
"""Messages that are looked into at once; those beyond it are not watched."""
TIMES: Final = 2
"""So often a message may have been in hand when the node ended."""
SUSPECTS_LIMIT: Final = 10_000
_IN_HAND: Final = "in-hand"
_SUSPECTS: Final = "suspects.json"


class EndedTheNode(InvalidRequest):
    """The node ended while it looked into this message, more than once."""


class Suspects:
    """The suspects of one node. One thread."""

    def __init__(self, directory: Path | None) -> None:
        """``directory`` is the node's own; without one nothing is remembered."""
        self.counts: dict[str, int] = {}
        self._map: mmap.mmap | None = None
        self._used = 0
        if directory is not None:
            self._open(directory)

    def _open(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        kept, hand = directory / _SUSPECTS, directory / _IN_HAND
        try:
            found = json.loads(kept.read_text(encoding="ascii"))
            self.counts = {str(digest): int(times) for digest, times in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            # None yet, or one that was not written to its end: counting begins anew.
            self.counts = {}
        size = DIGEST_BYTES * SLOTS
        with hand.open("a+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)
        left = [self._map[at : at + DIGEST_BYTES] for at in range(0, size, DIGEST_BYTES)]
        if any(map(any, left)):
            for digest in filter(any, left):
                times = self.counts.pop(digest.hex(), 0)
                self.counts[digest.hex()] = times + 1
            self.counts = dict(list(self.counts.items())[-SUSPECTS_LIMIT:])
            kept.write_text(json.dumps(self.counts), encoding="ascii")
            self._map[:] = bytes(size)

    def take_in_hand(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Digests of bodies that are looked into from now on, until `put_down`."""
        digests = [hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest() for body in bodies]
        if self._map is not None:
            hand = b"".join(digests[:SLOTS])
            self._map[: len(hand)] = hand
            self._used = len(hand)
        return digests

    def put_down(self) -> None:
        """Nothing is looked into any more."""
        if self._map is not None:
            self._map[: self._used] = bytes(self._used)

    def check(self, digest: bytes) -> None:
        """Raise EndedTheNode for a message that was in hand too often when the node ended."""
        if self.counts and (times := self.counts.get(digest.hex(), 0)) >= TIMES:
            raise EndedTheNode(
                f"this node ended {times} times while it looked into this message, which is put aside unread: "
                "look at it with `brokerha quarantine show`, and at the log of the node"
            )
