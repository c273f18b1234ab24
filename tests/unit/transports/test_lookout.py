"""The lookout: an inbox that was seen and is gone is an absence; what was never seen at this broker says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brokerha.transports.lanes import Arrival
from brokerha.transports.rabbitmq.reader import Lookout
from brokerha.transports.rabbitmq.reader_wishes import Sightings

NOT_FOUND, RESOURCE_LOCKED = 404, 405


class Channel:
    """Remembers what was asked; a test answers for the broker."""

    def __init__(self, on_answer: Callable[[str], None], on_closed: Callable[[str], None]) -> None:
        self.close_code = 0
        self.asked = ""
        self.is_own = on_answer
        self._on_closed = on_closed

    def look(self, queue: str) -> None:
        self.asked = queue

    def answer(self, code: int) -> None:
        self.close_code = code
        self._on_closed("as the code says")


class Broker:
    """A lookout from second 3 on, and the channels that it opens."""

    def __init__(self, sightings: Sightings | None = None) -> None:
        self.channels: list[Channel] = []
        self.arrived: list[Arrival] = []
        self.sightings = sightings or Sightings()
        self.lookout = Lookout(self._open, self.arrived, self.sightings, 3.0)

    def _open(self, on_answer: Callable[[str], None], on_closed: Callable[[str], None]) -> Any:
        self.channels.append(Channel(on_answer, on_closed))
        return self.channels[-1]

    def asked(self) -> list[str]:
        return [channel.asked for channel in self.channels]

    def absent(self) -> list[str]:
        return [arrival.routing_key for arrival in self.arrived]


def test_whoever_is_heard_is_looked_for_once_and_missed_when_its_inbox_is_gone():
    broker = Broker()
    broker.sightings.hear("m2")
    broker.lookout.turn(0.0)
    broker.channels[0].answer(RESOURCE_LOCKED)
    broker.lookout.turn(1.0)
    assert broker.asked() == ["brokerha.m2.sync"]
    broker.lookout.look(["m2"], 4.0)
    broker.channels[1].answer(NOT_FOUND)
    assert broker.absent() == ["m2"]


def test_an_inbox_that_was_never_seen_here_says_nothing():
    broker = Broker()
    broker.lookout.look(["m2"], 4.0)
    broker.channels[0].answer(NOT_FOUND)
    assert broker.absent() == []


def test_one_is_asked_after_the_other_and_each_answer_counts_for_its_own():
    broker = Broker()
    broker.lookout.look(["m2", "m3"], 4.0)
    assert broker.asked() == ["brokerha.m2.sync"]
    broker.channels[0].answer(RESOURCE_LOCKED)
    broker.channels[1].answer(RESOURCE_LOCKED)
    broker.lookout.look(["m2", "m3"], 5.0)
    broker.channels[2].answer(RESOURCE_LOCKED)
    broker.channels[3].answer(NOT_FOUND)
    assert broker.absent() == ["m3"]


def test_while_the_own_connection_is_young_only_those_are_missed_that_it_has_seen():
    # Given two that were seen through an earlier connection, of which one is there again
    first = Broker()
    for node in ("m2", "m3"):
        first.sightings.hear(node)
    first.lookout.turn(0.0)
    first.channels[0].answer(RESOURCE_LOCKED)
    first.channels[1].answer(RESOURCE_LOCKED)
    second = Broker(first.sightings)
    second.lookout.turn(0.0)
    second.channels[0].answer(RESOURCE_LOCKED)
    second.channels[1].answer(NOT_FOUND)
    # When both are missed at once
    second.lookout.look(["m2", "m3"], 1.0)
    second.channels[2].answer(NOT_FOUND)
    # Then the absence of the one counts; the other may not be back yet, and is asked for later
    assert len(second.channels) == 3
    assert second.absent() == ["m2"]
    second.lookout.look(["m3"], 4.0)
    second.channels[3].answer(NOT_FOUND)
    assert second.absent() == ["m2", "m3"]


def test_a_new_connection_remembers_who_was_seen_and_looks_for_all():
    # Given a connection that has seen one of two, and was lost before it heard of the other
    first = Broker()
    for node in ("m2", "m3"):
        first.sightings.hear(node)
    first.lookout.turn(0.0)
    first.channels[0].answer(RESOURCE_LOCKED)
    # When the next one takes over, and finds neither
    second = Broker(first.sightings)
    second.lookout.turn(0.0)
    assert second.asked() == ["brokerha.m2.sync"]
    second.channels[0].answer(NOT_FOUND)
    second.channels[1].answer(NOT_FOUND)
    # Then only the one that was ever seen is missed
    second.lookout.look(["m2", "m3"], 4.0)
    second.channels[2].answer(NOT_FOUND)
    second.channels[3].answer(NOT_FOUND)
    assert second.absent() == ["m2"]


def test_the_own_inbox_says_nothing_and_the_next_question_goes_over_the_same_channel():
    broker = Broker()
    for node in ("m1", "m2"):
        broker.sightings.hear(node)
    broker.lookout.turn(0.0)
    broker.channels[0].is_own("brokerha.m1.sync")
    assert broker.asked() == ["brokerha.m2.sync"]
    broker.channels[0].answer(RESOURCE_LOCKED)
    broker.lookout.look(["m2"], 4.0)
    broker.channels[1].answer(NOT_FOUND)
    assert broker.absent() == ["m2"]
