"""Periodic reports of a master: to its log, the status page and the address book; and whether the broker gives it shared writes.

    turn, turn, turn ── note ──> look, at most every `LOOK_MS` ──> SiteLog, EpochLog, SplitLog, KnownMasters, Rates, Staleness

No caller waits for these reports, so they run at intervals and not after each turn; a look that is due wakes the loop (`due_ms`).
They read the core and change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import structlog

from brokerha.master import belonging
from brokerha.master.core import MasterCore
from brokerha.master.pins import SPLIT
from brokerha.master.retention import Owner
from brokerha.master.state_words import epoch_state, is_alone
from brokerha.model import states
from brokerha.model.epochs import Epoch, EpochId
from brokerha.model.ids import Instant, NodeId
from brokerha.model.numbers import Numbers
from brokerha.nodes.master.address_book import AddressedTransport
from brokerha.nodes.master.runner import MasterRunner
from brokerha.nodes.observing.hearing import LISTEN_MS, is_judged
from brokerha.nodes.observing.master_view import MasterView
from brokerha.nodes.observing.staleness import Staleness
from brokerha.ports.clock import Clock
from brokerha.ports.transport import Transport
from brokerha.replication.site.config import Standing, WorkerFeed

log = structlog.get_logger()

LOOK_MS = 100
MINUTE_MS = 60_000


class Watching:
    """Runs the reports; used by the loop's thread."""

    def __init__(
        self,
        node: NodeId,
        masters: Iterable[NodeId],
        transport: Transport,
        view: MasterView,
        staleness: Staleness,
        on_others: Callable[[tuple[NodeId, ...]], None],
        *,
        shares_broker: bool,
        leaves_writes: bool,
    ) -> None:
        """``masters``: those of the cluster file. ``on_others`` gets all others after each change. Rest: see `MasterNode`."""
        self._transport = transport
        self._view = view
        self._staleness = staleness
        self._site_log = SiteLog(node)
        self._epoch_log = EpochLog(node)
        self.hearing = view.hearing
        self._known_masters = KnownMasters(masters, transport, on_others)
        self.shares_broker, self.leaves_writes = shares_broker, leaves_writes
        self._look_at_ms = self._hear_at_ms = 0
        self._is_owed = False

    def is_due(self, now: Instant) -> bool:
        """Tell whether to `note` now, after a turn; if not, a look is owed."""
        self._is_owed = now.mono_ms < self._look_at_ms
        return not self._is_owed

    def note(self, runner: MasterRunner, reads: int, now: Instant) -> None:
        """Take a look; ``reads`` is their number so far."""
        self._look_at_ms = now.mono_ms + LOOK_MS
        core = runner.core
        if now.mono_ms >= self._hear_at_ms:
            self._listen(core, now)
        self._serve_shared(runner, now)
        self._site_log.note(core, now.mono_ms)
        self._epoch_log.note(core, now.mono_ms)
        self._view.splits.note(core)
        self._known_masters.note(core)
        self._view.note_rates(reads, now)

    def _listen(self, core: MasterCore, now: Instant) -> None:
        """Leave a node of the broker over which this master is not heard, or hears no other master."""
        self._hear_at_ms = now.mono_ms + LISTEN_MS
        if directions := self.hearing.look(core.sync, now, is_judged=is_judged(self._transport)):
            log.warning("not heard", node=core.sync.node, reason=self.hearing.reason, directions=" ".join(directions))
            self._transport.leave_broker_node(directions)

    def due_ms(self) -> int | None:
        """Return when to look without an event; None when nothing has happened since the last look."""
        return self._look_at_ms if self._is_owed else None

    def _serve_shared(self, runner: MasterRunner, now: Instant) -> None:
        """Leave shared writes to other masters while this one takes none, or while the others could go on without it."""
        core = runner.core
        self._staleness.note(core, now)
        is_left = (self.shares_broker or self._known_masters.are_more) and is_alone(self._staleness.found)
        is_left = is_left or (self.leaves_writes and not core.feed.workers)
        # A node that is no master of the cluster must not answer apps: their messages wait, or other masters read them.
        self._transport.serve_clients(not belonging.is_outside(core.sync))
        self._transport.serve_shared(not runner.failure and not core.refusal(now) and not is_left)

    def metrics(self, mono_ms: int) -> Numbers:
        """Return the numbers for /metrics."""
        return {**self._site_log.counts, **self._epoch_log.metrics(mono_ms)}


