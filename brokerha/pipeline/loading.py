"""Loading files of any size from Spark's tasks: the words of it, and its limits.

    file ──> splits ──> batches ──> transactions             one task of Spark runs one split at a time
             by size    by lines    <id of load>.<file>.<split>.<batch>

A **split** is a part of a file that one task reads, a **batch** what one transaction takes of it.

| module | what |
|---|---|
| `loading_plan` | files, their syntax, their splits |
| `loading_lines` | lines of a split, some at a time |
| `loading_rdf` | N-Triples and N-Quads: which lines are none, and why |
| `loading_mapping`, `loading_terms` | CSV and Parquet: how a row becomes statements or keys |
| `loading_rows` | rows of a split, in batches |
| `loading_ledger` | the folder that says what is done |
| `loading_publish` | transactions under way, each sent again until its end is known |
| `loading_split` | one split from its first line to its last answer: what a task does |
| `loading_job` | the load as a whole: what comes before the tasks and after them |

Invariants: the same file with the same options gives the same transactions with the same ids at each run, whoever runs which split, so
the cluster takes each of them once. A line that the cluster would refuse is found before it is sent. What a task holds in memory is
bounded by its window. Must never: publish in a dry run; skip a split that the ledger does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from brokerha.model.ids import Lsn, TxId
from brokerha.model.operations import Operation
from brokerha.pipeline.loading_mapping import Mapping

STATEMENTS_LIMIT = 1_000
"""Statements, or keys, of one transaction; a row of a table is never cut."""
SIZE_LIMIT_BYTES = 256 * 1024
"""A transaction ends at whichever is reached first."""
LINE_LIMIT_BYTES = 4 * 1024 * 1024
"""Longest line."""
SPLIT_BYTES = 32 * 1024 * 1024
"""Of a file that can be split; what is left of a split when a run is killed is done again."""
WINDOW = 8
"""Transactions under way, of each task."""
PATIENCE_S = 300.0
"""How long a task goes on sending the same transaction to a cluster that does not take it."""
SHOWN_REJECTS = 10
TEXT_LIMIT = 1_000
"""Characters of a bad line that the reject file has."""

NT, NQ, CSV, PARQUET = "nt", "nq", "csv", "parquet"

Tell = Callable[[int, int], None]
"""Takes how much is done, and of how much, in bytes."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to load, where, and how."""

    files: tuple[str, ...]
    address: str
    """Of the cluster, as `brokerha.connect` takes it. Every task connects to it."""
    state: str
    """Folder that says what is done; every task writes into it."""
    repository: str = "main"
    syntax: str | None = None
    """`nt`, `nq`, `csv`, `parquet`; by the suffix of each file without it."""
    graph: str = ""
    """For triples only."""
    mapping: str | None = None
    """TOML file that says how a row becomes statements or keys."""
    ack: str = "applied"
    timeout_s: float = 30.0
    window: int = WINDOW
    patience_s: float = PATIENCE_S
    max_rejects: int = 0
    """With more of them the load stops."""
    rejects: str | None = None
    """The reject file; in the state folder without it."""
    split_bytes: int = SPLIT_BYTES
    is_ordered: bool = False
    """One transaction after the other, in the order of the files."""
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did."""

    key: str
    """Begins the id of each of its transactions; empty for a dry run."""
    state: str
    files: int
    splits: int
    splits_before: int
    """Were done by an earlier run; the numbers below include them."""
    size_bytes: int
    lines: int
    statements: int
    """Or keys."""
    unit: str
    """`statement` or `key`."""
    transactions: int
    rejects: int
    max_rejects: int
    rejects_file: str | None
    """None when there are no rejects, or a dry run was not told where to write them."""
    first_rejects: tuple[Reject, ...]
    lsn: Lsn
    """Highest LSN; 0 when the level does not tell."""
    is_complete: bool
    """Whether every split was read to its end."""
    is_dry_run: bool
    seconds: float

    @property
    def is_good(self) -> bool:
        """Everything was read, and no more rejects than allowed."""
        return self.is_complete and self.rejects <= self.max_rejects


class Split(NamedTuple):
    """A part of a file that one task reads. Lines belong to the split in which they begin."""

    file: int
    """Number of the file, from 1."""
    number: int
    """Within the file, from 1."""
    path: str
    syntax: str
    start: int
    """First byte, or first row group."""
    end: int
    """Behind the last one; -1: the end of the file, wherever that is."""
    size_bytes: int
    first_line: int
    """Number of its first line (or row) within the file, from 1; 0: not known before those in front of it are read."""

    @property
    def name(self) -> str:
        """Sorts like the splits of a load do."""
        return f"{self.file:05d}-{self.number:06d}"


class Reject(NamedTuple):
    """Lines that are not loaded."""

    file: str
    line: int
    last_line: int
    reason: str
    text: str
    """Of the line, cut; empty for a transaction that the cluster rejected."""
    lost: int = 1
    """Lines, or statements of a rejected transaction."""


class Batch(NamedTuple):
    """What one transaction is made of. Line numbers count from 1 within the split."""

    number: int
    """Within the split, from 1; one without operations is sent to nobody."""
    first_line: int
    last_line: int
    operations: list[Operation]
    statements: int
    rejects: list[Reject]
    position: int
    """Bytes of the split that are behind it."""


@dataclass(frozen=True, slots=True)
class SplitResult:
    """What became of one split."""

    name: str
    lines: int = 0
    statements: int = 0
    transactions: int = 0
    rejects: int = 0
    lsn: Lsn = 0
    error: str = ""
    """Class of an error that ended it (model/errors.py), with its text in `reason`."""
    reason: str = ""
    is_stopped: bool = False
    """Not read to its end: there were too many rejects, or another split failed."""


@dataclass(frozen=True, slots=True)
class LoadJob:
    """What every task has to know."""

    run: str
    """Names this run of the program among all runs of the load."""
    key: str
    address: str
    state: str
    repository: str
    graph: str
    mapping: Mapping | None
    columns: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """Names of the columns of each CSV file, by its number."""
    ack: str = "applied"
    timeout_s: float = 30.0
    window: int = WINDOW
    patience_s: float = PATIENCE_S
    max_rejects: int = 0
    is_dry_run: bool = False


def txid_of(key: str, split: Split, batch: int) -> TxId:
    """The id of a batch's transaction.

    >>> txid_of("load-8a", Split(1, 2, "a.nt", "nt", 0, 9, 9, 1), 3)
    'load-8a.1.2.3'
    """
    return f"{key}.{split.file}.{split.number}.{batch}"


def prefix_of(key: str, file: int) -> str:
    """What the labels of blank nodes of a file begin with, so that they are the same nodes in all of its transactions and in no other load."""
    return f"l{blake2b(f'{key}.{file}'.encode(), digest_size=8).hexdigest()}x"
