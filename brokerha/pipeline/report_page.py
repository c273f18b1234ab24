"""The page of a report: one HTML file without scripts or external resources, from `ReportFacts` and `report_page.html`.

    head and tiles │ writes by origin │ changes by store │ size │ lag │ rejected │ keys, predicates │ stores │ epochs, nodes │ notes

A part without content gives the reason in one sentence instead of an empty chart. All text from data is escaped, and long texts are
shortened: the page of a large archive has some hundred kilobytes. The theme, light or dark, follows the reader's system. A phone
shows one column, a wide screen two; fonts are those of the system.

vl-convert draws the charts as SVG from specifications of Vega-Lite. Their colours are variables of the page's style (`--c0` …), so
they follow the reader's theme. The pointer shows the content of a bin: an invisible layer covers each bin from top to bottom, and
its descriptions become titles.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from brokerha.model.errors import StoreError
from brokerha.pipeline.report import OTHERS, Bins, ReportFacts, Series, shortened

COLOURS: Final = 7
WIDTH, HEIGHT = 640, 190
"""Units of a drawing, which is scaled to the available width."""
_SIZE: Final = re.compile(r' width="\d+" height="\d+"')
_DESCRIBED: Final = re.compile(r'<(path|line) aria-label="([^"]+)" role="graphics-symbol" aria-roledescription="told"([^>]*)/>')
_TITLED: Final = r'<\1 class="told"\3><title>\2</title></\1>'
_AXIS: Final = {
    "title": None, "domain": False, "ticks": False, "labelColor": "var(--soft)", "gridColor": "var(--rule)", "labelFont": "sans-serif",
    "labelFontSize": 12, "labelPadding": 7, "tickCount": 5,
}  # fmt: skip
_LABEL: Final = "datum.value < 10000 ? format(datum.value, ',~r') : format(datum.value, '.3~s')"
_KINDS = {
    "graph": ("repository", "repositories"), "table": ("table", "tables"), "queue": ("queue", "queues"),
    "control": ("control suite", "control suite"),
}  # fmt: skip
"""Singular and plural of each kind of store."""


def number(value: float) -> str:
    """Format a number in few characters.

    >>> [number(value) for value in (0, 0.25, 7, 1234, 53200, 1_000_000, 2_345_678)]
    ['0', '0.25', '7', '1,234', '53.2k', '1M', '2.35M']
    """
    for least, sign in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if abs(value) >= least:
            return f"{value / (1000 if sign == 'k' else least):.3g}{sign}"
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def moment(time_us: int) -> datetime:
    """A timestamp as a date and time in UTC."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us)


def colour_of(place: int, name: str) -> str:
    """Return the CSS variable for the colour of a series."""
    return f"var(--c{COLOURS if name == OTHERS else place % COLOURS})"


def bars(series: Sequence[Series], bins: Bins, unit: str, factor: float = 1, marks: Sequence[tuple[int, str]] = ()) -> str:
    """Draw stacked bars, one for each bin; values are multiplied by ``factor``. ``marks`` are (time, text) of vertical lines."""
    mark = {"type": "bar", "binSpacing": 1, "aria": False}
    rules = {
        "data": {"values": [{"begin": time_us / 1000, "told": text} for time_us, text in marks]},
        "mark": {"type": "rule", "strokeDash": [4, 3], "color": "var(--mark)", "ariaRoleDescription": "told"},
        "encoding": {"x": {"field": "begin", "type": "temporal"}, "description": {"field": "told"}},
    }
    return _drawn(series, bins, unit, factor, mark, [rules] if marks else [], HEIGHT)


def steps(series: Sequence[Series], bins: Bins, unit: str = "", *, is_filled: bool = False, height: int = HEIGHT) -> str:
    """Draw lines that keep a value until the next bin, with gaps for unknown values."""
    mark: dict[str, Any] = {"type": "line", "strokeWidth": 2, "aria": False}
    if is_filled:
        mark |= {"type": "area", "line": {"strokeWidth": 2}, "fillOpacity": 0.16}
    return _drawn(series, bins, unit, 1, mark, [], height)


