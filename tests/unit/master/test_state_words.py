"""What a master says of its epoch when it is rare: too far behind, before anybody looked, with a master that came back as another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.model import states
from brokerha.model.wire.epoch_messages import EpochPrepare, Tail
from brokerha.model.wire.messages import Post
from tests.unit.master.one_of_three import ROW, OneOfThree


@pytest.fixture
def bench() -> OneOfThree:
    made = OneOfThree()
    made.post("m2", "m3")
    assert made.state() == (states.OK, "")
    return made


def test_after_a_start_nobody_was_heard_and_no_time_is_told() -> None:
    assert OneOfThree().state() == (states.NO_MAJORITY, "2 of 3 masters are needed, not heard: m2, m3")


def test_a_new_cluster_says_that_each_of_its_masters_has_to_be_heard_once() -> None:
    bench = OneOfThree()
    for _ in range(30):
        bench.post("m2")
        bench.wait(1_000)
    # However long that takes, nobody who was never heard is left out
    assert bench.state() == (
        states.WAITING_FOR_PEERS,
        "not heard yet: m3; a new cluster begins once each of its masters has been heard",
    )
    bench.post("m2", "m3")
    assert bench.state() == (states.OK, "")


def test_how_long_a_silent_member_is_waited_for_is_counted_down(bench: OneOfThree) -> None:
    for _ in range(3):
        bench.wait(1_000)
        bench.post("m2")
    assert bench.state() == (states.WAITING_FOR_PEERS, "not heard: m3 (left out in 7 s)")


def test_a_member_that_others_hear_is_not_left_out(bench: OneOfThree) -> None:
    # Given that m2 passes rows of m3 on, and m1 hears nothing of m3 itself
    for _ in range(4):
        bench.wait(1_000)
        bench.number += 2
        relayed = replace(ROW, node="m3", journal="journal-of-m3", number=bench.number)
        bench.say("m2", Post(replace(ROW, node="m2", journal="journal-of-m2", number=bench.number), (relayed,), ()))
    assert bench.state() == (states.WAITING_FOR_PEERS, "not heard: m3 (heard of through others)")


def test_a_master_with_a_foreign_disk_is_named_with_it(bench: OneOfThree) -> None:
    for _ in range(3):
        bench.wait(1_000)
        bench.post("m2")
        bench.post("m3", journal="another")
    assert bench.state() == (states.WAITING_FOR_PEERS, "not heard: m3 (its data directory is not the one it had; left out in 7 s)")


def test_an_epoch_that_is_being_agreed_on_is_named_with_its_proposer(bench: OneOfThree) -> None:
    bench.say("m2", EpochPrepare((2, "m2")))
    assert bench.state() == (states.WAITING_FOR_PEERS, "epoch 2 is being agreed on; m2 leads")


def test_an_excluded_master_says_how_far_it_is_behind(bench: OneOfThree) -> None:
    # Given that the others are in an epoch without it, and that one of them has synchronised 7,000 transactions
    for sender in ("m2", "m3"):
        row = replace(ROW, node=sender, journal=f"journal-of-{sender}", number=9, epoch=(2, "m2"), lsn=7_000)
        bench.say(sender, Post(row, (), ()))
    word, reason = bench.state()
    assert (word, reason.split("; ")[0]) == (states.EXCLUDED, "m2, m3 are in epoch 2, this master in epoch 1")
    assert reason.split("; ")[1:] in ([], ["7,000 transactions to take over from m2"])


def test_a_master_that_needs_what_nobody_holds_says_so_and_needs_a_person(bench: OneOfThree) -> None:
    # Given a master that has promised an epoch whose base is LSN 900, and others that hold LSN 501 and what follows
    bench.say("m2", EpochPrepare((2, "m2")))
    bench.core.sync.tail.aim(900, ["m2"])
    assert bench.state() == (states.CATCHING_UP, "900 transactions to take over from m2 before its next epoch begins")
    # When one answers that the beginning is gone
    bench.say("m2", Tail(1, (), 501))
    # Then that is what it says, whatever else is true
    word, reason = bench.state()
    assert (word, reason) == (
        states.LEFT_BEHIND,
        "LSN 1 is what comes next here; the other masters hold nothing before LSN 501 any more",
    )
    assert word not in states.DEGRADED | states.HEALTHY
    assert "never empty its data directory" in states.ACTIONS[word]
