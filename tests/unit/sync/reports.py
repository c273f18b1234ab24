"""Rows and reports of masters in few words, for tests of what is made of them.

row("m2", number=3, lsn=7)
report("m2", lsn=1, last="a", streams={"m2": (1, (10, "b"))})    m2 holds b as number 1 of its stream, and not added
"""

from __future__ import annotations

from typing import Any

from brokerha.model.epochs import FIRST, Configuration, EpochId
from brokerha.model.ids import Entry, NodeId, Ordered
from brokerha.model.wire.epoch_messages import EpochReport, Row

NEXT: EpochId = (2, "m1")
"""What reports are about when nothing else is said."""


def row(node: NodeId, number: int = 1, **said: Any) -> Row:
    """A row of a master that has nothing and hears nobody, unless it says so."""
    fields: dict[str, Any] = {
        "journal": f"journal-of-{node}", "incarnation": 1, "epoch": FIRST, "promised": NEXT, "promise": 0, "have": {},
        "recovered": 0, "lsn": 0, "heard": (), **said,
    }  # fmt: skip
    return Row(node=node, number=number, **fields)


def report(
    node: NodeId,
    *,
    last: str = "",
    recovered: dict[int, Ordered] | None = None,
    streams: dict[NodeId, tuple[int | Entry, ...]] | None = None,
    **said: Any,
) -> EpochReport:
    """What a master holds: of each stream the number of the first entry, then entries; what it has counts them."""
    listed: list[tuple[NodeId, int, tuple[Entry, ...]]] = []
    have: dict[NodeId, int] = {}
    for origin, (first, *entries) in (streams or {}).items():
        assert isinstance(first, int)
        listed.append((origin, first, tuple(entry for entry in entries if isinstance(entry, tuple))))
        have[origin] = first + len(entries)
    places = tuple((place, *entry) for place, entry in (recovered or {}).items())
    said.setdefault("have", have)
    return EpochReport(NEXT, row(node, **said), last, places, tuple(listed), Configuration(("m1", "m2", "m3")))
