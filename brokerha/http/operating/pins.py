"""Pins of the log of the master that is asked: what is held for somebody who is no part of the cluster, such as an archive.

    GET    /cluster/pins            {"master", "first_lsn", "last_lsn", "hard_limit", "pins": [...]}
    PUT    /cluster/pins/{name}     {"lsn": 4711, "for_s": 86400}     sets one, moves it, or prolongs it
    DELETE /cluster/pins/{name}     takes it back

A change is answered when it is durable. It holds at this master only.
"""

from __future__ import annotations

from brokerha.http.door import answer
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.http.door.fields import fields_of
from brokerha.http.door.passing import command


async def listed(call: Call) -> Answer:
    """All pins, with what each holds."""
    return answer.as_json(await command(call, "pins", {}))


async def put(call: Call) -> Answer:
    """Set a pin, or move it."""
    fields = await fields_of(call, {"lsn": int, "for_s": int}, needed=("lsn", "for_s"))
    return answer.as_json(await command(call, "pin", {"name": call.path_text("name"), **fields}))


async def delete(call: Call) -> Answer:
    """Take a pin back; one that is not there is no error."""
    return answer.as_json(await command(call, "unpin", {"name": call.path_text("name")}))
