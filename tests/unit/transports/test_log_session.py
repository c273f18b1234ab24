"""How the log is published on one connection: where it goes on, one confirmed step after another, never a gap."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from amqp.exceptions import NotFound, RecoverableConnectionError

from brokerha.model.errors import JournalError
from brokerha.model.log_lineages import Rewinds
from brokerha.ports.log_stream import LogBatch, PublishedChange
from brokerha.transports.config import TransportConfig
from brokerha.transports.link import LinkState
from brokerha.transports.log_stream.messages import GROUP_CHANGES, groups_of, next_lsn, rewinds_in, void_after
from brokerha.transports.log_stream.stream import GAP_S, JOURNAL_PAUSE_S, LogSession, LogStream, News


class Channel:
    """Writes down publications; has one last message in its stream, or no stream at all."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.events: dict[str, set[Callable[..., None]]] = defaultdict(set)
        self.published: list[Any] = []

    def queue_declare(self, queue: str, *, passive: bool = False, **_options: Any) -> None:
        if passive and not self.wire.has_stream:
            raise NotFound("no queue")
        self.wire.has_stream = True

    def basic_consume(self, callback: Callable[[Any], None], **_options: Any) -> None:
        self.wire.on_message = callback

    def basic_publish(self, message: Any, exchange: str, key: str, *, mandatory: bool) -> None:
        self.published.append(SimpleNamespace(message=message, exchange=exchange, key=key, mandatory=mandatory))

    def tell(self, event: str, *facts: Any) -> None:
        for callback in self.events[event]:
            callback(*facts)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_given, **_named: None


class Wire:
    """A connection: its channels, and what a drain delivers."""

    def __init__(self, *, has_stream: bool = False, last: dict[str, Any] | None = None) -> None:
        self.has_stream = has_stream
        self.last = last
        self.on_message: Callable[[Any], None] = lambda _message: None
        self.channels: list[Channel] = []
        self.connection = self

    def channel(self) -> Channel:
        self.channels.append(Channel(self))
        return self.channels[-1]

    def drain_events(self, timeout: float) -> None:
        if self.last is None:
            raise TimeoutError
        self.on_message(SimpleNamespace(properties={"application_headers": self.last}))
        self.last = None


class Committed:
    """A log of so many LSNs, two in a batch, each with ``changes`` changes."""

    journal = "j1"

    def __init__(self, last_lsn: int, changes: int = 0, held_from: int = 1) -> None:
        self.last_lsn = last_lsn
        self.changes = changes
        self.held_from = held_from
        self.is_broken = False
        self.went: Rewinds = ()

    def rewinds(self) -> Rewinds:
        return self.went

    def first_lsn(self) -> int:
        return self.held_from

    def batch(self, first_lsn: int, last_lsn: int) -> LogBatch | None:
        if self.is_broken:
            raise JournalError("cannot be read")
        end = min(self.last_lsn, last_lsn)
        if not self.held_from <= first_lsn <= end:
            return None
        changes = tuple(PublishedChange(first_lsn, "t", "table.t.put", b"c") for _ in range(self.changes))
        return LogBatch(first_lsn, min(first_lsn + 1, end), (b"body",), changes, rewinds=self.went)


class Publishing:
    """A session on a wire, and a clock that the test sets."""

    def __init__(self, committed: Committed, wire: Wire | None = None) -> None:
        self.wire = wire or Wire()
        self.committed = committed
        self.news = News()
        self.news.shown = 1 << 40
        self.state = LinkState(["log"])
        connection: Any = self.wire
        self.session = LogSession(connection, "m1", "c", committed, self.news, self.state, TransportConfig())
        self.now_s = time.monotonic()

    @property
    def channel(self) -> Channel:
        return next(channel for channel in self.wire.channels if channel.events)

    def turn(self, later_s: float = 0.0) -> float:
        self.now_s += later_s
        return self.session.turn(self.now_s) - self.now_s

    def ids(self) -> list[str]:
        """Message ids of the log messages, and keys of the changes, as published."""
        return [each.message.properties.get("message_id", each.key) for each in self.channel.published]


