"""The sink ``brokerha`` and the load on Spark: tasks in processes of their own publish over HTTP, and nothing is done twice."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import brokerha
from brokerha.client import Client
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.model.errors import InvalidRequest, Unreachable
from brokerha.nodes.config.cluster import ClusterConfig, MasterEntry, WorkerEntry
from brokerha.pipeline.loading import LoadOptions, LoadReport
from brokerha.spark.load import load
from tests.support.free_ports import free_ports

SOON_S = 600
KEYS = '[keys]\ntable = "t"\nkey = "{k}"\nvalue = "v"\n'


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a cluster of two masters in this process."""
    config = ClusterConfig(
        name="loads",
        broker="embedded://",
        data=tmp_path_factory.mktemp("cluster"),
        masters=(MasterEntry(id="m1"), MasterEntry(id="m2")),
        workers=(WorkerEntry(id="w1", master="m1"), WorkerEntry(id="w2", master="m2")),
    )
    with EmbeddedCluster(config) as cluster:
        server = HttpServer(create_app(cluster.masters["m1"]), "127.0.0.1", 0)
        server.start()
        cluster.client("m1").put("ready", b"k", b"v", timeout=30)
        yield server.url
        server.stop(1)


@pytest.fixture
def db(url: str) -> Iterator[Client]:
    with brokerha.connect(url) as client:
        yield client


def write(frame: Any, url: str, **options: Any) -> None:
    frame.write.format("brokerha").options(url=url, **options).mode("append").save()


def messages(db: Client, queue: str) -> list[str]:
    """Bodies of all that wait, sorted."""
    return sorted(message.body.decode() for message in db.queue(queue, limit=1000))


def applied(db: Client) -> int:
    return max(int(node["applied_lsn"]) for node in db.status()["nodes"])


# ---- the sink


def test_rows_of_all_partitions_are_written_once_however_often_they_are_written(
    spark: Any, url: str, db: Client, tmp_path: Path
) -> None:
    frame = spark.range(0, 5000, 1, 3).selectExpr("concat('once-', id) key", "cast(id as string) value")
    write(frame, url, table="t", id="once", report=f"{tmp_path}/report.json")
    first, last = json.loads((tmp_path / "report.json").read_text()), applied(db)
    write(frame, url, table="t", id="once", report=f"{tmp_path}/report.json")
    again = json.loads((tmp_path / "report.json").read_text())
    assert (first["items"], first["transactions"], first["repeated"]) == (5000, 6, 0)
    assert again == {**first, "repeated": 6}
    assert applied(db) == last
    assert len(db.range("t", prefix="once-", limit=10_000)) == 5000


def test_a_task_that_dies_in_its_middle_publishes_nothing_twice(spark: Any, url: str, db: Client) -> None:
    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            for place in range(len(batch)):
                if place == 60 and context is not None and context.attemptNumber() == 0:
                    os._exit(9)
                yield batch.slice(place, 1)

    frame = spark.range(0, 200, 1, 2).selectExpr("cast(id as string) value").mapInArrow(die_once, "value string")
    write(frame, url, queue="deaths", rowsPerTransaction=10, window=1)
    assert messages(db, "deaths") == sorted(str(number) for number in range(200))


def test_a_task_that_dies_again_and_again_ends_the_write_and_a_second_one_goes_on(
    spark: Any, url: str, db: Client, tmp_path: Path
) -> None:
    from py4j.protocol import Py4JError

    def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column(0)[0].as_py() == "0":
                os._exit(9)
            yield batch

    frame = spark.range(0, 40, 1, 2).selectExpr("cast(id as string) value")
    options = {"queue": "dying", "id": "dying", "report": f"{tmp_path}/report.json"}
    with pytest.raises(Py4JError, match="Python worker exited unexpectedly"):
        write(frame.mapInArrow(die, "value string"), url, **options)
    assert json.loads((tmp_path / "report.json").read_text())["is_stopped"]
    write(frame, url, **options)
    assert not json.loads((tmp_path / "report.json").read_text())["is_stopped"]
    assert messages(db, "dying") == sorted(str(number) for number in range(40))


def test_a_batch_of_a_stream_that_comes_again_publishes_nothing_twice(spark: Any, url: str, db: Client, tmp_path: Path) -> None:
    spark.range(0, 300, 1, 2).selectExpr("cast(id as string) value").write.parquet(f"{tmp_path}/in")

    def run() -> None:
        stream = spark.readStream.schema("value string").parquet(f"{tmp_path}/in").writeStream.format("brokerha")
        options = {"url": url, "queue": "stream", "checkpointLocation": f"{tmp_path}/at", "report": f"{tmp_path}/report.json"}
        assert stream.options(**options).trigger(availableNow=True).start().awaitTermination(SOON_S)

    run()
    for name in ("0", ".0.crc"):
        (tmp_path / "at" / "commits" / name).unlink()
    (tmp_path / "report.json").unlink()
    run()
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["repeated"] == report["transactions"] == 2
    assert messages(db, "stream") == sorted(str(number) for number in range(300))


