"""Settings of a master towards its workers, and what it knows of each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from brokerha.following.leader import NEVER, Followed, Window
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.wire.messages import Progress

Named = tuple[tuple[NodeId, bool, bool], ...]
"""Workers: name, whether it is read, whether it is switched on."""
LEAST_GONE_MS = 100
"""The broker is asked for a worker at most this often."""
SILENT = Progress("", 0, "", 0, "")
"""What a worker that was not heard says."""
PAST_JOURNALS = 8
"""Names of earlier copies of a worker that are remembered."""


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """Windows, waits and rules between a master and its workers."""

    workers: tuple[NodeId, ...] = ()
    unreadable: tuple[NodeId, ...] = ()
    """Those of them that get no reads."""
    window: int = 4000
    """Transactions sent to a worker beyond what it confirmed,"""
    window_bytes: int = 32 * 1024 * 1024
    """and about as many bytes of them."""
    message_items: int = 1000
    message_bytes: int = 1024 * 1024
    retransmit_ms: int = 1000
    """What a worker has not confirmed after this long is sent again, and ever more patiently after that."""
    linger_ms: int = 20
    """What the probe is to execute waits this long for more, so that it executes and commits them together; not where somebody waits for it,"""
    linger_items: int = 64
    """nor once there are so many."""
    dead_after_ms: int = 5000
    """A worker that was not heard for this long is dead, and another one executes."""
    order_ms: int = 700
    """An order that has not been followed is given again after this long: less than a heartbeat, which is when orders are given."""
    probe: NodeId = ""
    """The worker that executes, if it is dedicated; else they take turns."""
    probe_turn: int = 10_000
    """Transactions after which another worker executes."""
    min_in_sync: int = -1
    """Fewer workers in sync than this make the master read-only; -1: two if the site has two or more, else one."""
    replay_factor: float = 1.3
    """A snapshot is taken instead of a replay only when the replay takes this many times longer,"""
    replay_s: float = 600.0
    """and longer than this."""
    net_bytes_per_s: float = 50e6
    """Guess of how fast a snapshot travels."""
    others: tuple[NodeId, ...] = ()
    """Workers of other sites, from which a site without any good copy takes one."""

    @property
    def gone_ms(self) -> int:
        """Of a worker that was sent something and says nothing for this long the broker is asked whether its process is there."""
        return max(LEAST_GONE_MS, self.dead_after_ms // 10)

    @property
    def silent_ms(self) -> int:
        """The same where nothing is waited for: a heartbeat or more."""
        return max(1, self.dead_after_ms // 2)

    @property
    def under_way(self) -> Window:
        """How much may be under way to a worker."""
        return Window(self.window, self.window_bytes, self.retransmit_ms)


class Standing(StrEnum):
    """What a master thinks of a worker."""

    UNKNOWN = "unknown"
    """Not heard, or not any more."""
    UNINITIALISED = "uninitialised"
    """Heard, and not judged yet."""
    ON = "on"
    OFF = "off"
    """By command."""
    OUT_OF_SYNC = "out-of-sync"
    LOADING = "replication-client"


class Trust(StrEnum):
    """Whether a copy counts as right where the log here has other results, or none."""

    NONE = "none"
    LOADED = "loaded"
    """It was taken from another site: right where this site has no results yet."""
    CHOSEN = "chosen"
    """An operator chose it, or the site it was taken from: right even against the log."""


@dataclass(slots=True)
class Filling:
    """Results that this site fetches from the log of somebody else, up to an LSN."""

    sources: tuple[NodeId, ...]
    last: Lsn
    place: int = 0
    asked_ms: int = NEVER
    lacking: set[NodeId] = field(default_factory=set)
    """Who said that it does not have the next one either."""

    @property
    def source(self) -> NodeId:
        """Who is asked now."""
        return self.sources[self.place % len(self.sources)]

    @property
    def is_in_vain(self) -> bool:
        """Whether all have said so."""
        return self.lacking.issuperset(self.sources)


@dataclass(slots=True)
class WorkerFeed(Followed):
    """One worker, as its master sees it; `applied` and `sent` are LSNs."""

    is_readable: bool = True
    is_switched_on: bool = True
    task: str = ""
    """Its backup, that is under way; empty when there is none."""
    serves_meanwhile: bool = False
    """Whether it answers reads beside that, because no other worker does."""
    standing: Standing = Standing.UNKNOWN
    reason: str = ""
    condemned: str = ""
    """Why this very copy must be replaced; a new copy has a new journal name and begins without."""
    forgiven_lsn: Lsn = 0
    trust: Trust = field(default_factory=lambda: Trust.NONE)
    is_from_elsewhere: bool = False
    """Whether its copy comes from another site, and this one has not said yet what it makes of it."""
    journal: str = ""
    past_journals: tuple[str, ...] = ()
    """Names of the copies that it had before; what comes late of them counts no more."""
    waits_lsn: Lsn = 0
    """It is ahead of the log, which is about to come here; 0 when it is not."""
    agreed_lsn: Lsn = 0
    """Highest LSN at which it had the content that the log says."""
    vouched_lsn: Lsn = 0
    """Up to here its copy is right, whatever lineage it followed: somebody chose it, or it was compared."""
    executed_lsn: Lsn = 0
    executed_fingerprint: str = ""
    executed_items: int = 0
    """Of its content at `executed_lsn`, as it said with results: newer than its last heartbeat."""
    heard_ms: int = NEVER
    looked_ms: int = NEVER
    """When the broker was last asked whether anybody reads its inbox."""
    ordered_ms: int = NEVER
    """When it was last given an order."""
    order: str = ""
    """What kind of order that was."""
    progress: Progress | None = None
    load_from_lsn: Lsn | None = None
    """No snapshot that it may be loading is of a lower LSN; None when it loads none."""
    load_begun_ms: int = NEVER
    """When the load began that is under way."""
    replay_per_s: float = 0.0
    """Transactions per second at which it has been catching up."""
    rated_ms: int = NEVER
    rated_lsn: Lsn = 0
    is_probe: bool = False
    """Whether it executes now."""
    asked: tuple[Lsn, int] = (0, NEVER)
    """From which LSN on it was last asked for results that were missed, and when."""

    def take_copy(self, progress: Progress) -> None:
        """It tells of another copy, or of one that stands lower than what it confirmed: what was known of it does not hold."""
        known = (*self.past_journals[1 - PAST_JOURNALS :], self.journal)
        self.past_journals = tuple(name for name in known if name != progress.journal)
        if self.journal != progress.journal:
            self.journal, self.condemned = progress.journal, ""
        self.stand(progress.applied_lsn)
        self.agreed_lsn, self.vouched_lsn, self.reason = 0, 0, ""
        self.rated_ms = NEVER
        self.wanted.clear()
        if self.standing is Standing.ON:
            self.standing = Standing.UNINITIALISED

    def results_asked(self, first: Lsn, mono_ms: int, again_ms: int) -> bool:
        """Whether to ask for results from here on now, as it was not of late; counts as asked then."""
        known, at_ms = self.asked
        is_due = first != known or mono_ms - at_ms >= again_ms
        if is_due:
            self.asked = first, mono_ms
        return is_due

    def rate(self, applied: Lsn, mono_ms: int) -> None:
        """Measure how fast it catches up, over a second or more."""
        passed_ms = mono_ms - self.rated_ms
        if self.rated_ms == NEVER or applied < self.rated_lsn:
            self.rated_ms, self.rated_lsn = mono_ms, applied
        elif passed_ms >= 1000:
            self.replay_per_s = 1000 * (applied - self.rated_lsn) / passed_ms
            self.rated_ms, self.rated_lsn = mono_ms, applied

    def go_back(self, lsn: Lsn) -> None:
        """The log goes another way after ``lsn``: what was known after it does not hold."""
        self.agreed_lsn, self.vouched_lsn = min(self.agreed_lsn, lsn), min(self.vouched_lsn, lsn)
        self.forgiven_lsn = self.forgiven_lsn if self.forgiven_lsn <= lsn else 0
        self.order, self.executed_lsn, self.executed_fingerprint, self.executed_items = "", 0, "", 0
        self.wanted.clear()

    @property
    def said(self) -> Progress:
        """Its last heartbeat; `SILENT` as long as it was not heard."""
        return self.progress if self.progress is not None else SILENT

    @property
    def is_giving(self) -> bool:
        """Whether another worker is taking its copy."""
        return self.progress is not None and self.progress.state in ("replication-server", "writing-copy")

    @property
    def is_following(self) -> bool:
        """Whether it takes records."""
        return self.progress is not None and self.progress.follows in ("basic", "request")

    @property
    def is_away(self) -> bool:
        """Whether its work keeps it from answering reads."""
        return bool(self.task) and not self.serves_meanwhile

    @property
    def is_on(self) -> bool:
        """Whether it is in sync."""
        return self.standing is Standing.ON

    @property
    def state(self) -> str:
        """State word for the status."""
        if self.standing is Standing.ON and self.is_away:
            return "off"
        if self.standing is Standing.ON and self.progress is not None:
            return self.progress.state if self.is_following else "on"
        return self.standing.value

    @property
    def fingerprint(self) -> str:
        """Of its content at `applied`, in its own words; empty as long as it has said that of an earlier LSN only."""
        if self.progress is not None and self.progress.applied_lsn == self.applied:
            return self.progress.fingerprint
        return self.executed_fingerprint if self.executed_lsn == self.applied else ""

    @property
    def items_now(self) -> int:
        """At `applied`, as with the fingerprint; of an earlier LSN as long as it has said nothing newer."""
        is_newer = self.executed_lsn == self.applied and (self.progress is None or self.progress.applied_lsn != self.applied)
        return self.executed_items if is_newer else self.said.items
