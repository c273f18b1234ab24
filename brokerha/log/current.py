"""The current state of a master in a few numbers, updated by each record; the beginning of a restored log; decisions.

Only this module checks the order of records. A record that breaks it is a bug of the core that made it: `invariant()` stops the
node before the record is written.

Invariants, with ``used[o] <= counts[o]`` for each origin o:

    first_lsn - 1 <= lsn        results_from - 1 <= executed_lsn <= lsn        trimmed[o] <= used[o] <= counts[o]
    begins[o] <= used[o]        installed <= promised_epoch

An epoch makes streams continue at its starts: lower numbers no longer have entries, and numbers that were never appended stay
without one. The epoch itself can be long, so only the number of its record is here; the record is pinned (trimming leaves it).

Results below `first_lsn` are not held, so `results_from` follows it as far as there are results. The fingerprint before
`results_from` stays known (`base`): any copy at that LSN or later can be compared with the log.

`Current` does not grow with the log: content.py has the entries that are not synchronised yet, `Decisions` prepared transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import msgpack

from brokerha.model.epochs import FIRST, Epoch, EpochId
from brokerha.model.fingerprints import EMPTY
from brokerha.model.ids import Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.invariants import invariant
from brokerha.model.records import (
    DECIDED_KEPT,
    STARTS_KEPT,
    VIEWS_KEPT,
    Added,
    Appended,
    ClockReserved,
    ContentTaken,
    EpochInstalled,
    EpochPromised,
    MasterState,
    Outcomes,
    PeerJournal,
    Pin,
    PinsChanged,
    Rebased,
    Record,
    Started,
    StateTaken,
    TxDecided,
    TxForgotten,
    TxPrepared,
    ViewStarted,
    WorkersChanged,
)


@dataclass(slots=True)
class Current:
    """`MasterState` explains the fields that both have."""

    incarnation: int = 0
    high_water: Timestamp = 0
    epoch: int = 1
    peer_journals: dict[NodeId, str] = field(default_factory=dict)
    counts: dict[NodeId, int] = field(default_factory=dict)
    """Number of entries ever appended to each stream, which is the number of the next one."""
    used: dict[NodeId, int] = field(default_factory=dict)
    trimmed: dict[NodeId, int] = field(default_factory=dict)
    """Number of entries of each stream that were used below `first_lsn` and are forgotten."""
    lsn: Lsn = 0
    first_lsn: Lsn = 1
    before: Ordered | None = None
    """The entry at ``first_lsn - 1``: the queue can go back to there."""
    last: Ordered | None = None
    executed_lsn: Lsn = 0
    fingerprint: bytes = EMPTY
    items: int = 0
    results_from: Lsn = 1
    base: bytes = EMPTY
    """Fingerprint of the content at ``results_from - 1``."""
    workers: tuple[tuple[NodeId, bool, bool], ...] | None = None
    pins: tuple[Pin, ...] = ()
    taken_splits: int = 0
    starts: tuple[tuple[int, Lsn], ...] = ()
    views: tuple[tuple[int, int], ...] = ()
    lacking_to: int = 0
    """Number of the last record that is no longer held and that a follower needs."""
    promised_epoch: EpochId = FIRST
    installed: EpochId = FIRST
    """Id of the last installed epoch."""
    installed_by: int = 0
    """Number of its `EpochInstalled`; 0 in the first epoch."""
    rewound_by: int = 0
    """Number of the last `Rewound`; 0 for none."""
    begins: dict[NodeId, int] = field(default_factory=dict)
    """Number of the first entry of each stream in the last epoch that named it; lower entries are no longer read."""

    def advance(self, record: Record, number: int) -> None:
        """Apply record ``number``; raises InvariantBroken when it does not follow the earlier ones."""
        match record:
            case Appended():
                self._appended(record)
            case Added():
                self._added(record)
            case Outcomes():
                self._outcomes(record)
            case Rebased() | StateTaken():
                self._begun_anew(record, number)
            case WorkersChanged() | PinsChanged() | ContentTaken():
                self._of_the_site(record)
            case EpochPromised() | EpochInstalled():
                self._epochs(record, number)
            case Started(incarnation):
                invariant(incarnation > self.incarnation, "an incarnation grows", new=incarnation, last=self.incarnation)
                self.incarnation = incarnation
                self.starts = (*self.starts[1 - STARTS_KEPT :], (incarnation, self.lsn))
            case ClockReserved(high_water):
                invariant(high_water >= self.high_water, "a clock never goes back", new=high_water, last=self.high_water)
                self.high_water = high_water
            case PeerJournal(peer, journal):
                self.peer_journals[peer] = journal
            case ViewStarted(view):
                last = self.views[-1][0] if self.views else 0
                invariant(view > last, "a view grows", new=view, last=last)
                self.views = (*self.views, (view, number))[-VIEWS_KEPT:]
            case _:
                pass

    def _of_the_site(self, record: WorkersChanged | PinsChanged | ContentTaken) -> None:
        match record:
            case WorkersChanged(workers):
                self.workers = workers
            case PinsChanged(pins):
                self.pins = pins
            case ContentTaken(splits):
                self.taken_splits = splits

    def _appended(self, record: Appended) -> None:
        count = self.counts.get(record.origin, 0)
        invariant(record.start == count, "a stream has no gap", origin=record.origin, start=record.start, expected=count)
        self.counts[record.origin] = count + len(record.entries)

    def _added(self, record: Added) -> None:
        first = self.lsn + 1
        invariant(record.first_lsn == first, "LSNs have no gap", first_lsn=record.first_lsn, expected=first)
        for origin, used in record.used.items():
            least, most = self.used.get(origin, 0), self.counts.get(origin, 0)
            invariant(least <= used <= most, "only what was appended is used", origin=origin, used=used, most=most)
            self.used[origin] = used
        self.epoch = record.epoch
        if record.entries:
            self.lsn += len(record.entries)
            self.last = record.entries[-1]

    def _outcomes(self, record: Outcomes) -> None:
        if not record.results:
            # The empty record stays when a `Rebased` voids earlier results; a follower gets it without them.
            return
        first = self.executed_lsn + 1
        invariant(record.first_lsn == first, "results have no gap", first_lsn=record.first_lsn, expected=first)
        executed = self.executed_lsn + len(record.results)
        invariant(executed <= self.lsn, "only what is synchronised is executed", executed=executed, lsn=self.lsn)
        self.executed_lsn = executed
        self.fingerprint, self.items = record.results[-1][3], record.items
        if self.results_from < self.first_lsn:
            self.results_from = min(self.first_lsn, executed + 1)
            self.base = record.results[self.results_from - 1 - first][3]

    def _begun_anew(self, record: Rebased | StateTaken, number: int) -> None:
        lsn = record.lsn
        if isinstance(record, StateTaken):
            self._taken(record, number)
        invariant(0 <= lsn <= self.lsn, "a copy holds only what is synchronised", rebased=lsn, lsn=self.lsn)
        self.executed_lsn, self.fingerprint, self.items = lsn, record.fingerprint, record.items
        self.results_from, self.base = lsn + 1, record.fingerprint

    def _taken(self, record: StateTaken, number: int) -> None:
        invariant(record.lsn > self.lsn, "a state is ahead of the queue", state=record.lsn, lsn=self.lsn)
        self.lsn, self.last, self.first_lsn, self.before = record.lsn, record.last, record.lsn + 1, record.last
        self.trimmed = dict(self.used)
        # A reader with all earlier records can follow; most records before it are gone.
        self.lacking_to = max(self.lacking_to, number - 1)

    def _epochs(self, record: EpochPromised | EpochInstalled, number: int) -> None:
        if isinstance(record, EpochInstalled):
            self._installed(record.epoch, number)
        else:
            new, last = record.epoch, self.promised_epoch
            invariant(new > last, "the promise of an epoch grows", new=new, last=last)
            self.promised_epoch = new

    def _installed(self, epoch: Epoch, number: int) -> None:
        last, lsn = self.installed, self.lsn
        invariant(epoch.id > last, "a later epoch is installed", new=epoch.id, last=last)
        invariant(epoch.base_lsn == lsn, "an epoch begins where the queue ends", base=epoch.base_lsn, lsn=lsn)
        for origin, start in epoch.starts.items():
            count = self.counts.get(origin, 0)
            invariant(start >= count, "an epoch leaves out no number", origin=origin, start=start, count=count)
        self.counts.update(epoch.starts)
        self.used = dict(self.counts)
        self.begins.update(epoch.starts)
        self.installed, self.installed_by = epoch.id, number
        self.promised_epoch = max(epoch.id, self.promised_epoch)

    def check_back(self, lsn: Lsn) -> None:
        """Raise InvariantBroken unless the queue can go back to an LSN."""
        first, last = self.first_lsn - 1, self.lsn
        invariant(first <= lsn <= last, "a queue goes back to what is held", lsn=lsn, first=first, last=last)

    def go_back(self, lsn: Lsn, number: int, last: Ordered | None, fingerprint: bytes, items: int) -> None:
        """Let the queue end at an LSN, by record ``number``; ``last`` is its entry, ``fingerprint`` and ``items`` its content.

        If the fingerprint is unknown, results begin again after the LSN.
        """
        self.rewound_by = number
        if lsn < self.lsn:
            self.lsn, self.last = lsn, last
        if lsn < self.executed_lsn:
            self.executed_lsn, self.fingerprint, self.items = lsn, fingerprint, items
        if self.results_from > lsn + 1:
            self.results_from, self.base = lsn + 1, fingerprint
        if self.starts and self.starts[-1][1] > lsn:
            # Transactions accepted by such an incarnation can get their LSNs from here on.
            self.starts = tuple((incarnation, min(lsn, at)) for incarnation, at in self.starts)

    def stream_begin(self, origin: NodeId) -> int:
        """Return the number of the first readable entry of a stream."""
        return max(self.trimmed.get(origin, 0), self.begins.get(origin, 0))

    def results_after_trim(self, first_lsn: Lsn) -> Lsn:
        """Return the value of `results_from` after trimming below ``first_lsn``."""
        return max(self.results_from, min(first_lsn, self.executed_lsn + 1))

    def master_state(self, journal: str) -> MasterState:
        """Return a `MasterState` without the tail: no parked transactions, no streams, no epoch, no decisions."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _OF_MASTERS}
        values.update(peer_journals=dict(self.peer_journals), used=dict(self.used))
        return MasterState(journal, **values)

    def pack(self) -> bytes:
        """Return its bytes without starts and views, by field name, and without fields that have their first value."""
        values = {name: getattr(self, name) for name in _NAMES}
        data: bytes = msgpack.packb({name: value for name, value in values.items() if value != getattr(_NEW, name)})
        return data

    def pack_history(self) -> bytes:
        """Return the bytes of starts and views: long and seldom new, so they are not written each turn."""
        data: bytes = msgpack.packb({name: getattr(self, name) for name in _HISTORY})
        return data


