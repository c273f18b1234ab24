"""Snapshots of tables by name: ``PUT`` and ``DELETE /snapshots/{name}``; ``/snapshots`` lists them, ``/kv/...?snapshot=`` reads from one."""

from __future__ import annotations

from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import begin_write, done, read, result, write


async def put(call: Call) -> Answer:
    """Make a snapshot of each ``table`` that is named, or of all. Rejected when there is one of that name."""
    txid = begin_write(call)
    return done(await write(call, [("snapshot", call.path_text("name"), *call.parameters().all("table"))], txid))


async def delete(call: Call) -> Answer:
    """Drop a snapshot. Rejected when there is none of that name."""
    txid = begin_write(call)
    return done(await write(call, [("drop-snapshot", call.path_text("name"))], txid))


async def listed(call: Call) -> Answer:
    """All snapshots."""
    return result(await read(call, "snapshots", "", {}))
