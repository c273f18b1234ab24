"""Facts of a report as plain data: computed by brokerha/spark/report.py, shown by report_page.py, and written as JSON unchanged.

    archive ──Spark──> counts for each bin of time ──┐
    observations ──────────────────────────────────> ReportFacts ──report_page──> one HTML file

Time is cut into bins of one width, at most `BINS_MOST`; a series has one value for each bin. Facts that an archive does not hold
stay empty, and a note gives the reason. Must never import Spark or pyarrow: the command's help and dry run work without them.

Nodes over time from observations, for a report: lag, last status, and changes.

Each run of the archive job stores observations, so they are samples: what happened between two of them is unknown.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import Lsn, NodeId, TxId
from brokerha.pipeline import observations
from brokerha.pipeline.observations import Observation
from brokerha.pipeline.table import LogState, LogTable

Tell = Callable[[int, int], None]
"""Called with the work done, and its total."""
STEPS = 5
"""Number of steps, for a progress display."""
BINS_MOST = 120
OTHERS = "others"
SERIES_MOST = 7
"""Most series of one chart; the others are added up."""
ROWS_MOST = 15
"""Most rows of a table of the busiest or the latest."""
_SECOND = 1_000_000
_WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)
_WATCHED = ("state", "epoch", "view")


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Subject and target of a report."""

    archive: str
    """Folder or URL (places.py)."""
    out: Path
    since_us: int | None = None
    """Microseconds since 1970, by timestamps; None: from the first entry."""
    until_us: int | None = None
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Bins:
    """A span of time in equal parts."""

    start_us: int
    width_us: int
    count: int

    @classmethod
    def of(cls, first_us: int, last_us: int, most: int = BINS_MOST) -> Self:
        """Return bins that cover both moments. Their width is a round number, and they begin at multiples of it.

        >>> Bins.of(61_000_000, 100_000_000).count
        40
        >>> Bins.of(0, 7_200_000_000)
        Bins(start_us=0, width_us=120000000, count=61)
        """
        if last_us < first_us:
            raise InvalidRequest("the report would end before it begins")
        for width_s in (*_WIDTHS_S, *(86400 * days for days in (2, 5, 10, 30, 100, 365))):
            width = width_s * _SECOND
            start = first_us // width * width
            count = (last_us - start) // width + 1
            if count <= most:
                return cls(start, width, count)
        width = (last_us - first_us) // most + 1
        return cls(first_us, width, most)

    @property
    def end_us(self) -> int:
        """End of the last bin."""
        return self.start_us + self.width_us * self.count

    @property
    def minutes(self) -> float:
        """Width of a bin in minutes."""
        return self.width_us / 60e6

    def place_of(self, time_us: int) -> int | None:
        """Return the index of the bin of a moment; None outside."""
        place = (time_us - self.start_us) // self.width_us
        return place if 0 <= place < self.count else None

    def begin_us(self, place: int) -> int:
        """Return the beginning of a bin."""
        return self.start_us + self.width_us * place


@dataclass(frozen=True, slots=True)
class Series:
    """One value for each bin; None when it is unknown."""

    name: str
    values: tuple[float | None, ...]

    @property
    def total(self) -> float:
        """Sum of the known values."""
        return sum(value for value in self.values if value is not None)

    @property
    def highest(self) -> float:
        """Highest known value; 0 without one."""
        return max((value for value in self.values if value is not None), default=0)

    @property
    def last(self) -> float | None:
        """Last known value."""
        return next((value for value in reversed(self.values) if value is not None), None)


@dataclass(frozen=True, slots=True)
class Busy:
    """A key or a predicate, and its number of changes."""

    name: str
    """Table of a key; empty for a predicate."""
    text: str
    count: int


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """One repository, table or queue, or all checks."""

    store: str
    name: str
    changes: int
    items: int | None
    """Living items at the end; None when the archive does not know."""
    last_lsn: Lsn


