"""A master that cannot agree with the others: what a write that does not want to wait is told, and when the master counts as apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerha.master.state_words import apart_state, is_alone, news_ms
from brokerha.model import states
from brokerha.model.requests import ACCEPTED, REFUSE, REFUSED, WAIT, Reply
from brokerha.model.wire.epoch_messages import EpochPrepare
from brokerha.model.wire.messages import Post
from tests.unit.master.one_of_three import ROW, OneOfThree


class Bench(OneOfThree):
    """It, with writers that may not want to wait."""

    def submit(self, txid: str, apart: str = WAIT, body: bytes = b"body") -> list[Reply]:
        """Hand a write in; what is answered at once."""
        return self.write(txid, ACCEPTED, body=body, apart=apart)

    def found(self) -> str:
        """The word of the state that it is apart in; empty when it is not apart."""
        found = apart_state(self.core.sync, self.ms)
        return found[0] if found else ""


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.post("m2", "m3")
    assert made.state() == (states.OK, "")
    return made


def test_a_master_that_agrees_takes_a_write_whatever_it_says(bench: Bench) -> None:
    assert [reply.status for reply in bench.submit("t1", REFUSE)] == [ACCEPTED]


def test_who_does_not_want_to_wait_is_refused_with_the_state_and_nothing_is_written(bench: Bench) -> None:
    bench.wait(3_000)
    before = bench.journal.last_number
    (reply,) = bench.submit("t1", REFUSE)
    assert (reply.status, reply.error) == (REFUSED, "ReadOnly")
    assert reply.reason == (
        "m1 cannot agree with the other masters now (no-majority: 2 of 3 masters are needed, not heard: m2, m3): "
        "ask another one, or again later"
    )
    assert bench.journal.last_number == before
    assert not bench.core.transacting.is_known("t1")


def test_by_default_a_write_is_taken_in_and_waits(bench: Bench) -> None:
    bench.wait(3_000)
    (reply,) = bench.submit("t1")
    assert reply.status == ACCEPTED
    assert bench.core.transacting.is_known("t1")


def test_a_write_that_was_taken_in_before_is_attached_to_and_not_refused(bench: Bench) -> None:
    # Given a write that waits here: to refuse it now would tell its sender that it will never take place.
    bench.wait(3_000)
    bench.submit("t1")
    assert [reply.status for reply in bench.submit("t1", REFUSE)] == [ACCEPTED]
    assert [reply.error for reply in bench.submit("t1", REFUSE, b"another")] == ["KeyReused"]


def test_a_write_that_was_refused_is_taken_in_once_the_others_are_heard(bench: Bench) -> None:
    bench.wait(3_000)
    assert bench.submit("t1", REFUSE)[0].status == REFUSED
    bench.post("m2", "m3")
    assert bench.submit("t1", REFUSE)[0].status == ACCEPTED


def test_waiting_for_one_member_is_apart_and_not_alone(bench: Bench) -> None:
    for _ in range(3):
        bench.wait(1_000)
        bench.post("m2")
    found = apart_state(bench.core.sync, bench.ms)
    assert found is not None
    assert found[0] == states.WAITING_FOR_PEERS
    assert not is_alone(found)
    assert bench.submit("t1", REFUSE)[0].status == REFUSED


def test_a_member_that_others_hear_keeps_nobody_from_agreeing(bench: Bench) -> None:
    # Given that the link to m3 is broken, and that m2 passes on what m3 says
    for _ in range(4):
        bench.wait(1_000)
        bench.number += 2
        relayed = replace(ROW, node="m3", journal="journal-of-m3", number=bench.number)
        bench.say("m2", Post(replace(ROW, node="m2", journal="journal-of-m2", number=bench.number), (relayed,), ()))
    assert bench.state()[0] == states.WAITING_FOR_PEERS
    # Then m1 is not apart, until nothing comes through m2 either
    assert bench.found() == ""
    assert bench.submit("t1", REFUSE)[0].status == ACCEPTED
    for _ in range(3):
        bench.wait(1_000)
        bench.post("m2")
    assert bench.found() == states.WAITING_FOR_PEERS


def test_a_majority_of_which_most_is_heard_of_through_one_is_one() -> None:
    # Given m1 of five masters, which hears m2 alone, and m2 passes on what the others say
    bench = Bench(("m1", "m2", "m3", "m4", "m5"))
    others = ("m2", "m3", "m4", "m5")
    bench.post(*others)
    for _ in range(4):
        bench.wait(1_000)
        bench.number += 1
        m2, *relayed = [replace(ROW, node=m, journal=f"journal-of-{m}", number=bench.number) for m in others]
        bench.say("m2", Post(m2, tuple(relayed), ()))
    assert bench.state()[0] == states.NO_MAJORITY
    # Then it agrees with them all the same, until m2 is silent too
    assert bench.found() == ""
    bench.wait(2_000)
    assert bench.found() == states.NO_MAJORITY


def test_an_excluded_master_is_alone(bench: Bench) -> None:
    for sender in ("m2", "m3"):
        row = replace(ROW, node=sender, journal=f"journal-of-{sender}", number=9, epoch=(2, "m2"))
        bench.say(sender, Post(row, (), ()))
    assert bench.found() == states.EXCLUDED
    assert is_alone(apart_state(bench.core.sync, bench.ms))
    assert bench.submit("t1", REFUSE)[0].error == "ReadOnly"


def test_an_epoch_that_is_being_agreed_on_is_apart(bench: Bench) -> None:
    bench.say("m2", EpochPrepare((2, "m2")))
    assert bench.found() == states.WAITING_FOR_PEERS
    assert bench.submit("t1", REFUSE)[0].error == "ReadOnly"


def test_no_majority_is_alone(bench: Bench) -> None:
    bench.wait(3_000)
    assert bench.found() == states.NO_MAJORITY
    assert is_alone(apart_state(bench.core.sync, bench.ms))


def test_news_are_as_old_as_those_of_the_member_heard_of_least_lately(bench: Bench) -> None:
    first_ms = bench.ms
    bench.wait(1_000)
    bench.post("m2")
    assert news_ms(bench.core.sync, bench.ms) == first_ms
    bench.wait(2_000)
    bench.post("m2")
    assert news_ms(bench.core.sync, bench.ms) is None
