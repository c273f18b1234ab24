"""What the content must be at each LSN: the fold of the synchronised queue, written a second time as simply as can be.

It shares with the stores only the digests of single items. A write that the clients of the simulator make is one of: keys put
or deleted, a quad added to the repository ``main``, or a quad added to a repository that does not exist, which is rejected.
"""

from __future__ import annotations

from brokerha.model.ids import Lsn
from brokerha.model.operations import APPLIED, REJECTED, unpack_operations
from brokerha.stores.fingerprint import key_digest, quads_digest, repository_digest, text_of


class Model:
    """Outcome and fingerprint at each LSN."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.quads: set[str] = set()
        self._fingerprint = repository_digest("main")
        self.outcomes: list[str] = [""]
        """By LSN; LSN 0 is before everything."""
        self.fingerprints: list[str] = [text_of(self._fingerprint)]

    def fold(self, body: bytes) -> None:
        """The transaction at the next LSN."""
        operations = unpack_operations(body)
        rejected = any(operation[0] == "add" and operation[1] != "main" for operation in operations)
        if not rejected:
            for operation in operations:
                if operation[0] == "add":
                    self._add(operation[2])
                else:
                    self._put(
                        operation[1].encode() + b"\0" + operation[2], operation[3] if len(operation) > 3 else None
                    )
        self.outcomes.append(REJECTED if rejected else APPLIED)
        self.fingerprints.append(text_of(self._fingerprint))

    def _add(self, text: str) -> None:
        quad = text.strip().removesuffix(".").rstrip()
        if quad not in self.quads:
            self.quads.add(quad)
            self._fingerprint ^= quads_digest("main", [quad])

    def _put(self, row_key: bytes, value: bytes | None) -> None:
        old = self.keys.pop(row_key, None)
        if old is not None:
            self._fingerprint ^= int.from_bytes(key_digest(row_key, old), "big")
        if value is not None:
            self.keys[row_key] = value
            self._fingerprint ^= int.from_bytes(key_digest(row_key, value), "big")

    @property
    def items(self) -> int:
        """Keys and quads held now."""
        return len(self.keys) + len(self.quads)

    def lsn(self) -> Lsn:
        """The last LSN folded."""
        return len(self.outcomes) - 1