@dataclass(frozen=True, slots=True)
class Rejection:
    """One rejected transaction."""

    lsn: Lsn
    time_us: int
    txid: TxId
    origin: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """The entries of one epoch."""

    epoch: int
    """0 when the source of the archive did not know it."""
    first_lsn: Lsn
    last_lsn: Lsn
    first_us: int
    entries: int


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Last observed status of a node, and its highest lag."""

    node: NodeId
    role: str
    state: str
    applied_lsn: Lsn | None
    lag_s: float | None
    highest_lag_s: float | None
    epoch: int | None
    view: int | None
    seen_us: int


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a node between two observations."""

    time_us: int
    node: NodeId
    what: str
    """``state``, ``epoch`` or ``view``."""
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ReportFacts:
    """All facts of one report."""

    cluster: str
    first_lsn: Lsn
    last_lsn: Lsn
    chain: str
    files: int
    size_bytes: int
    made_us: int
    bins: Bins
    transactions: int
    """Within the bins, with rejected ones; all other counts except items use the same entries."""
    rejected: int
    changes: int
    by_origin: tuple[Series, ...]
    """Transactions in each bin."""
    by_store: tuple[Series, ...]
    """Changes in each bin."""
    items: tuple[Series, ...]
    """Living items at the end of each bin, by kind; empty when the archive does not know."""
    rejected_by_reason: tuple[Series, ...]
    lag_s: tuple[Series, ...]
    """Highest observed lag in each bin, by node."""
    keys: tuple[Busy, ...]
    predicates: tuple[Busy, ...]
    stores: tuple[StoreFacts, ...]
    rejections: tuple[Rejection, ...]
    """The latest rejections."""
    epochs: tuple[Epoch, ...]
    nodes: tuple[NodeFacts, ...]
    events: tuple[Event, ...]
    notes: tuple[str, ...] = ()
    """Missing facts, one sentence each."""


def span(table: LogTable, state: LogState, options: ReportOptions) -> tuple[Bins, Lsn, Lsn]:
    """Return the bins, up to the last entry or observation, and their first and last LSN. Raises InvalidRequest when empty."""
    if not state.files:
        raise InvalidRequest(f"the archive in {options.archive} is empty: brokerha pipeline archive fills it")
    first_lsn, last_lsn = state.head.first_lsn, state.head.last_lsn
    first_us, last_us = table.timestamp_at(state, first_lsn), state.head.last_us
    if options.since_us is not None and options.since_us > first_us:
        first_lsn, first_us = table.lsn_at(state, options.since_us - 1) + 1, options.since_us
    if options.until_us is not None and options.until_us < last_us:
        last_lsn, last_us = table.lsn_at(state, options.until_us), options.until_us
    elif options.until_us is None:
        # Observations follow the last write, and belong to the report.
        last_us = max([last_us, *(each.time_us for each in observations.read(table.where))])
    if last_lsn < first_lsn:
        raise InvalidRequest(f"the archive in {options.archive} has no entry within this time")
    return Bins.of(first_us, last_us), first_lsn, last_lsn


def series_of(counts: Mapping[tuple[str, int], float], bins: Bins, most: int = SERIES_MOST) -> tuple[Series, ...]:
    """Turn counts by (name, bin) into series, the largest first; those beyond ``most`` become one series `OTHERS`.

    >>> [(each.name, each.values) for each in series_of({("b", 0): 1, ("a", 1): 5, ("c", 0): 2}, Bins(0, 1, 2), most=2)]
    [('a', (0, 5)), ('others', (3, 0))]
    """
    totals: Counter[str] = Counter()
    for (name, _), count in counts.items():
        totals[name] += count  # type: ignore[assignment]
    ordered = sorted(totals, key=lambda name: (-totals[name], name))
    kept = ordered if len(ordered) <= most else ordered[: most - 1]
    values: dict[str, list[float | None]] = {name: [0] * bins.count for name in kept}
    if len(kept) < len(ordered):
        values[OTHERS] = [0] * bins.count
    for (name, place), count in counts.items():
        row = values[name if name in values else OTHERS]
        row[place] = (row[place] or 0) + count
    return tuple(Series(name, tuple(row)) for name, row in values.items())


