"""The records of a master's journal, one frozen class each; the class is its schema on disk.

A turn writes its records in one commit (one fsync); after a crash all of them are there or none. log/FORMAT.md has their layout.
Records are in the order of their events; replaying them rebuilds the durable state of a master.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from brokerha.model.epochs import FIRST, Epoch, EpochId
from brokerha.model.fingerprints import EMPTY
from brokerha.model.given_up import GivenUp, Split
from brokerha.model.ids import Entry, Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.operations import Result, ResultRow


@dataclass(frozen=True, slots=True)
class Started:
    """The process began; revealed as its incarnation."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class ClockReserved:
    """A timestamp or promise above this needs another reservation first (``hw``)."""

    high_water: Timestamp


@dataclass(frozen=True, slots=True)
class PeerJournal:
    """The name of a peer's journal, as first heard: another name under that node id is another node."""

    peer: NodeId
    journal: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """Own transactions that clients submitted: (transaction id, body). They wait for a timestamp."""

    items: tuple[tuple[TxId, bytes], ...]


@dataclass(frozen=True, slots=True)
class BodiesHeld:
    """Bodies of other origins: (origin, transaction id, body)."""

    items: tuple[tuple[NodeId, TxId, bytes], ...]


@dataclass(frozen=True, slots=True)
class Appended:
    """Entries of a stream from number ``start`` on, own ones (no longer parked) or foreign ones."""

    origin: NodeId
    start: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Added:
    """Entries added to the synchronised queue from ``first_lsn`` on, with the new used count of each stream."""

    first_lsn: Lsn
    entries: tuple[Ordered, ...]
    used: dict[NodeId, int]
    """Number of entries of each stream that are in the synchronised queue, or were dropped as duplicates."""
    epoch: int = 1


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Results of execution from ``first_lsn`` on, as the site's executing worker reported them."""

    first_lsn: Lsn
    results: tuple[ResultRow, ...]
    items: int
    """Quads and keys after the last of them; 0 when unknown."""


@dataclass(frozen=True, slots=True)
class WorkersChanged:
    """The workers of this master from now on, overriding the cluster file: (id, takes reads, is switched on)."""

    workers: tuple[tuple[NodeId, bool, bool], ...]


@dataclass(frozen=True, slots=True)
class Rebased:
    """The site's content at ``lsn`` is that of a trusted copy; results known so far are void.

    Follows the choice of an operator, or a site that took its content from another one.
    """

    lsn: Lsn
    fingerprint: bytes
    items: int
    reason: str


@dataclass(frozen=True, slots=True)
class ViewStarted:
    """A process became primary; later records are of this view."""

    view: int
    process: NodeId


@dataclass(frozen=True, slots=True)
class TxPrepared:
    """A transaction is closed and waits for its decision, with all its operations."""

    txid: TxId
    xid: str
    """Of the coordinator (`Xid.text`); empty for a transaction of one client."""
    body: bytes
    participants: tuple[NodeId, ...]
    """Backups that have its events; no further one joins."""
    prepared_us: Timestamp
    """Wall clock of the primary, for people."""


@dataclass(frozen=True, slots=True)
class TxDecided:
    """The final outcome of a prepared transaction. With a commit the same turn accepts its body."""

    txid: TxId
    is_commit: bool
    reason: str
    is_heuristic: bool = False
    """Whether a person decided instead of the coordinator: kept and reported until it is forgotten."""
    xid: str = ""
    """Of the prepared transaction, so that a decision by hand keeps its name over a restart."""


@dataclass(frozen=True, slots=True)
class TxForgotten:
    """The outcome of a transaction decided by hand is no longer needed."""

    txid: TxId


Pin = tuple[str, Lsn, Timestamp]
"""Name, lowest LSN needed, and end of validity (microseconds of the wall clock)."""


@dataclass(frozen=True, slots=True)
class PinsChanged:
    """The durable pins of this master from now on: readers, beside workers and peers, that need a part of the log."""

    pins: tuple[Pin, ...]


@dataclass(frozen=True, slots=True)
class EpochPromised:
    """This master no longer takes part in an epoch below this one: frozen until one is installed (R9)."""

    epoch: EpochId


@dataclass(frozen=True, slots=True)
class EpochInstalled:
    """The epoch of this master from now on (R11). All entries up to its base are already in the synchronised queue.

    Each stream continues at its start. Lower entries that are not synchronised yet are in the recovered list; own entries that
    are in neither are parked again, before all others, in their order.
    """

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class IdsTaken:
    """A page of another master's state: transactions that are synchronised, here or not yet (R16)."""

    ids: tuple[tuple[TxId, Lsn], ...]
    rejections: tuple[tuple[Lsn, str], ...]
    """Rejected ones among them, with the reason."""


