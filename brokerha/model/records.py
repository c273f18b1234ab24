"""What a master's journal holds, one frozen class each; the class is its schema on disk.

A turn writes its records in one commit (one fsync); after a crash all of them are there or none. FORMAT.md beside the
journal says how they are laid out. The order of records is the order in which they happened, and replaying it rebuilds
everything that a master must not forget.
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
    """No timestamp or promise above this is ever given without reserving further first (``hw``)."""

    high_water: Timestamp


@dataclass(frozen=True, slots=True)
class PeerJournal:
    """The name of a peer's journal, as first heard: another one under that node id is not the same node."""

    peer: NodeId
    journal: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """Own transactions that clients handed in: (transaction id, body). They wait for a timestamp."""

    items: tuple[tuple[TxId, bytes], ...]


@dataclass(frozen=True, slots=True)
class BodiesHeld:
    """Bodies of other origins: (origin, transaction id, body)."""

    items: tuple[tuple[NodeId, TxId, bytes], ...]


@dataclass(frozen=True, slots=True)
class Appended:
    """Entries of a stream, own (which takes them out of the parked) or foreign, from number ``start`` on."""

    origin: NodeId
    start: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Added:
    """Entries added to the synchronised queue from ``first_lsn`` on, and how much of each stream is now used up."""

    first_lsn: Lsn
    entries: tuple[Ordered, ...]
    used: dict[NodeId, int]
    """Count of each stream's entries that are in the synchronised queue, or were dropped as duplicates."""
    epoch: int = 1


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Results of execution from ``first_lsn`` on, as the site's executing worker reported them."""

    first_lsn: Lsn
    results: tuple[ResultRow, ...]
    items: int
    """Quads and keys after the last of them; 0 when that is not known."""


@dataclass(frozen=True, slots=True)
class WorkersChanged:
    """The workers of this master from now on, whatever the cluster file says: (id, takes reads, is switched on)."""

    workers: tuple[tuple[NodeId, bool, bool], ...]


@dataclass(frozen=True, slots=True)
class Rebased:
    """The site's content at ``lsn`` is what a trusted copy holds there; results known so far are void.

    After the choice of an operator, or when a site took its content from another one.
    """

    lsn: Lsn
    fingerprint: bytes
    items: int
    reason: str


@dataclass(frozen=True, slots=True)
class ViewStarted:
    """A process became primary; what follows is of this view."""

    view: int
    process: NodeId


@dataclass(frozen=True, slots=True)
class TxPrepared:
    """A transaction is closed and waits for its decision, with everything that it would do."""

    txid: TxId
    xid: str
    """Of the coordinator (`Xid.text`); empty for a transaction of one client."""
    body: bytes
    participants: tuple[NodeId, ...]
    """Backups that have its events; nobody joins any more."""
    prepared_us: Timestamp
    """Wall clock of the primary, for people."""


@dataclass(frozen=True, slots=True)
class TxDecided:
    """The outcome of a prepared transaction, once and for all. With a commit the same turn accepts its body."""

    txid: TxId
    is_commit: bool
    reason: str
    is_heuristic: bool = False
    """Whether a person decided, not the coordinator: kept and reported until it is forgotten."""
    xid: str = ""
    """Of the prepared transaction, so that what was decided by hand keeps its name over a restart."""


@dataclass(frozen=True, slots=True)
class TxForgotten:
    """Nobody needs to be told any more what became of a transaction by hand."""

    txid: TxId


Pin = tuple[str, Lsn, Timestamp]
"""Name, lowest LSN that is still needed, and until when (microseconds of the wall clock)."""


@dataclass(frozen=True, slots=True)
class PinsChanged:
    """The durable pins of this master from now on: who, beside workers and peers, still needs which part of the log."""

    pins: tuple[Pin, ...]


@dataclass(frozen=True, slots=True)
class EpochPromised:
    """This master takes no part in an epoch below this one any more: frozen until one is installed (R9)."""

    epoch: EpochId


@dataclass(frozen=True, slots=True)
class EpochInstalled:
    """The epoch of this master from now on (R11). Everything up to its base is in the synchronised queue already.

    Each stream goes on at its start. What was in a stream below it and is not synchronised yet is in the recovered list; own
    entries that are in neither are parked again, before all others, in their order.
    """

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class IdsTaken:
    """A page of the state of another master: transactions that are synchronised, here or not yet (R16)."""

    ids: tuple[tuple[TxId, Lsn], ...]
    rejections: tuple[tuple[Lsn, str], ...]
    """Which of them were rejected, and why."""


