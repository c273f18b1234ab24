"""Long results, passed on from the one thread that can read them to consumers in any thread.

An iterator of the engine kills the process if another thread than its opener advances it. So a long stream has its own thread,
which opens, advances and drops the iterator, and passes pieces on:

    producer thread                              consumer, any thread
    open -> piece -> piece -> piece   ==[2]==>   next() next() ... close()

At most two pieces wait in between. A consumer that closes ends the producer; one that neither reads nor closes is dropped after
`STALLED_S`. Most results have one piece and need no second thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import Final, TypeVar

from brokerha.model.errors import TimedOut
from brokerha.model.invariants import invariant

PIECE_BYTES: Final = 1024 * 1024
STALLED_S: Final = 60.0
"""Longest wait of the producer and of the consumer for each other."""

_WAITING_PIECES: Final = 2

Item = TypeVar("Item")
_Message = bytes | Exception | None
"""A piece, an error, or None for the end."""


def in_one_thread(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the same items; raise InvariantBroken, instead of ending the process, when another thread asks for one."""
    owner = threading.get_ident()
    iterator = iter(items)

    def guarded() -> Iterator[Item]:
        while True:
            invariant(threading.get_ident() == owner, "an iterator of the engine stays in the thread that opened it")
            try:
                item = next(iterator)
            except StopIteration:
                return
            yield item

    return guarded()


def stream(open_lines: Callable[[], Iterator[str]], may_go_on: Callable[[], bool]) -> Iterator[bytes]:
    """Yield lines of N-Triples or N-Quads, without their final dots, in pieces of at most `PIECE_BYTES`, in any thread.

    `open_lines` is called once or, when there is more than one piece, a second time in the thread of the producer.
    Raises TimedOut, also while pieces are taken.
    """
    lines = open_lines()
    pieces = _in_pieces(lines)
    first = next(pieces, b"")
    if next(lines, None) is None:
        return iter([first, *pieces] if first else [])
    return _handed_over(open_lines, may_go_on)


def _handed_over(open_lines: Callable[[], Iterator[str]], may_go_on: Callable[[], bool]) -> Iterator[bytes]:
    waiting: Queue[_Message] = Queue(_WAITING_PIECES)
    gone = threading.Event()
    producer = threading.Thread(target=_produce, args=(open_lines, waiting, gone), name="statements", daemon=True)
    producer.start()
    try:
        while True:
            if not may_go_on():
                raise TimedOut("the statements were not read in their time")
            try:
                message = waiting.get(timeout=STALLED_S)
            except Empty:
                raise TimedOut(f"the store gave no statement for {STALLED_S} s") from None
            if message is None:
                return
            if isinstance(message, Exception):
                raise message
            yield message
    finally:
        gone.set()
        # Make room in the queue, so that the producer can put and then see that the consumer is gone.
        while not waiting.empty():
            waiting.get_nowait()


def _produce(open_lines: Callable[[], Iterator[str]], waiting: Queue[_Message], gone: threading.Event) -> None:
    # Full: the consumer neither reads nor closes.
    with suppress(Full):
        try:
            for piece in _in_pieces(open_lines()):
                waiting.put(piece, timeout=STALLED_S)
                if gone.is_set():
                    return
            waiting.put(None, timeout=STALLED_S)
        except Full:
            raise
        except Exception as error:  # noqa: BLE001  Any exception belongs to the consumer.
            waiting.put(error, timeout=STALLED_S)


def _in_pieces(lines: Iterator[str]) -> Iterator[bytes]:
    """Yield lines as bytes; cut a line only if it alone is larger than a piece."""
    piece = bytearray()
    for line in lines:
        encoded = f"{line} .\n".encode()
        if piece and len(piece) + len(encoded) > PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
        piece += encoded
        while len(piece) > PIECE_BYTES:
            yield bytes(piece[:PIECE_BYTES])
            del piece[:PIECE_BYTES]
    if piece:
        yield bytes(piece)
