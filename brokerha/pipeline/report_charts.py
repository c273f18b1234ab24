"""Charts of a report as HTML with SVG inside: bars in stacks, and steps. No script, nothing from the network.

    ┌ chart ───────────────────────────┐
    │ 40 ┤      ▂▇                     │   The drawing stretches to the width that there is; lines keep their thickness.
    │ 20 ┤   ▃█ ██ ▅                   │   Numbers and times beside it are text of the page, so they are as readable on a
    │  0 ┼──────────────               │   phone as on a wall. What a bin holds is shown where the pointer rests.
    │    12:00      12:10              │
    └──────────────────────────────────┘

Drawings have one unit for each bin across, and 100 units up. Colours are classes (`c0` … `c7`), which the style of the page gives values by
theme. All text that comes from data is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape

from brokerha.pipeline.report import OTHERS, Bins, Series

HEIGHT = 100
COLOURS = 7
OTHERS_COLOUR = "c7"
_TICKS = 6
_NICE = (1, 2, 2.5, 5, 10)
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_SECOND_US = 1_000_000
_DAY_S = 86_400

Text = Callable[[float], str]


def number(value: float) -> str:
    """A number in few signs.

    >>> [number(value) for value in (0, 0.25, 7, 1234, 53200, 1_000_000, 2_345_678)]
    ['0', '0.25', '7', '1,234', '53.2k', '1M', '2.35M']
    """
    for least, sign in ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k")):
        if abs(value) >= least:
            return f"{value / (1000 if sign == 'k' else least):.3g}{sign}"
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def seconds(value: float) -> str:
    """A time span.

    >>> seconds(0.0042), seconds(12.4), seconds(340)
    ('4 ms', '12.4 s', '5.7 min')
    """
    if 0 < abs(value) < 1:
        return f"{value * 1000:.3g} ms" if abs(value) < 0.001 else f"{value * 1000:.0f} ms"
    return f"{value:.3g} s" if abs(value) < 120 else f"{value / 60:.1f} min"


def moment(time_us: int) -> datetime:
    """A timestamp as a date and time in UTC."""
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us)


def levels(highest: float) -> list[float]:
    """Round numbers from 0 to at least the highest, for the lines of a chart.

    >>> levels(37), levels(0)
    ([0, 10, 20, 30, 40], [0, 1])
    """
    if highest <= 0:
        return [0, 1]
    power = 10.0 ** math.floor(math.log10(highest / 4))
    step = next(nice * power for nice in _NICE if nice * power * 4 >= highest * (1 - 1e-9))
    if float(step).is_integer():
        step = int(step)
    return [step * place for place in range(math.ceil(highest / step - 1e-9) + 1)]


def colour_of(place: int, name: str) -> str:
    """The class of one series."""
    return OTHERS_COLOUR if name == OTHERS else f"c{place % COLOURS}"


def bars(
    series: Sequence[Series], bins: Bins, unit: str, factor: float = 1, marks: Sequence[tuple[int, str]] = ()
) -> str:
    """Stacked bars, one for each bin; values are multiplied by ``factor``. ``marks`` are (time, text) of vertical lines."""
    sums = [sum(each.values[place] or 0 for each in series) * factor for place in range(bins.count)]
    scale = levels(max(sums, default=0))
    drawn = []
    bottoms = [0.0] * bins.count
    for order, each in enumerate(series):
        parts = []
        for place, value in enumerate(each.values):
            height = (value or 0) * factor / scale[-1] * HEIGHT
            if height > 0:
                bottoms[place] += height
                parts.append(f"M{place + 0.06:g} {HEIGHT - bottoms[place]:.2f}h.88v{height:.2f}h-.88z")
        if parts:
            drawn.append(f'<path class="{colour_of(order, each.name)}" d="{"".join(parts)}"/>')
    for time_us, text in marks:
        at = (time_us - bins.start_us) / bins.width_us
        drawn.append(f'<path class="mark" d="M{at:.3f} 0V{HEIGHT}"><title>{escape(text)}</title></path>')
    return _framed(drawn, series, bins, scale, lambda value: f"{number(value)} {unit}", factor, number)


def steps(series: Sequence[Series], bins: Bins, text: Text = number, *, is_filled: bool = False) -> str:
    """One line for each series that holds its value through each bin; a bin without a value is a gap."""
    scale = levels(max((each.highest for each in series), default=0))
    drawn = []
    for order, each in enumerate(series):
        colour = colour_of(order, each.name)
        for first, values in _without_gaps(each.values):
            heights = [HEIGHT - value / scale[-1] * HEIGHT for value in values]
            line = f"M{first} {heights[0]:.2f}" + "".join(f"V{height:.2f}h1" for height in heights)
            if is_filled:
                drawn.append(f'<path class="{colour} area" d="{line}V{HEIGHT}H{first}z"/>')
            drawn.append(f'<path class="{colour} line" d="{line}"/>')
    return _framed(drawn, series, bins, scale, text, 1, text)


def legend(series: Sequence[Series]) -> str:
    """The names of series in their colours."""
    names = (
        f'<li><i class="{colour_of(order, each.name)}"></i>{escape(each.name or "unknown")}</li>'
        for order, each in enumerate(series)
    )
    return f'<ul class="legend">{"".join(names)}</ul>'


def _without_gaps(values: Sequence[float | None]) -> list[tuple[int, list[float]]]:
    """Runs of values that are known, each with the bin where it begins."""
    runs: list[tuple[int, list[float]]] = []
    is_open = False
    for place, value in enumerate(values):
        if value is None:
            is_open = False
            continue
        if not is_open:
            runs.append((place, []))
        runs[-1][1].append(value)
        is_open = True
    return runs


def _framed(
    drawn: Sequence[str],
    series: Sequence[Series],
    bins: Bins,
    scale: Sequence[float],
    hover: Text,
    factor: float,
    text: Text,
) -> str:
    """A drawing with its lines, numbers and times."""
    lines = "".join(f"M0 {HEIGHT - level / scale[-1] * HEIGHT:.2f}H{bins.count}" for level in scale)
    hits = "".join(
        f'<rect class="hit" x="{place}" y="0" width="1" height="{HEIGHT}"><title>{escape(_told(place, series, bins, hover, factor))}'
        "</title></rect>"
        for place in range(bins.count)
        if any(each.values[place] for each in series)
    )
    up = "".join(f'<span style="bottom:{level / scale[-1] * 100:.2f}%">{escape(text(level))}</span>' for level in scale)
    across = "".join(
        f'<span class="{"" if order % 2 == 0 else "odd"}" style="left:{share * 100:.2f}%">{escape(label)}</span>'
        for order, (share, label) in enumerate(times(bins))
    )
    return (
        f'<div class="chart"><div class="up">{up}</div><svg viewBox="0 0 {bins.count} {HEIGHT}" preserveAspectRatio="none" '
        f'role="img"><path class="grid" d="{lines}"/>{"".join(drawn)}{hits}</svg><div class="across">{across}</div></div>'
    )


def _told(place: int, series: Sequence[Series], bins: Bins, hover: Text, factor: float) -> str:
    """What a bin holds, for the pointer that rests on it."""
    told = [f"{moment(bins.begin_us(place)):%Y-%m-%d %H:%M:%S}"]
    told += [f"{each.name or 'unknown'}: {hover(value * factor)}" for each in series if (value := each.values[place])]
    return "\n".join(told)


def times(bins: Bins) -> list[tuple[float, str]]:
    """Round moments within the bins as (share of the width, label).

    >>> times(Bins(0, 60_000_000, 60))[:2]
    [(0.0, '00:00'), (0.16666666666666666, '00:10')]
    """
    span_s = bins.width_us * bins.count / _SECOND_US
    steps_s = (*_STEPS_S, *(_DAY_S * days for days in (2, 5, 10, 30, 60, 180, 365)))
    step_s = next((step for step in steps_s if span_s / step <= _TICKS), int(span_s / _TICKS) + 1)
    form = (
        "%H:%M:%S" if step_s < 60 else "%H:%M" if span_s <= _DAY_S else "%m-%d %H:%M" if step_s < _DAY_S else "%Y-%m-%d"
    )
    step_us = step_s * _SECOND_US
    found = []
    at = -(-bins.start_us // step_us) * step_us
    while at < bins.end_us:
        found.append(((at - bins.start_us) / (bins.width_us * bins.count), f"{moment(at):{form}}"))
        at += step_us
    return found
