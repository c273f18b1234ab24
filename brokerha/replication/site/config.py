"""Settings of a master towards its workers, and its knowledge of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from brokerha.following.leader import NEVER, Followed, Window
from brokerha.model.ids import Lsn, NodeId
from brokerha.model.wire.messages import Progress

Named = tuple[tuple[NodeId, bool, bool], ...]
"""Workers: name, whether it is read, whether it is switched on."""
LEAST_GONE_MS = 100
"""Shortest time between two questions to the broker about a worker."""
SILENT = Progress("", 0, "", 0, "")
"""The heartbeat of a worker that was not heard."""
PAST_JOURNALS = 8
"""Number of names of earlier copies of a worker that are remembered."""


@dataclass(frozen=True, slots=True)
class FeedConfig:
    """Windows, timeouts and rules between a master and its workers."""

    workers: tuple[NodeId, ...] = ()
    unreadable: tuple[NodeId, ...] = ()
    """Workers that get no reads."""
    window: int = 4000
    """Limit of transactions sent to a worker beyond its confirmed LSN."""
    window_bytes: int = 32 * 1024 * 1024
    """The same limit for bytes, approximately."""
    message_items: int = 1000
    message_bytes: int = 1024 * 1024
    retransmit_ms: int = 1000
    """Unconfirmed items are sent again after this long, then at growing intervals."""
    linger_ms: int = 20
    """Entries wait this long for more, so that the probe executes and commits them together; not if a client waits for one."""
    linger_items: int = 64
    """Number of entries that end this wait."""
    dead_after_ms: int = 5000
    """A worker that was not heard for this long is dead, and another one executes."""
    order_ms: int = 700
    """An order that was not followed is repeated after this long: less than a heartbeat, which is when orders are given."""
    probe: NodeId = ""
    """The dedicated probe; if empty, workers take turns."""
    probe_turn: int = 10_000
    """Transactions after which another worker executes."""
    min_in_sync: int = -1
    """With fewer workers in sync the master is read-only; -1: two if the site has two or more, else one."""
    replay_factor: float = 1.3
    """A snapshot is taken instead of a replay only when the replay takes this many times longer."""
    replay_s: float = 600.0
    """The replay must also take longer than this."""
    net_bytes_per_s: float = 50e6
    """Guess of the speed at which a snapshot travels."""
    others: tuple[NodeId, ...] = ()
    """Workers of other sites, from which a site without any good copy takes one."""

    @property
    def gone_ms(self) -> int:
        """Return the silence after which the broker is asked about a worker that should confirm items."""
        return max(LEAST_GONE_MS, self.dead_after_ms // 10)

    @property
    def silent_ms(self) -> int:
        """Return the same for a worker that has nothing to confirm: a heartbeat or more."""
        return max(1, self.dead_after_ms // 2)

    @property
    def under_way(self) -> Window:
        """Return how much can be under way to a worker."""
        return Window(self.window, self.window_bytes, self.retransmit_ms)


class Standing(StrEnum):
    """A master's view of a worker."""

    UNKNOWN = "unknown"
    """Not heard, or no longer heard."""
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
    """It was loaded from another site: right where this site has no results yet."""
    CHOSEN = "chosen"
    """An operator chose it, or the site from which it was loaded: right even against the log."""


@dataclass(slots=True)
class Filling:
    """Results that this site fetches from another node's log, up to an LSN."""

    sources: tuple[NodeId, ...]
    last: Lsn
    place: int = 0
    asked_ms: int = NEVER
    lacking: set[NodeId] = field(default_factory=set)
    """Sources that said that they lack the next result, too."""

    @property
    def source(self) -> NodeId:
        """Return the source that is asked now."""
        return self.sources[self.place % len(self.sources)]

    @property
    def is_in_vain(self) -> bool:
        """Tell whether all sources said so."""
        return self.lacking.issuperset(self.sources)


