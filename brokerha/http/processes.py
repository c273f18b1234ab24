"""An operator's command about the processes of a master.

POST /cluster/promote     {"node": "m1-b", "force": false}     that process becomes primary; it only begins: 202
"""

from __future__ import annotations

from brokerha.http import answer
from brokerha.http.answer import Answer
from brokerha.http.call import Call
from brokerha.http.fields import fields_of
from brokerha.http.passing import command


async def promote(call: Call) -> Answer:
    """Make a process the primary of its master."""
    arguments = {"force": False, **await fields_of(call, {"node": str, "force": bool}, needed=("node",))}
    return answer.as_json(await command(call, "promote", arguments), 202)
