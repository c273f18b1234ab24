"""One master in one process: journal, core, loop, and the front that takes writes and reads.

    loop thread     turns of the MasterRunner: receive, step, write, send, answer
    other threads   front doors: they check a write, put it into the inbox and get a future

This module decides nothing about agreement: MasterCore does. It connects tickets to futures, reads to workers, and questions to
the loop.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from brokerha.ingress.suspects import Suspects
from brokerha.local_reads.asking import AskingThread
from brokerha.master.command_arguments import AT_NODES
from brokerha.master.config import MasterConfig
from brokerha.master.core import MasterCore
from brokerha.model import states
from brokerha.model.errors import ConfigurationError, InvalidRequest, NotReady, TimedOut
from brokerha.model.ids import Instant, Lsn, NodeId, TxId
from brokerha.model.numbers import Numbers
from brokerha.model.operations import LoggedRow, Operation
from brokerha.model.outside.levels import LATEST_LSN
from brokerha.model.requests import APPLIED_LEVEL, UNKNOWN, WAIT, Reply, Submit, TxCommand
from brokerha.model.wire.messages import (
    ClaimsWanted,
    Envelope,
    Outgoing,
    Read,
    ReadResult,
    SettingsReport,
    SettingsRequest,
    StatusReport,
    StatusRequest,
)
from brokerha.nodes.front.amqp_front import AmqpFront
from brokerha.nodes.front.checking import check_read, check_terms, checked_body
from brokerha.nodes.front.commands import Commands
from brokerha.nodes.front.taking import Host
from brokerha.nodes.front.transacting import Transacting
from brokerha.nodes.loop import NodeLoop, complete, parting_ms
from brokerha.nodes.master.orders import Orders
from brokerha.nodes.master.runner import MasterRunner
from brokerha.nodes.master.settings import MasterSettings, SettingsHost
from brokerha.nodes.master.tickets import Tickets
from brokerha.nodes.observing.master_view import MasterView
from brokerha.nodes.observing.staleness import Staleness, with_age
from brokerha.nodes.observing.status import StatusGathering, heard_of, summary
from brokerha.nodes.observing.watching import FailureLog, Watching
from brokerha.nodes.reads.reading import Reads
from brokerha.nodes.reads.routing import RoutingLimits
from brokerha.nodes.reads.worker_order import WorkerFacts
from brokerha.nodes.settings import NodeSettings
from brokerha.ports.clock import Clock
from brokerha.ports.front import Readers, ReadOutcome
from brokerha.ports.journal import Journal
from brokerha.ports.log_stream import LogPublisher
from brokerha.ports.transport import Transport
from brokerha.transactions.locks import Locks

OUTCOME_S = 10.0
"""Longest time that an answer about a transaction waits for the backups."""


class MasterNode:
    """One master; a Front."""

    def __init__(
        self,
        config: MasterConfig,
        cluster: str,
        journal: Journal,
        transport: Transport,
        clock: Clock,
        settings: NodeSettings,
        followers: LogPublisher | None = None,
        reads: RoutingLimits | None = None,
        *,
        protect_single_worker: bool = True,
        shares_broker: bool = True,
        leaves_writes: bool = False,
        suspects: Suspects | None = None,
        near: AskingThread | None = None,
        runner: MasterRunner | None = None,
        loop: NodeLoop | None = None,
        orders: Orders | None = None,
    ) -> None:
        """``settings``: the run-time settings. ``followers``: publishes committed transactions to programs outside, or None.
        ``shares_broker``: whether other masters take writes from the same shared queues. ``leaves_writes``: whether this master
        leaves these queues to them while it has no worker. ``suspects``: messages of apps that were in hand when the node
        ended; None remembers none. ``near``: workers of this machine, for reads of apps; None asks all workers over the broker.

        With ``runner``, ``loop`` and ``orders`` the master is a part of a process that has backups (process_node.py). That process
        takes the turns, and `retire` ends the master.
        """
        self.config = config
        self.cluster = cluster
        self.journal = journal
        self.transport = transport
        self.clock = clock
        self.followers = followers
        self.tickets = Tickets()
        self.runner = runner or MasterRunner(config, journal, transport, clock, self.tickets.on_reply)
        self.runner.on_reply = self.tickets.on_reply
        self.runner.on_failure = FailureLog(self.node_id, clock).tell
        self.staleness = Staleness()
        self.amqp = AmqpFront(self, transport, self.tickets, self.runner.when_safe, self._in_loop, suspects, near)
        self.view = MasterView(
            cluster,
            self.runner,
            transport,
            self.staleness,
            lambda: self.amqp.attention() or settings.attention(),
            settings.restart_for,
        )
        self._orders = orders
        self.runner.on_client = self.amqp.on_client
        self.runner.on_node = self._on_node
        self.loop = loop or NodeLoop(f"{self.node_id} loop", self.turn, transport.wake)
        self.transacting = Transacting(self.loop, clock, self._host())
        self.runner.on_tx_reply = self.transacting.on_reply
        self.commands = Commands(clock, protect_single_worker=protect_single_worker)
        self._inbox: deque[Submit] = deque()
        self._reads = Reads(f"{self.node_id}.{self.runner.core.sync.incarnation}", reads)
        self._gathering = StatusGathering(self.node_id, config.sync.members)
        self.settings = MasterSettings(settings, self._settings_host())
        settings.on_change = lambda: self.runner.core.sync.epochs.on_settings(self.runner.core.sync.mode)
        parts = (transport, self.view, self.staleness, self._gathering.look_for)
        self.watching = Watching(
            self.node_id, config.sync.members, *parts, shares_broker=shares_broker, leaves_writes=leaves_writes
        )
        self._waits: list[tuple[Lsn, int, int, Future[dict[str, Any]]]] = []
        self._readable: tuple[NodeId, ...] | None = None
        """Readable workers as of the last turn; None until a door asks."""
        self._door_reads = 0
        """Number of reads that a door answered through `readers`."""
        self._is_publishing = False
        self._ended = ""
        """Why it refuses calls after it was retired; empty while it serves. Callers can still hold an old reference."""
        state = journal.state()
        self._txid_prefix = f"{self.node_id}.{state.journal[:8]}.{state.next_incarnation:x}."
        self._txid_numbers = itertools.count(1)

    def start(self) -> None:
        """Start the loop."""
        self.loop.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Finish the turn, answer all waiting callers, close everything. Idempotent."""
        if self.loop.stop(timeout_s):
            self.runner.leave()
        self.retire("the master is stopping", timeout_s)
        self.transport.close(parting_ms(self.transport, timeout_s))
        self.journal.close()

    def retire(self, reason: str, timeout_s: float = 2.0) -> None:
        """Answer all waiting callers: another process is primary from now on, or the node stops. Idempotent."""
        self._ended = reason
        self._reads.close(reason)
        self.transacting.close(reason)
        self.commands.close(reason)
        self.settings.close(reason)
        waits, self._waits = self._waits, []
        for *_, future in waits:
            complete(future, NotReady(reason))
        self.tickets.close(reason)
        self.amqp.close()
        if self.followers is not None:
            self.followers.close(min(2.0, timeout_s))

    def _tell(self, followers: LogPublisher) -> None:
        if not self._is_publishing and self.transport.status().state == "connected":
            # Only when connected: a second process under this id gets no inbox, and must not write to the first one's stream.
            self._is_publishing = True
            followers.start()
        followers.note(min(self.runner.core.feed.executed, self.runner.safe_lsn))

    def turn(self) -> None:
        """Take one turn of the loop."""
        wait = 0 if self._inbox or self.loop.has_calls or self.transacting.has_commands else self._wait_ms()
        self.runner.turn(self._handed_in(), wait)
        self.amqp.after_turn()
        if self.followers is not None:
            self._tell(self.followers)
        self.commands.settle(self.runner)
        self.loop.serve_calls()
        now = self.runner.now
        self.transacting.tick(now.mono_ms)
        if self.watching.is_due(now):
            self.watching.note(self.runner, self._reads.asked + self._near_reads, now)
        if self._readable is not None:
            self._readable = tuple(self.runner.core.feed.readable(now.mono_ms))
        if self._reads.due_ms() is not None:
            self.transport.send(self._reads.tick(self._readers(now.mono_ms), now.mono_ms))
        if self._waits:
            self._serve_waits(now)
        self.settings.tick(now)

    def _handed_in(self) -> Iterator[Submit | TxCommand]:
        """Yield the inputs for the core in this turn. The runner asks after its sleep, so that the waking call is included."""
        if self._inbox:
            yield from [self._inbox.popleft() for _ in range(len(self._inbox))]
        if self.transacting.has_commands:
            yield from self.transacting.take_commands()
        yield from self.amqp.retry(self.runner.now)

    def _wait_ms(self) -> int:
        """Return how long the loop can sleep: until the core, a read or a wait for an LSN is due."""
        first_ms = min(wait[2] for wait in self._waits) if self._waits else None
        for at_ms in (self.watching.due_ms(), self._reads.due_ms(), self.transacting.due_ms(), self.settings.due_ms):
            if at_ms is not None and (first_ms is None or at_ms < first_ms):
                first_ms = at_ms
        wait_ms = self.runner.wait_ms()
        return wait_ms if first_ms is None else max(0, min(wait_ms, first_ms - self.clock.now().mono_ms))

    def _readers(self, mono_ms: int) -> list[WorkerFacts]:
        """Return the workers that can read now."""
        feed = self.runner.core.feed
        workers = (feed.workers[node] for node in feed.readable(mono_ms))
        return [WorkerFacts(each.node, each.applied, each.said.running_reads, each.heard_ms) for each in workers]

    def _on_node(self, envelope: Envelope, now: Instant) -> bool:
        message = envelope.message
        if isinstance(message, ReadResult):
            self.transport.send(self._reads.on_result(message, now.mono_ms))
        elif isinstance(message, StatusRequest):
            report = StatusReport(message.request, tuple(self.view.rows(self.clock.now())))
            self.transport.send([Outgoing(envelope.process or envelope.sender, report)])
        elif isinstance(message, StatusReport):
            self._gathering.on_report(envelope.sender, message)
        elif isinstance(message, SettingsRequest):
            told = self.settings.report()
            self.transport.send([Outgoing(envelope.process or envelope.sender, report) for report in told])
        elif isinstance(message, ClaimsWanted):
            self.transacting.consumers.give_back(message.queue)
        elif isinstance(message, SettingsReport):
            self.settings.on_report(envelope.sender, message)
        else:
            return self._orders is not None and self._orders.on_node(envelope)
        return True

    def _settings_host(self) -> SettingsHost:
        def core() -> MasterCore:
            return self.runner.core

        def ask_worker(min_lsn: Lsn, timeout_ms: int) -> Future[ReadOutcome] | None:
            if not self._readers(self.clock.now().mono_ms):
                return None
            found: Future[ReadOutcome] = Future()
            self._ask_worker("settings", "", {}, min_lsn, timeout_ms, found)
            return found

        def has_workers() -> bool:
            return bool(core().feed.workers)

        return SettingsHost(
            self.node_id,
            self.clock.now,
            ask_worker,
            self.transport.send,
            lambda body, level: self._hand_in(body, self.new_txid(), level),
            self._gathering.others,
            lambda: self.runner.core.sync.lsn,
            lambda: self.applied_lsn() if has_workers() else core().sync.lsn,
            has_workers,
        )

    # ---- Front

    @property
    def node_id(self) -> str:
        """Id of this node."""
        return self.config.sync.node

    @property
    def role(self) -> str:
        """Role of this node."""
        return "master"

    def new_txid(self) -> TxId:
        """Return a transaction id that is unique by construction: node, name of its journal, incarnation, number."""
        return f"{self._txid_prefix}{next(self._txid_numbers):x}"

    def submit(
        self,
        operations: Sequence[Operation] | bytes,
        txid: TxId = "",
        level: str = APPLIED_LEVEL,
        copies: int = 1,
        timeout_ms: int = 30_000,
        apart: str = WAIT,
        user: str = "",
    ) -> Future[Reply]:
        """Check a write and hand it to the loop."""
        self._check_not_ended()
        txid = txid or self.new_txid()
        check_terms(txid, level, copies, timeout_ms, apart)
        return self._hand_in(checked_body(operations, user), txid, level, copies, timeout_ms, apart)

    def _hand_in(
        self, body: bytes, txid: TxId, level: str, copies: int = 1, timeout_ms: int = 30_000, apart: str = WAIT
    ) -> Future[Reply]:
        if not self.loop.is_running:
            why = f": {self.loop.fault}" if isinstance(self.loop.fault, ConfigurationError) else ""
            raise NotReady(f"the master is not running{why}")
        ticket, future = self.tickets.for_future(txid)
        self._inbox.append(Submit(ticket, txid, body, level, copies, timeout_ms, apart))
        if self._ended:
            # The node ended meanwhile: this input is in the inbox that the loop no longer reads, or was among the last.
            self.tickets.on_reply(Reply(ticket, txid, UNKNOWN, 0, "OutcomeUnknown", self._ended, is_parting=True))
        self.transport.wake()
        return future

    def read(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn = 0, timeout_ms: int = 30_000
    ) -> Future[ReadOutcome]:
        """Pass a read on to a worker; a read inside a transaction sees its operations so far."""
        if "tx" in arguments:
            return self.transacting.read(kind, name, arguments, min_lsn, timeout_ms)
        future: Future[ReadOutcome] = Future()

        def ask() -> None:
            self._check_not_ended()
            check_read(kind, name, arguments, min_lsn, timeout_ms)
            self._ask_worker(kind, name, arguments, min_lsn, timeout_ms, future)

        self.loop.call_for(future, ask)
        return future

    def readers(self, min_lsn: Lsn) -> Readers:
        """Return the readable workers as of the last turn; a worker that has not reached the LSN refuses by itself."""
        least = self.runner.core.sync.lsn if min_lsn == LATEST_LSN else min_lsn
        lingers_after = self.runner.core.feed.lingers_after
        if lingers_after is not None and least > lingers_after:
            self.loop.call(lambda: self.runner.core.feed.expect(least))
        age = self.staleness.of(self.clock.now().mono_ms)
        if self._readable is None:
            self._readable = ()
        return Readers(() if self._ended else self._readable, least, *age)

    @property
    def _near_reads(self) -> int:
        """Number of reads of doors and of apps that workers of this machine answered."""
        return self._door_reads + self.amqp.read_near

    def was_read(self) -> None:
        """Count one more read; only the door's thread calls this."""
        self._door_reads += 1

    def _ask_worker(
        self, kind: str, name: str, arguments: dict[str, Any], min_lsn: Lsn, timeout_ms: int, future: Future[ReadOutcome]
    ) -> None:
        """Send a read to a worker; called by the loop."""
        mono_ms = self.clock.now().mono_ms
        least = self.runner.core.sync.lsn if min_lsn == LATEST_LSN else min_lsn
        self.runner.core.feed.expect(least)
        read = Read("", kind, name, arguments, least, timeout_ms)
        # Measured before the read is sent: the state that the worker shows is at least this recent.
        self.staleness.note(self.runner.core, self.clock.now())
        marked = with_age(future, self.staleness.of(mono_ms))
        self.transport.send(self._reads.ask(read, self._readers(mono_ms), mono_ms, marked))

    def transact(self, action: str, txid: TxId, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        """Take one step of a transaction (nodes/front/transacting.py)."""
        return self.transacting.transact(action, txid, arguments, timeout_ms)

    def _host(self) -> Host:
        def rows() -> list[dict[str, Any]]:
            return self.runner.core.transacting.coordinator.rows(self.clock.now())

        def submit(body: bytes, timeout_ms: int) -> Future[Reply]:
            return self._hand_in(body, self.new_txid(), APPLIED_LEVEL, timeout_ms=timeout_ms)

        def locks() -> Locks:
            return self.runner.core.transacting.coordinator.book.locks

        def taken(txid: TxId, first: int) -> Sequence[str]:
            return self.runner.core.transacting.taken(txid, first)

        def want(masters: Iterable[NodeId], queue: str) -> None:
            known = self._gathering.others()
            self.transport.send([Outgoing(master, ClaimsWanted(queue)) for master in masters if master in known])

        return Host(self.node_id, self.new_txid, self._ask_worker, self.applied_lsn, rows, submit, locks, taken, want)

    def command(self, name: str, arguments: dict[str, Any], timeout_ms: int = 30_000) -> Future[dict[str, Any]]:
        """Carry out an operator's command, and answer when its change is durable. ``rates`` changes nothing and answers at once."""
        if name == "rates":
            return self.loop.call(lambda: self.view.rates(**arguments))
        if self._orders is not None and self._orders.are(name, arguments):
            return self._orders.give(name, arguments)
        if name in AT_NODES:
            return self.settings.run(self.loop, name, arguments, timeout_ms)
        return self.commands.run(self.loop, self.runner, name, arguments)

    def outcome(self, txid: TxId) -> dict[str, Any] | None:
        """Return the outcome of a transaction, once enough backups hold it. Raises NotReady, TimedOut."""
        told: Future[dict[str, Any] | None] = Future()

        def ask() -> None:
            self._check_not_ended()
            if self.runner.failure:
                raise NotReady(str(self.runner.failure))
            found = self.view.outcome(txid)
            self.runner.when_safe(lambda: told.set_result(found))

        self.loop.call(ask).result(10)
        try:
            return told.result(OUTCOME_S)
        except TimeoutError:
            message = f"too few backups confirm what {self.node_id} would say of transaction {txid}: ask again"
            raise TimedOut(message) from None

    def status(self, timeout_ms: int = 2000) -> dict[str, Any]:
        """Return the status of the whole cluster as seen from here."""
        asked_ms = self.loop.call(lambda: self.clock.now().mono_ms).result(10)
        others = self._gathering.gather(self.loop, self.transport, timeout_ms)
        # Read after the gathering: the core is built again after a failure of its disk.
        sync = self.runner.core.sync
        own, heard = self.loop.call(lambda: (self.view.rows(self.clock.now()), sync.peers.heard_since(asked_ms))).result(10)
        aside = self.transport.status().set_aside

        def told(row: dict[str, Any]) -> dict[str, Any]:
            # A master that is heard, or whose messages are set aside, is running: nobody needs to start it.
            if row["state"] == states.UNREACHABLE and row["id"] in {*heard, *aside}:
                return heard_of(row["id"], aside.get(row["id"]))
            return row

        return summary(self.cluster, sync.epoch.number, [*map(told, others), *own])

    def log(self, first_lsn: Lsn, last_lsn: Lsn) -> list[dict[str, Any]]:
        """Return lines of the synchronised queue, with every result that an answer has told."""
        told = self.loop.call(self.runner.core.unwritten_results).result(10)
        return self.view.log(first_lsn, last_lsn, told)

    def logged(self, first_lsn: Lsn, last_lsn: Lsn) -> list[LoggedRow]:
        """Return lines of the log in the form that a store can apply."""
        return self.view.logged(first_lsn, last_lsn)

    def entries(self, first_lsn: Lsn, last_lsn: Lsn) -> dict[str, Any]:
        """Return the same lines with origins and epochs, and the range of the log that can be read."""
        return self.view.entries(first_lsn, last_lsn)

    def writable(self) -> tuple[bool, str]:
        """Tell whether this master takes writes now."""
        state, reason = self.runner.state()
        if not self.loop.is_running or state in (states.DISK_FULL, states.HALTED, states.LOST_STATE):
            return False, f"{state}: {reason}"
        refusal = self.runner.core.refusal(self.clock.now())
        return not refusal, refusal

    def ready(self, max_lag_entries: int | None = None, max_lag_s: float | None = None) -> tuple[bool, list[str]]:
        """Tell whether reads can be served through this master."""
        return self.view.ready(self.loop.is_running, max_lag_entries, max_lag_s, self.clock.now())

    def applied_lsn(self) -> Lsn:
        """Return the highest LSN that a worker of this site has applied."""
        return self.runner.core.feed.applied_by(1)

    def wait_for(self, lsn: Lsn, workers: int | str, timeout_ms: int) -> Future[dict[str, Any]]:
        """Complete when enough workers of this site have applied ``lsn``."""
        future: Future[dict[str, Any]] = Future()
        count = len(self.runner.core.site.workers)
        copies = count if workers == "all" else count // 2 + 1 if workers == "quorum" else int(workers)
        if not 1 <= copies <= count:
            has = f"this site has {count} workers: wait for 1 to {count} of them"
            raise InvalidRequest(has if count else "this site has no worker to wait for: ask another one")

        def note() -> None:
            self._check_not_ended()
            self.runner.core.feed.expect(lsn)
            self._waits.append((lsn, copies, self.clock.now().mono_ms + timeout_ms, future))

        self.loop.call_for(future, note)
        return future

    def _in_loop(self, act: Callable[[], None]) -> None:
        self.loop.call(act)

    def _check_not_ended(self) -> None:
        if self._ended:
            raise NotReady(self._ended)

    def _serve_waits(self, now: Instant) -> None:
        feed = self.runner.core.feed
        still = []
        for wait in self._waits:
            lsn, copies, deadline_ms, future = wait
            if future.done():
                continue
            if feed.applied_by(copies) >= lsn:
                done = [w.node for w in feed.workers.values() if w.applied >= lsn]
                complete(future, {"lsn": feed.applied_by(copies), "workers": done})
            elif now.mono_ms >= deadline_ms:
                message = f"LSN {lsn} is not applied on {copies} workers yet: they are at {feed.applied_by(copies)}"
                complete(future, TimedOut(message))
            else:
                still.append(wait)
        self._waits = still

    def metrics(self) -> Numbers:
        """Return the numbers for /metrics."""
        seen = self.loop.call(self._seen_metrics).result(10) if self.loop.is_running else self._seen_metrics()
        numbers = {**seen, **self._reads.metrics(), "reads_near_total": self._near_reads}
        numbers["reads_total"] += self._near_reads
        if self.followers is not None:
            numbers["log_stream_lsn"] = self.followers.published_lsn()
        return numbers

    def _seen_metrics(self) -> Numbers:
        now = self.clock.now()
        told = self.watching.metrics(now.mono_ms)
        return {**self.view.metrics(now), **told, **self.tickets.metrics(), **self.amqp.metrics()}
