"""The page of a report: one HTML file without scripts that loads nothing, from `ReportFacts`.

    head and tiles │ writes by origin │ changes by store │ size │ lag │ rejected │ keys, predicates │ stores │ epochs, nodes │ notes

A part that has nothing to show says why in one sentence instead of an empty chart. Everything that comes from data is escaped, and long
texts are shortened: a page of a large archive is some hundred kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from brokerha.pipeline.report import Busy, ReportFacts, Series, shortened, total
from brokerha.pipeline.report_charts import bars, colour_of, legend, moment, number, seconds, steps
from brokerha.pipeline.report_style import STYLE

_ONE_OF = {"graph": "repository", "table": "table", "queue": "queue", "control": "control suite"}
_KIND_TEXTS = {"graph": "repositories", "table": "tables", "queue": "queues", "control": "control suite"}
_NO_LOAD = "default-src 'none'; style-src 'unsafe-inline'"
Cells = Sequence[str]


def page(facts: ReportFacts) -> str:
    """The whole file."""
    name = facts.cluster or "a cluster without a name"
    parts = (
        _head(facts, name), _writes(facts), _changes(facts), _size(facts), _lag(facts), _rejected(facts), _busy(facts),
        _stores(facts), _epochs_and_nodes(facts), _foot(facts),
    )  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_NO_LOAD}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)}: report</title><style>{STYLE}</style></head><body><main>\n{chr(10).join(parts)}\n</main></body></html>\n"
    )


def _head(facts: ReportFacts, name: str) -> str:
    first, last = moment(facts.bins.start_us), moment(facts.bins.end_us)
    tiles = [
        (f"{facts.transactions:,}", "transactions"),
        (f"{facts.changes:,}", "changes"),
        (f"{facts.rejected:,}", "rejected"),
        *((number(each.last or 0), each.name) for each in facts.items[:2]),
        (_size_text(facts.size_bytes), f"archive, {_counted(facts.files, 'file')}"),
    ]
    cells = "".join(f"<div><b>{escape(value)}</b><span>{escape(what)}</span></div>" for value, what in tiles)
    return (
        f'<header><h1>{escape(name)}</h1><p class="soft">LSN {facts.first_lsn:,} to {facts.last_lsn:,}, '
        f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC; all times here are UTC</p></header>"
        f'<div class="tiles">{cells}</div>'
    )


def _writes(facts: ReportFacts) -> str:
    marks = [(each.first_us, f"epoch {each.epoch}") for each in facts.epochs[1:]]
    about = "Transactions by the master that stamped them, rejected ones included."
    if marks:
        about += " At a dashed line a new epoch began."
    return _rate_section("Writes per minute", about, facts.by_origin, facts, marks)


def _changes(facts: ReportFacts) -> str:
    named = [Series(_KIND_TEXTS.get(each.name, each.name), each.values) for each in facts.by_store]
    about = "What transactions changed: each quad added or removed, key put or deleted, message published or accepted."
    return _rate_section("Changes per minute", about, named, facts)


def _rate_section(
    title: str, about: str, series: Sequence[Series], facts: ReportFacts, marks: Sequence[tuple[int, str]] = ()
) -> str:
    if not total(series):
        return _section(title, about, _nothing("There is nothing within this time."))
    factor = 1 / facts.bins.minutes
    whole = total(series)
    rows = [
        (
            f'<i class="{colour_of(order, each.name)}"></i>{escape(each.name or "unknown")}',
            f"{each.total:,.0f}", f"{each.total / whole:.0%}", number(each.highest * factor),
        )
        for order, each in enumerate(series)
    ]  # fmt: skip
    chart = bars(series, facts.bins, "a minute", factor, marks)
    return _section(title, about, _beside(chart, _table(("", "total", "share", "peak a min."), rows, "-nnn")))


def _size(facts: ReportFacts) -> str:
    title, about = "Size", "Items that live at the end of each part of the time."
    if not facts.items:
        return _section(
            title, about, _nothing("The archive does not begin with LSN 1, so it cannot tell what there is.")
        )
    charts = "".join(
        f"<div><h3>{escape(each.name)} <span class='soft'>{each.last or 0:,.0f}</span></h3>{steps([each], facts.bins, is_filled=True)}</div>"
        for each in facts.items
    )
    return _section(title, about, f'<div class="four">{charts}</div>')


def _lag(facts: ReportFacts) -> str:
    title, about = (
        "Lag",
        "How far nodes were behind what was synchronised, the highest that was observed in each part of the time.",
    )
    if not facts.lag_s:
        missing = "Nobody observed the nodes: brokerha pipeline archive does at each of its runs when it reads from a node over HTTP."
        return _section(title, about, _nothing(missing))
    rows = [
        (
            f'<i class="{colour_of(order, each.name)}"></i>{escape(each.name)}',
            seconds(each.highest),
            seconds(each.last or 0),
        )
        for order, each in enumerate(facts.lag_s)
    ]
    chart = steps(facts.lag_s, facts.bins, seconds)
    return _section(title, about, _beside(chart, _table(("", "highest", "last"), rows, "-nn")))


def _rejected(facts: ReportFacts) -> str:
    title, about = "Rejected transactions", "They left no trace in the data; the reason is the same at every site."
    if not facts.rejected:
        return _section(title, about, _nothing("None."))
    rows = [
        (f"{each.lsn:,}", f"{moment(each.time_us):%m-%d %H:%M:%S}", escape(each.origin), escape(shortened(each.txid, 40)),
         escape(shortened(each.reason, 160)))
        for each in facts.rejections
    ]  # fmt: skip
    share = facts.rejected / facts.transactions if facts.transactions else 0
    about = f"{facts.rejected:,} ({share:.2%}). {about}"
    chart = bars(facts.rejected_by_reason, facts.bins, "a minute", 1 / facts.bins.minutes)
    table = _table(("LSN", "time", "origin", "transaction id", "reason"), rows, "nt-kk")
    return _section(title, about, chart + legend(facts.rejected_by_reason) + "<h3>The latest</h3>" + table)


def _busy(facts: ReportFacts) -> str:
    keys = _busy_section("Busiest keys", "Puts and deletes.", facts.keys, "key", "No key was changed.")
    predicates = _busy_section(
        "Busiest predicates", "Quads added and removed.", facts.predicates, "predicate", "No quad was changed."
    )
    return f'<div class="pair">{keys}{predicates}</div>'


def _busy_section(title: str, about: str, busy: Sequence[Busy], what: str, missing: str) -> str:
    if not busy:
        return _section(title, about, _nothing(missing))
    highest = max(each.count for each in busy)
    rows = [
        (
            (f"<span class='soft'>{escape(shortened(each.name, 30))} </span>" if each.name else "") + escape(shortened(each.text)),
            f'<u style="width:{max(each.count / highest * 100, 1):.1f}%"></u>', f"{each.count:,}",
        )
        for each in busy
    ]  # fmt: skip
    return _section(title, about, _table((what, "", "changes"), rows, "ksn"))


def _stores(facts: ReportFacts) -> str:
    rows = [
        (escape(shortened(each.name or "checks", 60)), escape(_ONE_OF.get(each.store, each.store)), f"{each.changes:,}",
         "" if each.items is None else f"{each.items:,}", f"{each.last_lsn:,}")
        for each in facts.stores
    ]  # fmt: skip
    about = "Repositories, tables and queues with the most changes within this time, and what is in them at its end."
    if not rows:
        return _section("Where", about, _nothing("Nothing was changed."))
    return _section("Where", about, _table(("name", "kind", "changes", "items now", "last LSN"), rows, "k-nnn"))


def _epochs_and_nodes(facts: ReportFacts) -> str:
    epochs = [
        (f"{each.epoch}" if each.epoch else "unknown", f"{moment(each.first_us):%Y-%m-%d %H:%M:%S}", f"{each.first_lsn:,}",
         f"{each.last_lsn:,}", f"{each.entries:,}")
        for each in facts.epochs
    ]  # fmt: skip
    first = _section(
        "Epochs",
        "Under which membership the order was agreed on.",
        _table(("epoch", "since", "first LSN", "last LSN", "entries"), epochs, "-tnnn"),
    )
    nodes = [
        (escape(each.node), escape(each.role), escape(each.state), _optional(each.applied_lsn), _lag_text(each.lag_s),
         _optional(each.epoch), _optional(each.view))
        for each in facts.nodes
    ]  # fmt: skip
    seen = max((each.seen_us for each in facts.nodes), default=0)
    if not nodes:
        second = _section("Nodes", "As they were last seen.", _nothing("Nobody observed them."))
    else:
        heads = ("node", "role", "state", "applied LSN", "lag", "epoch", "view")
        second = _section(
            "Nodes",
            f"As they were last seen, the latest {moment(seen):%Y-%m-%d %H:%M:%S}.",
            _table(heads, nodes, "---nnnn") + _events(facts),
        )
    return f'<div class="pair">{first}{second}</div>'


def _events(facts: ReportFacts) -> str:
    if not facts.events:
        return ""
    rows = [
        (
            f"{moment(each.time_us):%m-%d %H:%M:%S}",
            escape(each.node),
            f"{escape(each.what)} {escape(each.before)} → {escape(each.after)}",
        )
        for each in facts.events
    ]
    return "<h3>Changes</h3>" + _table(("time", "node", ""), rows, "t--")


def _foot(facts: ReportFacts) -> str:
    notes = "".join(f"<p>{escape(note)}</p>" for note in facts.notes)
    return (
        f"<footer>{notes}<p>Made {moment(facts.made_us):%Y-%m-%d %H:%M:%S} UTC by brokerha pipeline report from the archive whose hash "
        f"chain is {escape(facts.chain)}.</p></footer>"
    )


def _section(title: str, about: str, inside: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="soft">{escape(about)}</p>{inside}</section>'


def _nothing(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def _beside(chart: str, table: str) -> str:
    return f'<div class="beside">{chart}{table}</div>'


_CLASSES = {"n": ' class="n"', "t": ' class="t"', "k": ' class="k"', "s": ' class="share"', "-": ""}


def _table(heads: Sequence[str], rows: Iterable[Cells], kinds: str) -> str:
    """``kinds`` has a sign for each column: n number, t time, k text of data, s a bar, - anything else. Cells are HTML."""
    classes = [_CLASSES[kind] for kind in kinds]
    head = "".join(f"<th{kind}>{escape(each)}</th>" for kind, each in zip(classes, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(classes, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _optional(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _lag_text(value: float | None) -> str:
    return "" if value is None else seconds(value)


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _size_text(size_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.3g} TB"
