"""Long work that an operator begins: it is answered at once with what to ask for, and goes on by itself.

    POST /cluster/backup             {"name": "monday", "incremental": false, "replace": false, "worker": "w2"}
                                     202, Location: /cluster/tasks/{request}
    GET  /cluster/tasks/{request}    {"request", "kind", "worker", "state", "done", "total", "per_s", "left_s", "reason", "answer"}

Without a worker the master chooses one. ``state`` is ``running``, ``done`` or ``failed``. The master that was asked knows the
request, and no other.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from brokerha.http import answer
from brokerha.http.answer import JSON, Answer
from brokerha.http.call import Call
from brokerha.http.passing import command
from brokerha.model.errors import InvalidRequest, UnsupportedType

_BACKUP = {"name": str, "incremental": bool, "replace": bool, "worker": str}
"""Fields of a backup, with their types; the first must be there."""


async def post_backup(call: Call) -> Answer:
    """Begin a backup."""
    if call.media_type() not in {JSON, ""}:
        raise UnsupportedType(f"content type {call.media_type()!r}: send {JSON}")
    arguments = {"incremental": False, "replace": False, **_fields(await call.text())}
    report = await command(call, "backup", arguments)
    return answer.as_json(report, 202, {"Location": f"/cluster/tasks/{quote(str(report['request']), safe='')}"})


async def get(call: Call) -> Answer:
    """How far a task is."""
    return answer.as_json(await command(call, "task", {"request": call.path_text("request")}))


def _fields(text: str) -> dict[str, Any]:
    """The body of a backup. Raises InvalidRequest."""
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None
    if not isinstance(fields, dict) or "name" not in fields:
        raise InvalidRequest('the body is a JSON object such as {"name": "monday", "incremental": false}')
    for name, value in fields.items():
        wanted = _BACKUP.get(name)
        if wanted is None:
            raise InvalidRequest(f"unknown field {name!r}; known are {', '.join(_BACKUP)}")
        if type(value) is not wanted:
            raise InvalidRequest(f"{name} is {'text' if wanted is str else 'true or false'}, not {value!r}")
    return fields
