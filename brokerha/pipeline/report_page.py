"""The page of a report: one HTML file without scripts that loads nothing, from `ReportFacts` by the template `report_page.html`.

    head and tiles │ writes by origin │ changes by store │ size │ lag │ rejected │ keys, predicates │ stores │ epochs, nodes │ notes

A part that has nothing to show says why in one sentence instead of an empty chart. Everything that comes from data is escaped, and long
texts are shortened: a page of a large archive is some hundred kilobytes. It has a light and a dark theme by what the reader's system
says, one column on a phone, two where there is room; fonts are those of the system.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from brokerha.model.errors import StoreError
from brokerha.pipeline.report import ReportFacts, Series, shortened
from brokerha.pipeline.report_charts import bars, colour_of, moment, number, steps

_KINDS = {
    "graph": ("repository", "repositories"), "table": ("table", "tables"), "queue": ("queue", "queues"),
    "control": ("control suite", "control suite"),
}  # fmt: skip
"""What one of each store is called, and several."""


def page(facts: ReportFacts) -> str:
    """The whole file."""
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
    """Write the page: beside its place first, then renamed, so that a reader never sees half of one.

    Returns its size in bytes. Raises StoreError when the place cannot be written.
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
    """Raises StoreError when the page could not be written: before the work, not after it."""
    partial = _partial(out)
    try:
        if not out.parent.is_dir():
            raise StoreError(f"cannot write {out}: there is no folder {out.parent}")
        if out.is_dir():
            raise StoreError(f"cannot write {out}: it is a folder; name a file with --out")
        # Only to make a file tells it: permissions say nothing about a disk that is read-only or a name that is too long.
        partial.touch()
        partial.unlink()
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error.strerror}") from None


def _partial(out: Path) -> Path:
    return out.with_name(f".{out.name}.{os.getpid()}")


def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("brokerha.pipeline", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
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
    """A time span; nothing where it is not known.

    >>> _seconds(0.0042), _seconds(12.4), _seconds(340)
    ('4 ms', '12.4 s', '5.7 min')
    """
    if value is None:
        return ""
    if 0 < value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.3g} s" if value < 120 else f"{value / 60:.1f} min"