_HISTORY = ("starts", "views")
_NAMES = tuple(f.name for f in fields(Current) if f.name not in _HISTORY)
_NEW = Current()
_OF_MASTERS = {f.name for f in fields(MasterState)} & {f.name for f in fields(Current)} - {"installed"}
"""Fields that a `MasterState` has by the same name; there, `installed` is the whole epoch."""


def unpack(data: bytes, history: bytes) -> Current:
    """Restore the results of `Current.pack` and `Current.pack_history`."""
    values: dict[str, Any] = msgpack.unpackb(data, use_list=False)
    return Current(**values, **msgpack.unpackb(history, use_list=False))


Body = tuple[NodeId, TxId]


class Rewind(NamedTuple):
    """Data of a `Rewound` for trimming."""

    used: dict[NodeId, int]
    """Used count of each stream at that time."""
    loose: dict[Body, int]
    """Foreign bodies that lost their LSN, with their places."""


class Dropped(NamedTuple):
    """A body whose entry got no LSN."""

    place: int
    at: Lsn
    """LSN whose trimming removes it."""
    lsn: Lsn
    """LSN that its id had already; 0 when an epoch left out its entry."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The last LSN before the first entry of a new journal, and the state known up to it.

    The backup holds the content at one LSN, so the journal needs only the earlier data for later answers: the last entry (later
    stamps are above it), the fingerprint and size of the content, the ids of recent transactions (a client that submits one again
    gets its LSN), and the rejected ones among them.

        beginning = Beginning(lsn=7, last=(10**15, "t-7", "m1"), fingerprint=b"...", items=3)
        journal = Log(FileDisk(Path("data/m1")), "orders", "m1", begin_at=beginning)
            journal.first_lsn()                 # 8: the synchronised queue, its bodies and results continue there

    Invariant: every master of the restored cluster begins with the same values; otherwise they would never agree.
    """

    lsn: Lsn
    """Last synchronised and executed LSN; at least 1."""
    last: Ordered
    """The entry at `lsn`."""
    fingerprint: bytes
    """Fingerprint of the content at `lsn`."""
    items: int
    """Quads and keys at `lsn`."""
    ids: tuple[tuple[TxId, Lsn], ...] = ()
    """Recent transactions, none above `lsn`."""
    rejections: tuple[tuple[Lsn, str], ...] = ()
    """Rejected ones among them, with the reason."""

    def __post_init__(self) -> None:
        invariant(self.lsn >= 1, "a journal that begins at 1 needs no beginning", lsn=self.lsn)
        highest = max([lsn for _, lsn in self.ids] + [lsn for lsn, _ in self.rejections], default=1)
        invariant(highest <= self.lsn, "nothing after the beginning is known", highest=highest, lsn=self.lsn)

    def current(self) -> Current:
        """Return the current state of a journal that begins here."""
        return Current(
            high_water=self.last[0],
            lsn=self.lsn,
            first_lsn=self.lsn + 1,
            before=self.last,
            last=self.last,
            executed_lsn=self.lsn,
            fingerprint=self.fingerprint,
            items=self.items,
            results_from=self.lsn + 1,
            base=self.fingerprint,
        )


