"""Messages that were in hand when the node ended: one that does so twice is put aside, unread.

The broker redelivers unacknowledged messages, so a message that ends its reader's process would end it again and again, and then
the next node's. So before messages are read, their digests are written into a small file that outlives the process, and removed
afterwards. A digest that is there at the start was in hand when the node ended:

    in hand      DIGEST_BYTES each, in mapped memory that the kernel writes, without a wait
    suspects     digest -> number of ends; forgotten once such a message was read, or after SUSPECTS_LIMIT others

A node that was killed while it read messages suspects innocent ones. The first time they are processed as usual, and are suspects
no more; the second time in a row they go into quarantine, and `brokerha quarantine retry` brings them back. A power failure
forgets suspicions, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from brokerha.model.errors import InvalidRequest, JournalError

DIGEST_BYTES: Final = 16
SLOTS: Final = 4096
"""Most messages watched at once; further ones are not watched."""
TIMES: Final = 2
"""A message that was in hand at so many ends of the node, and was never read between them, is put aside."""
SUSPECTS_LIMIT: Final = 10_000
_IN_HAND: Final = "in-hand"
_SUSPECTS: Final = "suspects.json"


class EndedTheNode(InvalidRequest):
    """The node ended more than once while it read this message."""


class Suspects:
    """The suspects of one node; used by one thread."""

    def __init__(self, directory: Path | None) -> None:
        """``directory`` is the node's own; without it nothing is remembered. Raises JournalError."""
        self.counts: dict[str, int] = {}
        self._map: mmap.mmap | None = None
        self._used = 0
        self._digests: list[bytes] = []
        self._kept: Path | None = None
        if directory is not None:
            try:
                self._open(directory)
            except OSError as error:
                raise JournalError(f"the directory {directory} of the journal cannot be used: {error}") from error

    def _open(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._kept, hand = directory / _SUSPECTS, directory / _IN_HAND
        try:
            found = json.loads(self._kept.read_text(encoding="ascii"))
            self.counts = {str(digest): int(times) for digest, times in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            # A missing or incomplete file: counting begins again.
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
            self._kept.write_text(json.dumps(self.counts), encoding="ascii")
            self._map[:] = bytes(size)

    def take_in_hand(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Note bodies that are read from now on, until `put_down`; return their digests."""
        digests = [hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest() for body in bodies]
        if self._map is not None:
            hand = b"".join(digests[:SLOTS])
            self._map[: len(hand)] = hand
            self._used = len(hand)
        self._digests = digests
        return digests

    def put_down(self) -> None:
        """Note that no message is being read; those that were, and did not end the node, are suspects no more."""
        if self._map is not None:
            self._map[: self._used] = bytes(self._used)
        if self.counts:
            self._forget({digest.hex() for digest in self._digests})

    def _forget(self, read: set[str]) -> None:
        """Forget suspects that were read; those put aside unread stay."""
        read = {digest for digest in read if 0 < self.counts.get(digest, 0) < TIMES}
        if read and self._kept is not None:
            self.counts = {digest: times for digest, times in self.counts.items() if digest not in read}
            # On a full disk the file keeps them, or none.
            with suppress(OSError):
                self._kept.write_text(json.dumps(self.counts), encoding="ascii")

    def check(self, digest: bytes) -> None:
        """Raise EndedTheNode for a message that was in hand too often when the node ended."""
        if self.counts and (times := self.counts.get(digest.hex(), 0)) >= TIMES:
            raise EndedTheNode(
                f"this node ended {times} times while it looked into this message, which is put aside unread: "
                "look at it with `brokerha quarantine show`, and at the log of the node"
            )