@dataclass(frozen=True, slots=True)
class StateTaken:
    """This master continues after ``lsn``; all ids up to it have arrived (R16). Its own queue up to it is dropped.

    Results begin again there. Accepted transactions among these ids, at or below ``lsn``, no longer wait.
    """

    lsn: Lsn
    last: Ordered
    """The entry at ``lsn``."""
    fingerprint: bytes
    """Fingerprint of the content at ``lsn``."""
    items: int
    """Quads and keys at ``lsn``; 0 when unknown."""


@dataclass(frozen=True, slots=True)
class Rewound:
    """The sides of a split join, and the synchronised queue ends at ``lsn`` again: later entries were synchronised on one side
    only.

    Own transactions among them are parked again, before all others, in their order; their results are void. A master that gives
    up nothing writes the record too, at the end of its queue, so that all masters count the same lineages.
    """

    lsn: Lsn
    epoch: int
    """Number of the abandoned epoch."""
    lineage: int
    """Number of the epoch that follows; it grows over a master's records."""
    keeps_content: bool = False
    """Whether the site keeps its content (strategy none): transactions applied after ``lsn`` are not executed again."""


@dataclass(frozen=True, slots=True)
class ContentTaken:
    """The site has taken the content of another one (strategy none), without what splits up to ``splits`` gave up here."""

    splits: int


Record = (
    Started | ClockReserved | PeerJournal | Accepted | BodiesHeld | Appended | Added | Outcomes | WorkersChanged | Rebased
    | ViewStarted | TxPrepared | TxDecided | TxForgotten | PinsChanged | EpochPromised | EpochInstalled
    | IdsTaken | StateTaken | Rewound | ContentTaken
)  # fmt: skip

RECORDS: tuple[type, ...] = (
    Started, ClockReserved, PeerJournal, Accepted, BodiesHeld, Appended, Added, Outcomes, WorkersChanged, Rebased,
    ViewStarted, TxPrepared, TxDecided, TxForgotten, PinsChanged, EpochPromised, EpochInstalled,
    IdsTaken, StateTaken, Rewound, ContentTaken,
)  # fmt: skip
"""All record classes; the index in this tuple is the number on disk, so new ones go to the end."""


STARTS_OF_A_VIEW = 1 << 16
"""Incarnations between those of two views: a primary whose journal failed restarts within its view."""
VIEWS_KEPT = 64
STARTS_KEPT = 256
DECIDED_KEPT = 10_000


class Rest(NamedTuple):
    """Whether an operator paused this process, and the primary that it was coined on since."""

    is_on: bool = False
    primary: NodeId = ""
    """Empty until it was coined."""
    view: int = 0


NO_REST = Rest()


class StreamState(NamedTuple):
    """The part of a stream that a restart restores."""

    start: int
    """Number of the first entry in `entries`; never above the entries in the synchronised queue."""
    entries: list[Entry]


@dataclass(slots=True)
class MasterState:
    """State of a master at its start, rebuilt from its journal."""

    journal: str
    incarnation: int = 0
    """Incarnation of the last start."""
    high_water: Timestamp = 0
    epoch: int = 1
    """Number of the epoch of the last `Added`."""
    installed: Epoch | None = None
    """Epoch of the last `EpochInstalled`; None in the first epoch, whose members the cluster file names."""
    promised_epoch: EpochId = FIRST
    """Highest epoch promised or installed."""
    peer_journals: dict[NodeId, str] = field(default_factory=dict)
    parked: list[TxId] = field(default_factory=list)
    """Own accepted transactions without a timestamp, oldest first."""
    streams: dict[NodeId, StreamState] = field(default_factory=dict)
    """At least all entries that are not yet in the synchronised queue."""
    used: dict[NodeId, int] = field(default_factory=dict)
    lsn: Lsn = 0
    last: Ordered | None = None
    """Last entry of the synchronised queue."""
    executed_lsn: Lsn = 0
    fingerprint: bytes = EMPTY
    """Fingerprint of the content at ``executed_lsn``."""
    items: int = 0
    workers: tuple[tuple[NodeId, bool, bool], ...] | None = None
    """Workers of the last `WorkersChanged`; None while the cluster file counts."""
    pins: tuple[Pin, ...] = ()
    """Pins of the last `PinsChanged`, including expired ones."""
    taken_splits: int = 0
    """Number of the last `ContentTaken`: the content lacks what these splits gave up."""
    last_number: int = 0
    """Number of the last record."""
    views: tuple[tuple[int, int], ...] = ()
    """(view, number of its `ViewStarted`), oldest first, the last `VIEWS_KEPT` of them; before the first the view is 1."""
    starts: tuple[tuple[int, Lsn], ...] = ()
    """(incarnation, LSN at its start), the last `STARTS_KEPT`, oldest first: an incarnation's transactions have no lower LSN."""
    promised_view: int = 0
    """Highest view that this process has promised; of the process, not of the journal (`Journal.promise`)."""
    rest: Rest = NO_REST
    """The pause of this process by an operator; of the process, not of the journal (`Journal.rest`)."""
    prepared: dict[TxId, TxPrepared] = field(default_factory=dict)
    """Prepared and undecided transactions, oldest first."""
    decided: dict[TxId, TxDecided] = field(default_factory=dict)
    """Rolled back prepared transactions, the last `DECIDED_KEPT`, and all those decided by hand and not forgotten. Committed ones
    are found by their LSN."""

    @property
    def next_incarnation(self) -> int:
        """The incarnation of the next start: at least one higher.

        Two processes of a master can both begin from this record, each in its own view; their incarnations must differ, because
        other names derive from them.
        """
        return max(self.incarnation + 1, self.views[-1][0] * STARTS_OF_A_VIEW if self.views else 0)


