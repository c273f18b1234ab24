"""The status page: files of this package, and the two questions that it asks again and again.

    GET /               the page; nothing in it comes from data, and it changes nothing
    GET /page/{name}    its style sheet and scripts
    GET /page/live      {"node", "role", "status", "transactions", ...}   asked every two seconds by each page that is open
    GET /page/rates     samples of the last hour after ?after=            asked every ten seconds

What the page needs beside these is public: /cluster/log and /cluster/splits; and, for admins, /cluster/settings. However many pages are open, the masters are
asked for their status once within `LIVE_S`.

Must never: put data into markup. The page takes everything as JSON and shows it as text; its policy allows no script but its own
files, and no connection but to where it came from.
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
"""How long a silent master is waited for."""
LIVE_S: Final = 1.5
"""So old an answer may be that several pages share."""
LIST_TIMEOUT_MS: Final = 1000
TRANSACTIONS_LIMIT: Final = 200
"""Rows of one answer; a page with more helps nobody."""

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
"""Every file that is served, and nothing else."""
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
    """The page."""
    return _answered(call, "index.html")


async def file(call: Call) -> Answer:
    """One of its files. Raises NotFound."""
    name = call.path_text("name")
    if name not in TYPES or name == "index.html":
        raise NotFound(f"the status page has no file {name!r}")
    return _answered(call, name)


def _answered(call: Call, name: str) -> Answer:
    content, tag = _content(name)
    # Asked for again each time, and sent again when another version of brokerha brings another one.
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
    """All that the page shows and that changes from moment to moment."""
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
    """Those that are not over, or None and why there is no list."""
    if call.front.role != "master":
        return None, f"{call.front.node_id} is a {call.front.role}: the page of its master shows them."
    try:
        listed = await call.door.settled(call.front.transact("list", "", {}, LIST_TIMEOUT_MS), LIST_TIMEOUT_MS)
    except (BrokerhaError, TimeoutError) as error:
        return None, f"The list cannot be had: {str(error) or 'the node did not answer in time'}"
    rows: list[dict[str, Any]] = listed["transactions"]
    return rows, ""


async def rates(call: Call) -> Answer:
    """Samples of the last hour. A worker has none, which its error says."""
    found = await command(call, "rates", {"after": call.parameters().number("after", 0)})
    return answer.as_json(found, headers={**GUARDS, "Cache-Control": "no-store"})


def kind_of(state: str) -> str:
    """How a state is coloured: ``good``, ``warn`` for what passes by itself, ``bad`` for what needs a person."""
    if state in states.HEALTHY:
        return "good"
    return "warn" if state in states.DEGRADED else "bad"
