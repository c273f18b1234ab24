"""The sink ``brokerha``: rows of a DataFrame, or of a stream, become transactions of a cluster.

    df.write.format("brokerha").option("url", "http://127.0.0.1:7201").option("table", "prices").mode("append").save()
    df.writeStream.format("brokerha").option("url", …).option("repository", "main").option("checkpointLocation", …).start()

Options are those of `pipeline/publishing.SinkOptions`, columns those of `pipeline/publishing_rows`. Here is only what Spark calls: writers are
made on the driver, `write` runs in a task for each partition, `commit` on the driver again when all tasks have ended.

The ids of transactions follow from the id of the write, the partition (or the column `part`) and the number of the row; for a stream from the
id of the query and the number of its batch. So a task, a stage, a batch or a whole query that runs again changes nothing twice.
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import brokerha
from brokerha.model.errors import ConfigurationError, UnknownRepository
from brokerha.model.operations import GRAPH
from brokerha.pipeline.places import keep
from brokerha.pipeline.publishing import Result, SinkOptions
from brokerha.pipeline.publishing_rows import check_columns
from brokerha.pipeline.publishing_task import Task, publish

_BATCH, _QUERY = "streaming.sql.batchId", "sql.streaming.queryId"


@dataclass
class Told(WriterCommitMessage):
    """What a task tells the driver."""

    result: Result
    id: str


class _Writing:
    """What both writers do. Raises ConfigurationError, Unreachable, UnknownRepository before any row is read."""

    def __init__(self, options: dict[str, str], schema: StructType, *, is_overwriting: bool) -> None:
        self.options = SinkOptions.from_options(options)
        if is_overwriting:
            raise ConfigurationError(
                "overwrite is nothing that a cluster does: write with append, and delete with kind delete"
            )
        check_columns({field.name: field.dataType.typeName() for field in schema.fields}, self.options)
        self.new_id = f"write-{secrets.token_hex(8)}"
        """Of a batch that is given none."""
        self.begin_lsn = 0 if self.options.is_dry_run else _lsn_of(self.options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Told:
        """One partition, in a task."""
        context: Any = TaskContext.get()
        batch = context.getLocalProperty(_BATCH)
        # A write inside of foreachBatch belongs to a batch of a stream, too.
        id_ = self.options.id or context.getLocalProperty(_QUERY) or self.new_id
        if batch is not None:
            id_ = f"{id_}.{batch}"
        task = Task(id_, str(context.partitionId()), self.begin_lsn)
        return Told(publish(iterator, self.options, task, brokerha.connect), id_)

    def _committed(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raises what ended a task; see `Result.check`."""
        result, id_ = self._reported(messages)
        result.check(self.options, id_)

    def _aborted(self, messages: list[WriterCommitMessage | None]) -> None:
        """Spark gave up a task that died; what the others wrote stays, and is told in the report."""
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
    """A batch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have ended."""
        self._committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Some did not."""
        self._aborted(messages)


class StreamRowWriter(_Writing, DataSourceStreamArrowWriter):
    """The batches of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """All tasks of a batch have ended."""
        self._committed(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  (Spark's name)
        """Some did not."""
        self._aborted(messages)


def _lsn_of(options: SinkOptions) -> int:
    """How far the cluster is, which answers and has the repository."""
    with brokerha.connect(options.url) as client:
        status = client.status(timeout=options.timeout_s)
        if options.store == GRAPH and options.name not in client.repositories(timeout=options.timeout_s):
            raise UnknownRepository(
                f"the cluster {status['cluster']} has no repository {options.name!r}: create it first"
            )
    return max((int(node["applied_lsn"] or 0) for node in status["nodes"]), default=0)
