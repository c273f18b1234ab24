"""The runner: one turn of a node. Only this module sets the order of writing, sending and answering.

    receive -> step each -> wake -> take_ready -> journal (one fsync, or none) -> send -> answer -> settle

The same two runners drive masters and workers in production, in the embedded cluster and in the simulator. Only journal,
transport, store and clock differ. A runner belongs to one thread and never blocks longer than ``receive`` is told to.

A master that has backups comes with its `Primary` (master/primary.py): it sends them the written records, and holds messages and
replies until enough of them hold the records durably.

When the journal cannot be written, nothing of the turn is sent or answered. The core relies on records that are not durable, so it
is thrown away and built again from the journal after a pause. Until then writes are refused with the reason. So a full disk stops
a node, but never loses or invents anything.

`crash_point` does nothing in production; tests and the simulator crash the node there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple, Protocol, Self

from brokerha.master.config import MasterConfig
from brokerha.master.core import MasterCore
from brokerha.master.primary import Primary
from brokerha.model import states
from brokerha.model.errors import JournalError, JournalFull
from brokerha.model.ids import Instant, Lsn
from brokerha.model.invariants import invariant
from brokerha.model.numbers import Histogram
from brokerha.model.ready import CopyAnswer, CopyDecision, Ready
from brokerha.model.requests import REFUSED, UNKNOWN, Absence, Reply, Submit, TxCommand, TxReply
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.model.wire.process_messages import TxEvents, TxJoin
from brokerha.ports.clock import Clock
from brokerha.ports.journal import Journal
from brokerha.ports.transport import ClientMessage, Inbound, Transport

OF_TRANSACTIONS = frozenset({TxJoin, TxEvents})

TURN_LIMIT = 2000
"""Most messages taken in one turn, so that a turn stays short; the rest waits for the next one."""
READY_LIMIT = 16
"""Most consequences carried out in one turn, before the next messages are taken."""
IDLE_MS = 1000
"""Longest sleep of an idle loop."""
SHOWN_LIMIT = 10_000
"""Most answers that wait for backups; beyond it, the oldest are never given."""
RETRY_MS = 1000
"""Pause before a failed journal is tried again."""

ClientHandler = Callable[[list[ClientMessage], Instant], Iterable[Submit | TxCommand]]
NodeHandler = Callable[[Envelope, Instant], bool]
"""Takes a message that is not for the core (reads, questions); returns whether it was taken."""


def no_crash(_: str) -> None:
    """Do nothing: production has no crash points."""


class JournalDoor(Protocol):
    """Takes decisions about a journal's copy and returns the answers."""

    def begin(self, decision: CopyDecision) -> None:
        """Start to carry out a decision."""

    def finished(self) -> list[CopyAnswer]:
        """Return the answers that came since the last call."""


class Failure(NamedTuple):
    """Why a process cannot write its records: its state word, and the reason."""

    state: str
    reason: str

    @classmethod
    def of(cls, error: JournalError) -> Self:
        """Return the failure for an error of the journal."""
        return cls(states.DISK_FULL if isinstance(error, JournalFull) else states.HALTED, str(error))

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}"


