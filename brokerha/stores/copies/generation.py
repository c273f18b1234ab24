"""One open copy among those that follow each other: it ends when it is replaced and the last who read it are gone.

    take -> read ... -> give_back        any number of readers, any threads
    replace                              no reader begins on it any more
                         the last of these two closes the store and deletes its files

So a read that began before the copy was replaced finishes on the data that it began with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from brokerha.stores.execution.worker_store import WorkerStore


class Generation:
    """An open store with the number of those who use it."""

    def __init__(self, store: WorkerStore, delete: Callable[[], None]) -> None:
        self.store = store
        self._delete = delete
        self._lock = threading.Lock()
        self._users = 0
        self._is_replaced = False
        self._is_ended = False

    @property
    def is_replaced(self) -> bool:
        """Whether another is the present one; long work on this one is in vain."""
        return self._is_replaced

    @property
    def is_ended(self) -> bool:
        """Whether it is closed and deleted."""
        return self._is_ended

    def take(self) -> bool:
        """Begin to use it; False when it was replaced, then take the next."""
        with self._lock:
            if self._is_replaced:
                return False
            self._users += 1
            return True

    def give_back(self) -> None:
        """End one use."""
        with self._lock:
            self._users -= 1
            is_last = self._is_replaced and self._users == 0
        if is_last:
            self._end()

    def replace(self) -> None:
        """Let nobody begin to use it; it ends now, or with the last who does."""
        with self._lock:
            self._is_replaced = True
            is_last = self._users == 0
        if is_last:
            self._end()

    def _end(self) -> None:
        self.store.close()
        self._delete()
        self._is_ended = True


class HeldPieces:
    """The pieces of an answer; the generation that they come from is held until they end or are dropped."""

    def __init__(self, pieces: Iterator[bytes], generation: Generation) -> None:
        self._pieces: Iterator[bytes] | None = pieces
        self._generation = generation

    def __iter__(self) -> HeldPieces:
        return self

    def __next__(self) -> bytes:
        if self._pieces is None:
            raise StopIteration
        try:
            return next(self._pieces)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Drop what is left. Idempotent."""
        if self._pieces is not None:
            # What is dropped may still touch the store, so that it goes first.
            self._pieces = None
            self._generation.give_back()

    def __del__(self) -> None:
        self.close()
