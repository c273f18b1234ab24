"""A worker's store in small: queues only, executed in order; what a real probe would say of publish and accept.

contents(journal)        what the queues hold after everything that a journal has in order
SmallWorker              executes what a primary sends it, and keeps its results
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgpack

from brokerha.log.log import Log
from brokerha.model.errors import CONFLICT
from brokerha.model.ids import TxId
from brokerha.model.operations import APPLIED, REJECTED, Operation, ResultRow
from brokerha.model.reserved import branches
from brokerha.model.wire.messages import Execute, Executed, Message, Progress
from tests.unit.replication.benches import content, text


def publish(queue: str, *bodies: str) -> list[Operation]:
    """Operations that publish texts to a queue."""
    return [("publish", queue, "text/plain", body.encode()) for body in bodies]


def accept(queue: str, *message_ids: str) -> list[Operation]:
    """Operations that accept messages of a queue."""
    return [("accept", queue, message_id) for message_id in message_ids]


def unpacked(body: bytes) -> tuple[Operation, ...]:
    """The operations of a body."""
    return tuple(msgpack.unpackb(body, use_list=False))


@dataclass
class Queues:
    """Messages of all queues, in order: (id, text)."""

    held: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    published: int = 0
    accepted: int = 0

    prepared: dict[TxId, bytes] = field(default_factory=dict)
    """Bodies of prepared branches."""

    def execute(self, txid: TxId, body: bytes) -> str:
        """Carry out a transaction; returns why it was rejected, empty when it was not."""
        branch = branches.branch_of(body)
        if branch is None:
            return self._carry_out(txid, body)
        if branch.step == branches.PREPARE:
            reason = "" if branch.txid in self.prepared else replace(self).execute(branch.txid, branch.body)
            if not reason:
                self.prepared.setdefault(branch.txid, branch.body)
            return reason
        kept = self.prepared.pop(branch.txid, None)
        if branch.step == branches.ROLLBACK:
            return ""
        return f"{branch.txid} is not prepared" if kept is None else self._carry_out(branch.txid, kept)

    def _carry_out(self, txid: TxId, body: bytes) -> str:
        taken = {each[1:3]: by for by, kept in self.prepared.items() for each in unpacked(kept) if each[0] == "accept"}
        after = {queue: list(messages) for queue, messages in self.held.items()}
        published = accepted = 0
        for place, operation in enumerate(unpacked(body), 1):
            if operation[0] == "by":
                continue
            if operation[0] == "accept" and operation[1:3] in taken:
                return f"{CONFLICT}message {operation[2]} is held by {taken[operation[1:3]]}"
            messages = after.setdefault(operation[1], [])
            if operation[0] == "publish":
                messages.append((f"{txid}.{place}", operation[3].decode()))
                published += 1
            else:
                found = [message for message in messages if message[0] == operation[2]]
                if not found:
                    return f"{CONFLICT}queue {operation[1]} has no message {operation[2]}"
                messages.remove(found[0])
                accepted += 1
        self.held = after
        self.published += published
        self.accepted += accepted
        return ""

    def texts(self, queue: str) -> list[str]:
        """What a queue holds."""
        return [text for _, text in self.held.get(queue, [])]

    def ids(self, queue: str) -> list[str]:
        """Ids of what a queue holds."""
        return [message_id for message_id, _ in self.held.get(queue, [])]


def contents(journal: Log) -> Queues:
    """The queues after everything in a journal's synchronised queue."""
    queues = Queues()
    for _, txid, origin in journal.ordered(1, 10**9):
        queues.execute(txid, journal.body(origin, txid) or b"")
    return queues


class SmallWorker:
    """Worker w1, which is always there."""

    def __init__(self) -> None:
        self.queues = Queues()
        self.results: list[ResultRow] = []
        self.is_stopped = False
        self.rejects: dict[TxId, str] = {}
        """Transactions that it rejects, with the reason."""

    def take(self, message: Message) -> Executed | None:
        """Execute what comes; answer with everything from where it begins."""
        if not isinstance(message, Execute) or self.is_stopped or message.first_lsn > len(self.results) + 1:
            return None
        for lsn, (txid, _, body) in enumerate(message.items, message.first_lsn):
            if lsn == len(self.results) + 1:
                reason = self.rejects.get(txid) or self.queues.execute(txid, body)
                self.results.append((REJECTED if reason else APPLIED, reason, b"", content(lsn)))
        applied = len(self.results)
        rows = tuple(self.results[message.first_lsn - 1 :])
        return Executed(message.first_lsn, rows, applied, text(applied), applied, "copy-of-w1")

    def progress(self, view: int) -> Progress:
        """Its heartbeat."""
        applied = len(self.results)
        return Progress("copy-of-w1", applied, text(applied), applied, "on", follows="basic", view=view)