@pytest.mark.parametrize(
    ("last", "first_held", "expected"),
    [
        (None, 1, 1),
        (None, 7, 7),
        ({"journal": "j1", "last_lsn": 9}, 1, 10),
        ({"journal": "j1", "last_lsn": 9, "part": 2, "parts": 3}, 1, 9),
        ({"journal": "j1", "last_lsn": 9, "part": 3, "parts": 3}, 1, 10),
        ({"journal": "j1", "last_lsn": 9}, 20, 20),
        ({"journal": "another", "last_lsn": 9}, 3, 3),
        ({"journal": "j1", "last_lsn": "nonsense"}, 1, 1),
        ({}, 1, 1),
    ],
)
def test_it_goes_on_after_the_last_whole_message_of_its_own_journal(last: dict[str, Any] | None, first_held: int, expected: int):
    assert next_lsn(last, "j1", first_held) == expected


def test_a_batch_is_its_changes_in_groups_and_then_the_log_message():
    change = PublishedChange(5, "t", "table.t.put", b"c")
    batch = LogBatch(5, 6, (b"one", b"two"), (change,) * (GROUP_CHANGES + 1))
    groups = groups_of(batch, "m1", "c", "j1")
    assert [len(group) for group in groups] == [GROUP_CHANGES, 1, 1, 1]
    assert [group[0].is_log for group in groups] == [False, False, True, True]
    headers = [group[0].properties["application_headers"] for group in groups]
    assert headers[0] == {"lsn": 5, "txid": "t", "cluster": "c", "node": "m1"}
    assert headers[3] == {
        "first_lsn": 5, "last_lsn": 6, "cluster": "c", "node": "m1", "journal": "j1", "part": 2, "parts": 2,
    }  # fmt: skip
    assert groups[2][0].properties["message_id"] == "5-6"
    assert groups[2][0].key == "brokerha.m1.log"


def test_one_message_is_on_its_way_and_the_next_waits_for_its_confirmation_and_for_the_gap():
    publishing = Publishing(Committed(4))
    publishing.turn()
    publishing.turn(1.0)
    assert publishing.ids() == ["1-2"]
    assert publishing.channel.published[0].mandatory
    publishing.channel.tell("basic_ack", 1, False)
    assert publishing.news.published == 2
    publishing.turn()
    assert publishing.ids() == ["1-2", "3-4"]


def test_the_next_batch_is_not_published_before_its_time():
    publishing = Publishing(Committed(4))
    publishing.turn()
    publishing.channel.tell("basic_ack", 1, False)
    assert 0 < publishing.turn(GAP_S / 2) <= GAP_S
    assert publishing.ids() == ["1-2"]
    publishing.turn(GAP_S)
    assert publishing.ids() == ["1-2", "3-4"]


def test_what_backups_may_not_hold_yet_is_not_published():
    publishing = Publishing(Committed(3))
    publishing.news.shown = 1
    publishing.turn()
    publishing.channel.tell("basic_ack", 1, False)
    publishing.turn(GAP_S)
    assert (publishing.ids(), publishing.news.is_asleep) == (["1-1"], True)
    publishing.news.shown = 3
    publishing.turn(GAP_S)
    assert publishing.ids() == ["1-1", "2-3"]


def test_it_sleeps_when_all_is_published_and_says_so():
    publishing = Publishing(Committed(0))
    said = [publishing.news.is_asleep]
    publishing.turn()
    said.append(publishing.news.is_asleep)
    publishing.committed.last_lsn = 1
    publishing.turn()
    assert [*said, publishing.news.is_asleep] == [False, True, False]
    assert publishing.ids() == ["1-1"]


