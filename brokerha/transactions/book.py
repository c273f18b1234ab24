"""Book: the memory of the coordinator, and its output.

The two halves of the coordinator, collecting.py and deciding.py, write into it; coordinator.py carries the output to the master.
`Log` gives access to the log of the master.

Invariants: each transaction id and each xid is in the table once; a transaction that is over is only in `finished`; its locks go
with it, or when its commit is applied; records come out in the order in which they were added here.

Outcomes of transactions that are over: remembered ends, and the presumption for forgotten ones.

A transaction that was open when its primary died leaves no trace, so a rollback needs no record: an id that this master made, and
that is neither open nor in the log, was rolled back. This master says so only where it is certain: the incarnation that made the id
is known to have begun at an LSN from which on the log still knows every id. An id that a client made (an idempotency key) may be
used at any master, so nothing is presumed of it.

    m1.0a1b2c3d.2.1f        made by incarnation 2 of the master m1 with the journal 0a1b2c3d…, number 1f
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any, NamedTuple, Protocol

from brokerha.model.errors import UnknownTransaction, WrongState, aborted
from brokerha.model.ids import BEGUN_MARK, Instant, Lsn, NodeId, TxId
from brokerha.model.operations import ResultRow
from brokerha.model.ready import TxQueueDecision
from brokerha.model.records import MasterState, Record
from brokerha.model.requests import TxReply
from brokerha.model.reserved.branches import named_ids, packed
from brokerha.model.wire.messages import Outgoing
from brokerha.transactions.config import TxConfig
from brokerha.transactions.locks import Locks
from brokerha.transactions.states import Phase, Step, after
from brokerha.transactions.transaction import Ask, Transaction
from brokerha.transactions.tx_feed import TxFeed

OPEN = "open"
PREPARED = "prepared"
COMMITTED = "committed"
ABORTED = "aborted"


class End(NamedTuple):
    """The end of a transaction."""

    state: str
    """`COMMITTED` or `ABORTED`."""
    reason: str


class Finished:
    """The last ends, up to a limit; the oldest go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ends: OrderedDict[TxId, End] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, txid: TxId, state: str, reason: str) -> None:
        """Remember an end; a later one replaces it."""
        self._ends[txid] = End(state, reason)
        self._ends.move_to_end(txid)
        while len(self._ends) > self._limit:
            self._ends.popitem(last=False)

    def get(self, txid: TxId) -> End | None:
        """Return how a transaction ended; None when it is not remembered."""
        return self._ends.get(txid)


class Presumption:
    """The ids that this master made, and whether a rollback can be presumed of them."""

    def __init__(self, node: NodeId, state: MasterState) -> None:
        """Take ``state`` of the journal, with the incarnation that begins now."""
        self._prefix = f"{node}.{state.journal[:8]}."
        self._incarnation = state.incarnation
        self._starts = {**dict(state.starts), state.incarnation: state.lsn}
        self._begun = -1
        """Highest number of an id that was begun in this incarnation."""

    def made_here(self, txid: TxId) -> tuple[int, int] | None:
        """Return (incarnation, number) of an id that this master made for a transaction; None for any other id."""
        is_own = txid.startswith(self._prefix) and txid.endswith(BEGUN_MARK)
        parts = txid.removeprefix(self._prefix).removesuffix(BEGUN_MARK).split(".") if is_own else []
        try:
            return (int(parts[0], 16), int(parts[1], 16)) if len(parts) == 2 else None
        except ValueError:
            return None

    def on_begin(self, txid: TxId) -> None:
        """Note that an id was used to begin a transaction."""
        made = self.made_here(txid)
        if made is not None and made[0] == self._incarnation:
            self._begun = max(self._begun, made[1])

    def is_over(self, txid: TxId, ids_from: Lsn) -> bool:
        """Tell whether an id that is neither open nor in the log was certainly rolled back."""
        made = self.made_here(txid)
        if made is None:
            return False
        incarnation, number = made
        start = self._starts.get(incarnation)
        if start is None or start + 1 < ids_from:
            return False
        return incarnation < self._incarnation or number <= self._begun


class Log(Protocol):
    """The services of a master to its transactions."""

    def refusal(self, now: Instant) -> tuple[str, str] | None:
        """Return (name of an error, reason) if no transaction can be taken in now, or None."""

    def wrong_terms(self, level: str, copies: int) -> str:
        """Return the problem with a wish for a level, or an empty string."""

    def is_known(self, txid: TxId) -> bool:
        """Tell whether a transaction is accepted or synchronised."""

    def is_other(self, txid: TxId, body: bytes) -> bool:
        """Tell whether a known transaction has another body than this one; a trimmed body cannot be compared."""

    def ids_from(self) -> Lsn:
        """Return the LSN from which on every transaction id is known."""

    def can_judge(self) -> bool:
        """Tell whether there is a worker that reports results."""

    def result_of(self, txid: TxId) -> ResultRow | None:
        """Return the result of a transaction; None while it is not executed, or not known."""

    def ends_here(self, txid: TxId) -> str:
        """Return why a transaction that another master has prepared cannot be ended by hand here; empty when it can."""

    def accept(self, txid: TxId, body: bytes) -> None:
        """Take in a transaction that is not known."""

    def wait(self, ask: Ask, txid: TxId, body: bytes | None, now: Instant) -> None:
        """Answer once a known transaction has reached the requested level. Refuse another ``body`` under its id."""


