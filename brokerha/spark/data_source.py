"""The data source ``brokerha``: the log as a table and as a stream of batches, for any program on Spark.

    spark.read.format("brokerha").option("url", "http://127.0.0.1:7201").load()
    spark.readStream.format("brokerha").option("url", …).option("maxEntriesPerTrigger", 50_000).load()

Rows that are written to it become transactions (below). Columns for reading are in `pipeline/rows.py`, options in
`pipeline/sources.SourceSpec` (which log) and `pipeline/ranges.ReadOptions` (which part). This module has only what Spark calls. It
runs in Spark's Python workers, in separate processes, which exchange a `SourceSpec` and two LSNs.

**Offset** of a stream: ``{"cluster": name, "lsn": n}``: all entries up to n are read. The name prevents a checkpoint from
continuing with another cluster's log.

**Filters** are left to Spark; options reduce the input. Filters in a source give wrong results in PySpark 4.3: all scans of one
DataFrame share the filters of the last one, so that a union or a join of two filtered views reads one of them twice.
"""

from __future__ import annotations

import io
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

import brokerha
from brokerha.model.errors import BrokerhaError, ConfigurationError, InvalidRequest, UnknownRepository, WentBack
from brokerha.model.ids import Lsn
from brokerha.model.log_lineages import newest, problem
from brokerha.model.operation_checks import GRAPH
from brokerha.pipeline.places import keep
from brokerha.pipeline.publishing import Result, SinkOptions
from brokerha.pipeline.publishing_rows import check_columns
from brokerha.pipeline.publishing_task import Task, publish
from brokerha.pipeline.ranges import OF_PIECES, VIEW_PIECES, ReadOptions, batches, lost, pieces, planned, reach
from brokerha.pipeline.rows import SCHEMA
from brokerha.pipeline.sources import OpenSource, SourceSpec, cluster_of, open_source
from brokerha.stores.backup.lines import LinesMissing

_BATCH, _QUERY = "streaming.sql.batchId", "sql.streaming.queryId"
NAME: Final = "brokerha"
PIN_EVERY_S: Final = 5.0
"""Least time between two moves of a pin: each is a record in the journal of a master."""
_TYPES: Final = {
    "int64": "BIGINT",
    "int32": "INT",
    "string": "STRING",
    "timestamp[us, tz=UTC]": "TIMESTAMP",
    "binary": "BINARY",
    "bool": "BOOLEAN",
}


@dataclass
class Told(WriterCommitMessage):
    """A task's message to the driver."""

    result: Result
    id: str


