"""HTTP requests for reads (stores/reads/reading.py), transaction steps (ports.Front.transact), operator commands
(ports.Front.command) and cluster questions, and the conversion of their answers.

>>> read_of("get", "t", {"key": b"a/b"})
Request(method='GET', path='/kv/t/a%2Fb', headers={}, body=b'', once='')
>>> step_of("rollback", "m1.7", {"session": "s"}).headers
{'Brokerha-Session': 's'}
>>> command_of("worker-off", {"worker": "w2", "force": True})[1:4]
('/cluster/workers/w2/off', {'Accept': 'application/json', 'Content-Type': 'application/json'}, b'{"force": true}')
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgpack

from brokerha.model.errors import InvalidRequest
from brokerha.model.outside.commands import is_change
from brokerha.model.outside.isolation import READ_COMMITTED
from brokerha.model.outside.levels import ack_text

MSGPACK: Final = "application/x-msgpack"
JSON: Final = "application/json"
_TABLE: Final = "application/sparql-results+json"

Arguments = Mapping[str, Any]


class Request(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""
    once: str = ""
    """Name of a command that changes something: sent twice, it is two."""


def _get(path: str, accept: str = "") -> Request:
    return Request("GET", path, {"Accept": accept} if accept else {})


def segment(value: str | bytes) -> str:
    """Encode one segment of a path; dots too, because a segment of dots alone means another folder."""
    return quote(value, safe="").replace(".", "%2E")


def _needed(value: object, what: str) -> str:
    """Check text that a path needs: without it, the path would be another one or invalid."""
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{what} is text and not empty, not {value!r}")
    return value


def _with(path: str, parameters: Any) -> str:
    return f"{path}?{urlencode(parameters)}" if parameters else path


def _known(table: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in table:
        raise InvalidRequest(f"unknown {what} {name!r}; known are {', '.join(sorted(table))}")
    return table[name]


# ---- reads


def _query(name: str, arguments: Arguments) -> Request:
    graphs = [(key, iri) for key in ("default-graph-uri", "named-graph-uri") for iri in arguments.get(key, ())]
    headers = {"Content-Type": "application/sparql-query", "Accept": str(arguments.get("accept") or "*/*")}
    return Request(
        "POST", _with(f"/repositories/{name}/sparql", graphs), headers, _needed(arguments.get("query"), "a query").encode()
    )


def _contexts(arguments: Arguments) -> list[tuple[str, str]]:
    return [("context", context) for context in arguments.get("context", ())]


def _statements(name: str, arguments: Arguments) -> Request:
    pattern = [(key, arguments[key]) for key in ("subj", "pred", "obj") if key in arguments] + _contexts(arguments)
    return _get(_with(f"/repositories/{name}/statements", pattern), str(arguments.get("accept") or "*/*"))


def _key(name: str, arguments: Arguments) -> Request:
    past = arguments.get("snapshot")
    return _get(f"/kv/{name}/{segment(arguments['key'])}" + ("" if past is None else f"?snapshot={segment(past)}"))


def _range(name: str, arguments: Arguments) -> Request:
    given = {key: value for key, value in arguments.items() if value is not False}
    values = [f"{key}={quote(each if isinstance(each, bytes) else str(each), safe='')}" for key, each in given.items()]
    return _get(f"/kv/{name}?{'&'.join(values)}", MSGPACK)


def _together(_name: str, arguments: Arguments) -> Request:
    wanted: bytes = msgpack.packb([msgpack.unpackb(each) for each in arguments["reads"]])
    return Request("POST", "/together", {"Content-Type": MSGPACK}, wanted)


def _items(_name: str, arguments: Arguments) -> Request:
    wanted = {**arguments, "buckets": [msgpack.unpackb(each) for each in arguments["buckets"]]}
    return Request("POST", "/cluster/digests/items", {"Content-Type": MSGPACK}, msgpack.packb(wanted))


_READS: dict[str, Callable[[str, Arguments], Request]] = {
    "query": _query,
    "statements": _statements,
    "size": lambda name, arguments: _get(_with(f"/repositories/{name}/size", _contexts(arguments))),
    "contexts": lambda name, _: _get(f"/repositories/{name}/contexts", _TABLE),
    "repositories": lambda _name, _: _get("/repositories", _TABLE),
    "get": _key,
    "range": _range,
    "tables": lambda _name, _: _get("/kv"),
    "snapshots": lambda _name, _: _get("/snapshots"),
    "queue": lambda name, arguments: _get(_with(f"/queues/{name}", arguments), MSGPACK),
    "message": lambda name, arguments: _get(
        f"/queues/{name}/{quote(_needed(arguments.get('id'), 'a message id'), safe='')}?piece={arguments.get('number', 0)}", MSGPACK
    ),
    "queues": lambda _name, _: _get("/queues"),
    "together": _together,
    "fingerprint": lambda _name, _: _get("/cluster/fingerprints"),
    "staged": lambda _name, _: _get("/cluster/staged"),
    "control": lambda _name, _: _get("/cluster/control"),
    "digests": lambda _name, arguments: _get(_with("/cluster/digests", arguments)),
    "items": _items,
}
_NAMED: Final = frozenset({"query", "statements", "size", "contexts", "get", "range", "queue", "message"})
COLUMNS: Final = {"contexts": "contextID", "repositories": "id"}
"""Reads that a node answers with a table over HTTP, but with a list of names internally; the column of these names."""


def read_of(kind: str, name: str, arguments: Arguments) -> Request:
    """Return the request of a read. Raises InvalidRequest for an unknown kind, or without a required name."""
    request: Callable[[str, Arguments], Request] = _known(_READS, kind, "kind of read")
    return request(segment(_needed(name, "a name")) if kind in _NAMED else "", arguments)


def column(table: bytes, name: str) -> bytes:
    """Return one column of a table as a JSON list of terms."""
    cells = [row[name] for row in json.loads(table)["results"]["bindings"]]
    forms = {"uri": "<{}>", "bnode": "_:{}", "literal": "{}"}
    return json.dumps([forms[cell["type"]].format(cell["value"]) for cell in cells]).encode()


# ---- steps of transactions


def step_of(action: str, txid: str, arguments: Arguments) -> Request:
    """Return the request of a transaction step. Raises InvalidRequest for an unknown one."""
    headers = {"Brokerha-Session": arguments["session"]} if arguments.get("session") else {}
    if action == "begin":
        fields: dict[str, Any] = {"xid": arguments["xid"]} if arguments.get("xid") else {}
        if arguments.get("timeout_ms"):
            fields["timeout-s"] = arguments["timeout_ms"] / 1000
        if arguments.get("isolation", READ_COMMITTED) != READ_COMMITTED:
            fields["isolation"] = arguments["isolation"]
        return Request("POST", "/tx", {"Content-Type": JSON, **headers}, json.dumps(fields).encode())
    path = f"/tx/{quote(txid, safe='')}/{action}"
    if action == "operations":
        body: bytes = msgpack.packb(list(arguments["operations"]))
        return Request("POST", f"{path}?first={arguments['first']}", {"Content-Type": MSGPACK}, body)
    if action == "accept":
        _needed(arguments["queue"], "a name")
        wanted = {name: arguments[name] for name in ("queue", "count", "first")}
        return Request("POST", _with(path, {**wanted, "wait-s": arguments["wait_ms"] / 1000}), {"Accept": MSGPACK})
    if action not in {"prepare", "commit", "rollback", "ping", "forget"}:
        raise InvalidRequest(f"there is no step {action!r} of a transaction over HTTP")
    parameters = {}
    if action == "commit":
        if arguments.get("one_phase") is not None:
            parameters["one-phase"] = str(arguments["one_phase"]).lower()
        headers["Brokerha-Ack"] = ack_text(arguments.get("level", "applied"), arguments.get("copies", 1))
    if arguments.get("by_hand"):
        parameters["by-hand"] = "true"
    return Request("POST", _with(path, parameters), headers)


def answer_of(content: bytes, content_type: str) -> dict[str, Any]:
    """Decode a node's answer."""
    is_packed = content_type.startswith(MSGPACK)
    answer: dict[str, Any] = msgpack.unpackb(content, use_list=False) if is_packed else json.loads(content)
    return answer


