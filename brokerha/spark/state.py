"""The state at an LSN as a table of Spark, computed from the rows of an archive; pipeline/state.py is the same in plain Python.

    rows up to L ──group by item──> last row of each ──without tombstones──> items that live
    rows of queues ──count──> counters                  `publish` rows of a queue ──number──> places ──> digests of messages

    rows(spark, archive, state, 1, 5000, ["lsn", "kind"])          any rows, with the columns that are asked for
    items_at(spark, archive, state, 5000, ["name", "key", "value"])
    fingerprint_at(spark, archive, state, 5000)

Columns are those of pipeline/rows.py; `items_at` also knows `place` (of a message, else 0) and `is_repository`, and gives messages their
digests, which their rows alone do not tell. The repository `main` exists from the start: it has an item of LSN 0 until an entry changes it.

Which row of an item is the last is told by one number, twice the LSN and one more where something comes: within one entry an item changes
twice only when a message goes and comes back. What is fixed in size is so aggregated by hashing, without sorting all rows.

Only files that the manifest names are read, and of those only what holds a part of the range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.window import Window

from brokerha.model import fingerprints
from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.ids import Lsn
from brokerha.pipeline.archive import Archive, ArchiveState
from brokerha.pipeline.rows import ACCEPT, CREATE, DROP, PUBLISH, SCHEMA
from brokerha.pipeline.state import MAIN
from brokerha.stores.fingerprint import counts_digest, message_digest, repository_digest
from brokerha.stores.items import GRAPH, QUEUE
from brokerha.stores.queue_change import Counts, Message

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PLACE: Final = "place"
"""Column of `items_at` beside those of rows.py: number of a message among all that were published to its queue; 0 for other items."""
IS_REPOSITORY: Final = "is_repository"
"""Column of `items_at`: whether the item is a repository and not a quad in it."""
ITEM: Final = ("item_high", "item_low")
DIGEST: Final = ("digest_high", "digest_low")
OF_ITEM: Final = ("store", "name", "key", "subject", "predicate", "object", "graph", IS_REPOSITORY)
"""Columns that are the same in each row of an item."""
_ORDER: Final = "order"
_HALF: Final = 1 << 64
_GLOB: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]{}"})


def rows(
    spark: SparkSession,
    archive: Archive,
    state: ArchiveState,
    first_lsn: Lsn,
    last_lsn: Lsn,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Rows of a range of an archive, both ends included, with all columns or some, in no order.

    Raises StoreError when the archive does not hold the range, StoreDamaged when one of its files is missing.
    """
    wanted = list(columns or SCHEMA.names)
    if last_lsn < first_lsn:
        return spark.createDataFrame([], from_arrow_schema(SCHEMA)).select(*wanted)
    if first_lsn < state.first_lsn or last_lsn > state.last_lsn:
        raise StoreError(
            f"the archive in {archive.directory} holds LSN {state.first_lsn} to {state.last_lsn}, and {first_lsn} to "
            f"{last_lsn} is asked for"
        )
    files = state.files_of(first_lsn, last_lsn)
    for file in files:
        if not archive.path(file).exists():
            raise StoreDamaged(f"{archive.path(file)} is missing: use a copy of this archive")
    paths = [f"file://{str(archive.path(file).resolve()).translate(_GLOB)}" for file in files]
    # With the schema given no file is opened to find it; recursive lookup keeps names of folders from becoming columns.
    read = spark.read.schema(from_arrow_schema(SCHEMA)).option("recursiveFileLookup", "true").parquet(*paths)
    if first_lsn > files[0].first_lsn:
        read = read.filter(f.col("lsn") >= first_lsn)
    if last_lsn < files[-1].last_lsn:
        read = read.filter(f.col("lsn") <= last_lsn)
    return read.select(*wanted)


def log_to(spark: SparkSession, archive: Archive, state: ArchiveState, lsn: Lsn) -> DataFrame:
    """All rows from the first to an LSN: what a state is computed from. Raises StoreError, StoreDamaged."""
    if not state.holds_every_state:
        raise StoreError(
            f"the archive in {archive.directory} begins with LSN {state.first_lsn}: no state can be computed from it, because what "
            "was written before is not in it; states need an archive from LSN 1"
        )
    return rows(spark, archive, state, 1, lsn)


def items_at(spark: SparkSession, archive: Archive, state: ArchiveState, lsn: Lsn, columns: Sequence[str]) -> DataFrame:
    """One row for each item that lives at an LSN, with columns of its last change, `place` and digests. See `rows` for errors."""
    return items_of(spark, log_to(spark, archive, state, lsn), columns)


