"""Inbox, outbox, the window of confirms and the tags of unsettled messages: bounds, order, and nothing twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerha.transports.config import LaneLimit
from brokerha.transports.lanes import (
    BULK_LANE,
    CLIENT_LANE,
    DATA_LANE,
    PLAIN_LANES,
    PUBLICATION_LANES,
    REPLY_LANE,
    SYNC_LANE,
    Arrival,
    ClientTag,
    Inbox,
    Outbox,
    Publication,
    Unconfirmed,
    Unsettled,
)


def publication(text: str, lane: str = SYNC_LANE, queued_s: float = 0.0) -> Publication:
    return Publication(lane, "x", "k", text.encode(), queued_s=queued_s)


def outbox(messages: int = 100, size_bytes: int = 1000) -> Outbox:
    return Outbox(dict.fromkeys(PUBLICATION_LANES, LaneLimit(messages, size_bytes)))


def texts(publications: list[Publication]) -> list[str]:
    return [each.body.decode() for each in publications]


def arrival(text: str, lane: str = SYNC_LANE, generation: int = 1) -> Arrival:
    return Arrival(lane, ClientTag(generation, 1), text.encode(), {}, "x", redelivered=False)


def inbox(limits: dict[str, LaneLimit] | None = None) -> Inbox:
    return Inbox(limits or {})


class TestOutbox:
    def test_what_was_put_in_comes_out_lane_by_lane_and_in_its_order(self):
        box = outbox()
        box.put([publication("d1", DATA_LANE), publication("s1"), publication("r1", REPLY_LANE), publication("s2")])
        assert texts(box.take(PLAIN_LANES, 10, 1000)) == ["s1", "s2", "r1", "d1"]

    def test_a_lane_full_of_messages_drops_its_oldest(self):
        box = outbox(messages=3)
        assert box.put([publication(str(n)) for n in range(5)]) == 2
        assert texts(box.take(PLAIN_LANES, 10, 1000)) == ["2", "3", "4"]

    def test_a_lane_full_of_bytes_drops_its_oldest(self):
        box = outbox(size_bytes=10)
        assert box.put([publication("a" * 6), publication("b" * 6)]) == 1
        assert texts(box.take(PLAIN_LANES, 10, 1000)) == ["b" * 6]

    def test_one_message_above_the_limit_stays_alone(self):
        box = outbox(size_bytes=10)
        assert box.put([publication("a"), publication("b" * 50)]) == 1
        assert texts(box.take(PLAIN_LANES, 10, 1000)) == ["b" * 50]

    def test_a_full_lane_takes_nothing_from_another(self):
        box = outbox(messages=2)
        box.put([publication("d1", DATA_LANE)])
        box.put([publication(str(n)) for n in range(5)])
        assert texts(box.take(PLAIN_LANES, 10, 1000)) == ["3", "4", "d1"]

    @pytest.mark.parametrize(("messages", "size_bytes", "expected"), [(0, 100, 0), (5, 0, 0), (2, 100, 2), (5, 3, 1)])
    def test_take_keeps_to_the_room_that_there_is(self, messages: int, size_bytes: int, expected: int):
        box = outbox()
        box.put([publication("four") for _ in range(5)])
        assert len(box.take(PLAIN_LANES, messages, size_bytes)) == expected
        assert len(box) == 5 - expected

    def test_what_is_put_back_comes_first_again(self):
        box = outbox()
        box.put([publication(text) for text in "abcd"])
        box.put_back(box.take(PLAIN_LANES, 2, 1000))
        assert texts(box.take(PLAIN_LANES, 10, 1000)) == ["a", "b", "c", "d"]

    def test_messages_that_waited_too_long_are_dropped_from_their_lane_only(self):
        box = outbox()
        box.put([publication("old", queued_s=1.0), publication("new", queued_s=3.0)])
        box.put([publication("reply", REPLY_LANE, queued_s=1.0)])
        assert box.drop_older(SYNC_LANE, 2.0) == 1
        assert texts(box.take(PLAIN_LANES, 10, 1000)) == ["new", "reply"]

    def test_other_lanes_stay_where_they_are(self):
        box = outbox()
        box.put([publication("b1", BULK_LANE), publication("d1", DATA_LANE), publication("b2", BULK_LANE)])
        assert texts(box.take([BULK_LANE], 10, 2)) == ["b1"]
        assert box.has_any([BULK_LANE])
        assert texts(box.take(PLAIN_LANES, 10, 1000)) == ["d1"]
        assert not box.has_any(PLAIN_LANES)


class TestInbox:
    def test_sync_comes_before_data_and_data_before_messages_of_apps(self):
        box = inbox()
        box.put([arrival("c", CLIENT_LANE), arrival("d", DATA_LANE), arrival("s")])
        assert [each.body for each in box.take(10)] == [b"s", b"d", b"c"]

    def test_no_more_than_the_limit_is_taken(self):
        box = inbox()
        box.put([arrival(str(n)) for n in range(5)])
        assert [len(box.take(2)) for _ in range(4)] == [2, 2, 1, 0]

    def test_a_lane_over_its_limit_has_no_room_until_something_is_taken(self):
        box = inbox({DATA_LANE: LaneLimit(2, 1000)})
        box.put([arrival("1", DATA_LANE), arrival("2", DATA_LANE)])
        assert not box.has_room(DATA_LANE)
        assert box.has_room(SYNC_LANE)
        box.take(1)
        box.take(1)
        assert box.has_room(DATA_LANE)

    def test_bytes_fill_a_lane_too(self):
        box = inbox({DATA_LANE: LaneLimit(100, 10)})
        box.put([arrival("x" * 10, DATA_LANE)])
        assert not box.has_room(DATA_LANE)

    def test_messages_of_apps_of_an_older_connection_are_dropped_and_others_stay(self):
        box = inbox()
        box.put([arrival("old", CLIENT_LANE, 1), arrival("new", CLIENT_LANE, 2), arrival("node", SYNC_LANE, 1)])
        box.drop_clients_before(2)
        assert [each.body for each in box.take(10)] == [b"node", b"new"]


class TestUnconfirmed:
    def test_one_message_goes_out_until_the_broker_has_answered(self):
        window = Unconfirmed(10, 1000, 100)
        assert window.room() == (1, 1000, 100)
        window.add(publication("abc"), 1.0)
        assert window.room() == (0, 997, 100)
        window.confirm(1, multiple=False, now_s=2.0)
        assert window.room() == (10, 1000, 100)

    def test_bulk_has_a_share_of_its_own(self):
        window = Unconfirmed(10, 1000, 100)
        window.add(publication("abc", BULK_LANE), 1.0)
        window.add(publication("d", DATA_LANE), 1.0)
        assert window.room() == (-1, 996, 97)
        window.confirm(2, multiple=True, now_s=2.0)
        assert window.room() == (10, 1000, 100)

    def test_multiple_confirms_everything_up_to_the_number(self):
        window = Unconfirmed(10, 1000, 100)
        for text in "abcd":
            window.add(publication(text), 1.0)
        assert texts(window.confirm(3, multiple=True, now_s=2.0)) == ["a", "b", "c"]
        assert texts(window.all()) == ["d"]

    def test_a_number_that_was_confirmed_before_confirms_nothing(self):
        window = Unconfirmed(10, 1000, 100)
        window.add(publication("a"), 1.0)
        window.confirm(1, multiple=False, now_s=2.0)
        assert window.confirm(1, multiple=False, now_s=2.0) == []
        assert window.confirm(1, multiple=True, now_s=2.0) == []

    def test_the_oldest_counts_from_when_it_was_sent_or_the_last_answer(self):
        window = Unconfirmed(10, 1000, 100)
        window.add(publication("a"), 1.0)
        window.add(publication("b"), 2.0)
        assert window.oldest_since_s == 1.0
        window.confirm(1, multiple=False, now_s=5.0)
        assert window.oldest_since_s == 5.0


@given(st.data())
def test_every_delivery_is_acknowledged_once_and_only_after_it_was_settled(data: st.DataObject):
    # A model of the broker's side: deliveries that it still holds.
    held: set[int] = set()
    settled: set[int] = set()
    tags, delivered = Unsettled(), 0
    for _ in range(data.draw(st.integers(1, 30))):
        for _ in range(data.draw(st.integers(0, 5))):
            delivered += 1
            held.add(delivered)
            tags.deliver(delivered)
        batch = data.draw(st.lists(st.integers(1, delivered + 2), max_size=6))
        settled |= {tag for tag in batch if tag <= delivered}
        for tag, multiple in tags.settle(batch):
            assert tag in held, "RabbitMQ closes the channel for a tag that it does not know"
            acknowledged = {each for each in held if each <= tag} if multiple else {tag}
            assert acknowledged <= settled
            held -= acknowledged
        assert held == set(range(1, delivered + 1)) - settled
        assert len(tags) == len(held)
