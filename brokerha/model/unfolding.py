"""The changes of a large transaction, from the rows of its parts (reserved/staging.py): the log only names them.

    ["staged", "tx-1", [[5, 0], [9, 2]], …]     at LSN 12: the part of LSN 5, then that of LSN 9, before which 2 messages are published

Changes come in order and as requested, as if none had been made yet: a reader that makes them all has the store's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from brokerha.model.ids import TxId
from brokerha.model.operations import (
    ON_KEYS,
    Add,
    Change,
    Checked,
    Clear,
    Cleared,
    Publish,
    Published,
    PublishPieces,
    QuadsChanged,
    Remove,
    message_id,
    typed_operations,
)
from brokerha.model.reserved.pieces import PREFIX, Pieces, packed_pieces
from brokerha.model.reserved.staging import part_in

_END: Final = " .\n"


def text_of(lines: Iterable[str]) -> str:
    """Return canonical lines of quads as a part keeps them."""
    return "".join(f"{line}{_END}" for line in lines)


def lines_of(text: str) -> list[str]:
    """Return the canonical lines of such a text."""
    return text.split(_END)[:-1]


def operations_of(row: bytes) -> list[Checked]:
    """Return the operations of a part, from its row."""
    return typed_operations(part_in(row).operations)


def changes_in(name: TxId, row: bytes, published: int, *, with_quads: bool = True) -> Iterator[Change]:
    """Yield the changes of a part of a large transaction. ``published`` is the number of messages in earlier parts.

    Without ``with_quads``, changes of repositories have no quads. Only the whole transaction's change has the removed count.
    """
    for operation in operations_of(row):
        if isinstance(operation, ON_KEYS):
            yield operation
        elif isinstance(operation, Clear):
            yield Cleared("clear", operation.repository, 0)
        elif isinstance(operation, Publish):
            published += 1
            place = operation.queue, message_id(name, published)
            yield Published("publish", *place, operation.content_type, operation.body)
        elif isinstance(operation, PublishPieces):
            published += 1
            place = operation.queue, message_id(name, published)
            body = packed_pieces(Pieces(name, operation.first, operation.last, operation.size_bytes))
            yield Published("publish", *place, PREFIX + operation.content_type, body)
        elif isinstance(operation, (Add, Remove)):
            lines = tuple(lines_of(operation.text)) if with_quads else ()
            removed, added = (lines, ()) if isinstance(operation, Remove) else ((), lines)
            yield QuadsChanged("quads", operation.repository, removed, added)
