"""Deciding the next epoch where any side of a split can go on (rule R13): a pure function of the reports of both sides.

                    epoch 2 of m1   m1 m2    … 100 | 101 a  102 b  103 c
    epoch 1 … 100 <                                                       > which of them stays?
                    epoch 2 of m3   m3       … 100 | 101 x  102 y

A **path** is the way on which a master came to its queue: each epoch with the LSN at which it was left. Two paths agree up to the
LSN where they part; entries after it were synchronised on one side only. A **head** is an epoch that no other path continues.

    left at 100 here, at 103 there: all members of the common epoch hold its entries up to 103 (`acknowledge = all`). So this side's
    recovered list begins with them, in the same order, and both sides agree up to 103. The master that came there may be a third
    one, on neither side. Exception: if members with only a part of the list left it, its entries after that part are unknown

    none, smart   the queue of the first head stays: more members, more reporters, longer, then by name
    simple        no queue stays: all go back to where the heads part

A master that went back for an epoch and still reads its queue (`EpochReport.reads`) holds the beginning of that queue. It counts
with the masters in that epoch, as a lagger; no master goes back for its sake.

A master that goes back hands in again, as new, its own transactions that were synchronised after that place. So none is lost, and
transactions that were executed in another order before are reported.

Must never: depend on the deciding master, or on the order in which the reports came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, takewhile

from brokerha.model.epochs import NO_EPOCH, Configuration, Epoch, EpochId
from brokerha.model.ids import Lsn, NodeId, Ordered, TxId
from brokerha.model.wire.epoch_messages import EpochReport
from brokerha.sync.epochs.deciding import configuration_of, epoch_of, held_by, synchronised
from brokerha.sync.modes import SIMPLE, keeps_sides

Path = tuple[tuple[EpochId, Lsn], ...]
"""(epoch, LSN at which it was left), the oldest first; the last one is the present epoch."""

CUT: EpochId = NO_EPOCH
"""In a path: all entries after this LSN were given up, and the entries at the beginning of the next epoch are of another order."""

ENDLESS: Lsn = 2**62
"""End of an epoch that continues."""


@dataclass(frozen=True, slots=True)
class Head:
    """One epoch, by the reports of the masters in it."""

    epoch: EpochId
    members: int
    reports: tuple[EpochReport, ...]

    @property
    def longest(self) -> EpochReport:
        """Return the report with the longest synchronised queue."""
        return max(self.reports, key=lambda report: (report.row.lsn, report.row.node))

    @property
    def lsn(self) -> Lsn:
        """Return the length of the longest queue."""
        return self.longest.row.lsn

    @property
    def rank(self) -> tuple[bool, int, int, Lsn, EpochId]:
        """Return the sort key: the highest head wins. One of quorum, that a majority left for a step, has added nothing (R19)."""
        is_side = any(keeps_sides(report.row.mode) for report in self.reports)
        return is_side, self.members, len(self.reports), self.lsn, self.epoch


def side_of(report: EpochReport) -> EpochId:
    """Return the epoch whose queue a reporter has: its own, or the one that it went back for and reads."""
    return report.row.epoch if report.reads == NO_EPOCH else report.reads


def path_of(report: EpochReport, end: Lsn | None = None) -> Path:
    """Return the path of a reporter; ``end`` replaces the end of its queue."""
    lsn = report.row.lsn
    # A reader is on the path of the queue that it reads, as far as it has come; at the end of it, on all of it.
    is_on_it = report.reads != NO_EPOCH and not (report.path and report.path[-1][0] == CUT and report.path[-1][1] <= lsn)
    come = tuple(takewhile(lambda left: left[1] < lsn, report.path)) if is_on_it else report.path
    last = report.path[len(come)][0] if len(come) < len(report.path) else side_of(report)
    return (*come, (last, lsn if end is None else end))


Reach = Mapping[EpochId, Lsn]
"""How far the queue of each epoch came at any of the reporters."""


def reached_by(reports: Iterable[EpochReport]) -> Reach:
    """Return the reach of each epoch. All members of an epoch hold its added entries, wherever they have gone since."""
    reach: dict[EpochId, Lsn] = {}
    for report in reports:
        for epoch, lsn in path_of(report):
            if epoch != CUT:
                reach[epoch] = max(lsn, reach.get(epoch, 0))
    return reach


def way_to(reports: Iterable[EpochReport], base_lsn: Lsn) -> Path:
    """Return the path of an epoch decided with quorum, by which masters that left for a step find the common part (R19)."""
    reports = list(reports)
    latest = max(report.row.epoch for report in reports)
    longest = max(
        (report for report in reports if report.row.epoch == latest), key=lambda report: (report.row.lsn, report.row.node)
    )
    return tuple((epoch, min(lsn, base_lsn)) for epoch, lsn in path_of(longest, ENDLESS))


def agreement(one: Path, other: Path, reach: Reach, *, is_bounded: bool = True) -> Lsn:
    """Return up to which LSN two paths are the same queue; 0 when that is not known.

    Unbounded, it can be after the end of one path, whose recovered list continues with entries of the other path or a third one.
    """
    left = {epoch: (lsn, one[place:]) for place, (epoch, lsn) in enumerate(one) if epoch != CUT}
    for place in range(len(other) - 1, -1, -1):
        epoch, lsn = other[place]
        if epoch in left:
            other_lsn, way = left[epoch]
            cuts = [cut for each, cut in (*way, *other[place:]) if each == CUT]
            ends = [one[-1][1], other[-1][1]] if is_bounded else []
            return min(max(lsn, other_lsn, reach.get(epoch, 0)), *ends, *cuts, ENDLESS)
    return 0


def heads_of(reports: Iterable[EpochReport]) -> list[Head]:
    """Return epochs that no other one continues, the first head first."""
    by_epoch: dict[EpochId, list[EpochReport]] = {}
    for report in sorted(reports, key=lambda report: report.row.node):
        by_epoch.setdefault(side_of(report), []).append(report)
    epochs = [Head(epoch, _members(group), tuple(group)) for epoch, group in by_epoch.items()]
    reach = reached_by(report for group in by_epoch.values() for report in group)
    heads = [head for head in epochs if not any(_is_continued(head, other, reach) for other in epochs if other is not head)]
    return sorted(heads, key=lambda head: head.rank, reverse=True)


def _members(group: Sequence[EpochReport]) -> int:
    """Return the number of members of an epoch, by the reports of those that have installed it."""
    return max((len(report.members) for report in group if report.reads == NO_EPOCH), default=0)


def _is_continued(head: Head, other: Head, reach: Reach) -> bool:
    """Tell whether another epoch comes after this one, and has all of its queue."""
    way = path_of(other.longest)
    # A reader that has got no further than this one is no use as the head that stays.
    is_after = head.epoch in dict(way[:-1]) and (other.members > 0 or other.lsn > head.lsn)
    return is_after and agreement(path_of(head.longest), way, reach) == head.lsn


def _is_list_held(reports: Iterable[EpochReport], everybody: Iterable[EpochReport]) -> bool:
    """Tell whether every entry of an epoch's recovered list has a holder; the next list is without entries that lack one."""
    reports, held = list(reports), held_by(everybody)
    added = max(report.row.recovered for report in reports)
    return all(place < added or (origin, txid) in held for report in reports for place, _, txid, origin in report.lacking)


