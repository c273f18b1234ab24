"""Which request over HTTP carries out which command of an operator (ports.Front.command).

>>> request_of("worker-off", {"worker": "w2", "force": True})
('POST', '/cluster/workers/w2/off', b'{"force": true}')
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from brokerha.model.errors import InvalidRequest

_PATHS: dict[str, tuple[str, str]] = {
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
"""What stands in braces comes from the arguments; the rest of them travels as the body, for GET and DELETE behind a question mark."""


def request_of(name: str, arguments: Mapping[str, Any]) -> tuple[str, str, bytes]:
    """(method, path, body) of a command. Raises InvalidRequest for one that does not exist."""
    found = _PATHS.get(name)
    if found is None:
        raise InvalidRequest(f"unknown command {name!r}; known are {', '.join(sorted(_PATHS))}")
    method, path = found
    rest = dict(arguments)
    if name == "split-recovery" and not rest:
        method = "GET"
    for key in ("worker", "request", "name", "node", "number"):
        if f"{{{key}}}" in path:
            path = path.replace(f"{{{key}}}", quote(str(rest.pop(key)), safe="").replace(".", "%2E"))
    if method == "DELETE" and rest.pop("force", False):
        path += "?force=true"
    if method == "GET" and rest:
        path += "?" + urlencode(rest)
    return method, path, b"" if method in {"GET", "DELETE"} or not rest else json.dumps(rest).encode()
