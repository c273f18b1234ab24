"""An operator's commands about the processes of a master, and about its nodes.

POST /cluster/promote                {"node": "m1-b", "force": false}     that process becomes primary; it only begins: 202
POST /cluster/nodes/{id}/{command}   {"force": true}                      pause, coin, continue a backup; pause, continue a worker
"""

from __future__ import annotations

from typing import Final

from brokerha.http.door import answer
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.http.door.fields import fields_of
from brokerha.http.door.passing import command
from brokerha.model.errors import NotFound

COMMANDS: Final = {"pause": "node-pause", "coin": "node-coin", "continue": "node-continue"}
"""Last part of the path: the command of the master (nodes/master/orders.py, master/site_commands.py)."""


async def promote(call: Call) -> Answer:
    """Make a process the primary of its master."""
    arguments = {"force": False, **await fields_of(call, {"node": str, "force": bool}, needed=("node",))}
    return answer.as_json(await command(call, "promote", arguments), 202)


async def order(call: Call) -> Answer:
    """Pause a node, coin it, or have it continue."""
    what = call.path_text("command")
    name = COMMANDS.get(what)
    if name is None:
        raise NotFound(f"there is no {what!r} of a node; there are {', '.join(COMMANDS)}")
    fields = await fields_of(call, {"force": bool})
    return answer.as_json(await command(call, name, {"node": call.path_text("id"), **fields}))
