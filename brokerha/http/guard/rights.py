"""What a transaction or several reads need, by the stores that they name: for users who may not everything.

A path like ``/tx`` is about many stores at once, so its role says little: who may write there must not create a repository by an operation,
nor change one that he may only read. Each operation and each read is asked here what it needs:

    update, add, remove                        write in its repository
    create-repository, remove-repository       admin in it
    control-add, control-remove                admin
    put, delete, publish, accept               write
    snapshot, drop-snapshot                    write
    expectations                               read, of a graph in that repository
    a read of a repository                     read in it; of settings: admin; every other read: read

What has not the right shape needs nothing: the node refuses it, and says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from brokerha.http.door.call import Call
from brokerha.http.guard.users import ADMIN, READ, WRITE
from brokerha.model.errors import InvalidRequest, TooLarge
from brokerha.model.operations import GRAPH, Operation, unpack_operations

_IN_REPOSITORY = {
    "update": WRITE, "add": WRITE, "remove": WRITE, "create-repository": ADMIN, "remove-repository": ADMIN,
}  # fmt: skip
_ELSEWHERE = {
    "put": WRITE, "delete": WRITE, "publish": WRITE, "accept": WRITE, "snapshot": WRITE, "drop-snapshot": WRITE,
    "control-add": ADMIN, "control-remove": ADMIN, "expect-key": READ, "expect-range": READ, "expect-fingerprint": READ,
}  # fmt: skip
_READS_OF_REPOSITORIES = frozenset({"query", "statements", "size", "contexts", "about"})
_OF_ADMINS = (b"-repository", b"control-")
"""Bytes without which no packed transaction has an operation that needs `ADMIN`."""


def demand_operations(call: Call, operations: Iterable[Operation]) -> None:
    """Refuse, with 403, what this user may not do in one transaction."""
    if _may_everything(call):
        return
    for operation in operations:
        name = operation[0] if operation else None
        store = operation[1] if len(operation) > 1 and isinstance(operation[1], str) else ""
        if name in _IN_REPOSITORY:
            call.demand(_IN_REPOSITORY[name], store)
        elif name == "expect-since":
            call.demand(READ, operation[2] if store == GRAPH and len(operation) > 2 else None)
        elif name in _ELSEWHERE:
            call.demand(_ELSEWHERE[name], None)


def demand_packed(call: Call, body: bytes) -> None:
    """The same of a transaction as the node gets it, which is looked at only as far as it must be."""
    if _may_everything(call) or (_may_write_all(call) and not any(part in body for part in _OF_ADMINS)):
        return
    try:
        operations = unpack_operations(body)
    except (InvalidRequest, TooLarge):
        return
    demand_operations(call, operations)


def demand_reads(call: Call, wanted: Iterable[Any]) -> None:
    """The same of several reads, each a list that begins with kind and name."""
    if call.user is None:
        return
    for each in wanted:
        if isinstance(each, (list, tuple)) and len(each) > 1:
            if each[0] == "settings":
                call.demand(ADMIN, None)
            is_named = each[0] in _READS_OF_REPOSITORIES and isinstance(each[1], str) and each[1]
            call.demand(READ, each[1] if is_named else None)


def _may_everything(call: Call) -> bool:
    return call.user is None or (call.user.role == ADMIN and not call.user.repositories)


def _may_write_all(call: Call) -> bool:
    return call.user is not None and call.user.may(WRITE) and not call.user.repositories