class FailureLog:
    """A line in the log of a node for a failure of its journal: at once, and again each minute while it lasts."""

    def __init__(self, node: NodeId, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self._told = ""
        self._told_ms = 0

    def tell(self, failure: str) -> None:
        """Log a failure of the journal."""
        now_ms = self._clock.now().mono_ms
        if failure != self._told or now_ms - self._told_ms >= MINUTE_MS:
            self._told, self._told_ms = failure, now_ms
            log.warning("cannot write", node=self._node, reason=failure)


class KnownMasters:
    """The masters at run time, for the parts of a node that the core does not know: compares, and passes changes on.

        core.sync.epoch.configuration  ──┐
        nodes that are to be added       ├── note, after turns ───> AddressBook, StatusGathering
        journals, and those retired    ──┘                           a line in the log when the cluster file differs

    The cluster file counts when a cluster begins, and no more once all masters know each other. A file that still names a removed
    master, or lacks an added one, does no harm: the master logs that once at its start.
    """

    def __init__(self, file: Iterable[NodeId], transport: Transport, on_others: Callable[[tuple[NodeId, ...]], None]) -> None:
        """``file``: the masters of the cluster file. ``on_others``: gets all other masters after each change."""
        self._file = tuple(sorted(file))
        self._book = transport if isinstance(transport, AddressedTransport) else None
        self._on_others = on_others
        self._seen: object = None
        self.are_more = False
        """Whether there are masters that the cluster file does not name; they possibly share its broker."""

    def note(self, core: MasterCore) -> None:
        """Compare the masters with the last look."""
        sync = core.sync
        peers = sync.peers
        seen = (sync.epoch.id, tuple(peers.guests), tuple(peers.journals.items()))
        if seen == self._seen:
            return
        is_first, self._seen = self._seen is None, seen
        configuration = sync.epoch.configuration
        masters = {*(configuration.masters or self._file), *peers.guests}
        self.are_more = not masters <= {*self._file}
        self._on_others(tuple(sorted(masters - {sync.node})))
        if self._book is not None:
            self._book.trust({*masters, *self._file}, peers.journals, configuration.retired)
        if is_first and configuration.masters and self._file != configuration.masters:
            self._warn(sync.node, configuration.masters)

    def _warn(self, node: NodeId, masters: tuple[NodeId, ...]) -> None:
        log.warning(
            "cluster file differs",
            node=node,
            not_in_file=sorted({*masters} - {*self._file}),
            no_masters=sorted({*self._file} - {*masters}),
            what_counts=f"the masters are {', '.join(masters)}, as they agreed: correct the [[master]] sections of the cluster file",
        )


_WARNED = frozenset({Standing.OUT_OF_SYNC, Standing.UNKNOWN})


class SiteLog:
    """Events at a site, as lines in the log of its master, and their counts.

        worker changes   w2: on -> out-of-sync, with the reason         read-only begins, ends
        probe lost       w1 does not execute any more, w2 does          another site differs, agrees again
        needs attention  no copy is known to be good                    worker removed
        log not kept     w3 needs more of it than the limit allows      log kept again
        cluster file differs   once, at the first look: the workers are not those of the file

    `note` is called after turns and compares the core with its last look: a few comparisons while nothing changes. It reads the
    core and changes nothing; it needs no care when a core was built again from the journal.
    """

    def __init__(self, master: NodeId) -> None:
        self.counts: Counter[str | tuple[str, ...]] = Counter()
        """Numbers for /metrics, by name and labels."""
        self._master = master
        self._standings: dict[NodeId, Standing] = {}
        self._probe: NodeId | None = None
        self._read_only = ""
        self._attention = ""
        self._differing: frozenset[NodeId] = frozenset()
        self._dropped: tuple[Owner, ...] = ()
        self._is_first = True
        for name in ("probe_turns_total", "probe_losses_total", "read_only_total", "pins_dropped_total"):
            self.counts[name] = 0

    def note(self, core: MasterCore, mono_ms: int) -> None:
        """Log the changes since the last call."""
        workers = core.site.workers
        if self._is_first:
            self._is_first = False
            self._compare({*core.site.config.workers}, {*workers})
        for worker in workers.values():
            if self._standings.get(worker.node) is not worker.standing:
                self._on_standing(worker)
        if len(self._standings) > len(workers):
            self._on_removed(workers)
        if core.feed.probe != self._probe:
            self._on_probe(core, mono_ms)
        self._on_read_only(core.site.read_only_reason(mono_ms))
        if self._read_only or self._attention:
            self._on_attention(core.site.attention(mono_ms))
        if core.sites.differing.keys() != self._differing:
            self._on_differing(core)
        if core.dropped_pins != self._dropped:
            self._on_dropped(core)

    def _compare(self, file: set[NodeId], workers: set[NodeId]) -> None:
        """Log workers that the cluster file names and this master does not have: it keeps its list after the first change by command."""
        if unknown := sorted(file - workers):
            log.warning(
                "cluster file differs",
                node=self._master,
                no_workers=unknown,
                what_counts=f"the workers are {', '.join(sorted(workers)) or 'none'}, as brokerha worker add and remove left them: "
                f"add with brokerha worker add {unknown[0]}, or take the [[worker]] out of the cluster file",
            )

    def _on_standing(self, worker: WorkerFeed) -> None:
        before = self._standings.get(worker.node)
        self._standings[worker.node] = worker.standing
        if before is None and worker.standing is Standing.UNKNOWN:
            return
        if worker.standing is Standing.LOADING:
            self._count("worker_loads_total", worker.node)
        elif worker.standing is Standing.OUT_OF_SYNC:
            self._count("worker_out_of_sync_total", worker.node)
        tell = log.warning if worker.standing in _WARNED else log.info
        tell(
            "worker changes",
            node=self._master,
            worker=worker.node,
            before=(before or Standing.UNKNOWN).value,
            now=worker.standing.value,
            reason=worker.reason,
            lsn=worker.applied,
        )

    def _on_removed(self, workers: dict[NodeId, WorkerFeed]) -> None:
        for node in [node for node in self._standings if node not in workers]:
            del self._standings[node]
            log.info("worker removed", node=self._master, worker=node)

    def _on_probe(self, core: MasterCore, mono_ms: int) -> None:
        """Log the loss of a probe, but not the end of its turn."""
        before, self._probe = self._probe, core.feed.probe
        if self._probe is not None:
            self.counts["probe_turns_total"] += 1
        if before is None:
            return
        lost = core.site.workers.get(before)
        if lost is None or not lost.is_on or not core.site.is_alive(lost, mono_ms):
            self.counts["probe_losses_total"] += 1
            log.warning("probe lost", node=self._master, probe=before, next=self._probe, lsn=core.feed.executed)

    def _on_read_only(self, reason: str) -> None:
        if bool(reason) is bool(self._read_only):
            return
        self._read_only = reason
        if reason:
            self.counts["read_only_total"] += 1
            log.warning("read-only begins", node=self._master, reason=reason)
        else:
            log.info("read-only ends", node=self._master)

    def _on_attention(self, reason: str) -> None:
        if bool(reason) is bool(self._attention):
            return
        self._attention = reason
        if reason:
            log.error("needs attention", node=self._master, reason=reason)
        else:
            log.info("needs no attention any more", node=self._master)

    def _on_differing(self, core: MasterCore) -> None:
        found = core.sites.differing
        for peer in sorted(found.keys() - self._differing):
            lsn, ours, theirs = found[peer]
            log.error("site differs", node=self._master, peer=peer, lsn=lsn, ours=ours, theirs=theirs)
        for peer in sorted(self._differing - found.keys()):
            log.info("site agrees again", node=self._master, peer=peer)
        self._differing = frozenset(found)

    def _on_dropped(self, core: MasterCore) -> None:
        """Log each reader of the log that lags by more than the hard limit: it cannot catch up from the log any more."""
        before, self._dropped = self._dropped, core.dropped_pins
        for owner in sorted(set(self._dropped) - set(before)):
            self.counts["pins_dropped_total"] += 1
            worker = core.site.workers.get(owner.name) if owner.kind == "worker" else None
            log.warning(
                "log not kept",
                node=self._master,
                **{owner.kind: owner.name},
                lsn=worker.applied if worker is not None else None,
                reason=f"it needs more of the log than tx-log-hard-limit allows, and {_ENDS[SPLIT if owner == SPLIT else owner.kind]}",
            )
        for owner in sorted(set(before) - set(self._dropped)):
            log.info("log kept again", node=self._master, **{owner.kind: owner.name})

    def _count(self, name: str, worker: NodeId) -> None:
        self.counts[name, worker] += 1


_ENDS: dict[str | Owner, str] = {
    "worker": "takes a snapshot",
    "backup": "takes a snapshot",
    "peer": "takes over the state of another master",
    "pin": "its owner has to begin anew",
    SPLIT: "this master cannot go back any more: then it has to take over the state of another one",
}
"""Consequence for the owner of a part of the log that is not kept, by its kind."""


_TOLD = {
    states.EXCLUDED: "is excluded",
    states.NO_MAJORITY: "hears no majority",
    states.LEFT_BEHIND: "is left behind",
    states.WAITING_TO_BE_ADDED: "waits to be added",
    states.JOINING: "takes over",
    states.RETIRED: "is taken out",
    states.LOST_STATE: "has lost its state",
}
"""State words that have their own log line."""


class EpochLog:
    """Events of the epochs of a master, as lines in its log, and numbers for /metrics.

        epoch begins         number, proposer, members, masters left out, masters that came back, LSN, entries recovered
        masters change       masters added and taken out, with that epoch; all masters from then on
        epoch change begins  it has promised the next one, and is frozen until one begins
        is gone              the broker says that the inbox of a silent master is gone
        is excluded          the others are in a later epoch          hears no majority    writes wait
        waits to be added    it is not yet one of their masters        is taken out          it no longer is one
        is left behind       it needs entries that no other holds      has lost its state    its journal is another one
        agrees again         none of these any longer

    `note` is called after turns and compares the core with its last look. States that pass at once, as after a start, are not
    logged. It reads the core and changes nothing; it needs no care when a core was built again from the journal.
    """

    def __init__(self, master: NodeId) -> None:
        self._master = master
        self._epoch: Epoch | None = None
        self._changes = 0
        self._promised: EpochId | None = None
        """Epoch that the master is frozen for; None while it follows its epoch."""
        self._frozen_from_ms = 0
        self._frozen_ms = 0
        """Sum of the past times."""
        self._word = ""
        self._word_from_ms = 0
        self._told = ""
        self._gone: frozenset[NodeId] = frozenset()

    def note(self, core: MasterCore, mono_ms: int) -> None:
        """Log the changes since the last call."""
        sync = core.sync
        if self._epoch is None or sync.epoch.id != self._epoch.id:
            self._on_epoch(sync.epoch, sync.epochs.suspicion.stopped)
        gone, before = sync.epochs.suspicion.gone, self._gone
        for master in sorted(gone - before):
            log.warning("is gone", node=self._master, master=master, reason="its inbox at the broker is gone")
        self._gone = gone
        is_frozen = sync.is_frozen() and not sync.is_joiner()
        promised = sync.promised if is_frozen else None
        if promised != self._promised:
            self._on_promise(promised, mono_ms)
        word, reason = (states.LOST_STATE, sync.lost) if sync.lost else epoch_state(sync, mono_ms) or ("", "")
        if word != self._word:
            self._word, self._word_from_ms = word, mono_ms
        is_lasting = mono_ms - self._word_from_ms > sync.config.heard_ms
        if word != self._told and (is_lasting or word not in _TOLD):
            self._on_word(word if word in _TOLD else "", reason)

    def metrics(self, mono_ms: int) -> Numbers:
        """Return the numbers since the start."""
        now_ms = mono_ms - self._frozen_from_ms if self._promised is not None else 0
        return {"epoch_changes_total": self._changes, "frozen_seconds_total": (self._frozen_ms + now_ms) / 1000}

    def _on_epoch(self, epoch: Epoch, stopped: frozenset[NodeId]) -> None:
        before, self._epoch = self._epoch, epoch
        if before is None or not epoch.number:
            return  # A joiner is in no epoch.
        self._changes += 1
        left_out = {*before.members} - {*epoch.members}
        tell = log.warning if left_out - stopped else log.info
        tell(
            "epoch begins",
            node=self._master,
            epoch=epoch.number,
            proposer=epoch.proposer,
            members=list(epoch.members),
            left_out=sorted(left_out),
            stopped=sorted(left_out & stopped),
            back=sorted({*epoch.members} - {*before.members}),
            lsn=epoch.base_lsn,
            recovered=len(epoch.recovered),
        )
        masters, known = {*epoch.configuration.masters}, {*before.configuration.masters}
        if masters != known and known:
            log.warning(
                "masters change",
                node=self._master,
                epoch=epoch.number,
                added=sorted(masters - known),
                taken_out=sorted(known - masters),
                masters=sorted(masters),
            )

    def _on_promise(self, promised: EpochId | None, mono_ms: int) -> None:
        if self._promised is None:
            self._frozen_from_ms = mono_ms
        self._promised = promised
        if promised is None:
            self._frozen_ms += mono_ms - self._frozen_from_ms
        else:
            log.info("epoch change begins", node=self._master, epoch=promised[0], proposer=promised[1])

    def _on_word(self, word: str, reason: str) -> None:
        before, self._told = self._told, word
        if word:
            tell = log.error if word in {states.LEFT_BEHIND, states.RETIRED, states.LOST_STATE} else log.warning
            tell(_TOLD[word], node=self._master, reason=reason)
        elif before:
            log.info("agrees again", node=self._master)
