"""The control suite: list checks, add and remove them, as writes like any other.

    PUT /cluster/control/no-orphans      {"kind": "ask", "target": "main", "text": "ASK { ... }", "expected": true}

``expected`` is the text of model/control.py; for a query also its plain form, a truth value or a list of rows.
"""

from __future__ import annotations

import json
from typing import Any, Final

from brokerha.http.data.key_forms import json_of
from brokerha.http.door.answer import JSON, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import begin_write, done, read, result, write
from brokerha.model.errors import InvalidRequest

_FIELDS: Final = ("kind", "target", "text", "expected")


async def get(call: Call) -> Answer:
    """Return all checks."""
    return result(await read(call, "control", "", {}))


async def put(call: Call) -> Answer:
    """Add a check, or replace that of the same name. Rejected when it does not hold now."""
    txid = begin_write(call)
    call.body_type(JSON, what="a check")
    kind, target, text, expected = _fields(await _json(call))
    return done(await write(call, [("control-add", call.path_text("name"), kind, target, text, expected)], txid))


async def delete(call: Call) -> Answer:
    """Remove a check. Rejected when none has this name."""
    txid = begin_write(call)
    return done(await write(call, [("control-remove", call.path_text("name"))], txid))


async def _json(call: Call) -> Any:
    body = await call.body()
    return await call.door.by_size(len(body), json_of, body)


def _fields(body: Any) -> list[str]:
    if not isinstance(body, dict) or set(body) != set(_FIELDS):
        raise InvalidRequest(f"a check is a JSON object with {', '.join(_FIELDS)}")
    if isinstance(body["expected"], (bool, list)):
        body = {**body, "expected": json.dumps(body["expected"])}
    for name in _FIELDS:
        if not isinstance(body[name], str):
            raise InvalidRequest(f"{name} of a check is text")
    return [body[name] for name in _FIELDS]
