"""Meaning of a reply for the caller: a `Written`, or an error."""

from __future__ import annotations

from typing import NamedTuple

from brokerha.model.errors import BrokerhaError, Conflict, Rejected, error_named, write_unknown
from brokerha.model.ids import Lsn, TxId
from brokerha.model.requests import REFUSED, REJECTED_STATUS, UNKNOWN, Reply


class Written(NamedTuple):
    """A write that reached its level."""

    txid: TxId
    lsn: Lsn
    """0 when the level is ``accepted`` and the order is not known yet."""
    level: str


def written(reply: Reply) -> Written:
    """Return the result of a write. Raises Rejected, OutcomeUnknown, or the error with which the node refused it."""
    error = error_of_reply(reply)
    if error is not None:
        raise error
    return Written(reply.txid, reply.lsn, reply.status)


def is_conflict(reply: Reply) -> bool:
    """Tell whether the write was rejected because another write broke its expectation."""
    return reply.status == REJECTED_STATUS and reply.error == Conflict.__name__


def error_of_reply(reply: Reply) -> BrokerhaError | None:
    """Return the error of a reply; None when the write reached its level."""
    if reply.status == REJECTED_STATUS:
        return (Conflict if is_conflict(reply) else Rejected)(reply.reason, reply.txid, reply.lsn)
    if reply.status == UNKNOWN:
        return write_unknown(reply.txid, reply.reason or "there was no answer in its time")
    if reply.status == REFUSED:
        return error_named(reply.error, reply.reason)
    return None
