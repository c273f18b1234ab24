"""The invariants of the protocol, checked from outside during a run, without trust in the cores.

Three things are observed: durable records, messages and replies, and actions of workers. From the records alone the checkers keep a
**mirror** of each master's durable state, and for all masters together

    canon       the synchronised queue: the longest one of any master; all others must be prefixes of it
    streams     the entries that each origin stamped, in its own order

so that the cost of a check depends on the change, never on a length. ``check`` raises `Violation`, which names the invariant by the
letters and numbers of brokerha/sync/PROTOCOL.md.

    truth.py             the canon, the streams, the mirrors; model.py computes content from the canon
    checkers.py          routing; decisions and stores: S7, equal results, content; answers: at most one, true; memory (S9); the end (S4, S10)
    durable.py           records: S1, S2, S3, S5, S6, S8, S11
    messages.py          messages: S7 (messages to workers), S8, S9, S11
    copies.py            copies of workers: F3, F4, F5, F7, F9, F12
    readiness.py         masters' decisions about workers: F8, F13
    journals.py          masters with backups: P1, P2, P3, P5, P6, J1, J2
    transactions.py      transactions: T1, T3, T4, T5, T6, T7
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from brokerha.model.ids import NodeId
from brokerha.model.operations import REJECTED, ResultRow
from brokerha.model.outside.authors import is_same_work
from brokerha.model.ready import ApplyBatch, Decision, ExecuteBatch, StoreDone, StoreFailed
from brokerha.model.records import Accepted, Record
from brokerha.model.requests import ACCEPTED, APPLIED_LEVEL, REFUSED, REJECTED_STATUS, SYNCHRONISED, UNKNOWN, Reply
from brokerha.model.wire.epoch_messages import EpochInstall, EpochPrepare, EpochReport, Join, Tail
from brokerha.model.wire.messages import (
    BETWEEN_PROCESSES,
    Apply,
    Bodies,
    Chunk,
    ChunksWanted,
    Coin,
    Envelope,
    Execute,
    Executed,
    Fetch,
    LoadFrom,
    Outgoing,
    Post,
    Progress,
    SnapshotOffered,
)
from brokerha.nodes.master.runner import MasterRunner
from tests.simulator.backups import SimProcess
from tests.simulator.checks.copies import CopyChecks
from tests.simulator.checks.durable import DurableChecks
from tests.simulator.checks.journals import JournalChecks
from tests.simulator.checks.messages import MessageChecks
from tests.simulator.checks.readiness import ReadinessChecks
from tests.simulator.checks.transactions import TxChecks
from tests.simulator.checks.truth import Truth, check
from tests.simulator.clients.transactions import TxClients
from tests.simulator.clients.workload import Clients
from tests.simulator.cluster import Cluster
from tests.simulator.copies import SimCopy
from tests.simulator.members import Members
from tests.simulator.nodes import SimMaster, SimWorker
from tests.simulator.processes import Process

FULL_STEPS = 250
"""Turns between two full checks."""
MEMORY_TURNS = 4
"""Turns of a master between two checks of its memory, which cannot grow far in that time."""


class WorkerChecks:
    """S7, equal results, and the content against the model.

    Checks of the workers: nothing twice, nothing out of order, only agreed entries, and the right content (S7).
    """

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def on_decision(self, node: NodeId, decision: Decision) -> None:
        """Check a worker's decision to change its store."""
        truth = self._truth
        if isinstance(decision, (ExecuteBatch, ApplyBatch)):
            expected = truth.applied[node] + 1
            first = decision.first_lsn
            check(first == expected, "S7", "never twice, never out of order", node=node, first=first, expected=expected)
            check(bool(decision.items), "S7", "a batch is not empty", node=node)
        if isinstance(decision, ExecuteBatch):
            last = decision.first_lsn + len(decision.items) - 1
            # Its master can lose this place again, but will compute the same one.
            check(last <= truth.lsn, "S7", "never beyond what is agreed on", node=node, last=last, agreed=truth.lsn)
            for lsn, (txid, timestamp, body) in enumerate(decision.items, decision.first_lsn):
                is_same = (timestamp, txid) == truth.canon[lsn - 1][:2] and body == truth.body_at(lsn)
                check(is_same, "S7", "executes the queue", node=node, lsn=lsn, txid=txid)

    def on_store(self, node: NodeId, store: SimCopy, answer: StoreDone | StoreFailed) -> None:
        """Check a commit of a store."""
        truth = self._truth
        applied = store.applied()
        before = truth.applied[node]
        check(applied.lsn >= before, "S7", "what is applied stays", node=node, lsn=applied.lsn, before=before)
        truth.set_applied(node, applied.lsn)
        if truth.may_differ:
            return
        right = truth.model.fingerprints[applied.lsn] if applied.lsn < len(truth.model.fingerprints) else "nothing"
        check(applied.fingerprint == right, "S7", "the content is the fold of the queue", node=node, lsn=applied.lsn)
        check(not isinstance(answer, StoreFailed), "S7", "nothing fails without a cause", node=node, answer=answer)
        if isinstance(answer, StoreDone) and answer.results:
            self._results(node, answer.first_lsn, answer.results)

    def on_executed(self, node: NodeId, _to: NodeId, report: Executed) -> None:
        """Check reported results, which must be durable at the worker."""
        last = report.first_lsn + len(report.results) - 1
        check(last <= self._truth.reached[node], "S7", "reports only what is durable", node=node, last=last)
        self._results(node, report.first_lsn, report.results)

    def _results(self, node: NodeId, first_lsn: int, results: tuple[ResultRow, ...]) -> None:
        if self._truth.may_differ:
            return
        known = self._truth.results
        for lsn, result in enumerate(results, first_lsn):
            if lsn == len(known) + 1:
                known.append(result)
            if lsn <= len(known):
                check(tuple(result) == known[lsn - 1], "S7", "equal results everywhere", node=node, lsn=lsn)

    def compare(self, node: NodeId, store: SimCopy) -> None:
        """Compare the whole content with the model, at the end of the queue."""
        truth = self._truth
        found = store.recompute()
        check(found.lsn == truth.lsn, "S10", "every worker has everything", node=node, applied=found.lsn)
        check(found.fingerprint == truth.model.fingerprints[-1], "S10", "equal content", node=node)
        check(found == store.applied(), "S10", "the fingerprint is that of the data", node=node)
        check(found.items == truth.model.items, "S10", "equal counts", node=node, items=found.items)
        executed = Counter(txid for txid, _ in store.executed)
        twice = [txid for txid, count in executed.items() if count > len(truth.places[txid])]
        check(not twice, "S7", "nothing is executed twice", node=node, twice=twice)


