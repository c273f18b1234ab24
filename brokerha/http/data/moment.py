"""Several reads of one moment: ``POST /together``, over all stores at one LSN.

The body is a msgpack list of ``[kind, name, arguments]``, the answer a msgpack list of ``[content type, body]`` in the same order.
"""

from __future__ import annotations

from typing import Any

from brokerha.http.door.answer import MSGPACK, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import age_of, read
from brokerha.http.guard.rights import demand_reads
from brokerha.model.errors import InvalidRequest
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign
from brokerha.stores.reads.together import packed_reads


async def post(call: Call) -> Answer:
    """All of them, or the error of the first that fails."""
    wanted = _unpacked(await call.body())
    demand_reads(call, wanted)
    outcome = await read(call, "together", "", {"reads": packed_reads(wanted)})
    return Answer(200, outcome.body, MSGPACK, age_of(outcome))


def _unpacked(body: bytes) -> list[Any]:
    try:
        wanted: Any = unpack_foreign(body, use_list=True)
    except BROKEN:
        wanted = None
    if not isinstance(wanted, list):
        raise InvalidRequest(f"the body is a list of [kind, name, arguments] as {MSGPACK}")
    return wanted
