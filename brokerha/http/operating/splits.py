"""Splits: what becomes of them from now on, and what became of those that are over, by the book of the master that is asked.

    GET  /cluster/split-recovery              {"master", "mode", "source", "epoch", "files", "differing", "change"}
    POST /cluster/split-recovery              {"mode": "simple"}     puts another strategy in force at all masters
    GET  /cluster/splits                      {"master", "splits": [...]}          the newest first
    GET  /cluster/splits/{number}?from=&limit=   {"master", ..., "effects", "entries": [...], "next"}       at most 1,000 of its transactions

A wish is answered at once (202) with what it waits for; `change` of the first tells what became of it. Where nothing has to change
the answer is 200.
"""

from __future__ import annotations

from brokerha.http.door import answer
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.http.door.fields import fields_of
from brokerha.http.door.passing import command
from brokerha.model.errors import InvalidRequest


async def mode(call: Call) -> Answer:
    """What is in force, and the wish under way."""
    return answer.as_json(await command(call, "split-recovery", {}))


async def post_mode(call: Call) -> Answer:
    """Choose another strategy."""
    fields = await fields_of(call, {"mode": str}, needed=("mode",))
    report = await command(call, "split-recovery", fields)
    if not report["changed"]:
        return answer.as_json(report)
    return answer.as_json(report, 202, {"Location": "/cluster/split-recovery"})


async def listed(call: Call) -> Answer:
    """All splits that the book has."""
    return answer.as_json(await command(call, "splits", {}))


async def get(call: Call) -> Answer:
    """One of them, with a page of its transactions."""
    text = call.path_text("number")
    if not text.isascii() or not text.isdigit():
        raise InvalidRequest(f"{text!r} is no number of a split: GET /cluster/splits lists them")
    arguments = {"number": int(text)}
    for name in ("from", "limit"):
        if call.parameters().one(name) is not None:
            arguments[name] = call.parameters().number(name, 0)
    return answer.as_json(await command(call, "split", arguments))
