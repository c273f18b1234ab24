"""SyncState: the knowledge of one master, and the steps on its queues that several parts of the protocol take.

    SyncState    <- posting, waiting, identity, membership, transferring, epochs/, splits/: each works on it, and knows none above
    SyncCore     is one, and puts the parts in order: inputs, and rounds

A part gets the state, and nothing that runs rounds. Each part keeps what it alone needs; the state has what several parts need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from brokerha.model.epochs import Epoch, EpochId
from brokerha.model.ids import Instant, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.records import Added, ClockReserved, History, MasterState, StreamState
from brokerha.model.wire.epoch_messages import Row
from brokerha.sync.bodies import BodyExchange
from brokerha.sync.catching_up import TailReader
from brokerha.sync.config import SyncConfig
from brokerha.sync.epochs.recovery import Recovery
from brokerha.sync.modes import NONE, keeps_sides, needs_majority
from brokerha.sync.peers import PeerTable
from brokerha.sync.round import RoundResult, is_derived
from brokerha.sync.streams import IncomingQueue, Stream


class HybridClock:
    """Timestamps in microseconds that only grow.

    The hybrid clock of a master: where its timestamps and promises come from (rules R2 and R3, invariant S11).

        last         the highest timestamp given, promised, or seen in an entry that was merged
        high_water   the highest usable timestamp; durable before a timestamp above the old value is revealed

    A timestamp is ``max(last + 1, physical)``: unique, and never below physical time. Everything up to a promise is closed:
    after promising, ``last`` is at least the promise, so nothing is ever stamped at or below it. After a restart ``last``
    starts at ``high_water``, because any value up to there may have been promised before the crash.

    It must never go back, whatever the wall clock does; a wall clock that was set back only stops it from jumping ahead.
    """

    def __init__(self, high_water: Timestamp, reserve_us: int) -> None:
        self.last: Timestamp = high_water
        self.high_water: Timestamp = high_water
        self._reserve_us = reserve_us

    def ticks(self, wall_us: int, count: int) -> range:
        """Return so many new timestamps, at least one, above all that were given, promised or seen."""
        first = max(self.last + 1, wall_us)
        self.last = first + count - 1
        return range(first, first + count)

    def promise(self, wall_us: int) -> Timestamp:
        """Return the promise for a post: nothing will be stamped at or below it from now on."""
        self.last = max(self.last, wall_us)
        return self.last

    def saw(self, timestamp: Timestamp) -> None:
        """Move past a timestamp of another master, so that own entries come after all known ones."""
        self.last = max(self.last, timestamp)

    def reservation(self) -> ClockReserved | None:
        """Return the record that must be durable before ``last`` is revealed, or None when it is covered already.

        Reserves in steps, so that most turns need no record of it.
        """
        if self.last <= self.high_water - self._reserve_us // 4:
            return None
        self.high_water = self.last + self._reserve_us
        return ClockReserved(self.high_water)


class SyncState:
    """See the head of the module."""

    durable_lsn: Lsn | None = None
    """End of the durable queue before this round; None where all of it always is durable."""
    named = False
    """Whether another master has told of an epoch that names this node with this journal as a master."""
    retired = ""
    """Reason why this master was taken out of the cluster; empty while it is in. It still hands out bodies that others lack."""
    lost = ""
    """Reason why this master must not take part any more; empty when it can."""
    row_number = 0
    """Number of the last row that was made."""
    decided: Epoch | None = None
    """The epoch to install as soon as the own queue ends at its base."""
    mode: str
    """The strategy of split recovery in force (modes.py)."""
    needs_majority: bool
    """Whether only a majority can go on without the others."""
    keeps_sides: bool
    """Whether sides of a split can diverge."""
    gone_back: Lsn | None = None
    """LSN to which the queue last went back in this process."""
    reads: Epoch | None = None
    """The epoch for which the queue was cut back, until an epoch is installed: entries added since then belong to its queue."""

    def __init__(self, config: SyncConfig, state: MasterState, history: History, epoch: Epoch) -> None:
        self.config = config
        self.node = config.node
        self.history = history
        self.journal = state.journal
        self.incarnation = state.incarnation
        self.clock = HybridClock(state.high_water, config.clock_reserve_us)
        self.epoch = epoch
        self.promised: EpochId = max(state.promised_epoch, epoch.id)
        """Highest promised epoch; durable with the records of the turn in which it grew."""
        self.later: dict[NodeId, Row] = {}
        """Last row of each master that is in a later epoch."""
        self.tail = TailReader()
        self.peers = PeerTable(config, state.peer_journals, self.epoch)
        self.bodies = BodyExchange(config, history)
        self.incoming = IncomingQueue()
        self.streams: dict[NodeId, Stream] = {}
        for origin in sorted({*config.members, *self.epoch.configuration.masters, *state.streams}):
            kept = state.streams.get(origin, StreamState(state.used.get(origin, 0), []))
            stream = Stream(origin, kept.start, list(kept.entries), state.used.get(origin, 0))
            self.streams[origin] = stream
            self.incoming.merge(
                (*entry, origin, number) for number, entry in enumerate(stream.entries, stream.start) if number >= stream.used
            )
        self.own = self.streams[self.node]
        self.counts = {origin: stream.count for origin, stream in self.streams.items()}
        """Number of held entries of each stream, for comparing all counts of a peer at once."""
        self.lsn = state.lsn
        self.round = RoundResult()
        self.recovery = Recovery(self.epoch, self.lsn, self.bodies.has, self.bodies.is_left, history.ids_from(self.lsn))
        self.last_entry = state.last
        self.accepted: list[tuple[TxId, bytes]] = []
        """Own transactions accepted since the last round, with their bodies."""
        self.parked: deque[TxId] = deque(state.parked)
        unused = [txid for _, txid in self.own.between(self.own.used, 2**62)]
        self.pending: set[TxId] = {*state.parked, *(txid for txid in unused if not self.bodies.is_taken_over(txid))}
        left = [txid for _, txid, origin in self.recovery.left() if origin == self.node]
        self.pending.update(txid for txid in left if not self.bodies.is_taken_over(txid))
        """Own transactions that are accepted and not yet synchronised."""
        self._needed: list[tuple[Lsn, TxId]] = []
        """A heap: LSNs from which on ids must stay known while these own transactions wait (see `ids_needed_from`)."""
        for txid, lsn in history.known(self.pending).items():
            self.need_ids([txid], lsn)
        splits = history.splits()
        if splits:
            self.need_ids(self.pending, min(split.lsn for split in splits) + 1)
        self.content: Callable[[], tuple[Lsn, str]] = lambda: (0, "")
        """Returns the content that own posts tell of this site: an LSN, and the fingerprint there."""
        self.choose(self.epoch.mode)
        self.is_ready_to_part: Callable[[], bool] = lambda: True
        """Tells whether this master keeps a copy of its content, so that it can go on without the missing ones and a majority."""
        self.is_ready_to_go_back: Callable[[], bool] = lambda: True
        """Tells whether entries after a split can be given up: workers that keep their content have executed all of them."""
        self.lineage = splits[-1].lineage if splits else 0
        """Number of the epoch in which the masters last agreed again after a split."""

    # ---- steps

    def append(self, entries: list[Ordered], used: dict[NodeId, int], result: RoundResult) -> None:
        """Append entries to the synchronised queue; their bodies are here."""
        if not result.added:
            result.first_lsn = self.lsn + 1
        result.added += tuple(entries)
        result.records.append(Added(self.lsn + 1, tuple(entries), used, self.epoch.number))
        self.lsn += len(entries)
        if entries:
            self.last_entry = entries[-1]
        for lsn, (_, txid, origin) in enumerate(entries, self.lsn - len(entries) + 1):
            if origin == self.node:
                self.pending.discard(txid)
            elif txid in self.pending:
                self.need_ids([txid], lsn)

    def append_of_others(self, entries: list[Ordered], result: RoundResult) -> None:
        """Append entries that did not come through a stream: of a tail, or of a recovered list."""
        self.append(entries, {}, result)
        self.bodies.settle(entries)
        if self.parked and any(origin == self.node for _, _, origin in entries):
            # Of a disk that was lost, and sent to this one again.
            self.parked = deque(txid for txid in self.parked if txid in self.pending)

    def choose(self, mode: str) -> None:
        """Follow the strategy that an epoch names, or that of the file when it names none (splits/choosing.py)."""
        self.mode = mode or self.config.split_recovery
        self.needs_majority, self.keeps_sides = needs_majority(self.mode), keeps_sides(self.mode)
        self.peers.choose(self.mode)
        self.busy_post_ms = self.config.busy_post_ms(self.mode)

    def own_row(self, now: Instant) -> Row:
        """Return a new row of this master."""
        self.row_number += 1
        return self.row(self.row_number, now)

    # ---- questions

    def row(self, number: int, now: Instant) -> Row:
        """Return the present row of this master, for posts and reports: no more than is durable with the records of this turn."""
        fingerprint_lsn, fingerprint = self.content()
        return Row(
            node=self.node,
            journal=self.journal,
            incarnation=self.incarnation,
            number=number,
            epoch=self.epoch.id,
            promised=self.promised,
            promise=self.clock.promise(now.wall_us),
            have=dict(self.counts),
            recovered=self.recovery.held,
            lsn=self._durable_lsn(),
            heard=self.peers.heard(now.mono_ms),
            fingerprint_lsn=fingerprint_lsn,
            fingerprint=fingerprint,
            known={node: name for node, name in self.peers.founders() if not self.counts.get(node)},
            mode=self.mode,
            file="" if self.config.split_recovery == self.mode else self.config.split_recovery,
            ids_from=self.ids_needed_from(),
        )

    def need_ids(self, txids: Iterable[TxId], lsn: Lsn) -> None:
        """Have ids from an LSN on stay known while these own transactions wait."""
        for txid in txids:
            heappush(self._needed, (lsn, txid))

    def ids_needed_from(self) -> Lsn:
        """Return the lowest LSN whose id this master needs.

        It is that of an entry held, or of an own transaction that waits though it came through another master, too, or the first one
        after the place to which the queue went back, while an own transaction given up there waits. Sites that keep their content
        must see by its id that it got a place again (replication/site/lineages.py).
        """
        needed = self._needed
        while needed and needed[0][1] not in self.pending:
            heappop(needed)
        first_lsn = self.history.first_lsn()
        return min(first_lsn, needed[0][0]) if needed else first_lsn

    def _durable_lsn(self) -> Lsn:
        """Return the LSN for rows: peers forget what this master has, so it tells only what a crash cannot take (R18)."""
        if self.durable_lsn is None or not all(map(is_derived, self.round.records)):
            return self.lsn
        return self.durable_lsn

    def is_frozen(self) -> bool:
        """Tell whether a promise to a proposer forbids this master to stamp, merge or add entries."""
        return self.promised != self.epoch.id

    def is_standing_still(self) -> bool:
        """Tell whether this master only reads from others."""
        number, proposer = self.promised
        return bool(self.later) or number != self.epoch.number or proposer != self.epoch.proposer

    def mode_of(self, epoch: Epoch) -> str:
        """Return the strategy that an epoch puts in force here."""
        return epoch.mode or self.config.split_recovery

    def is_joiner(self) -> bool:
        """Tell whether this master is to be added to an existing cluster (R15)."""
        return self.epoch.number == 0

    def is_whole(self) -> bool:
        """Tell whether every master is a member of this epoch and was heard in it: none comes back from an older one."""
        is_full = self.epoch.members == self.epoch.configuration.masters
        return is_full and all(peer.row is not None for peer in self.peers.peers.values())

    def is_busy(self) -> bool:
        """Tell whether there is anything to agree on (R17)."""
        return bool(
            self.incoming.count
            or self.parked
            or self.accepted
            or self.is_frozen()
            or not self.recovery.is_over
            or [stream for stream in self.streams.values() if stream.waiting]
            or (self.mode == NONE and self._lacks_entries())
        )

    def _lacks_entries(self) -> bool:
        """Tell whether a member has entries that did not come here: it may wait for this master to say that it runs."""
        counts = self.counts
        rows = [peer.row for peer in self.peers.peers.values() if peer.row is not None]
        return any(count > counts.get(origin, count) for row in rows for origin, count in row.have.items())

    def last(self) -> tuple[Timestamp, TxId]:
        """Return timestamp and id of the last transaction in the synchronised queue; 0 and empty when there is none."""
        return self.last_entry[:2] if self.last_entry else (0, "")
