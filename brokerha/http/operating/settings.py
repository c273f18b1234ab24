"""Settings of the cluster at run time, as the master knows them that is asked.

    GET    /cluster/settings            {"master", "lsn", "problem", "settings": [{"name", "value", "source", "file", "in_force", "live", ...}]}
    GET    /cluster/settings/{name}     one of them
    PUT    /cluster/settings/{name}     {"value": "5000"}     for all nodes; a number or true and false may stand without quotes
    DELETE /cluster/settings/{name}     takes it back: what the cluster files say counts again

A change is answered when the site of this master has applied it and the master has put it into force, if it is live. It is kept with
who asked for it, when, and from where.
"""

from __future__ import annotations

from typing import Any, Final

from brokerha.http.data.key_forms import json_of
from brokerha.http.door import answer
from brokerha.http.door.answer import JSON, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import command
from brokerha.model.errors import InvalidRequest, NotFound, UnsupportedType
from brokerha.model.reserved.settings import name_problem, text_of

_BODY: Final = 'the body is {"value": ...} with a text, a number, true or false'


async def get(call: Call) -> Answer:
    """One of them. Raises NotFound."""
    name = call.path_text("name")
    if problem := name_problem(name):
        raise NotFound(problem)
    told = await command(call, "settings", {})
    found = next(each for each in told.pop("settings") if each["name"] == name)
    return answer.as_json({**told, "setting": found})


async def put(call: Call) -> Answer:
    """Set one. Raises InvalidRequest, UnsupportedType, and what a write may end in."""
    body = await call.body()
    if call.media_type() not in {JSON, ""}:
        raise UnsupportedType(f"content type {call.media_type()!r}: send {JSON}")
    fields = await call.door.by_size(len(body), json_of, body) if body.strip() else None
    if not isinstance(fields, dict) or set(fields) != {"value"} or not isinstance(fields["value"], (str, int, float)):
        raise InvalidRequest(_BODY)
    value = fields["value"]
    return await _changed(call, "setting-set", {"value": value if isinstance(value, str) else text_of(value)})


async def delete(call: Call) -> Answer:
    """Take one back."""
    return await _changed(call, "setting-unset", {})


async def _changed(call: Call, name: str, arguments: dict[str, Any]) -> Answer:
    asked = {"name": call.path_text("name"), **arguments, "by": call.user_name()[:200], "from": call.address()}
    return answer.as_json(await command(call, name, asked))
