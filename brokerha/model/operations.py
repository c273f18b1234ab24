"""What a transaction asks for (operations), and what it really changed (its effect).

A transaction's **body** is the msgpack list of its operations. Masters carry it as opaque bytes; only admission and the
workers look inside. Each operation is a list whose first item names it:

    ["update", repository, sparql]           a SPARQL 1.1 update request (one or more operations)
    ["add", repository, nquads]              quads to add, as N-Quads text; blank node labels are kept as they are
    ["remove", repository, nquads]           quads to remove, as N-Quads text
    ["put", table, key, value]               key and value are bytes
    ["delete", table, key]
    ["create-repository", repository]
    ["remove-repository", repository]
    ["control-add", name, kind, target, text, expected]    a check of the control suite (control.py), all text
    ["control-remove", name]

An **effect** is what executing it changed, at the smallest grain, so that applying it needs no evaluation:

    ["quads", repository, removed, added]    lists of N-Quads lines without the final dot, each sorted
    ["put", table, key, value] ["delete", table, key]
    ["create-repository", repository] ["remove-repository", repository]
    ["control-add", name, kind, target, text, expected] ["control-remove", name]

Applying an effect twice is the same as applying it once. A transaction that changes nothing has an empty effect.
A rejected transaction has none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgpack

from brokerha.model import control
from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.ids import Timestamp, TxId, is_repository_id

BODY_LIMIT_BYTES = 8 * 1024 * 1024
"""Largest body of one transaction; larger input is split by the client (RabbitMQ refuses far larger messages)."""
OPERATIONS_LIMIT = 100_000
KEY_LIMIT_BYTES = control.KEY_LIMIT_BYTES
"""Largest key of a key-value table; LMDB allows 511 bytes for table name and key together."""
TABLE_LIMIT_BYTES = control.TABLE_LIMIT_BYTES

APPLIED = "applied"
REJECTED = "rejected"

_SHAPES: dict[str, tuple[type, ...]] = {
    "update": (str, str),
    "add": (str, str),
    "remove": (str, str),
    "put": (str, bytes, bytes),
    "delete": (str, bytes),
    "create-repository": (str,),
    "remove-repository": (str,),
    "control-add": (str, str, str, str, str),
    "control-remove": (str,),
}
_OF_A_REPOSITORY = frozenset({"update", "add", "remove", "create-repository", "remove-repository"})

Operation = tuple[Any, ...]
Change = tuple[Any, ...]


class Result(NamedTuple):
    """The outcome of one transaction at its LSN: the same on every site."""

    outcome: str
    """`APPLIED` or `REJECTED`."""
    reason: str
    """Why it was rejected; empty otherwise."""
    effect: bytes
    """Packed list of changes; empty bytes when nothing changed."""
    fingerprint: bytes
    """Of the whole content after it (fingerprints.py)."""


class Logged(NamedTuple):
    """One line of the log that workers follow and keep: a result with the transaction it belongs to."""

    txid: TxId
    timestamp: Timestamp
    outcome: str
    reason: str
    effect: bytes
    fingerprint: bytes


ResultRow = tuple[str, str, bytes, bytes]
"""A `Result` on the wire and on disk."""
LoggedRow = tuple[TxId, Timestamp, str, str, bytes, bytes]
"""A `Logged` on the wire and on disk."""


def pack_operations(operations: list[Operation]) -> bytes:
    """Return the body of a transaction with these operations. Raises InvalidRequest, TooLarge."""
    check_operations(operations)
    body: bytes = msgpack.packb(operations)
    if len(body) > BODY_LIMIT_BYTES:
        message = f"the transaction has {len(body)} bytes; the limit is {BODY_LIMIT_BYTES}: split it"
        raise TooLarge(message)
    return body


def unpack_operations(body: bytes) -> list[Operation]:
    """Return the operations of a body, each checked for its shape. Raises InvalidRequest, TooLarge."""
    if len(body) > BODY_LIMIT_BYTES:
        message = f"the transaction has {len(body)} bytes; the limit is {BODY_LIMIT_BYTES}: split it"
        raise TooLarge(message)
    try:
        operations = msgpack.unpackb(body, use_list=False, strict_map_key=True, max_ext_len=0)
    except (ValueError, msgpack.UnpackException) as error:
        message = f"the body is not a msgpack list of operations: {error}"
        raise InvalidRequest(message) from None
    if not isinstance(operations, tuple):
        message = "the body is not a msgpack list of operations"
        raise InvalidRequest(message)
    result = list(operations)
    check_operations(result)
    return result


def check_operations(operations: list[Operation]) -> None:
    """Raise InvalidRequest or TooLarge, naming the first operation that has not the right shape."""
    if not operations:
        message = "a transaction needs at least one operation"
        raise InvalidRequest(message)
    if len(operations) > OPERATIONS_LIMIT:
        message = f"the transaction has {len(operations)} operations; the limit is {OPERATIONS_LIMIT}: split it"
        raise TooLarge(message)
    for number, operation in enumerate(operations, 1):
        problem = _problem(operation)
        if problem:
            message = f"operation {number}: {problem}"
            raise InvalidRequest(message)


def _problem(operation: Any) -> str:
    if not operation or not isinstance(operation, (tuple, list)) or not isinstance(operation[0], str):
        return "not a list that starts with the name of an operation"
    name, arguments = operation[0], operation[1:]
    shape = _SHAPES.get(name)
    if shape is None:
        return f"unknown operation {name!r}; known are {', '.join(sorted(_SHAPES))}"
    if tuple(map(type, arguments)) != shape:
        wanted = ", ".join(t.__name__ for t in shape)
        return f"{name} takes ({wanted})"
    if name in _OF_A_REPOSITORY:
        return "" if is_repository_id(arguments[0]) else f"{arguments[0]!r} is no repository id ([A-Za-z0-9_-]{{1,64}})"
    if name == "control-add":
        return control.problem_of(tuple(arguments))
    if name == "control-remove":
        return "" if control.is_check_name(arguments[0]) else f"{arguments[0]!r} is no name of a check"
    table, key = arguments[0], arguments[1]
    if not table or "\0" in table or len(table.encode()) > TABLE_LIMIT_BYTES:
        return f"a table name has 1 to {TABLE_LIMIT_BYTES} bytes and no NUL"
    if not 1 <= len(key) <= KEY_LIMIT_BYTES:
        return f"a key has 1 to {KEY_LIMIT_BYTES} bytes, this one has {len(key)}"
    return ""


def pack_effect(changes: list[Change]) -> bytes:
    """Return the bytes of an effect; empty bytes for no change. Equal changes give equal bytes."""
    if not changes:
        return b""
    packed: bytes = msgpack.packb(changes)
    return packed


def unpack_effect(effect: bytes) -> list[Change]:
    """Return the changes of an effect that a brokerha node packed."""
    return list(msgpack.unpackb(effect, use_list=False)) if effect else []
