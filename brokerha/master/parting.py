"""The steps of a master around a split in the strategies none, simple and smart (rules R13, R14).

    first silence of a master     simple, smart: one worker keeps a copy of its content, for the time when sides come together
    a side goes on without it     only when that copy is kept, if one can be had
    sides come together           a lineage begins (`Rewound`): LSNs after its LSN have no result here any more, and clients that
                                  wait for one of them wait for the next one
      none                        content stays: first the site executes its backlog, then the log takes it as the content there
      simple, smart               workers beyond that LSN restore their kept copies, the others are healed from them (replication)
    all are together              and every live worker is in sync: no copy is kept any more

Must never: have a copy dropped while a worker may still have to restore it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from brokerha.master.admission import Waiters
from brokerha.master.pins import DurablePins
from brokerha.master.transacting import Transacting
from brokerha.model.epochs import EpochId
from brokerha.model.fingerprints import from_text, text_of
from brokerha.model.ids import Instant, Lsn, NodeId
from brokerha.model.records import ContentTaken, History, Rebased, Record
from brokerha.replication.site.config import WorkerFeed
from brokerha.replication.site.feed import Feed
from brokerha.replication.site.judging import SiteComparison
from brokerha.replication.site.lineages import executed_before
from brokerha.replication.site.site import Site
from brokerha.replication.site.splits import Keeping
from brokerha.sync.core import SyncCore
from brokerha.sync.modes import NONE, keeps_copies
from brokerha.sync.round import RoundResult


class Parts(Protocol):
    """The parts of a master that a split concerns."""

    history: History
    sync: SyncCore
    site: Site
    sites: SiteComparison
    feed: Feed
    pins: DurablePins
    waiters: Waiters
    to_write: list[Record]

    @property
    def transacting(self) -> Transacting:
        """The coordinator of transactions."""

    def forget_results(self, lsn: Lsn) -> None:
        """Results after ``lsn`` are void."""


class Parting:
    """Follows the rounds of one master."""

    def __init__(self, core: Parts, keeping: Keeping, taken_splits: int) -> None:
        self._core, self._keeping = core, keeping
        self._now_ms = 0
        self._began_ms: int | None = None
        self._may_keep = True
        """Whether a worker may keep a copy: with quorum only one from an earlier split."""
        self._held: tuple[EpochId, int] | None = None
        """The epoch in which workers are held, and the time since when."""
        self._is_book_new = True
        self._taken_splits = taken_splits
        """Number of the last split before the content of another site was taken over."""
        core.sync.is_ready_to_part = self._is_ready_to_part
        core.sync.is_ready_to_go_back = self._is_ready_to_go_back

    # ---- questions of sync

    def _is_ready_to_part(self) -> bool:
        """Tell whether a copy is kept, or none can be had."""
        site = self._core.site
        return bool(site.kept()) or not site.in_sync(self._now_ms)

    def _is_ready_to_go_back(self) -> bool:
        """Tell whether the site has executed its backlog, where its content is to stay."""
        core = self._core
        if core.sync.mode != NONE:
            return True
        workers = core.site.in_sync(self._now_ms)
        return not workers or (core.feed.executed == core.sync.lsn and len(self._at_the_end(workers)) == len(workers))

    def _at_the_end(self, workers: list[WorkerFeed]) -> list[WorkerFeed]:
        """Return the workers that hold all results here and nothing else: one that was sent more may have executed it meanwhile."""
        executed = self._core.feed.executed
        return [w for w in workers if w.progress is not None and w.progress.applied_lsn == executed >= w.sent]

    # ---- each round

    def look(self, now: Instant) -> None:
        """Check, with all records of earlier turns durable, whether a master is missing or all are back."""
        core, self._now_ms = self._core, now.mono_ms
        core.site.has_own_content = core.sync.mode == NONE
        if core.site.took_elsewhere:
            core.site.took_elsewhere, self._is_book_new = False, True
            last = max((split.number for split in core.history.splits()), default=0)
            core.feed.executed_before = set()
            if last > self._taken_splits:
                self._taken_splits = last
                core.to_write.append(ContentTaken(last))
        if self._is_book_new:
            self._is_book_new = False
            # The content keeps what it holds. Look at all splits: a result that was known again may be lost by going back.
            found = executed_before(core.history, core.feed.executed, self._taken_splits)
            core.feed.executed_before = found.union(core.feed.executed_before)
        self._may_keep |= core.sync.keeps_sides
        if core.sync.lost or not self._may_keep:
            return
        if self._began_ms is None:
            self._began_ms = now.mono_ms
        is_parted = core.sync.epoch.members != core.sync.epoch.configuration.masters
        core.feed.holds_after = self._held_after(now.mono_ms) if is_parted and keeps_copies(core.sync.mode) else None
        if keeps_copies(core.sync.mode) and (is_parted or self._is_somebody_missing(now.mono_ms)):
            if is_parted or now.mono_ms - self._began_ms > core.sync.config.heard_ms:
                self._keeping.keep(now)
        elif not self._unsettled(now.mono_ms):
            self._keeping.drop(now)
            self._may_keep = core.sync.keeps_sides or bool(core.site.kept())

    def _held_after(self, mono_ms: int) -> Lsn | None:
        """Return the LSN after which workers must not execute while one can still keep the common content (R14); None for no limit.

        After a restart in a split, workers may be before that LSN without a kept copy. They wait for `max-peer-lag` at most.
        """
        sync, site = self._core.sync, self._core.site
        base = sync.epoch.base_lsn
        if any(lsn <= base for lsn in site.kept().values()) or all(each.applied > base for each in site.in_sync(mono_ms)):
            return None
        if self._held is None or self._held[0] != sync.epoch.id:
            self._held = sync.epoch.id, mono_ms
        return base if mono_ms - self._held[1] <= sync.config.max_peer_lag_ms else None

    def _is_somebody_missing(self, mono_ms: int) -> bool:
        sync = self._core.sync
        if sync.is_frozen():
            return True
        patience_ms = sync.config.heard_ms
        return any(peer.known_ms is not None and mono_ms - peer.known_ms > patience_ms for peer in sync.peers.peers.values())

    def _unsettled(self, mono_ms: int) -> list[NodeId]:
        """Return live workers that may have to restore a kept copy; this node while the masters are not all back."""
        core = self._core
        if not core.sync.is_whole() or core.sync.is_frozen():
            return [core.sync.node]
        alive = [w for w in core.site.workers.values() if w.is_switched_on and core.site.is_alive(w, mono_ms)]
        return [worker.node for worker in alive if not worker.is_on]

    def on_round(self, result: RoundResult, now: Instant) -> list[Record]:
        """Take note of a round that is about to be written after all known results; return records to write after its own."""
        if result.rewound is None:
            return []
        core, lsn = self._core, result.rewound.lsn
        rebased = self._content_stays(lsn) if result.rewound.keeps_content and lsn < core.feed.executed else None
        if rebased is None and result.rewound.keeps_content:
            # No worker here holds all of it: the content after it comes from elsewhere.
            place = result.records.index(result.rewound)
            result.rewound = result.records[place] = replace(result.rewound, keeps_content=False)
        content = text_of(rebased.fingerprint) if rebased is not None else ""
        core.feed.rewind(lsn, result.rewound.lineage, now.mono_ms, content)
        self._is_book_new = True
        core.forget_results(lsn)
        core.waiters.go_back(lsn)
        core.transacting.go_back(lsn)
        # Fingerprints of contents from before are of another order.
        core.sites = SiteComparison()
        return [record for record in (rebased, core.pins.go_back(lsn)) if record is not None]

    def _content_stays(self, lsn: Lsn) -> Rebased | None:
        """Return the record that makes the site's content that of an LSN of the log; None when no worker holds all of it."""
        executed = self._core.feed.executed
        for worker in self._at_the_end(self._core.site.in_sync(self._now_ms)):
            if worker.progress is not None and not worker.condemned:
                reason = f"a split: what was executed up to LSN {executed} stays, and the log goes on after {lsn}"
                return Rebased(lsn, from_text(worker.progress.fingerprint), worker.progress.items, reason)
        return None

    def deadline_ms(self) -> int | None:
        """Return when `look` may have work though nothing happened."""
        sync = self._core.sync
        if sync.lost or not keeps_copies(sync.mode):
            return None
        if self._core.feed.holds_after is not None and self._held is not None:
            return self._held[1] + sync.config.max_peer_lag_ms + 1
        known = [peer.known_ms for peer in sync.peers.peers.values() if peer.known_ms is not None]
        due_ms = min(known, default=None)
        if due_ms is None:
            return None
        # Once a master is missing the orders are given, and orders have their own time.
        return due_ms + sync.config.heard_ms + 1 if due_ms + sync.config.heard_ms >= self._now_ms else None
