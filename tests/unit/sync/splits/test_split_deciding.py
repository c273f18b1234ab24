"""Which queue stays after a split: `splits/deciding.py` as a function of reports (rule R13)."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from brokerha.model.epochs import Configuration, EpochId
from brokerha.model.ids import Lsn, Ordered, TxId
from brokerha.model.wire.epoch_messages import EpochReport
from brokerha.sync.splits.deciding import CUT, ENDLESS, agreement, base_of_split, decide_split, heads_of, parting, path_of
from tests.unit.sync.reports import report

FIRST: EpochId = (1, "")
UK: EpochId = (2, "uk1")
US: EpochId = (2, "us1")
NEXT: EpochId = (9, "uk1")
MEMBERS = {UK: ("uk1", "uk2"), US: ("us1",), FIRST: ("uk1", "uk2", "us1")}
ALL = Configuration(("uk1", "uk2", "us1"))
PARTED = {UK: ((FIRST, 100),), US: ((FIRST, 101),), FIRST: ()}


def said(node: str, epoch: EpochId, lsn: Lsn, **more: Any) -> EpochReport:
    """A report of a master in one of the three epochs; uk parted from the first one at 100, us at 101."""
    found = report(node, lsn=lsn, epoch=epoch, **more)
    return dataclasses.replace(found, members=MEMBERS[epoch], path=PARTED[epoch], configuration=ALL)


def entry(lsn: Lsn) -> Ordered:
    return (1000 + lsn, f"t{lsn}", "uk1")


def nobody(_txid: TxId, _end: Lsn) -> Lsn | None:
    return None


SPLIT = (said("uk1", UK, 105), said("uk2", UK, 104), said("us1", US, 109))


@pytest.mark.parametrize(
    ("one", "other", "lsn"),
    [
        (((FIRST, 100), (UK, 105)), ((FIRST, 100), (US, 109)), 100),
        # What one side added of the common epoch is where the other side begins, as far as it has got.
        (((FIRST, 100), (UK, 105)), ((FIRST, 103), (US, 109)), 103),
        (((FIRST, 100), (UK, 102)), ((FIRST, 103), (US, 109)), 102),
        (((FIRST, 100), (UK, 105)), ((FIRST, 103),), 103),
        # But not where it was cut back before it went on.
        (((FIRST, 100), (CUT, 100), (UK, 105)), ((FIRST, 103), (US, 109)), 100),
        (((FIRST, 90), (CUT, 90), (UK, 105), (NEXT, 110)), ((FIRST, 90), (CUT, 90), (UK, 107), (US, 109)), 107),
        (((FIRST, 100), (UK, 105)), ((FIRST, 70),), 70),
        (((FIRST, 100), (UK, 105)), ((FIRST, 100), (UK, 90)), 90),
        (((UK, 5),), ((US, 7),), 0),
    ],
)
def test_two_paths_agree_up_to_where_they_part(one: Any, other: Any, lsn: Lsn) -> None:
    assert agreement(one, other, {}) == agreement(other, one, {}) == lsn


def test_an_epoch_that_another_one_continues_is_no_head() -> None:
    lagger = said("us1", FIRST, 99)
    assert [head.epoch for head in heads_of([*SPLIT[:2], lagger])] == [UK]
    # What it added and they left is where they began
    ahead = said("us1", FIRST, 101)
    assert [head.epoch for head in heads_of([*SPLIT[:2], ahead])] == [UK]
    # But it is one as long as they have not got there
    behind = [said("uk1", UK, 100), said("uk2", UK, 100)]
    assert [head.epoch for head in heads_of([*behind, ahead])] == [FIRST, UK]


def test_more_members_win_then_more_reporters_then_the_longer_queue() -> None:
    assert [head.epoch for head in heads_of(SPLIT)] == [UK, US]
    alone = [dataclasses.replace(each, members=("x",)) for each in (SPLIT[0], SPLIT[2])]
    assert [head.epoch for head in heads_of(alone)] == [US, UK]
    equal = [said("uk1", UK, 105), said("us1", US, 105)]
    equal = [dataclasses.replace(each, members=("x",)) for each in equal]
    assert [head.epoch for head in heads_of(equal)] == [US, UK]


def test_whoever_decides_and_in_whatever_order_reports_come_the_epoch_is_the_same() -> None:
    for mode in ("none", "simple", "smart"):
        epochs = {repr(decide_split(NEXT, order, mode, nobody, entry)) for order in itertools.permutations(SPLIT)}
        assert len(epochs) == 1


@pytest.mark.parametrize("mode", ["none", "smart"])
def test_the_first_head_keeps_its_queue_and_the_others_go_back(mode: str) -> None:
    assert base_of_split(SPLIT, mode) == (105, ["uk1", "uk2"])
    epoch = decide_split(NEXT, SPLIT, mode, nobody, entry)
    assert (epoch.base_lsn, epoch.base_txid, epoch.members) == (105, "t105", ("uk1", "uk2", "us1"))
    assert epoch.agreed == ((UK, 105, "uk1"), (US, 101, "us1"))
    assert epoch.path == ((FIRST, 100), (UK, 105))


def test_in_simple_all_go_back_to_where_the_heads_part() -> None:
    assert parting(heads_of(SPLIT), {}) == 101
    lsn, deciders = base_of_split(SPLIT, "simple")
    assert (lsn, sorted(deciders)) == (101, ["uk1", "uk2", "us1"])
    epoch = decide_split(NEXT, SPLIT, "simple", nobody, entry)
    assert (epoch.base_lsn, epoch.agreed) == (101, ((UK, 101, "uk1"), (US, 101, "us1")))
    assert epoch.path == ((FIRST, 100), (UK, 101), (CUT, 101))


def test_where_the_first_head_ends_at_the_parting_its_queue_is_not_cut() -> None:
    reports = [said("uk1", UK, 101), said("uk2", UK, 101), SPLIT[2]]
    epoch = decide_split(NEXT, reports, "simple", nobody, entry)
    assert (epoch.base_lsn, epoch.path) == (101, ((FIRST, 100), (UK, 101)))


def test_a_recovered_list_that_nobody_holds_whole_is_where_the_path_is_cut() -> None:
    # Given two masters of an epoch with a list of four entries, of which one has added two and the other one
    one = said("uk1", UK, 102, recovered={2: entry(103)})
    other = said("uk2", UK, 101, recovered={1: entry(102), 3: entry(104)})
    reports = [
        dataclasses.replace(each, row=dataclasses.replace(each.row, recovered=done), lacking=((place, *entry(101 + place)),))
        for each, done, place in ((one, 2, 3), (other, 1, 2))
    ]
    # When they hold all of it together, then the next epoch begins with the rest
    epoch = decide_split(NEXT, reports, "smart", lambda txid, _end: 102 if txid == "t102" else None, entry)
    assert [txid for _, txid, _ in epoch.recovered] == ["t103", "t104"]
    assert epoch.path == ((FIRST, 100), (UK, 102))
    # But not when one of them is alone: where the other one goes on something else may come next
    for alone in reports:
        lsn = alone.row.lsn
        assert decide_split(NEXT, [alone], "smart", nobody, entry).path == ((FIRST, 100), (UK, lsn), (CUT, lsn))


def test_what_is_stamped_on_both_sides_is_recovered_that_of_the_first_head_first() -> None:
    uk = said("uk1", UK, 105, streams={"uk1": (7, (5000, "x"))})
    us = said("us1", US, 109, streams={"us1": (3, (2000, "y"), (2001, "known"))})
    epoch = decide_split(NEXT, [us, uk], "smart", lambda txid, _end: 4 if txid == "known" else None, entry)
    assert [txid for _, txid, _ in epoch.recovered] == ["x", "y"]
    assert [timestamp for timestamp, _, _ in epoch.recovered] == [5000, 5000]


def test_in_simple_what_was_synchronised_after_the_base_counts_as_not_synchronised() -> None:
    uk = said("uk1", UK, 105)
    us = said("us1", US, 109, streams={"us1": (3, (2000, "y"))})
    epoch = decide_split(NEXT, [us, uk], "simple", lambda _txid, end: 103 if end >= 103 else None, entry)
    assert [txid for _, txid, _ in epoch.recovered] == ["y"]


def test_a_path_that_goes_on_has_no_end() -> None:
    assert path_of(SPLIT[0], ENDLESS) == ((FIRST, 100), (UK, ENDLESS))


def test_a_side_that_has_recovered_nothing_yet_takes_nobody_back_behind_what_it_will_recover() -> None:
    # Given the uk left the common epoch at 100 and has added nothing since, and the us left it at 101 and went on
    short = (said("uk1", UK, 100), said("uk2", UK, 100), SPLIT[2])
    # Then 101 is the first that the uk would add, so nobody has to give it up: the uk reads it from the us
    assert base_of_split(short, "simple")[0] == 101
    assert decide_split(NEXT, short, "simple", nobody, entry).agreed == ((UK, 101, "uk1"), (US, 101, "us1"))
    # And a queue that ends there is whole: what is bounded by both ends says so
    assert agreement(path_of(short[0]), path_of(short[2]), {}) == 100


@pytest.mark.parametrize("mode", ["simple", "smart"])
def test_what_a_third_side_has_of_the_common_epoch_is_given_up_by_nobody(mode: str) -> None:
    # Given three masters that left the common epoch at 100, 100 and 102, each by itself
    sides = [("uk1", UK, 100), ("us1", US, 100), ("es1", (2, "es1"), 102)]
    made = [(report(node, lsn=110, epoch=epoch), left) for node, epoch, left in sides]
    reports = [dataclasses.replace(each, path=((FIRST, left),), members=(each.row.node,)) for each, left in made]
    # Then 101 and 102 are the first that the other two have recovered, too
    epoch = decide_split(NEXT, reports, mode, nobody, entry)
    assert {lsn for _, lsn, _ in epoch.agreed} == ({102} if mode == "simple" else {102, 110})
    assert base_of_split(reports, "simple")[0] == 102


def test_a_master_that_alone_has_quorum_gives_up_its_epoch_for_that_of_the_others() -> None:
    # Given that the last epoch of the way to quorum has reached one master only, and the others went on without it
    others = [dataclasses.replace(said(node, UK, 105), members=("uk1", "uk2")) for node in ("uk1", "uk2")]
    alone = dataclasses.replace(report("us1", lsn=100, epoch=(2, "us1")), path=((FIRST, 100),), members=("uk1", "uk2", "us1"))
    reports = [dataclasses.replace(each, row=dataclasses.replace(each.row, mode="to-quorum")) for each in others]
    assert base_of_split([*reports, alone], "to-quorum") == (105, ["uk1", "uk2"])


def reading(node: str, lsn: Lsn, own: EpochId = US, **more: Any) -> EpochReport:
    """A master that went back for epoch 9, which goes on from the uk's at 105, and has read up to an LSN of it."""
    path = ((FIRST, 100), (UK, 105))
    return dataclasses.replace(said(node, own, lsn, **more), path=path, reads=NEXT)


