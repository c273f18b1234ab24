"""Bodies of N-Triples and N-Quads that are longer than a transaction: taken in as they come, and all of them or nothing.

    POST /repositories/{id}/statements     lines ──> parts of about 64 KiB, each staged ──> one commit (model/reserved/staging.py)

Nothing of it is held for longer than its part takes, and a part is answered before the next one is read: so the sender is as fast as the workers.
What fails is dropped; with an Idempotency-Key it stays for an hour, so that the same request goes on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from brokerha.http.door.call import Call
from brokerha.http.door.passing import write, write_to_repository
from brokerha.ingress import rdf_bodies
from brokerha.ingress.rdf_bodies import Graph, context_text
from brokerha.model.errors import BrokerhaError, InvalidRequest, OutcomeUnknown
from brokerha.model.ids import TxId
from brokerha.model.operations import BODY_LIMIT_BYTES, Operation
from brokerha.model.requests import APPLIED_LEVEL, Reply
from brokerha.model.reserved.staging import COMMIT, DROP, PART_BYTES, SIZE_LIMIT_BYTES, STAGE, pause_s

_APPLIED: Final = (APPLIED_LEVEL, 1)


def is_large(call: Call, media_type: str) -> bool:
    """Whether a body is longer than a transaction, by what the request announces, and can be cut into lines."""
    announced = call.header(b"content-length")
    return rdf_bodies.is_of_lines(media_type) and announced.isdecimal() and int(announced) > BODY_LIMIT_BYTES


async def add(call: Call, repository: str, media_type: str, contexts: Sequence[Graph], txid: TxId) -> Reply:
    """Add what the body says, as one transaction. Raises InvalidRequest, TooLarge, and what writes raise."""
    parts = _Parts(call, repository, media_type, contexts, txid)
    try:
        rest = b""
        async for piece in call.pieces(SIZE_LIMIT_BYTES):
            rest += piece
            while (cut := _cut(rest)) > 0:
                await parts.stage(rest[:cut])
                rest = rest[cut:]
        if rest.strip():
            await parts.stage(rest)
        return await parts.commit()
    except BrokerhaError as error:
        # A commit without an answer may take place yet: the id that the answer names tells.
        if not isinstance(error, OutcomeUnknown):
            await parts.drop()
        raise


def _cut(data: bytes) -> int:
    """Where the next part ends; 0 when more has to come."""
    if len(data) <= PART_BYTES:
        return 0
    cut = data.rfind(b"\n", 0, PART_BYTES) + 1 or data.find(b"\n") + 1
    if not cut and len(data) > BODY_LIMIT_BYTES:
        raise InvalidRequest(f"a line of the body is longer than {BODY_LIMIT_BYTES} bytes")
    return cut


class _Parts:
    """The parts of one body."""

    def __init__(self, call: Call, repository: str, media_type: str, contexts: Sequence[Graph], txid: TxId) -> None:
        self._call = call
        self._repository = repository
        self._media_type = media_type
        self._contexts = [context_text(graph) for graph in contexts]
        self._txid = txid
        self._number = 0
        self._is_kept = bool(call.key())
        """Whether the same request may go on with them."""

    async def stage(self, data: bytes) -> None:
        """Hand over one part."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        nquads = await self._call.door.parsed(
            rdf_bodies.is_plain(data, self._media_type),
            rdf_bodies.nquads_of,
            data,
            self._media_type,
            txid=self._txid,
            contexts=self._contexts,
            keep_labels=self._call.parameters().flag("preserveNodeId"),
            by_label=True,
        )
        if nquads:
            self._number += 1
            rows: list[Operation] = [(STAGE, self._txid, self._number), ("add", self._repository, nquads)]
            await write(self._call, rows, f"{self._txid}.{self._number}", ack=_APPLIED)
            await asyncio.sleep(pause_s(loop.time() - began_s))

    async def commit(self) -> Reply:
        """Have them take place."""
        if not self._number:
            raise InvalidRequest("the body holds no statement")
        ack = self._call.ack()
        # Whether it takes place is known when a worker has judged it.
        ack = ack if ack[0] == APPLIED_LEVEL else _APPLIED
        timeout_ms = self._call.door.limits.timeout_limit_ms
        return await write_to_repository(
            self._call, self._repository, [(COMMIT, self._txid, self._number)], self._txid, timeout_ms, ack=ack
        )

    async def drop(self) -> None:
        """Leave nothing behind, if nobody may go on with it. Never raises."""
        if self._number and not self._is_kept:
            with contextlib.suppress(BrokerhaError):
                await write(self._call, [(DROP, self._txid)], f"{self._txid}.drop")