def running(gains: Mapping[int, float], before: float, bins: Bins) -> tuple[float, ...]:
    """Return the sum at the end of each bin, from the gain of each bin and the sum before.

    >>> running({0: 2, 2: -1}, 10, Bins(0, 1, 3))
    (12, 12, 11)
    """
    found = []
    for place in range(bins.count):
        before += gains.get(place, 0)
        found.append(before)
    return tuple(found)


def time_of(text: str) -> int:
    """Parse an ISO 8601 time into microseconds since 1970; UTC by default. Raises InvalidRequest.

    >>> time_of("1970-01-01T00:00:01Z"), time_of("1970-01-02")
    (1000000, 86400000000)
    """
    try:
        found = datetime.fromisoformat(text)
        # Near the years 1 and 9999 the time can be out of range in UTC.
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(f"{text!r} is no time: write 2026-05-01 or 2026-05-01T12:30:00Z") from None
    return (found - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def shortened(text: str, most: int = 80) -> str:
    """Shorten a text to fit into a cell, by leaving out the middle.

    >>> shortened("abcdefghij", 7)
    'abc…hij'
    """
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[-end:]}"


def reason_kind(reason: str) -> str:
    """Return the part of a reason that many transactions share: the text before the first colon.

    >>> reason_kind("check stock does not hold: 3 rows")
    'check stock does not hold'
    """
    return shortened(reason.split(":", 1)[0].strip() or "no reason given", 60)


@dataclass(frozen=True, slots=True)
class Observed:
    """The results for all nodes."""

    lag_s: tuple[Series, ...]
    """Lag of the nodes with the highest lag; the highest lag of all others as one series."""
    nodes: tuple[NodeFacts, ...]
    events: tuple[Event, ...]
    """The latest events, the newest first."""


def observed(seen: Iterable[Observation], bins: Bins) -> Observed:
    """Summarise the observations within the bins. Reads them once, and keeps one value for each node and bin."""
    lags: dict[str, list[float | None]] = {}
    last: dict[str, Observation] = {}
    events: deque[Event] = deque(maxlen=ROWS_MOST)
    for each in seen:
        place = bins.place_of(each.time_us)
        if place is None:
            continue
        before = last.get(each.node)
        if before is not None:
            events.extend(_changes(before, each))
        last[each.node] = each
        if each.lag_s is not None:
            row = lags.setdefault(each.node, [None] * bins.count)
            row[place] = max(each.lag_s, row[place] or 0.0)
    lag_s = {node: Series(node, tuple(row)) for node, row in lags.items()}
    nodes = tuple(
        NodeFacts(
            node=node,
            role=each.role,
            state=each.state,
            applied_lsn=each.applied_lsn,
            lag_s=each.lag_s,
            highest_lag_s=lag_s[node].highest if node in lag_s else None,
            epoch=each.epoch,
            view=each.view,
            seen_us=each.time_us,
        )
        for node, each in sorted(last.items())
    )
    return Observed(_largest(lag_s.values(), bins), nodes, tuple(reversed(events)))


def _changes(before: Observation, after: Observation) -> Iterable[Event]:
    for what in _WATCHED:
        old, new = getattr(before, what), getattr(after, what)
        if old != new and old is not None and new is not None:
            yield Event(after.time_us, after.node, what, str(old), str(new))


def _largest(series: Iterable[Series], bins: Bins) -> tuple[Series, ...]:
    ordered = sorted(series, key=lambda each: (-each.highest, each.name))
    # Masters have nothing to apply, so their lag is always 0.
    ordered = [each for each in ordered if each.highest > 0] or ordered
    if len(ordered) <= SERIES_MOST:
        return tuple(sorted(ordered, key=lambda each: each.name))
    kept, others = ordered[: SERIES_MOST - 1], ordered[SERIES_MOST - 1 :]
    highest = tuple(
        max((value for each in others if (value := each.values[place]) is not None), default=None) for place in range(bins.count)
    )
    return (*sorted(kept, key=lambda each: each.name), Series(OTHERS, highest))
