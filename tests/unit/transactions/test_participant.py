"""A participant alone: events that come twice, late, in the wrong order, of another view or never."""

from __future__ import annotations

import pytest

from brokerha.model.ids import Instant
from brokerha.model.ready import FollowTxQueue, LeaveTxQueue
from brokerha.model.wire.messages import Envelope, Message
from brokerha.model.wire.process_messages import TxAnswer, TxEvents, TxJoin, Vote
from brokerha.transactions.config import ParticipantConfig
from brokerha.transactions.participant import Participant
from brokerha.transactions.transaction import body_of, digest_of, packed_each

PIECES = packed_each([("put", "t", b"a", b"1"), ("put", "t", b"b", b"2")])
BODY = body_of(PIECES)
BEGIN = ("begin", b"")
OPERATIONS = [("operation", piece) for piece in PIECES]
PREPARE = ("prepare", digest_of(BODY))
EVENTS = [BEGIN, *OPERATIONS, PREPARE]


class Bench:
    """Participant b1, whose primary is m1, in view 1."""

    def __init__(self, **settings: int) -> None:
        self.core = Participant(ParticipantConfig(**settings))
        self.ms = 1_000

    def hear(self, message: Message) -> None:
        self.core.step(Envelope("c", "m1", 1, message), Instant(self.ms, 0))

    def join(self, txid: str = "t1", view: int = 1) -> None:
        self.hear(TxJoin(txid, view, f"queue-of-{txid}"))

    def events(self, first: int, *events: tuple[str, bytes], txid: str = "t1", view: int = 1) -> None:
        self.hear(TxEvents(txid, view, first, events))

    def answers(self) -> list[tuple[str, int]]:
        self.core.wake(Instant(self.ms, 0))
        messages = [out.message for out in self.core.take_ready().messages]
        return [(message.answer, message.next) for message in messages if isinstance(message, TxAnswer)]

    def prepared(self) -> None:
        self.join()
        self.events(0, *EVENTS)
        self.core.on_record_durable("t1")
        assert self.answers() == [("prepared", 4)]

    def check_empty(self) -> None:
        assert not self.core.joined
        assert not self.core._durable
        assert self.core._bytes == 0
        assert self.core.deadline_ms() is None


def test_prepared_is_said_when_events_digest_and_record_are_here() -> None:
    bench = Bench()
    bench.join()
    assert bench.core.take_ready().tx_queues == (FollowTxQueue("queue-of-t1"),)
    bench.events(0, BEGIN, OPERATIONS[0])
    bench.events(2, OPERATIONS[1])
    assert (bench.answers(), bench.core.bodies("t1")) == ([], None)
    bench.events(3, PREPARE)
    assert (bench.answers(), bench.core.bodies("t1")) == ([], BODY)
    bench.core.on_record_durable("t1")
    assert bench.answers() == [("prepared", 4)]


def test_a_record_that_is_durable_before_the_events_counts_when_they_are_here() -> None:
    bench = Bench()
    bench.core.on_record_durable("t1")
    bench.join()
    bench.events(0, BEGIN, *OPERATIONS)
    assert bench.answers() == []
    bench.events(3, PREPARE)
    assert bench.answers() == [("prepared", 4)]


@pytest.mark.parametrize("decides", ["event", "journal"])
def test_the_end_leaves_nothing_behind(decides: str) -> None:
    bench = Bench()
    bench.prepared()
    if decides == "event":
        bench.events(4, ("commit", b""))
    else:
        bench.core.on_decided("t1")
    ready = bench.core.take_ready()
    assert ready.tx_queues == (LeaveTxQueue("queue-of-t1"),)
    assert [out.message for out in ready.messages] == [TxAnswer("t1", 1, "done", 4)]
    bench.check_empty()


def test_whoever_asks_again_after_the_end_is_told_that_it_is_left() -> None:
    bench = Bench()
    bench.prepared()
    bench.core.on_decided("t1")
    bench.answers()
    bench.join()
    bench.events(0, *EVENTS)
    bench.events(4, ("rollback", b"why"))
    ready = bench.core.take_ready()
    assert ([out.message for out in ready.messages], ready.tx_queues) == ([TxAnswer("t1", 1, "done", 0)] * 2, ())
    bench.check_empty()


def test_who_is_invited_to_another_queue_leaves_the_one_before_and_asks_for_what_it_lacks() -> None:
    bench = Bench(retry_ms=100)
    bench.join()
    bench.events(0, BEGIN)
    bench.core.take_ready()
    bench.hear(TxJoin("t1", 1, "another"))
    assert bench.core.take_ready().tx_queues == (LeaveTxQueue("queue-of-t1"), FollowTxQueue("another"))
    bench.events(3, PREPARE)
    bench.ms += 100
    assert bench.answers() == [("missing", 1)]
    bench.events(1, *OPERATIONS, PREPARE)
    bench.core.on_record_durable("t1")
    assert bench.answers() == [("prepared", 4)]
    bench.core.on_decided("t1")
    assert bench.core.take_ready().tx_queues == (LeaveTxQueue("another"),)