class ReplyChecks:
    """Compares answers with the durable state.

    Checks of answers to clients: at most one for each ticket, and always true.
    """

    def __init__(self, truth: Truth, clients: Clients) -> None:
        self._truth = truth
        self._clients = clients

    def on_reply(self, node: NodeId, reply: Reply) -> None:
        """Check one answer."""
        clients = self._clients
        ticket = clients.tickets.get(reply.ticket)
        check(ticket is not None, "replies", "a ticket is answered once", node=node, reply=reply)
        if ticket is None or reply.status == UNKNOWN:
            return
        check(clients.world.owner[ticket.node] == node, "replies", "answered where it was asked", node=node, reply=reply)
        check(reply.txid == ticket.txid, "replies", "names the transaction", node=node, reply=reply)
        if reply.status == REFUSED:
            self._refused(node, reply, ticket.body)
            return
        held = reply.txid in self._truth.mirrors[node].accepted or reply.txid in self._truth.lsn_of
        check(held, "replies", "answers only for what is durable", node=node, reply=reply)
        if reply.status == ACCEPTED:
            return
        self._ordered(node, reply)
        if reply.lsn < clients.world.master(node).journal.first_lsn():
            return  # Operations and outcome were trimmed there: only the LSN of the id is still known.
        is_same = is_same_work(self._truth.body_at(reply.lsn), ticket.body)
        check(is_same, "replies", "the operations are those that were sent", node=node, reply=reply)
        if reply.status != SYNCHRONISED:
            self._applied(node, reply, ticket.copies)

    def _ordered(self, node: NodeId, reply: Reply) -> None:
        truth = self._truth
        lsns = truth.places.get(reply.txid, ())
        check(reply.lsn in lsns, "S3", "the LSN is that of the queue", node=node, reply=reply, lsns=lsns)
        mirror = truth.mirrors[node]
        may_be_told = reply.lsn <= mirror.told_lsn or reply.txid in mirror.known
        check(may_be_told, "replies", "only what is in the order here", node=node, reply=reply)

    def _applied(self, node: NodeId, reply: Reply, copies: int) -> None:
        truth = self._truth
        outcome = truth.model.outcomes[reply.lsn]
        is_rejected = outcome == REJECTED and reply.lsn not in truth.assumed[node]
        expected = REJECTED_STATUS if is_rejected else APPLIED_LEVEL
        check(reply.status == expected, "replies", "the outcome is the true one", node=node, reply=reply)
        # A worker that applied it can have lost its copy since, or loaded an older one.
        done = sum(truth.reached[worker] >= reply.lsn for worker, master in truth.master_of.items() if master == node)
        check(done >= copies, "replies", "so many workers have it", node=node, reply=reply, done=done)

    def _refused(self, node: NodeId, reply: Reply, body: bytes) -> None:
        """Check a refusal: the write must not be in the queue because of this ticket."""
        truth = self._truth
        lsn = truth.lsn_of.get(reply.txid)
        if reply.error == "KeyReused":
            is_reused = len(self._clients.bodies_of(reply.txid)) > 1
            check(is_reused, "replies", "an id is called reused only when it was", node=node, reply=reply)
        clients = self._clients
        clients.on_refusal(reply.txid, body)
        if lsn is not None and truth.body_at(lsn) == body:
            is_live = clients.is_live(reply.txid, body)
            check(is_live, "replies", "what was refused has not come to be", node=node, reply=reply)