def test_a_write_for_each_batch_has_the_ids_of_its_stream(spark: Any, url: str, db: Client, tmp_path: Path) -> None:
    spark.range(0, 100, 1, 2).selectExpr("cast(id as string) value").write.parquet(f"{tmp_path}/in")

    def write_twice(batch: Any, _: int) -> None:
        write(batch, url, queue="each")
        write(batch, url, queue="each")

    stream = spark.readStream.schema("value string").parquet(f"{tmp_path}/in").writeStream.foreachBatch(write_twice)
    query = stream.option("checkpointLocation", f"{tmp_path}/at").trigger(availableNow=True).start()
    assert query.awaitTermination(SOON_S)
    assert messages(db, "each") == sorted(str(number) for number in range(100))


def test_a_change_feed_is_written_into_another_table(spark: Any, url: str, db: Client) -> None:
    for number in range(5):
        db.put("feed", f"k{number}", str(number))
    db.delete("feed", "k2")
    log = spark.read.format("brokerha").option("url", url).load().where("store = 'table' and name = 'feed'")
    write(log.orderBy("lsn").coalesce(1).select("kind", "key", "value"), url, table="copy")
    assert db.range("copy") == db.range("feed")
    assert len(db.range("copy")) == 4


def test_rejects_are_a_folder_that_spark_reads_and_the_rest_is_written(spark: Any, url: str, db: Client, tmp_path: Path) -> None:
    lines = [f"<urn:r:{n}> <urn:rejecting> <urn:o> ." for n in range(100)]
    frame = spark.createDataFrame([(line,) for line in [*lines, "bad", "worse"]], "statement string").repartition(2)
    write(frame, url, repository="main", rejects=f"{tmp_path}/bad", maxRejects=2)
    assert sorted(row.text for row in spark.read.json(f"{tmp_path}/bad").collect()) == ["bad", "worse"]
    assert counted(db, "*", "urn:rejecting") == 100


def test_a_write_that_fails_says_what_is_written_and_how_to_go_on(spark: Any, url: str) -> None:
    from pyspark.errors import PySparkException

    frame = spark.createDataFrame([("<urn:a> <urn:f> <urn:b> .",), ("bad",)], "statement string").coalesce(1)
    with pytest.raises(
        PySparkException, match=r"1 rows are refused .* \(1 statements in 1 transactions are written under id 'failing'"
    ):
        write(frame, url, repository="main", id="failing", rowsPerTransaction=1)


def test_what_cannot_be_written_is_refused_before_any_row_is_read(spark: Any, url: str) -> None:
    from pyspark.errors import AnalysisException

    frame = spark.createDataFrame([("a", "b")], "key string, value string")
    for options, words in (
        ({"url": url, "tabel": "t"}, "no option 'tabel'"),
        ({"url": url, "repository": "none"}, "takes the column statement"),
        ({"url": f"http://127.0.0.1:{free_ports(1)}", "table": "t", "timeout": "1"}, "Unreachable"),
    ):
        with pytest.raises(AnalysisException, match=words):
            frame.write.format("brokerha").options(**options).mode("append").save()
    with pytest.raises(AnalysisException, match="overwrite is nothing that a cluster does"):
        frame.write.format("brokerha").options(url=url, table="t").mode("overwrite").save()


# ---- the load


def loaded(spark: Any, url: str, tmp_path: Path, *names: str, **more: Any) -> LoadReport:
    options = LoadOptions(
        tuple(f"{tmp_path}/{name}" for name in names), url, **{"split_bytes": 40_000, "rejects": f"{tmp_path}/rejects", **more}
    )
    return load(spark, options, lambda *_: None)


def counted(db: Client, what: str, predicate: str) -> int:
    """How many statements with this predicate, or how many different values of a term of theirs."""
    found: Any = db.query("main", f"SELECT (COUNT({what}) AS ?n) {{ ?s <{predicate}> ?o }}")
    return int(found[0]["n"].native())


