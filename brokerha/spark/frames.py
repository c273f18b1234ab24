"""DataFrames of the log of an archive or a cluster, and of the state at an LSN, which a few lines of SQL compute from any log.

    log = spark.read.format("brokerha").option("archive", "s3://bucket/archive").load()      or .option("url", …), or Delta's own reader
    state(log, lsn=5000).where("store = 'table'").select("name", "key", "value")

    rows up to L ──group by item──> last row of each ──without tombstones──> living items
    rows of queues ──count──> counters                  `publish` rows of a queue ──number──> places ──> digests of messages

Columns are those of pipeline/rows.py. A state also has `place` (number of a message among all that were ever published to its
queue, from 1; 0 for other items) and `is_repository`, and digests of messages, which their rows alone do not determine. The
repository `main` exists from the start: it has an item of LSN 0 until an entry changes it.

One number orders the rows of an item: twice the LSN, plus one when the row creates. Within one entry an item changes twice only
when a message goes and comes back. So values of fixed size are aggregated by hashing, without sorting all rows.

A state is a function of a log, and no view of the data source: a source returns rows, and only Spark can group them on all
executors (docs/decisions). Only the files of an archive that overlap the range are read.
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
"""Default columns of `state`."""
_ORDER: Final = "order"
_CLEARS: Final = "clears"
_HALF: Final = 1 << 64


def archived(
    spark: SparkSession, table: LogTable, held: LogState, first_lsn: Lsn, last_lsn: Lsn, columns: Sequence[str] = SCHEMA.names
) -> DataFrame:
    """Return the rows of a range of an archive, both ends included, with all columns or some, in no order.

    Spark's own Parquet reader reads folders and HDFS; other places are read through the data source, which needs no jars of Hadoop.
    Raises StoreError when the archive does not hold the range, StoreDamaged when one of its files is missing or empty.
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
    table.check_there(files)
    # With a given schema Spark does not open a file to find it.
    read = spark.read.schema(from_arrow_schema(SCHEMA)).option("recursiveFileLookup", "true").parquet(*table.spark_paths(files))
    if first_lsn > files[0].first_lsn:
        read = read.filter(f.col("lsn") >= first_lsn)
    if last_lsn < max(file.last_lsn for file in files):
        read = read.filter(f.col("lsn") <= last_lsn)
    return read.select(*columns)


def logged(
    spark: SparkSession, spec: SourceSpec, first_lsn: Lsn, last_lsn: Lsn, columns: Sequence[str] = SCHEMA.names
) -> DataFrame:
    """Return the rows of a range of any log, through the data source."""
    options: dict[str, Any] = {**spec.options(), "startingLsn": first_lsn, "endingLsn": last_lsn, "columns": ",".join(columns)}
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
    """Return one row for each item that lives at an LSN or a time (default: the end), with the columns of its last change.

    ``log`` has rows from LSN 1 on, with all columns; ``is_unfolded``: it comes from `unfolded`, up to the wanted state. Raises
    InvalidRequest for LSN and time together, one of them with an unfolded log, a time without a zone, or rows that begin later.
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
    """Return the counters of each queue in rows from LSN 1 on."""
    if not is_unfolded:
        _check_beginning(log)
        log = unfolded(log)
    of_queues = log.filter(f.col("store") == QUEUE).groupBy("name")
    counted = of_queues.agg(_number_of(PUBLISH), _number_of(ACCEPT)).collect()
    return {row["name"]: Counts(row[PUBLISH], row[ACCEPT]) for row in counted}


def fingerprint(log: DataFrame, *, is_unfolded: bool = False) -> bytes:
    """Return the fingerprint of the content that rows from LSN 1 on lead to; the last entry holds the expected one."""
    if not is_unfolded:
        _check_beginning(log)
        log = unfolded(log)
    total = state(log, columns=DIGEST, is_unfolded=True).agg(*map(xor, DIGEST)).collect()[0]
    return fingerprint_from(joined(total["digest_high"] or 0, total["digest_low"] or 0), counters(log, is_unfolded=True))


def _check_beginning(log: DataFrame) -> None:
    """Raise InvalidRequest for rows that begin after LSN 1, because the state would be incomplete."""
    if log.filter(f.col("lsn") == 1).isEmpty() and not log.isEmpty():
        raise InvalidRequest(
            "the rows do not begin with LSN 1, and a state lacks what was written before: read the log with startingLsn 1, which is refused where it "
            "was trimmed, or an archive that begins with LSN 1; of rows that you choose yourself make a state by state(unfolded(log).where(…), "
            "is_unfolded=True)"
        )


def fingerprint_from(items: int, counters: dict[str, Counts]) -> bytes:
    """Return the fingerprint from the XOR of all item digests and from the counters of queues."""
    for queue, counts in counters.items():
        items ^= counts_digest(queue, counts)
    return fingerprints.packed(items)


def joined(high: int, low: int) -> int:
    """Join 128 bits from signed halves."""
    return (high % _HALF) << 64 | low % _HALF


def halves(number: bytes) -> tuple[int, int]:
    """Split 16 bytes into signed halves."""
    return int.from_bytes(number[:8], "big", signed=True), int.from_bytes(number[8:], "big", signed=True)


def unfolded(log: DataFrame) -> DataFrame:
    """Return rows in which the changes of large transactions replace their rows of kind `staged`, each item once.

    Rows of quads that a later row `clear` removes are left out, so the last row of each item is its state at the end of ``log``.
    ``log`` has rows from LSN 1 on, with all columns. A query first looks for such rows; without any, it returns the same frame,
    because each reader of the log would otherwise read it twice more.
    """
    found = _folded_kinds(log)
    log = _with_parts(log) if STAGED in found else log
    if CLEAR not in found:
        return log
    is_gone = f.col("subject").isNotNull() & (f.col("lsn") < f.coalesce(f.array_max(_CLEARS), f.lit(0)))
    return _beside_clears(log).filter(~is_gone).drop(_CLEARS)


def history(log: DataFrame) -> tuple[DataFrame, bool]:
    """Return all rows, with the changes of large transactions in place of their rows, and whether there are any.

    The column `era` is the LSN at which the row's repository was last emptied in one step, up to this row: an item of an earlier
    era is unrelated to a later one. The column `gone` is the number of quads that this row removed in one step, else 0.
    """
    found = _folded_kinds(log)
    log = _with_parts(log) if STAGED in found else log
    if CLEAR not in found:
        return log.withColumns({ERA: f.lit(0).cast("long"), GONE: f.lit(0).cast("long")}), STAGED in found
    before = f.array_max(f.filter(_CLEARS, lambda lsn: lsn <= f.col("lsn")))
    gone = f.when(f.col("kind") == CLEAR, f.decode("value", "UTF-8").cast("long")).otherwise(0)
    return _beside_clears(log).withColumns({ERA: f.coalesce(before, f.lit(0)), GONE: gone}).drop(_CLEARS), STAGED in found


def _folded_kinds(log: DataFrame) -> set[str]:
    """Return which special kinds occur: rows that change more than one item, and those inside large transactions."""
    of_log = log.select("kind", "content_type").filter(f.col("kind").isin(STAGED, CLEAR)).distinct().collect()
    return {each for row in of_log for each in row if each is not None}


def _beside_clears(log: DataFrame) -> DataFrame:
    """Add a column with the LSNs at which a row's repository was emptied in one step; null for all other stores."""
    of_log = log.filter(f.col("kind") == CLEAR).groupBy("name").agg(f.collect_list("lsn").alias(_CLEARS))
    clears = of_log.withColumnRenamed("name", "cleared")
    return log.join(f.broadcast(clears), (f.col("store") == GRAPH) & (f.col("name") == f.col("cleared")), "left").drop("cleared")


