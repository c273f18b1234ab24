"""Loading files: options, the report, and what of it needs no Spark.

    files ──> DataFrame of Spark ──> mapping ──> sink ``brokerha`` ──> transactions
              text, csv, json, parquet            <id of the load>.<file>.<first byte of the block>.<first row>

| module | what |
|---|---|
| `loading` | options, the report, which syntax a file has, the id of a load |
| `loading_mapping`, `loading_terms` | CSV, JSON and Parquet: how a row becomes statements or keys |
| `loading_columns` | rows of files as the columns that the sink takes |

Invariant: the same files with the same options have the same id, are read in the same blocks and so give the same transactions, whichever task reads
which of them; what an earlier run has sent is answered by the cluster and not done twice.
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
"""Of a file that can be split."""
TEXT, CSV, JSON, PARQUET, RDF = "text", "csv", "json", "parquet", "rdf"
"""How a file is read: statements line by line, rows, or by a parser as a whole."""
OF_ROWS: Final = frozenset({CSV, JSON, PARQUET})
_READ_AS: Final = {
    "nt": TEXT, "ntriples": TEXT, "nq": TEXT, "nquads": TEXT, "csv": CSV, "json": JSON, "jsonl": JSON, "ndjson": JSON,
    "parquet": PARQUET, "pq": PARQUET, "ttl": RDF, "turtle": RDF, "trig": RDF, "n3": RDF, "rdf": RDF, "owl": RDF, "rdfxml": RDF, "jsonld": RDF,
}  # fmt: skip
_WITH_GRAPHS: Final = frozenset({"nq", "nquads", "trig", "jsonld"})
_COMPRESSED: Final = frozenset({".gz", ".bz2", ".zst", ".deflate"})
"""As Spark knows them."""

Tell = Callable[[int, int], None]
"""Takes how much is done, and of how much, in bytes."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to load, where, and how."""

    files: tuple[str, ...]
    """Paths, folders, patterns or URLs, as Spark takes them."""
    url: str
    """Of the cluster, as `brokerha.connect` takes it. Every task connects to it."""
    repository: str = "main"
    syntax: str | None = None
    """By the suffix of each file without it."""
    graph: str = ""
    """For triples only."""
    mapping: str | None = None
    """TOML file that says how a row becomes statements or keys."""
    id: str = ""
    """Begins the ids of all transactions; follows from files and options without it."""
    ack: str = "applied"
    timeout_s: float = 30.0
    window: int = WINDOW
    patience_s: float = PATIENCE_S
    max_rejects: int = 0
    rejects: str = ""
    """Folder for bad rows; `<id>.rejects` without it."""
    split_bytes: int = SPLIT_BYTES
    is_ordered: bool = False
    """One transaction after the other, in the order of the files."""
    is_dry_run: bool = False


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did."""

    id: str
    files: int
    size_bytes: int
    unit: str
    """What `result.items` counts: `statement` or `key`."""
    result: Result
    max_rejects: int
    rejects: str
    """Folder with all rejects; empty when there are none, or a dry run was not told where to write them."""
    is_dry_run: bool
    seconds: float

    @property
    def is_good(self) -> bool:
        """Everything was read, and no more rejects than allowed."""
        return not self.result.is_stopped and self.result.rejects <= self.max_rejects


class LoadFile(NamedTuple):
    """A file as Spark lists it."""

    path: str
    syntax: str
    """In small letters, such as `nt` or `csv`."""
    size_bytes: int
    modified_us: int
    """Since 1970."""

    @property
    def read_as(self) -> str:
        """`TEXT`, `CSV`, `JSON`, `PARQUET` or `RDF`."""
        return read_as(self.syntax)


def read_as(syntax: str) -> str:
    """How a syntax is read."""
    return _READ_AS[syntax]


def syntax_of(path: str, given: str | None) -> str:
    """The syntax that was given, else that of the suffix. Raises InvalidRequest when it is none that a load reads.

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
    """Raises InvalidRequest for files and options that do not go together."""
    for file in files:
        if file.read_as in OF_ROWS and options.mapping is None:
            raise no_mapping(file.path)
        if options.graph and file.syntax in _WITH_GRAPHS:
            raise InvalidRequest(f"{file.path} names its graphs itself: a graph can be given for triples only")
        if options.graph and file.read_as in OF_ROWS:
            raise InvalidRequest("the mapping names the graph: leave out --graph")
    # Files without content are not among them.
    if options.mapping is not None and files and not any(file.read_as in OF_ROWS for file in files):
        raise InvalidRequest("a mapping is for CSV, JSON and Parquet, and none of the files is one")


def no_mapping(name: str) -> InvalidRequest:
    """The error for a file of rows when nothing says what becomes of a row."""
    return InvalidRequest(f"{name}: say with --mapping how a row becomes statements or keys")


def id_of(options: LoadOptions, files: list[LoadFile], mapping: object) -> str:
    """The id of a load: follows from what is loaded, and from what its transactions depend on."""
    told = [files, options.repository, options.graph, repr(mapping), options.split_bytes, options.is_ordered]
    return f"load-{blake2b(json.dumps(told).encode(), digest_size=8).hexdigest()}"
