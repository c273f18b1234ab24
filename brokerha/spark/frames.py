"""Tables of Spark: the log of an archive or of a cluster, and the state at an LSN, which a few lines of SQL make from any log.

    log = spark.read.format("brokerha").option("archive", "s3://bucket/archive").load()      or .option("url", …), or Delta's own reader
    state(log, lsn=5000).where("store = 'table'").select("name", "key", "value")

    rows up to L ──group by item──> last row of each ──without tombstones──> items that live
    rows of queues ──count──> counters                  `publish` rows of a queue ──number──> places ──> digests of messages

Columns are those of pipeline/rows.py; a state also knows `place` (number of a message among all that were ever published to its queue, from 1;
0 for other items) and `is_repository`, and gives messages their digests, which their rows alone do not tell. The repository `main` exists
from the start: it has an item of LSN 0 until an entry changes it.

Which row of an item is the last is told by one number, twice the LSN and one more where something comes: within one entry an item changes
twice only when a message goes and comes back. What is fixed in size is so aggregated by hashing, without sorting all rows.

A state is a function of a log and no view of the data source: a source hands over rows, and only Spark can group them on all executors
(docs/decisions). Of an archive only files that hold a part of the range are read.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.window import Window

from brokerha.model import fingerprints
from brokerha.model.errors import InvalidRequest, StoreError
from brokerha.model.fingerprints import DIGEST_BYTES
from brokerha.model.ids import Lsn
from brokerha.model.reserved.staging import NUMBER_BYTES
from brokerha.model.reserved.staging import TABLE as STAGED_TABLE
from brokerha.pipeline.places import is_of_hadoop
from brokerha.pipeline.rows import ACCEPT, BATCH_ROWS, CLEAR, CREATE, DROP, PUBLISH, PUT, SCHEMA, STAGED
from brokerha.pipeline.rows import unfolded as rows_of_parts
from brokerha.pipeline.sources import SourceSpec
from brokerha.pipeline.table import LogState, LogTable
from brokerha.stores.comparing.fingerprint import counts_digest, message_digest, repository_digest
from brokerha.stores.comparing.items import GRAPH, QUEUE
from brokerha.stores.tables.queue_change import Counts, Message

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MAIN: Final = "main"
"""The repository that exists from the start."""
PLACE: Final = "place"
IS_REPOSITORY: Final = "is_repository"
ERA: Final = "era"
GONE: Final = "gone"
ITEM: Final = ("item_high", "item_low")
DIGEST: Final = ("digest_high", "digest_low")
OF_ITEM: Final = ("store", "name", "key", "subject", "predicate", "object", "graph", IS_REPOSITORY)
"""Columns that are the same in each row of an item."""
STATE: Final = (
    "store", "name", IS_REPOSITORY, "key", "subject", "predicate", "object", "graph", "value", "content_type", PLACE, "lsn", "timestamp",
)  # fmt: skip
"""What `state` gives when no columns are named."""
_ORDER: Final = "order"
_CLEARS: Final = "clears"
_HALF: Final = 1 << 64


def archived(
    spark: SparkSession,
    table: LogTable,
    held: LogState,
    first_lsn: Lsn,
    last_lsn: Lsn,
    columns: Sequence[str] = SCHEMA.names,
) -> DataFrame:
    """Rows of a range of an archive, both ends included, with all columns or some, in no order.

    Spark's own Parquet reader reads what is in folders or in HDFS; all else comes through the data source, which needs none of Hadoop's jars.
    Raises StoreError when the archive does not hold the range.
    """
    head = held.head
    if last_lsn < first_lsn:
        return spark.createDataFrame([], from_arrow_schema(SCHEMA)).select(*columns)
    if first_lsn < head.first_lsn or last_lsn > head.last_lsn:
        raise StoreError(
            f"the archive in {table.where} holds LSN {head.first_lsn} to {head.last_lsn}, and {first_lsn} to {last_lsn} is asked for"
        )
    if not is_of_hadoop(table.where):
        return logged(spark, SourceSpec(archive=table.where), first_lsn, last_lsn, columns)
    files = held.files_of(first_lsn, last_lsn)
    # With the schema given no file is opened to find it.
    read = spark.read.schema(from_arrow_schema(SCHEMA)).option("recursiveFileLookup", "true").parquet(*table.spark_paths(files))
    if first_lsn > files[0].first_lsn:
        read = read.filter(f.col("lsn") >= first_lsn)
    if last_lsn < max(file.last_lsn for file in files):
        read = read.filter(f.col("lsn") <= last_lsn)
    return read.select(*columns)


def logged(
    spark: SparkSession, spec: SourceSpec, first_lsn: Lsn, last_lsn: Lsn, columns: Sequence[str] = SCHEMA.names
) -> DataFrame:
    """Rows of a range of any log, through the data source."""
    options: dict[str, Any] = {
        **spec.options(),
        "startingLsn": first_lsn,
        "endingLsn": last_lsn,
        "columns": ",".join(columns),
    }
    return spark.read.format("brokerha").options(**options).load()


def check_whole(table: LogTable, held: LogState) -> None:
    """Raise StoreError for an archive from which no state can be computed."""
    if not held.holds_every_state:
        raise StoreError(
            f"the archive in {table.where} begins with LSN {held.head.first_lsn}: no state can be computed from it, because what was "
            "written before is not in it; that needs an archive that begins with LSN 1"
        )


def state(
    log: DataFrame,
    *,
    lsn: Lsn | None = None,
    time: datetime | None = None,
    columns: Sequence[str] = STATE,
    is_unfolded: bool = False,
) -> DataFrame:
    """One row for each item that lives at an LSN, or at a time, with columns of its last change; at the end of the log without either.

    ``log`` are rows from LSN 1 on, with all columns; ``is_unfolded`` says that `unfolded` gave them, up to where the state is wanted. Raises
    InvalidRequest for both at once, or one of a log that is unfolded, a time without a zone, or rows that begin later.
    """
    if lsn is not None and time is not None:
        raise InvalidRequest("lsn and time are two ways to say which state: give one of them")
    if is_unfolded and (lsn is not None or time is not None):
        raise InvalidRequest(
            "the log was unfolded up to its end, without quads that went later: choose its rows by LSN or time first, then call unfolded"
        )
    if not is_unfolded:
        _check_beginning(log)
    if time is not None:
        if time.tzinfo is None:
            raise InvalidRequest(f"{time} has no time zone: write one, as datetime(…, tzinfo=UTC)")
        time_us = calendar.timegm(time.utctimetuple()) * 1_000_000 + time.microsecond
        log = log.filter(f.unix_micros("timestamp") <= time_us)
    if lsn is not None:
        log = log.filter(f.col("lsn") <= lsn)
    log = log if is_unfolded else unfolded(log)
    log = log.filter(f.col("operation") > 0).unionByName(_main(log.sparkSession))
    if IS_REPOSITORY in columns:
        log = log.withColumn(IS_REPOSITORY, (f.col("store") == GRAPH) & f.col("kind").isin(CREATE, DROP))
    if not {PLACE, *DIGEST} & set(columns):
        return _living(log, columns).select(*columns)
    others = _living(log.filter(f.col("store") != QUEUE), [name for name in columns if name != PLACE])
    messages = _messages(log.filter(f.col("store") == QUEUE), columns)
    return others.withColumn(PLACE, f.lit(0).cast("long")).select(*columns).unionByName(messages)


def counters(log: DataFrame, *, is_unfolded: bool = False) -> dict[str, Counts]:
    """Counters of each queue that rows from LSN 1 on are about."""
    if not is_unfolded:
        _check_beginning(log)
        log = unfolded(log)
    of_queues = log.filter(f.col("store") == QUEUE).groupBy("name")
    counted = of_queues.agg(_number_of(PUBLISH), _number_of(ACCEPT)).collect()
    return {row["name"]: Counts(row[PUBLISH], row[ACCEPT]) for row in counted}


def fingerprint(log: DataFrame, *, is_unfolded: bool = False) -> bytes:
    """Fingerprint of the content that rows from LSN 1 on lead to; what it should be says the last entry itself."""
    if not is_unfolded:
        _check_beginning(log)
        log = unfolded(log)
    total = state(log, columns=DIGEST, is_unfolded=True).agg(*map(xor, DIGEST)).collect()[0]
    return fingerprint_from(joined(total["digest_high"] or 0, total["digest_low"] or 0), counters(log, is_unfolded=True))


def _check_beginning(log: DataFrame) -> None:
    """Raises InvalidRequest for rows that begin later than LSN 1, which would give a part of the state for all of it."""
    if log.filter(f.col("lsn") == 1).isEmpty() and not log.isEmpty():
        raise InvalidRequest(
            "the rows do not begin with LSN 1, and a state lacks what was written before: read the log with startingLsn 1, which is refused where it "
            "was trimmed, or an archive that begins with LSN 1; of rows that you choose yourself make a state by state(unfolded(log).where(…), "
            "is_unfolded=True)"
        )


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


def unfolded(log: DataFrame) -> DataFrame:
    """The same rows, with what large transactions change in place of their rows of kind `staged`, each item once. Rows of quads that a later row of
    kind `clear` takes away are left out, so that the last row of each item is its state at the end of ``log``.

    ``log`` are rows from LSN 1 on, with all columns. Looks at once whether there are such rows, and gives the same frame back where there are
    none: each reader of a log would else read it twice more for nothing.
    """
    found = _folded_kinds(log)
    log = _with_parts(log) if STAGED in found else log
    if CLEAR not in found:
        return log
    is_gone = f.col("subject").isNotNull() & (f.col("lsn") < f.coalesce(f.array_max(_CLEARS), f.lit(0)))
    return _beside_clears(log).filter(~is_gone).drop(_CLEARS)


def history(log: DataFrame) -> tuple[DataFrame, bool]:
    """All rows, with what large transactions change in place of their rows, and whether there is any such.

    The column `era` is the LSN at which the row's repository was last emptied in one step, the row itself included: what an item was in an
    earlier era says nothing of a later one. The column `gone` is the number of quads that went by such a row, else 0.
    """
    found = _folded_kinds(log)
    log = _with_parts(log) if STAGED in found else log
    if CLEAR not in found:
        return log.withColumns({ERA: f.lit(0).cast("long"), GONE: f.lit(0).cast("long")}), STAGED in found
    before = f.array_max(f.filter(_CLEARS, lambda lsn: lsn <= f.col("lsn")))
    gone = f.when(f.col("kind") == CLEAR, f.decode("value", "UTF-8").cast("long")).otherwise(0)
    return _beside_clears(log).withColumns({ERA: f.coalesce(before, f.lit(0)), GONE: gone}).drop(_CLEARS), STAGED in found


def _folded_kinds(log: DataFrame) -> set[str]:
    """Which there are of the kinds that say more in one row than about one item, and what large transactions come to."""
    of_log = log.select("kind", "content_type").filter(f.col("kind").isin(STAGED, CLEAR)).distinct().collect()
    return {each for row in of_log for each in row if each is not None}


def _beside_clears(log: DataFrame) -> DataFrame:
    """Rows with a column of the LSNs at which their repository was emptied in one step; null for all other stores."""
    of_log = log.filter(f.col("kind") == CLEAR).groupBy("name").agg(f.collect_list("lsn").alias(_CLEARS))
    clears = of_log.withColumnRenamed("name", "cleared")
    return log.join(f.broadcast(clears), (f.col("store") == GRAPH) & (f.col("name") == f.col("cleared")), "left").drop("cleared")


def _with_parts(log: DataFrame) -> DataFrame:
    """Rows with what large transactions change in place of their rows."""
    commits = log.filter(f.col("kind") == STAGED)
    transaction = f.decode(f.expr(f"substring(key, 1, length(key) - {NUMBER_BYTES + 1})"), "UTF-8")
    parts = log.filter((f.col("name") == STAGED_TABLE) & (f.col("kind") == PUT)).select(
        transaction.alias("part_of"), *(f.col(name).alias(f"part_{name}") for name in ("lsn", "key", "value"))
    )
    columns = log.columns
    joined = parts.join(f.broadcast(commits), f.col("part_of") == f.col("name"))

    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # Each row is a part, which makes many.
            for place in range(batch.num_rows):
                one = batch.slice(place, 1)
                of_part = {name: one[f"part_{name}"] for name in ("lsn", "key", "value")}
                found = rows_of_parts(one.select(columns), pa.RecordBatch.from_pydict(of_part), columns)
                yield from found.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)

    rows = joined.mapInArrow(made, log.schema)
    order = f.col("operation").cast("long") * (1 << 32) + f.col("part")
    last = rows.groupBy("lsn", *ITEM).agg(f.max_by(f.struct(*columns), order).alias("last")).select("last.*")
    return log.filter(~f.col("kind").eqNullSafe(STAGED)).unionByName(last)


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
    if not set(DIGEST) & set(columns):
        return placed.select(*columns)
    kept = [name for name in columns if name not in DIGEST]
    beside = [name for name in [*needed, PLACE] if name not in kept]
    wanted = placed.select(*kept, *beside)
    fields = {field.name: field for field in wanted.schema.fields}
    schema = from_arrow_schema(SCHEMA)
    given = type(schema)([fields[name] if name in fields else schema[name] for name in columns])
    arrow = to_arrow_schema(given, timezone="UTC")

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
    # Made by the JVM: rows that Python hands over come through tasks of their own.
    fields = from_arrow_schema(SCHEMA).fields
    return spark.range(0, 1, 1, 1).select(*(f.lit(row.get(each.name)).cast(each.dataType).alias(each.name) for each in fields))


def _number_of(kind: str) -> Column:
    return f.count(f.when(f.col("kind") == kind, 1)).alias(kind)


def xor(name: str) -> Column:
    """XOR of a column, under its name."""
    return f.bit_xor(name).alias(name)
