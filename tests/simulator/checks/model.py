"""The right content at each LSN, computed from the synchronised queue by a second, very simple implementation.

It shares with the stores only the digests of single items, the format of a prepared branch's value, and the book of staged parts.
Writes of the simulator's clients consist of keys put or deleted, quads added to the repository ``main``, messages published and
accepted, and expectations on keys. A write that adds a quad to a missing repository, accepts a missing message, or has a wrong
expectation is rejected. So is a change of an item that a prepared branch reads or writes; the commit of a branch never is.

**The bank**: tokens that transactions move between two tables and a queue. Each token is always at exactly one place, so their
total is the same at every LSN of every copy.
"""

from __future__ import annotations

from typing import Any

from brokerha.model.errors import Rejected
from brokerha.model.etags import etag_of
from brokerha.model.ids import Lsn, Timestamp, TxId
from brokerha.model.operations import (
    APPLIED,
    ON_STAGED,
    REJECTED,
    Accept,
    Add,
    By,
    Change,
    Checked,
    Clear,
    CommitStaged,
    Delete,
    ExpectKey,
    Operation,
    Publish,
    Published,
    PublishPieces,
    Put,
    QuadsChanged,
    Update,
    message_id,
    operations_to_execute,
    unpack_operations,
)
from brokerha.model.outside.authors import taken_author
from brokerha.model.reserved import branches, staging
from brokerha.model.reserved.pieces import PREFIX, Body, Pieces, packed_bodies, packed_pieces
from brokerha.model.unfolding import operations_of
from brokerha.stores.comparing.fingerprint import (
    counts_digest,
    key_digest,
    message_digest,
    quads_digest,
    repository_digest,
    text_of,
)
from brokerha.stores.control.suite import EMPTY
from brokerha.stores.execution.prepared import value_of
from brokerha.stores.execution.staged import BEGINNING as STAGED
from brokerha.stores.execution.staged import Parts
from brokerha.stores.tables.queue_change import Counts, Message, order_of

TABLES = ("left", "right")
CLEAR_ABOVE_QUADS = 1
"""So few that both ways of emptying a repository occur: with its quads named, and without."""
QUEUE = "way"
"""Places of tokens."""


