"""Bodies of N-Triples and N-Quads that are longer than a transaction: taken in as they come, and all of them or nothing.

    POST /repositories/{id}/statements     lines ──> parts of about 64 KiB, each staged ──> one commit (door/large.py)

Nothing of it is held for longer than its part takes, and a part is answered before the next one is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from brokerha.http.door import large
from brokerha.http.door.call import Call
from brokerha.http.door.passing import naming_repository
from brokerha.ingress import rdf_bodies
from brokerha.ingress.rdf_bodies import Graph, context_text
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import TxId
from brokerha.model.operations import BODY_LIMIT_BYTES
from brokerha.model.requests import Reply
from brokerha.model.reserved.staging import PART_BYTES, SIZE_LIMIT_BYTES


def is_large(call: Call, media_type: str) -> bool:
    """Whether a body is longer than a transaction, and can be cut into lines."""
    return rdf_bodies.is_of_lines(media_type) and large.is_long(call)


async def add(call: Call, repository: str, media_type: str, contexts: Sequence[Graph], txid: TxId) -> Reply:
    """Add what the body says, as one transaction. Raises InvalidRequest, TooLarge, and what writes raise."""
    async with large.Parts(call, txid) as parts:

        async def stage(data: bytes) -> None:
            nquads = await call.door.parsed(
                rdf_bodies.is_plain(data, media_type),
                rdf_bodies.nquads_of,
                data,
                media_type,
                txid=txid,
                contexts=[context_text(graph) for graph in contexts],
                keep_labels=call.parameters().flag("preserveNodeId"),
                by_label=True,
            )
            if nquads:
                await parts.stage([("add", repository, nquads)])

        rest = b""
        async for piece in call.pieces(SIZE_LIMIT_BYTES):
            rest += piece
            while (cut := _cut(rest)) > 0:
                await stage(rest[:cut])
                rest = rest[cut:]
        if rest.strip():
            await stage(rest)
        async with naming_repository(call, repository):
            return await parts.commit()


def _cut(data: bytes) -> int:
    """Where the next part ends; 0 when more has to come."""
    if len(data) <= PART_BYTES:
        return 0
    cut = data.rfind(b"\n", 0, PART_BYTES) + 1 or data.find(b"\n") + 1
    if not cut and len(data) > BODY_LIMIT_BYTES:
        raise InvalidRequest(f"a line of the body is longer than {BODY_LIMIT_BYTES} bytes")
    return cut
