"""Waking up: whoever hands something over while the other thread falls asleep is never overlooked."""

from __future__ import annotations

import threading
from collections import deque

from brokerha.transports.rabbitmq.kept_connection import Waker

GIVERS, COUNT = 3, 4_000
LONG_S = 3600.0


def test_no_call_is_lost_on_a_thread_that_falls_asleep() -> None:
    # Given a thread that takes what others give, and sleeps until it is woken
    waker, given = Waker(), deque[int]()

    def give(number: int) -> None:
        given.append(number)
        waker.wake()

    def take_all() -> None:
        got = 0
        while got < GIVERS * COUNT:
            count = len([given.popleft() for _ in range(len(given))])
            got += count
            if not count:
                waker.wait(LONG_S)

    taker = threading.Thread(target=take_all, daemon=True)
    givers = [threading.Thread(target=lambda: deque(map(give, range(COUNT)), 0)) for _ in range(GIVERS)]
    # When several give at once
    for thread in (taker, *givers):
        thread.start()
    for thread in givers:
        thread.join()
    # Then it gets everything
    taker.join(60)
    assert not taker.is_alive()
    waker.close()


def test_a_call_ends_the_next_wait_and_no_other_one() -> None:
    waker = Waker()
    waker.wake()
    waker.wake()
    waker.wait(LONG_S)
    sleeper = threading.Thread(target=waker.wait, args=(LONG_S,), daemon=True)
    sleeper.start()
    sleeper.join(0.05)
    assert sleeper.is_alive()
    waker.wake()
    sleeper.join(60)
    assert not sleeper.is_alive()
    waker.close()
