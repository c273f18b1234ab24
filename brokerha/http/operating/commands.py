"""Commands of operators: each request is one command of the asked master, and its report comes back as JSON.

    "/cluster/pins/{name}": {"PUT": (ADMIN, Command("pin", {"lsn": int, "for_s": int}, needed=("lsn", "for_s")))}

    GET    /cluster/workers                      {"master", "read_only", "workers": [...]}
    PUT    /cluster/workers/{worker}             {"readable": true}     adds one, or changes it
    DELETE /cluster/workers/{worker}?force=true  removes one
    POST   /cluster/workers/{worker}/off         {"force": true}        on, off, trust, copy, scrub
    POST   /cluster/repair                       {"from": ["w2"]}       replaces the content of the site by another one's
    POST   /cluster/promote                      {"node": "m1-b", "force": false}     that process becomes primary
    POST   /cluster/nodes/{node}/{command}       {"force": true}        pause, coin, continue
    GET    /cluster/pins                         {"master", "first_lsn", "last_lsn", "hard_limit", "pins": [...]}   of this master only
    PUT    /cluster/pins/{name}                  {"lsn": 4711, "for_s": 86400}     sets one, moves it, or prolongs it
    DELETE /cluster/pins/{name}                  takes it back; one that is not there is no error
    GET    /cluster/peers                        {"master", "epoch", "masters", "members", "retired", "change", "peers": [...]}
    PUT    /cluster/peers/{node}                 requests that a node becomes a master
    DELETE /cluster/peers/{node}?force=true      requests that a master stops being one
    GET    /cluster/split-recovery               {"master", "mode", "source", "epoch", "files", "differing", "change"}
    POST   /cluster/split-recovery               {"mode": "simple"}     puts another strategy in force at all masters
    GET    /cluster/splits                       {"master", "splits": [...]}          the newest first
    GET    /cluster/splits/{number}?from=&limit= {"master", ..., "effects", "entries": [...], "next"}       at most 1,000 of its transactions
    GET    /cluster/settings                     {"master", "lsn", "problem", "settings": [{"name", "value", "source", "file", "in_force", "live", ...}]}
    GET    /cluster/settings/{name}              one of them
    PUT    /cluster/settings/{name}              {"value": "5000"}      for all nodes; quotes are optional except for words
    DELETE /cluster/settings/{name}              unsets it: the value of the cluster files counts again
    POST   /cluster/backup                       {"name": "monday", "incremental": false, "replace": false, "worker": "w2"}
    GET    /cluster/tasks                        all tasks that this master remembers, the oldest first
    GET    /cluster/tasks/{request}              {"request", "kind", "worker", "state", "done", "total", "per_s", "left_s", "reason", "answer"}

A name in the path is an argument of that name. A command is answered when its change is durable. A request about masters and long
work only begin: 202, with the address of their progress, or 200 when nothing has to change. A command that is impossible now gets
503 with the reason and the first step to take; a wrong one gets 400. A body can be left out when all its fields are optional. A
change of a setting is answered when the site of this master has applied it and, for a live setting, the master has put it into
force. It is kept with its author, time and origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from brokerha.http.data.keys import json_of
from brokerha.http.door import answer
from brokerha.http.door.answer import JSON, Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import command
from brokerha.model.errors import InvalidRequest, NotFound
from brokerha.model.reserved.settings import name_problem, text_of

NUMBER_LIMIT: Final = 2**63
_SETTING: Final = 'the body is {"value": ...} with a text, a number, true or false'
_WORDS: Final[Mapping[type, str]] = {bool: "true or false", str: "text", list: "a list of names", int: "a whole number"}


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the master, as a handler."""

    name: str
    """Name at the master (nodes/master/orders.py, master/site_commands.py)."""
    fields: Mapping[str, type] | None = None
    """Fields of the body with their types; None for no body."""
    needed: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """Parameters that are true or false."""
    begins: str = ""
    """Address of the progress, for a command that only begins."""

    async def __call__(self, call: Call) -> Answer:
        """Carry out the command."""
        arguments = {**self.defaults, **await self._arguments(call)}
        report = await command(call, self.name, arguments)
        if not (self.begins and report.get("changed", True)):
            return answer.as_json(report)
        told = {name: quote(str(value), safe="") for name, value in report.items()}
        return answer.as_json(report, 202, {"Location": self.begins.format(**told)})

    async def _arguments(self, call: Call) -> dict[str, Any]:
        arguments: dict[str, Any] = {name: call.path_text(name) for name in call.scope["path_params"]}
        arguments.pop("command", None)
        arguments |= {name: call.parameters().flag(name) for name in self.flags}
        if self.fields is not None:
            arguments |= await fields_of(call, self.fields, self.needed)
        return arguments


