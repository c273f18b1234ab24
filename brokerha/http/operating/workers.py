"""An operator's commands about the workers of the master that is asked, and the list of its tasks.

    GET    /cluster/workers                    {"master", "read_only", "workers": [...]}
    PUT    /cluster/workers/{id}               {"readable": true}     adds one, or changes it
    DELETE /cluster/workers/{id}?force=true    removes one
    POST   /cluster/workers/{id}/off           {"force": true}        on, off, trust, copy, scrub
    POST   /cluster/repair                     {"from": ["w2"]}       the site takes the content of another one

Each is answered when what it changes is durable; long work only begins (202). What cannot be done now is 503 with the reason
and what to do first, what is wrong is 400. A body may be left out where every field may.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from brokerha.http.door import answer
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.http.door.fields import fields_of
from brokerha.http.door.passing import command
from brokerha.model.errors import InvalidRequest, NotFound

COMMANDS: Final = {
    "on": "worker-on",
    "off": "worker-off",
    "trust": "worker-trust",
    "copy": "worker-copy",
    "scrub": "scrub",
}
"""Last part of the path: the command of the master (master/site_commands.py)."""
LONG: Final = frozenset({"scrub"})
"""Commands that only begin, and are asked for as a task."""


async def listed(call: Call) -> Answer:
    """All workers of this master."""
    return answer.as_json(await command(call, "workers", {}))


async def put(call: Call) -> Answer:
    """Add a worker, or change whether it is read."""
    fields = await fields_of(call, {"readable": bool})
    return answer.as_json(await command(call, "worker-add", {"worker": call.path_text("id"), **fields}))


async def delete(call: Call) -> Answer:
    """Remove a worker."""
    arguments = {"worker": call.path_text("id"), "force": call.parameters().flag("force")}
    return answer.as_json(await command(call, "worker-remove", arguments))


async def post(call: Call) -> Answer:
    """Switch a worker on or off, trust its content, have it take a new copy or look at its data."""
    what = call.path_text("command")
    name = COMMANDS.get(what)
    if name is None:
        raise NotFound(f"there is no {what!r} of a worker; there are {', '.join(COMMANDS)}")
    fields = await fields_of(call, {"force": bool})
    report = await command(call, name, {"worker": call.path_text("id"), **fields})
    if what not in LONG:
        return answer.as_json(report)
    return answer.as_json(report, 202, {"Location": f"/cluster/tasks/{quote(str(report['request']), safe='')}"})


async def repair(call: Call) -> Answer:
    """Have the whole site take the content of workers of another site."""
    fields = await fields_of(call, {"from": list})
    sources = fields.get("from")
    if not sources or not all(isinstance(source, str) for source in sources):
        raise InvalidRequest('name the workers of another site to take the content from: {"from": ["w2"]}')
    return answer.as_json(await command(call, "worker-repair", {"from": sources}))


async def tasks(call: Call) -> Answer:
    """All tasks that this master remembers, the oldest first."""
    return answer.as_json(await command(call, "tasks", {}))