_PASSED_ON = {
    "on_start": attrgetter("_durable.on_start"),
    "on_process_start": attrgetter("journals.on_start"),
    "on_journal_loaded": attrgetter("journals.on_loaded"),
    "on_process_emptied": attrgetter("journals.on_emptied"),
    "on_tx_reply": attrgetter("_transactions.on_reply"),
    "on_outcome": attrgetter("_transactions.on_outcome"),
    "on_store": attrgetter("_workers.on_store"),
    "on_copy": attrgetter("_copies.on_copy"),
    "on_loaded": attrgetter("_copies.on_loaded"),
    "on_worker_start": attrgetter("_copies.on_start"),
    "on_detected": attrgetter("_copies.on_detected"),
    "on_wipe": attrgetter("truth.wipe"),
}
"""Event -> the check that takes it alone."""


class Checkers:
    """All checks of one world."""

    def __init__(self, world: Cluster, truth: Truth, members: Members, clients: Clients, tx_clients: TxClients) -> None:
        self.truth = truth
        self._members = members
        self._clients = clients
        self._tx_clients = tx_clients
        self._full_at = FULL_STEPS
        self.posts: Counter[tuple[NodeId, NodeId]] = Counter()
        """Posts sent, by sender and receiver."""
        self.told: Counter[tuple[NodeId, NodeId, str]] = Counter()
        """Messages to and from workers, without heartbeats, by sender, receiver and kind."""
        self._masters = frozenset(master.node for master in world.masters)
        self._groups = frozenset(group.node for group in world.groups)
        self._world = world
        self._durable = DurableChecks(truth, clients, tx_clients)
        self._messages = MessageChecks(truth)
        self._workers = WorkerChecks(truth)
        self._copies = CopyChecks(truth)
        self._readiness = ReadinessChecks(truth)
        self._replies = ReplyChecks(truth, clients)
        self._transactions = TxChecks(truth, tx_clients)
        self.journals = JournalChecks(truth, self.on_safe)
        self._by_message: dict[type, Callable[..., None]] = {
            Post: self._messages.on_post,
            Bodies: self._messages.on_bodies,
            Fetch: self._messages.on_fetch,
            EpochPrepare: self._messages.on_prepare,
            EpochReport: self._messages.on_report,
            EpochInstall: self._messages.on_install,
            Tail: self._messages.on_tail,
            Join: self._messages.on_join,
            Execute: self._messages.on_execute,
            Apply: self._messages.on_apply,
            Executed: self._on_executed,
            Progress: self._copies.on_progress,
            SnapshotOffered: self._copies.on_offered,
            Chunk: self._copies.on_chunk,
            ChunksWanted: self._copies.on_wanted,
            LoadFrom: self._copies.on_load_from,
            Coin: self._readiness.on_coin,
        }

    # ---- events

    def __getattr__(self, event: str) -> Any:
        """Return the check for an event that only one check takes."""
        if event not in _PASSED_ON:
            raise AttributeError(event)
        return _PASSED_ON[event](self)

    def on_durable(self, process: Process, records: Sequence[Record], numbers: Sequence[int]) -> None:
        """Check durable records; with ``numbers`` they come from another process."""
        if isinstance(process, SimProcess):
            if numbers:
                self.journals.on_followed(process, records, numbers)
            else:
                self.journals.on_appended(process, records)
            return
        self.on_safe(process.node, records)
        if isinstance(process, SimMaster) and any(isinstance(record, Accepted) for record in records):
            self._readiness.on_accepted(process)

    def on_deferred(self, process: Process, records: Sequence[Record]) -> None:
        """Check deferred records, which can be read, but can still be lost (R18)."""
        for record in records:
            self._durable.on_deferred(process.node, record)

    def on_lost(self, process: Process) -> None:
        """Forget a master's deferred records, which are lost; with backups there are none."""
        if isinstance(process, SimMaster):
            self._world.faults_seen["place in the order lost"] += self.truth.mirrors[process.node].waiting_lsns
            self.truth.mirrors[process.node].forget_waiting()

    def on_safe(self, node: NodeId, records: Sequence[Record]) -> None:
        """Check safe records: durable, and at enough backups if there are any, so that no failure of one process can lose them."""
        self.truth.mirrors[node].forget_waiting()
        for record in records:
            self._durable.on_record(node, record)
            self._transactions.on_record(node, record)

    def on_message(self, process: Process, outgoing: Outgoing) -> None:
        """Check a message that leaves its sender."""
        kind = type(outgoing.message)
        if kind in BETWEEN_PROCESSES and isinstance(process, SimProcess):
            self.journals.on_message(process, outgoing)
            return
        sender = outgoing.sender or process.node
        to = self._world.owner.get(outgoing.to, outgoing.to)
        if kind is Post:
            self.posts[sender, to] += 1
        elif kind is not Progress and not (sender in self._masters and to in self._masters):
            self.told[sender, to, kind.__name__] += 1
        handler = self._by_message.get(kind)
        if handler is not None and not (kind is Coin and sender in self._groups):
            handler(sender, to, outgoing.message)

    # ---- processes of masters with backups

    def on_role(self, process: SimProcess, view: int, *, is_primary: bool) -> None:
        """Count a change of role."""
        self._world.faults_seen["process became primary" if is_primary else "process stood down"] += 1
        del process, view

    def on_promise(self, process: Process, view: int) -> None:
        """Check a promise of a process to a view."""
        if isinstance(process, SimProcess):
            self.journals.on_promise(process, view)

    def after_process_turn(self, process: SimProcess) -> None:
        """Check the state of a process after a turn."""
        if process.master is not None:
            self._within_bounds(process.master)
            self.journals.after_turn(process)

    def _on_executed(self, sender: NodeId, to: NodeId, report: Executed) -> None:
        self._workers.on_executed(sender, to, report)
        self._copies.on_executed(sender, to, report)

    def on_taken(self, node: NodeId, envelopes: Sequence[Envelope]) -> None:
        """Check messages that a master takes in."""
        self._readiness.on_taken(node, self._world.master(node).runner.core, envelopes)
        for envelope in envelopes:
            if isinstance(envelope.message, EpochReport):
                self._messages.on_report_taken(node, envelope.sender, envelope.message)

    def on_reply(self, node: NodeId, reply: Reply) -> None:
        """Check the answer to a client."""
        master = self._world.master(node)
        if reply.status == REFUSED and isinstance(master, SimMaster):
            self._readiness.on_refused(master, reply)
        self._replies.on_reply(node, reply)

    def on_decision(self, node: NodeId, decision: Decision) -> None:
        """Check a decision that a worker gives to its store."""
        self._copies.on_decision(node, decision)
        self._workers.on_decision(node, decision)

    def after_worker_turn(self, worker: SimWorker, taken: Sequence[Envelope]) -> None:
        """Check the state of a worker after a turn."""
        mine = worker.config.master
        self._copies.after_turn(worker, [envelope.message for envelope in taken if envelope.sender == mine])

    def on_emptied(self, node: NodeId) -> None:
        """Note that a worker lost its data."""
        self.truth.lost_lsn = max(self.truth.lost_lsn, self.truth.applied[node])
        self.truth.applied[node] = 0
        self._copies.on_lost(node)

    def after_turn(self, master: SimMaster) -> None:
        """Check the state of a master after a turn."""
        self._within_bounds(master.runner)

    def _within_bounds(self, runner: MasterRunner) -> None:
        """S9: the memory of a master is bounded by its windows."""
        if runner.turns % MEMORY_TURNS or runner.failure:
            return  # A core that could not write is discarded.
        core, config = runner.core, runner.config
        node = config.sync.node
        for name, worker in core.site.workers.items():
            known = self._copies.confirmed(name, worker.journal)
            check(worker.applied <= known, "F4", "believes what was confirmed", node=node, worker=name)
        sync = core.sync
        for stream in sync.streams.values():
            check(len(stream.waiting) <= 4 * config.sync.post_window, "S9", "announced entries", node=node)
            bound = self.truth.memory_bound(stream.used, stream.count)
            check(len(stream.entries) <= bound, "S9", "entries in memory", node=node, held=len(stream.entries))
        if runner.primary is None:
            mirror, most = self.truth.mirrors[node], config.defer
            waiting = mirror.waiting_lsns + mirror.waiting_results
            check(waiting <= most.lsns, "S9", "places and results that wait", node=node, waiting=waiting)
            since_us = self._world.now_us if mirror.waiting_since_us is None else mirror.waiting_since_us
            for_us = self._world.now_us - since_us
            check(for_us <= 1250 * most.age_ms + 5_000, "S9", "how long they wait", node=node, for_us=for_us)
        own = sync.own.count - sync.own.used
        check(own <= config.sync.queue_window, "S9", "stamped ahead of what is added", node=node, ahead=own)
        if runner.primary is None:
            # A primary without enough backups answers before its waiting clients reach their deadlines and are forgotten.
            waiting = self._clients.open_count + self._tx_clients.open_count
            check(len(core.waiters) <= waiting, "S9", "tickets", node=node)

    def look_in_full(self, steps: int) -> None:
        """Check everything in full at intervals, which grow with the queue."""
        if steps >= self._full_at:
            self.in_full()
            self._full_at = steps + max(FULL_STEPS, self.truth.lsn)

    def in_full(self) -> None:
        """S1, S3 and S8 in full: compare every journal with the canon."""
        for master in self._world.masters:
            if isinstance(master, SimMaster):
                if not master.is_wiped:
                    self._durable.compare(master.node, master.journal)
                continue
            for process in master.processes:
                if self.journals.holds_safe_only(process):
                    self._durable.compare_log(process.node, process.journal)

    # ---- the end

    def at_the_end(self) -> None:
        """Check everything in full: S4, S7, S10, one answer for each ticket."""
        truth = self.truth
        current = self._members.masters
        lost = {m.node for m in self._world.masters if m.is_wiped or m.node not in current}
        self.journals.at_the_end()
        self._transactions.at_the_end()
        for master in self._world.masters:
            if master.node in lost:
                continue
            self._durable.compare(master.node, master.journal)
            for process in master.processes:
                lsn = process.journal.state().lsn
                check(lsn == truth.lsn, "S10", "every master has the whole queue", node=process.node, lsn=lsn)
                self._durable.compare_log(process.node, process.journal)
        check(not truth.missing_accepted(lost), "S4", "accepted is added", missing=truth.missing_accepted(lost))
        for worker in self._world.workers:
            if worker.config.master not in lost:
                self._workers.compare(worker.node, worker.copy)
        check(not self._clients.open_tickets(lost), "replies", "each ticket is answered", open=self._clients.open_tickets(lost))
