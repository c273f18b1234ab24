"""Comparison of workers' copies with the content that the log leads to, as part of an audit.

    copy ──digests──> LSN W, buckets        log up to W ──> buckets                     equal: done
                                                                                        differ: items of those buckets, at W'
    only in the log: missing        only in the copy: surplus        in both with other digests: changed

Only the first of many differences are reported, so that no answer exceeds a limit; both sides are cut at the same item.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from brokerha.model.errors import BrokerhaError, StoreDiffers
from brokerha.model.ids import Lsn
from brokerha.pipeline.audit_rows import text_of
from brokerha.stores.comparing.items import GRAPH, QUEUE
from brokerha.stores.tables.queue_change import Counts

EQUAL, DIFFERS, NOT_COMPARED = "equal", "differs", "not compared"
BITS: Final = 12
BUCKETS_LIMIT: Final = 32
"""Most differing buckets whose items are compared."""
ITEMS_LIMIT: Final = 10_000
"""Most items in one answer."""
DIFFERENCES_LIMIT: Final = 100
"""Most differences of each copy in a report."""
SHOWN_BYTES: Final = 256
"""Bytes of a value that a report shows; the same as a worker shows (stores/comparing/digests.py)."""
TEXT_BYTES: Final = 4096

Place = tuple[str, str, int]
"""Store, name and number of a bucket."""


class Bucket(NamedTuple):
    """Items of one bucket of one store."""

    number: int
    digest: int
    """XOR of their digests."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The content at an LSN, in digests."""

    lsn: Lsn
    fingerprint: bytes
    """Computed from the items."""
    buckets: dict[Place, Bucket]
    """As in a worker's answer: checks have no name, and names of repositories and counters are in no bucket."""
    counters: dict[str, Counts]
    repositories: tuple[str, ...]


class ItemRow(NamedTuple):
    """One item, as in a worker's answer, and the LSN of its last change."""

    store: str
    name: str
    bucket: int
    item: bytes
    digest: bytes
    text: bytes
    """Line of a quad, key, message id, name of a check."""
    value: bytes
    """The beginning of its value."""
    lsn: Lsn


class Log(Protocol):
    """The content that the log leads to. Each call raises NotReady for an LSN that is missing, StoreError and its kinds."""

    def summary(self, lsn: Lsn) -> Summary:
        """Return the content at an LSN, in buckets of `BITS`."""

    def fingerprint_at(self, lsn: Lsn) -> bytes:
        """Return the fingerprint in the entry of an LSN."""

    def items(self, lsn: Lsn, places: Sequence[Place], limit: int) -> list[ItemRow]:
        """Return the items of some buckets, sorted; at most ``limit`` + 1, which shows that there are more."""


class Copy(Protocol):
    """A copy that answers questions; a `Client` of its node."""

    def digests(self, bits: int, *, timeout: float | None) -> Mapping[str, Any]:
        """See stores/comparing/digests.py."""

    def bucket_items(self, buckets: Sequence[Place], bits: int, *, limit: int, timeout: float | None) -> Mapping[str, Any]:
        """See stores/comparing/digests.py."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One item, counter or repository that differs."""

    store: str
    name: str
    key: str
    """Line of a quad, key, message id, check; empty for a counter or a repository."""
    kind: str
    """``missing`` in the copy, ``surplus`` in it, or ``changed``."""
    archived: str
    """The value in the log; empty when it has none."""
    found: str
    lsn: Lsn
    """LSN of the item's last change in the log; 0 when it has none."""


@dataclass(frozen=True, slots=True)
class CopyAudit:
    """Result of comparing one copy with the log."""

    node: str
    result: str
    lsn: Lsn = 0
    """LSN at which the copy was compared."""
    items: int = 0
    buckets: int = 0
    """Number of differing buckets."""
    differences: tuple[Difference, ...] = ()
    has_more: bool = False
    """True when there are more differences than these."""
    reason: str = ""
    """Why the copy was not compared."""
    error: str = ""
    """Error class of that reason."""