def _drawn(
    series: Sequence[Series], bins: Bins, unit: str, factor: float, mark: dict[str, Any], above: list[Any], height: int
) -> str:
    from vl_convert import vegalite_to_svg

    names = [each.name for each in series]
    is_bars = mark["type"] == "bar"
    values, told = [], []
    for place in range(bins.count):
        begin, end = bins.begin_us(place) / 1000, bins.begin_us(place + 1) / 1000
        for order, each in enumerate(series):
            value = each.values[place]
            row = {"begin": begin, "end": end, "name": each.name, "order": order, "value": value and value * factor}
            if not is_bars:
                # A value holds until the end of its bin.
                values += [{**row, "order": 2 * place}, {**row, "order": 2 * place + 1, "begin": end}]
            elif value:
                values.append(row)
        if any(each.values[place] for each in series):
            told.append({"begin": begin, "end": end, "told": _told(place, series, bins, unit, factor)})
    across: dict[str, Any] = {
        "field": "begin", "type": "temporal", "scale": {"type": "utc", "domain": [bins.start_us / 1000, bins.end_us / 1000]},
        "axis": {**_AXIS, "grid": False, "labelOverlap": True, "format": _form(bins)},
    }  # fmt: skip
    up = {"field": "value", "type": "quantitative", "axis": {**_AXIS, "labelExpr": _LABEL}, "stack": "zero" if is_bars else None}
    colour = {
        "field": "name", "type": "nominal", "legend": None,
        "scale": {"domain": names, "range": [colour_of(order, name) for order, name in enumerate(names)]},
    }  # fmt: skip
    drawing = {"x": across, "y": up, "color": colour}
    if mark["type"] != "area":
        drawing["order"] = {"field": "order"}
    if is_bars:
        drawing |= {"x": {**across, "bin": "binned"}, "x2": {"field": "end"}}
    hover = {
        "data": {"values": told},
        "mark": {"type": "rect", "opacity": 0, "ariaRoleDescription": "told"},
        "encoding": {"x": across, "x2": {"field": "end"}, "description": {"field": "told"}},
    }
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json", "width": WIDTH, "height": height, "background": None,
        "config": {"view": {"stroke": None}},
        "layer": [
            {"data": {"values": values}, "mark": mark, "encoding": drawing},
            *above, hover,
        ],
    }  # fmt: skip
    svg = _DESCRIBED.sub(_TITLED, _SIZE.sub("", vegalite_to_svg(spec), count=1))
    return Markup(f'<div class="wide">{svg}</div>')  # noqa: S704  (vl-convert has escaped what comes from data)


def _form(bins: Bins) -> str:
    """Return the time format below a chart."""
    span_s = bins.width_us * bins.count / 1e6
    return "%H:%M:%S" if span_s <= 360 else "%H:%M" if span_s <= 86_400 else "%m-%d %H:%M" if span_s <= 518_400 else "%Y-%m-%d"


def _told(place: int, series: Sequence[Series], bins: Bins, unit: str, factor: float) -> str:
    """Return the content of a bin, for the tooltip."""
    told = [f"{moment(bins.begin_us(place)):%Y-%m-%d %H:%M:%S}"]
    told += [
        f"{each.name or 'unknown'}: {number(value * factor)} {unit}".rstrip() for each in series if (value := each.values[place])
    ]
    return "\n".join(told)


def page(facts: ReportFacts) -> str:
    """Return the whole page."""
    return _environment().get_template("report_page.html").render(
        facts=facts,
        name=facts.cluster or "a cluster without a name",
        epochs=[(each.first_us, f"epoch {each.epoch}") for each in facts.epochs[1:]],
        by_store=[Series(_called(each.name)[1], each.values) for each in facts.by_store],
        rejections=[(each.lsn, _time(each.time_us), each.origin, each.txid, each.reason) for each in facts.rejections],
        stores=[
            (each.name or "checks", _called(each.store)[0], each.changes, each.items, each.last_lsn)
            for each in facts.stores
        ],
        since=[
            (each.epoch or "unknown", _time(each.first_us), each.first_lsn, each.last_lsn, each.entries)
            for each in facts.epochs
        ],
        nodes=[
            (each.node, each.role, each.state, each.applied_lsn, _seconds(each.lag_s), each.epoch, each.view)
            for each in facts.nodes
        ],
        events=[
            (_time(each.time_us), each.node, f"{each.what} {each.before} → {each.after}") for each in facts.events
        ],
    )  # fmt: skip


def write(facts: ReportFacts, out: Path) -> int:
    """Write the page atomically: to a temporary file, which is then renamed. Return its size in bytes.

    Raises StoreError when the file cannot be written.
    """
    data = page(facts).encode()
    partial = _partial(out)
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StoreError(f"cannot write {out}: {error.strerror}") from None
    return len(data)


def check_place(out: Path) -> None:
    """Raise StoreError if the page cannot be written: before the work, not after it."""
    partial = _partial(out)
    try:
        if not out.parent.is_dir():
            raise StoreError(f"cannot write {out}: there is no folder {out.parent}")
        if out.is_dir():
            raise StoreError(f"cannot write {out}: it is a folder; name a file with --out")
        # Only creating a file finds a read-only disk or a name that is too long; permissions do not show them.
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error.strerror}") from None


def _partial(out: Path) -> Path:
    return out.with_name(f".{out.name}.{os.getpid()}")


def _environment() -> Environment:
    found = Environment(loader=PackageLoader("brokerha.pipeline", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    found.globals |= {"bars": bars, "steps": steps, "colour": colour_of}
    found.filters |= {
        "cell": _cell, "number": number, "seconds": _seconds, "shortened": shortened, "time": _time,
    }  # fmt: skip
    return found


def _called(store: str) -> tuple[str, str]:
    return _KINDS.get(store, (store, store))


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return shortened(str(value), 160) if value is not None else ""


def _time(time_us: int) -> str:
    return f"{moment(time_us):%Y-%m-%d %H:%M:%S}"


def _seconds(value: float | None) -> str:
    """Format a time span; empty when it is unknown.

    >>> _seconds(0.0042), _seconds(12.4), _seconds(340)
    ('4 ms', '12.4 s', '5.7 min')
    """
    if value is None:
        return ""
    if 0 < value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.3g} s" if value < 120 else f"{value / 60:.1f} min"
