"""The body of a command: a JSON object with known fields, each of one type.

    fields = await fields_of(call, {"name": str, "replace": bool}, needed=("name",))

A body that says nothing is an empty object. Whatever else is wrong gets an error that names it and what is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from brokerha.http.data.key_forms import json_of
from brokerha.http.door.answer import JSON
from brokerha.http.door.call import Call
from brokerha.model.errors import InvalidRequest, UnsupportedType

NUMBER_LIMIT: Final = 2**63
_WORDS: Final[Mapping[type, str]] = {bool: "true or false", str: "text", list: "a list of names", int: "a whole number"}


async def fields_of(call: Call, known: Mapping[str, type], needed: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields that were sent, of those that are ``known``. Raises InvalidRequest, UnsupportedType."""
    body = await call.body()
    fields: Any = {}
    if body.strip():
        if call.media_type() not in {JSON, ""}:
            raise UnsupportedType(f"content type {call.media_type()!r}: send {JSON}")
        fields = await call.door.by_size(len(body), json_of, body)
    if not isinstance(fields, dict):
        raise InvalidRequest(f"the body is a JSON object with {', '.join(known)}")
    for name, value in fields.items():
        wanted = known.get(name)
        if wanted is None:
            raise InvalidRequest(f"unknown field {name!r}; known are {', '.join(known)}")
        if type(value) is not wanted:
            raise InvalidRequest(f"{name} is {_WORDS[wanted]}, not {repr(value)[:80]}")
        if isinstance(value, int) and not -NUMBER_LIMIT <= value < NUMBER_LIMIT:
            raise InvalidRequest(f"{name} is a whole number of 63 bits")
    for name in needed:
        if name not in fields:
            raise InvalidRequest(f"{name} is missing: the body is a JSON object with {', '.join(known)}")
    return fields
