"""The side of an audit that talks to a cluster: the log behind the archive, and copies compared with what the log leads to.

    copy ──digests──> LSN W, buckets        archive and tail up to W ──> buckets        equal: done
                                                                                        differ: items of those buckets, at W'
    only in the log: missing        only in the copy: surplus        in both with other digests: changed

Of many differences the first are told, so that neither answer is longer than a limit; both sides cut at the same item.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from brokerha.model.errors import BrokerhaError, NotReady, StoreDiffers, StoreError
from brokerha.model.fingerprints import EMPTY
from brokerha.model.ids import Lsn
from brokerha.pipeline.archive import Archive, ArchiveState
from brokerha.pipeline.audit_engine import Engine, ItemRow, Summary
from brokerha.pipeline.audit_files import text_of
from brokerha.pipeline.entries import EntrySource, LogEntry, entry_hash
from brokerha.pipeline.state import Bucket, Place, differing
from brokerha.stores.items import GRAPH, QUEUE
from brokerha.stores.log_pages import LinesMissing
from brokerha.stores.queue_change import Counts

EQUAL, DIFFERS, NOT_COMPARED = "equal", "differs", "not compared"
BITS: Final = 12
TAIL_LIMIT: Final = 200_000
"""Entries behind the archive that are held in memory."""
BUCKETS_LIMIT: Final = 32
"""That are looked into, of those that differ."""
ITEMS_LIMIT: Final = 10_000
"""Of one answer about items."""
DIFFERENCES_LIMIT: Final = 100
"""That a report names of each copy."""
BEHIND_S: Final = 0.2
"""Between two questions for entries that a master does not have yet."""


class Copy(Protocol):
    """A copy that can be asked; a `Client` of its node."""

    def digests(self, bits: int, *, timeout: float | None) -> Mapping[str, Any]:
        """See stores/digests.py."""

    def bucket_items(
        self, buckets: Sequence[Place], bits: int, *, limit: int, timeout: float | None
    ) -> Mapping[str, Any]:
        """See stores/digests.py."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One item, counter or repository that is not the same."""

    store: str
    name: str
    key: str
    """Line of a quad, key, message id, check; empty for a counter or a repository."""
    kind: str
    """``missing`` in the copy, ``surplus`` in it, or ``changed``."""
    archived: str
    """What the log leads to; empty when it has none."""
    found: str
    lsn: Lsn
    """Of the item's last change in the log; 0 when it has none."""


@dataclass(frozen=True, slots=True)
class CopyAudit:
    """One copy beside the log."""

    node: str
    result: str
    lsn: Lsn = 0
    """Where it was compared."""
    items: int = 0
    buckets: int = 0
    """That differ."""
    differences: tuple[Difference, ...] = ()
    has_more: bool = False
    """Whether there are more differences than those."""
    reason: str = ""
    """Why it was not compared."""
    error: str = ""
    """Class of the error for that reason."""


class Tail:
    """Entries of the cluster's log behind the archive, read as far as they are wanted."""

    def __init__(self, source: EntrySource | None, archived_lsn: Lsn, timeout_s: float) -> None:
        self.entries: list[LogEntry] = []
        self._source = source
        self._archived_lsn = archived_lsn
        self._timeout_s = timeout_s

    @property
    def last_lsn(self) -> Lsn:
        """Up to where archive and tail reach."""
        return self._archived_lsn + len(self.entries)

    def reach(self, lsn: Lsn) -> None:
        """Read on up to an LSN. Raises NotReady: too far, or not there in time; Unreachable, LinesMissing."""
        if lsn <= self.last_lsn:
            return
        if self._source is None or lsn - self._archived_lsn > TAIL_LIMIT:
            raise NotReady(
                f"it is at LSN {lsn:,}, and the archive ends with {self._archived_lsn:,}: archive first (brokerha pipeline archive)"
            )
        deadline_s = time.monotonic() + self._timeout_s
        behind = threading.Event()
        while self._source.last_lsn() < lsn:
            if time.monotonic() > deadline_s:
                raise NotReady(f"it is at LSN {lsn:,}, and the log of the cluster cannot be read that far yet")
            behind.wait(BEHIND_S)
        self.entries += self._source.read(self.last_lsn + 1, lsn)

    def reach_some(self, lsn: Lsn) -> None:
        """Read on up to an LSN, or as far as the limit allows. Raises Unreachable, LinesMissing."""
        self.reach(max(self.last_lsn, min(lsn, self._archived_lsn + TAIL_LIMIT)))

    def peek(self, lsn: Lsn) -> Iterator[LogEntry]:
        """One entry of the cluster's log, wherever it is; none when it is not there any more or nobody can be asked."""
        if self._source is None:
            return
        try:
            if self._source.first_lsn() <= lsn <= self._source.last_lsn():
                yield from self._source.read(lsn, lsn)
        except LinesMissing:
            return

    def fingerprint_at(self, lsn: Lsn, archive: Archive) -> bytes:
        """What the entry of an LSN says; it is in the archive or in the tail."""
        if lsn == 0:
            return EMPTY
        behind = lsn - self._archived_lsn
        return self.entries[behind - 1].fingerprint if behind > 0 else archive.fingerprint_at(lsn)


