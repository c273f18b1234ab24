"""Work on messages that must stay in order, some of which takes too long for the loop.

    lanes.take(key, is_plain, work, then)      in the loop: `work` now, or in a thread; `then(future)` in the loop, in order within a key
    lanes.turn()                               in the loop, once each turn: what threads have finished

Messages with another key are not held up. What waits is bounded by whoever takes messages from the broker: it has so many unacknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple

THREADS: Final = 4


class _Work(NamedTuple):
    is_plain: bool
    work: Callable[[], Any]
    then: Callable[[Future[Any]], None]


class Lanes:
    """All lanes of one loop; `wake` makes it turn, from any thread."""

    def __init__(self, name: str, wake: Callable[[], object]) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=name)
        self._wake = wake
        self._lanes: dict[Hashable, deque[_Work]] = {}
        self._finished: deque[tuple[Hashable, Future[Any]]] = deque()

    def take(self, key: Hashable, is_plain: bool, work: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Do `work`: here and now if it is plain and nothing waits under its key."""
        lane = self._lanes.get(key)
        if lane is not None:
            lane.append(_Work(is_plain, work, then))
        elif is_plain:
            then(_done(work))
        else:
            self._lanes[key] = deque([_Work(is_plain, work, then)])
            self._start(key)

    def turn(self) -> None:
        """Go on with the lanes whose first work is done."""
        while self._finished:
            key, future = self._finished.popleft()
            lane = self._lanes[key]
            lane.popleft().then(future)
            while lane and lane[0].is_plain:
                _, work, then = lane.popleft()
                then(_done(work))
            if lane:
                self._start(key)
            else:
                del self._lanes[key]

    def close(self) -> None:
        """Begin nothing any more; what runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self, key: Hashable) -> None:
        self._threads.submit(self._lanes[key][0].work).add_done_callback(lambda done: self._finish(key, done))

    def _finish(self, key: Hashable, future: Future[Any]) -> None:
        self._finished.append((key, future))
        self._wake()


def _done(work: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001  Whoever asked for the work judges it, as for one of a thread.
        future.set_exception(error)
    return future