def test_a_file_is_loaded_in_blocks_once_and_its_bad_line_is_told(spark: Any, url: str, db: Client, tmp_path: Path) -> None:
    lines = [f"<urn:s:{n}> <urn:next> _:b{n % 10} ." for n in range(6000)]
    (tmp_path / "g.nt").write_text("\n".join([*lines[:3000], "no statement", *lines[3000:]]))
    stopped = loaded(spark, url, tmp_path, "g.nt")
    assert (stopped.is_good, stopped.result.is_stopped, stopped.result.rejects) == (False, True, 1)
    report = loaded(spark, url, tmp_path, "g.nt", max_rejects=1)
    assert (report.is_good, report.result.items, report.id) == (True, 6000, stopped.id)
    assert report.result.transactions > 4
    [reject] = spark.read.json(report.rejects).collect()
    assert (reject.source, reject.text) == (f"file:{tmp_path}/g.nt", "no statement")
    assert (counted(db, "*", "urn:next"), counted(db, "DISTINCT ?o", "urn:next")) == (6000, 10)
    last = applied(db)
    again = loaded(spark, url, tmp_path, "g.nt", max_rejects=1).result
    assert (again.items, again.repeated) == (6000, report.result.transactions)
    assert applied(db) == last
    dry = loaded(spark, "", tmp_path, "g.nt", is_dry_run=True, rejects="")
    assert (dry.result.items, dry.result.rejects, dry.is_good) == (6000, 1, False)