@dataclass(slots=True)
class WorkerFeed(Followed):
    """One worker, as its master sees it; `applied` and `sent` are LSNs."""

    is_readable: bool = True
    is_switched_on: bool = True
    task: str = ""
    """Its backup task that is under way; empty when there is none."""
    serves_meanwhile: bool = False
    """Whether it answers reads beside that, because no other worker does."""
    standing: Standing = Standing.UNKNOWN
    reason: str = ""
    condemned: str = ""
    """Why this very copy must be replaced; a new copy has a new journal name and is not condemned."""
    cut_off_lsn: Lsn | None = None
    """LSN of a copy that is condemned only because the log no longer reaches back to it there; else None."""
    forgiven_lsn: Lsn = 0
    trust: Trust = field(default_factory=lambda: Trust.NONE)
    is_from_elsewhere: bool = False
    """Whether its copy comes from another site, and this master has not judged it yet."""
    journal: str = ""
    past_journals: tuple[str, ...] = ()
    """Names of its earlier copies; late messages about them do not count."""
    waits_lsn: Lsn = 0
    """Its LSN while it is ahead of the log, which is about to come there; 0 otherwise."""
    agreed_lsn: Lsn = 0
    """Highest LSN at which it had the log's content."""
    vouched_lsn: Lsn = 0
    """Up to here its copy is right, whatever lineage it followed: a person chose it, or it was compared."""
    executed_lsn: Lsn = 0
    executed_fingerprint: str = ""
    executed_items: int = 0
    """The number of items at `executed_lsn`, from its results: newer than its last heartbeat."""
    heard_ms: int = NEVER
    looked_ms: int = NEVER
    """When the broker was last asked whether a process reads its inbox."""
    ordered_ms: int = NEVER
    """When it last got an order."""
    order: str = ""
    """Kind of that order."""
    progress: Progress | None = None
    load_from_lsn: Lsn | None = None
    """Lower limit of the LSN of a snapshot that it may be loading; None when it loads none."""
    load_begun_ms: int = NEVER
    """When the present load began."""
    replay_per_s: float = 0.0
    """Transactions per second of its last catching up."""
    rated_ms: int = NEVER
    rated_lsn: Lsn = 0
    is_probe: bool = False
    """Whether it executes now."""
    asked: tuple[Lsn, int] = (0, NEVER)
    """(LSN, time) of the last request for missed results."""

    def condemn(self, reason: str, cut_off_lsn: Lsn | None = None) -> None:
        """Have this copy replaced; ``cut_off_lsn`` when only its place is wrong. An empty reason takes a former one back."""
        self.condemned, self.cut_off_lsn = reason, cut_off_lsn

    def take_copy(self, progress: Progress) -> None:
        """Forget the former copy: the worker has another one, or one that is lower than its confirmed LSN."""
        known = (*self.past_journals[1 - PAST_JOURNALS :], self.journal)
        self.past_journals = tuple(name for name in known if name != progress.journal)
        if self.journal != progress.journal:
            self.journal = progress.journal
            self.condemn("")
        self.stand(progress.applied_lsn)
        self.agreed_lsn, self.vouched_lsn, self.reason = 0, 0, ""
        self.rated_ms = NEVER
        self.wanted.clear()
        if self.standing is Standing.ON:
            self.standing = Standing.UNINITIALISED

    def results_asked(self, first: Lsn, mono_ms: int, again_ms: int) -> bool:
        """Tell whether to request results from this LSN on now, because they were not requested recently; count it as requested."""
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
        """Forget knowledge about LSNs after ``lsn``: the log goes another way there."""
        self.agreed_lsn, self.vouched_lsn = min(self.agreed_lsn, lsn), min(self.vouched_lsn, lsn)
        self.forgiven_lsn = self.forgiven_lsn if self.forgiven_lsn <= lsn else 0
        self.order, self.executed_lsn, self.executed_fingerprint, self.executed_items = "", 0, "", 0
        self.wanted.clear()

    @property
    def said(self) -> Progress:
        """Return its last heartbeat; `SILENT` as long as it was not heard."""
        return self.progress if self.progress is not None else SILENT

    @property
    def is_giving(self) -> bool:
        """Tell whether another worker is taking its copy."""
        return self.progress is not None and self.progress.state in ("replication-server", "writing-copy")

    @property
    def is_following(self) -> bool:
        """Tell whether it takes records."""
        return self.progress is not None and self.progress.follows in ("basic", "request")

    @property
    def is_away(self) -> bool:
        """Tell whether its work keeps it from answering reads."""
        return bool(self.task) and not self.serves_meanwhile

    @property
    def is_on(self) -> bool:
        """Tell whether it is in sync."""
        return self.standing is Standing.ON

    @property
    def state(self) -> str:
        """Return the state word for the status."""
        if self.standing is Standing.ON and self.is_away:
            return "off"
        if self.standing is Standing.ON and self.progress is not None:
            return self.progress.state if self.is_following else "on"
        return self.standing.value

    @property
    def fingerprint(self) -> str:
        """Return the reported fingerprint of its content at `applied`; empty while it reported only that of an earlier LSN."""
        if self.progress is not None and self.progress.applied_lsn == self.applied:
            return self.progress.fingerprint
        return self.executed_fingerprint if self.executed_lsn == self.applied else ""

    @property
    def items_now(self) -> int:
        """Return the number of items at `applied`, or at an earlier LSN while it has reported nothing newer."""
        is_newer = self.executed_lsn == self.applied and (self.progress is None or self.progress.applied_lsn != self.applied)
        return self.executed_items if is_newer else self.said.items
