"""Entries whose order is known elsewhere: asked for in parts, of one holder after the other, taken over with their bodies only."""

from __future__ import annotations

from itertools import pairwise

import pytest

from brokerha.model.ids import NodeId, Ordered, TxId
from brokerha.model.wire.epoch_messages import Tail, TailWanted
from brokerha.model.wire.messages import Fetch, Outgoing
from brokerha.sync import catching_up
from brokerha.sync.catching_up import Missing, TailReader

AGAIN_MS = 250
SOURCES = ("m2", "m3")


class Bodies:
    """Which bodies are here."""

    def __init__(self, *txids: TxId) -> None:
        self.here = set(txids)

    def has(self, _origin: NodeId, txid: TxId) -> bool:
        return txid in self.here


def entries(*txids: TxId) -> list[Ordered]:
    return [(10 + place, txid, "m1") for place, txid in enumerate(txids)]


def wanted(requests: list[Outgoing]) -> list[str]:
    """The ids that each request names, as one word."""
    return ["".join(txid for _, txid in out.message.wanted) for out in requests if isinstance(out.message, Fetch)]


# ---- entries that wait for their bodies


def test_only_the_head_goes_on_as_far_as_its_bodies_are_here() -> None:
    missing = Missing(entries("a", "b", "c", "d"))
    bodies = Bodies("a", "b", "d")
    assert missing.take(bodies.has) == entries("a", "b", "c", "d")[:2]
    assert len(missing) == 2
    assert missing.take(bodies.has) == []
    bodies.here.add("c")
    assert [txid for _, txid, _ in missing.take(bodies.has)] == ["c", "d"]
    assert len(missing) == 0


def test_what_is_missing_is_asked_for_and_nothing_else() -> None:
    missing = Missing(entries("a", "b"))
    missing.extend(entries("c"))
    asked = missing.fetch(Bodies("b").has, SOURCES, 1000, AGAIN_MS)
    assert asked == [Outgoing("m2", Fetch((("m1", "a"), ("m1", "c"))))]


def test_the_same_is_asked_of_the_next_holder_when_nothing_came() -> None:
    missing = Missing(entries("a"))
    bodies = Bodies()
    assert missing.due_ms(AGAIN_MS) is None
    missing.fetch(bodies.has, SOURCES, 1000, AGAIN_MS)
    # Not before its time
    assert missing.due_ms(AGAIN_MS) == 1000 + AGAIN_MS
    assert missing.fetch(bodies.has, SOURCES, 1000 + AGAIN_MS - 1, AGAIN_MS) == []
    # Then the next one, and then the first one again
    assert [
        missing.fetch(bodies.has, SOURCES, 1000 + n * AGAIN_MS, AGAIN_MS)[0].to for n in (1, 3)
    ] == ["m3", "m2"]  # fmt: skip


def test_more_is_asked_for_ahead_as_what_was_asked_for_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given requests of two bodies each, of which two may be on their way
    monkeypatch.setattr(catching_up, "FETCH_LIMIT", 2)
    monkeypatch.setattr(catching_up, "ASKED_LIMIT", 4)
    missing, bodies = Missing(entries(*"abcdefg")), Bodies()
    assert wanted(missing.fetch(bodies.has, SOURCES, 1000, AGAIN_MS)) == ["ab", "cd"]
    assert missing.fetch(bodies.has, SOURCES, 1001, AGAIN_MS) == []
    # When one body has come there is no room for another request, when two have there is
    bodies.here.add("a")
    missing.take(bodies.has)
    assert missing.fetch(bodies.has, SOURCES, 1002, AGAIN_MS) == []
    bodies.here.add("b")
    missing.take(bodies.has)
    assert wanted(missing.fetch(bodies.has, SOURCES, 1003, AGAIN_MS)) == ["ef"]
    # And when nothing comes for long, what is not here is asked for again, of the next one, and no more than one request
    bodies.here.add("d")
    again = missing.fetch(bodies.has, SOURCES, 1003 + AGAIN_MS, AGAIN_MS)
    assert (wanted(again), {out.to for out in again}) == (["c"], {"m3"})