def in_next(node: str, lsn: Lsn) -> EpochReport:
    """A master that has installed that epoch."""
    found = dataclasses.replace(said(node, UK, lsn), path=((FIRST, 100), (UK, 105)), members=("uk1", "uk2", "us1"))
    return dataclasses.replace(found, row=dataclasses.replace(found.row, epoch=NEXT))


@pytest.mark.parametrize(
    ("lsn", "path"),
    [
        (40, ((FIRST, 40),)),
        (100, ((FIRST, 100),)),
        (103, ((FIRST, 100), (UK, 103))),
        (105, ((FIRST, 100), (UK, 105))),
        (110, ((FIRST, 100), (UK, 105), (NEXT, 110))),
    ],
)
def test_one_that_reads_another_queue_is_on_the_way_of_that_one(lsn: Lsn, path: Any) -> None:
    assert path_of(reading("us1", lsn)) == path
    assert path_of(reading("us1", lsn), ENDLESS) == (*path[:-1], (path[-1][0], ENDLESS))


@pytest.mark.parametrize("mode", ["none", "simple", "smart"])
@pytest.mark.parametrize("lsn", [40, 100, 103, 105])
def test_what_was_read_of_the_others_queue_is_not_given_up_again(mode: str, lsn: Lsn) -> None:
    # Given that those whose queue it is have gone on since
    reports = [in_next("uk1", 120), in_next("uk2", 119), reading("us1", lsn)]
    assert [head.epoch for head in heads_of(reports)] == [NEXT]
    assert base_of_split(reports, mode) == (120, ["uk1", "uk2"])
    epoch = decide_split((10, "uk1"), reports, mode, nobody, entry)
    # Then the next epoch goes on where they are, and all that it has read is of that epoch's queue
    assert (epoch.base_lsn, epoch.agreed) == (120, ((NEXT, 120, "uk1"),))


