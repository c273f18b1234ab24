"""Loading files: options, the report, and the parts that need no Spark.

    files ──> DataFrame of Spark ──> mapping ──> sink ``brokerha`` ──> transactions
              text, csv, json, parquet            <id of the load>.<file>.<first byte of the block>.<first row>

| module | content |
|---|---|
| `loading` | options, the report, the syntax of a file, the id of a load |
| `loading_mapping`, `loading_terms` | CSV, JSON and Parquet: how a row becomes statements or keys |
| `loading_columns` | rows of files as columns for the sink |

Invariant: the same files with the same options have the same id and the same blocks, and so give the same transactions, whichever
task reads which block. The cluster answers transactions of an earlier run again without repeating them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from brokerha.model.errors import InvalidRequest
from brokerha.pipeline.publishing import PATIENCE_S, WINDOW, Result

SPLIT_BYTES: Final = 32 * 1024 * 1024
"""Size of the parts of a file that can be split."""
TEXT, CSV, JSON, PARQUET, RDF = "text", "csv", "json", "parquet", "rdf"
"""How a file is read: statements line by line, rows, or the whole file by a parser."""
OF_ROWS: Final = frozenset({CSV, JSON, PARQUET})
_READ_AS: Final = {
    "nt": TEXT, "ntriples": TEXT, "nq": TEXT, "nquads": TEXT, "csv": CSV, "json": JSON, "jsonl": JSON, "ndjson": JSON,
    "parquet": PARQUET, "pq": PARQUET, "ttl": RDF, "turtle": RDF, "trig": RDF, "n3": RDF, "rdf": RDF, "owl": RDF, "rdfxml": RDF, "jsonld": RDF,
}  # fmt: skip
_WITH_GRAPHS: Final = frozenset({"nq", "nquads", "trig", "jsonld"})
_COMPRESSED: Final = frozenset({".gz", ".bz2", ".zst", ".deflate"})
"""Compression suffixes that Spark knows."""

Tell = Callable[[int, int], None]
"""Takes the bytes that are done, and their total."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to load, where, and how."""

    files: tuple[str, ...]
    """Paths, folders, patterns or URLs, as Spark takes them."""
    url: str
    """Address of the cluster for `brokerha.connect`. Every task connects to it."""
    repository: str = "main"
    syntax: str | None = None
    """None: by the suffix of each file."""
    graph: str = ""
    """For triples only."""
    mapping: str | None = None
    """TOML file that says how a row becomes statements or keys."""
    id: str = ""
    """Beginning of the ids of all transactions; empty: derived from files and options."""
    ack: str = "applied"
    timeout_s: float = 30.0
    window: int = WINDOW
    patience_s: float = PATIENCE_S
    max_rejects: int = 0
    rejects: str = ""
    """Folder for bad rows; empty: `<id>.rejects`."""
    split_bytes: int = SPLIT_BYTES
    is_ordered: bool = False
    """Whether transactions run one after the other, in the order of the files."""
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of a load."""

    id: str
    files: int
    size_bytes: int
    unit: str
    """Unit of `result.items`: `statement` or `key`."""
    result: Result
    max_rejects: int
    rejects: str
    """Folder with all rejects; empty without rejects, or when a dry run has no folder for them."""
    is_dry_run: bool
    seconds: float

    @property
    def is_complete(self) -> bool:
        """True when all input was read."""
        return not self.result.is_stopped and not self.result.unread

    @property
    def is_good(self) -> bool:
        """True when all input was read, with no more rejects than allowed."""
        return self.is_complete and self.result.rejects <= self.max_rejects


class LoadFile(NamedTuple):
    """A file as Spark lists it."""

    path: str
    syntax: str
    """In lower case, such as `nt` or `csv`."""
    size_bytes: int
    modified_us: int
    """Microseconds since 1970."""

    @property
    def read_as(self) -> str:
        """`TEXT`, `CSV`, `JSON`, `PARQUET` or `RDF`."""
        return read_as(self.syntax)


def read_as(syntax: str) -> str:
    """Return the way to read a syntax."""
    return _READ_AS[syntax]


def syntax_of(path: str, given: str | None) -> str:
    """Return the given syntax, else that of the suffix. Raises InvalidRequest for a syntax that a load cannot read.

    >>> syntax_of("/data/people.nt.gz", None), syntax_of("/data/people", "N-Quads")
    ('nt', 'nquads')
    """
    name = PurePosixPath(path)
    is_compressed = name.suffix in _COMPRESSED
    plain = name.with_suffix("") if is_compressed else name
    word = (given or plain.suffix).lower().lstrip(".").replace("-", "")
    if word == "xz" or name.suffix == ".xz":
        raise InvalidRequest(f"{name.name}: Spark reads no xz: unpack it, or use gzip, bzip2 or zstd")
    if word not in _READ_AS:
        raise InvalidRequest(f"{name.name}: {word or 'no suffix'!r} is none of {', '.join(sorted(_READ_AS))}: say --format")
    if is_compressed and _READ_AS[word] == PARQUET:
        raise InvalidRequest(f"{name.name}: Parquet is compressed inside; unpack the file")
    return word


def check_together(options: LoadOptions, files: list[LoadFile]) -> None:
    """Raise InvalidRequest for files and options that do not fit together."""
    for file in files:
        if file.read_as in OF_ROWS and options.mapping is None:
            raise no_mapping(file.path)
        if options.graph and file.syntax in _WITH_GRAPHS:
            raise InvalidRequest(f"{file.path} names its graphs itself: a graph can be given for triples only")
        if options.graph and file.read_as in OF_ROWS:
            raise InvalidRequest("the mapping names the graph: leave out --graph")
    # The list does not contain empty files.
    if options.mapping is not None and files and not any(file.read_as in OF_ROWS for file in files):
        raise InvalidRequest("a mapping is for CSV, JSON and Parquet, and none of the files is one")


def no_mapping(name: str) -> InvalidRequest:
    """Return the error for a file of rows without a mapping."""
    return InvalidRequest(f"{name}: say with --mapping how a row becomes statements or keys")


def id_of(options: LoadOptions, files: list[LoadFile], mapping: object) -> str:
    """Return the id of a load, derived from its files and from the options that change its transactions."""
    told = [files, options.repository, options.graph, repr(mapping), options.split_bytes, options.is_ordered]
    return f"load-{blake2b(json.dumps(told).encode(), digest_size=8).hexdigest()}"
