"""Bodies that are longer than a transaction: taken as they come, and applied as a whole or not at all.

    POST, PUT …/statements                 N-Triples, N-Quads ─┬─> parts of about 64 KiB, each staged ──> one commit (door/passing.py)
    POST an update                         one INSERT DATA ────┘

Each part is held only while it is staged, and answered before the next one is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from brokerha.http.door.call import Call
from brokerha.http.door.passing import Parts, is_long, naming_repository
from brokerha.http.guard.rights import demand_operations
from brokerha.ingress import rdf_bodies
from brokerha.ingress.insert_data import InsertData
from brokerha.ingress.rdf_bodies import Graph, context_text
from brokerha.model.errors import InvalidRequest
from brokerha.model.ids import TxId
from brokerha.model.operations import BODY_LIMIT_BYTES, Operation
from brokerha.model.requests import Reply
from brokerha.model.reserved.staging import PART_BYTES, SIZE_LIMIT_BYTES

_TRIG: Final = "application/trig"


async def is_large(call: Call, media_type: str) -> bool:
    """Tell whether a body is longer than a transaction, and can be cut into lines."""
    return rdf_bodies.is_of_lines(media_type) and await is_long(call)


async def add(
    call: Call, repository: str, media_type: str, contexts: Sequence[Graph], txid: TxId, *, is_cleared: bool = False
) -> Reply:
    """Add the statements of a body as one transaction; ``is_cleared``: in place of everything.

    Raises InvalidRequest, TooLarge, and the errors of writes.
    """
    options = {
        "contexts": [context_text(graph) for graph in contexts],
        "keep_labels": call.parameters().flag("preserveNodeId"),
    }
    first: list[Operation] = [("clear", repository)] if is_cleared else []
    return await _stage_all(call, repository, txid, _lines(call), media_type, options, first)


async def insert(call: Call, repository: str, base_iri: str, txid: TxId) -> Reply:
    """Run an update of one INSERT DATA as one transaction. Raises as `add`."""
    return await _stage_all(call, repository, txid, _statements(call), _TRIG, {"base_iri": base_iri})


async def _stage_all(
    call: Call,
    repository: str,
    txid: TxId,
    documents: AsyncIterator[tuple[int, bytes]],
    media_type: str,
    options: dict[str, Any],
    first: Sequence[Operation] = (),
) -> Reply:
    async with Parts(call, txid) as parts:
        number = 0
        async for line, data in documents:
            number += 1
            try:
                is_plain = rdf_bodies.is_plain(data, media_type)
                nquads = await call.door.parsed(is_plain, rdf_bodies.nquads_of, data, media_type, txid=txid, part=number, **options)
            except InvalidRequest as error:
                raise InvalidRequest(f"{error} (counted from line {line} of the body)") from None
            if nquads:
                operations: list[Operation] = [*first, ("add", repository, nquads)]
                await demand_operations(call, operations)
                await parts.stage(operations)
                first = ()
        async with naming_repository(call, repository):
            return await parts.commit()


async def _lines(call: Call) -> AsyncIterator[tuple[int, bytes]]:
    """Yield whole lines of the body, each time with the number of the first."""
    rest, line = b"", 1
    async for piece in call.pieces(SIZE_LIMIT_BYTES):
        rest += piece
        while (cut := _cut(rest)) > 0:
            yield line, rest[:cut]
            line += rest.count(b"\n", 0, cut)
            rest = rest[cut:]
    if rest.strip():
        yield line, rest


async def _statements(call: Call) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the statements of an update, as TriG."""
    scanner = InsertData()
    async for piece in call.pieces(SIZE_LIMIT_BYTES):
        for document in scanner.feed(piece):
            yield document
    for document in scanner.end():
        yield document


def _cut(data: bytes) -> int:
    """Return the end of the next part; 0 when more must come."""
    if len(data) <= PART_BYTES:
        return 0
    cut = data.rfind(b"\n", 0, PART_BYTES) + 1 or data.find(b"\n") + 1
    if not cut and len(data) > BODY_LIMIT_BYTES:
        raise InvalidRequest(f"a line of the body is longer than {BODY_LIMIT_BYTES} bytes")
    return cut