@dataclass(frozen=True, slots=True)
class StateTaken:
    """This master goes on after ``lsn``; all ids up to there have come (R16). What it held of the queue up to there is gone.

    Results begin anew there. Accepted transactions that are known by then, at or below ``lsn``, wait for nothing any more.
    """

    lsn: Lsn
    last: Ordered
    """The entry at ``lsn``."""
    fingerprint: bytes
    """Of the content at ``lsn``."""
    items: int
    """Quads and keys at ``lsn``; 0 when that is not known."""


@dataclass(frozen=True, slots=True)
class Rewound:
    """The sides of a split come together, and the synchronised queue ends at ``lsn`` again: what came after it was synchronised on one side only.

    Own transactions among it are parked again, before all others, in their order; their results are void. Who has nothing to
    give up writes it as well, at the end of its queue, so that all masters count the same lineages.
    """

    lsn: Lsn
    epoch: int
    """Number of the epoch that is given up."""
    lineage: int
    """Number of the epoch with which it goes on; a master's records have growing ones."""
    keeps_content: bool = False
    """Whether the site keeps its content as it is (strategy none): what it had applied after ``lsn`` is not executed again."""


@dataclass(frozen=True, slots=True)
class ContentTaken:
    """The site has the content of another one since (strategy none): it holds nothing of what splits up to number ``splits`` gave up here."""

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
"""All record classes; the place in this tuple is the number on disk, so new ones go to the end."""


STARTS_OF_A_VIEW = 1 << 16
"""Incarnations between those of two views: a primary whose journal failed begins anew in its view."""
VIEWS_KEPT = 64
STARTS_KEPT = 256
DECIDED_KEPT = 10_000


class Rest(NamedTuple):
    """Whether an operator paused this process, and on whom it was coined since."""

    is_on: bool = False
    primary: NodeId = ""
    """Empty as long as it was not coined."""
    view: int = 0


NO_REST = Rest()


class StreamState(NamedTuple):
    """The part of a stream that a restart brings back."""

    start: int
    """Number of the first entry in `entries`; never above what is in the synchronised queue."""
    entries: list[Entry]


@dataclass(slots=True)
class MasterState:
    """What a master knows when it starts, rebuilt from its journal."""

    journal: str
    incarnation: int = 0
    """Of the last start."""
    high_water: Timestamp = 0
    epoch: int = 1
    """Number of the epoch of the last `Added`."""
    installed: Epoch | None = None
    """Of the last `EpochInstalled`; None in the first epoch, whose members the cluster file names."""
    promised_epoch: EpochId = FIRST
    """Highest one promised or installed."""
    peer_journals: dict[NodeId, str] = field(default_factory=dict)
    parked: list[TxId] = field(default_factory=list)
    """Own accepted transactions without a timestamp, oldest first."""
    streams: dict[NodeId, StreamState] = field(default_factory=dict)
    """At least every entry that is not yet in the synchronised queue."""
    used: dict[NodeId, int] = field(default_factory=dict)
    lsn: Lsn = 0
    last: Ordered | None = None
    """Last entry of the synchronised queue."""
    executed_lsn: Lsn = 0
    fingerprint: bytes = EMPTY
    """Of the content at ``executed_lsn``."""
    items: int = 0
    workers: tuple[tuple[NodeId, bool, bool], ...] | None = None
    """Of the last `WorkersChanged`; None as long as the cluster file counts."""
    pins: tuple[Pin, ...] = ()
    """Of the last `PinsChanged`, those whose time is over included."""
    taken_splits: int = 0
    """Of the last `ContentTaken`: the content has nothing of what these splits gave up."""
    last_number: int = 0
    """Number of the last record."""
    views: tuple[tuple[int, int], ...] = ()
    """(view, number of its `ViewStarted`), oldest first, the last `VIEWS_KEPT` of them; before the first the view is 1."""
    starts: tuple[tuple[int, Lsn], ...] = ()
    """(incarnation, LSN when it started), oldest first, the last `STARTS_KEPT` of them: what an incarnation took in has no lower LSN."""
    promised_view: int = 0
    """Highest view that this process has promised to; of the process, not of the journal (`Journal.promise`)."""
    rest: Rest = NO_REST
    """Whether an operator paused this process; of the process, not of the journal (`Journal.rest`)."""
    prepared: dict[TxId, TxPrepared] = field(default_factory=dict)
    """Prepared and not decided, oldest first."""
    decided: dict[TxId, TxDecided] = field(default_factory=dict)
    """Prepared ones that were rolled back, the last `DECIDED_KEPT` of them, and all that were decided by hand and not forgotten.
    What was committed is found by its LSN."""

    @property
    def next_incarnation(self) -> int:
        """That of the next start: at least one higher.

        Two processes of a master may both begin from this record, each in its own view; what is named after an
        incarnation has to be unlike what the other one names.
        """
        return max(self.incarnation + 1, self.views[-1][0] * STARTS_OF_A_VIEW if self.views else 0)