class Model:
    """Outcome and fingerprint at each LSN."""

    def __init__(self) -> None:
        self.keys: dict[bytes, bytes] = {}
        self.quads: set[str] = set()
        self.queues: dict[str, dict[str, tuple[int, Message]]] = {}
        """By name: place and message by id, in order."""
        self.published: dict[str, int] = {}
        self.accepted: dict[str, int] = {}
        self.prepared: dict[TxId, list[Checked]] = {}
        """Operations of the prepared branches."""
        self._values: dict[bytes, list[tuple[Lsn, bytes | None]]] = {}
        """By key: its values, each with the LSN from which it holds."""
        self._bodies: dict[tuple[str, str], tuple[TxId, Body]] = {}
        """By queue and message: the large transaction with its body, and the parts."""
        self._fingerprint = repository_digest("main")
        self.outcomes: list[str] = [""]
        """By LSN; LSN 0 is the empty beginning."""
        self.fingerprints: list[str] = [text_of(self._fingerprint)]

    def fold(self, txid: TxId, timestamp: Timestamp, body: bytes) -> None:
        """Execute the transaction at the next LSN."""
        branch = branches.branch_of(body)
        operations = operations_to_execute(body) if branch is None else []
        by = taken_author(operations)
        if any(isinstance(operation, ON_STAGED) for operation in operations):
            rejected = not self._on_staged(txid, timestamp, operations, by)
        elif branch is None:
            rejected = not self._can_all(operations) or self._disturbs(operations)
            if not rejected:
                self._do_all(txid, operations)
        elif branch.step == branches.PREPARE:
            rejected = not self._prepare(branch.txid, unpack_operations(branch.body))
        else:
            kept = self.prepared.pop(branch.txid, None)
            rejected = kept is None and branch.step == branches.COMMIT
            self._put(_row_key(branches.TABLE, branch.txid.encode()), None)
            if kept is not None and branch.step == branches.COMMIT:
                self._do_all(branch.txid, kept)
        self.outcomes.append(REJECTED if rejected else APPLIED)
        self.fingerprints.append(text_of(self._fingerprint))

    def _on_staged(self, txid: TxId, timestamp: Timestamp, operations: list[Checked], by: list[By]) -> bool:
        """Execute a part, the commit or the end of a large transaction, by the stores' rules; tell whether it was applied."""
        last = operations[-1]
        book = Parts((key, value) for key, value in self.keys.items() if key.startswith(STAGED))
        try:
            if not isinstance(last, CommitStaged):
                for change in book.changes_of(operations, self.lsn() + 1, timestamp, by):
                    if isinstance(change, (Put, Delete)):
                        self._put(_row_key(change.table, change.key), change.after)
                return True
            book.committed(last, txid, by)
        except Rejected:
            return False
        row_keys = [_part_key(last.name, part) for part in range(1, last.parts + 1)]
        made = [each for key in row_keys for each in operations_of(self.keys[key])]
        if not self._can_all(made) or self._disturbs(made):
            return False
        published, bodies = 0, list[Body]()
        for each in made:
            published += isinstance(each, (Publish, PublishPieces))
            self._do(txid, published, each)
            if isinstance(each, PublishPieces):
                bodies.append(Body(each.queue, message_id(txid, published), each.first, each.last))
        stays = {_part_key(last.name, number) for body in bodies for number in range(body.first, body.last + 1)}
        for key in {*row_keys} - stays:
            self._put(key, None)
        if bodies:
            self._put(_part_key(last.name, 0), packed_bodies(bodies))
        self._bodies.update({(body.queue, body.message_id): (last.name, body) for body in bodies})
        return True

    def _prepare(self, txid: TxId, operations: list[Checked]) -> bool:
        if txid in self.prepared:
            return True
        by = taken_author(operations)
        if not self._can_all(operations) or self._disturbs(operations, is_branch=True):
            return False
        value = value_of(operations, [*self._net(txid, operations), *by], EMPTY, lambda text: [_quad(text)])
        self.prepared[txid] = operations
        self._put(_row_key(branches.TABLE, txid.encode()), value)
        return True

    def _disturbs(self, operations: list[Checked], *, is_branch: bool = False) -> bool:
        """Tell whether operations change what a prepared branch reads or writes; for a branch also whether they read its writes."""
        if any(isinstance(each, (Update, Clear)) for each in operations):
            held = {quad for kept in self.prepared.values() for kind, _, quad in _items(kept) if kind == "quad"}
            # A large transaction never names the removed quads.
            is_unnamed = len(self.quads) > CLEAR_ABOVE_QUADS or any(isinstance(each, Clear) for each in operations)
            if held if is_unnamed else held & self.quads:
                return True
        return any(
            _items(operations, writes=True) & _items(kept) or (is_branch and _items(operations) & _items(kept, writes=True))
            for kept in self.prepared.values()
        )

    def _net(self, txid: TxId, operations: list[Checked]) -> list[Change]:
        """Return the effect of operations."""
        changes: list[Change] = []
        quads = sorted({_quad(each.text) for each in operations if isinstance(each, Add)} - self.quads)
        if quads:
            changes.append(QuadsChanged("quads", "main", (), tuple(quads)))
        keys = {_row_key(each.table, each.key): each for each in operations if isinstance(each, (Put, Delete))}
        changes += [each for key, each in keys.items() if self.keys.get(key) != each.after]
        changes += [each for each in operations if isinstance(each, Accept)]
        for place, each in enumerate(operations, 1):
            if isinstance(each, Publish):
                changes.append(Published("publish", each.queue, message_id(txid, place), *each[2:]))
        return sorted(changes, key=order_of)

    def _can_all(self, operations: list[Checked]) -> bool:
        return all(self._can(operation) for operation in operations)

    def _do_all(self, txid: TxId, operations: list[Checked]) -> None:
        for place, operation in enumerate(operations, 1):
            self._do(txid, place, operation)

    def _can(self, operation: Checked) -> bool:
        match operation:
            case Add():
                return operation.repository == "main"
            case Accept():
                return operation.message_id in self.queues.get(operation.queue, ())
            case ExpectKey():
                value = self.keys.get(_row_key(operation.table, operation.key))
                return operation.etag == ("" if value is None else etag_of(value))
        return True

    def _do(self, txid: TxId, place: int, operation: Checked) -> None:
        match operation:
            case Add():
                self._add(operation.text)
            case Update() | Clear():
                # The only kind of update removes all quads.
                self._fingerprint ^= quads_digest("main", self.quads)
                self.quads.clear()
            case Publish():
                self._publish(operation.queue, Message(message_id(txid, place), operation.content_type, operation.body))
            case PublishPieces():
                body = packed_pieces(Pieces(txid, operation.first, operation.last, operation.size_bytes))
                name = message_id(txid, place)
                self._publish(operation.queue, Message(name, PREFIX + operation.content_type, body))
            case Accept():
                self._accept(operation.queue, operation.message_id)
                if (found := self._bodies.pop((operation.queue, operation.message_id), None)) is not None:
                    self._take_body(*found)
            case Put() | Delete():
                self._put(_row_key(operation.table, operation.key), operation.after)

    def _add(self, text: str) -> None:
        quad = _quad(text)
        if quad not in self.quads:
            self.quads.add(quad)
            self._fingerprint ^= quads_digest("main", [quad])

    def _put(self, row_key: bytes, value: bytes | None) -> None:
        self._values.setdefault(row_key, []).append((self.lsn() + 1, value))
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

    def _take_body(self, name: TxId, body: Body) -> None:
        """Remove the rows of a message's body."""
        for number in range(body.first, body.last + 1):
            self._put(_part_key(name, number), None)
        if not any(other == name for other, _ in self._bodies.values()):
            self._put(_part_key(name, 0), None)

    def _count(self, name: str, published: int, accepted: int) -> None:
        before = Counts(self.published.get(name, 0), self.accepted.get(name, 0))
        after = Counts(before.published + published, before.accepted + accepted)
        self.published[name], self.accepted[name] = after
        self._fingerprint ^= counts_digest(name, after) ^ (counts_digest(name, before) if before.published else 0)

    @property
    def items(self) -> int:
        """Number of current keys, quads and messages."""
        return len(self.keys) + len(self.quads) + sum(map(len, self.queues.values()))

    def lsn(self) -> Lsn:
        """Return the last executed LSN."""
        return len(self.outcomes) - 1

    def held_at(self, expectation: Operation, lsn: Lsn) -> bool:
        """Tell whether the finding of a read of a key was true at an LSN."""
        _, table, key, etag = expectation
        value = next((value for at, value in reversed(self._values.get(_row_key(table, key), ())) if at <= lsn), None)
        return bool(etag == ("" if value is None else etag_of(value)))

    # ---- the bank

    def tokens(self) -> list[bytes]:
        """Return all tokens, at any place."""
        names = tuple(table.encode() + b"\0" for table in TABLES)
        values = [value for row_key, value in self.keys.items() if row_key.startswith(names)]
        return sorted([*values, *(message.body for _, message in self.queues.get(QUEUE, {}).values())])

    def place_of(self, token: bytes) -> tuple[str, str]:
        """Return (table, "") or (queue, message id) of a token; two empty texts without one."""
        for table in TABLES:
            if _row_key(table, token) in self.keys:
                return table, ""
        for each, (_, message) in self.queues.get(QUEUE, {}).items():
            if message.body == token:
                return QUEUE, each
        return "", ""


def _items(operations: list[Checked], *, writes: bool = False) -> set[tuple[str, str, Any]]:
    """Return keys, messages and quads that operations use, or only those that they write."""
    items: set[tuple[str, str, Any]] = set()
    for operation in operations:
        match operation:
            case Add():
                items.add(("quad", operation.repository, _quad(operation.text)))
            case Accept():
                items.add(("message", operation.queue, operation.message_id))
            case Put() | Delete():
                items.add(("key", operation.table, operation.key))
            case ExpectKey() if not writes:
                items.add(("key", operation.table, operation.key))
    return items


def _quad(text: str) -> str:
    return text.strip().removesuffix(".").rstrip()


def _part_key(name: TxId, number: int) -> bytes:
    return _row_key(staging.TABLE, staging.part_key(name, number))


def _row_key(table: str, key: bytes) -> bytes:
    return table.encode() + b"\0" + key