def parting(heads: Sequence[Head], reach: Reach) -> Lsn:
    """Return up to which LSN all heads are, or will be by their recovered lists, the same queue; one reporter has all of it."""
    pairs = ((path_of(a.longest), path_of(b.longest)) for a, b in pairwise(heads))
    return min((agreement(a, b, reach, is_bounded=False) for a, b in pairs), default=heads[0].lsn)


def base_of_split(reports: Iterable[EpochReport], mode: str) -> tuple[Lsn, list[NodeId]]:
    """Return (base LSN of the next epoch, masters that can decide it): those whose queues can stay up to there."""
    reports = list(reports)
    heads = heads_of(reports)
    lsn, staying = (parting(heads, reached_by(reports)), heads) if mode == SIMPLE else (heads[0].lsn, heads[:1])
    theirs = [report for head in staying for report in head.reports]
    # The others would have to wait for a reader.
    deciders = [report for report in theirs if report.reads == NO_EPOCH] or theirs
    return lsn, [report.row.node for report in deciders]


def decide_split(
    number: EpochId,
    reports: Iterable[EpochReport],
    mode: str,
    known_at: Callable[[TxId, Lsn], Lsn | None],
    at: Callable[[Lsn], Ordered | None],
    configuration: Configuration | None = None,
    ids_from: Callable[[Lsn], Lsn] = lambda _end: 0,
) -> Epoch:
    """Return the epoch of this id with the reporters as its members.

    The deciding proposer is one of `base_of_split`, and owns its queue up to that base: ``known_at``, ``at`` and ``ids_from``
    tell of it, as a `History` does.
    """
    reports = sorted(reports, key=lambda report: report.row.node)
    heads, reach = heads_of(reports), reached_by(reports)
    base_lsn, _ = base_of_split(reports, mode)
    last = at(base_lsn)

    order = {head.epoch: place for place, head in enumerate(heads)}
    later = sorted(reports, key=lambda r: (order.get(r.row.epoch, len(order)), [-n for n in r.row.epoch[:1]], r.row.epoch))
    groups = [list(group) for _, group in groupby(later, lambda report: report.row.epoch)]
    base = (base_lsn, last[1] if last else "")
    is_synchronised = synchronised(known_at, ids_from(base_lsn), base_lsn)
    epoch = epoch_of(number, groups, base, is_synchronised, last[0] if last else 0, configuration or configuration_of(reports))
    way = path_of(heads[0].longest, ENDLESS)
    first: dict[EpochId, EpochReport] = {}
    for report in sorted(reports, key=lambda report: (report.reads != NO_EPOCH, report.row.node)):
        first.setdefault(side_of(report), report)
    agreed = (
        (epoch_id, min(base_lsn, agreement(way, path_of(report, ENDLESS), reach)), report.row.node)
        for epoch_id, report in first.items()
    )
    path = tuple((epoch_id, min(lsn, base_lsn)) for epoch_id, lsn in way)
    # A reader was no member of the epoch that it reads: it has not recovered the entries that the others added after its part.
    if base_lsn < heads[0].lsn or heads[0].longest.reads != NO_EPOCH or not _is_list_held(heads[0].reports, reports):
        path = (*path, (CUT, base_lsn))
    return replace(epoch, path=path, agreed=tuple(sorted(agreed)))
