"""The load on Spark: files are read by Spark's own sources, rows become the columns of the sink, the sink publishes them.

Spark splits files, decompresses them, reads CSV, JSON and Parquet, and finds corrupt rows. Each row carries its file and the first
byte of its block. Transaction ids derive from these, whichever task reads a block.
"""

from __future__ import annotations

import csv
import json
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brokerha.model.errors import BrokerhaError, InvalidRequest, NotReady
from brokerha.pipeline.loading import (
    CSV,
    JSON,
    PARQUET,
    RDF,
    TEXT,
    LoadFile,
    LoadOptions,
    LoadReport,
    Tell,
    check_together,
    id_of,
    syntax_of,
)
from brokerha.pipeline.loading_columns import CORRUPT, HEAD, OF_KEYS, OF_STATEMENTS, PART, SOURCE, mapped, parsed
from brokerha.pipeline.loading_mapping import ALL_COLUMNS, Mapping, load_mapping
from brokerha.pipeline.publishing import Reject, Result
from brokerha.spark.session import error_of_task, words_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

WHOLE_BYTES = 2**62
"""A block size above that of any file."""
_GLOB = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]{}"})
_CLASS = re.compile(r"^(\[[A-Z_.]+\] |([a-z0-9]+\.)+\w+: )| SQLSTATE: \w+$")
_NO_FILES = ("No FileSystem for scheme", "ClassNotFoundException: Class org.apache.hadoop")


def load(spark: SparkSession, options: LoadOptions, tell: Tell) -> LoadReport:
    """Load; call ``tell`` after each set of files. Raises InvalidRequest, ConfigurationError, Unreachable, errors of tasks."""
    started_s = time.monotonic()
    mapping = load_mapping(Path(options.mapping)) if options.mapping else None
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(WHOLE_BYTES if options.is_ordered else options.split_bytes))
    # Else blocks would depend on the number of cores.
    spark.conf.set("spark.sql.files.minPartitionNum", "1")
    # Else a file cannot have the columns id and ID.
    spark.conf.set("spark.sql.caseSensitive", "true")
    with _told():
        files = _files(spark, options)
        check_together(options, files)
        id_ = options.id or id_of(options, files, mapping)
        frames = list(_frames(spark, files, mapping, is_ordered=options.is_ordered))
    done, done_bytes, size_bytes = Result(), 0, sum(file.size_bytes for file in files)
    rejects = options.rejects or ("" if options.is_dry_run else f"{id_}.rejects")
    for number, (frame, bytes_) in enumerate(frames, 1):
        tell(done_bytes, size_bytes)
        left = replace(options, id=id_, rejects=rejects, max_rejects=max(0, options.max_rejects - done.rejects))
        done.add(_written(spark, frame, left, mapping, number))
        if done.is_stopped:
            break
        done_bytes += bytes_
    tell(done_bytes, size_bytes)
    return LoadReport(
        id=id_,
        files=len(files),
        size_bytes=size_bytes,
        unit="key" if mapping is not None and mapping.keys is not None else "statement",
        result=done,
        max_rejects=options.max_rejects,
        rejects=rejects if done.rejects else "",
        is_dry_run=options.is_dry_run,
        seconds=time.monotonic() - started_s,
    )


# ---- files


def _files(spark: SparkSession, options: LoadOptions) -> list[LoadFile]:
    """Return the files of each name, in the order of the names. Raises InvalidRequest for a name without files."""
    found: dict[str, LoadFile] = {}
    for name in options.files:
        # The name of an existing file is no pattern.
        path = f"file://{str(Path(name).absolute()).translate(_GLOB)}" if "://" not in name and Path(name).exists() else name
        frame = spark.read.format("binaryFile").load(path).selectExpr("path", "length", "unix_micros(modificationTime)")
        listed = frame.collect()
        # Empty files have no row.
        if not listed and not frame.inputFiles():
            raise InvalidRequest(
                f"{name}: no file that Spark reads (names that begin with _ or . are hidden from it, and so are folders below a folder)"
            )
        for row in sorted(listed):
            found[row[0]] = LoadFile(row[0], syntax_of(row[0], options.syntax), row[1], row[2])
    return list(found.values())