@dataclass(frozen=True, slots=True)
class Choice:
    """Several commands; the last part of the path names one."""

    of: str
    commands: Mapping[str, Command]

    async def __call__(self, call: Call) -> Answer:
        """Carry out the named command. Raises NotFound."""
        what = call.path_text("command")
        if what not in self.commands:
            raise NotFound(f"there is no {what!r} of a {self.of}; there are {', '.join(self.commands)}")
        return await self.commands[what](call)


_TASK = "/cluster/tasks/{request}"
_FORCE = {"force": bool}
OF_WORKERS = Choice(
    "worker",
    {name: Command(f"worker-{name}", _FORCE) for name in ("on", "off", "trust", "copy")}
    | {"scrub": Command("scrub", _FORCE, begins=_TASK)},
)
OF_NODES = Choice("node", {name: Command(f"node-{name}", _FORCE) for name in ("pause", "coin", "continue")})
BACKUP = Command(
    "backup",
    {"name": str, "incremental": bool, "replace": bool, "worker": str},
    needed=("name",),
    defaults={"incremental": False, "replace": False},
    begins=_TASK,
)
PROMOTE = Command("promote", {"node": str, "force": bool}, needed=("node",), defaults={"force": False}, begins="/cluster/status")
PIN = Command("pin", {"lsn": int, "for_s": int}, needed=("lsn", "for_s"))
SPLIT_RECOVERY = Command("split-recovery", {"mode": str}, needed=("mode",), begins="/cluster/split-recovery")


async def repair(call: Call) -> Answer:
    """Replace the content of the whole site by that of workers of another site."""
    sources = (await fields_of(call, {"from": list})).get("from")
    if not sources or not all(isinstance(source, str) for source in sources):
        raise InvalidRequest('name the workers of another site to take the content from: {"from": ["w2"]}')
    return answer.as_json(await command(call, "worker-repair", {"from": sources}))


async def split(call: Call) -> Answer:
    """Return one past split, with a page of its transactions."""
    text = call.path_text("number")
    if not text.isascii() or not text.isdigit():
        raise InvalidRequest(f"{text!r} is no number of a split: GET /cluster/splits lists them")
    parameters = call.parameters()
    page = {name: parameters.number(name, 0) for name in ("from", "limit") if parameters.one(name) is not None}
    return answer.as_json(await command(call, "split", {"number": int(text), **page}))


async def get_setting(call: Call) -> Answer:
    """Return one setting. Raises NotFound."""
    name = call.path_text("name")
    if problem := name_problem(name):
        raise NotFound(problem)
    told = await command(call, "settings", {})
    found = next(each for each in told.pop("settings") if each["name"] == name)
    return answer.as_json({**told, "setting": found})


async def put_setting(call: Call) -> Answer:
    """Set one setting. Raises InvalidRequest, UnsupportedType, and the errors of a write."""
    call.body_type(JSON, "")
    fields = await _json_of(call)
    if not isinstance(fields, dict) or set(fields) != {"value"} or not isinstance(fields["value"], (str, int, float)):
        raise InvalidRequest(_SETTING)
    value = fields["value"]
    return await _setting_changed(call, "setting-set", {"value": value if isinstance(value, str) else text_of(value)})


async def delete_setting(call: Call) -> Answer:
    """Unset a setting."""
    return await _setting_changed(call, "setting-unset", {})


async def _setting_changed(call: Call, name: str, arguments: dict[str, Any]) -> Answer:
    asked = {"name": call.path_text("name"), **arguments, "by": call.user_name()[:200], "from": call.address()}
    return answer.as_json(await command(call, name, asked))


async def fields_of(call: Call, known: Mapping[str, type], needed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the ``known`` fields of a JSON object; an empty body has none. Raises InvalidRequest, UnsupportedType."""
    fields = await _json_of(call)
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


async def _json_of(call: Call) -> Any:
    """Parse the body; an empty one is an empty object. Raises InvalidRequest, UnsupportedType."""
    body = await call.body()
    if not body.strip():
        return {}
    call.body_type(JSON, "")
    return await call.door.by_size(len(body), json_of, body)