@pytest.mark.parametrize("mode", ["none", "smart"])
def test_nor_when_those_whose_queue_it_is_have_not_taken_the_epoch_over(mode: str) -> None:
    reports = [said("uk1", UK, 105), said("uk2", UK, 105), reading("us1", 103)]
    epoch = decide_split((10, "uk1"), reports, mode, nobody, entry)
    assert epoch.base_lsn == 105
    assert {epoch_id: lsn for epoch_id, lsn, _ in epoch.agreed} == {UK: 105, NEXT: 105}


def test_a_neighbour_that_has_not_gone_back_yet_still_has_to() -> None:
    # Given two of the us, of which one went back and reads, and the other one still has what is to be given up
    reports = [in_next("uk1", 105), said("us1", US, 109), reading("us2", 103)]
    epoch = decide_split((10, "uk1"), reports, "smart", nobody, entry)
    assert epoch.agreed == ((US, 101, "us1"), (NEXT, 105, "uk1"))


def test_where_the_next_epoch_goes_another_way_what_was_read_behind_the_parting_is_given_up() -> None:
    # Given that nobody of the uk is there, and the us have gone on in their own way
    reports = [said("us1", US, 109), said("us2", US, 109), reading("us3", 103)]
    epoch = decide_split((10, "us1"), reports, "smart", nobody, entry)
    assert (epoch.base_lsn, epoch.agreed) == (109, ((US, 109, "us1"), (NEXT, 101, "us3")))


