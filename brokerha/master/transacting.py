"""Transacting: the coordinator of transactions inside a MasterCore (transactions, sections 1 to 7).

    TxCommand, TxAnswer, ready backups --> Coordinator --> records, events, queues, replies
                                               |  ^
                              accept, wait     v  |     added, results, replies to tickets below zero
                                        sync and Waiters

Sync accepts a commit in the turn in which it is decided. From there on it is an ordinary write. Its client waits among the other
writers, with a ticket below zero so that the reply is turned into an answer here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from brokerha.master.admission import is_other_body
from brokerha.master.config import RetentionConfig
from brokerha.master.retention import Retention
from brokerha.model.errors import aborted, rejection
from brokerha.model.ids import Instant, Lsn, NodeId, Ordered, TxId, maker_of
from brokerha.model.operations import APPLIED, ResultRow
from brokerha.model.ready import TxQueueDecision
from brokerha.model.records import History, MasterState, Record
from brokerha.model.requests import APPLIED_LEVEL, REFUSED, REJECTED_STATUS, UNKNOWN, Reply, Submit, TxCommand, TxReply
from brokerha.model.reserved.branches import branch_id
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.model.wire.process_messages import TxAnswer
from brokerha.replication.site.feed import Feed
from brokerha.replication.site.site import Site
from brokerha.sync.core import SyncCore
from brokerha.transactions.book import COMMITTED
from brokerha.transactions.config import TxConfig
from brokerha.transactions.coordinator import Coordinator
from brokerha.transactions.locks import accepted_in_body
from brokerha.transactions.states import Phase
from brokerha.transactions.transaction import Ask


class Limits(Protocol):
    """Settings of a master that also limit transactions."""

    @property
    def accept_limit(self) -> int:
        """Limit of accepted transactions that wait to be synchronised."""

    @property
    def apply_limit(self) -> int:
        """Limit of synchronised transactions that wait for the workers of this site."""

    @property
    def retention(self) -> RetentionConfig:
        """For how long ids are known."""

    @property
    def tx(self) -> TxConfig:
        """Limits and timeouts of transactions."""


class Committer(Protocol):
    """The log to which transactions are committed, and its master's knowledge of it."""

    history: History
    sync: SyncCore
    site: Site
    feed: Feed
    retention: Retention
    bodies: dict[str, bytes]

    @property
    def config(self) -> Limits:
        """Settings of the master."""

    def admit(self, txid: TxId, body: bytes) -> None:
        """Take in a transaction that is not known here."""

    def attend(self, submit: Submit, now: Instant, *, is_compared: bool) -> None:
        """Let a client wait for a transaction that is known here."""

    def result_of(self, lsn: Lsn) -> ResultRow | None:
        """Return the result of a transaction; None when it is not executed yet."""

    def refusal(self, now: Instant) -> str:
        """Return why new writes are refused; empty when they are taken."""


