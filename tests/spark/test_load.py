"""The load on Spark: tasks in processes of their own publish over HTTP; a second run sends nothing; rejects come back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import brokerha
from brokerha.client import Client
from brokerha.embedded import EmbeddedCluster
from brokerha.http import HttpServer, create_app
from brokerha.model.errors import NotReady, Unreachable
from brokerha.nodes.config import ClusterConfig
from brokerha.nodes.config_nodes import MasterEntry, WorkerEntry
from brokerha.pipeline.loading import LoadJob, LoadOptions, LoadReport, Split
from brokerha.pipeline.loading_job import run_load
from brokerha.spark.load import run_splits
from tests.support.free_ports import free_ports

MAPPING = '[keys]\ntable = "t"\nkey = "{k}"\nvalue = "v"\n'


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


def load(spark: Any, url: str, tmp_path: Path, *files: Path, **more: Any) -> LoadReport:
    options = LoadOptions(
        tuple(map(str, files)), url, str(tmp_path / "state"), **{"split_bytes": 40_000, "patience_s": 60.0, **more}
    )
    return run_load(options, partial(run_splits, spark), lambda *_: None, brokerha.connect)


def counted(db: Client, what: str, predicate: str) -> int:
    """How many statements with this predicate, or how many different values of a term of theirs."""
    found: Any = db.query("main", f"SELECT (COUNT({what}) AS ?n) {{ ?s <{predicate}> ?o }}")
    return int(found[0]["n"].native())


def test_a_file_is_loaded_by_many_tasks_once_and_its_bad_lines_are_told(
    spark: Any, url: str, db: Client, tmp_path: Path
) -> None:
    path = tmp_path / "graph.nt"
    lines = [f"<urn:s:{n}> <urn:next> _:b{n % 10} ." for n in range(6000)]
    path.write_text("\n".join([*lines[:3000], "no statement", *lines[3000:]]))
    report = load(spark, url, tmp_path, path, max_rejects=1)
    assert (report.is_good, report.rejects, report.statements) == (True, 1, 6000)
    assert report.splits > 4
    assert report.rejects_file is not None
    [reject] = [json.loads(line) for line in Path(report.rejects_file).read_text().splitlines()]
    assert (reject["line"], reject["text"]) == (3001, "no statement")
    assert counted(db, "*", "urn:next") == 6000
    assert counted(db, "DISTINCT ?o", "urn:next") == 10
    last = db.status()["nodes"][0]["applied_lsn"]
    again = load(spark, url, tmp_path, path, max_rejects=1)
    assert (again.splits_before, again.statements) == (again.splits, 6000)
    assert db.status()["nodes"][0]["applied_lsn"] == last


def test_a_lost_state_folder_costs_work_and_no_second_transaction(
    spark: Any, url: str, db: Client, tmp_path: Path
) -> None:
    path = tmp_path / "graph.nt"
    path.write_text("".join(f"_:a{n} <urn:once> _:b{n} .\n" for n in range(3000)))
    first = load(spark, url, tmp_path, path)
    for done in (tmp_path / "state" / "splits").iterdir():
        done.unlink()
    again = load(spark, url, tmp_path, path)
    assert (again.splits_before, again.lsn, again.transactions) == (0, first.lsn, first.transactions)
    assert counted(db, "*", "urn:once") == 3000


def test_rows_of_csv_and_parquet_become_keys(spark: Any, url: str, db: Client, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(MAPPING)
    one, two = tmp_path / "one.csv", tmp_path / "two.parquet"
    one.write_text("k,v\n" + "".join(f"csv-{n:05d},{n}\n" for n in range(5000)))
    parquet.write_table(
        pa.table({"k": [f"pq-{n:05d}" for n in range(5000)], "v": list(range(5000))}), two, row_group_size=500
    )
    report = load(spark, url, tmp_path, one, two, mapping=str(tmp_path / "m.toml"))
    assert (report.is_good, report.statements) == (True, 10_000)
    assert report.splits >= 4
    assert len(db.range("t", prefix="csv-", limit=10_000)) == len(db.range("t", prefix="pq-", limit=10_000)) == 5000
    assert db.get("t", "pq-04999") == b"4999"


def test_a_cluster_that_goes_away_is_an_error_and_no_traceback(spark: Any, url: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.nt"
    path.write_text("".join(f"<urn:gone:{n}> <urn:p> <urn:o> .\n" for n in range(3000)))
    nobody = f"http://127.0.0.1:{free_ports(1)}"
    options = LoadOptions((str(path),), nobody, str(tmp_path / "state"), split_bytes=40_000, timeout_s=1, patience_s=0)
    with pytest.raises((Unreachable, NotReady), match="statements are known to be loaded"):
        run_load(options, partial(run_splits, spark), lambda *_: None, lambda _: brokerha.connect(url))


class Deadly:
    """Ends the process that unpacks it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (1,)


def test_tasks_that_die_again_and_again_are_an_error_and_no_traceback(spark: Any) -> None:
    deadly: Any = Deadly()
    job = LoadJob("run", "load-1", "", "", "main", "", deadly)
    with pytest.raises(NotReady, match=r"Spark gave up \(.*; the same command goes on"):
        run_splits(spark, job, [Split(1, 1, "none.nt", "nt", 0, 1, 1, 1)], lambda: None)
