"""What a reply means to the caller: a `Written`, or the error that it stands for."""

from __future__ import annotations

from typing import NamedTuple

from brokerha.model.errors import BrokerhaError, Conflict, OutcomeUnknown, Rejected, aborted, error_named
from brokerha.model.ids import Lsn, TxId
from brokerha.model.requests import REFUSED, REJECTED_STATUS, UNKNOWN, Reply


class Written(NamedTuple):
    """A write that reached its level."""

    txid: TxId
    lsn: Lsn
    """0 when the level is ``accepted`` and the order is not known yet."""
    level: str


def written(reply: Reply) -> Written:
    """What was written. Raises Rejected, OutcomeUnknown, or what the node refused it with."""
    error = error_of_reply(reply)
    if error is not None:
        raise error
    return Written(reply.txid, reply.lsn, reply.status)


def is_conflict(reply: Reply) -> bool:
    """Whether the write was rejected as what it expected was changed by another one."""
    return reply.status == REJECTED_STATUS and isinstance(aborted(reply.reason), Conflict)


def error_of_reply(reply: Reply) -> BrokerhaError | None:
    """The error that a reply stands for; None when the write reached its level."""
    if reply.status == REJECTED_STATUS:
        return Rejected(reply.reason, reply.txid, reply.lsn)
    if reply.status == UNKNOWN:
        return OutcomeUnknown(reply.txid, f"outcome unknown of transaction {reply.txid}: {reply.reason or 'ask again'}")
    if reply.status == REFUSED:
        return error_named(reply.error, reply.reason)
    return None
