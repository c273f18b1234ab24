"""What a master says of its queue that ended while it read that of another side: nobody is on its way after the place to which it went back."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import cast

import pytest

from brokerha.model.epochs import Epoch, EpochId
from brokerha.model.given_up import Split
from brokerha.model.ids import Lsn
from brokerha.sync.splits.deciding import CUT, Path, agreement, path_of
from brokerha.sync.splits.going_back import _agreed, read_before
from brokerha.sync.state import SyncState
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
