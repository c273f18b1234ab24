"""The page of a report: one HTML file without scripts that loads nothing, from `ReportFacts`.

    head and tiles │ writes by origin │ changes by store │ size │ lag │ rejected │ keys, predicates │ stores │ epochs, nodes │ notes

A part that has nothing to show says why in one sentence instead of an empty chart. Everything that comes from data is escaped, and long
texts are shortened: a page of a large archive is some hundred kilobytes. It has a light and a dark theme by what the reader's system
says, one column on a phone, two where there is room; fonts are those of the system.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from brokerha.pipeline.report import Busy, ReportFacts, Series, shortened, total
from brokerha.pipeline.report_charts import bars, legend, moment, number, steps, swatch

_ONE_OF = {"graph": "repository", "table": "table", "queue": "queue", "control": "control suite"}
_KIND_TEXTS = {"graph": "repositories", "table": "tables", "queue": "queues", "control": "control suite"}
_NO_LOAD = "default-src 'none'; style-src 'unsafe-inline'"
_SMALL_HEIGHT = 90
STYLE = """
:root { color-scheme: light dark;
  --paper: #f6f7f9; --card: #fff; --ink: #1b2430; --soft: #5b6775; --rule: #e2e6eb; --mark: #7a3ea1;
  --c0: #2f6fb3; --c1: #e08a1e; --c2: #2a9d76; --c3: #c2504a; --c4: #8a6cc0; --c5: #4fb0d1; --c6: #b59b1a; --c7: #98a2ae }
@media (prefers-color-scheme: dark) { :root {
  --paper: #12171d; --card: #1b222b; --ink: #e4e9ef; --soft: #97a4b3; --rule: #2c3642; --mark: #cf9df0;
  --c0: #63a4e8; --c1: #f0a848; --c2: #4cc79b; --c3: #ec807a; --c4: #b29be6; --c5: #77cde9; --c6: #d8c04a; --c7: #6b7786 } }
* { box-sizing: border-box }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 40px }
h1 { font-size: 26px; margin: 0 } h2 { font-size: 17px; margin: 0 0 2px } h3 { font-size: 14px; margin: 12px 0 8px }
p { margin: 0 } .soft { color: var(--soft); font-weight: 400 } section > p.soft { font-size: 13.5px; margin-bottom: 12px }
section, .tiles div { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 16px 20px; min-width: 0 }
section { margin-top: 16px }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 12px; margin-top: 18px }
.tiles b { display: block; font-size: 23px; font-variant-numeric: tabular-nums } .tiles span { color: var(--soft); font-size: 13px }
.beside, .pair { display: grid; grid-template-columns: minmax(0, 2.4fr) minmax(230px, 1fr); gap: 0 28px; align-items: start }
.pair { grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 0 16px }
svg { display: block; width: 100%; min-width: 460px; height: auto } path.told:hover { opacity: .1 }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 0; padding: 0; font-size: 13px }
i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 7px }
u { display: block; height: 9px; margin-top: 5px; border-radius: 3px; background: var(--c0) }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: 13.5px }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 12.5px; white-space: nowrap }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--rule); vertical-align: top } tr:last-child td { border-bottom: 0 }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap } .s { width: 30%; min-width: 60px }
.k { overflow-wrap: anywhere; font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 12.5px }
footer { margin-top: 20px; color: var(--soft); font-size: 13px; overflow-wrap: anywhere }
@media (max-width: 820px) { main { padding: 18px 12px 30px } .beside { grid-template-columns: minmax(0, 1fr) } }
@media print { body { background: #fff } section, .tiles div { break-inside: avoid } }
"""


class _Html(str):
    """A cell that is escaped already."""

    __slots__ = ()


def page(facts: ReportFacts) -> str:
    """The whole file."""
    name = facts.cluster or "a cluster without a name"
    parts = (
        _head(facts, name), _writes(facts), _changes(facts), _size(facts), _lag(facts), _rejected(facts),
        _pair(
            _busy("Busiest keys", "Puts and deletes.", facts.keys, "key", "No key was changed."),
            _busy("Busiest predicates", "Quads added and removed.", facts.predicates, "predicate", "No quad was changed."),
        ),
        _stores(facts), _pair(_epochs(facts), _nodes(facts)), _foot(facts),
    )  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_NO_LOAD}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)}: report</title><style>{STYLE}</style></head><body><main>\n{chr(10).join(parts)}\n</main></body></html>\n"
    )


def _head(facts: ReportFacts, name: str) -> str:
    tiles = [
        (f"{facts.transactions:,}", "transactions"),
        (f"{facts.changes:,}", "changes"),
        (f"{facts.rejected:,}", "rejected"),
        *((number(each.last or 0), each.name) for each in facts.items[:2]),
        (f"{number(facts.size_bytes)}B", f"archive, {facts.files:,} file{'s' * (facts.files != 1)}"),
    ]
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in tiles)
    return (
        f'<header><h1>{escape(name)}</h1><p class="soft">LSN {facts.first_lsn:,} to {facts.last_lsn:,}, '
        f"{_time(facts.bins.start_us)} to {_time(facts.bins.end_us)} UTC; all times here are UTC</p></header>"
        f'<div class="tiles">{cells}</div>'
    )


def _writes(facts: ReportFacts) -> str:
    marks = [(each.first_us, f"epoch {each.epoch}") for each in facts.epochs[1:]]
    about = "Transactions by the master that stamped them, rejected ones included."
    if marks:
        about += " At a dashed line a new epoch began."
    return _rates("Writes per minute", about, facts.by_origin, facts, marks)


def _changes(facts: ReportFacts) -> str:
    named = [Series(_KIND_TEXTS.get(each.name, each.name), each.values) for each in facts.by_store]
    about = "What transactions changed: each quad added or removed, key put or deleted, message published or accepted."
    return _rates("Changes per minute", about, named, facts)


def _rates(
    title: str, about: str, series: Sequence[Series], facts: ReportFacts, marks: Sequence[tuple[int, str]] = ()
) -> str:
    factor, whole = 1 / facts.bins.minutes, total(series)
    if not whole:
        return _section(title, about, _nothing("There is nothing within this time."))
    rows = [
        (_named(order, each), f"{each.total:,.0f}", f"{each.total / whole:.0%}", number(each.highest * factor))
        for order, each in enumerate(series)
    ]
    chart = bars(series, facts.bins, "a minute", factor, marks)
    return _section(title, about, _beside(chart, _table(("", "total", "share", "peak a min."), rows, "-nnn")))


def _size(facts: ReportFacts) -> str:
    title, about = "Size", "Items that live at the end of each part of the time."
    if not facts.items:
        return _section(
            title, about, _nothing("The archive does not begin with LSN 1, so it cannot tell what there is.")
        )
    charts = (
        f"<div><h3>{escape(each.name)} <span class='soft'>{each.last or 0:,.0f}</span></h3>"
        f"{steps([each], facts.bins, is_filled=True, height=_SMALL_HEIGHT)}</div>"
        for each in facts.items
    )
    return _section(title, about, _pair(*charts))


def _lag(facts: ReportFacts) -> str:
    title = "Lag"
    about = "How far nodes were behind what was synchronised, in seconds: the highest that was observed in each part of the time."
    if not facts.lag_s:
        missing = "Nobody observed the nodes: brokerha pipeline archive does at each of its runs when it reads from a node over HTTP."
        return _section(title, about, _nothing(missing))
    rows = [
        (_named(order, each), _seconds(each.highest), _seconds(each.last or 0))
        for order, each in enumerate(facts.lag_s)
    ]
    return _section(
        title, about, _beside(steps(facts.lag_s, facts.bins, "s"), _table(("", "highest", "last"), rows, "-nn"))
    )


def _rejected(facts: ReportFacts) -> str:
    title, about = "Rejected transactions", "They left no trace in the data; the reason is the same at every site."
    if not facts.rejected:
        return _section(title, about, _nothing("None."))
    rows = [(each.lsn, _time(each.time_us), each.origin, each.txid, each.reason) for each in facts.rejections]
    chart = bars(facts.rejected_by_reason, facts.bins, "a minute", 1 / facts.bins.minutes)
    table = _table(("LSN", "time", "origin", "transaction id", "reason"), rows, "nn-kk")
    about = f"{facts.rejected:,} ({facts.rejected / max(facts.transactions, 1):.2%}). {about}"
    return _section(title, about, f"{chart}{legend(facts.rejected_by_reason)}<h3>The latest</h3>{table}")


def _busy(title: str, about: str, busy: Sequence[Busy], what: str, missing: str) -> str:
    highest = max((each.count for each in busy), default=0)
    rows = [
        (
            _Html(f"<span class='soft'>{escape(shortened(each.name, 30))} </span>{escape(shortened(each.text))}"),
            _Html(f'<u style="width:{max(each.count / highest * 100, 1):.1f}%"></u>'),
            each.count,
        )
        for each in busy
    ]
    return _section(title, about, _table((what, "", "changes"), rows, "ksn", missing))


def _stores(facts: ReportFacts) -> str:
    rows = [
        (each.name or "checks", _ONE_OF.get(each.store, each.store), each.changes, each.items, each.last_lsn)
        for each in facts.stores
    ]
    about = "Repositories, tables and queues with the most changes within this time, and what is in them at its end."
    heads = ("name", "kind", "changes", "items now", "last LSN")
    return _section("Where", about, _table(heads, rows, "k-nnn", "Nothing was changed."))


def _epochs(facts: ReportFacts) -> str:
    rows = [
        (each.epoch or "unknown", _time(each.first_us), each.first_lsn, each.last_lsn, each.entries)
        for each in facts.epochs
    ]
    heads = ("epoch", "since", "first LSN", "last LSN", "entries")
    return _section("Epochs", "Under which membership the order was agreed on.", _table(heads, rows, "-nnnn"))


def _nodes(facts: ReportFacts) -> str:
    rows = [
        (each.node, each.role, each.state, each.applied_lsn, "" if each.lag_s is None else _seconds(each.lag_s), each.epoch, each.view)
        for each in facts.nodes
    ]  # fmt: skip
    about = "As they were last seen."
    if rows:
        about = f"As they were last seen, the latest {_time(max(each.seen_us for each in facts.nodes))}."
    found = _table(
        ("node", "role", "state", "applied LSN", "lag", "epoch", "view"), rows, "---nnnn", "Nobody observed them."
    )
    if facts.events:
        events = [
            (_time(each.time_us), each.node, f"{each.what} {each.before} → {each.after}") for each in facts.events
        ]
        found += "<h3>Changes</h3>" + _table(("time", "node", ""), events, "n--")
    return _section("Nodes", about, found)


def _foot(facts: ReportFacts) -> str:
    notes = "".join(f"<p>{escape(note)}</p>" for note in facts.notes)
    return (
        f"<footer>{notes}<p>Made {_time(facts.made_us)} UTC by brokerha pipeline report from the archive whose hash "
        f"chain is {escape(facts.chain)}.</p></footer>"
    )


def _section(title: str, about: str, inside: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="soft">{escape(about)}</p>{inside}</section>'


def _nothing(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _beside(chart: str, table: str) -> str:
    return f'<div class="beside">{chart}{table}</div>'


def _pair(*parts: str) -> str:
    return f'<div class="pair">{"".join(parts)}</div>'


def _named(order: int, series: Series) -> _Html:
    return _Html(swatch(order, series.name))


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]], kinds: str, missing: str = "") -> str:
    """A table, or what is said without rows. ``kinds`` has the class of each column: n number or time, k text of data, s a bar, - anything else."""
    head = "".join(f'<th class="{kind}">{escape(each)}</th>' for kind, each in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{_cell(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    if not body:
        return _nothing(missing)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: Any) -> str:
    if isinstance(value, _Html):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return escape(shortened(str(value), 160)) if value is not None else ""


def _time(time_us: int) -> str:
    return f"{moment(time_us):%Y-%m-%d %H:%M:%S}"


def _seconds(value: float) -> str:
    """A time span.

    >>> _seconds(0.0042), _seconds(12.4), _seconds(340)
    ('4 ms', '12.4 s', '5.7 min')
    """
    if 0 < value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.3g} s" if value < 120 else f"{value / 60:.1f} min"
