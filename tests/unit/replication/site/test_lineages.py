"""Lineages: of a copy that followed an older log only the part counts that every going back since left as it was."""

from __future__ import annotations

import pytest

from brokerha.model.invariants import InvariantBroken
from brokerha.model.wire.messages import Coin
from brokerha.replication.site.lineages import GoingOver, Lineages


def test_without_any_going_back_everything_is_of_lineage_0() -> None:
    lineages = Lineages()
    assert lineages.number == 0
    assert lineages.agreed(0) is None
    assert lineages.problem(0, 1000) == ""


def test_a_copy_of_the_lineage_of_now_is_right_wherever_it_is() -> None:
    lineages = Lineages()
    lineages.rewind(4, 5)
    assert lineages.problem(5, 1000) == ""
    assert lineages.problem(0, 4) == ""
    assert lineages.problem(0, 5) == "it is at LSN 5, and what it followed is void after 4"


def test_what_a_later_going_back_voids_is_void_for_all_before_it() -> None:
    lineages = Lineages()
    lineages.rewind(10, 5)
    lineages.rewind(6, 7)
    assert lineages.rewinds == ((7, 6),)
    assert lineages.problem(0, 7)
    assert lineages.problem(5, 7)
    assert not lineages.problem(5, 6)


def test_what_an_earlier_going_back_voided_stays_void() -> None:
    lineages = Lineages()
    lineages.rewind(4, 5)
    lineages.rewind(6, 7)
    assert (lineages.agreed(0), lineages.agreed(5)) == (4, 6)
    assert lineages.problem(0, 5)
    assert not lineages.problem(5, 6)
    assert Lineages(lineages.rewinds).agreed(0) == 4


def test_a_lineage_that_nobody_here_knows_is_another_history() -> None:
    assert Lineages(((5, 4),)).problem(6, 1) == "it followed lineage 6 of the log, the last one here is 5"


def test_what_somebody_vouched_for_is_right_up_to_there() -> None:
    lineages = Lineages(((5, 4),))
    assert not lineages.problem(0, 9, vouched=9)
    assert lineages.problem(0, 10, vouched=9)


def test_lineages_grow() -> None:
    with pytest.raises(InvariantBroken):
        Lineages(((5, 4),)).rewind(3, 5)


def test_an_order_for_what_a_copy_told_before_a_crash_is_not_for_what_it_is_after_it() -> None:
    # Given a copy that goes over from lineage 0 to 5, of which nothing after LSN 4 is void, and tells so
    going_over, lineages = GoingOver(0), Lineages(((5, 2),))
    assert going_over.place(Coin(1, (), 0, 5, 2, "the same", 0), 8, "the same", is_busy=False) == 2
    # When it crashes before that is durable, and the queue goes back again, to where nobody has got
    after = GoingOver(0)
    lineages.rewind(40, 7)
    order = Coin(1, (), 0, 7, lineages.agreed(5) or 0, "", 5)
    assert order.agreed_lsn == 40
    # Then what it holds up to LSN 8 is not the beginning of that log
    assert after.place(order, 8, "the same", is_busy=False) is None
    assert after.lineage == 0
    # And it would have been, had it been written down
    assert going_over.place(order, 2, "the same", is_busy=False) == 2
