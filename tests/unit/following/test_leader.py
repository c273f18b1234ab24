"""Followed: what one follower is sent, again and again, within its window."""

from __future__ import annotations

from brokerha.following.leader import RANGES_LIMIT, Followed, Part, Window

WINDOW = Window(entries=10, bytes=1000, resend_ms=100)


def read(first: int, last: int, limit_bytes: int) -> Part:
    """Messages of at most three records of 10 bytes."""
    last = min(last, first + 2, first - 1 + max(1, limit_bytes // 10))
    return (first, last), last, 10 * (last - first + 1)


def push(peer: Followed, goal: int, ms: int = 0, window: Window = WINDOW) -> list[tuple[int, int]]:
    return peer.push(peer.applied, goal, window, read, ms)


def test_everything_new_is_sent_once_and_no_further_than_the_window() -> None:
    peer = Followed("f")
    assert push(peer, 20) == [(1, 3), (4, 6), (7, 9), (10, 10)]
    assert push(peer, 20) == []
    assert peer.confirm(5, 1)
    peer.settle(5)
    assert push(peer, 20) == [(11, 13), (14, 15)]


def test_the_window_is_one_of_bytes_too_and_one_message_goes_whatever_its_size() -> None:
    peer = Followed("f")
    small = Window(entries=100, bytes=50, resend_ms=100)
    assert push(peer, 20, window=small) == [(1, 3), (4, 5)]
    assert (peer.in_flight_bytes, push(peer, 20, window=small)) == (50, [])
    assert push(Followed("g"), 20, window=Window(entries=100, bytes=1, resend_ms=100)) == [(1, 1)]


def test_what_is_not_confirmed_is_sent_again_ever_more_patiently() -> None:
    peer = Followed("f")
    push(peer, 3)
    again = []
    for ms in range(0, 2000, 50):
        if peer.resend(peer.applied, WINDOW, ms):
            again.append(ms)
            assert push(peer, 3, ms) == [(1, 3)]
    assert again == [100, 300, 700, 1100, 1500, 1900]
    peer.confirm(1, 2000)
    assert peer.resend_at_ms(WINDOW) == 2100


def test_nothing_is_sent_again_to_who_has_everything() -> None:
    peer = Followed("f", applied=3, sent=3)
    assert push(peer, 3, 5000) == []
    assert not peer.resend(3, WINDOW, 10_000)
    assert push(peer, 4, 10_000) == [(4, 4)]
    assert not peer.resend(3, WINDOW, 10_099)
    assert peer.resend(3, WINDOW, 10_100)


def test_an_answer_counts_as_sent_and_what_was_sent_before_counts_once() -> None:
    peer = Followed("f")
    peer.note_sent(4, 40)
    peer.note_sent(3, 30)
    assert (peer.sent, peer.in_flight_bytes) == (4, 40)
    assert push(peer, 6) == [(5, 6)]


def test_of_what_is_taken_back_nothing_is_in_flight() -> None:
    peer = Followed("f")
    push(peer, 10)
    peer.rewind(5)
    assert (peer.sent, peer.in_flight_bytes, list(peer.in_flight)) == (5, 30, [(3, 30)])
    peer.stand(2)
    assert (peer.applied, peer.sent, peer.in_flight_bytes) == (2, 2, 0)


def test_questions_that_wait_are_few_each_once_and_answered_once() -> None:
    peer = Followed("f")
    for number in range(20):
        peer.want(number, number + 1)
        peer.want(number, number + 1)
        peer.want(number, number - 1)
    assert len(peer.take_wanted()) == RANGES_LIMIT
    assert peer.take_wanted() == []
