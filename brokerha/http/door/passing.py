"""Reads and writes on their way to the node, and their results on the way to an answer.

A write gets its transaction id here, before its body is used: blank nodes are named after it, and a missed deadline can always name
the transaction. The id is the client's idempotency key if there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self

import structlog

from brokerha.client.outcomes import error_of_reply
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.http.guard import demand_operations, limited
from brokerha.local_reads.asking import LocalReads
from brokerha.model.errors import (
    BrokerhaError,
    InvalidRequest,
    OutcomeUnknown,
    ReadOnly,
    Rejected,
    TimedOut,
    UnknownRepository,
    write_unknown,
)
from brokerha.model.ids import Lsn, TxId
from brokerha.model.operations import BODY_LIMIT_BYTES, Operation
from brokerha.model.outside.commands import is_change, outcome_unknown
from brokerha.model.requests import APPLIED_LEVEL, Reply
from brokerha.model.reserved.staging import COMMIT, DROP, STAGE, pause_s
from brokerha.model.wire.messages import Read
from brokerha.nodes.front.checking import is_plain
from brokerha.nodes.front.questions import note_command
from brokerha.ports.front import ReadOutcome

log = structlog.get_logger()
QUERY_CHARS: Final = 1000
"""Characters of a query in the log."""
_APPLIED: Final = (APPLIED_LEVEL, 1)
TRANSACTION: Final = b"brokerha-transaction"
"""Header of a read inside an open transaction, with its id."""


def begin_write(call: Call, *, takes_conditions: bool = False) -> TxId:
    """Return the transaction id of this request. Raises ReadOnly at a worker, InvalidRequest for conditions that do not apply."""
    if call.front.role == "worker":
        raise ReadOnly(call.front.writable()[1])
    for header in () if takes_conditions else ("If-Match", "If-None-Match"):
        if call.header(header.lower().encode()):
            raise InvalidRequest(
                f"{header} is for one key, /kv/{{table}}/{{key}}: elsewhere POST /tx what you expect with what you write, such as expect-since"
            )
    return call.key() or call.front.new_txid()


async def write(
    call: Call, operations: Sequence[Operation] | bytes, txid: TxId, timeout_ms: int = 0, *, ack: tuple[str, int] | None = None
) -> Reply:
    """Submit one transaction and wait for its level, by default that of the request. Raises its refusal or rejection."""
    level, copies = ack or call.ack()
    timeout_ms = timeout_ms or call.timeout_ms()
    future = await call.door.parsing(
        call.held_bytes <= call.door.limits.inline_limit_bytes and is_plain(operations),
        call.front.submit,
        operations,
        txid,
        level=level,
        copies=copies,
        timeout_ms=timeout_ms,
        apart=call.apart(),
        user=call.user_name(),
    )
    try:
        reply = await call.door.settled(future, timeout_ms)
    except TimeoutError:
        raise write_unknown(txid, "the node did not answer in time") from None
    error = error_of_reply(reply)
    if error is not None:
        raise error
    if reply.status == APPLIED_LEVEL:
        call.door.note_write(reply.lsn)
    return reply


async def write_to_repository(
    call: Call, repository: str, operations: Sequence[Operation], txid: TxId, timeout_ms: int = 0
) -> Reply:
    """Write as `write`, `naming_repository`, if the user has a right to each operation."""
    await demand_operations(call, operations)
    async with naming_repository(call, repository):
        return await write(call, operations, txid, timeout_ms)


@asynccontextmanager
async def naming_repository(call: Call, repository: str) -> AsyncIterator[None]:
    """Turn a rejection of a write for a missing repository into UnknownRepository.

    The order of transactions decides whether a repository exists, so only a worker can tell, at the LSN of the rejection. Only this
    case needs that read.
    """
    try:
        yield
    except Rejected as rejected:
        if repository in await repository_names(call, rejected.lsn):
            raise
        call.error_headers = {"Brokerha-Tx": rejected.txid, "Brokerha-Lsn": rejected.lsn}
        raise UnknownRepository(f"repository {repository!r} does not exist: PUT /repositories/ID creates one") from None


async def repository_names(call: Call, min_lsn: Lsn | None = None) -> list[str]:
    """Return the names of the repositories, at this LSN or as any read of this request sees them."""
    outcome = await read(call, "repositories", "", {}, min_lsn=min_lsn)
    names: list[str] = json.loads(outcome.body)
    return names


async def read(
    call: Call, kind: str, name: str, arguments: dict[str, Any], *, min_lsn: Lsn | None = None, timeout_ms: int = 0
) -> ReadOutcome:
    """Send one read, limited to what the user may read. Raises the error of the worker, or TimedOut without an answer."""
    inside = call.transaction or call.header(TRANSACTION)
    arguments = await limited(call, kind, name, arguments, is_inside=bool(inside))
    if inside:
        arguments = {**arguments, "tx": inside}
    least = call.min_lsn() if min_lsn is None else min_lsn
    if min_lsn is None and not call.header(b"brokerha-min-lsn"):
        # Clients of HTTP do not know LSNs and expect to read their own writes.
        least = call.door.written_lsn()
    timeout_ms = timeout_ms or call.timeout_ms()
    try:
        return await _read(call, kind, name, arguments, least, timeout_ms, is_inside=bool(inside))
    except TimedOut as error:
        if query := str(arguments.get("query", ""))[:QUERY_CHARS]:
            # The worker knows only the text of a query that is stuck: who sent it, only the door knows.
            who = {"user": call.user_name(), "origin": call.address()}
            log.warning("a query timed out", node=call.front.node_id, repository=name, query=query, **who, reason=str(error))
        raise


async def _read(
    call: Call, kind: str, name: str, arguments: dict[str, Any], least: Lsn, timeout_ms: int, *, is_inside: bool
) -> ReadOutcome:
    if call.door.local_reads is not None and not is_inside:
        began_s = asyncio.get_running_loop().time()
        outcome = await _read_near(call, call.door.local_reads, kind, name, arguments, least, timeout_ms)
        if outcome is not None:
            return outcome
        timeout_ms = max(1, timeout_ms - round(1000 * (asyncio.get_running_loop().time() - began_s)))
    future = call.front.read(kind, name, arguments, least, timeout_ms)
    try:
        return await call.door.settled(future, timeout_ms)
    except TimeoutError:
        raise TimedOut("the node did not answer the read in its time: try again") from None


async def _read_near(
    call: Call, local_reads: LocalReads, kind: str, name: str, arguments: dict[str, Any], least: Lsn, timeout_ms: int
) -> ReadOutcome | None:
    """Ask a worker of this machine; return None when none answers. Raises the errors of a wrong request, and TimedOut."""
    front = call.front
    readers = front.readers(least)
    try:
        outcome = await local_reads.read(readers.workers, Read("", kind, name, arguments, readers.min_lsn, timeout_ms))
    except (InvalidRequest, TimedOut) as error:
        front.was_read()
        readers.aged_error(error)
        raise
    if outcome is None:
        return None
    front.was_read()
    return readers.aged(outcome)


async def command(call: Call, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Have the master carry out an operator's command. Raises its refusal; without an answer OutcomeUnknown, or TimedOut for a look."""
    timeout_ms = call.timeout_ms()
    future = call.front.command(name, arguments, timeout_ms)
    note_command(future, call.front.node_id, name, arguments, call.user_name(), call.address())
    try:
        return await call.door.settled(future, timeout_ms)
    except TimeoutError:
        late = "the node did not answer in time"
        raise (outcome_unknown(name, late) if is_change(name, arguments) else TimedOut(f"{late}: try again")) from None


