"""What one copy holds, bucket by bucket, so that two copies are compared without sending them whole (stores/comparing/digests.py).

    GET  /cluster/digests?bits=10       of each bucket the number of items and the XOR of their digests
    POST /cluster/digests/items         {"bits": 10, "buckets": [[store, name, bucket], ...], "limit": 1000}

Body and answers are msgpack. A worker answers for its own copy, a master has one of its workers answer.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from brokerha.http.door.answer import MSGPACK, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import age_of, read
from brokerha.model.errors import InvalidRequest
from brokerha.model.outside.unpacking import BROKEN, unpack_foreign

_FIELDS: Final = frozenset({"bits", "buckets", "limit"})


async def get(call: Call) -> Answer:
    """All buckets that are not empty."""
    parameters = call.parameters()
    bits = None if parameters.one("bits") is None else parameters.number("bits", 0)
    outcome = await read(call, "digests", "", {"bits": bits})
    return Answer(200, outcome.body, MSGPACK, age_of(outcome))


async def post_items(call: Call) -> Answer:
    """The items of some buckets."""
    outcome = await read(call, "items", "", _arguments(await call.body()))
    return Answer(200, outcome.body, MSGPACK, age_of(outcome))


def _arguments(body: bytes) -> dict[str, Any]:
    try:
        fields: Any = unpack_foreign(body, use_list=True)
    except BROKEN:
        fields = None
    if not (isinstance(fields, dict) and fields.keys() <= _FIELDS and isinstance(fields.get("buckets"), list)):
        raise InvalidRequest(f'the body is {{"bits", "buckets": [[store, name, bucket], …], "limit"}} as {MSGPACK}')
    return {**fields, "buckets": tuple(msgpack.packb(each) for each in fields["buckets"])}
