"""The status page: files of this package, and two questions that it repeats.

    GET /               the page; it contains no data, and changes nothing
    GET /page/{name}    its style sheet and scripts
    GET /page/live      {"node", "role", "status", "transactions", ...}   asked every two seconds by each open page
    GET /page/rates     samples of the last hour after ?after=            asked every ten seconds

The page also uses the public paths /cluster/log and /cluster/splits; and, for admins, /cluster/settings. However many pages are
open, the masters are asked for their status once within `LIVE_S`.

Must never: put data into markup. The page takes everything as JSON and shows it as text. Its policy allows only its own scripts,
and connections only to its origin.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
from pathlib import Path
from typing import Any, Final

from brokerha.http.door import answer
from brokerha.http.door.answer import Answer
from brokerha.http.door.call import Call
from brokerha.http.door.passing import command
from brokerha.model import states
from brokerha.model.errors import BrokerhaError, NotFound

STATUS_TIMEOUT_MS: Final = 1000
"""Longest wait for a silent master."""
LIVE_S: Final = 1.5
"""Highest age of an answer that several pages share."""
LIST_TIMEOUT_MS: Final = 1000
TRANSACTIONS_LIMIT: Final = 200
"""Most rows of one answer; more would not help."""

FILES: Final = Path(__file__).with_name("page_files")
TYPES: Final = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "table.js": "text/javascript; charset=utf-8",
    "chart.js": "text/javascript; charset=utf-8",
    "log.js": "text/javascript; charset=utf-8",
    "settings.js": "text/javascript; charset=utf-8",
    "splits.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The complete list of served files."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
GUARDS: Final[dict[str, str | int]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


async def get(call: Call) -> Answer:
    """Return the page."""
    return _answered(call, "index.html")


async def file(call: Call) -> Answer:
    """Return one of its files. Raises NotFound."""
    name = call.path_text("name")
    if name not in TYPES or name == "index.html":
        raise NotFound(f"the status page has no file {name!r}")
    return _answered(call, name)


def _answered(call: Call, name: str) -> Answer:
    content, tag = _content(name)
    # Checked again each time, so that a page of another version of brokerha replaces a cached one.
    headers: dict[str, str | int] = {**GUARDS, "Cache-Control": "no-cache", "ETag": tag}
    known = {each.strip().removeprefix("W/") for each in call.header(b"if-none-match").split(",")}
    if tag in known or "*" in known:
        return Answer(304, headers=headers)
    return Answer(200, content, TYPES[name], headers)


@functools.cache
def _content(name: str) -> tuple[bytes, str]:
    content = (FILES / name).read_bytes()
    return content, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


async def live(call: Call) -> Answer:
    """Return the changing content of the page."""
    return answer.as_json(
        await call.door.shared("page", LIVE_S, lambda: _live(call)), headers={**GUARDS, "Cache-Control": "no-store"}
    )


async def _live(call: Call) -> dict[str, Any]:
    status, (transactions, note) = await asyncio.gather(
        call.door.in_thread(call.front.status, STATUS_TIMEOUT_MS), _transactions(call)
    )
    nodes = [{**row, "kind": kind_of(row["state"])} for row in status["nodes"]]
    shown = transactions[:TRANSACTIONS_LIMIT] if transactions is not None else None
    return {
        "node": call.front.node_id,
        "role": call.front.role,
        "status": {**status, "nodes": nodes},
        "transactions": shown,
        "transactions_count": len(transactions or []),
        "transactions_note": note,
    }


async def _transactions(call: Call) -> tuple[list[dict[str, Any]] | None, str]:
    """Return the open transactions, or None and the reason why there is no list."""
    if call.front.role != "master":
        return None, f"{call.front.node_id} is a {call.front.role}: the page of its master shows them."
    try:
        listed = await call.door.settled(call.front.transact("list", "", {}, LIST_TIMEOUT_MS), LIST_TIMEOUT_MS)
    except (BrokerhaError, TimeoutError) as error:
        return None, f"The list cannot be had: {str(error) or 'the node did not answer in time'}"
    rows: list[dict[str, Any]] = listed["transactions"]
    return rows, ""


async def rates(call: Call) -> Answer:
    """Return the samples of the last hour. A worker has none, and its error says so."""
    found = await command(call, "rates", {"after": call.parameters().number("after", 0)})
    return answer.as_json(found, headers={**GUARDS, "Cache-Control": "no-store"})


def kind_of(state: str) -> str:
    """Return the colour of a state: ``good``, ``warn`` when it passes by itself, ``bad`` when a person must act."""
    if state in states.HEALTHY:
        return "good"
    return "warn" if state in states.DEGRADED else "bad"