def _with_parts(log: DataFrame) -> DataFrame:
    """Replace the rows of large transactions by the rows of their changes."""
    commits = log.filter(f.col("kind") == STAGED)
    transaction = f.decode(f.expr(f"substring(key, 1, length(key) - {NUMBER_BYTES + 1})"), "UTF-8")
    parts = log.filter((f.col("name") == STAGED_TABLE) & (f.col("kind") == PUT)).select(
        transaction.alias("part_of"), *(f.col(name).alias(f"part_{name}") for name in ("lsn", "key", "value"))
    )
    columns = log.columns
    joined = parts.join(f.broadcast(commits), f.col("part_of") == f.col("name"))

    def made(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # Each row is a part, which gives many rows.
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
    """Return the last row of each item, unless it removes the item."""
    keys = [*ITEM, *(name for name in OF_ITEM if name in columns)]
    others = [name for name in dict.fromkeys([*columns, "tombstone"]) if name not in keys]
    order = f.col("lsn") * 2 + f.when(f.col("tombstone"), 0).otherwise(1)
    numbered = log.select(*keys, *others, order.alias(_ORDER))
    last = numbered.groupBy(*keys).agg(*(f.max_by(name, _ORDER).alias(name) for name in others))
    return last.filter(~f.col("tombstone"))


def _messages(log: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the existing messages, with places and digests."""
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
        [found[field.name] if field.name in found else batch[field.name].cast(field.type) for field in schema], schema=schema
    )


def _main(spark: SparkSession) -> DataFrame:
    """Return the row that an entry of LSN 0 would have, had it created the repository `main`."""
    high, low = halves(repository_digest(MAIN).to_bytes(DIGEST_BYTES, "big"))
    row: dict[str, Any] = {
        "lsn": 0, "operation": 1, "part": 0, "store": GRAPH, "name": MAIN, "kind": CREATE, "tombstone": False,
        "item_high": high, "item_low": low, "digest_high": high, "digest_low": low,
    }  # fmt: skip
    # Made by the JVM, because rows from Python need tasks of their own.
    fields = from_arrow_schema(SCHEMA).fields
    return spark.range(0, 1, 1, 1).select(*(f.lit(row.get(each.name)).cast(each.dataType).alias(each.name) for each in fields))


def _number_of(kind: str) -> Column:
    return f.count(f.when(f.col("kind") == kind, 1)).alias(kind)


def xor(name: str) -> Column:
    """Return the XOR of a column, under its name."""
    return f.bit_xor(name).alias(name)