def test_the_log_message_follows_when_all_its_changes_are_confirmed():
    publishing = Publishing(Committed(1, changes=2))
    publishing.turn()
    assert publishing.ids() == ["table.t.put"] * 2
    assert not publishing.channel.published[0].mandatory
    publishing.channel.tell("basic_ack", 1, False)
    publishing.turn()
    assert len(publishing.ids()) == 2
    publishing.channel.tell("basic_ack", 2, False)
    assert publishing.news.published == 0
    publishing.turn()
    assert publishing.ids()[2:] == ["1-1"]


def test_a_refused_change_holds_up_nobody_and_is_counted():
    publishing = Publishing(Committed(1, changes=2))
    publishing.turn()
    publishing.channel.tell("basic_nack", 2, True)
    publishing.turn()
    assert publishing.ids()[2:] == ["1-1"]


def test_a_refused_log_message_is_published_again_after_a_pause_and_nothing_overtakes_it():
    publishing = Publishing(Committed(4))
    publishing.turn()
    publishing.channel.tell("basic_nack", 1, False)
    publishing.turn()
    assert publishing.ids() == ["1-2"]
    publishing.turn(5.0 - 0.1)
    assert publishing.ids() == ["1-2", "1-2"]
    publishing.channel.tell("basic_ack", 2, False)
    assert publishing.news.published == 2


def test_a_log_message_that_is_returned_ends_the_connection_before_its_confirmation_counts():
    publishing = Publishing(Committed(1))
    publishing.turn()
    with pytest.raises(RecoverableConnectionError):
        publishing.channel.tell("basic_return", Exception("312"), "", "brokerha.m1.log", None)
    assert publishing.news.published == 0


def test_a_broker_that_does_not_confirm_is_left_unless_it_said_that_it_is_blocked():
    publishing = Publishing(Committed(1))
    publishing.turn()
    publishing.state.block("log", "memory")
    publishing.turn(1000.0)
    publishing.state.unblock("log")
    publishing.turn(1.0)
    with pytest.raises(RecoverableConnectionError):
        publishing.turn(1000.0)


def test_a_stream_that_is_there_says_where_to_go_on():
    wire = Wire(has_stream=True, last={"journal": "j1", "last_lsn": 3})
    publishing = Publishing(Committed(5), wire)
    assert publishing.news.published == 3
    publishing.turn()
    assert publishing.ids() == ["4-5"]


def test_an_empty_stream_is_filled_from_the_first_lsn_that_is_held():
    publishing = Publishing(Committed(9, held_from=8), Wire(has_stream=True))
    publishing.turn()
    assert publishing.ids() == ["8-9"]


def test_a_stream_that_vanishes_is_noticed_while_nothing_is_published():
    publishing = Publishing(Committed(0))
    publishing.turn()
    publishing.wire.has_stream = False
    with pytest.raises(NotFound):
        publishing.turn(TransportConfig().redeclare_every_ms / 1000 + 1)


def test_a_log_that_was_trimmed_meanwhile_goes_on_with_what_is_held():
    publishing = Publishing(Committed(0))
    publishing.committed.held_from, publishing.committed.last_lsn = 11, 12
    publishing.turn()
    publishing.turn()
    assert publishing.ids() == ["11-12"]


def test_a_journal_that_cannot_be_read_is_tried_again_later_on_the_same_connection():
    publishing = Publishing(Committed(2))
    publishing.committed.is_broken = True
    publishing.turn()
    publishing.committed.is_broken = False
    publishing.turn()
    assert publishing.ids() == []
    publishing.turn(JOURNAL_PAUSE_S)
    assert publishing.ids() == ["1-2"]


