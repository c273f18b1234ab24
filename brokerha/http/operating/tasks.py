"""Long work that an operator begins: it is answered at once with what to ask for, and goes on by itself.

    POST /cluster/backup             {"name": "monday", "incremental": false, "replace": false, "worker": "w2"}
                                     202, Location: /cluster/tasks/{request}
    GET  /cluster/tasks/{request}    {"request", "kind", "worker", "state", "done", "total", "per_s", "left_s", "reason", "answer"}

Without a worker the master chooses one. ``state`` is ``running``, ``done`` or ``failed``. The master that was asked knows the
request, and no other.
"""

from __future__ import annotations

from urllib.parse import quote

from brokerha.http.door import answer
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.http.door.fields import fields_of
from brokerha.http.door.passing import command

_BACKUP = {"name": str, "incremental": bool, "replace": bool, "worker": str}
"""Fields of a backup, with their types."""


async def post_backup(call: Call) -> Answer:
    """Begin a backup."""
    arguments = {"incremental": False, "replace": False, **await fields_of(call, _BACKUP, needed=("name",))}
    report = await command(call, "backup", arguments)
    return answer.as_json(report, 202, {"Location": f"/cluster/tasks/{quote(str(report['request']), safe='')}"})


async def get(call: Call) -> Answer:
    """How far a task is."""
    return answer.as_json(await command(call, "task", {"request": call.path_text("request")}))
