"""The log through Spark: the same rows as without it, in batches and as a stream, with filters, limits and lost beginnings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from brokerha.http import HttpServer, create_app
from brokerha.log.disks import FileDisk
from brokerha.log.log import Log as Journal
from brokerha.model.errors import ConfigurationError, Unreachable
from brokerha.model.records import Accepted, Added, Appended, Outcomes
from brokerha.pipeline.entries import LogEntry
from brokerha.pipeline.ranges import ReadOptions
from brokerha.pipeline.rows import SCHEMA, table_of
from brokerha.pipeline.sources import SourceSpec, open_source
from brokerha.spark import data_source
from brokerha.stores.backup.lines import LinesMissing
from tests.unit.http.fake_front import FakeFront
from tests.unit.pipeline.made_archives import Log
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(11, 300)
ORDER = ["lsn", "operation", "part"]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    log = Log(tmp_path_factory.mktemp("backups") / "log", ENTRIES[:120])
    log.add(ENTRIES[120:])
    return log


@pytest.fixture(scope="module")
def table(log: Log) -> pa.Table:
    return table_of(log.entries)


def reader(spark: Any, log: Log, **options: Any) -> Any:
    found = spark.read.format("brokerha").options(**log.spec.options())
    return found.options(**{name: str(value) for name, value in options.items()})


def arrow(frame: Any) -> pa.Table:
    return frame.orderBy(*ORDER).toArrow().combine_chunks()


def test_the_whole_log_comes_as_the_rows_that_the_decoder_makes(spark, log, table):
    frame = reader(spark, log, partitions=5).load()
    assert frame.rdd.getNumPartitions() == 5
    found = arrow(frame)
    assert found.schema.names == SCHEMA.names
    assert found.to_pylist() == table.to_pylist()


def test_tuples_are_the_same_rows(spark, log, table):
    assert arrow(reader(spark, log, arrow="false").load()).to_pylist() == table.to_pylist()


def test_chosen_columns_come_alone(spark, log, table):
    found = arrow(reader(spark, log, columns="operation,lsn,part,value").load())
    assert found.schema.names == ["operation", "lsn", "part", "value"]
    assert found.to_pylist() == table.select(["operation", "lsn", "part", "value"]).to_pylist()


def test_only_changes_to_some_stores_come_where_they_are_named(spark, log, table):
    found = arrow(reader(spark, log, stores="table,control", endingLsn=150).load())
    expected = [row for row in table.to_pylist() if row["store"] in {"table", "control", "staged"} and row["lsn"] <= 150]
    assert found.to_pylist() == expected


def test_pieces_are_the_range_cut_for_tasks_that_read_the_log_themselves(spark, log):
    found = reader(spark, log, view="pieces", startingLsn=11, partitions=3).load().orderBy("first_lsn").collect()
    assert [row.first_lsn for row in found] == [11, *(row.last_lsn + 1 for row in found[:-1])]
    assert (len(found), found[-1].last_lsn) == (3, log.manifest.last_lsn)


def test_two_filtered_views_of_one_log_are_each_what_they_say(spark, log, table):
    # Taken over by the source, the filters of the second one would be those of both.
    rows = reader(spark, log).load()
    both = rows.where("store = 'table' and lsn < 60").unionByName(rows.where("store = 'queue' and lsn >= 60"))
    found = {(row.store, row.lsn) for row in both.select("store", "lsn").collect()}
    assert found == {
        (row["store"], row["lsn"])
        for row in table.to_pylist()
        if (row["store"], row["lsn"] < 60) in {("table", True), ("queue", False)}
    }


def test_a_wrong_option_is_an_error_that_says_what_to_write(spark, log):
    with pytest.raises(Exception, match="which log\\? write one of url"):
        spark.read.format("brokerha").load()
    with pytest.raises(Exception, match="startingLsn is a number from 1 on"):
        reader(spark, log, startingLsn="first").load().count()


def test_a_lost_beginning_is_an_error_that_names_the_first_one_unless_asked_otherwise(spark, tmp_path):
    late = Log(tmp_path / "late", ENTRIES[100:])
    with pytest.raises(Exception, match="the first one that there is has LSN 101"):
        reader(spark, late, startingLsn=50).load().count()
    assert reader(spark, late, startingLsn=50, failOnDataLoss="false").load().agg({"lsn": "min"}).first()[0] == 101


class Sink:
    """Batches of a stream, as they come."""

    def __init__(self, spark: Any, log: Log, checkpoint: Path, **options: Any) -> None:
        self.stream = spark.readStream.format("brokerha").options(**log.spec.options())
        self.stream = self.stream.options(**{name: str(value) for name, value in options.items()})
        self.checkpoint = checkpoint
        self.batches: list[tuple[int, list[tuple[int, ...]]]] = []

    def run(self, fail_at: int | None = None) -> None:
        """Everything that is there now."""

        def take(frame: Any, number: int) -> None:
            rows = [tuple(row) for row in frame.select(*ORDER).orderBy(*ORDER).collect()]
            self.batches.append((number, rows))
            if number == fail_at:
                raise RuntimeError("the sink is broken")

        query = (
            self.stream.load().writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        try:
            query.awaitTermination(120)
        finally:
            query.stop()

    def ends(self) -> list[tuple[int, int, int]]:
        return [(number, rows[0][0], rows[-1][0]) for number, rows in self.batches]


def keys_of(entries: list[LogEntry]) -> list[tuple[int, ...]]:
    return [tuple(row[name] for name in ORDER) for row in table_of(entries).to_pylist()]


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Log]:
    yield Log(tmp_path / "growing", ENTRIES[:100])  # noqa: PT022  (a folder of its own for each test)


def test_a_stream_reads_in_batches_of_the_limit_and_goes_on_from_its_checkpoint(spark, growing, tmp_path):
    sink = Sink(spark, growing, tmp_path / "checkpoint", maxEntriesPerTrigger=40)
    sink.run()
    assert sink.ends() == [(0, 1, 40), (1, 41, 80), (2, 81, 100)]
    growing.add(ENTRIES[100:130])
    sink.run()
    assert sink.ends()[3:] == [(3, 101, 130)]
    assert [key for _, rows in sink.batches for key in rows] == keys_of(ENTRIES[:130])


def test_a_batch_that_failed_comes_again_with_the_same_rows(spark, growing, tmp_path):
    sink = Sink(spark, growing, tmp_path / "checkpoint", maxEntriesPerTrigger=30)
    with pytest.raises(Exception, match="the sink is broken"):
        sink.run(fail_at=1)
    growing.add(ENTRIES[100:110])
    sink.run()
    assert sink.ends() == [(0, 1, 30), (1, 31, 60), (1, 31, 60), (2, 61, 90), (3, 91, 110)]
    assert sink.batches[1] == sink.batches[2]


def test_a_stream_may_be_limited_by_bytes_and_begin_at_an_lsn(spark, growing, tmp_path):
    sink = Sink(spark, growing, tmp_path / "checkpoint", maxBytesPerTrigger=3000, startingLsn=20)
    sink.run()
    assert len(sink.batches) > 1
    for _, rows in sink.batches:
        lsns = {row[0] for row in rows}
        assert len(lsns) == 1 or sum(len(ENTRIES[lsn - 1].effect) for lsn in lsns) <= 3000
    assert [key for _, rows in sink.batches for key in rows] == keys_of(ENTRIES[19:100])


def test_a_checkpoint_of_another_cluster_is_not_continued(spark, growing, tmp_path):
    Sink(spark, growing, tmp_path / "checkpoint").run()
    other = Log(tmp_path / "other", ENTRIES, cluster="parts")
    with pytest.raises(Exception, match="the checkpoint is of cluster orders, and this is the log of parts"):
        Sink(spark, other, tmp_path / "checkpoint").run()


def test_what_was_lost_since_the_checkpoint_is_an_error_unless_asked_otherwise(spark, growing, tmp_path):
    Sink(spark, growing, tmp_path / "checkpoint").run()
    trimmed = Log(tmp_path / "trimmed", ENTRIES[150:200])
    with pytest.raises(Exception, match="LSN 101 is not in the log any more: the first one that there is has LSN 151"):
        Sink(spark, trimmed, tmp_path / "checkpoint").run()
    lossy = Sink(spark, trimmed, tmp_path / "checkpoint", failOnDataLoss="false")
    lossy.run()
    assert [key for _, rows in lossy.batches for key in rows] == keys_of(ENTRIES)[len(keys_of(ENTRIES[:150])) :][
        : len(keys_of(ENTRIES[150:200]))
    ]


class Pins:
    """Masters that keep their log, or do not answer."""

    def __init__(self) -> None:
        self.set: list[tuple[str, int, int]] = []
        self.is_away = False

    def pin(self, name: str, lsn: int, for_s: int) -> None:
        if self.is_away:
            raise Unreachable("nobody")
        self.set.append((name, lsn, for_s))


def test_a_stream_with_a_pin_has_masters_keep_what_it_has_not_read(log, monkeypatch):
    pins = Pins()
    monkeypatch.setattr(data_source, "cluster_of", lambda spec: contextlib.nullcontext(pins))
    monkeypatch.setattr(data_source, "open_source", lambda spec: open_source(log.spec))
    monkeypatch.setattr(data_source, "PIN_EVERY_S", 0.0)
    options = ReadOptions(starting_lsn=20, pin="copy", pin_for_s=60, max_entries=30)
    stream = data_source.LogStreamReader(SourceSpec(url="http://a"), options, ["lsn"])
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert (start["lsn"], end["lsn"]) == (19, 49)
    stream.commit(end)
    assert pins.set == [("copy", 20, 60), ("copy", 50, 60)]
    pins.is_away = True
    stream.commit(stream.latestOffset(end, stream.getDefaultReadLimit()))

    again = data_source.LogStreamReader(SourceSpec(url="http://a"), options, ["lsn"])
    with pytest.raises(Unreachable):
        again.latestOffset(end, stream.getDefaultReadLimit())
    pins.is_away = False
    again.latestOffset(end, stream.getDefaultReadLimit())
    assert pins.set[2:] == [("copy", 50, 60)]


@pytest.mark.parametrize("fail_on_data_loss", [False, True])
def test_a_stream_with_a_pin_whose_log_was_trimmed_pins_what_there_is_or_says_what_is_lost(
    tmp_path, monkeypatch, fail_on_data_loss
):
    pins, late = Pins(), Log(tmp_path / "late", ENTRIES[100:])
    monkeypatch.setattr(data_source, "cluster_of", lambda spec: contextlib.nullcontext(pins))
    monkeypatch.setattr(data_source, "open_source", lambda spec: open_source(late.spec))
    options = ReadOptions(pin="copy", pin_for_s=60, fail_on_data_loss=fail_on_data_loss)
    stream = data_source.LogStreamReader(SourceSpec(url="http://a"), options, ["lsn"])
    start = {"cluster": "", "lsn": 19}
    if fail_on_data_loss:
        with pytest.raises(LinesMissing, match="failOnDataLoss=false"):
            stream.latestOffset(start, stream.getDefaultReadLimit())
        return
    assert stream.latestOffset(start, stream.getDefaultReadLimit())["lsn"] == ENTRIES[-1].lsn
    assert pins.set == [("copy", 101, 60)]


def test_a_pin_needs_nodes():
    with pytest.raises(ConfigurationError, match="pin is for a log that is read from nodes"):
        data_source.LogStreamReader(SourceSpec(backup="/d"), ReadOptions(pin="copy"), ["lsn"])


def test_tasks_read_from_a_node_over_http(spark):
    front = FakeFront(threaded=True)
    front.results = [(f"t{lsn}", "applied", "") for lsn in range(1, 10_001)]
    server = HttpServer(create_app(front), "127.0.0.1", 0)
    server.start()
    try:
        frame = spark.read.format("brokerha").option("url", server.url).option("partitions", "3").load()
        found = frame.selectExpr("count(*)", "count(distinct lsn)", "max(lsn)", "min(origin)", "max(epoch)").first()
    finally:
        server.stop(5.0)
    assert tuple(found) == (10_000, 10_000, 10_000, "m1", 1)


def test_several_tasks_read_the_journal_of_a_stopped_master_at_once(spark, tmp_path):
    journal = Journal(FileDisk(tmp_path), "orders", "m1")
    some = ENTRIES[:200]
    journal.append(
        [
            Accepted(tuple((each.txid, b"body") for each in some)),
            Appended("m1", 0, tuple((each.timestamp, each.txid) for each in some)),
            Added(1, tuple((each.timestamp, each.txid, "m1") for each in some), {"m1": len(some)}),
            Outcomes(1, tuple((each.outcome, each.reason, each.effect, each.fingerprint) for each in some), 0),
        ]
    )
    journal.close()
    frame = spark.read.format("brokerha").option("journal", str(tmp_path)).option("partitions", "4").load()
    assert arrow(frame).to_pylist() == table_of([each._replace(origin="m1") for each in some]).to_pylist()