# ---- commands of operators

_COMMANDS: dict[str, tuple[str, str]] = {
    "workers": ("GET", "/cluster/workers"),
    "worker-add": ("PUT", "/cluster/workers/{worker}"),
    "worker-remove": ("DELETE", "/cluster/workers/{worker}"),
    "worker-on": ("POST", "/cluster/workers/{worker}/on"),
    "worker-off": ("POST", "/cluster/workers/{worker}/off"),
    "worker-trust": ("POST", "/cluster/workers/{worker}/trust"),
    "worker-copy": ("POST", "/cluster/workers/{worker}/copy"),
    "scrub": ("POST", "/cluster/workers/{worker}/scrub"),
    "worker-repair": ("POST", "/cluster/repair"),
    "peers": ("GET", "/cluster/peers"),
    "peer-add": ("PUT", "/cluster/peers/{node}"),
    "peer-remove": ("DELETE", "/cluster/peers/{node}"),
    "split-recovery": ("POST", "/cluster/split-recovery"),
    "splits": ("GET", "/cluster/splits"),
    "split": ("GET", "/cluster/splits/{number}"),
    "promote": ("POST", "/cluster/promote"),
    "node-pause": ("POST", "/cluster/nodes/{node}/pause"),
    "node-coin": ("POST", "/cluster/nodes/{node}/coin"),
    "node-continue": ("POST", "/cluster/nodes/{node}/continue"),
    "backup": ("POST", "/cluster/backup"),
    "task": ("GET", "/cluster/tasks/{request}"),
    "tasks": ("GET", "/cluster/tasks"),
    "pins": ("GET", "/cluster/pins"),
    "pin": ("PUT", "/cluster/pins/{name}"),
    "settings": ("GET", "/cluster/settings"),
    "setting-set": ("PUT", "/cluster/settings/{name}"),
    "setting-unset": ("DELETE", "/cluster/settings/{name}"),
    "unpin": ("DELETE", "/cluster/pins/{name}"),
}
"""Braces are filled from the arguments; other arguments travel as the body, for GET and DELETE as the query string."""