def test_nothing_is_asked_for_without_anything_missing_or_anybody_to_ask() -> None:
    assert Missing().fetch(Bodies().has, SOURCES, 1000, AGAIN_MS) == []
    assert Missing(entries("a")).fetch(Bodies().has, (), 1000, AGAIN_MS) == []
    assert Missing().due_ms(AGAIN_MS) is None


def test_a_request_for_bodies_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "FETCH_LIMIT", 2)
    asked = Missing(entries("a", "b", "c")).fetch(Bodies().has, SOURCES, 1000, AGAIN_MS)
    assert asked == [Outgoing("m2", Fetch((("m1", "a"), ("m1", "b")))), Outgoing("m2", Fetch((("m1", "c"),)))]


# ---- a part of the synchronised queue


def aimed(target: int) -> TailReader:
    tail = TailReader()
    tail.aim(target, SOURCES)
    return tail


def test_a_tail_is_asked_for_taken_in_and_given_on_with_its_bodies() -> None:
    # Given a queue that ends at 5 and is to end at 8
    tail, bodies = aimed(8), Bodies("f", "g")
    assert tail.messages(5, bodies.has, 1000, AGAIN_MS) == [Outgoing("m2", TailWanted(6, 8))]
    # When all of it comes, one body of which is not here
    tail.on_tail(5, Tail(6, tuple(entries("f", "g", "h"))))
    # Then what is complete goes on, and the body is asked for when it has not come; the entries are not asked for again
    assert [txid for _, txid, _ in tail.take(5, bodies.has)] == ["f", "g"]
    assert tail.messages(7, bodies.has, 1001, AGAIN_MS) == []
    assert tail.due_ms(7, AGAIN_MS) == 1001 + AGAIN_MS
    asked = tail.messages(7, bodies.has, 1001 + AGAIN_MS, AGAIN_MS)
    assert asked == [Outgoing("m3", Fetch((("m1", "h"),))), Outgoing("m3", TailWanted(8, 8))]
    assert tail.messages(7, bodies.has, 1002 + AGAIN_MS, AGAIN_MS) == []
    bodies.here.add("h")
    assert [txid for _, txid, _ in tail.take(7, bodies.has)] == ["h"]
    # And at the target nothing is wanted any more
    assert tail.messages(8, bodies.has, 5000, AGAIN_MS) == []
    assert tail.due_ms(8, AGAIN_MS) is None
    assert tail.take(8, bodies.has) == []


def test_one_that_does_not_answer_is_left_for_the_next_one() -> None:
    tail = aimed(8)
    assert tail.due_ms(5, AGAIN_MS) is None
    asked = [tail.messages(5, Bodies().has, 1000 + n * AGAIN_MS, AGAIN_MS) for n in (0, 1, 2, 3)]
    assert [out.to for messages in asked for out in messages] == ["m2", "m3", "m2"]
    assert tail.messages(5, Bodies().has, 1001 + 3 * AGAIN_MS, AGAIN_MS) == []
    assert tail.due_ms(5, AGAIN_MS) == 1000 + 7 * AGAIN_MS


def test_the_next_part_is_asked_for_at_once_of_the_one_that_answered() -> None:
    tail, bodies = aimed(8), Bodies("f", "g", "h")
    tail.messages(5, bodies.has, 1000, AGAIN_MS)
    tail.on_tail(5, Tail(6, tuple(entries("f"))))
    assert len(tail.take(5, bodies.has)) == 1
    assert tail.messages(6, bodies.has, 1001, AGAIN_MS) == [Outgoing("m2", TailWanted(7, 8))]


