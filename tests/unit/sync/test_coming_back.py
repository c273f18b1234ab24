"""Masters that were left out come back: who asks, who believes it, what becomes of what they had; all of it by deadlines alone."""

from __future__ import annotations

from dataclasses import replace

from brokerha.model.wire.epoch_messages import EpochInstall, Join, Tail
from brokerha.model.wire.messages import Bodies, Outgoing
from tests.unit.paper.masters import without
from tests.unit.sync.epoch_table import LAG_MS, EpochTable


def test_one_that_was_away_asks_to_be_taken_back_and_what_it_had_is_synchronised_once() -> None:
    # Given m3 with a transaction that nobody else knows, and two that went on
    table = EpochTable()
    table.write("m3", "own")
    table.round("m3")
    table.lose()
    table.write("m1", "a")
    table.live(2 * LAG_MS, without("m3"))
    assert table.queue("m1") == ["a"]
    # When it hears them again
    table.live(LAG_MS)
    # Then it is a member, has what it missed, and all have what it had
    assert table.members("m1") == table.members("m3") == ("m1", "m2", "m3")
    assert table.queue("m1") == table.queue("m2") == table.queue("m3") == ["a", "own"]
    assert table.cores["m3"].pending == set()
    # And it has said so with the row that it heard
    join = table.messages(Join, "m3", "m1")[0]
    assert join.incarnation == table.cores["m1"].incarnation
    assert join.row.node == "m3"


def test_a_body_of_the_recovered_list_is_fetched_by_those_that_lack_it() -> None:
    # Given an entry of m3 whose body came to m1 only
    table = EpochTable()

    def no_body_for_m2(_sender: str, out: Outgoing) -> bool:
        return not (out.to == "m2" and isinstance(out.message, Bodies))

    table.write("m3", "deep")
    table.live(60, no_body_for_m2)
    assert (table.incoming("m1"), table.incoming("m2")) == (["deep"], [])
    table.crash("m3")
    # When the two go on without m3
    table.live(LAG_MS + 200, no_body_for_m2)
    assert table.cores["m2"].epoch.members == ("m1", "m2")
    assert table.cores["m2"].recovery.held == 0
    table.live(200)
    # Then m2 gets the body from m1, and the transaction is synchronised although its master is away
    assert [e[1] for e in table.cores["m1"].epoch.recovered] == ["deep"]
    assert table.queue("m1") == table.queue("m2") == ["deep"]
    assert table.journals["m2"].body("m3", "deep") == b"deep"


def test_who_reads_what_it_missed_goes_to_another_master_when_it_hears_the_first_no_more() -> None:
    # Given m5 outside, that hears m1 first and gets no tail from it before their link goes
    table = EpochTable(5)
    table.write("m1", "a")
    table.live(2 * LAG_MS, without("m5"))
    assert table.queue("m1") == ["a"]

    def only_m1_without_tail(sender: str, out: Outgoing) -> bool:
        return "m5" not in (sender, out.to) or ({sender, out.to} == {"m1", "m5"} and not isinstance(out.message, Tail))

    table.live(LAG_MS // 2, only_m1_without_tail)
    assert table.cores["m5"].tail.sources == ("m1",)
    # When it hears the others
    table.live(4 * LAG_MS, lambda sender, out: {sender, out.to} != {"m1", "m5"})
    # Then one of them gives it what it lacks, and it is a member
    assert table.queue("m5") == ["a"]
    assert "m5" in table.members("m2")


def test_the_word_of_one_outside_counts_when_it_is_of_now() -> None:
    # Given m1 and m2 that go on without m3
    table = EpochTable()
    table.live(2 * LAG_MS, without("m3"))
    core, row = table.cores["m1"], table.cores["m3"].own_row(table.now)
    # Not of an earlier life of m1, not for a stranger, not of another journal, not of another sender
    table.tell("m1", Join(core.incarnation - 1, 1, row), "m3")
    table.tell("m1", Join(core.incarnation, 1, replace(row, node="stranger")), "stranger")
    table.tell("m1", Join(core.incarnation, 1, row), "m2")
    table.tell("m1", Join(core.incarnation, 1, replace(row, journal="another")), "m3")
    assert core.peers.ignored["unknown_peer"] == 3
    assert core.epochs.suspicion.joining(table.now.mono_ms + LAG_MS) == []
    table.tell("m1", Join(core.incarnation, 1, row), "m3")
    assert core.epochs.suspicion.joining(table.now.mono_ms + LAG_MS) == ["m3"]


def test_a_member_that_does_not_know_the_epoch_yet_is_told_and_not_taken_for_one_outside() -> None:
    table = EpochTable()
    table.live(2 * LAG_MS, without("m3"))
    core, behind = table.cores["m1"], replace(table.cores["m2"].own_row(table.now), epoch=(1, ""))
    for _ in range(2):
        table.tell("m1", Join(core.incarnation, 1, behind), "m2")
    # Once in a while
    assert [out for out in table.said("m1") if isinstance(out.message, EpochInstall)] == [Outgoing("m2", EpochInstall(core.epoch))]
    # And one that is in the epoch already is not
    table.pass_ms(100)
    table.tell("m1", Join(core.incarnation, 1, table.cores["m2"].own_row(table.now)), "m2")
    assert table.said("m1") == []


def test_all_that_were_away_come_back_with_one_epoch() -> None:
    table = EpochTable(5)
    table.live(2 * LAG_MS, without("m4", "m5"))
    before = table.cores["m1"].epoch.id[0]
    table.live(LAG_MS)
    assert {table.cores[name].epoch.id[0] for name in table.names} == {before + 1}
    assert table.members("m1") == table.names


def test_deadlines_alone_bring_all_of_it_about() -> None:
    # Given masters that run only when something came or when they wanted to be woken
    table = EpochTable()
    table.write("m3", "own")
    table.round("m3")
    table.lose()
    table.write("m1", "a")
    # When m3 is away, and back
    away = table.live_by_deadlines(3 * LAG_MS, without("m3"))
    assert table.queue("m1") == table.queue("m2") == ["a"]
    back = table.live_by_deadlines(LAG_MS)
    assert table.queue("m1") == table.queue("m2") == table.queue("m3") == ["a", "own"]
    # And when it dies while all are frozen
    table.attempt("m3")
    table.deliver()
    table.round("m1", "m2")
    table.crash("m3")
    table.lose()
    frozen = table.live_by_deadlines(5 * LAG_MS)
    assert table.members("m1") == table.members("m2") == ("m1", "m2")
    # Then none of them has run in circles
    assert max(away, back, frozen) < 1000