class Comparison:
    """Compares copies with what archive and log lead to."""

    def __init__(self, engine: Engine, tail: Tail, timeout_s: float, bits: int = BITS) -> None:
        self._engine = engine
        self._tail = tail
        self._timeout_s = timeout_s
        self._bits = bits
        self._known: Summary | None = None

    def of(self, node: str, connect: Callable[[], AbstractContextManager[Copy]]) -> CopyAudit:
        """Compare one copy. What keeps it from being compared is told, not raised."""
        try:
            with connect() as copy:
                return self._compared(node, copy)
        except BrokerhaError as error:
            return CopyAudit(node, NOT_COMPARED, reason=str(error), error=type(error).__name__)

    def _compared(self, node: str, copy: Copy) -> CopyAudit:
        told = copy.digests(self._bits, timeout=self._timeout_s)
        lsn: Lsn = told["lsn"]
        expected = self._proved(lsn)
        found = {
            (store, name, bucket): Bucket(number, int.from_bytes(digest, "big"))
            for store, name, bucket, number, digest in told["buckets"]
        }
        places = list(differing(expected.buckets, found))
        differences = [*counter_differences(expected.counters, told["queues"])]
        differences += repository_differences(expected.repositories, told["repositories"])
        audit = CopyAudit(node, EQUAL, lsn, told["items"], len(places))
        if not places and not differences:
            return audit
        items: list[Difference] = []
        has_more = len(places) > BUCKETS_LIMIT
        if places:
            lsn, items, more = self._items(copy, places[:BUCKETS_LIMIT])
            has_more = has_more or more
        differences += items
        has_more = has_more or len(differences) > DIFFERENCES_LIMIT
        return replace(audit, result=DIFFERS, differences=tuple(differences[:DIFFERENCES_LIMIT]), has_more=has_more)

    def summary(self, lsn: Lsn) -> Summary:
        """The content at an LSN; the last one is remembered, because workers of a quiet cluster are at the same LSN."""
        if self._known is None or self._known.lsn != lsn:
            self._tail.reach(lsn)
            self._known = self._engine.summary(lsn, self._bits, self._tail.entries)
        return self._known

    def _proved(self, lsn: Lsn) -> Summary:
        """The same, which has the fingerprint that the entry of that LSN says."""
        summary = self.summary(lsn)
        if summary.fingerprint != self._tail.fingerprint_at(lsn, self._engine.archive):
            raise StoreDiffers(f"what archive and log lead to at LSN {lsn:,} is not what the log says of it", lsn)
        return summary

    def _items(self, copy: Copy, places: Sequence[Place]) -> tuple[Lsn, list[Difference], bool]:
        told = copy.bucket_items(places, self._bits, limit=ITEMS_LIMIT, timeout=self._timeout_s)
        lsn: Lsn = told["lsn"]
        self._tail.reach(lsn)
        right = self._engine.items(lsn, self._bits, places, ITEMS_LIMIT, self._tail.entries)
        found = [ItemRow._make((*row, 0)) for row in told["rows"]]
        has_more = len(right) > ITEMS_LIMIT or told["more"]
        if has_more:
            right, found = _cut(right[:ITEMS_LIMIT], found)
        return lsn, list(item_differences(right, found)), has_more


def _cut(right: Sequence[ItemRow], found: Sequence[ItemRow]) -> tuple[list[ItemRow], list[ItemRow]]:
    """Both sides up to the same item, where one of them ends because of its limit."""
    ends = [rows[-1][:4] for rows in (right, found) if len(rows) >= ITEMS_LIMIT]
    end = min(ends) if ends else None
    return [row for row in right if end is None or row[:4] <= end], [
        row for row in found if end is None or row[:4] <= end
    ]


def item_differences(right: Collection[ItemRow], found: Collection[ItemRow]) -> Iterator[Difference]:
    """Items that are not the same on both sides, in the order of stores, names and keys."""
    wanted = {(row.store, row.name, row.item): row for row in right}
    held = {(row.store, row.name, row.item): row for row in found}
    unequal = [
        place for place in wanted.keys() | held.keys()
        if place not in wanted or place not in held or wanted[place].digest != held[place].digest
    ]  # fmt: skip
    for place in sorted(unequal, key=lambda each: (*each[:2], (wanted.get(each) or held[each]).text)):
        one, other = wanted.get(place), held.get(place)
        kind = "missing" if other is None else "surplus" if one is None else "changed"
        row = one or held[place]
        yield Difference(
            row.store, row.name, text_of(row.text), kind,
            "" if one is None else text_of(one.value), "" if other is None else text_of(other.value), row.lsn,
        )  # fmt: skip


def counter_differences(right: Mapping[str, Counts], found: Mapping[str, Sequence[int]]) -> Iterator[Difference]:
    """Queues with other counters."""
    for queue in sorted(right.keys() | found.keys()):
        one, other = right.get(queue), Counts(*found[queue]) if queue in found else None
        if one != other:
            kind = "missing" if other is None else "surplus" if one is None else "changed"
            yield Difference(QUEUE, queue, "", kind, _counts_text(one), _counts_text(other), 0)


def _counts_text(counts: Counts | None) -> str:
    return "" if counts is None else f"published {counts.published}, accepted {counts.accepted}"


def repository_differences(right: Sequence[str], found: Sequence[str]) -> list[Difference]:
    """Repositories that only one side has."""
    missing = [Difference(GRAPH, name, "", "missing", "exists", "", 0) for name in sorted(set(right) - set(found))]
    surplus = [Difference(GRAPH, name, "", "surplus", "", "exists", 0) for name in sorted(set(found) - set(right))]
    return missing + surplus


def check_one_history(archive: Archive, state: ArchiveState, tail: Tail) -> None:
    """Raise StoreError when the cluster has another entry where the archive ends; a log that begins behind it says nothing."""
    for entry in tail.peek(state.last_lsn) if state.files else ():
        table = archive.table(state.files[-1], ["lsn", "entry_hash"], [("lsn", "=", state.last_lsn)])
        if table.num_rows and table["entry_hash"][0].as_py() != entry_hash(entry):
            raise StoreError(
                f"the archive in {archive.directory} and the log of the cluster are two histories: LSN {state.last_lsn:,} is another "
                "entry there; is it the archive of this cluster?"
            )
