"""Nodes over time from observations, for a report: lag, last status, and changes.

Each run of the archive job stores observations, so they are samples: what happened between two of them is unknown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from brokerha.pipeline.observations import Observation
from brokerha.pipeline.report import OTHERS, ROWS_MOST, SERIES_MOST, Bins, Event, NodeFacts, Series

_WATCHED = ("state", "epoch", "view")


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
