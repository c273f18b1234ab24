"""Checks of copies: loads, snapshots, confirmations, and that no node uses a damaged copy.

The letters are from brokerha/replication/PROTOCOL.md:

    F3   a worker in LOAD or IDLE takes no records, and a worker that is told to stop stops
    F4   a confirmed LSN never decreases within a journal name; a new copy has a new name
    F5   the window of chunks in flight is bounded
    F7   a copy known to be damaged is not read, written, or given away
    F9   the old copy stays until the new one is open, and the new one is the content at its LSN
    F12  a good copy is not replaced
"""

from __future__ import annotations

from brokerha.model.ids import Lsn, NodeId
from brokerha.model.ready import ApplyBatch, Condemn, Decision, ExecuteBatch, KeepChunk, OpenLoad
from brokerha.model.wire.messages import Chunk, ChunksWanted, Coin, Executed, Idle, LoadFrom, Message, Progress, SnapshotOffered
from tests.simulator.checks.truth import Truth, check
from tests.simulator.copies import SimCopy
from tests.simulator.nodes import SimWorker

FOLLOWS = ("basic", "request")


class CopyChecks:
    """The history of all workers' copies."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._journals: dict[NodeId, str] = {}
        """Name of each worker's current copy."""
        self._names: set[str] = set()
        """All names ever used."""
        self._confirmed: dict[tuple[NodeId, str], Lsn] = {}
        """By worker and journal name."""
        self._follows: dict[NodeId, str] = {}
        """The activity that each worker last reported."""
        self._asked: dict[NodeId, tuple[str, set[int]]] = {}
        """By follower: the snapshot, and its requested chunks that are not written yet."""
        self._opening: set[NodeId] = set()
        self._writing: dict[NodeId, Lsn] = {}
        """Last LSN of each worker's latest started write."""
        self.detected: set[NodeId] = set()
        """Workers whose current copy was found to be damaged."""
        self._condemned: set[NodeId] = set()
        """Those workers that have recorded the damage."""

    # ---- at the worker

    def on_start(self, node: NodeId, copy: SimCopy) -> None:
        """Check that a restart finds the earlier copy."""
        known = self._journals.setdefault(node, copy.journal)
        self._names.add(copy.journal)
        lsn, last_lsn = self._truth.applied[node], self._writing.pop(node, 0)
        found = copy.applied()
        check(copy.journal == known, "F9", "a restart finds the copy that was there", node=node, name=copy.journal)
        is_right = lsn <= found.lsn <= max(lsn, last_lsn)
        check(is_right, "S3", "a restart finds what was committed", node=node, found=found.lsn, lsn=lsn, last=last_lsn)
        if found.lsn > lsn:
            # The process died between the commit and its report.
            is_right = self._is_content(found.lsn, found.fingerprint)
            check(is_right, "S3", "a restart finds the content at its LSN", node=node, lsn=found.lsn)
            self._truth.set_applied(node, found.lsn)
        if node not in self._condemned:
            # It died before it could record the damage, so scrub must find it again.
            self.detected.discard(node)
        self._follows[node] = "idle"
        self._asked.pop(node, None)
        self._opening.discard(node)

    def on_lost(self, node: NodeId) -> None:
        """Note that the copy is gone."""
        self._journals.pop(node, None)
        self._trusted(node)

    def _trusted(self, node: NodeId) -> None:
        """Clear the suspicion against the current copy."""
        self.detected.discard(node)
        self._condemned.discard(node)

    def on_detected(self, node: NodeId) -> None:
        """Check a report of damage: only a fault, or a copy from a faulty source, explains it."""
        process = self._truth.world.processes[node]
        is_explained = isinstance(process, SimWorker) and process.is_damaged
        check(is_explained, "S7", "only faults damage data", node=node)
        self.detected.add(node)

    def on_decision(self, node: NodeId, decision: Decision) -> None:
        """Check a worker's decision."""
        if isinstance(decision, ExecuteBatch | ApplyBatch):
            follows = self._follows.get(node)
            check(follows in FOLLOWS, "F3", "only a follower takes records", node=node, follows=follows)
            check(node not in self._opening, "F3", "nothing is written while a copy is replaced", node=node)
            check(node not in self.detected, "F7", "a damaged copy is not written", node=node)
            self._writing[node] = decision.first_lsn + len(decision.items) - 1
        elif isinstance(decision, OpenLoad):
            # Until then the old copy is unchanged: after an interrupted load, a worker can follow again and write to it.
            self._opening.add(node)

    def on_copy(self, node: NodeId, copy: SimCopy, decision: Decision) -> None:
        """Check a decision beside the store; only the opening of a load replaces the copy."""
        if isinstance(decision, KeepChunk) and node in self._asked:
            self._asked[node][1].discard(decision.number)
        if isinstance(decision, Condemn) and decision.journal == copy.journal:
            self._condemned.add(node)
        if isinstance(decision, OpenLoad):
            self._opening.discard(node)
        is_there = (copy.journal, copy.applied().lsn) == (self._journals[node], self._truth.applied[node])
        check(is_there, "F9", "the old copy is there until the new one is open", node=node, after=type(decision).__name__)

    def on_loaded(self, process: SimWorker, copy: SimCopy) -> None:
        """Check a new copy: it is the content at its LSN, whatever the old one was."""
        truth, node, applied = self._truth, process.node, copy.applied()
        is_right = self._is_content(applied.lsn, applied.fingerprint)
        check(is_right, "F9", "a snapshot is the content at its LSN", node=node, lsn=applied.lsn)
        check(copy.journal not in self._names, "F4", "a new copy has a new name", node=node, name=copy.journal)
        self._names.add(copy.journal)
        self._journals[node] = copy.journal
        self._opening.discard(node)
        self._trusted(node)
        truth.set_applied(node, applied.lsn)
        # A source can be damaged without knowing it; then scrub must find the damage in the loaded copy.
        process.is_damaged = copy.recompute() != applied
        is_explained = not process.is_damaged or truth.world.faults_seen["worker damaged"] > 0
        check(is_explained, "F9", "what was loaded is what was given", node=node, lsn=applied.lsn)

    def after_turn(self, process: SimWorker, taken: list[Message]) -> None:
        """Check that a damaged copy is not read, and that a worker obeys an order to stop."""
        core, node = process.runner.core, process.node
        check(node not in self.detected or not core.may_be_read, "F7", "a damaged copy is not read", node=node)
        orders = [message for message in taken if isinstance(message, Coin | Idle | LoadFrom)]
        if orders and isinstance(orders[-1], Idle):
            follows = self._follows.get(node)
            check(follows == "idle", "F3", "who is told to stop says that it has", node=node, follows=follows)

    # ---- on the wire

    def on_progress(self, sender: NodeId, _to: NodeId, progress: Progress) -> None:
        """Check a worker's report of its position."""
        self._follows[sender] = progress.follows
        if progress.trouble and progress.follows in FOLLOWS:
            check(False, "F7", "a copy in trouble does not follow", node=sender, trouble=progress.trouble)
        self._confirms(sender, progress.journal, progress.applied_lsn)

    def on_executed(self, sender: NodeId, _to: NodeId, report: Executed) -> None:
        """Check the confirmation in a report of results."""
        self._confirms(sender, report.journal, report.applied_lsn)

    def _confirms(self, node: NodeId, journal: str, lsn: Lsn) -> None:
        before = self._confirmed.get((node, journal), 0)
        check(lsn >= before, "F4", "what was confirmed stays", node=node, journal=journal, lsn=lsn, before=before)
        if journal == self._journals.get(node):
            applied = self._truth.applied[node]
            check(lsn <= applied, "F4", "confirms what is durable", node=node, lsn=lsn, applied=applied)
        self._confirmed[node, journal] = lsn

    def confirmed(self, node: NodeId, journal: str) -> Lsn:
        """Return the LSN that a worker confirmed under a name."""
        return self._confirmed.get((node, journal), 0)

    def on_offered(self, sender: NodeId, _to: NodeId, offer: SnapshotOffered) -> None:
        """Check a snapshot that a source offers."""
        if not offer.snapshot:
            return
        check(sender not in self.detected, "F7", "a damaged copy is not given away", node=sender)
        is_right = self._is_content(offer.lsn, offer.fingerprint)
        check(is_right, "F9", "a snapshot is of one LSN", node=sender, lsn=offer.lsn)

    def _is_content(self, lsn: Lsn, fingerprint: str) -> bool:
        """Tell whether this is the fingerprint of the right content at an LSN."""
        truth = self._truth
        return truth.may_differ or (lsn <= truth.lsn and fingerprint == truth.model.fingerprints[lsn])

    def on_chunk(self, sender: NodeId, _to: NodeId, chunk: Chunk) -> None:
        """Check a chunk from a source."""
        is_given = bool(chunk.data) and sender in self.detected
        check(not is_given, "F7", "a damaged copy is not given away", node=sender, snapshot=chunk.snapshot)

    def on_wanted(self, sender: NodeId, _to: NodeId, wanted: ChunksWanted) -> None:
        """Check a follower's request for chunks."""
        snapshot, numbers = self._asked.get(sender, ("", set()))
        if snapshot != wanted.snapshot:
            numbers = set()
        numbers.update(wanted.numbers)
        self._asked[sender] = wanted.snapshot, numbers
        window = self._truth.worker_config[sender].load.window
        check(len(numbers) <= window, "F5", "chunks in flight are bounded", node=sender, asked=len(numbers))

    def on_load_from(self, sender: NodeId, to: NodeId, order: LoadFrom) -> None:
        """Check a master's order to replace a copy."""
        world = self._truth.world
        anchor = world.anchor
        master = world.master(sender)
        # A master that has just started can receive old messages of the worker first.
        is_settling = master.runner.core.site.is_settling(master.clock.now().mono_ms)
        is_good = anchor is not None and to == anchor.node and not master.is_wiped and not is_settling
        # A copy with an LSN below the master's adopted state cannot follow either.
        is_good = is_good and self._truth.applied[to] >= self._truth.mirrors[sender].state_lsn
        # Without the log from its start on, one that was away can lag too far.
        is_good = is_good and not world.options.forgets
        check(not is_good or self._truth.may_differ, "F12", "a good copy is not replaced", to=to, reason=order.reason)
        check(to not in order.sources, "F12", "nobody loads from itself", to=to, sources=order.sources)
