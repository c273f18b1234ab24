"""Which entries of a source to read, and in which parts: the decisions of the Spark data source, without Spark.

    options ──> planned: first and last LSN ──> pieces ──> one task each: `batches`

| option | default | meaning |
|---|---|---|
| `startingLsn`, `endingLsn` | the first and the last available | the range; a stream begins at `startingLsn` and ends at `endingLsn` |
| `view` | `log` | `pieces`: only first and last LSN of each piece, for tasks that read the log themselves |
| `failOnDataLoss` | `true` | whether a range whose beginning is gone is an error; else reading begins at the first available entry |
| `partitions` | by size | how many tasks read a batch |
| `columns` | all | columns to return, separated by commas |
| `stores` | all | only changes of these: `graph`, `table`, `queue`, `control`, separated by commas; and large transactions |
| `arrow` | `true` | whether tasks return Arrow batches; else tuples |
| `maxEntriesPerTrigger` | no limit | most entries of one batch of a stream |
| `maxBytesPerTrigger` | no limit | most bytes of their effects; entries are read twice, because the log does not hold sizes |
| `pin`, `pinForSeconds` | none, a week | name of the pin with which a stream makes masters keep unread entries |

Invariant: the same range of LSNs gives the same rows, however it is cut into pieces, and however often it is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from brokerha.model.errors import ConfigurationError
from brokerha.model.ids import Lsn
from brokerha.pipeline.rows import SCHEMA
from brokerha.pipeline.sources import OPTIONS as OF_SOURCES
from brokerha.pipeline.sources import OpenSource
from brokerha.stores.backup.lines import LinesMissing
from brokerha.stores.comparing.items import CONTROL, GRAPH, QUEUE, TABLE

VIEW_LOG, VIEW_PIECES = "log", "pieces"
OF_PIECES: Final = ("first_lsn", "last_lsn")
STORES: Final = (GRAPH, TABLE, QUEUE, CONTROL)
OPTIONS: Final = (
    "startingLsn", "endingLsn", "view", "failOnDataLoss", "partitions", "columns", "stores", "arrow", "maxEntriesPerTrigger",
    "maxBytesPerTrigger", "pin", "pinForSeconds",
)  # fmt: skip
PIECE_ENTRIES: Final = 50_000
"""Most entries of one task, unless `partitions` is set."""
PIECE_ENTRIES_LEAST: Final = 2_000
PIECES: Final = 8
"""Number of pieces of a range of medium size."""
PIN_FOR_S: Final = 7 * 86_400
SIZED_ENTRIES: Final = 1_000
"""Entries between two checks of the size of a batch."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of the data source that are not in `SourceSpec`; see the head of the module."""

    starting_lsn: Lsn | None = None
    ending_lsn: Lsn | None = None
    fail_on_data_loss: bool = True
    partitions: int | None = None
    columns: tuple[str, ...] = tuple(SCHEMA.names)
    stores: frozenset[str] | None = None
    arrow: bool = True
    max_entries: int | None = None
    max_bytes: int | None = None
    view: str = VIEW_LOG
    pin: str = ""
    pin_for_s: int = PIN_FOR_S

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse options, with names in any case. Raises ConfigurationError."""
        lower = {name.lower(): value for name, value in options.items()}
        known = (*OF_SOURCES, *OPTIONS)
        # A misspelled range option would otherwise read the whole log.
        if strange := sorted(lower.keys() - {name.lower() for name in known}):
            raise ConfigurationError(f"there is no option {strange[0]!r} for reading; there are {', '.join(known)}")
        columns = tuple(name.strip() for name in lower.get("columns", ",".join(SCHEMA.names)).split(","))
        unknown = [name for name in columns if name not in SCHEMA.names]
        if unknown:
            raise ConfigurationError(f"there is no column {unknown[0]!r}; there are {', '.join(SCHEMA.names)}")
        if twice := next((name for name in columns if columns.count(name) > 1), ""):
            raise ConfigurationError(f"column {twice!r} is named twice")
        stores = frozenset(name.strip() for name in lower["stores"].split(",")) if "stores" in lower else None
        if strange := sorted((stores or frozenset()) - {*STORES}):
            raise ConfigurationError(f"there is no store {strange[0]!r}; there are {', '.join(STORES)}")
        view = lower.get("view", VIEW_LOG)
        if view not in {VIEW_LOG, VIEW_PIECES}:
            raise ConfigurationError(
                f"view is {VIEW_LOG} or {VIEW_PIECES}, not {view!r}; a state is made by brokerha.spark.frames.state"
            )
        return cls(
            _number(lower, "startingLsn"),
            _number(lower, "endingLsn"),
            _flag(lower, "failOnDataLoss"),
            _number(lower, "partitions"),
            columns,
            stores,
            _flag(lower, "arrow"),
            _number(lower, "maxEntriesPerTrigger"),
            _number(lower, "maxBytesPerTrigger"),
            view,
            lower.get("pin", ""),
            _number(lower, "pinForSeconds") or PIN_FOR_S,
        )


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise ConfigurationError(f"{name} is a number from 1 on, not {text!r}")
    return int(text)


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name.lower(), "true").lower()
    if text not in {"true", "false"}:
        raise ConfigurationError(f"{name} is true or false, not {text!r}")
    return text == "true"


def planned(source: OpenSource, options: ReadOptions) -> tuple[Lsn, Lsn]:
    """Return the first and the last LSN of a batch; the first is above the last when there is nothing.

    Raises ConfigurationError when `startingLsn` is above `endingLsn`, and LinesMissing when one of them is not available, unless data
    loss is allowed.
    """
    if (options.starting_lsn or 1) > (options.ending_lsn or math.inf):
        raise ConfigurationError(
            f"startingLsn {options.starting_lsn} is above endingLsn {options.ending_lsn}: no entry is between them"
        )
    first_held, last_held = source.first_lsn(), source.last_lsn()
    first, last = options.starting_lsn or first_held, options.ending_lsn or last_held
    if options.fail_on_data_loss:
        if first < first_held:
            raise LinesMissing(lost(first, first_held))
        if last > last_held:
            raise LinesMissing(f"the log ends with LSN {last_held}, before endingLsn {last}")
    return max(first, first_held), min(last, last_held)


def lost(first_lsn: Lsn, first_held: Lsn) -> str:
    """Return the error text for a range whose beginning is gone."""
    return (
        f"LSN {first_lsn} is not in the log any more: the first one that there is has LSN {first_held}; with the option "
        "failOnDataLoss=false reading begins there"
    )


def pieces(first_lsn: Lsn, last_lsn: Lsn, partitions: int | None = None) -> list[tuple[Lsn, Lsn]]:
    """Cut a range into parts of nearly the same size.

    >>> pieces(1, 10, 3)
    [(1, 4), (5, 7), (8, 10)]
    >>> pieces(5, 4)
    []
    """
    count = last_lsn - first_lsn + 1
    if count < 1:
        return []
    if partitions is None:
        size = min(PIECE_ENTRIES, max(PIECE_ENTRIES_LEAST, -(-count // PIECES)))
        partitions = -(-count // size)
    partitions = min(partitions, count)
    size, more = divmod(count, partitions)
    found = []
    for number in range(partitions):
        last = first_lsn + size - (number >= more)
        found.append((first_lsn, last))
        first_lsn = last + 1
    return found


def batches(
    source: OpenSource, first_lsn: Lsn, last_lsn: Lsn, options: ReadOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range. If data loss is allowed, a range that was trimmed meanwhile begins later."""
    if not options.fail_on_data_loss:
        first_lsn = max(first_lsn, source.first_lsn())
    if first_lsn <= last_lsn:
        yield from source.batches(first_lsn, last_lsn, columns, options.stores)


def reach(source: OpenSource, start_lsn: Lsn, last_lsn: Lsn, max_entries: int | None, max_bytes: int | None) -> Lsn:
    """Return the last LSN of the next batch of a stream that is at ``start_lsn``: at least one entry, when there is one."""
    end = last_lsn if max_entries is None else min(last_lsn, start_lsn + max_entries)
    if max_bytes is None or end <= start_lsn:
        return max(end, start_lsn)
    following, left_bytes = start_lsn + 1, max_bytes
    while following <= end:
        for entry in source.read(following, min(following + SIZED_ENTRIES - 1, end)):
            left_bytes -= len(entry.effect)
            if left_bytes < 0:
                return max(entry.lsn - 1, start_lsn + 1)
        following += SIZED_ENTRIES
    return end