class _Writing:
    """Common part of both writers. Raises ConfigurationError, Unreachable, UnknownRepository before any row is read."""

    def __init__(self, options: dict[str, str], schema: StructType, *, is_overwriting: bool) -> None:
        self.options = SinkOptions.from_options(options)
        if is_overwriting:
            raise ConfigurationError("overwrite is nothing that a cluster does: write with append, and delete with kind delete")
        check_columns({field.name: field.dataType.typeName() for field in schema.fields}, self.options)
        self.new_id = f"write-{secrets.token_hex(8)}"
        """Id of a batch without the option `id`."""
        self.begin_lsn = 0 if self.options.is_dry_run else _lsn_of(self.options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Told:
        """Write one partition, in a task."""
        context: Any = TaskContext.get()
        batch = context.getLocalProperty(_BATCH)
        # A write inside foreachBatch belongs to a batch of a stream, too.
        id_ = self.options.id or context.getLocalProperty(_QUERY) or self.new_id
        if batch is not None:
            id_ = f"{id_}.{batch}"
        task = Task(id_, str(context.partitionId()), self.begin_lsn)
        return Told(publish(iterator, self.options, task, brokerha.connect), id_)

    def _committed(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raise the error of a task; see `Result.check`."""
        result, id_ = self._reported(messages)
        result.check(self.options, id_)

    def _aborted(self, messages: list[WriterCommitMessage | None]) -> None:
        """Report after Spark gave up a dead task; writes of the other tasks stay, and are in the report."""
        self._reported(messages)

    def _reported(self, messages: list[WriterCommitMessage | None]) -> tuple[Result, str]:
        result, id_ = Result(is_stopped=None in messages), self.options.id
        for told in messages:
            if isinstance(told, Told):
                result.add(told.result)
                id_ = told.id
        if self.options.report:
            folder, _, name = self.options.report.rpartition("/")
            keep(folder, name, io.BytesIO(json.dumps({"id": id_, **asdict(result)}).encode()))
        return result, id_


class RowWriter(_Writing, DataSourceArrowWriter):
    """A batch.

    The sink ``brokerha``: rows of a DataFrame, or of a stream, become transactions of a cluster.

        df.write.format("brokerha").option("url", "http://127.0.0.1:7201").option("table", "prices").mode("append").save()
        df.writeStream.format("brokerha").option("url", …).option("repository", "main").option("checkpointLocation", …).start()

    Options are in `pipeline/publishing.SinkOptions`, columns in `pipeline/publishing_rows`. This class has only what Spark calls:
    writers are made on the driver, `write` runs in a task for each partition, `commit` on the driver after all tasks.

    The ids of transactions derive from the id of the write, the partition (or the column `part`) and the number of the row; in a
    stream from the id of the query and the number of its batch. So a repeated task, stage, batch or query changes nothing twice.
    """

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called when all tasks have succeeded."""
        self._committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Called when some tasks have failed."""
        self._aborted(messages)


class StreamRowWriter(_Writing, DataSourceStreamArrowWriter):
    """The batches of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Called when all tasks of a batch have succeeded."""
        self._committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Called when some tasks have failed."""
        self._aborted(messages)


def _lsn_of(options: SinkOptions) -> int:
    """Return the last LSN of the cluster, and check that it answers and has the repository."""
    with brokerha.connect(options.url) as client:
        status = client.status(timeout=options.timeout_s)
        if options.store == GRAPH and options.name not in client.repositories(timeout=options.timeout_s):
            raise UnknownRepository(f"the cluster {status['cluster']} has no repository {options.name!r}: create it first")
    return max((int(node["applied_lsn"] or 0) for node in status["nodes"]), default=0)


class BrokerhaSource(DataSource):
    """The data source for ``format("brokerha")`` and its options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return NAME

    def schema(self) -> str:
        """Return the columns of the option `columns`, or all. Options without a valid log are refused here, before any work."""
        SourceSpec.from_options(self.options)
        options = ReadOptions.from_options(self.options)
        if options.view == VIEW_PIECES:
            return ", ".join(f"{name} BIGINT" for name in OF_PIECES)
        names = options.columns
        return ", ".join(f"{name} {_TYPES[str(SCHEMA.field(name).type)]}" for name in names)

    def reader(self, schema: StructType) -> LogReader:
        """Return the reader of a batch."""
        return LogReader(SourceSpec.from_options(self.options), ReadOptions.from_options(self.options), schema.names)

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802  (Spark's name)
        """Return the reader of a stream."""
        return LogStreamReader(SourceSpec.from_options(self.options), ReadOptions.from_options(self.options), schema.names)

    def writer(self, schema: StructType, overwrite: bool) -> RowWriter:
        """Return the writer of rows as transactions."""
        return RowWriter(dict(self.options), schema, is_overwriting=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamRowWriter:  # noqa: N802  (Spark's name)
        """Return the writer for rows of a stream."""
        return StreamRowWriter(dict(self.options), schema, is_overwriting=overwrite)


@dataclass
class Piece(InputPartition):
    """Input of one task: a range of LSNs, both ends included; empty when the first is above the last."""

    first_lsn: Lsn
    last_lsn: Lsn


class _Reading:
    """Common part of both readers in a task."""

    def __init__(self, spec: SourceSpec, options: ReadOptions, columns: Sequence[str]) -> None:
        unknown = [name for name in columns if name not in (OF_PIECES if options.view == VIEW_PIECES else SCHEMA.names)]
        if unknown:
            raise ConfigurationError(f"there is no column {unknown[0]!r}; there are {', '.join(SCHEMA.names)}")
        self.spec = spec
        self.options = options
        self.columns = list(columns)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a piece: Arrow batches, or tuples if the option `arrow` is false."""
        # Without any piece, Spark makes an empty one.
        if not isinstance(partition, Piece) or partition.first_lsn > partition.last_lsn:
            return
        first_lsn, last_lsn = partition.first_lsn, partition.last_lsn
        if self.options.view == VIEW_PIECES:
            yield pa.RecordBatch.from_pydict(dict(zip(OF_PIECES, ([first_lsn], [last_lsn]), strict=True)))
            return
        with open_source(self.spec) as source:
            for batch in batches(source, first_lsn, last_lsn, self.options, self.columns):
                yield from [batch] if self.options.arrow else _tuples(batch)

    def _pieces(self, first_lsn: Lsn, last_lsn: Lsn) -> list[Piece]:
        return [Piece(*ends) for ends in pieces(first_lsn, last_lsn, self.options.partitions)]


def _tuples(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


class LogReader(_Reading, DataSourceReader):
    """One batch: a range of the log, up to its end when the query begins."""

    def partitions(self) -> list[Piece]:
        """Cut the range into pieces of one task each."""
        with open_source(self.spec) as source:
            return self._pieces(*planned(source, self.options))


class LogStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of batches, each a range that begins at the end of the one before."""

    def __init__(self, spec: SourceSpec, options: ReadOptions, columns: Sequence[str]) -> None:
        super().__init__(spec, options, columns)
        if options.pin and not spec.url:
            raise ConfigurationError("pin is for a log that is read from nodes: write url, or leave pin out")
        self._target: Lsn | None = None
        """Last LSN of a run with the trigger AvailableNow."""
        self._pinned_s: float | None = None
        """Time of the last pin, by the monotonic clock."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return the offset before `startingLsn`, or before the first available entry."""
        with open_source(self.spec) as source:
            given = replace(self.options, fail_on_data_loss=False, ending_lsn=None)
            first_lsn, last_lsn = planned(source, given)
            asked = self.options.starting_lsn
            if asked is not None and asked > last_lsn + 1:
                raise InvalidRequest(f"startingLsn {asked} is after the next entry of the log, {last_lsn + 1}")
            if asked is not None and asked < first_lsn and self.options.fail_on_data_loss:
                raise LinesMissing(lost(asked, first_lsn))
            self._pin(first_lsn)
            return _offset(source, first_lsn - 1)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  (Spark's name)
        """Return the limit of one batch; with both limits that of bytes, while the other one still applies."""
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable() if self.options.max_entries is None else ReadMaxRows(self.options.max_entries)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  (Spark's name)
        """Remember the current end of the log."""
        with open_source(self.spec) as source:
            self._target = source.last_lsn()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        """Return the end of the next batch; the start when there is nothing new."""
        is_limited = not isinstance(limit, ReadAllAvailable)
        with open_source(self.spec) as source:
            start_lsn = self._lsn_of(start, source)
            first_held, last_lsn = source.first_lsn(), source.last_lsn()
            for end in (self._target, self.options.ending_lsn):
                last_lsn = last_lsn if end is None else min(last_lsn, end)
            if not self.options.fail_on_data_loss:
                start_lsn = max(start_lsn, min(first_held - 1, last_lsn))
            elif start_lsn + 1 < first_held:
                raise LinesMissing(lost(start_lsn + 1, first_held))
            if self._pinned_s is None:
                # Masters refuse to pin entries that are already lost.
                self._pin(max(start_lsn + 1, first_held))
            max_entries = self.options.max_entries if is_limited else None
            max_bytes = self.options.max_bytes if is_limited else None
            end = reach(source, start_lsn, last_lsn, max_entries, max_bytes)
            return _offset(source, end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  (Spark's name)
        """Return the end of the log, for the progress of the query."""
        with open_source(self.spec) as source:
            return _offset(source, source.last_lsn())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Piece]:
        """Return the same pieces for the same offsets, whatever was written meanwhile."""
        first_lsn = int(start["lsn"]) + 1
        with open_source(self.spec) as source:
            self._lsn_of(start, source)
            self._lsn_of(end, source)
            first_held = source.first_lsn()
        if first_lsn < first_held and self.options.fail_on_data_loss:
            raise LinesMissing(lost(first_lsn, first_held))
        return self._pieces(first_lsn, int(end["lsn"]))

    def commit(self, end: dict[str, Any]) -> None:
        """Release entries up to here at the masters. Spark commits the last batch of a run in the next run."""
        if self._pinned_s is None or time.monotonic() - self._pinned_s >= PIN_EVERY_S:
            # The earlier pin holds more than is needed, so a missing answer does no harm.
            with suppress(BrokerhaError):
                self._pin(int(end["lsn"]) + 1)

    def stop(self) -> None:
        """Do nothing: no resource is open between two calls."""

    def _pin(self, lsn: Lsn) -> None:
        """Make masters keep their log from an LSN on. Raises NotReady, Unreachable, InvalidRequest when all fail."""
        if self.options.pin:
            with cluster_of(self.spec) as cluster:
                if cluster is not None:
                    cluster.pin(self.options.pin, lsn, self.options.pin_for_s)
            self._pinned_s = time.monotonic()

    def _lsn_of(self, offset: dict[str, Any], source: OpenSource) -> Lsn:
        """Return the LSN. Raises InvalidRequest for another cluster's offset, WentBack for one on a given-up branch of the log."""
        if offset["cluster"] and source.cluster and offset["cluster"] != source.cluster:
            raise InvalidRequest(
                f"the checkpoint is of cluster {offset['cluster']}, and this is the log of {source.cluster}: use another folder"
            )
        if void := problem(source.rewinds(), int(offset.get("lineage", 0)), int(offset["lsn"])):
            raise WentBack(f"{void}, with another checkpoint (startingLsn)")
        return int(offset["lsn"])


def _offset(source: OpenSource, lsn: Lsn) -> dict[str, Any]:
    """Return an offset; without a lineage if the log never went back."""
    lineage = newest(source.rewinds())
    return {"cluster": source.cluster, "lsn": lsn, **({"lineage": lineage} if lineage else {})}