def command_of(name: str, arguments: Arguments) -> Request:
    """Return the request of a command. Raises InvalidRequest for an unknown one."""
    method, path = _known(_COMMANDS, name, "command")
    rest = dict(arguments)
    if name == "split-recovery" and not rest:
        method = "GET"
    for key in ("worker", "request", "name", "node", "number"):
        if f"{{{key}}}" in path:
            path = path.replace(f"{{{key}}}", segment(str(rest.pop(key))))
    if method == "DELETE" and rest.pop("force", False):
        path += "?force=true"
    if method == "GET":
        path = _with(path, rest)
    body = b"" if method in {"GET", "DELETE"} or not rest else json.dumps(rest).encode()
    return Request(method, path, {"Accept": JSON, "Content-Type": JSON}, body, name if is_change(name, arguments) else "")


# ---- questions

_LOG: Final = "/cluster/log?{}from={first_lsn}&to={last_lsn}"
_QUESTIONS: dict[str, Callable[[Arguments], Request]] = {
    "status": lambda _: _get("/cluster/status", JSON),
    "log": lambda asked: _get(_LOG.format("", **asked).removesuffix("&to=0"), MSGPACK),
    "logged": lambda asked: _get(_LOG.format("effects=1&", **asked), MSGPACK),
    "entries": lambda asked: _get(_LOG.format("entries=1&", **asked), MSGPACK),
    "outcome": lambda asked: _get(f"/tx/{segment(_needed(asked['txid'], 'a transaction id'))}", JSON),
    "wait": lambda asked: _get(f"/cluster/wait?lsn={asked['lsn']}&workers={asked['workers']}", JSON),
}


def question_of(what: str, arguments: Arguments) -> Request:
    """Return the request of a question. Raises InvalidRequest for an unknown one."""
    request: Request = _known(_QUESTIONS, what, "question")(arguments)
    return request
