"""ProcessRunner: one process of a master, a turn at a time: as standby or as primary; and the change between the two.

    standing by   receive -> step -> take -> promise, rest -> journal (one fsync) -> send -> copy decisions
    primary       turns of a MasterRunner with its Primary (runner.py)

    elected   append ViewStarted, build MasterCore and Primary from the journal, as a restart would
    deposed   answer the waiting callers with *unknown*, throw both away, follow the new primary

Both halves share journal, transport, clock and role. Only their own memory ends with them. `crash_point` does nothing in
production.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from brokerha.master.config import MasterConfig
from brokerha.master.primary import Primary
from brokerha.master.standby import Standby
from brokerha.model.errors import JournalDamaged, JournalError, NotReady, WrongState
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.invariants import invariant
from brokerha.model.numbers import Histogram, Numbers
from brokerha.model.ready import (
    AbandonLoad,
    BeginLoad,
    CopyAnswer,
    CopyDecision,
    DropSnapshot,
    FollowTxQueue,
    KeepChunk,
    LeaveTxQueue,
    LoadOpened,
    MakeSnapshot,
    OpenLoad,
    ReadChunks,
    SnapshotMade,
)
from brokerha.model.records import MasterState, ViewStarted
from brokerha.model.requests import Absence, Reply, Submit, TxCommand, TxReply
from brokerha.model.wire.messages import Envelope, Outgoing
from brokerha.model.wire.process_messages import Promote
from brokerha.nodes.master.address_book import AddressedTransport
from brokerha.nodes.master.runner import (
    IDLE_MS,
    READY_LIMIT,
    RETRY_MS,
    TURN_LIMIT,
    Failure,
    JournalDoor,
    MasterRunner,
    NodeHandler,
    no_crash,
)
from brokerha.nodes.observing.master_view import backup_row
from brokerha.nodes.worker.runner import WorkThread, failed_answer, load_chunks, read_chunks
from brokerha.ports.clock import Clock
from brokerha.ports.copies import JournalCopy
from brokerha.ports.transport import Inbound
from brokerha.replication.journal.log import FIRST_VIEW
from brokerha.replication.role.config import RoleChange, RoleConfig
from brokerha.replication.role.role import Role
from brokerha.replication.role.table import RoleState

# ---- Carries out the decisions of a process's core about its journal as a whole: snapshots, chunks, loads.
#
#     thread "journal copy"    makes snapshots, reads and writes chunks, in the order of the decisions
#     loop                     opens a loaded journal, because no record may be appended meanwhile
#
# A `LoadOpened` has the number of the loaded journal's last record, where that of a worker has its LSN.


def carry_out_journal(copy: JournalCopy, decision: CopyDecision) -> CopyAnswer | None:
    """Carry out a decision; return the answer for the core, or None when there is none."""
    try:
        match decision:
            case MakeSnapshot():
                return SnapshotMade(decision.snapshot, *copy.make_snapshot(decision.snapshot))
            case ReadChunks():
                return read_chunks(copy, decision, JournalError)
            case DropSnapshot():
                copy.drop_snapshot(decision.snapshot)
                return None
            case AbandonLoad():
                copy.abandon_load()
                return None
            case BeginLoad() | KeepChunk():
                return load_chunks(copy, decision)
            case OpenLoad():
                copy.open_load()
                state = copy.journal.state()
                return LoadOpened(state.journal, state.last_number, "", 0)
    except JournalError as error:
        return failed_answer(decision, str(error))
    invariant(False, "a journal is not asked for what only a worker's copy has", decision=decision)
    return None


class JournalThread:
    """`runner.JournalDoor` with a thread of its own."""

    def __init__(self, copy: JournalCopy, name: str, wake: Callable[[], None]) -> None:
        self._copy = copy
        self._wake = wake
        self._done: deque[CopyAnswer] = deque()
        self._thread: WorkThread[CopyDecision] = WorkThread(f"{name} journal copy", self._do)

    def begin(self, decision: CopyDecision) -> None:
        """Start a decision; a load is opened at once, in the calling loop."""
        if isinstance(decision, OpenLoad):
            self._do(decision)
        else:
            self._thread.put(decision)

    def finished(self) -> list[CopyAnswer]:
        """Return the answers since the last call."""
        return [self._done.popleft() for _ in range(len(self._done))]

    def close(self, timeout_s: float) -> None:
        """Finish the work in hand and take no more."""
        self._thread.close(timeout_s)

    def _do(self, decision: CopyDecision) -> None:
        try:
            answer = carry_out_journal(self._copy, decision)
        except Exception as error:  # noqa: BLE001  (a fault here ends a load or an offer, not the process)
            answer = failed_answer(decision, f"{type(error).__name__}: {error}")
        if answer is not None:
            self._done.append(answer)
            self._wake()


@dataclass(frozen=True, slots=True)
class ProcessConfig:
    """Configuration of one process of a master."""

    master: MasterConfig
    role: RoleConfig
    sync_timeout_ms: int = 5000
    goes_idle: bool = False
    """Whether a primary that loses its backups waits for an operator to declare a primary, instead of trying on."""

    @property
    def process(self) -> NodeId:
        """Id of this process."""
        return self.role.process


def position_of(state: MasterState) -> tuple[int, int]:
    """Return (view, number) of the last record of a journal."""
    return (state.views[-1][0] if state.views else FIRST_VIEW, state.last_number)


def _nothing(_role: str, _view: int, _runner: MasterRunner | None) -> None:
    """Ignore a change of role."""


class ProcessRunner:
    """One process of a master with backups."""

    def __init__(
        self,
        config: ProcessConfig,
        copy: JournalCopy,
        transport: AddressedTransport,
        clock: Clock,
        door: JournalDoor,
        *,
        on_change: Callable[[str, int, MasterRunner | None], None] = _nothing,
        on_reply: Callable[[Reply], None] = lambda _reply: None,
        on_tx_reply: Callable[[TxReply], None] = lambda _reply: None,
        crash_point: Callable[[str], None] = no_crash,
    ) -> None:
        """``on_change`` gets the role, the view, and the runner of the master while this process is primary."""
        self.config = config
        self.copy = copy
        self.transport = transport
        self.clock = clock
        self.door = door
        self.crash_point = crash_point
        self.on_change = on_change
        self.on_reply = on_reply
        self.on_tx_reply = on_tx_reply
        self.on_node: NodeHandler = lambda _envelope, _now: False
        """Takes questions while this process is a standby."""
        self.failure: Failure | None = None
        """Why the journal cannot be written; None while it can."""
        self.on_failure: Callable[[str], None] = no_crash
        """Called with the reason of each failure."""
        self._damage = ""
        """Damage of the journal, until a load that replaces it has begun."""
        self.writes = Histogram()
        """Time that the journal took to make records durable, as primary or standby."""
        self.role_changes = 0
        state = copy.journal.state()
        self.role = Role(config.role, state.journal, state.promised_view, position_of(state), clock.now())
        self.master: MasterRunner | None = None
        self.standby: Standby
        """In use while this process is not primary."""
        self._retry_at_ms = 0
        self._followed: set[str] = set()
        """Queues of transactions that this process follows, even if its participant has forgotten them."""
        self._pointed: NodeId = ""
        """Primary that gets the questions while this process is a standby."""
        self._floor: Lsn | None = None
        """Bounds of what the journal can still forget, one step in each turn."""
        self._stand_by()

    def wait_ms(self) -> int:
        """Return how long the next turn can wait for a message."""
        if self.master is not None:
            return self.master.wait_ms()
        now = self.clock.now()
        if self.failure:
            return max(0, min(IDLE_MS, self._retry_at_ms - now.mono_ms))
        due = self.standby.deadline_ms()
        return IDLE_MS if due is None else max(0, min(IDLE_MS, due - now.mono_ms))

    def turn(self, submits: Iterable[Submit | TxCommand] = (), wait_ms: int = 0) -> int:
        """Take one turn as primary or standby; return the number of inputs. Only a primary takes writes."""
        if self.master is not None:
            count = self.master.turn(submits, wait_ms)
            self.look()
            return count
        items = self.transport.receive(TURN_LIMIT, wait_ms)
        now = self.clock.now()
        if self.failure and now.mono_ms < self._retry_at_ms:
            return len(items)
        try:
            if self.failure:
                self._start_again()
            self._stand_by_turn(items, now)
        except JournalError as error:
            self._fail(error)
        return len(items)

    def _stand_by_turn(self, items: Sequence[Inbound], now: Instant) -> None:
        standby = self.standby
        for answer in self.door.finished():
            journal = self.copy.journal
            standby.answer(answer, journal, journal.state() if isinstance(answer, LoadOpened) else None, now)
        for item in items:
            if isinstance(item, Absence):
                standby.role.on_absence(item.node, now)
            elif isinstance(item, Envelope) and not self.on_node(item, now):
                standby.step(item, now)
        if standby.follower.primary and standby.follower.primary != self._pointed:
            self._pointed = standby.follower.primary
            self.transport.point(self.config.role.master, self._pointed)
        standby.follower.free_bytes = self.copy.free_bytes()
        if self._damage and standby.follower.on_damaged(self._damage, now):
            self._damage = ""
        standby.wake(now)
        self._carry_out(standby, now)
        self._forget()

    def _carry_out(self, standby: Standby, now: Instant) -> None:
        for _ in range(READY_LIMIT):
            ready = standby.take(now)
            if not ready:
                return
            self.crash_point("nothing written")
            journal = self.copy.journal
            if ready.promise:
                journal.promise(ready.promise)
            if ready.rest is not None:
                journal.rest(ready.rest)
            if ready.records:
                began_s = perf_counter()
                journal.follow(ready.records)
                self.writes.observe(perf_counter() - began_s)
                self.crash_point("written, nothing sent")
                standby.followed(ready.records)
            if ready.floor is not None:
                self._floor = ready.floor
            for decision in ready.tx_queues:
                self.transport.tx_queue(decision)
                if isinstance(decision, FollowTxQueue):
                    self._followed.add(decision.queue)
                else:
                    self._followed.discard(decision.queue)
            self.transport.send(ready.messages)
            if ready.look:
                self.transport.look_for(ready.look)
            self.crash_point("sent, not answered")
            for copy_decision in ready.decisions:
                self.door.begin(copy_decision)
            if ready.change is not None:
                self._on_role(ready.change)
                return

    def _forget(self) -> None:
        """Let the journal forget what the primary forgot, one bounded step in each turn."""
        if self._floor is not None and self.master is None and not self.copy.journal.keep(self._floor):
            self._floor = None

    def look(self) -> None:
        """Stop being primary when the role has changed; called after each turn of the master."""
        primary = self.master.primary if self.master is not None else None
        if self.master is not None and primary is not None and primary.change is not None:
            change, failure = primary.change, self.master.failure
            self.master.close_tickets(f"{self.config.process} is not primary any more: {change.reason}", is_parting=True)
            self.master = None
            self.transport.speak_for("", 0)
            self._stand_by()
            if failure:
                # A promise that was not written does not count: role and follower begin again from the journal.
                self.failure, self._retry_at_ms = failure, self.clock.now().mono_ms + RETRY_MS
            self._tell(change)

    def _on_role(self, change: RoleChange) -> None:
        if change.state is RoleState.PRIMARY:
            self._act(change)
        else:
            self._tell(change)

    def _act(self, change: RoleChange) -> None:
        """Become primary, with the state of the journal, as after a restart."""
        journal = self.copy.journal
        if len(self.config.role.processes) > 1:
            journal.append([ViewStarted(change.view, self.config.process)])
        self.crash_point("view started")
        state = journal.state()
        self.role.moved(position_of(state))
        primary = Primary(self.role, journal, state, sync_timeout_ms=self.config.sync_timeout_ms, goes_idle=self.config.goes_idle)
        self.master = MasterRunner(
            self.config.master, journal, self.transport, self.clock, self.on_reply, self.crash_point, primary, self.door
        )
        self.master.on_tx_reply = self.on_tx_reply
        self.master.writes = self.writes
        self._pointed = ""
        self.transport.point(self.config.role.master, self.config.process)
        self.transport.speak_for(self.config.role.master, self.master.core.sync.incarnation)
        self._tell(change)

    def _stand_by(self) -> None:
        state = self.copy.journal.state()
        self.standby = Standby(self.role, self.copy.journal, state, self.copy.pending_load)

    def _tell(self, change: RoleChange) -> None:
        self.role_changes += 1
        word = {RoleState.PRIMARY: "primary", RoleState.IDLE: "idle"}.get(change.state, "backup")
        self.on_change(word, change.view, self.master)

    def _fail(self, error: JournalError) -> None:
        """Note a failure of the journal, to try again later. A damaged journal is replaced then."""
        self.failure = Failure.of(error)
        if isinstance(error, JournalDamaged):
            self._damage = error.damage
            self.failure = self.failure._replace(reason=error.damage)
        self.on_failure(str(self.failure))
        self._retry_at_ms = self.clock.now().mono_ms + RETRY_MS

    def _start_again(self) -> None:
        """Build role and follower again from the journal: they relied on records that are not durable."""
        state, trouble = self.copy.journal.state(), str(self.failure)
        self.failure = None
        for queue in self._followed:
            self.transport.tx_queue(LeaveTxQueue(queue))
        self._followed.clear()
        self.role = Role(self.config.role, state.journal, state.promised_view, position_of(state), self.clock.now())
        self._stand_by()
        self.standby.follower.trouble = trouble

    # ---- orders and questions

    def promote(self, node: NodeId, *, is_forced: bool) -> dict[str, Any]:
        """Start to make a process primary, on an operator's order. Raises NotReady with the obstacle."""
        now = self.clock.now()
        if node == self.config.process:
            refusal = self.role.promoted_by_hand(now, force=is_forced)
        elif self.master is not None and self.master.primary is not None and not is_forced:
            refusal = self.master.primary.hand_over(node, now)
        else:
            self.transport.send([Outgoing(node, Promote(is_forced))])
            refusal = ""
        if refusal:
            raise NotReady(refusal)
        return {"node": node, "forced": is_forced, "primary": self.primary, "view": self.role.view}

    def order(self, command: str, *, is_forced: bool) -> dict[str, Any]:
        """Pause this process, coin it, or let it continue, on an operator's order; durable on return.

        Raises WrongState with the first step to take, NotReady when the journal fails.
        """
        process = self.config.process
        if self.master is not None:
            raise WrongState(f"{process} is primary of {self.config.role.master}: first brokerha promote another process of it")
        if self.failure:
            raise NotReady(str(self.failure))
        now, before = self.clock.now(), self.standby.resting.rest
        if refusal := self.standby.order(command, now, is_forced=is_forced):
            raise WrongState(refusal)
        is_changed = self.standby.resting.rest != before
        try:
            self._carry_out(self.standby, now)
        except JournalError as error:
            self._fail(error)
            raise NotReady(f"nothing is known to have changed: {self.failure}") from error
        state, reason = self.state()
        return {"node": process, "changed": is_changed, "state": state, "reason": reason}

    @property
    def primary(self) -> NodeId:
        """The primary as far as this process knows; empty when it knows of none."""
        return self.role.primary

    def state(self) -> tuple[str, str]:
        """Return the state word and reason of this process."""
        if self.failure:
            return self.failure
        # Other threads ask too, while the loop can be changing it.
        if (master := self.master) is not None:
            return master.state()
        state, reason = self.standby.state(self.clock.now())
        if self._damage:
            # No primary has replaced the journal yet.
            reason = "; ".join(filter(None, (f"its journal is damaged: {self._damage}", reason)))
        return state, reason

    def rows(self) -> list[dict[str, Any]]:
        """Return the status row of a standby."""
        state, reason = self.state()
        view, _ = position_of(self.copy.journal.state())
        row = backup_row(self.config.process, self.config.role.master, state, reason)
        return [{**row, "seen_s": 0.0, "view": view, "primary": self.primary or None}]

    def metrics(self) -> Numbers:
        """Return the numbers for /metrics, besides those of the master."""
        numbers: Numbers = {
            "is_primary": self.master is not None,
            "role_changes_total": self.role_changes,
            "promised_view": self.role.promised,
        }
        return numbers