def items_of(spark: SparkSession, log: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The same of any rows that begin with LSN 1 and have all columns."""
    log = log.filter(f.col("operation") > 0).unionByName(_main(spark))
    if IS_REPOSITORY in columns:
        log = log.withColumn(IS_REPOSITORY, (f.col("store") == GRAPH) & f.col("kind").isin(CREATE, DROP))
    if not {PLACE, *DIGEST} & set(columns):
        return _living(log, columns).select(*columns)
    others = _living(log.filter(f.col("store") != QUEUE), [name for name in columns if name != PLACE])
    messages = _messages(log.filter(f.col("store") == QUEUE), columns)
    return others.withColumn(PLACE, f.lit(0).cast("long")).select(*columns).unionByName(messages)


def counters_of(log: DataFrame) -> dict[str, Counts]:
    """Counters of each queue that rows from LSN 1 on are about."""
    of_queues = log.filter(f.col("store") == QUEUE).groupBy("name")
    counted = of_queues.agg(_number_of(PUBLISH), _number_of(ACCEPT)).collect()
    return {row["name"]: Counts(row[PUBLISH], row[ACCEPT]) for row in counted}


def fingerprint_at(spark: SparkSession, archive: Archive, state: ArchiveState, lsn: Lsn) -> bytes:
    """Fingerprint of the content at an LSN, from the rows; what it should be says the entry itself. See `rows` for errors."""
    log = log_to(spark, archive, state, lsn)
    total = items_of(spark, log, DIGEST).agg(*map(_xor, DIGEST)).collect()[0]
    return fingerprint_from(joined(total["digest_high"] or 0, total["digest_low"] or 0), counters_of(log))


def fingerprint_from(items: int, counters: dict[str, Counts]) -> bytes:
    """The fingerprint of XOR of the digests of all items and of the counters of queues."""
    for queue, counts in counters.items():
        items ^= counts_digest(queue, counts)
    return fingerprints.packed(items)


def joined(high: int, low: int) -> int:
    """128 bits from their halves, which are signed."""
    return (high % _HALF) << 64 | low % _HALF


def halves(number: bytes) -> tuple[int, int]:
    """The halves of 16 bytes, signed."""
    return int.from_bytes(number[:8], "big", signed=True), int.from_bytes(number[8:], "big", signed=True)


def _living(log: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The last row of each item, if it is none that takes the item away."""
    keys = [*ITEM, *(name for name in OF_ITEM if name in columns)]
    others = [name for name in dict.fromkeys([*columns, "tombstone"]) if name not in keys]
    order = f.col("lsn") * 2 + f.when(f.col("tombstone"), 0).otherwise(1)
    numbered = log.select(*keys, *others, order.alias(_ORDER))
    last = numbered.groupBy(*keys).agg(*(f.max_by(name, _ORDER).alias(name) for name in others))
    return last.filter(~f.col("tombstone"))


def _messages(log: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The messages that are there, with places and digests."""
    needed = ["name", "key", "lsn", "value", "content_type"]
    living = _living(log, [*needed, *(name for name in columns if name not in {PLACE, *DIGEST, *needed})])
    in_order = Window.partitionBy("name").orderBy("lsn", "operation")
    published = log.filter(f.col("kind") == PUBLISH).select(*ITEM, "name", "lsn", "operation")
    places = published.withColumn(PLACE, f.row_number().over(in_order).cast("long")).select(*ITEM, "lsn", PLACE)
    placed = living.join(places, [*ITEM, "lsn"])
    kept = [name for name in columns if name not in DIGEST]
    beside = [name for name in [*needed, PLACE] if name not in kept]
    wanted = placed.select(*kept, *beside)
    fields = {field.name: field for field in wanted.schema.fields}
    schema = from_arrow_schema(SCHEMA)
    given = type(schema)([fields[name] if name in fields else schema[name] for name in columns])
    arrow = to_arrow_schema(given)

    def with_digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _digested(batch, arrow)

    return wanted.mapInArrow(with_digests, given)


def _digested(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    named = ("name", "key", "content_type", "value", PLACE)
    high: list[int] = []
    low: list[int] = []
    for queue, key, content_type, body, place in zip(*(batch[name].to_pylist() for name in named), strict=True):
        digest = message_digest(queue, place, Message(bytes(key).decode(), content_type, bytes(body)))
        for kept, half in zip((high, low), halves(digest.to_bytes(DIGEST_BYTES, "big")), strict=True):
            kept.append(half)
    found = {"digest_high": pa.array(high, pa.int64()), "digest_low": pa.array(low, pa.int64())}
    return pa.RecordBatch.from_arrays(
        [found[field.name] if field.name in found else batch[field.name].cast(field.type) for field in schema],
        schema=schema,
    )


def _main(spark: SparkSession) -> DataFrame:
    """The row that the repository `main` would have, had an entry of LSN 0 made it."""
    high, low = halves(repository_digest(MAIN).to_bytes(DIGEST_BYTES, "big"))
    row: dict[str, Any] = {
        "lsn": 0, "operation": 1, "part": 0, "store": GRAPH, "name": MAIN, "kind": CREATE, "tombstone": False,
        "item_high": high, "item_low": low, "digest_high": high, "digest_low": low,
    }  # fmt: skip
    return spark.createDataFrame([tuple(row.get(name) for name in SCHEMA.names)], from_arrow_schema(SCHEMA))


def _number_of(kind: str) -> Column:
    return f.count(f.when(f.col("kind") == kind, 1)).alias(kind)


def _xor(name: str) -> Column:
    return f.bit_xor(name).alias(name)