class Book:
    """The memory of one primary's coordinator."""

    def __init__(self, config: TxConfig, node: NodeId, state: MasterState, log: Log) -> None:
        self.config = config
        self.node = node
        self.log = log
        self.view = state.views[-1][0] if state.views else 1
        self.backups: tuple[NodeId, ...] = ()
        """The backups that are ready now."""
        self.table: dict[TxId, Transaction] = {}
        self.xids: dict[str, TxId] = {}
        self.finished = Finished(config.finished_limit)
        self.presumption = Presumption(node, state)
        self.ending: dict[TxId, TxFeed] = {}
        """Feeds that still tell participants the end."""
        self.executing: dict[TxId, Transaction] = {}
        """Decided transactions that are not executed yet: they keep their locks."""
        self.placed: dict[TxId, Transaction] = {}
        """Transactions whose prepare is not known to be judged."""
        self.locks = Locks()
        self.open_bytes = 0
        """Size of their operations and of the findings of their reads."""
        self.counts: Counter[str] = Counter()
        """Counts since the start: begun, committed, aborted, timed-out, lost participants, ignored answers."""
        self.silent_backups: dict[NodeId, str] = {}
        """Participants that missed a prepare's timeout, with the reason; until the primary excludes them."""
        self.dirty: dict[TxId, None] = {}
        """Transactions whose feed may have messages to send, and whose deadline has to be computed anew."""
        self.records: list[Record] = []
        self.replies: list[TxReply] = []
        self.messages: list[Outgoing] = []
        self.queues: list[TxQueueDecision] = []

    # ---- looking up

    def find(self, txid: TxId, now: Instant) -> Transaction:
        """Return the transaction if it is not over. Raises Aborted, WrongState or UnknownTransaction with its outcome."""
        found = self.table.get(txid)
        if found is not None:
            return found
        end = self.end_of(txid, now)
        if end is not None and end.state == ABORTED:
            raise aborted(end.reason)
        if end is not None or self.log.is_known(txid):
            raise WrongState(f"transaction {txid} is committed already")
        raise UnknownTransaction(f"no transaction {txid} is open here: it was never begun, or is long over; begin one")

    def end_of(self, txid: TxId, now: Instant) -> End | None:
        """Return how a transaction ended, as remembered or presumed; None when the log has to tell it."""
        end = self.finished.get(txid)
        if end is not None or txid in self.table or self.log.is_known(txid):
            return end
        if self.presumption.is_over(txid, self.log.ids_from()):
            return End(ABORTED, "it was not committed, and its primary no longer knows it: rolled back, run it again")
        return None

    # ---- changing

    def add(self, transaction: Transaction) -> None:
        """Add a transaction that begins, or comes back with the journal."""
        self.table[transaction.txid] = transaction
        if transaction.xid:
            self.xids.setdefault(transaction.xid, transaction.txid)
        self.open_bytes += transaction.size

    def take(self, transaction: Transaction, step: Step) -> None:
        """Take one step of the machine."""
        transaction.phase = after(transaction.phase, step)
        self.dirty[transaction.txid] = None
        if transaction.phase is Phase.PLACED:
            self.placed[transaction.txid] = transaction
        else:
            self.placed.pop(transaction.txid, None)

    def place(self, txid: TxId, step: str, body: bytes = b"") -> None:
        """Give a step of a branch its place in the order, if it has none."""
        named = named_ids(txid)[step]
        if not self.log.is_known(named):
            self.log.accept(named, packed(step, txid, body))

    def remove(self, transaction: Transaction) -> None:
        """Remove a transaction that is over, or that the log tells of from now on. Its locks stay."""
        if self.table.pop(transaction.txid, None) is not None:
            self.open_bytes -= transaction.size + (transaction.reads.size if transaction.reads is not None else 0)
        self.placed.pop(transaction.txid, None)
        if self.xids.get(transaction.xid) == transaction.txid:
            del self.xids[transaction.xid]
        self.dirty[transaction.txid] = None

    def finish(self, transaction: Transaction, end: str, reason: str = "") -> None:
        """End a transaction without a trace in the log: its end is remembered here."""
        self.remove(transaction)
        self.locks.release(transaction.txid)
        self.finished.add(transaction.txid, end, reason)
        self.counts[end] += 1

    def end_feed(self, transaction: Transaction, kind: str, reason: str = "") -> None:
        """Tell the participants the end; each queue goes when its participant has left it."""
        feed, transaction.feed = transaction.feed, None
        if feed is not None:
            feed.end(kind, reason)
            self.ending[transaction.txid] = feed
            self.dirty[transaction.txid] = None

    # ---- answering

    def answer(self, ticket: int, txid: TxId, /, **answer: Any) -> None:
        """Answer that it was done, once the records of this turn are durable."""
        if ticket:
            self.replies.append(TxReply(ticket, txid, answer=answer))

    def refuse(self, ticket: int, txid: TxId, error: str, reason: str) -> None:
        """Answer that it was not done."""
        if ticket:
            self.replies.append(TxReply(ticket, txid, error, reason))

    def feed_of(self, txid: TxId) -> TxFeed | None:
        """Return the feed of a transaction, under way or ending."""
        transaction = self.table.get(txid)
        return self.ending.get(txid) or (transaction.feed if transaction is not None else None)