class Transacting:
    """Transactions of one master; also the `Log` that its coordinator commits to."""

    def __init__(self, core: Committer, state: MasterState) -> None:
        self._core = core
        self.coordinator = Coordinator(core.config.tx, core.sync.node, state, self)
        self._backups: tuple[NodeId, ...] | None = None
        """Ready backups that the coordinator does not know yet."""
        self._book, self._deciding = self.coordinator.book, self.coordinator.deciding
        self._view = self._book.view
        self._may_be_judged = True
        """Whether a prepare may have been judged since the last look."""

    # ---- inputs

    def step(self, command: TxCommand, now: Instant) -> None:
        """Take one step of a transaction for a client."""
        self._tell_backups(now)
        self._may_be_judged = True
        self.coordinator.step(command, now)

    def on_answer(self, envelope: Envelope, now: Instant) -> None:
        """Take in a backup's answer about a transaction."""
        if isinstance(envelope.message, TxAnswer):
            self._tell_backups(now)
            self._may_be_judged = True
            self.coordinator.on_answer(envelope.process or envelope.sender, envelope.message, now)

    def set_backups(self, ready: Iterable[NodeId], view: int = 0) -> None:
        """Set the ready backups, in this view (0: as before); only they take part. Callers can repeat it each turn."""
        book, backups = self._book, tuple(ready)
        self._view = view or self._view
        if backups != book.backups or self._view != book.view or self._backups is not None:
            self._backups = backups

    def take_silent(self) -> dict[NodeId, str]:
        """Return backups that missed a prepare's timeout since the last call, with reasons; they must join anew to be ready."""
        book = self._book
        silent, book.silent_backups = book.silent_backups, {}
        return silent

    def _tell_backups(self, now: Instant) -> None:
        if self._backups is not None:
            backups, self._backups = self._backups, None
            self.coordinator.set_backups(backups, self._view, now)

    def wake(self, now: Instant) -> None:
        """Act on expired deadlines."""
        self._tell_backups(now)
        self._may_be_judged = True
        self.coordinator.wake(now)

    @property
    def is_look_due(self) -> bool:
        """Tell whether a prepare may have been judged; cheap when none is waited for."""
        return bool(self._book.placed) and self._may_be_judged

    def look(self, now: Instant) -> None:
        """Continue transactions whose prepare was judged; before the records of a turn, which have a decision and its accept."""
        self._may_be_judged = False
        if not self._is_over():
            self._deciding.look(now)

    def on_added(self, first_lsn: Lsn, added: tuple[Ordered, ...]) -> None:
        """Note that transactions got their LSNs."""
        self._may_be_judged = True
        self._deciding.on_added(first_lsn, added)
        if not self._core.site.workers:
            # No worker here ever reports results: the order alone decides what happens to locks.
            self._deciding.on_results(first_lsn, ((APPLIED, "", b"", b""),) * len(added))

    def on_results(self, first_lsn: Lsn, results: tuple[ResultRow, ...]) -> None:
        """Note that transactions were executed."""
        self._may_be_judged = True
        self._deciding.on_results(first_lsn, results)

    def go_back(self, lsn: Lsn) -> None:
        """Note that LSNs above this one are void."""
        self._may_be_judged = True
        self._deciding.go_back(lsn)

    def on_state(self, lsn: Lsn, known: Mapping[TxId, Lsn]) -> None:
        """Note that another master's state was taken over, with the LSNs of these; every LSN up to ``lsn`` has a result now."""
        for txid, at in known.items():
            self.on_added(at, ((0, txid, ""),))
        self._deciding.on_state(lsn, lambda at: self._core.result_of(at) or (APPLIED, "", b"", b""))

    def refusal_of(self, submit: Submit) -> tuple[str, str] | None:
        """Return (name of an error, reason) if a plain write is wrong by itself or collides with an open transaction, or None."""
        book = self._book
        if submit.copies > len(self._core.site.workers) and (wrong := self.wrong_terms(submit.level, submit.copies)):
            return "InvalidRequest", wrong
        if book.table and branch_id(submit.txid) in book.table:
            return "KeyReused", f"transaction {submit.txid} is open: commit it, or use a new key"
        conflict = book.locks.conflict("", accepted_in_body(submit.body)) if len(book.locks) else None
        if conflict is None:
            return None
        queue, message_id, holder = conflict
        return "NotReady", f"message {message_id} of queue {queue} is accepted in transaction {holder}: try another one"

    # ---- output

    def split(self, replies: list[Reply]) -> tuple[tuple[Reply, ...], tuple[TxReply, ...]]:
        """Split replies into those to writes and those that answer commits."""
        if not replies or min([reply.ticket for reply in replies]) >= 0:
            return tuple(replies), ()
        answers: list[TxReply] = []
        for reply in replies:
            if reply.ticket < 0:
                self._answer(reply, answers)
        return tuple(reply for reply in replies if reply.ticket > 0), tuple(answers)

    def _answer(self, reply: Reply, answers: list[TxReply]) -> None:
        ticket, txid, book = -reply.ticket, reply.txid, self._book
        kept = book.table.get(txid)
        if reply.status == REJECTED_STATUS and kept is not None:
            # The answer goes out with the record that remembers it.
            book.refuse(ticket, txid, type(aborted(kept.reason)).__name__, kept.reason)
        elif reply.status in (REJECTED_STATUS, REFUSED):
            error = rejection(reply.reason) if reply.status == REJECTED_STATUS else aborted(reply.reason)
            answers.append(TxReply(ticket, txid, type(error).__name__, reply.reason))
        elif reply.status == UNKNOWN:
            answers.append(TxReply(ticket, txid, "OutcomeUnknown", reply.reason))
        else:
            reason = {"reason": kept.reason} if kept is not None else {}
            answers.append(TxReply(ticket, txid, answer={"state": COMMITTED, "lsn": reply.lsn, **reason}))

    @property
    def is_quiet(self) -> bool:
        """Tell whether `records` and `outgoing` would return nothing."""
        book = self._book
        return not (book.dirty or book.records or book.messages or book.queues or book.replies)

    def records(self, now: Instant) -> list[Record]:
        """Return the records of this turn. Call it first: it also prepares the result of `outgoing`."""
        book = self._book
        self.coordinator.collect(now)
        if self._is_over():
            # Sync writes nothing any more, so no decision must be written either: both or none.
            return []
        records, book.records = book.records, []
        return records

    def outgoing(self) -> tuple[list[Outgoing], tuple[TxQueueDecision, ...], tuple[TxReply, ...]]:
        """Return messages, queues and replies that go with these records."""
        book = self._book
        messages, book.messages = book.messages, []
        queues, book.queues = tuple(book.queues), []
        replies = tuple(reply for reply in book.replies if reply.error or not self._is_over())
        book.replies = []
        return messages, queues, replies

    def _is_over(self) -> bool:
        return bool(self._core.sync.lost or self._core.sync.retired)

    # ---- Log

    def room(self) -> int:
        """Return how many transactions can be taken in before `refusal` may change its answer."""
        return self._core.config.accept_limit - self._core.sync.backlog()

    def refusal(self, now: Instant) -> tuple[str, str] | None:
        """Return why no transaction can be taken in now, or None."""
        core = self._core
        if reason := core.refusal(now):
            return "ReadOnly", reason
        if core.sync.backlog() >= core.config.accept_limit:
            return "NotReady", f"{core.config.accept_limit} transactions wait to be synchronised: try again later"
        if core.site.workers and (left := core.sync.lsn - core.feed.executed) >= core.config.apply_limit:
            return "NotReady", f"{left} transactions wait to be applied by the workers of this site: try again later"
        return None

    def wrong_terms(self, level: str, copies: int) -> str:
        """Return the problem with a wish for a level, or an empty string."""
        workers = len(self._core.site.workers)
        if level == APPLIED_LEVEL and copies > workers:
            return f"applied={copies} asks for more workers than this site has ({workers})"
        return ""

    def is_known(self, txid: TxId) -> bool:
        """Tell whether a transaction is accepted or synchronised."""
        return txid in self._core.sync.pending or self._core.history.lsn_of(txid) is not None

    def is_other(self, txid: TxId, body: bytes) -> bool:
        """Tell whether a known transaction has another body than this one."""
        core = self._core
        lsn = core.history.lsn_of(txid) or 0
        return is_other_body(core.bodies, core.history, core.sync.node, Submit(0, txid, body), lsn)

    def ids_from(self) -> Lsn:
        """Return the LSN from which on every id is known."""
        return self._core.history.ids_from(self._core.sync.lsn)

    def can_judge(self) -> bool:
        """Tell whether there is a worker that reports results."""
        return bool(self._core.site.workers)

    def result_of(self, txid: TxId) -> ResultRow | None:
        """Return the result of a transaction; None while it is not executed, or not known."""
        lsn = self._core.history.lsn_of(txid)
        return self._core.result_of(lsn) if lsn is not None else None

    def ends_here(self, txid: TxId) -> str:
        """Return why a transaction that another master has prepared cannot be ended by hand here; empty when it can."""
        maker, core = maker_of(txid), self._core
        if not maker:
            return f"no transaction {txid} is open here: it was never begun, or is long over"
        if maker != core.sync.node and (maker in core.sync.epoch.members or maker in core.sync.peers.outside):
            return f"transaction {txid} belongs to master {maker}: end it there, or remove that master for good first"
        return ""

    def accept(self, txid: TxId, body: bytes) -> None:
        """Take a transaction in."""
        self._core.admit(txid, body)

    def wait(self, ask: Ask, txid: TxId, body: bytes | None, now: Instant) -> None:
        """Let the client of a commit wait for its level; refuse another body under the same id."""
        submit = Submit(-ask.ticket, txid, body or b"", ask.level, ask.copies, max(0, ask.deadline_ms - now.mono_ms))
        self._core.attend(submit, now, is_compared=body is not None)

    # ---- questions

    def counts(self, now: Instant) -> dict[str, int]:
        """Count transactions by what they wait for; also return for how many seconds the oldest prepared one has waited.

        ``open`` takes operations. ``prepared`` waits for its coordinator or its backups. ``heuristic`` was decided by hand and
        waits to be forgotten. ``in_doubt`` may need a person's decision: prepared ones with an xid, and heuristic ones.
        """
        book = self._book
        counts = {"open": 0, "prepared": 0, "heuristic": 0, "in_doubt": 0, "oldest_prepared_s": 0}
        for each in book.table.values():
            name = {Phase.OPEN: "open", Phase.HEURISTIC: "heuristic"}.get(each.phase, "prepared")
            counts[name] += 1
            counts["in_doubt"] += name == "heuristic" or (name == "prepared" and bool(each.xid))
            if each.prepared_us:
                counts["oldest_prepared_s"] = max(counts["oldest_prepared_s"], (now.wall_us - each.prepared_us) // 1_000_000)
        return counts

    def taken(self, txid: TxId, first: int) -> Sequence[str]:
        """Return the messages that an operation of a transaction took, by its number; none where it is not known."""
        kept = self._book.table.get(txid)
        return kept.takes.get(first, ()) if kept is not None else ()

    def open_transactions(self) -> list[TxId]:
        """Return transactions that are not decided."""
        return [txid for txid, each in self._book.table.items() if each.phase is not Phase.HEURISTIC]

    def outcome(self, txid: TxId, now: Instant) -> dict[str, Any] | None:
        """Return the outcome of a transaction, as ``Front.outcome`` tells it; None when it is unknown here."""
        core, coordinator = self._core, self.coordinator
        answer = {"txid": txid, "state": "accepted", "lsn": None, "outcome": None, "reason": ""}
        lsn = core.history.lsn_of(txid)
        if lsn is None:
            return answer if txid in core.sync.pending else coordinator.outcome(txid, now)
        kept = self._book.table.get(txid)
        reason = kept.reason if kept is not None else ""
        result = core.result_of(lsn)
        if result is None:
            return {**answer, "state": "synchronised", "lsn": lsn, "reason": reason}
        return {**answer, "state": "applied", "lsn": lsn, "outcome": result[0], "reason": reason or result[1]}