Decision = TxPrepared | TxDecided | TxForgotten


class Decisions:
    """Prepared transactions that wait for their decision, and remembered decisions, as a restart restores them.

    The record of a prepared transaction holds its body, which can be megabytes, so it is not copied here: it stays in its place
    in the log, pinned until the decision (trimming leaves it).

        TxPrepared                           -> prepared                       (its number pins its record)
            TxDecided  commit                    -> forgotten here: it is found by its LSN
                   rollback                  -> decided, the last `DECIDED_KEPT` of them
                   by hand, either way       -> decided, until TxForgotten

    Invariants: an id is prepared at most once; both are in the order of their numbers; the bound never drops a decision by hand.
    """

    def __init__(self) -> None:
        self.prepared: dict[TxId, int] = {}
        """Number of the `TxPrepared` of each transaction without a decision, oldest first."""
        self.decided: dict[TxId, tuple[int, TxDecided]] = {}
        """Remembered decisions, with their numbers, oldest first."""
        self._droppable: dict[TxId, None] = {}
        """Decisions that the bound can drop, oldest first."""

    def take(self, number: int, record: Decision) -> None:
        """Apply record ``number``; raises InvariantBroken when a transaction is prepared twice."""
        match record:
            case TxPrepared(txid):
                invariant(txid not in self.prepared, "a transaction is prepared once", txid=txid, number=number)
                self.prepared[txid] = number
            case TxDecided(txid):
                self.prepared.pop(txid, None)
                self._forget(txid)
                if record.is_heuristic or not record.is_commit:
                    self.remember(number, record)
            case TxForgotten(txid):
                self._forget(txid)

    def remember(self, number: int, record: TxDecided) -> None:
        """Keep a decision; the bound drops the oldest."""
        self.decided[record.txid] = (number, record)
        if not record.is_heuristic:
            self._droppable[record.txid] = None
            while len(self._droppable) > DECIDED_KEPT:
                self._forget(next(iter(self._droppable)))

    def _forget(self, txid: TxId) -> None:
        self.decided.pop(txid, None)
        self._droppable.pop(txid, None)

    def remembered(self) -> dict[TxId, TxDecided]:
        """Return the decisions by transaction id, oldest first."""
        return {txid: record for txid, (_, record) in self.decided.items()}
