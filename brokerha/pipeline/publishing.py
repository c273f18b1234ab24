"""Rows of a DataFrame as transactions of a cluster: options of the sink ``brokerha``, results of a task, and transaction ids.

    rows ──> chunks ──> transactions             one task publishes one partition (`publishing_task`)
             by rows    <id>.<part>.<number of the first row>

| module | content |
|---|---|
| `publishing` | options, results, ids |
| `publishing_rows` | operations of a row, reasons to refuse it, and the grouping of rows |
| `publishing_task` | one partition from its first row to its last answer |

Rows are numbered within a **part**: the partition of Spark, or the value of the column `part`. Invariants: the same rows under the
same id give the same transactions with the same ids, whichever process runs a partition and how often. So the cluster applies each
once, as long as it remembers ids (``tx-log-max-depth-h``). The cluster refuses different rows under a used id. Each row is applied,
reported as a reject, or covered by the error of the write.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

from brokerha.model.errors import ConfigurationError, error_named
from brokerha.model.ids import Lsn, TxId
from brokerha.model.operation_checks import GRAPH, QUEUE, TABLE
from brokerha.model.outside.levels import parse_ack
from brokerha.pipeline.places import place

ROWS_LIMIT: Final = 1_000
"""Most statements, keys or messages of one transaction; the operations of one row stay together."""
SIZE_LIMIT_BYTES: Final = 256 * 1024
"""A transaction ends at the first limit that it reaches."""
WINDOW: Final = 8
"""Most concurrent transactions of each task."""
PATIENCE_S: Final = 300.0
"""How long a task repeats a transaction that the cluster does not take."""
SHOWN_REJECTS: Final = 10
_ID: Final = re.compile(r"[!-~]{1,48}\Z")
_PART: Final = re.compile(r"[!-~]{1,40}\Z")

STORES: Final = {"repository": GRAPH, "table": TABLE, "queue": QUEUE}
"""Option that names a store -> the kind of store."""
KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    GRAPH: {"append": "add", "upsert": "add", "delete": "remove", "add": "add", "remove": "remove"},
    TABLE: {"append": "new", "upsert": "put", "delete": "delete", "put": "put"},
    QUEUE: {"append": "publish", "delete": "accept", "publish": "publish", "accept": "accept"},
}
"""Value of `kind`, also in the words of the log -> operation; `new` puts a key that must not exist."""
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
_OF_OTHERS: Final = ("url", *STORES, "kind", "graph", "id", "rejects", "report", "ack")
_NUMBERS: Final = {
    "maxrejects": ("maxRejects", "max_rejects", int, 0),
    "window": ("window", "window", int, 1),
    "rowspertransaction": ("rowsPerTransaction", "rows", int, 1),
    "timeout": ("timeout", "timeout_s", float, 0.001),
    "patience": ("patience", "patience_s", float, 0),
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Target and manner of a write. Made by `from_options`, which checks them."""

    url: str
    """Address for `brokerha.connect`: HTTP addresses, or that of the broker. Every task connects to it."""
    store: str = ""
    """Kind of the only target store; empty: the columns `store` and `name` name it for each row."""
    name: str = ""
    kind: str = ""
    """Default for rows without a column `kind`; empty: append, and upsert for tables."""
    graph: str = ""
    """Graph of the statements, which are triples then."""
    id: str = ""
    rejects: str = ""
    """Folder for refused rows, as lines of JSON."""
    max_rejects: int = 0
    report: str = ""
    """File for the result, as JSON."""
    ack: str = "applied"
    timeout_s: float = 30.0
    patience_s: float = PATIENCE_S
    window: int = WINDOW
    rows: int = ROWS_LIMIT
    is_dry_run: bool = False
    """Check every row, send nothing."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Parse options, with names in any case. Raises ConfigurationError or InvalidRequest that names the wrong option."""
        lower = {name.lower(): value for name, value in options.items() if name.lower() not in _OF_SPARK}
        found: dict[str, Any] = {name: lower.pop(name, "") for name in _OF_OTHERS}
        found["ack"] = found["ack"] or "applied"
        for option, (spelled, field, make, least) in _NUMBERS.items():
            if option in lower:
                found[field] = _number(spelled, lower.pop(option), make, least)
        is_dry_run = lower.pop("dryrun", "false").lower()
        if is_dry_run not in {"true", "false"}:
            raise ConfigurationError(f"dryRun is true or false, not {is_dry_run!r}")
        found["is_dry_run"] = is_dry_run == "true"
        if lower:
            known = ", ".join([*_OF_OTHERS, *(spelled for spelled, *_ in _NUMBERS.values()), "dryRun"])
            raise ConfigurationError(f"there is no option {min(lower)!r} for writing; there are {known}")
        found |= {name: place(found[name]) for name in ("rejects", "report") if found[name]}
        named = {option: found.pop(option) for option in STORES}
        chosen = [option for option, name in named.items() if name]
        if len(chosen) > 1:
            raise ConfigurationError(f"{' and '.join(chosen)} are two places: write one, or none and columns store and name")
        if chosen:
            found |= {"store": STORES[chosen[0]], "name": named[chosen[0]]}
        made = cls(**found)
        made._check()
        return made

    def _check(self) -> None:
        if not self.url and not self.is_dry_run:
            raise ConfigurationError("which cluster? write url (http://host:port of a master, or amqp://… of its broker)")
        words = {word for store, known in KINDS.items() if self.store in {"", store} for word in known}
        if self.kind and self.kind not in words:
            raise ConfigurationError(f"kind {self.kind!r} is none of {', '.join(sorted(words))}")
        if self.graph and self.store != GRAPH:
            raise ConfigurationError("graph is for triples: write repository beside it")
        if self.id and not _ID.match(self.id):
            raise ConfigurationError(f"id {self.id!r} is not 1 to 48 visible ASCII characters")
        if self.max_rejects and not self.rejects and not self.is_dry_run:
            raise ConfigurationError("maxRejects without rejects would lose rows: name a folder for them with rejects")
        parse_ack(self.ack)

    @property
    def unit(self) -> str:
        """Unit of `Result.items`."""
        return {GRAPH: "statement", TABLE: "key", QUEUE: "message"}.get(self.store, "change")


