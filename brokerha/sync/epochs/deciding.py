"""Deciding the next epoch: a pure function of the reports at a proposer (rule R10).

    reports of epoch 7   recovered lists, streams sorted by (timestamp, id)  --+
    reports of epoch 6   the same, of entries not known above                --+--> without synchronised ones --> recovered list
                                                                                    of epoch 8, which begins at the base

The reports of the **highest epoch** come first. They have every entry that a member of it could still have added: an added entry is
held by a majority, one of these has reported, and it is frozen since. The holder may be in an older epoch, in which the entry was
added before the highest epoch was decided; the highest epoch's recovered list gives its place. Sorting a superset of that member's
entries by the same order keeps them a prefix. Entries that only older epochs know come after them: they were never added at any
master. Such an entry may have waited for days. If it would be older than the one before it, it gets that one's timestamp, so that
timestamps never go back along the whole queue.

Invariants: each transaction id once (S2); equal reports give equal epochs, whatever their order.

Must never: leave out an entry that a reporter holds. If no other master knows it, that is the reason to keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby

from brokerha.model.epochs import Configuration, Epoch, EpochId
from brokerha.model.forgetting import forgotten_below, is_forgetting
from brokerha.model.ids import Lsn, NodeId, Ordered, Timestamp, TxId
from brokerha.model.wire.epoch_messages import EpochReport

CLEAR = 100_000
"""More entries than a master can have stamped without the others holding them."""


def base_of(reports: Iterable[EpochReport]) -> tuple[Lsn, TxId]:
    """Return the highest reported LSN, with its transaction id."""
    return max((report.row.lsn, report.last_txid) for report in reports)


def configuration_of(reports: Iterable[EpochReport]) -> Configuration:
    """Return the configuration of the highest reported epoch."""
    return max(reports, key=_epoch_of).configuration


def are_enough(reports: Mapping[NodeId, EpochReport], *, is_settled: bool) -> bool:
    """Tell whether enough have reported: a majority of the masters of the highest epoch, and of those before its last change.

    Two epochs that change the same masters in different ways may have majorities without a common master. So the masters before
    count as well, until the change is settled: until masters that do not know of it cannot be a majority of them.
    """
    if not reports:
        return False
    known = configuration_of(reports.values())
    here = [node for node, report in reports.items() if report.configuration == known]
    is_settled = is_settled or known.is_known_before(here) or known.is_majority_before(reports)
    return is_settled and known.is_majority(reports)


def decide(
    number: EpochId,
    reports: Iterable[EpochReport],
    is_synchronised: Callable[[TxId], bool],
    last: Timestamp,
    configuration: Configuration | None = None,
) -> Epoch:
    """Return the epoch of this id; its members are the reporters that are masters.

    ``is_synchronised`` tells of each transaction id whether it is in the synchronised queue up to the base, and ``last`` is the
    timestamp there; so the deciding proposer owns the queue up to the base. ``configuration`` is that of the highest epoch, or the
    changed one.
    """
    reports = sorted(reports, key=lambda report: report.row.node)
    groups = [list(group) for _, group in groupby(_newest_first(reports), _epoch_of)]
    return epoch_of(number, groups, base_of(reports), is_synchronised, last, configuration or configuration_of(reports))


def epoch_of(
    number: EpochId,
    groups: list[list[EpochReport]],
    base: tuple[Lsn, TxId],
    is_synchronised: Callable[[TxId], bool],
    last: Timestamp,
    configuration: Configuration,
) -> Epoch:
    """Return the epoch with this base that recovers the entries of the groups, in order; each group is of one epoch."""
    reports = [report for group in groups for report in group]
    held = held_by(reports)
    entries = [entry for group in groups for entry in _entries_of(group, held)]
    # Unstamped transactions of a master that leaves come last: no other master would ever stamp them.
    entries += [(last, txid, report.row.node) for report in reports for txid in report.parked]
    recovered: dict[TxId, Ordered] = {}
    above = last
    for timestamp, txid, origin in entries:
        if txid not in recovered and not is_synchronised(txid):
            above = max(timestamp, above)
            recovered[txid] = (above, txid, origin)
    starts: dict[NodeId, int] = {}
    for report in reports:
        for origin, count in report.row.have.items():
            starts[origin] = max(count, starts.get(origin, 0))
    for report in reports:
        if report.row.have.get(report.row.node, 0) < starts.get(report.row.node, 0):
            # Its disk was emptied. A master that is away may bring back entries of its former journal: stay clear of them.
            starts[report.row.node] += CLEAR
    promises = [report.row.promise for report in reports]
    journals = {report.row.node: report.row.journal for report in reports if report.row.node in configuration.masters}
    return Epoch(
        *number,
        members=tuple(sorted(journals)),
        base_lsn=base[0],
        base_txid=base[1],
        recovered=tuple(recovered.values()),
        starts=starts,
        above=max([above, *promises, *(entry[0] for entry in entries)]),
        configuration=replace(configuration, journals={**configuration.journals, **journals}),
    )


def synchronised(known_at: Callable[[TxId, Lsn], Lsn | None], ids_from: Lsn, base_lsn: Lsn) -> Callable[[TxId], bool]:
    """Return what tells of each id of a recovered list, in its order, whether it is in the queue up to a base.

    An entry of the list that forgets ids does so for those after it, as it did where the list was added already.
    """

    def is_synchronised(txid: TxId) -> bool:
        nonlocal ids_from
        lsn = known_at(txid, base_lsn)
        is_there = lsn is not None and lsn >= ids_from
        if not is_there and is_forgetting(txid):
            ids_from = max(ids_from, forgotten_below(txid))
        return is_there

    return is_synchronised


def _epoch_of(report: EpochReport) -> EpochId:
    return report.row.epoch


def _newest_first(reports: list[EpochReport]) -> list[EpochReport]:
    return sorted(reports, key=_epoch_of, reverse=True)


def held_by(reports: Iterable[EpochReport]) -> set[tuple[NodeId, TxId]]:
    """Return (origin, id) of each entry that a reporter holds and has not added."""
    found: set[tuple[NodeId, TxId]] = set()
    for report in reports:
        found.update((origin, txid) for _, _, txid, origin in report.recovered)
        for origin, _, entries in report.streams:
            found.update((origin, txid) for _, txid in entries)
    return found


def _entries_of(reports: list[EpochReport], held: set[tuple[NodeId, TxId]]) -> list[Ordered]:
    """Return the entries that the reporters of one epoch know and a reporter holds, in the order in which that epoch adds them."""
    known = [row for report in reports for row in (*report.recovered, *report.lacking)]
    listed = {place: (timestamp, txid, origin) for place, timestamp, txid, origin in known if (origin, txid) in held}
    streamed = {(timestamp, txid, origin) for r in reports for origin, _, entries in r.streams for timestamp, txid in entries}
    return [listed[place] for place in sorted(listed)] + sorted(streamed)