@pytest.mark.parametrize(
    ("tail", "taken"),
    [
        (Tail(4, tuple(entries("d", "e", "f"))), ["f"]),  # the head is known
        (Tail(6, tuple(entries("f", "g", "h", "i", "j"))), ["f", "g", "h"]),  # it reaches beyond the target
        (Tail(7, tuple(entries("g"))), []),  # a gap
        (Tail(4, tuple(entries("d", "e"))), []),  # all of it is known
        (Tail(6, ()), []),
    ],
)
def test_what_is_known_or_leaves_a_gap_or_was_not_wanted_is_left_out(tail: Tail, taken: list[TxId]) -> None:
    reader, bodies = aimed(8), Bodies(*"defghij")
    reader.on_tail(5, tail)
    assert [txid for _, txid, _ in reader.take(5, bodies.has)] == taken


def test_the_same_answer_twice_is_taken_in_once() -> None:
    reader, bodies = aimed(8), Bodies(*"fgh")
    for _ in range(2):
        reader.on_tail(5, Tail(6, tuple(entries("f", "g", "h"))))
    assert len(reader.take(5, bodies.has)) == 3


def test_it_is_known_when_no_source_holds_what_comes_next() -> None:
    reader = aimed(80)
    reader.on_tail(5, Tail(6, (), kept_from=40))
    assert reader.kept_from == 40
    # And no longer when another one does
    reader.on_tail(5, Tail(6, tuple(entries("f")), kept_from=3))
    assert reader.kept_from == 0


def test_the_queue_of_a_source_that_went_another_way_meanwhile_is_not_taken_in() -> None:
    # Given a decision that says which transaction is at the target
    reader, bodies = TailReader(), Bodies("f", "g", "x")
    reader.aim(7, SOURCES, "g")
    # When a source answers whose queue has another one there, then nothing of that is taken in
    reader.on_tail(5, Tail(6, tuple(entries("f", "x"))))
    assert reader.take(5, bodies.has) == []
    # And what leads to the right one is
    reader.on_tail(5, Tail(6, tuple(entries("f", "g"))))
    assert [txid for _, txid, _ in reader.take(5, bodies.has)] == ["f", "g"]


def test_nobody_is_asked_when_nobody_is_known_to_have_it() -> None:
    reader = TailReader()
    reader.aim(8, [])
    assert reader.messages(5, Bodies().has, 1000, AGAIN_MS) == []
    assert reader.due_ms(5, AGAIN_MS) is None


def test_entries_that_wait_for_bodies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catching_up, "TAIL_LIMIT", 2)
    reader = aimed(9)
    reader.on_tail(5, Tail(6, tuple(entries("f", "g"))))
    assert reader.messages(5, Bodies().has, 1000, AGAIN_MS) == []


def test_the_next_part_is_waited_for_as_long_as_bodies_come() -> None:
    reader, bodies = aimed(80), Bodies("f")
    reader.on_tail(5, Tail(6, tuple(entries("f", "g"))))
    assert [out.message for out in reader.messages(5, bodies.has, 1000, AGAIN_MS)] == [TailWanted(8, 80)]
    assert len(reader.take(5, bodies.has)) == 1
    assert reader.messages(6, bodies.has, 1000 + AGAIN_MS, AGAIN_MS) == []
    assert [type(out.message) for out in reader.messages(6, bodies.has, 1000 + 2 * AGAIN_MS, AGAIN_MS)] == [
        Fetch,
        TailWanted,
        TailWanted,
    ]


def test_what_was_taken_in_otherwise_is_forgotten() -> None:
    # Given entries that wait for a body, and a queue that has come to the target without them
    reader, bodies = aimed(6), Bodies()
    reader.on_tail(5, Tail(6, tuple(entries("f"))))
    assert reader.take(6, bodies.has) == []
    # Then the next target begins anew behind it
    reader.aim(7, SOURCES)
    assert reader.messages(6, bodies.has, 1000, AGAIN_MS) == [Outgoing("m2", TailWanted(7, 7))]


def test_who_gets_no_answer_asks_less_and_less_often() -> None:
    tail = aimed(8)
    asked = [at for at in range(0, 6000, 50) if tail.messages(5, Bodies().has, at, AGAIN_MS)]
    assert asked[:4] == [0, 250, 750, 1750]
    assert [later - at for at, later in pairwise(asked[3:])] == [1000] * len(asked[4:])