def _frames(
    spark: SparkSession, files: list[LoadFile], mapping: Mapping | None, *, is_ordered: bool
) -> Iterator[tuple[DataFrame, int]]:
    """Yield the input of the sink: one DataFrame for files that are read together, and their size in bytes."""

    def kind(file: LoadFile) -> tuple[str, ...]:
        has_head = file.read_as == CSV and mapping is not None and not mapping.csv.columns
        syntax = file.syntax if file.read_as == RDF else ""
        return (file.read_as, syntax, _first_line(spark, file) if has_head else "", file.path if is_ordered else "")

    kinds = [(kind(file), file) for file in files]
    for (read_as, syntax, head, _), group in groupby(kinds if is_ordered else sorted(kinds), key=lambda each: each[0]):
        together = [file for _, file in group]
        paths = [file.path for file in together]
        names = [path.translate(_GLOB) for path in paths]
        if read_as == RDF:
            frame = _parsed(spark, paths, syntax)
        elif read_as == TEXT or mapping is None:
            frame = _placed(spark.read.text(names)).withColumnRenamed("value", "statement")
        else:
            rows = _csv(spark, names, mapping, head) if read_as == CSV else _placed(_rows(spark, read_as, names), SOURCE, PART)
            known = [name for name in rows.columns if name not in {SOURCE, PART, CORRUPT, HEAD}]
            if read_as == JSON and not known:
                raise InvalidRequest(f"{paths[0]}: none of its lines is a JSON object, and each has to be one")
            for needed in mapping.columns:
                if needed not in (*known, ALL_COLUMNS):
                    raise InvalidRequest(f"{paths[0]} has no column {needed!r}; it has {', '.join(known) or 'none'}")
            # PySpark parses dots and backticks in names, so the columns get plain names.
            frame = rows.toDF(*(f"column{place}" for place in range(len(rows.columns)))).mapInArrow(
                partial(mapped, mapping=mapping, names=rows.columns), OF_KEYS if mapping.keys is not None else OF_STATEMENTS
            )
        yield frame, sum(file.size_bytes for file in together)


def _placed(frame: DataFrame, source: str = "source", part: str = "part") -> DataFrame:
    """Add the columns from which ids and labels of blank nodes derive."""
    from pyspark.sql import functions as sql

    path, start = sql.col("_metadata.file_path"), sql.col("_metadata.file_block_start")
    place = sql.concat(sql.lower(sql.hex(sql.xxhash64(path))), sql.lit("."), start.cast("string"))
    return frame.select("*", path.alias(source), place.alias(part))


def _rows(spark: SparkSession, read_as: str, names: list[str]) -> DataFrame:
    from pyspark.sql import functions as sql

    if read_as == PARQUET:
        return spark.read.option("mergeSchema", value=True).parquet(*names)
    found = spark.read.option("columnNameOfCorruptRecord", CORRUPT).json(names)
    return found.withColumn(CORRUPT, sql.make_valid_utf8(CORRUPT)) if CORRUPT in found.columns else found


def _first_line(spark: SparkSession, file: LoadFile) -> str:
    from pyspark.sql import functions as sql

    row = spark.read.text(file.path.translate(_GLOB)).select(sql.make_valid_utf8("value")).head()
    return str(row[0]) if row is not None else ""


def _csv(spark: SparkSession, names: list[str], mapping: Mapping, head: str) -> DataFrame:
    """Read rows of CSV. Spark's parser accepts a quotation that its line does not end, so such lines are found first."""
    from pyspark.sql import functions as sql

    form = mapping.csv
    columns = form.columns or tuple(next(csv.reader([head], delimiter=form.delimiter), []))
    if len(set(columns)) < len(columns) or not columns:
        raise InvalidRequest(f"{names[0]}: its first line names no columns, or one of them twice: {head[:200]!r}")
    quoted = [f"`{name.replace('`', '``')}`" for name in columns]
    schema = ", ".join(f"{name} string" for name in (*quoted, CORRUPT))
    options = {"sep": form.delimiter, "quote": '"', "escape": '"', "columnNameOfCorruptRecord": CORRUPT}
    if form.has_line_breaks:
        options |= {"header": "false" if form.columns else "true", "multiLine": "true", "unescapedQuoteHandling": "RAISE_ERROR"}
        return _placed(spark.read.options(**options).schema(schema).csv(names), SOURCE, PART)
    line = sql.col("value")
    lines = _placed(spark.read.text(names)).where(sql.trim(line) != "")
    is_head = sql.endswith("part", sql.lit(".0")) & (sql.make_valid_utf8(line) == head) if head else sql.lit(False)
    is_broken = (sql.length(sql.regexp_replace(line, '[^"]', "")) % 2 == 1) | ~sql.is_valid_utf8(line)
    corrupt = sql.when(is_broken, sql.make_valid_utf8(line)).otherwise(sql.col(f"row.{CORRUPT}"))
    rows = lines.select("source", "part", is_head.alias(HEAD), "value", sql.from_csv(line, schema, options).alias("row"))
    place = (sql.col("source").alias(SOURCE), sql.col("part").alias(PART), HEAD)
    return rows.select(*place, *(sql.col(f"row.{name}") for name in quoted), corrupt.alias(CORRUPT))


