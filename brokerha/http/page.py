"""The status page: one table that a person can read at a glance, reloading itself, without anything from outside."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from brokerha.http.answer import Answer
from brokerha.http.call import Call
from brokerha.model import states

RELOAD_S = 3
STATUS_TIMEOUT_MS = 1000
_COLUMNS = (
    ("id", "node"), ("role", "role"), ("state", "state"), ("received_lsn", "received"), ("applied_lsn", "applied"),
    ("lag_entries", "lag"), ("lag_s", "lag, s"), ("incoming", "incoming"), ("in_doubt", "in doubt"), ("items", "items"),
    ("fingerprint", "fingerprint"), ("seen_s", "seen, s ago"),
)  # fmt: skip
_COLUMNS_OF_PROCESSES = (("primary", "primary"), ("view", "view"))
"""Shown where a master has backups."""
_STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:80rem;padding:0 1rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #8884}
td.n{text-align:right;font-variant-numeric:tabular-nums}td.f{font-family:ui-monospace,monospace;font-size:85%}
tr.worker td:first-child,tr.backup td:first-child{padding-left:1.8rem}.ok{color:#1a7f37}.warn{color:#9a6700}.bad{color:#cf222e;font-weight:600}
small{opacity:.75}
"""


async def get(call: Call) -> Answer:
    """The page."""
    status = await call.door.in_thread(call.front.status, STATUS_TIMEOUT_MS)
    headers: dict[str, str | int] = {
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
        "Cache-Control": "no-store",
    }
    return Answer(200, page(status, call.front.node_id).encode(), "text/html; charset=utf-8", headers)


def page(status: dict[str, Any], node_id: str) -> str:
    """The page of a status, as seen from one node."""
    cluster, state = escape(str(status["cluster"])), str(status["state"])
    has_backups = any(row.get("role") == "backup" for row in status["nodes"])
    columns = (*_COLUMNS[:3], *_COLUMNS_OF_PROCESSES, *_COLUMNS[3:]) if has_backups else _COLUMNS
    head = "".join(f"<th>{escape(title)}</th>" for _, title in columns)
    rows = "".join(_row(row, columns) for row in status["nodes"])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{RELOAD_S}">'
        f'<meta name="viewport" content="width=device-width"><title>{cluster}: {escape(state)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>Cluster {cluster} "
        f'<span class="{_colour(state)}">{escape(state)}</span></h1>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p><small>As seen from {escape(node_id)}, epoch {escape(str(status['epoch']))}. Reloads every {RELOAD_S} seconds."
        " The same as JSON: <code>/cluster/status</code>; numbers for Prometheus: <code>/metrics</code>.</small></p>"
        "</body></html>"
    )


def _row(row: dict[str, Any], columns: Iterable[tuple[str, str]]) -> str:
    cells = []
    for name, _ in columns:
        value = row.get(name)
        shown = "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
        if name == "state":
            remarks = " ".join(escape(str(row[extra])) for extra in ("reason", "action") if row.get(extra))
            more = f"<br><small>{remarks}</small>" if remarks else ""
            cells.append(f'<td class="{_colour(shown)}">{escape(shown)}{more}</td>')
        elif name == "fingerprint":
            cells.append(f'<td class="f" title="{escape(shown)}">{escape(shown[:14])}</td>')
        else:
            number = ' class="n"' if isinstance(value, (int, float)) else ""
            cells.append(f"<td{number}>{escape(shown)}</td>")
    return f'<tr class="{escape(str(row.get("role")))}">{"".join(cells)}</tr>'


def _colour(state: str) -> str:
    if state in states.HEALTHY:
        return "ok"
    return "warn" if state in states.DEGRADED or state == "degraded" else "bad"