@pytest.mark.parametrize(
    ("last", "first_held", "expected", "void"),
    [
        ({"journal": "j1", "last_lsn": 9}, 1, 5, 4),
        ({"journal": "j1", "last_lsn": 9}, 7, 7, 4),
        ({"journal": "j1", "last_lsn": 4}, 1, 5, None),
        ({"journal": "j1", "last_lsn": 5, "part": 1, "parts": 2}, 1, 5, None),
        ({"journal": "j1", "last_lsn": 3}, 1, 4, None),
        ({"journal": "j1/5", "last_lsn": 9}, 1, 7, 6),
        ({"journal": "j1/7", "last_lsn": 9}, 1, 10, None),
        ({"journal": "another", "last_lsn": 9}, 3, 3, None),
        (None, 3, 3, None),
    ],
)
def test_a_stream_of_an_older_lineage_goes_on_after_the_place_to_which_the_log_went_back(
    last: dict[str, Any] | None, first_held: int, expected: int, void: int | None
):
    rewinds = ((5, 4), (7, 6))
    assert next_lsn(last, "j1", first_held, rewinds) == expected
    assert void_after(last, "j1", rewinds) == void


def test_messages_say_their_lineage_once_the_log_has_gone_back():
    change = PublishedChange(7, "t", "table.t.put", b"c")
    groups = groups_of(LogBatch(7, 7, (b"one",), (change,), rewinds=((5, 4), (7, 6))), "m1", "c", "j1")
    (one,), (other,) = groups
    assert one.properties["application_headers"]["lineage"] == 7
    headers = other.properties["application_headers"]
    assert headers["journal"] == "j1/7"
    assert rewinds_in(headers) == ((5, 4), (7, 6))
    assert rewinds_in({}) == rewinds_in({"rewinds": "nonsense"}) == rewinds_in({"rewinds": 7}) == ()


def test_a_log_that_goes_back_while_it_is_published_is_told_and_goes_on_after_that_place():
    publishing = Publishing(Committed(4))
    publishing.turn()
    publishing.channel.tell("basic_ack", 1, False)
    publishing.turn(GAP_S)
    publishing.channel.tell("basic_ack", 2, False)
    publishing.turn(GAP_S)
    assert (publishing.ids(), publishing.news.is_asleep) == (["1-2", "3-4"], True)
    publishing.committed.went, publishing.committed.last_lsn = ((5, 1),), 3
    publishing.turn(GAP_S)
    publishing.channel.tell("basic_ack", 3, False)
    assert publishing.news.published == 1
    publishing.turn(GAP_S)
    publishing.channel.tell("basic_ack", 4, False)
    publishing.turn(GAP_S)
    publishing.channel.tell("basic_ack", 5, False)
    assert publishing.ids()[2:] == ["log.m1.went-back", "2-1", "2-3"]
    assert publishing.news.published == 3
    told = publishing.channel.published[2].message
    assert msgpack.unpackb(told.body) == ["went-back", 1, 5]


def test_a_log_that_went_back_meanwhile_is_told_by_the_next_connection():
    committed = Committed(5)
    committed.went = ((5, 3),)
    publishing = Publishing(committed, Wire(has_stream=True, last={"journal": "j1", "last_lsn": 5}))
    for number in range(1, 4):
        publishing.turn(GAP_S)
        publishing.channel.tell("basic_ack", number, False)
    assert publishing.ids() == ["log.m1.went-back", "4-3", "4-5"]


def test_a_lineage_that_begins_after_all_that_was_published_is_nothing_to_tell():
    publishing = Publishing(Committed(2))
    publishing.turn()
    publishing.channel.tell("basic_ack", 1, False)
    publishing.committed.went, publishing.committed.last_lsn = ((5, 2),), 3
    publishing.turn(GAP_S)
    publishing.turn(GAP_S)
    assert publishing.ids() == ["1-2", "3-3"]


def test_less_to_publish_than_before_wakes_who_sleeps():
    stream = LogStream("amqp://localhost", "c", "m1", Committed(4))
    news = stream._news
    stream.note(4)
    news.published, news.is_asleep = 4, True
    stream.note(4)
    assert news.is_asleep
    stream.note(2)
    assert not news.is_asleep
