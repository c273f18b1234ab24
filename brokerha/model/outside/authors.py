"""The author of a transaction: the last operation of its body, added by its interface, and the last change of its effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgpack

from brokerha.model.errors import TooLarge
from brokerha.model.operations import BODY_LIMIT_BYTES, OPERATIONS_LIMIT, TOO_LARGE, By, unpack_effect

_BEGINNING: Final = b"\x92\xa2by"


def signed(body: bytes, user: str) -> bytes:
    """Return the body with its author at the end. Raises TooLarge."""
    if not user:
        return body
    number, head = _items_of(body)
    if number >= OPERATIONS_LIMIT:
        raise TooLarge(
            f"the transaction has {number} operations; with who writes it the limit is {OPERATIONS_LIMIT - 1}: {TOO_LARGE}"
        )
    longer: bytes = msgpack.Packer().pack_array_header(number + 1) + body[head:] + packed_by(user)
    if len(longer) > BODY_LIMIT_BYTES:
        raise TooLarge(f"the transaction has {len(longer)} bytes; the limit is {BODY_LIMIT_BYTES}: {TOO_LARGE}")
    return longer


def unsigned(body: bytes) -> bytes:
    """Return the body without its author."""
    # Parse only if there can be an author; a value can contain the same bytes.
    if _BEGINNING not in body:
        return body
    unpacker = msgpack.Unpacker(use_list=False)
    unpacker.feed(body)
    number = unpacker.read_array_header()
    for _ in range(number - 1):
        unpacker.skip()
    at, last = unpacker.tell(), unpacker.unpack()
    if last[0] != "by":
        return body
    without: bytes = msgpack.Packer().pack_array_header(number - 1) + body[_items_of(body)[1] : at]
    return without


def is_same_work(one: bytes, other: bytes) -> bool:
    """Tell whether two bodies have the same operations, ignoring the author: a write repeated by another user is the same write."""
    return one == other or unsigned(one) == unsigned(other)


def packed_by(user: str) -> bytes:
    """Return the operation that names the author."""
    packed: bytes = msgpack.packb(("by", user))
    return packed


def author_in(operations: Sequence[Any]) -> str:
    """Return the author from a transaction's operations or its effect's changes; empty when there is none."""
    return operations[-1].user if operations and isinstance(operations[-1], By) else ""


def author_of(effect: bytes) -> str:
    """Return the author from a packed effect, which is unpacked only if it can have one."""
    return author_in(unpack_effect(effect)) if _BEGINNING in effect else ""


def author_apart(rows: Sequence[Any]) -> tuple[Sequence[Any], str]:
    """Return the rows of an effect without the author, and the author; empty when there is none."""
    return (rows[:-1], rows[-1][1]) if rows and rows[-1][0] == "by" else (rows, "")


def taken_author(listed: list[Any]) -> list[By]:
    """Remove the author from the operations of a transaction, or from the changes of its effect; return it, or an empty list."""
    return [listed.pop()] if listed and isinstance(listed[-1], By) else []


def _items_of(body: bytes) -> tuple[int, int]:
    """Return the number of items of a packed list, and the size of its head in bytes."""
    first = body[0]
    if first < 0xDC:
        return first & 0x0F, 1
    end = 3 if first == 0xDC else 5
    return int.from_bytes(body[1:end], "big"), end