def test_rows_of_csv_parquet_and_json_become_keys(spark: Any, url: str, db: Client, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(KEYS)
    (tmp_path / "a.csv").write_text("\ufeffk,v\n" + "".join(f'csv-{n:05d},"{n}"\n' for n in range(5000)) + "\n")
    (tmp_path / "b.csv").write_text("v,other,k\n1,2,csv-b\n")
    numbers = list(range(5000))
    parquet.write_table(pa.table({"k": [f"pq-{n:05d}" for n in numbers], "v": numbers}), tmp_path / "c.parquet", row_group_size=500)
    (tmp_path / "d.jsonl").write_text("".join(json.dumps({"k": f"js-{n}", "v": n}) + "\n" for n in range(100)) + "{broken\n")
    (tmp_path / "e.csv").write_text("")
    (tmp_path / "f.csv").write_text("k,v,w\nbroken\n")
    report = loaded(
        spark, url, tmp_path, "?.csv", "c.parquet", "d.jsonl", mapping=f"{tmp_path}/m.toml", max_rejects=2
    )  # fmt: skip
    assert (report.is_good, report.result.items, report.unit, report.files) == (True, 10_101, "key", 5)
    assert sorted(row.text for row in spark.read.json(report.rejects).collect()) == ["broken", "{broken"]
    found = {prefix: len(db.range("t", prefix=prefix, limit=10_000)) for prefix in ("csv-", "pq-", "js-")}
    assert found == {"csv-": 5001, "pq-": 5000, "js-": 100}
    assert [db.get("t", key) for key in ("pq-04999", "csv-04999", "csv-b")] == [b"4999", b"4999", b"1"]


def test_a_row_of_csv_that_is_not_whole_is_a_reject_and_values_may_have_line_breaks(
    spark: Any, url: str, db: Client, tmp_path: Path
) -> None:
    (tmp_path / "m.toml").write_text(KEYS)
    (tmp_path / "a.csv").write_bytes(b'k,v\none,"two\nx,1,2\nx\n\xff,1\nq-ok,"say ""so"""\n')
    report = loaded(spark, url, tmp_path, "a.csv", mapping=f"{tmp_path}/m.toml", max_rejects=4)
    assert [(one.row, one.reason[:20]) for one in report.result.first_rejects] == [
        (1, "a quotation in it do"), (2, "it does not have the"), (3, "it does not have the"), (4, "not UTF-8"),
    ]  # fmt: skip
    assert db.get("t", "q-ok") == b'say "so"'
    (tmp_path / "m.toml").write_text(KEYS + '[csv]\nline_breaks = true\ndelimiter = ";"\n')
    (tmp_path / "b.csv").write_text('k;v\nbroken;"two\nlines"\n')
    assert loaded(spark, url, tmp_path, "b.csv", mapping=f"{tmp_path}/m.toml").is_good
    assert db.get("t", "broken") == b"two\nlines"


def test_a_row_like_the_head_of_its_file_is_a_row_and_one_that_is_not_utf8_a_reject(
    spark: Any, url: str, db: Client, tmp_path: Path
) -> None:
    (tmp_path / "m.toml").write_text(KEYS)
    (tmp_path / "a.csv").write_text("k,v\nhead-a,1\nk,v\nhead-b,2\n")
    (tmp_path / "b.jsonl").write_bytes(b'{"k": "utf8", "v": "1"}\n{"k": "utf8", "v": "\xe4"}\n')
    report = loaded(spark, url, tmp_path, "a.csv", "b.jsonl", mapping=f"{tmp_path}/m.toml", max_rejects=1)
    assert [db.get("t", key) for key in ("head-a", "k", "head-b", "utf8")] == [b"1", b"v", b"2", b"1"]
    assert [(one.row, one.reason) for one in report.result.first_rejects] == [(2, "not UTF-8")]


def test_columns_whose_types_do_not_go_together_are_told_as_such(spark: Any, url: str, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(KEYS)
    for name, value in (("a", 1), ("b", "x")):
        parquet.write_table(pa.table({"k": [name], "v": [value]}), tmp_path / f"{name}.parquet")
    parquet.write_table(pa.table({"k": ["a"], "v": pa.array([1], pa.float16())}), tmp_path / "half.parquet")
    for names in (("a.parquet", "b.parquet"), ("half.parquet",)):
        with pytest.raises(InvalidRequest, match="Spark cannot read it: "):
            loaded(spark, url, tmp_path, *names, mapping=f"{tmp_path}/m.toml")


def test_columns_may_have_any_name(spark: Any, url: str, db: Client, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(KEYS.replace('value = "v"', 'values = ["*"]'))
    row = {"k": "odd-", "K": "1", "v": "2", "Source": "3", "source": "4", "part": "5", "a`b.c": "6", "value": "7"}
    for suffix in ("csv", "jsonl", "parquet"):
        one = {**row, "k": f"odd-{suffix}"}
        match suffix:
            case "csv":
                (tmp_path / "a.csv").write_text(f"{','.join(one)}\n{','.join(one.values())}\n")
            case "jsonl":
                (tmp_path / "a.jsonl").write_text(json.dumps(one))
            case _:
                parquet.write_table(pa.Table.from_pylist([one]), tmp_path / "a.parquet")
        assert loaded(spark, url, tmp_path, f"a.{suffix}", mapping=f"{tmp_path}/m.toml").is_good
        assert json.loads(db.get("t", f"odd-{suffix}") or b"") == one


def test_a_file_of_rows_without_content_is_nothing_to_load(spark: Any, url: str, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(KEYS)
    (tmp_path / "a.csv").write_text("")
    report = loaded(spark, url, tmp_path, "a.csv", mapping=f"{tmp_path}/m.toml")
    assert (report.is_good, report.result.rows) == (True, 0)


def test_files_that_only_a_parser_can_read_are_loaded_one_by_one(spark: Any, url: str, db: Client, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.ttl").write_text(f"<urn:{name}> <urn:parsed> [], [] .")
    assert loaded(spark, url, tmp_path, "a.ttl", "b.ttl").result.items == 4
    assert loaded(spark, url, tmp_path, "a.ttl", "b.ttl").result.repeated == 2
    assert counted(db, "DISTINCT ?o", "urn:parsed") == 4


def test_an_ordered_load_keeps_the_order_of_files_and_rows(spark: Any, url: str, db: Client, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(KEYS)
    for name in ("b", "a"):
        (tmp_path / f"{name}.csv").write_text("k,v\n" + "".join(f"ordered,{name}{n}\n" for n in range(5_000)))
    report = loaded(spark, url, tmp_path, "b.csv", "a.csv", mapping=f"{tmp_path}/m.toml", is_ordered=True)
    assert (report.result.items, db.get("t", "ordered")) == (10_000, b"a4999")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("drift.csv", b"k,w\na,1\n", r"drift\.csv has no column 'v'; it has k, w"),
        ("twice.csv", b"k,k,v\n", "names no columns, or one of them twice"),
        ("pretty.json", b'[\n {"k": "a",\n "v": "b"}\n]\n', r"pretty\.json: none of its lines is a JSON object"),
        ("twice.json", b'{"k": "a", "k": "b"}\n', "Spark cannot read it: The column `k` already exists"),
        ("corrupt.parquet", b"PAR1" + b"x" * 100 + b"PAR1", r"corrupt\.parquet is damaged"),
        ("with blanks.parquet", b"PAR1" + b"x" * 100 + b"PAR1", r"with blanks\.parquet is damaged"),
        ("none.csv", None, "Path does not exist"),
        ("_hidden.csv", b"k,v\n", "hidden from it"),
    ],
)
def test_bad_input_is_one_clear_error_and_nothing_is_sent(
    spark: Any, url: str, db: Client, tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    (tmp_path / "m.toml").write_text(KEYS)
    (tmp_path / "good.csv").write_text("k,v\nbad-input,1\n")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidRequest, match=words) as caught:
        loaded(spark, url, tmp_path, "good.csv", name, mapping=f"{tmp_path}/m.toml")
    assert "\n" not in str(caught.value)
    assert db.get("t", "bad-input") is None


def test_a_scheme_that_spark_does_not_know_is_named(spark: Any, url: str) -> None:
    with pytest.raises(InvalidRequest, match='Spark cannot read it: No FileSystem for scheme "gopher"'):
        load(spark, LoadOptions(("gopher://host/a.nt",), url), lambda *_: None)


def test_a_cluster_that_is_not_there_is_an_error_and_no_traceback(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.nt").write_text("<urn:a> <urn:b> <urn:c> .\n")
    with pytest.raises(Unreachable, match="Connection refused"):
        loaded(spark, f"http://127.0.0.1:{free_ports(1)}", tmp_path, "a.nt", timeout_s=1)