class Remembered(NamedTuple):
    """A page of the transactions that are remembered."""

    ids: tuple[tuple[TxId, Lsn], ...]
    rejections: tuple[tuple[Lsn, str], ...]
    """Which of them were rejected, and why."""
    next_cursor: bytes
    """Where the next page begins; empty when this is the last one."""


class History(Protocol):
    """Read-only view of what a master holds durably; answers come from memory or a memory map, never from a network.

    Like the storage interface of a consensus library it lets a core ask about its own past instead of keeping all of
    it in memory; nothing here changes anything, and the same records give the same answers.
    """

    def lsn_of(self, txid: TxId) -> Lsn | None:
        """LSN of a synchronised transaction, or None."""

    def known(self, txids: Iterable[TxId]) -> Collection[TxId]:
        """Those of these transactions that are synchronised."""

    def bodies(self, names: Sequence[tuple[NodeId, TxId]]) -> list[bytes | None]:
        """Bodies of transactions by origin and id; None for what is not held."""

    def body(self, origin: NodeId, txid: TxId) -> bytes | None:
        """Body of a transaction by origin and id, or None when it is not held."""

    def duplicates(self, txids: Iterable[TxId]) -> Collection[TxId]:
        """Those of these synchronised transactions that this master had accepted, too, while they came to their LSN through another one."""

    def stream(self, origin: NodeId, start: int, limit: int) -> list[Entry]:
        """Up to ``limit`` entries of a stream from number ``start`` on; fewer or none where it ends or was trimmed."""

    def ordered(self, first_lsn: Lsn, limit: int) -> list[Ordered]:
        """Up to ``limit`` entries of the synchronised queue from ``first_lsn`` on."""

    def epochs(self, first_lsn: Lsn, limit: int) -> list[int]:
        """Numbers of the epochs that added the entries of `ordered`, one for each; none where it gives none."""

    def results(self, first_lsn: Lsn, limit: int) -> list[Result]:
        """Up to ``limit`` results of execution from ``first_lsn`` on; fewer where they are not known yet."""

    def first_lsn(self) -> Lsn:
        """Lowest LSN whose body is still held; one more than the last when the log is empty."""

    def results_from(self) -> Lsn:
        """Lowest LSN whose result is held; one more than the last executed one when none is."""

    def fingerprint_at(self, lsn: Lsn) -> bytes:
        """Fingerprint of the content at an LSN, from `results_from` - 1 on; unknown (empty) elsewhere."""

    def rejection(self, lsn: Lsn) -> str | None:
        """Why the transaction at an LSN was rejected, as long as its id is known, also after its result was trimmed.

        None when it was not rejected, has no result yet, or is forgotten.
        """

    def remembered(self, cursor: bytes, up_to: Lsn, limit: int) -> Remembered:
        """The remembered transactions up to an LSN, ``limit`` of all looked at, from a cursor on (empty: from the first one).

        A cursor stays good while transactions are added and forgotten: what is remembered all the time is in exactly one page.
        """

    def items_at(self, lsn: Lsn) -> int:
        """Quads and keys at an LSN; 0 when that is not known."""

    def splits(self) -> list[Split]:
        """What was given up when the queue went back (`Rewound`), by head lines, the last ones, oldest first."""

    def given_up(self, number: int, first_lsn: Lsn, limit: int) -> list[GivenUp]:
        """Up to ``limit`` transactions of a split, from an old LSN on; none when they are not listed any more."""

    def lsn_before(self, timestamp: Timestamp) -> Lsn:
        """Highest LSN up to which everything was stamped before a timestamp, as far as that is known; 0 for nothing.

        Exact for what is held, after that too low by a step of trimming: it says which ids are old enough to be forgotten.
        """