def compare(node: str, connect: Callable[[], AbstractContextManager[Copy]], log: Log, timeout_s: float) -> CopyAudit:
    """Compare one copy. Errors that prevent it are returned, not raised."""
    try:
        with connect() as copy:
            return _compared(node, copy, log, timeout_s)
    except BrokerhaError as error:
        return CopyAudit(node, NOT_COMPARED, reason=str(error), error=type(error).__name__)


def _compared(node: str, copy: Copy, log: Log, timeout_s: float) -> CopyAudit:
    told = copy.digests(BITS, timeout=timeout_s)
    lsn: Lsn = told["lsn"]
    expected = log.summary(lsn)
    if expected.fingerprint != log.fingerprint_at(lsn):
        raise StoreDiffers(f"what archive and log lead to at LSN {lsn:,} is not what the log says of it", lsn)
    found = {
        (store, name, bucket): Bucket(number, int.from_bytes(digest, "big"))
        for store, name, bucket, number, digest in told["buckets"]
    }
    places = [place for place in sorted(expected.buckets.keys() | found.keys()) if expected.buckets.get(place) != found.get(place)]
    differences = [*counter_differences(expected.counters, told["queues"])]
    differences += repository_differences(expected.repositories, told["repositories"])
    audit = CopyAudit(node, EQUAL, lsn, told["items"], len(places))
    if not places and not differences:
        return audit
    has_more = len(places) > BUCKETS_LIMIT
    if places:
        items, more = _items(copy, log, places[:BUCKETS_LIMIT], timeout_s)
        differences, has_more = [*differences, *items], has_more or more
    has_more = has_more or len(differences) > DIFFERENCES_LIMIT
    return replace(audit, result=DIFFERS, differences=tuple(differences[:DIFFERENCES_LIMIT]), has_more=has_more)


def _items(copy: Copy, log: Log, places: Sequence[Place], timeout_s: float) -> tuple[list[Difference], bool]:
    told = copy.bucket_items(places, BITS, limit=ITEMS_LIMIT, timeout=timeout_s)
    right = log.items(told["lsn"], places, ITEMS_LIMIT)
    found = [ItemRow._make((*row, 0)) for row in told["rows"]]
    has_more = len(right) > ITEMS_LIMIT or told["more"]
    if has_more:
        right, found = _cut(right[:ITEMS_LIMIT], found)
    return list(item_differences(right, found)), has_more


def _cut(right: Sequence[ItemRow], found: Sequence[ItemRow]) -> tuple[list[ItemRow], list[ItemRow]]:
    """Cut both sides at the same item, when the limit cuts one of them off."""
    ends = [rows[-1][:4] for rows in (right, found) if len(rows) >= ITEMS_LIMIT]
    end = min(ends) if ends else None
    return [row for row in right if end is None or row[:4] <= end], [row for row in found if end is None or row[:4] <= end]


def item_differences(right: Collection[ItemRow], found: Collection[ItemRow]) -> Iterator[Difference]:
    """Yield the items that differ, in the order of stores, names and keys."""
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
    """Yield the queues whose counters differ."""
    for queue in sorted(right.keys() | found.keys()):
        one, other = right.get(queue), Counts(*found[queue]) if queue in found else None
        if one != other:
            kind = "missing" if other is None else "surplus" if one is None else "changed"
            yield Difference(QUEUE, queue, "", kind, _counts_text(one), _counts_text(other), 0)


def _counts_text(counts: Counts | None) -> str:
    return "" if counts is None else f"published {counts.published}, accepted {counts.accepted}"


def repository_differences(right: Sequence[str], found: Sequence[str]) -> list[Difference]:
    """Return the repositories that only one side has."""
    missing = [Difference(GRAPH, name, "", "missing", "exists", "", 0) for name in sorted(set(right) - set(found))]
    surplus = [Difference(GRAPH, name, "", "surplus", "", "exists", 0) for name in sorted(set(found) - set(right))]
    return missing + surplus
