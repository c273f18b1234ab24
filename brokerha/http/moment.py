"""Several reads of one moment: ``POST /together``, over all stores at one LSN.

The body is a msgpack list of ``[kind, name, arguments]``, the answer a msgpack list of ``[content type, body]`` in the same order.
"""

from __future__ import annotations

from typing import Any

import msgpack

from brokerha.http.answer import MSGPACK, Answer
from brokerha.http.call import Call
from brokerha.http.passing import age_of, read
from brokerha.model.errors import InvalidRequest


async def post(call: Call) -> Answer:
    """All of them, or the error of the first that fails."""
    outcome = await read(call, "together", "", {"reads": _packed(await call.body())})
    return Answer(200, outcome.body, MSGPACK, age_of(outcome))


def _packed(body: bytes) -> tuple[bytes, ...]:
    try:
        wanted: Any = msgpack.unpackb(body)
    except (ValueError, msgpack.UnpackException):
        wanted = None
    if not isinstance(wanted, list):
        raise InvalidRequest(f"the body is a list of [kind, name, arguments] as {MSGPACK}")
    return tuple(msgpack.packb(each) for each in wanted)
