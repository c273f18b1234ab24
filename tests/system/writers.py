"""Writers that never give up and keep books: what was acknowledged, under which key, through which door.

Each writer has one door (HTTP, AMQP, or the Python client's pipeline), writes a new key each time, and now and then adds one to
a counter of its own by an update that reads what it changes: were any of those applied twice, or not at all, the counter would tell.
A write that was not answered is sent again with the same idempotency key until it is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import brokerha
from brokerha import errors

COUNT = (
    "DELETE { <urn:counter:%(name)s> <urn:value> ?old } INSERT { <urn:counter:%(name)s> <urn:value> ?new } "
    "WHERE { <urn:counter:%(name)s> <urn:value> ?old BIND(?old + 1 AS ?new) }"
)
GIVE_UP_S = 240.0
AGAIN = (errors.OutcomeUnknown, errors.NotReady, errors.Unreachable)
"""No answer, or not now: the same write is sent again under the same key."""


class Writer:
    """One thread with one client."""

    def __init__(
        self, name: str, connect: Callable[[], Any], is_pipeline: bool = False, table: str = "books", pause_s: float = 0.0
    ) -> None:
        """It writes to ``table``, and rests for ``pause_s`` after each answer."""
        self.name = name
        self.table = table
        self.acknowledged: dict[bytes, bytes] = {}
        self.counted = 0
        self.resent = 0
        self.fault: BaseException | None = None
        self._connect = connect
        self._is_pipeline = is_pipeline
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer {name}", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no new write."""
        self._stop.set()

    def finish(self, timeout_s: float) -> None:
        """Begin no new write; wait until everything under way is acknowledged."""
        self.stop()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"writer {self.name} still waits for an answer"
        if self.fault is not None:
            raise self.fault

    def _run(self) -> None:
        try:
            with self._connect() as db:
                self._insist(
                    lambda key: db.update("main", f"INSERT DATA {{ <urn:counter:{self.name}> <urn:value> 0 }}", key=key, timeout=5),
                    "first",
                )
                number = 0
                while not self._stop.wait(self._pause_s):
                    number += 1
                    if number % 10 == 0:
                        self._insist(
                            lambda key: db.update("main", COUNT % {"name": self.name}, key=key, timeout=5), f"count-{number}"
                        )
                        self.counted += 1
                    elif self._is_pipeline:
                        self._write_many(db, number)
                    else:
                        self._put(db, number)
        except BaseException as fault:  # noqa: BLE001  (told by finish)
            self.fault = fault

    def _put(self, db: Any, number: int) -> None:
        item = f"{self.name}-{number}".encode()
        self._insist(lambda key: db.put(self.table, item, item * 3, key=key, timeout=5), f"put-{number}")
        self.acknowledged[item] = item * 3

    def _write_many(self, db: Any, number: int) -> None:
        """Twenty writes at once; those without an answer are sent again, each under its key."""
        items = {f"{self.name}-{number}-{n}": f"{self.name}-{number}-{n}".encode() for n in range(20)}
        deadline = time.monotonic() + GIVE_UP_S
        while items:
            assert time.monotonic() < deadline, f"writer {self.name} got no answer for {GIVE_UP_S} s"
            # Leaving the pipeline raises its first error; each write is looked at by itself below.
            futures: dict[str, Future[Any]] = {}
            with contextlib.suppress(*AGAIN), db.pipeline(window=20, timeout=5) as pipeline:
                for key, item in items.items():
                    futures[key] = pipeline.put(self.table, item, item * 3, key=f"{self.name}.{key}")
            for key, future in futures.items():
                try:
                    future.result(30)
                except AGAIN:
                    self.resent += 1
                else:
                    item = items.pop(key)
                    self.acknowledged[item] = item * 3

    def _insist(self, write: Callable[[str], Any], name: str) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            assert time.monotonic() < deadline, f"writer {self.name} got no answer for {GIVE_UP_S} s"
            try:
                write(f"{self.name}.{name}")
            except AGAIN:
                self.resent += 1
                time.sleep(0.05)
            else:
                return


def told(writers: Iterable[Writer]) -> int:
    """How many writes were acknowledged."""
    return sum(len(writer.acknowledged) + writer.counted for writer in writers)


@contextlib.contextmanager
def running(writers: list[Writer]) -> Iterator[list[Writer]]:
    """They write until the block ends; then each gets its answers."""
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        # All of them first: who waits for its last answer must not wait beside others that go on.
        for writer in writers:
            writer.stop()
        for writer in writers:
            writer.finish(60)


def doors(broker: str, urls: list[str], **options: Any) -> list[Writer]:
    """One writer for each door, and one that may use every master."""
    writers = [Writer(f"http{n}", partial(brokerha.connect, url), **options) for n, url in enumerate(urls, 1)]
    writers.append(Writer("amqp", lambda: brokerha.connect(broker), **options))
    writers.append(Writer("pipe", lambda: brokerha.connect(broker), is_pipeline=True, **options))
    writers.append(Writer("anymaster", lambda: brokerha.connect(",".join(urls)), **options))
    return writers
