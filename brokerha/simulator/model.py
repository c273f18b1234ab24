"""What the content must be at each LSN: the fold of the synchronised queue, written a second time as simply as can be.

It shares with the stores only the digests of single items. A write that the clients of the simulator make is made of: keys put
or deleted, quads added to the repository ``main``, messages published and accepted, and what it expects of keys; one
that adds a quad to a repository that does not exist, accepts what is not there, or expects in vain is rejected.

**The bank**: tokens that transactions move between two tables and a queue. Each is at one place, whatever happens; so its total is the
same at every LSN of every copy.
"""

from __future__ import annotations

from brokerha.model.etags import etag_of
from brokerha.model.ids import Lsn, TxId
from brokerha.model.operations import APPLIED, REJECTED, Operation, message_id, unpack_operations
from brokerha.stores.fingerprint import (
    counts_digest,
    key_digest,
    message_digest,
    quads_digest,
    repository_digest,
    text_of,
)
from brokerha.stores.queue_change import Counts, Message

TABLES = ("left", "right")
QUEUE = "way"
"""Where tokens may be."""


class Model:
    """Outcome and fingerprint at each LSN."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.quads: set[str] = set()
        self.queues: dict[str, dict[str, tuple[int, Message]]] = {}
        """By name: place and message by id, in order."""
        self.published: dict[str, int] = {}
        self.accepted: dict[str, int] = {}
        self._fingerprint = repository_digest("main")
        self.outcomes: list[str] = [""]
        """By LSN; LSN 0 is before everything."""
        self.fingerprints: list[str] = [text_of(self._fingerprint)]

    def fold(self, txid: TxId, body: bytes) -> None:
        """The transaction at the next LSN."""
        operations = unpack_operations(body)
        rejected = not all(self._can(operation) for operation in operations)
        if not rejected:
            for place, operation in enumerate(operations, 1):
                self._do(txid, place, operation)
        self.outcomes.append(REJECTED if rejected else APPLIED)
        self.fingerprints.append(text_of(self._fingerprint))

    def _can(self, operation: Operation) -> bool:
        kind, name = operation[0], operation[1]
        if kind == "add":
            return bool(name == "main")
        if kind == "accept":
            return operation[2] in self.queues.get(name, ())
        if kind == "expect-key":
            value = self.keys.get(_row_key(name, operation[2]))
            return bool(operation[3] == ("" if value is None else etag_of(value)))
        return True

    def _do(self, txid: TxId, place: int, operation: Operation) -> None:
        kind, name = operation[0], operation[1]
        if kind == "add":
            self._add(operation[2])
        elif kind == "publish":
            self._publish(name, Message(message_id(txid, place), *operation[2:]))
        elif kind == "accept":
            self._accept(name, operation[2])
        elif kind != "expect-key":
            self._put(_row_key(name, operation[2]), operation[3] if len(operation) > 3 else None)

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

    def _publish(self, name: str, message: Message) -> None:
        self._count(name, 1, 0)
        self.queues.setdefault(name, {})[message.id] = self.published[name], message
        self._fingerprint ^= message_digest(name, self.published[name], message)

    def _accept(self, name: str, wanted: str) -> None:
        self._count(name, 0, 1)
        self._fingerprint ^= message_digest(name, *self.queues[name].pop(wanted))

    def _count(self, name: str, published: int, accepted: int) -> None:
        before = Counts(self.published.get(name, 0), self.accepted.get(name, 0))
        after = Counts(before.published + published, before.accepted + accepted)
        self.published[name], self.accepted[name] = after
        self._fingerprint ^= counts_digest(name, after) ^ (counts_digest(name, before) if before.published else 0)

    @property
    def items(self) -> int:
        """Keys, quads and messages held now."""
        return len(self.keys) + len(self.quads) + sum(map(len, self.queues.values()))

    def lsn(self) -> Lsn:
        """The last LSN folded."""
        return len(self.outcomes) - 1

    # ---- the bank

    def tokens(self) -> list[bytes]:
        """All tokens, wherever they are."""
        names = tuple(table.encode() + b"\0" for table in TABLES)
        values = [value for row_key, value in self.keys.items() if row_key.startswith(names)]
        return sorted([*values, *(message.body for _, message in self.queues.get(QUEUE, {}).values())])

    def place_of(self, token: bytes) -> tuple[str, str]:
        """(table, "") or (queue, message id) that has a token; two empty ones when none has."""
        for table in TABLES:
            if _row_key(table, token) in self.keys:
                return table, ""
        for each, (_, message) in self.queues.get(QUEUE, {}).items():
            if message.body == token:
                return QUEUE, each
        return "", ""


def _row_key(table: str, key: bytes) -> bytes:
    return table.encode() + b"\0" + key
