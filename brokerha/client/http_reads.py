"""Which request over HTTP asks for which kind of read (stores/reads/reading.py), and what its answer is inside.

>>> READS["get"]("t", {"key": b"a/b"})
('GET', '/kv/t/a%2Fb', {}, b'')
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import msgpack

from brokerha.client.http_transactions import MSGPACK

_TABLE = "application/sparql-results+json"

Form = tuple[str, str, dict[str, str], bytes]
"""Method, path, headers, body."""


def segment(value: str | bytes) -> str:
    """One segment of a path; dots too are encoded, because a segment of dots alone means another folder."""
    return quote(value, safe="").replace(".", "%2E")


def _query(name: str, arguments: dict[str, Any]) -> Form:
    graphs = [(key, iri) for key in ("default-graph-uri", "named-graph-uri") for iri in arguments.get(key, ())]
    headers = {"Content-Type": "application/sparql-query", "Accept": str(arguments.get("accept") or "*/*")}
    path = f"/repositories/{segment(name)}/sparql" + (f"?{urlencode(graphs)}" if graphs else "")
    return "POST", path, headers, str(arguments["query"]).encode()


def _statements(name: str, arguments: dict[str, Any]) -> Form:
    pattern: list[tuple[str, str]] = [(key, arguments[key]) for key in ("subj", "pred", "obj") if key in arguments]
    pattern += [("context", context) for context in arguments.get("context", ())]
    path = f"/repositories/{segment(name)}/statements?{urlencode(pattern)}"
    return "GET", path, {"Accept": str(arguments.get("accept") or "*/*")}, b""


def _size(name: str, arguments: dict[str, Any]) -> Form:
    contexts = urlencode([("context", context) for context in arguments.get("context", ())])
    return "GET", f"/repositories/{segment(name)}/size?{contexts}", {}, b""


def _contexts(name: str, _arguments: dict[str, Any]) -> Form:
    return "GET", f"/repositories/{segment(name)}/contexts", {"Accept": _TABLE}, b""


def _repositories(_name: str, _arguments: dict[str, Any]) -> Form:
    return "GET", "/repositories", {"Accept": _TABLE}, b""


def _get(name: str, arguments: dict[str, Any]) -> Form:
    path = f"/kv/{segment(name)}/{segment(arguments['key'])}"
    past = arguments.get("snapshot")
    return "GET", path if past is None else f"{path}?snapshot={segment(past)}", {}, b""


def _range(name: str, arguments: dict[str, Any]) -> Form:
    arguments = {key: value for key, value in arguments.items() if value is not False}
    values = [
        f"{key}={quote(value if isinstance(value, bytes) else str(value), safe='')}" for key, value in arguments.items()
    ]
    return "GET", f"/kv/{segment(name)}?{'&'.join(values)}", {"Accept": "application/x-msgpack"}, b""


def _tables(_name: str, _arguments: dict[str, Any]) -> Form:
    return "GET", "/kv", {}, b""


def _snapshots(_name: str, _arguments: dict[str, Any]) -> Form:
    return "GET", "/snapshots", {}, b""


def _queue(name: str, arguments: dict[str, Any]) -> Form:
    return "GET", f"/queues/{segment(name)}?{urlencode(arguments)}", {"Accept": MSGPACK}, b""


def _queues(_name: str, _arguments: dict[str, Any]) -> Form:
    return "GET", "/queues", {}, b""


def _together(_name: str, arguments: dict[str, Any]) -> Form:
    wanted: bytes = msgpack.packb([msgpack.unpackb(each) for each in arguments["reads"]])
    return "POST", "/together", {"Content-Type": MSGPACK}, wanted


def _fingerprint(_name: str, _arguments: dict[str, Any]) -> Form:
    return "GET", "/cluster/fingerprints", {}, b""


def _control(_name: str, _arguments: dict[str, Any]) -> Form:
    return "GET", "/cluster/control", {}, b""


def _digests(_name: str, arguments: dict[str, Any]) -> Form:
    return "GET", f"/cluster/digests?{urlencode(arguments)}", {}, b""


def _items(_name: str, arguments: dict[str, Any]) -> Form:
    wanted = {**arguments, "buckets": [msgpack.unpackb(each) for each in arguments["buckets"]]}
    return "POST", "/cluster/digests/items", {"Content-Type": MSGPACK}, msgpack.packb(wanted)


READS: dict[str, Callable[[str, dict[str, Any]], Form]] = {
    "query": _query,
    "statements": _statements,
    "size": _size,
    "contexts": _contexts,
    "repositories": _repositories,
    "get": _get,
    "range": _range,
    "tables": _tables,
    "snapshots": _snapshots,
    "queue": _queue,
    "queues": _queues,
    "together": _together,
    "fingerprint": _fingerprint,
    "control": _control,
    "digests": _digests,
    "items": _items,
}
COLUMNS = {"contexts": "contextID", "repositories": "id"}
"""Reads that a node answers with a table over HTTP, and with a list of names inside; the column that holds them."""


def column(table: bytes, name: str) -> bytes:
    """One column of a table as a list of terms, as JSON."""
    cells = [row[name] for row in json.loads(table)["results"]["bindings"]]
    forms = {"uri": "<{}>", "bnode": "_:{}", "literal": "{}"}
    return json.dumps([forms[cell["type"]].format(cell["value"]) for cell in cells]).encode()
