r"""Large transactions: parts are staged, each as its own transaction, and take effect when one later transaction commits them.

    LSN 5     stage tx-1, part 1: add ..., put ...       invisible to readers
    LSN 9     stage tx-1, part 2: add ...
    LSN 12    commit tx-1, 2 parts                       all of it takes effect here, or nothing

One part is one row:

    <transaction>\0<part>      msgpack [LSN, timestamp, items, user, operations]      the number of the part has 4 bytes, big-endian

Its operations are the transaction's own, with quads in canonical form; one can be a piece of a long message (pieces.py). The next
stage of any transaction deletes those that got no new part for `AGE_LIMIT_S`, by the timestamps of the order.

>>> part_of(part_key("tx-1", 2))
('tx-1', 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgpack

from brokerha.model.ids import Lsn, Timestamp, TxId, is_tx_id
from brokerha.model.reserved import pieces

TABLE: Final = "urn:brokerha:staged"
SIZE_LIMIT_BYTES: Final = 512 * 1024 * 1024
"""Limit of one large transaction."""
ITEMS_LIMIT: Final = 10_000_000
"""Limit of quads, keys and messages of one large transaction."""
PARTS_LIMIT: Final = 100_000
PART_BYTES: Final = 64 * 1024
"""Target size of a part: other writes wait for at most one part."""
COUNT_LIMIT: Final = 8
"""Limit of staged large transactions in one cluster."""
AGE_LIMIT_S: Final = 3600
STAGE: Final = "stage"
COMMIT: Final = "commit-staged"
DROP: Final = "drop-staged"
KINDS: Final = frozenset({STAGE, COMMIT, DROP})
"""Operations about large transactions."""
ONLY_STAGED: Final = frozenset({pieces.PIECE, pieces.PUBLISH})
"""Operations that only parts can have."""
ALL_KINDS: Final = KINDS | ONLY_STAGED
CLEAR: Final = "clear"
STAGED_KINDS: Final = frozenset({"add", "remove", CLEAR, "put", "delete", "publish", *ONLY_STAGED})
"""Operations that a part can have."""
NUMBER_BYTES: Final = 4
OWN: Final = "urn:brokerha:"
"""Prefix of the names of reserved tables."""


class Part(NamedTuple):
    """One row."""

    lsn: Lsn
    """LSN at which it was staged."""
    timestamp: Timestamp
    items: int
    """Number of quads, keys and messages."""
    user: str
    """User who staged it; empty if unknown."""
    operations: tuple[tuple[Any, ...], ...]


def pause_s(part_s: float) -> float:
    """Return the pause after a part that took this long, for other writers: half of it, at most a second."""
    return min(1.0, part_s / 2)


def part_key(name: TxId, number: int) -> bytes:
    """Return the key of a part."""
    return b"%s\0%s" % (name.encode(), number.to_bytes(NUMBER_BYTES, "big"))


def part_of(key: bytes) -> tuple[TxId, int]:
    """Return transaction and number of a key."""
    name, number = key[: -NUMBER_BYTES - 1], key[-NUMBER_BYTES:]
    return name.decode(), int.from_bytes(number, "big")


def packed_part(part: Part) -> bytes:
    """Return the row of a part."""
    row: bytes = msgpack.packb(part)
    return row


def part_in(row: bytes) -> Part:
    """Return a part from its row."""
    return Part(*msgpack.unpackb(row, use_list=False))


def problem_of(kind: str, arguments: Any) -> str:
    """Return the problem with the well-typed arguments of one of these operations, or an empty string."""
    if kind == pieces.PIECE:
        return "" if arguments[0] else "a piece of a message has 1 byte or more"
    if kind == pieces.PUBLISH:
        _, _, first, last, size_bytes = arguments
        is_range = 1 <= first <= last <= PARTS_LIMIT and 1 <= size_bytes <= SIZE_LIMIT_BYTES
        return (
            ""
            if is_range
            else f"publish-pieces names parts, first and last, of 1 to {PARTS_LIMIT}, and a size up to {SIZE_LIMIT_BYTES}"
        )
    if not is_tx_id(arguments[0]):
        return "the name of a large transaction has 1 to 128 visible ASCII characters, without spaces"
    if kind != DROP and not 1 <= arguments[1] <= PARTS_LIMIT:
        return f"a large transaction has 1 to {PARTS_LIMIT} parts, not {arguments[1]}"
    return ""


def order_problem(kinds: Sequence[str], operations: Sequence[Any]) -> str:
    """Return the problem with a transaction that has one of these operations; ``kinds`` are those of all. Empty if none."""
    rest = list(kinds[:-1] if kinds[-1] == "by" else kinds)
    if rest[0] == STAGE:
        if len(rest) == 1:
            return "stage comes with what is to be staged"
        if pieces.PIECE in rest and len(rest) > 2:
            return "a piece of a message is a part for itself"
        if others := sorted(set(rest[1:]) - STAGED_KINDS):
            return f"a part of a large transaction has {', '.join(sorted(STAGED_KINDS))}, and not {', '.join(others)}"
        clears = [kind == CLEAR for kind in rest[1:]]
        if any(clears) and (operations[0][2] > 1 or clears != sorted(clears, reverse=True)):
            return "clear comes first in part 1 of a large transaction"
        own = next((row[1] for row in operations if row[0] in {"put", "delete"} and row[1].startswith(OWN)), "")
        return f"table {own} is brokerha's own, and no part of a large transaction" if own else ""
    if rest == [DROP] or (rest[-1] == COMMIT and all(kind.startswith("expect-") for kind in rest[:-1])):
        return ""
    if lost := sorted(ONLY_STAGED.intersection(rest)):
        return f"{lost[0]} is an operation of a part of a large transaction: stage comes first"
    return "stage comes first in a transaction, drop-staged alone, and commit-staged last, after expectations only"
