"""Which request over HTTP is which step of a transaction, and what its answer means (ports.Front.transact).

>>> step_of("rollback", "m1.7", {"session": "s"})[:3]
('POST', '/tx/m1.7/rollback', {'Brokerha-Session': 's'})
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgpack

from brokerha.model.errors import InvalidRequest
from brokerha.model.outside.isolation import READ_COMMITTED
from brokerha.model.outside.levels import ack_text

MSGPACK = "application/x-msgpack"


class Step(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    wait_ms: int
    """How much longer than its time it may take."""


def step_of(action: str, txid: str, arguments: Mapping[str, Any]) -> Step:
    """The request of a step. Raises InvalidRequest for one that does not exist."""
    if action == "begin":
        fields: dict[str, Any] = {"xid": arguments["xid"]} if arguments.get("xid") else {}
        if arguments.get("timeout_ms"):
            fields["timeout-s"] = arguments["timeout_ms"] / 1000
        if arguments.get("isolation", READ_COMMITTED) != READ_COMMITTED:
            fields["isolation"] = arguments["isolation"]
        headers = {"Content-Type": "application/json", **_session(arguments)}
        return Step("POST", "/tx", headers, json.dumps(fields).encode(), 0)
    path = f"/tx/{quote(txid, safe='')}"
    if action == "operations":
        body: bytes = msgpack.packb(list(arguments["operations"]))
        return Step("POST", f"{path}/operations?first={arguments['first']}", {"Content-Type": MSGPACK}, body, 0)
    if action == "accept":
        wanted = {
            "queue": arguments["queue"], "count": arguments["count"], "first": arguments["first"],
            "wait-s": arguments["wait_ms"] / 1000,
        }  # fmt: skip
        return Step("POST", f"{path}/accept?{urlencode(wanted)}", {"Accept": MSGPACK}, b"", arguments["wait_ms"])
    if action not in {"prepare", "commit", "rollback", "ping", "forget"}:
        raise InvalidRequest(f"there is no step {action!r} of a transaction over HTTP")
    parameters, headers = {}, _session(arguments)
    if action == "commit":
        if arguments.get("one_phase") is not None:
            parameters["one-phase"] = str(arguments["one_phase"]).lower()
        headers["Brokerha-Ack"] = ack_text(arguments.get("level", "applied"), arguments.get("copies", 1))
    if arguments.get("by_hand"):
        parameters["by-hand"] = "true"
    query = f"?{urlencode(parameters)}" if parameters else ""
    return Step("POST", f"{path}/{action}{query}", headers, b"", 0)


def answer_of(content: bytes, content_type: str) -> dict[str, Any]:
    """What a node answered."""
    answer: dict[str, Any] = (
        msgpack.unpackb(content, use_list=False) if content_type.startswith(MSGPACK) else json.loads(content)
    )
    return answer


def _session(arguments: Mapping[str, Any]) -> dict[str, str]:
    return {"Brokerha-Session": arguments["session"]} if arguments.get("session") else {}