def test_who_only_reads_leads_nobody_who_has_a_queue_of_its_own() -> None:
    # Given one that has read more than the other side is long
    reports = [reading("us1", 105), said("uk1", UK, 102)]
    assert heads_of(reports)[0].epoch == UK
    # But where nobody else is left, the longest queue stays
    left = [reading("us1", 105), reading("us2", 103)]
    assert base_of_split(left, "smart")[0] == 105
    epoch = decide_split((10, "us1"), left, "smart", nobody, entry)
    assert (epoch.agreed, epoch.path) == (((NEXT, 105, "us1"),), ((FIRST, 100), (UK, 105), (CUT, 105)))


def test_where_one_that_read_a_part_goes_on_by_itself_it_parts_from_the_others_there() -> None:
    # Given one that has read up to 103 of what the uk have up to 105, and goes on alone from there
    alone = decide_split((10, "us1"), [reading("us1", 103)], "smart", nobody, entry)
    assert alone.path == ((FIRST, 100), (UK, 103), (CUT, 103))
    us = dataclasses.replace(said("us1", US, 109), path=alone.path)
    us = dataclasses.replace(us, row=dataclasses.replace(us.row, epoch=(10, "us1")))
    # When it meets them again, then it goes back to there: what it has at 104 is not what they have
    met = decide_split((11, "uk1"), [said("uk1", UK, 120), said("uk2", UK, 120), us], "smart", nobody, entry)
    assert met.agreed == ((UK, 120, "uk1"), ((10, "us1"), 103, "us1"))