def _parsed(spark: SparkSession, paths: list[str], syntax: str) -> DataFrame:
    """Read files that only a parser can read: one task for each."""
    from pyspark.sql import functions as sql

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from parsed(paths[number], syntax, paths[number])

    found = spark.range(0, len(paths), 1, len(paths)).mapInArrow(read, OF_STATEMENTS)
    return found.withColumn("part", sql.concat(sql.lower(sql.hex(sql.xxhash64("source"))), sql.lit(".0")))


# ---- the sink


def _written(spark: SparkSession, frame: DataFrame, options: LoadOptions, mapping: Mapping | None, number: int) -> Result:
    """Write one DataFrame. Raises errors of the sink; rejects are in the result."""
    place = (
        {"table": mapping.keys.table} if mapping is not None and mapping.keys is not None else {"repository": options.repository}
    )
    with tempfile.TemporaryDirectory(prefix="brokerha-load-") as folder:
        path = f"{folder}/{number}.json"
        told: dict[str, Any] = {
            **place, "url": options.url, "id": options.id, "graph": options.graph, "ack": options.ack, "timeout": options.timeout_s,
            "patience": options.patience_s, "window": 1 if options.is_ordered else options.window, "rejects": options.rejects,
            "maxRejects": options.max_rejects, "report": path, "dryRun": options.is_dry_run,
        }  # fmt: skip
        problem: BrokerhaError | None = None
        try:
            with _told():
                frame.write.format("brokerha").options(**told).mode("append").save()
        except BrokerhaError as error:
            problem = error
        report = _report(spark, path)
    if report is None or (problem is not None and (report.error or report.rejects <= options.max_rejects)):
        raise problem or NotReady("Spark does not tell what was written; the same command again does nothing twice")
    return report


def _report(spark: SparkSession, path: str) -> Result | None:
    """Read the report of the sink, which the driver wrote, maybe on another machine."""
    with suppress(Exception):
        told = json.loads(spark.read.text(path, wholetext=True).first()[0])  # type: ignore[index]
        told.pop("id")
        return Result(**{**told, "first_rejects": tuple(Reject(*each) for each in told["first_rejects"])})
    return None


@contextmanager
def _told() -> Iterator[None]:
    """Turn an error of Spark into one line, or into brokerha's error if a task raised one."""
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        text = str(error)
        if (ours := error_of_task(text)) is not None:
            raise ours from None
        words = words_of(error)
        condition, path = _condition_of(error)
        is_refused = isinstance(error, AnalysisException) and condition != "PYTHON_DATA_SOURCE_ERROR"
        if is_refused or condition.startswith("CANNOT_MERGE") or any(each in text for each in _NO_FILES):
            raise InvalidRequest(f"Spark cannot read it: {_CLASS.sub('', words)}") from None
        if condition.partition(".")[0] == "FAILED_READ_FILE":
            raise InvalidRequest(f"{path} is damaged, or not what its suffix says: {words}") from None
        raise NotReady(f"Spark gave up ({words}); the same command again goes on, and does nothing twice") from None


def _condition_of(error: Exception) -> tuple[str, str]:
    """Return Spark's name of an error, or of its first cause with a name, and the path that it concerns; empty without."""
    from py4j.protocol import Py4JError

    cause: Any = getattr(error, "java_exception", error)
    while cause is not None:
        with suppress(AttributeError, Py4JError):
            if condition := cause.getCondition():
                return condition, cause.getMessageParameters().get("path", "")
        cause = cause.getCause() if cause is not error else None
    return "", ""
