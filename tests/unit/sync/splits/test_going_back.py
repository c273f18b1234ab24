"""What a master says of its queue that ended while it read that of another side: nobody is on its way after the place to which it went back."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import cast

import pytest

from brokerha.model.epochs import Epoch, EpochId
from brokerha.model.given_up import Split
from brokerha.model.ids import Instant, Lsn
from brokerha.model.records import Accepted, Added, BodiesHeld
from brokerha.model.wire.epoch_messages import State
from brokerha.sync.config import SyncConfig
from brokerha.sync.core import SyncCore
from brokerha.sync.round import RoundResult
from brokerha.sync.splits import going_back
from brokerha.sync.splits.deciding import CUT, Path, agreement, path_of
from brokerha.sync.splits.going_back import GoingBack, _agreed, read_before
from brokerha.sync.state import SyncState
from tests.support.logs import memory_log, reopened
from tests.unit.sync.reports import report

FIRST, THIRD, FIFTH = (1, ""), (3, "m4"), (5, "m3")
WAY: Path = ((FIRST, 3), (THIRD, 9))
OWN = Epoch(5, "m3", ("m3",), base_lsn=9, path=WAY)


def went_back(lsn: Lsn, lineage: int = 6) -> Split:
    return Split(7, 5, lineage, False, lsn, 2, 0, 2)


@pytest.mark.parametrize(
    ("lsn", "path"),
    [
        # Also of epochs that came after that place: others may know no earlier one.
        (3, ((FIRST, 3), (THIRD, 3), (FIFTH, 3), (CUT, 3))),
        (2, ((FIRST, 2), (THIRD, 2), (FIFTH, 2), (CUT, 2))),
        (5, ((FIRST, 3), (THIRD, 5), (FIFTH, 5), (CUT, 5))),
        (9, ((FIRST, 3), (THIRD, 9), (FIFTH, 9), (CUT, 9))),
        (12, ((FIRST, 3), (THIRD, 9), (FIFTH, 12), (CUT, 12))),
    ],
)
def test_its_path_ends_where_it_went_back_to(lsn: Lsn, path: Path) -> None:
    reads = read_before("m3", 4, OWN, went_back(lsn))
    assert reads is not None
    assert (reads.id, reads.path) == ((6, "m3?4"), path)


@pytest.mark.parametrize("lineage", [4, 5])
def test_who_took_the_epoch_over_reads_nothing(lineage: int) -> None:
    assert read_before("m3", 4, OWN, went_back(3, lineage)) is None


@pytest.mark.parametrize("own", [FIRST, THIRD, (4, "m4"), FIFTH])
def test_whoever_it_meets_agrees_with_it_up_to_there_only(own: EpochId) -> None:
    # Given that it went back to 3, and has read up to 8
    reads = read_before("m3", 4, OWN, went_back(3))
    assert reads is not None
    its = path_of(dataclasses.replace(report("m3", lsn=8), path=reads.path, reads=reads.id))
    # When it meets masters that went other ways, each with nine entries
    others: Path = ((FIRST, 3), (THIRD, 9), ((4, "m4"), 9), (FIFTH, 9))
    way = others[: [epoch for epoch, _ in others].index(own) + 1]
    # Then nothing after 3 is common
    assert agreement(its, way, {}) == agreement(way, its, {}) == 3


def test_who_restarts_after_it_has_reported_goes_back_to_where_its_own_way_is_that_of_the_epoch() -> None:
    # Given that it went back to 3, has read up to 8, and reported for which epoch; and then restarted, and has another name for it
    reads = read_before("m3", 4, OWN, went_back(3))
    sync = cast("SyncState", SimpleNamespace(reads=reads, epoch=OWN, lsn=8))
    # When the epoch comes that was decided with that report
    epoch = Epoch(9, "m1", ("m1", "m3"), base_lsn=9, path=((FIRST, 3), (THIRD, 9)), agreed=(((6, "m4"), 3, "m3"), (THIRD, 9, "m1")))
    # Then what it read is given up
    assert _agreed(sync, epoch) == 3
    # And in an epoch that brings no sides together nothing is
    assert _agreed(sync, Epoch(9, "m1", ("m1", "m3"), base_lsn=9)) == 8


def test_who_was_in_an_epoch_without_adding_anything_agrees_with_others_who_know_no_earlier_one() -> None:
    # Given that it went back to where an epoch began that it was in, and has read nothing since
    reads = read_before("m3", 4, OWN, went_back(9))
    assert reads is not None
    its = path_of(dataclasses.replace(report("m3", lsn=9), path=reads.path, reads=reads.id))
    # When it meets one whose path begins there
    way: Path = ((FIFTH, 30), ((7, "m1"), 40))
    # Then both have the same queue up to there
    assert agreement(its, way, {}) == agreement(way, its, {}) == 9


def test_what_it_hands_in_for_absent_masters_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a side of m3 and m4 that has synchronised entries of both, and m4 is not heard any more
    monkeypatch.setattr(going_back, "HANDED_IN_BYTES", 2)
    log = memory_log("m3", "journal-of-m3")
    entries = [(10 * n, f"t{n}", "m3" if n == 3 else "m4") for n in range(1, 8)]
    log.append([BodiesHeld(tuple(("m4", txid, b"b") for _, txid, origin in entries if origin == "m4")), Accepted((("t3", b"b"),))])
    log.append([Added(1, tuple(entries), {}, 1)])
    sync = SyncCore(SyncConfig("m3", ("m1", "m2", "m3", "m4"), split_recovery="smart"), log.state(), log)
    # When it meets an epoch of m1 and m2 that has nothing of that
    epoch = Epoch(2, "m1", ("m1", "m2", "m3"), agreed=((FIRST, 0, "m3"),))
    back, turns = GoingBack(sync.config), 0
    while True:
        result = RoundResult()
        is_back = back.step(sync, epoch, result, Instant(0, 0))
        # Then each turn reads a part of the bodies, and the queue goes back with the last one only
        assert sum(len(body) for record in result.records if isinstance(record, Accepted) for _, body in record.items) <= 2
        turns += 1
        log.append(result.records)
        if is_back:
            break
        assert reopened(log).state().lsn == 7
    assert turns == 3
    # And all are handed in again in their former order, also after a restart
    assert list(sync.parked) == [f"t{n}" for n in range(1, 8)]
    assert sync.pending == {*reopened(log).state().parked} == {*sync.parked}
    assert all(log.body("m3", txid) == b"b" for txid in sync.parked)


@pytest.mark.parametrize("base_lsn", [0, 2])
def test_a_state_is_read_anew_after_the_queue_went_back_or_a_lineage_began(base_lsn: Lsn) -> None:
    # Given a master that reads the state of m4, which is far ahead on the same side
    log = memory_log("m3", "journal-of-m3")
    log.append([BodiesHeld((("m4", "a", b"b"), ("m4", "b", b"b")))])
    log.append([Added(1, ((1, "a", "m4"), (2, "b", "m4")), {}, 1)])
    sync = SyncCore(SyncConfig("m3", ("m1", "m2", "m3", "m4"), split_recovery="smart"), log.state(), log)
    reader = sync.epochs.transfer
    reader._begin("m4")
    assert reader.on_state("m4", State(20, b"", (7, "t20", "m4"), b"f", 3, (("t19", 19),), (), b"t19"), sync.lsn)
    # When it comes to an epoch of other sides, which voids the ids of that state
    others = ((FIRST, base_lsn, "m3"), (THIRD, base_lsn, "m1"))
    sync.decided = Epoch(4, "m1", ("m1", "m3"), base_lsn, "b", agreed=others, configuration=sync.epoch.configuration)
    sync.promised = sync.decided.id
    result = sync.collect(Instant(0, 0))
    assert result.rewound is not None
    log.append(result.records)
    assert log.lsn_of("t19") is None
    # Then it does not go on with the next page, also if that comes
    reader.on_state("m4", State(20, b"t19", (7, "t20", "m4"), b"f", 3, (("t20", 20),), (), b""), sync.lsn)
    assert not reader.take(sync, result)
    assert (reader.source, reader.lsn) == ("", 0)


def test_ids_after_the_place_to_which_the_queue_went_back_are_needed_while_what_was_given_up_waits() -> None:
    # Given a site of m3 that has synchronised seven transactions, two of them its own
    log = memory_log("m3", "journal-of-m3")
    entries = [(10 * n, f"t{n}", "m3" if n > 5 else "m4") for n in range(1, 8)]
    log.append([BodiesHeld(tuple(("m4", f"t{n}", b"b") for n in range(1, 6))), Accepted((("t6", b"b"), ("t7", b"b")))])
    log.append([Added(1, tuple(entries), {}, 1)])
    config = SyncConfig("m3", ("m1", "m2", "m3", "m4"), split_recovery="none")
    sync = SyncCore(config, log.state(), log)
    # When the queue goes back to the fifth
    epoch, result = Epoch(2, "m1", ("m1", "m2", "m3", "m4"), agreed=((FIRST, 5, "m3"),)), RoundResult()
    sync.is_ready_to_go_back = lambda: True
    assert GoingBack(config).step(sync, epoch, result, Instant(0, 0))
    log.append(result.records)
    # Then others must not forget the ids that show whether these got a place again, also after a restart
    again = SyncCore(config, reopened(log).state(), log)
    assert sorted(sync._needed) == sorted(again._needed) == [(6, "t6"), (6, "t7")]
    log.first_lsn = lambda: 9  # type: ignore[method-assign]
    for each in (sync, again):
        assert each.ids_needed_from() == 6
        each.pending.discard("t6")
        assert each.ids_needed_from() == 6
        each.pending.clear()
        assert each.ids_needed_from() == 9
