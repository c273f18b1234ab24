"""Messages that are longer than a transaction: the body stays where it was staged, and the queue has a note of its place.

    stage tx-1, part 1    piece b"..."                       about 256 KiB of the body, as the only operation
    stage tx-1, part 2    piece b"..."
    stage tx-1, part 3    publish-pieces inbox video/mp4 1 2 524288
    commit tx-1           message tx-1.1 of inbox: content type "pieces:video/mp4", body [tx-1, 1, 2, 524288]

The commit leaves the pieces in the reserved table (staging.py), with a row of number 0 that lists the messages whose bodies they
are. The transaction that accepts the message deletes them. No client can publish a message with such a content type.

>>> pieces_of("pieces:video/mp4", packed_pieces(Pieces("tx-1", 1, 2, 524288)))
Pieces(name='tx-1', first=1, last=2, size_bytes=524288)
>>> pieces_of("video/mp4", b"...")
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgpack

from brokerha.model.ids import TxId

PIECE: Final = "piece"
PUBLISH: Final = "publish-pieces"
PREFIX: Final = "pieces:"
"""Prefix of the content type of such a message."""
PIECE_BYTES: Final = 256 * 1024
"""Target size of a piece."""


class Pieces(NamedTuple):
    """Place of the body of a message."""

    name: TxId
    """Name of the large transaction."""
    first: int
    last: int
    """First and last part, both included."""
    size_bytes: int
    """Size of the whole body."""


class Body(NamedTuple):
    """Parts that are the body of a message."""

    queue: str
    message_id: str
    first: int
    last: int


def packed_pieces(pieces: Pieces) -> bytes:
    """Return the note in place of the body."""
    row: bytes = msgpack.packb(pieces)
    return row


def pieces_of(content_type: str, body: bytes) -> Pieces | None:
    """Return the place of the body of a message; None for a message with its own body."""
    return Pieces(*msgpack.unpackb(body)) if content_type.startswith(PREFIX) else None


def plain_type(content_type: str) -> str:
    """Return the original content type, of a message of either kind."""
    return content_type.removeprefix(PREFIX)


def packed_bodies(bodies: Iterable[Body]) -> bytes:
    """Return the row of number 0."""
    row: bytes = msgpack.packb(list(bodies))
    return row


def bodies_in(row: bytes) -> list[Body]:
    """Return the messages of such a row."""
    return [Body(*fields) for fields in msgpack.unpackb(row)]