def _number(name: str, text: str, make: type[Any], least: float) -> Any:
    try:
        value = make(text)
    except ValueError:
        value = None
    if value is None or not value >= least:
        raise ConfigurationError(f"{name} is a {'whole number' if make is int else 'number'} of at least {least:g}, not {text!r}")
    return value


class Reject(NamedTuple):
    """A refused row."""

    source: str
    part: str
    row: int
    """Number within the part, from 1; the number within the file, if the part begins with the file."""
    reason: str
    text: str
    """The row: its column `text` or `statement`, else all columns as JSON."""


UNREAD: Final = "; what comes after it in this file is not loaded"
"""End of the reason of a reject that stands for the rest of its file."""


@dataclass(slots=True)
class Result:
    """Result of one partition, or of all partitions together."""

    rows: int = 0
    items: int = 0
    """Statements, keys or messages that were applied, in this run or an earlier one."""
    transactions: int = 0
    repeated: int = 0
    """Transactions that an earlier run or attempt had applied, and that were only answered again."""
    rejects: int = 0
    unread: int = 0
    """Files that were not read to their end: a reject for each is in `rejects`, and stands for any number of rows."""
    first_rejects: tuple[Reject, ...] = ()
    lsn: Lsn = 0
    """Highest LSN; 0 when the level does not report it."""
    is_stopped: bool = False
    """True when the input was not read to its end: too many rejects, an error, or a task that died."""
    error: str = ""
    """Class of the error that ended it (model/errors.py); its text is in `reason`."""
    reason: str = ""
    remedy: str | None = ""
    """As that of `Unreachable`."""

    def add(self, other: Result) -> None:
        """Add another result; the first error stays."""
        for name in ("rows", "items", "transactions", "repeated", "rejects", "unread"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.first_rejects = (self.first_rejects + other.first_rejects)[:SHOWN_REJECTS]
        self.lsn = max(self.lsn, other.lsn)
        self.is_stopped |= other.is_stopped
        if not self.error:
            self.error, self.reason, self.remedy = other.error, other.reason, other.remedy

    def check(self, options: SinkOptions, id_: str) -> None:
        """Raise the error of a task, or of too many rejects; the text tells what is written and how to continue."""
        done = (
            f"{self.items:,} {options.unit}s in {self.transactions:,} transactions are written under id {id_!r}; "
            "the same rows under it again go on after them, and nothing is done twice"
        )
        if self.error:
            raise error_named(self.error, f"{self.reason} ({done})", remedy=self.remedy)
        if self.rejects > options.max_rejects and not options.is_dry_run:
            first = self.first_rejects[0]
            where = f", all in {options.rejects}" if options.rejects else ""
            raise error_named(
                "InvalidRequest",
                f"{self.rejects:,} rows are refused and {options.max_rejects:,} allowed (maxRejects){where}; the first: {first.reason}: "
                f"{first.text[:200]!r} ({done})",
            )


def txid_of(id_: str, part: str, first_row: int) -> TxId:
    """The id of the transaction whose first row has this number.

    >>> txid_of("load-8a", "3", 1001)
    'load-8a.3.1001'
    """
    if not _PART.match(part):
        part = blake2b(part.encode(), digest_size=10).hexdigest()
    return f"{id_}.{part}.{first_row}"


def prefix_of(id_: str, source: str) -> str:
    """Return the prefix of blank node labels of a source, so that its transactions share nodes with each other only."""
    return f"l{blake2b(f'{id_}.{source}'.encode(), digest_size=8).hexdigest()}x"
