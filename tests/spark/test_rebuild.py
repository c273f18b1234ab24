"""States that are rebuilt and exported are the ones that the lines lead to: at any LSN, and a worker goes on from them."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from brokerha.model.errors import InvalidRequest, StoreDiffers, StoreError
from brokerha.model.fingerprints import EMPTY, text_of
from brokerha.pipeline.table import LogTable
from brokerha.spark import export as exporting
from brokerha.spark.export import ExportOptions
from brokerha.spark.rebuild import RebuildOptions, RebuildReport, line_of, run
from brokerha.stores.backup.directory import BackupFolder
from brokerha.stores.comparing.items import GRAPH, QUEUE, TABLE
from brokerha.stores.copies.worker_copy import WorkerCopy
from tests.unit.pipeline.made_archives import archive_of, overwrite
from tests.unit.pipeline.plain_state import State, state_at
from tests.unit.pipeline.random_log import random_entries

COUNT = 600
ENTRIES = random_entries(21, COUNT)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> LogTable:
    return archive_of(tmp_path_factory.mktemp("archive") / "of orders", ENTRIES, 170)


def rebuilt(spark: Any, archive: LogTable, **options: Any) -> RebuildReport:
    return run(RebuildOptions(archive.where, **options), lambda: nullcontext(spark), lambda _done, _total: None)


@pytest.mark.parametrize("lsn", [0, 420])
def test_a_worker_starts_from_a_state_that_was_rebuilt_and_follows_the_log(
    spark: Any, archive: LogTable, tmp_path: Path, lsn: int
) -> None:
    report = rebuilt(spark, archive, into=tmp_path / "w9", to_lsn=lsn)
    state = state_at(ENTRIES, lsn)
    assert (report.lsn, report.repositories) == (lsn, len(state.repositories()))
    assert report.items == sum(bool(held.key) for held in state.items.values())
    copy = WorkerCopy(tmp_path / "w9", cluster="orders", node="w9")
    assert copy.applied() == copy.recompute()
    assert (copy.applied().lsn, copy.applied().fingerprint) == (lsn, report.fingerprint)
    copy.apply(lsn + 1, [line_of(entry) for entry in ENTRIES[lsn:]])
    assert copy.applied() == copy.recompute()
    copy.close()


def test_a_backup_of_a_moment_has_all_lines_up_to_it(spark: Any, archive: LogTable, tmp_path: Path) -> None:
    moment = ENTRIES[299].timestamp
    report = rebuilt(spark, archive, backup="b", backups=tmp_path, to_time_us=moment + 1, has_lines=True)
    manifest = BackupFolder(tmp_path).backup("b").manifest()
    assert (report.lsn, manifest.lsn, manifest.log_first_lsn, manifest.fingerprint) == (300, 300, 1, report.fingerprint)
    with pytest.raises(StoreError, match="there is a backup b already"):
        rebuilt(spark, archive, backup="b", backups=tmp_path)


def test_what_cannot_be_rebuilt_is_refused_before_spark_starts(archive: LogTable, tmp_path: Path) -> None:
    for options, text in (
        ({"to_lsn": COUNT + 1}, "holds the states up to LSN 600, not 601"),
        ({"to_lsn": 1, "to_time_us": 1}, "give one of them"),
        ({"node": "No!"}, "is no name of a node"),
    ):
        with pytest.raises(InvalidRequest, match=text):
            rebuilt(None, archive, into=tmp_path / "w9", **options)
    late = archive_of(tmp_path / "late", ENTRIES[100:])
    with pytest.raises(StoreError, match=r"begins with LSN 101: no state can be computed"):
        rebuilt(None, late, into=tmp_path / "w9")


def test_quads_that_somebody_took_out_of_the_archive_lead_to_no_worker_and_no_export(spark: Any, tmp_path: Path) -> None:
    changed = archive_of(tmp_path / "a", ENTRIES)
    for file in changed.state().files:
        table = changed.read(file)
        rows = zip(table["kind"].to_pylist(), table["part"].to_pylist(), strict=True)
        # Of each change one row stays: the last lines are read as entries, too.
        kept = [kind != "add" or part == 0 for kind, part in rows]
        overwrite(changed, file, table.filter(pa.array(kept)))
    with pytest.raises(StoreDiffers, match=f"LSN {COUNT} has fingerprint 1:.* the log says"):
        rebuilt(spark, changed, into=tmp_path / "w9")
    assert not (tmp_path / "w9").exists()
    with pytest.raises(StoreDiffers, match=r"lead to 1:.*, and its entry says"):
        exported(spark, changed, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def exported(spark: Any, archive: LogTable, into: Path, **options: Any) -> exporting.ExportReport:
    wanted = ExportOptions(archive.where, str(into), **options)
    return exporting.run(wanted, lambda: nullcontext(spark), lambda _done, _total: None)


def items(state: State, store: str) -> list[Any]:
    return [held for held in state.items.values() if held.store == store and held.key]


def test_a_state_is_exported_as_tables_that_others_read(spark: Any, archive: LogTable, tmp_path: Path) -> None:
    state = state_at(ENTRIES, 333)
    report = exported(spark, archive, tmp_path / "out", to_lsn=333)
    tables = {name: DeltaTable(str(tmp_path / "out" / name)).to_pandas() for name in ("quads", "keys", "messages")}
    assert (report.lsn, report.fingerprint) == (333, text_of(ENTRIES[332].fingerprint))
    found = {(row.table, row.key, row.value, row.lsn) for row in tables["keys"].itertuples()}
    assert found == {(held.name, held.key, held.value, held.lsn) for held in items(state, TABLE)}
    messages = {(row.queue, row.place, row.message_id, row.body) for row in tables["messages"].itertuples()}
    assert messages == {(held.name, held.place, held.key, held.value) for held in items(state, QUEUE)}
    quads = tables["quads"].fillna("")
    lines = {
        (row.repository, " ".join(filter(None, (row.subject, row.predicate, row.object, row.graph)))) for row in quads.itertuples()
    }
    assert lines == {(held.name, held.key.decode()) for held in items(state, GRAPH)}
    assert (report.quads, report.keys, report.messages) == tuple(map(len, tables.values()))
    with pytest.raises(StoreError, match="is not empty: choose another place"):
        exported(spark, archive, tmp_path / "out")


def test_a_state_is_exported_as_n_quads(spark: Any, archive: LogTable, tmp_path: Path) -> None:
    report = exported(spark, archive, tmp_path / "out", format="nquads")
    told = json.loads((tmp_path / "out" / "export.json").read_text())
    assert (told["cluster"], told["lsn"], sum(told["files"].values())) == ("orders", COUNT, report.quads)
    found = {(path.split("/")[0], line) for path in told["files"] for line in (tmp_path / "out" / path).read_text().splitlines()}
    assert found == {(held.name, f"{held.key.decode()} .") for held in items(state_at(ENTRIES, COUNT), GRAPH)}


def test_an_archive_that_holds_nothing_leads_to_the_empty_content(spark: Any, tmp_path: Path) -> None:
    empty = archive_of(tmp_path / "empty", [])
    report = rebuilt(spark, empty, into=tmp_path / "w9")
    assert (report.lsn, report.items, report.fingerprint) == (0, 0, text_of(EMPTY))