def test_events_count_once_and_in_their_places() -> None:
    bench = Bench()
    bench.join()
    bench.events(0, BEGIN, OPERATIONS[0])
    bench.events(0, BEGIN, OPERATIONS[0])
    bench.events(1, *OPERATIONS)
    bench.events(0, *EVENTS)
    bench.events(3, PREPARE)
    bench.core.on_record_durable("t1")
    assert (bench.answers(), bench.core.bodies("t1")) == ([("prepared", 4)], BODY)


def test_what_is_missing_is_asked_for_with_patience_and_then_refused() -> None:
    bench = Bench(ask_tries=3, retry_ms=100)
    bench.join()
    bench.events(0, BEGIN)
    bench.events(3, PREPARE)
    asked = []
    while not bench.core.joined["t1"].reason:
        asked += [(bench.ms, answer) for answer in bench.answers()]
        bench.ms += 50
    assert asked == [(1000, ("missing", 1)), (1100, ("missing", 1)), (1300, ("missing", 1)), (1600, ("refused", 1))]


def test_a_gap_that_is_filled_is_forgotten() -> None:
    bench = Bench()
    bench.join()
    bench.events(3, PREPARE)
    assert bench.answers() == [("missing", 0)]
    bench.events(0, *EVENTS)
    assert bench.core.joined["t1"].ask_at_ms is None
    bench.core.on_record_durable("t1")
    assert bench.answers() == [("prepared", 4)]


def test_another_digest_is_refused_and_said_again() -> None:
    bench = Bench()
    bench.join()
    bench.events(0, BEGIN, OPERATIONS[0], ("prepare", digest_of(BODY)))
    bench.core.on_record_durable("t1")
    bench.join()
    assert bench.answers() == [("refused", 3)] * 2
    assert bench.core.bodies("t1") is None
    bench.events(3, ("rollback", b""))
    bench.check_empty()


def test_limits_are_refused() -> None:
    bench = Bench(open_limit=1, bytes_limit=30)
    bench.join()
    bench.join("t2")
    assert bench.answers() == [("refused", 0)]
    bench.events(0, *EVENTS[:-1], ("operation", b"x" * 31))
    assert bench.answers() == [("refused", 4)]
    assert bench.core._bytes == 0


def test_another_view_is_not_listened_to_and_a_new_one_drops_everything() -> None:
    bench = Bench()
    bench.join(view=2)
    bench.join(view=0)
    assert not bench.core.joined
    bench.prepared()
    bench.join("t2")
    bench.core.take_ready()
    bench.core.on_new_view(12)
    ready = bench.core.take_ready()
    names = ("queue-of-t1", "queue-of-t2")
    assert ready.tx_queues == tuple(LeaveTxQueue(name) for name in names)
    assert not ready.messages
    bench.check_empty()
    bench.events(4, ("commit", b""))
    assert bench.answers() == []
    assert bench.core.counts["other_view"] == 3


def test_events_before_the_invitation_wait_for_it_to_be_repeated() -> None:
    bench = Bench()
    bench.events(0, *EVENTS)
    assert (bench.answers(), bench.core.counts["not_joined"]) == ([], 1)
    bench.join()
    bench.events(3, PREPARE)
    assert bench.answers() == [("missing", 0)]


def test_one_that_its_primary_forgot_is_dropped_in_the_end() -> None:
    bench = Bench(idle_ms=5_000)
    bench.join()
    bench.events(0, BEGIN, OPERATIONS[0])
    assert bench.core.deadline_ms() == 6_000
    bench.ms += 5_000
    assert bench.answers() == [("done", 2)]
    bench.check_empty()


def test_a_primary_that_is_not_heard_is_asked_whether_the_transaction_is_still_open() -> None:
    bench = Bench(still_ms=1_000)
    bench.join()
    bench.events(0, BEGIN, *OPERATIONS)
    for _ in range(2):
        bench.ms = bench.core.deadline_ms() or 0
        assert bench.answers() == [("missing", 3)]
    bench.events(3, ("rollback", b"it is over"))
    assert bench.answers() == [("done", 3)]
    bench.check_empty()


def test_one_that_is_closed_and_never_in_the_journal_is_asked_about_too() -> None:
    # Given a journal that was taken over as a whole, after the decision, and events that come late
    bench = Bench(still_ms=1_000)
    bench.join()
    bench.events(0, *EVENTS)
    assert bench.answers() == []
    bench.ms = bench.core.deadline_ms() or 0
    assert bench.answers() == [("missing", 4)]
    bench.events(4, ("rollback", b"it is over"))
    bench.check_empty()


def test_one_that_was_refused_is_not_kept_when_its_end_was_lost() -> None:
    bench = Bench(still_ms=1_000, bytes_limit=1)
    bench.join()
    bench.events(0, BEGIN, *OPERATIONS)
    assert [answer for answer, _ in bench.answers()] == ["refused"]
    bench.ms = bench.core.deadline_ms() or 0
    assert [answer for answer, _ in bench.answers()] == ["refused"]
    bench.events(3, ("rollback", b"it is over"))
    assert [answer for answer, _ in bench.answers()] == ["done"]
    bench.check_empty()


def test_what_is_for_somebody_else_is_counted() -> None:
    bench = Bench()
    bench.hear(Vote(1, True, 1, (1, 1)))
    assert bench.core.counts["not_for_a_participant"] == 1