class Remembered(NamedTuple):
    """A page of remembered transactions."""

    ids: tuple[tuple[TxId, Lsn], ...]
    rejections: tuple[tuple[Lsn, str], ...]
    """Rejected ones among them, with the reason."""
    next_cursor: bytes
    """Start of the next page; empty for the last one."""


class History(Protocol):
    """Read-only view of a master's durable state; answers come from memory or the files of the log, never from a network.

    Like the storage interface of a consensus library it lets a core read its own past instead of keeping all of it in memory. It
    changes nothing, and the same records give the same answers.
    """

    def lsn_of(self, txid: TxId) -> Lsn | None:
        """Return the LSN of a synchronised transaction, or None, also when its id is forgotten."""

    def known(self, txids: Iterable[TxId]) -> dict[TxId, Lsn]:
        """Return the newest LSNs of the synchronised ones of these transactions, even below `ids_from`."""

    def known_at(self, txid: TxId, end: Lsn) -> Lsn | None:
        """Return the newest LSN of a transaction in a queue that ends at ``end``, even below `ids_from`; None for none."""

    def ids_from(self, end: Lsn) -> Lsn:
        """Return the LSN below which ids are forgotten (model/forgetting.py) in a queue that ends at ``end``; 0 for none."""

    def bodies(self, names: Sequence[tuple[NodeId, TxId]]) -> list[bytes | None]:
        """Return bodies of transactions by origin and id; None for a missing one."""

    def body(self, origin: NodeId, txid: TxId) -> bytes | None:
        """Return the body of a transaction by origin and id, or None when it is missing."""

    def duplicates(self, txids: Iterable[TxId]) -> Collection[TxId]:
        """Return those of these transactions that this master accepted too, although they got their LSN through another master."""

    def stream(self, origin: NodeId, start: int, limit: int) -> list[Entry]:
        """Return up to ``limit`` entries of a stream from number ``start`` on; fewer or none where it ends or was trimmed."""

    def ordered(self, first_lsn: Lsn, limit: int) -> list[Ordered]:
        """Return up to ``limit`` entries of the synchronised queue from ``first_lsn`` on."""

    def epochs(self, first_lsn: Lsn, limit: int) -> list[int]:
        """Return the epoch number of each entry of `ordered` with these arguments."""

    def entry_at(self, lsn: Lsn) -> Ordered | None:
        """Return the entry at an LSN, from `first_lsn` - 1 on; None elsewhere."""

    def results(self, first_lsn: Lsn, limit: int) -> list[Result]:
        """Return up to ``limit`` results of execution from ``first_lsn`` on; fewer where they are not yet known."""

    def first_lsn(self) -> Lsn:
        """Return the lowest LSN whose body is still held; one more than the last when the log is empty."""

    def results_from(self) -> Lsn:
        """Return the lowest LSN whose result is held; one more than the last executed one when none is."""

    def fingerprint_at(self, lsn: Lsn) -> bytes:
        """Return the fingerprint of the content at an LSN, from `results_from` - 1 on; unknown (empty) elsewhere."""

    def rejection(self, lsn: Lsn) -> str | None:
        """Return the reason of a rejection while its id is known, even after its result was trimmed.

        None when it was not rejected, has no result yet, or is forgotten.
        """

    def remembered(self, cursor: bytes, up_to: Lsn, limit: int) -> Remembered:
        """Return remembered transactions up to an LSN, from a cursor on (empty: the first); ``limit`` bounds the ones examined.

        A cursor stays valid while transactions are added and forgotten: one that is remembered throughout is on exactly one page.
        """

    def items_at(self, lsn: Lsn) -> int:
        """Return quads and keys at an LSN; 0 when unknown."""

    def splits(self) -> list[Split]:
        """Return the head lines of the last rewinds (`Rewound`), oldest first."""

    def given_up(self, number: int, first_lsn: Lsn, limit: int) -> list[GivenUp]:
        """Return up to ``limit`` transactions of a split, from an old LSN on; none when they are no longer listed."""

    def lsn_before(self, timestamp: Timestamp) -> Lsn:
        """Return the highest known LSN up to which all entries were stamped before a timestamp; 0 for none.

        Exact for held entries, else too low by a step of trimming: it tells which ids are old enough to be forgotten.
        """