def done(reply: Reply, status: int = 204) -> Answer:
    """Return the answer to a write that reached its level."""
    return Answer(status, headers=facts_of(reply))


def facts_of(reply: Reply) -> dict[str, str | int]:
    """Return the headers of every answer to a write."""
    return {"Brokerha-Tx": reply.txid, "Brokerha-Lsn": reply.lsn, "Brokerha-Ack": reply.status}


def result(outcome: ReadOutcome) -> Answer:
    """Return the answer to a read."""
    content_type = outcome.content_type
    if content_type.startswith("text/") and ";" not in content_type:
        # Without it some clients take text for Latin-1.
        content_type += "; charset=utf-8"
    return Answer(200, outcome.body, content_type, {**age_of(outcome), "Vary": "Accept"})


def age_of(outcome: ReadOutcome) -> dict[str, str | int]:
    """Return the headers of every answer to a read: its LSN, and its possible age while the master is apart."""
    headers: dict[str, str | int] = {"Brokerha-Lsn": outcome.lsn}
    if outcome.apart:
        headers["Brokerha-Apart"] = outcome.apart
    if outcome.stale_ms is not None:
        headers["Brokerha-Stale-Ms"] = outcome.stale_ms
    return headers


# ---- in parts


async def is_long(call: Call) -> bool:
    """Tell whether the body is longer than a transaction."""
    return await call.is_longer(BODY_LIMIT_BYTES)


class Parts:
    """A large transaction in parts, submitted while the body of a request comes (model/reserved/staging.py).

    parts = Parts(call, txid)
    async with parts:              parts of a failed request are dropped; with an Idempotency-Key they stay for an hour for a retry
        await parts.stage(operations)         answered when a worker has the part, so that workers set the pace
        reply = await parts.commit()
    """

    def __init__(self, call: Call, txid: TxId) -> None:
        """Raises InvalidRequest for an unknown level: at the commit it would be too late."""
        ack = call.ack()
        # The outcome is known only when a worker has judged it.
        self._ack = ack if ack[0] == APPLIED_LEVEL else _APPLIED
        self._call = call
        self._txid = txid
        self.number = 0
        """Number of the last staged part."""
        self._is_kept = bool(call.key())
        """Whether the same request can continue with the staged parts."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A commit without an answer can still take place: its id in the answer leads to the outcome.
        if isinstance(error, BrokerhaError) and not isinstance(error, OutcomeUnknown) and self.number and not self._is_kept:
            with contextlib.suppress(BrokerhaError):
                await write(self._call, [(DROP, self._txid)], f"{self._txid}.drop")

    async def stage(self, operations: Sequence[Operation]) -> None:
        """Submit one part, then pause to leave the cluster to other writers."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        self.number += 1
        rows: list[Operation] = [(STAGE, self._txid, self.number), *operations]
        await write(self._call, rows, f"{self._txid}.{self.number}", ack=_APPLIED)
        await asyncio.sleep(pause_s(loop.time() - began_s))

    async def commit(self) -> Reply:
        """Commit all parts, within the longest time of the door."""
        if not self.number:
            raise InvalidRequest("the body holds nothing")
        timeout_ms = self._call.door.limits.timeout_limit_ms
        return await write(self._call, [(COMMIT, self._txid, self.number)], self._txid, timeout_ms, ack=self._ack)
