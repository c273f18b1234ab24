"""The rights that a transaction or several reads need, by the stores that they name: for users without all rights.

A path like ``/tx`` is about many stores, so its role is not enough: a user with write there must not create a repository by an
operation, nor change a read-only one. Each operation and each read is checked here:

    update, add, remove, clear                 write in its repository
    create-repository, remove-repository       admin in it
    control-add, control-remove                admin
    put, delete                                write in the table; for data about a repository (about.py): as its own path
    publish, accept                            write in the queue
    snapshot                                   write in each table that it names; of all tables: write
    drop-snapshot, drop-staged                 write
    stage, commit-staged                       only the rights of the staged operations; only its author commits a large transaction
    expectations                               read in that repository, table or queue; of all content: read
    a read of a repository, table or queue     read in it; of settings: admin; every other read: read

An operation of a wrong shape needs nothing: the node refuses it with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from brokerha.http.door.call import Call
from brokerha.http.guard.users import ADMIN, READ, WRITE
from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE
from brokerha.model.operations import Operation, unpack_operations
from brokerha.model.reserved import about

_IN_STORES = {
    "update": (GRAPH, WRITE), "add": (GRAPH, WRITE), "remove": (GRAPH, WRITE), "clear": (GRAPH, WRITE),
    "create-repository": (GRAPH, ADMIN), "remove-repository": (GRAPH, ADMIN),
    "put": (TABLE, WRITE), "delete": (TABLE, WRITE), "expect-key": (TABLE, READ), "expect-range": (TABLE, READ),
    "publish": (QUEUE, WRITE), "publish-pieces": (QUEUE, WRITE), "accept": (QUEUE, WRITE),
}  # fmt: skip
_ELSEWHERE = {
    "drop-snapshot": WRITE,
    "drop-staged": WRITE,
    "control-add": ADMIN,
    "control-remove": ADMIN,
    "expect-fingerprint": READ,
}
_READS = {
    "query": GRAPH, "statements": GRAPH, "size": GRAPH, "contexts": GRAPH, "about": GRAPH, "get": TABLE, "range": TABLE, "queue": QUEUE,
    "message": QUEUE,
}  # fmt: skip
_CHANGES_OF_KEYS = frozenset({"put", "delete"})
_OF_ADMINS = (b"-repository", b"control-", about.TABLE.encode())
"""Bytes without which no packed transaction has an operation that needs `ADMIN`."""


def demand_operations(call: Call, operations: Iterable[Operation]) -> None:
    """Refuse, with 403, operations of a transaction that this user has no right to."""
    if _may_everything(call):
        return
    for operation in operations:
        kind, *names = [each if isinstance(each, str) else "" for each in operation[:3]] or [""]
        if kind in _CHANGES_OF_KEYS and names[:1] == [about.TABLE]:
            _demand_about(call, operation[2] if len(operation) > 2 else b"")
        elif kind in _IN_STORES:
            store, role = _IN_STORES[kind]
            call.demand(role, (store, names[0] if names else ""))
        elif kind == "snapshot":
            for table in operation[2:]:
                call.demand(WRITE, (TABLE, table) if isinstance(table, str) else None)
            if len(operation) < 3:
                call.demand(WRITE, None)
        elif kind == "expect-since":
            call.demand(READ, (names[0], names[1]) if len(names) > 1 else None)
        elif kind in _ELSEWHERE:
            call.demand(_ELSEWHERE[kind], None)


def _demand_about(call: Call, key: Any) -> None:
    repository, _, rest = key.partition(b"/") if isinstance(key, bytes) else (b"", b"", b"")
    is_setting = not rest.startswith(about.NAMESPACE.encode())
    call.demand(ADMIN if is_setting else WRITE, (GRAPH, repository.decode(errors="replace")))


def demand_packed(call: Call, body: bytes) -> None:
    """Refuse the same for a packed transaction, which is unpacked only if needed."""
    if _may_everything(call) or (_may_write_all(call) and not any(part in body for part in _OF_ADMINS)):
        return
    try:
        operations = unpack_operations(body)
    except (InvalidRequest, TooLarge):
        return
    demand_operations(call, operations)


def demand_reads(call: Call, wanted: Iterable[Any]) -> None:
    """Refuse the same for several reads, each a list that begins with kind and name."""
    if call.user is None:
        return
    for each in wanted:
        if isinstance(each, (list, tuple)) and len(each) > 1:
            if each[0] == "settings":
                call.demand(ADMIN, None)
            kind, name = (one if isinstance(one, str) else "" for one in each[:2])
            call.demand(READ, (_READS[kind], name) if kind in _READS and name else None)


def only_readable(call: Call, kind: str, names: Iterable[str]) -> list[str]:
    """Return the stores of a kind that the caller can read."""
    return [name for name in names if call.may(READ, (kind, name))]


def _may_everything(call: Call) -> bool:
    return call.user is None or (call.user.role == ADMIN and not call.user.stores)


def _may_write_all(call: Call) -> bool:
    return call.user is not None and call.user.may(WRITE) and not call.user.stores