class MasterRunner:
    """One master: core, journal and transport, a turn at a time."""

    def __init__(
        self,
        config: MasterConfig,
        journal: Journal,
        transport: Transport,
        clock: Clock,
        on_reply: Callable[[Reply], None],
        crash_point: Callable[[str], None] = no_crash,
        primary: Primary | None = None,
        door: JournalDoor | None = None,
    ) -> None:
        self.config = config
        self.journal = journal
        self.transport = transport
        self.clock = clock
        self.on_reply = on_reply
        self.crash_point = crash_point
        self.core = MasterCore(config, journal.state(), journal)
        self.failure: Failure | None = None
        """Why the journal cannot be written; None while it can."""
        self.on_failure: Callable[[str], None] = no_crash
        """Called with the reason of each failure."""
        self.turns = 0
        self.now = clock.now()
        """Begin of the last turn, after its sleep."""
        self.writes = Histogram()
        """Time that the journal took to make the records of a turn durable."""
        self.on_client: ClientHandler = lambda _messages, _now: ()
        self.on_node: NodeHandler = lambda _envelope, _now: False
        self.on_tx_reply: Callable[[TxReply], None] = lambda _reply: None
        self.primary = primary
        self.door = door
        self._open: dict[int, Submit | TxCommand] = {}
        """Inputs of clients that have no reply yet, by ticket."""
        self._retry_at_ms = 0
        self._safe_lsn: Lsn = 0
        self._lsns: deque[tuple[int, Lsn]] = deque([(journal.last_number, self.core.sync.lsn)], maxlen=SHOWN_LIMIT)
        """For each record that backups have not confirmed: its number, and the LSN that the order reached with it."""
        self._shown: deque[tuple[int, Callable[[], None]]] = deque(maxlen=SHOWN_LIMIT)
        """Actions that wait for backups: (number of the journal's last record, the action)."""

    @property
    def safe_lsn(self) -> Lsn:
        """Highest LSN that can be shown: enough backups hold it."""
        return self.core.sync.lsn if self.primary is None else self._safe_lsn

    def when_safe(self, show: Callable[[], None]) -> None:
        """Call ``show`` when enough backups hold the journal's present end: at once, later, or never."""
        if self.primary is None or self.primary.gate.is_through(self.journal.last_number):
            show()
        else:
            self._shown.append((self.journal.last_number, show))

    def wait_ms(self) -> int:
        """Return how long the next turn can wait for a message."""
        now = self.clock.now()
        due = self._retry_at_ms if self.failure else self.core.deadline_ms(now)
        if self.primary is not None and not self.failure:
            also = self.primary.deadline_ms()
            due = min((at for at in (due, also) if at is not None), default=None)
        return IDLE_MS if due is None else max(0, min(IDLE_MS, due - now.mono_ms))

    def turn(self, submits: Iterable[Submit | TxCommand] = (), wait_ms: int = 0) -> int:
        """Take the inputs and carry out the consequences; return the number of inputs. ``submits`` is read after the sleep."""
        items = self.transport.receive(TURN_LIMIT, wait_ms)
        self.now = now = self.clock.now()
        self.turns += 1
        clients = [item for item in items if isinstance(item, ClientMessage)]
        fresh = [*submits, *(self.on_client(clients, now) if clients else ())]
        if self.failure and not self._is_mended(now):
            self._refuse(fresh)
            self._serve_backups(items, now)
            self._release(now)
            return len(items) + len(fresh)
        self._serve_backups(items, now)
        if self.primary is not None and self.primary.is_over:
            # This process voted for another one, or saw a newer view: it writes nothing more in this view.
            self._open.update((submit.ticket, submit) for submit in fresh if submit.ticket)
            self._release(now)
            return len(items) + len(fresh)
        for item in items:
            if isinstance(item, Absence) or (
                isinstance(item, Envelope)
                and not (self.primary is not None and self.primary.takes(item))
                and not self.on_node(item, now)
            ):
                self.core.step(item, now)
        for submit in fresh:
            if submit.ticket:
                self._open[submit.ticket] = submit
            self.core.step(submit, now)
        self.core.wake(now)
        self._carry_out(now)
        if self.primary is not None:
            self._release(now)
        self._forget(now)
        return len(items) + len(fresh)

    # ---- backups

    def _serve_backups(self, items: Sequence[Inbound], now: Instant) -> None:
        """Take the messages of the other processes of this master, and tell the core their consequences."""
        primary = self.primary
        if primary is None:
            return
        if self.door is not None:
            for answer in self.door.finished():
                primary.answer(answer, now)
        for item in items:
            if isinstance(item, Envelope) and primary.takes(item):
                primary.step(item, now)
        primary.lose(self.core.transacting.take_silent())
        self.core.transacting.set_backups(primary.feed.take_part())
        self.core.withheld = primary.withheld(now)

    def _release(self, now: Instant) -> None:
        """Send the backups the new records, and release the messages that enough backups hold."""
        primary = self.primary
        if primary is None:
            return
        primary.on_transactions(self.core.transacting.open_transactions())
        primary.wake(now)
        # A primary that cannot write is silent, so that another process takes over.
        try:
            out = primary.take(now, is_silent=bool(self.failure))
        except JournalError as error:
            # A record that a backup lacks cannot be read.
            self._fail(error)
            return
        if out.promise and not self._promise(out.promise, now):
            return
        self.transport.send(out.messages)
        for decision in out.decisions:
            if self.door is not None:
                self.door.begin(decision)
        self._tell(out.released, out.replies, out.tx_replies)
        while self._lsns and primary.gate.is_through(self._lsns[0][0]):
            self._safe_lsn = self._lsns.popleft()[1]
        while self._shown and primary.gate.is_through(self._shown[0][0]):
            self._shown.popleft()[1]()
        if self._open and primary.gate.is_lost(now):
            # Waits for other masters or workers get no news through a closed gate.
            self.close_tickets(primary.gate.reason(now))

    def _promise(self, view: int, now: Instant) -> bool:
        try:
            self.journal.promise(view)
        except JournalError as error:
            self._fail(error)
            return False
        return True

    def _tell(self, messages: Sequence[Outgoing], replies: Sequence[Reply], tx_replies: Sequence[TxReply]) -> None:
        if messages:
            self.transport.send(messages)
        self.crash_point("sent, not answered")
        for reply in replies:
            self._answer(reply)
        for tx_reply in tx_replies:
            self._answer(tx_reply)

    def _carry_out(self, now: Instant) -> None:
        for _ in range(READY_LIMIT):
            ready = self.core.take_ready(now)
            if not ready:
                return
            self.crash_point("nothing written")
            if (ready.records or ready.settles) and not self._write(ready, now):
                return
            for decision in ready.tx_queues:
                self.transport.tx_queue(decision)
            if ready.looks:
                self.transport.look(ready.looks)
            if self.primary is None:
                self._tell(ready.messages, ready.replies, ready.tx_replies)
            else:
                # Events of transactions are for the processes of this master, which do not wait for each other's records.
                own = [each for each in ready.messages if type(each.message) in OF_TRANSACTIONS]
                held = [each for each in ready.messages if type(each.message) not in OF_TRANSACTIONS] if own else ready.messages
                self.transport.send(own)
                self.primary.hold(self.journal.last_number, ready, held, now)

    def _write(self, ready: Ready, now: Instant) -> bool:
        # A backup follows durable records, number by number, so a master with backups defers no record.
        is_deferred = ready.is_deferred and self.primary is None
        began_s = perf_counter()
        try:
            if is_deferred:
                self.journal.defer(ready.records)
            elif ready.records:
                self.journal.append(ready.records)
            else:
                self.journal.settle()
        except JournalError as error:
            self._fail(error)
            return False
        if not is_deferred:
            self.writes.observe(perf_counter() - began_s)
        if self.primary is not None and ready.records:
            self.primary.note(self.journal.last_number - len(ready.records) + 1, ready.records)
            self._lsns.append((self.journal.last_number, self.core.sync.lsn))
        self.crash_point("written, nothing sent")
        return True

    def _forget(self, now: Instant) -> None:
        """Let the journal forget a bounded part of the entries that no node needs any more."""
        if self.primary is not None and self.core.retention.is_due(now):
            self.core.needs_of_backups = self.primary.feed.needs(self.core.disposable)
        step = self.core.forgetting(now) if not self.failure else None
        if step is None:
            return
        if self.primary is not None:
            self.primary.keep(step.below)
        try:
            self.core.retention.done(more=self.journal.keep(step.below))
        except JournalError as error:
            self._fail(error)

    def _fail(self, error: JournalError) -> None:
        """Note a failure of the journal: answer open tickets with *unknown*, try again later."""
        self.failure = Failure.of(error)
        self.on_failure(str(self.failure))
        # The journal was read back just now, which can take longer than the pause: so the pause begins now.
        self._retry_at_ms = self.clock.now().mono_ms + RETRY_MS
        self.close_tickets(self.failure.reason)

    def leave(self) -> None:
        """Tell the other masters that this process ends, so that they do not wait for it; called after the last turn."""
        if not self.failure and self.primary is None:
            # After a failure of the journal, the core has a later incarnation than the one that the transport names.
            sync = self.core.sync
            self.transport.send([replace(each, sender=sync.node, incarnation=sync.incarnation) for each in sync.leave()])

    def close_tickets(self, reason: str, *, is_parting: bool = False) -> None:
        """Answer every waiting caller with *unknown*."""
        waiting, self._open = self._open, {}
        for ticket, asked in waiting.items():
            if isinstance(asked, TxCommand):
                self.on_tx_reply(TxReply(ticket, asked.txid, "OutcomeUnknown", reason))
            else:
                self.on_reply(Reply(ticket, asked.txid, UNKNOWN, 0, "OutcomeUnknown", reason, is_parting))

    def _is_mended(self, now: Instant) -> bool:
        """Build the core again from the journal once the pause is over; tell whether it was."""
        if now.mono_ms < self._retry_at_ms:
            return False
        self.failure = None
        self.core = MasterCore(self.config, self.journal.state(), self.journal)
        return True

    def _refuse(self, submits: Iterable[Submit | TxCommand]) -> None:
        for submit in submits:
            if not submit.ticket:
                continue
            if isinstance(submit, TxCommand):
                self.on_tx_reply(TxReply(submit.ticket, submit.txid, "ReadOnly", str(self.failure)))
            else:
                self.on_reply(Reply(submit.ticket, submit.txid, REFUSED, 0, "ReadOnly", str(self.failure)))

    def _answer(self, reply: Reply | TxReply) -> None:
        if self.primary is not None and reply.ticket not in self._open:
            # This reply was held for the backups, and the journal failed meanwhile: the ticket was answered with *unknown*.
            return
        if self._open.pop(reply.ticket, None) is None:
            invariant(False, "each ticket gets one reply", ticket=reply.ticket)
        if isinstance(reply, TxReply):
            self.on_tx_reply(reply)
        else:
            self.on_reply(reply)

    def state(self) -> tuple[str, str]:
        """Return the state word and reason of the whole node."""
        if self.failure:
            return self.failure
        now = self.clock.now()
        if self.primary is not None and (reason := self.primary.withheld(now)):
            return states.WAITING_FOR_BACKUPS, reason
        return self.core.state(now)
