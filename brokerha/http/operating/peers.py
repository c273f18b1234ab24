"""The masters of the cluster, as the master sees them that is asked; adding one and taking one out.

    GET    /cluster/peers                     {"master", "epoch", "masters", "members", "retired", "change", "peers": [...]}
    PUT    /cluster/peers/{id}                wish that a node becomes a master
    DELETE /cluster/peers/{id}?force=true     wish that a master is none any more

A wish is answered at once (202) with what it waits for; `change` of the first tells what became of it. Where nothing has to change
the answer is 200.
"""

from __future__ import annotations

from brokerha.http.door import answer
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.http.door.fields import fields_of
from brokerha.http.door.passing import command


async def listed(call: Call) -> Answer:
    """All masters, and the wish under way."""
    return answer.as_json(await command(call, "peers", {}))


async def put(call: Call) -> Answer:
    """Add a master."""
    await fields_of(call, {})
    return await _wished(call, "peer-add", {"node": call.path_text("id")})


async def delete(call: Call) -> Answer:
    """Take a master out."""
    arguments = {"node": call.path_text("id"), "force": call.parameters().flag("force")}
    return await _wished(call, "peer-remove", arguments)


async def _wished(call: Call, name: str, arguments: dict[str, object]) -> Answer:
    report = await command(call, name, arguments)
    if not report["changed"]:
        return answer.as_json(report)
    return answer.as_json(report, 202, {"Location": "/cluster/peers"})
