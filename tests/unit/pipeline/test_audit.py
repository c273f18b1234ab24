"""The audit without Spark: an archive that is whole, one that was changed, and lists of transaction ids."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from brokerha.model.errors import ConfigurationError, StoreError, WentBack
from brokerha.model.operations import unpack_effect
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.archive_manifest import MANIFEST, ArchiveState, pack_manifest
from brokerha.pipeline.audit import AuditOptions, read_txids, run, run_audit
from brokerha.pipeline.audit_pieces import EngineOfPieces, TasksHere
from brokerha.pipeline.generating import write_backup
from brokerha.pipeline.rows import table_of
from brokerha.pipeline.sources import SourceSpec
from tests.unit.pipeline.audit_place import ENTRIES, STORE, Copy, Log, audit, copied, lsn_with, rewritten
from tests.unit.pipeline.made_archives import archive_of, file_of, write_manifest


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return archive_of(tmp_path / "archive", ENTRIES)


def test_an_archive_that_is_whole_is_proved_by_the_fingerprint_of_its_last_entry(archive: Archive) -> None:
    report = audit(archive)
    assert (report.result, report.is_proved, report.lsn, report.problems) == ("equal", True, 600, ())
    assert report.fingerprint == STORE.applied().fingerprint
    assert (
        audit(archive, lsn=0).result == audit(archive, lsn=57).result == audit(archive, is_deep=True).result == "equal"
    )


def test_an_lsn_that_the_archive_does_not_hold_is_refused(archive: Archive) -> None:
    with pytest.raises(ConfigurationError, match="holds LSN 1 to 600, not LSN 601"):
        audit(archive, lsn=601)


def test_an_archive_without_entries_is_said_to_hold_nothing_yet(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_bytes(pack_manifest(ArchiveState(id="a", cluster="orders", generation=1)))
    with pytest.raises(ConfigurationError, match="holds nothing yet, not LSN 5"):
        audit(Archive(tmp_path), lsn=5)


def test_an_archive_that_begins_late_proves_no_content_and_says_so(tmp_path: Path) -> None:
    late = archive_of(tmp_path / "late", ENTRIES[100:])
    report = audit(late, Log(ENTRIES), {"w1": copied()})
    assert report.result == "not compared"
    assert not report.problems
    assert "begins with LSN 101" in report.notes[0]
    assert report.copies[0].reason == "no content can be computed from the archive"


def test_a_missing_file_is_named_with_the_lsns_that_it_held(archive: Archive) -> None:
    archive.path(archive.state().files[2]).unlink()
    report = audit(archive, Log(ENTRIES), {"w1": copied()})
    assert report.result == "differs"
    assert [(each.file, each.lsn, each.what) for each in report.problems] == [
        ("log/201-300.parquet", 0, "is missing: it held LSN 201 to 300")
    ]
    assert report.copies[0].reason == "the archive is not what was archived"


def test_bytes_that_are_no_parquet_file_any_more_are_named(archive: Archive) -> None:
    path = archive.path(archive.state().files[2])
    path.write_bytes(path.read_bytes()[:-100])
    report = audit(archive)
    assert {each.file for each in report.problems} == {"log/201-300.parquet"}
    assert "SHA-256 differs" in report.problems[0].what
    assert "cannot be read" in report.problems[1].what


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("put", {"value": b"changed"}),
        ("put", {"txid": "another"}),
        ("put", {"key": b"changed"}),
        ("put", {"kind": "delete"}),
        ("quads", {"object": "<urn:changed>"}),
        ("publish", {"value": b"changed"}),
        ("control-add", {"value": msgpack.packb(["key", "t", "k", "present"])}),
        ("create-repository", {"name": "changed"}),
        ("accept", {"key": b"t1.1"}),
    ],
)
def test_a_changed_row_is_named_by_file_and_lsn(archive: Archive, kind: str, change: dict[str, Any]) -> None:
    lsn = lsn_with(kind)
    rows = {"quads": "", "control-add": "check", "create-repository": "create"}
    file, _ = rewritten(archive, lsn, change, rows.get(kind, kind))
    report = audit(archive)
    assert report.result == "differs"
    assert {each.file for each in report.problems} == {file}
    assert {each.lsn for each in report.problems} == {0, lsn}


@pytest.mark.parametrize(
    "change", [{"item_high": 5}, {"digest_low": 5}, {"tombstone": True}, {"store": "graph"}, {"origin": "m9"}]
)
def test_a_changed_column_that_no_entry_hash_covers_is_named_by_the_bytes_and_the_lsn(
    archive: Archive, change: dict[str, Any]
) -> None:
    lsn = lsn_with("put")
    rewritten(archive, lsn, change, "put")
    report = audit(archive)
    named = {each.lsn for each in report.problems}
    # The origin follows from nothing, so only the bytes tell of it.
    assert named == ({0} if "origin" in change else {0, lsn})


def test_a_changed_entry_hash_is_named(archive: Archive) -> None:
    lsn = lsn_with("put")
    rewritten(archive, lsn, {"entry_hash": b"\0" * 32})
    assert {each.lsn for each in audit(archive).problems} == {0, lsn}


def test_with_the_log_of_the_cluster_a_changed_row_is_told_cell_by_cell(archive: Archive) -> None:
    lsn = lsn_with("put")
    _, before = rewritten(archive, lsn, {"value": b"changed"}, "put")
    problem = next(each for each in audit(archive, Log(ENTRIES)).problems if each.lsn)
    assert f"put in table {before['name']}, key" in problem.what
    assert "value is 'changed', and" in problem.what


def test_an_entry_that_is_gone_from_its_file_is_named(archive: Archive) -> None:
    file = archive.state().files[1]
    table = archive.table(file)
    pq.write_table(table.filter(pc.not_equal(table["lsn"], 150)), archive.path(file))
    assert (150, "is missing: after LSN 149 comes 151") in [(each.lsn, each.what) for each in audit(archive).problems]


def test_entries_that_were_replaced_together_with_hashes_and_manifest_break_the_proof_at_their_lsn(
    tmp_path: Path,
) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES)
    lsn = lsn_with("put")
    changes = [(*each[:3], b"changed") if each[0] == "put" else each for each in unpack_effect(ENTRIES[lsn - 1].effect)]
    entries = list(ENTRIES)
    entries[lsn - 1] = entries[lsn - 1]._replace(effect=msgpack.packb(changes))
    files = [file_of(archive.directory, entries[each.first_lsn - 1 : each.last_lsn]) for each in archive.state().files]
    write_manifest(archive.directory, files)
    report = audit(archive, is_deep=True)
    assert [each.lsn for each in report.problems] == [lsn]
    assert "does not fit what is before it" in report.problems[0].what


def test_rows_that_were_replaced_together_with_their_hashes_but_not_in_the_chain_are_named_as_that(
    archive: Archive,
) -> None:
    file = archive.state().files[1]
    entries = [entry._replace(reason="changed") for entry in ENTRIES[100:200]]
    pq.write_table(table_of(entries), archive.path(file))
    assert "entries were replaced together with their hashes" in audit(archive).problems[1].what


def test_another_history_than_that_of_the_cluster_is_refused(archive: Archive) -> None:
    other = [entry._replace(txid=f"other-{entry.lsn}") for entry in ENTRIES]
    with pytest.raises(StoreError, match="two histories: LSN 600 is another entry there"):
        audit(archive, Log(other))


# ---- transaction ids


def test_acknowledged_ids_are_looked_for_in_the_archive_and_behind_it(tmp_path: Path) -> None:
    archive = archive_of(tmp_path / "archive", ENTRIES[:300])
    wanted = tmp_path / "txids"
    wanted.write_text("t1\nt2\nt2\n\n t599 \nlost-1\nlost-2\n")
    ids = audit(archive, Log(ENTRIES), txids=wanted).txids
    assert ids is not None
    assert (ids.given, ids.found, ids.missing, ids.missing_number) == (5, 3, ("lost-1", "lost-2"), 2)
    assert audit(archive, Log(ENTRIES), txids=wanted).result == "differs"
    wanted.write_text("t1\nt600\n")
    assert audit(archive, Log(ENTRIES), txids=wanted).result == "equal"


def test_an_id_that_stands_in_the_log_twice_is_named_with_its_lsns(tmp_path: Path) -> None:
    entries = list(ENTRIES)
    entries[400] = entries[400]._replace(txid="t7")
    archive = archive_of(tmp_path / "archive", entries)
    wanted = tmp_path / "txids"
    wanted.write_text("t6\nt7\n")
    ids = audit(archive, txids=wanted).txids
    assert ids is not None
    assert ids.repeated == (("t7", (7, 401)),)


# ---- the job


def test_progress_counts_files_the_proof_copies_and_ids(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "txids").write_text("t1\n")
    seen: list[tuple[int, int]] = []
    options = AuditOptions(archive.directory, txids=tmp_path / "txids")
    run_audit(
        options, EngineOfPieces(archive, archive.state(), TasksHere()), None, no_copy, lambda *step: seen.append(step)
    )
    assert seen == [(number, 8) for number in range(1, 9)]


def no_copy(_url: str) -> contextlib.AbstractContextManager[Copy]:
    raise AssertionError("there is none")


def no_spark() -> contextlib.AbstractContextManager[TasksHere]:
    raise AssertionError("Spark is not needed")


def test_a_small_archive_is_audited_without_spark_and_a_large_one_asks_for_it(archive: Archive) -> None:
    asked: list[int] = []

    @contextlib.contextmanager
    def on_spark() -> Iterator[TasksHere]:
        asked.append(1)
        yield TasksHere()

    options = AuditOptions(archive.directory)
    assert run(options, no_spark, lambda _done, _total: None).result == "equal"
    assert run(replace(options, here_rows=100), on_spark, lambda _done, _total: None).result == "equal"
    assert asked == [1]


def test_the_log_of_another_cluster_is_refused(archive: Archive, tmp_path: Path) -> None:
    write_backup(tmp_path / "backup", 20)
    options = AuditOptions(archive.directory, source=SourceSpec(backup=str(tmp_path / "backup")))
    with pytest.raises(ConfigurationError, match=r"is that of cluster orders, and the backup in .* is of synthetic"):
        run(options, no_spark, lambda _done, _total: None)


def test_a_file_of_ids_that_is_not_there_is_named_with_the_reason_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as told:
        read_txids(tmp_path / "none")
    assert str(told.value) == f"cannot read transaction ids from {tmp_path / 'none'}: No such file or directory"


def test_an_archive_with_what_a_split_made_void_is_not_compared_with_the_log_of_now(archive: Archive) -> None:
    log = Log(ENTRIES)
    log.went_back = ((5, archive.state().last_lsn - 1),)
    with pytest.raises(WentBack, match="cannot be compared with the log of now"):
        audit(archive, log)
    log.went_back = ((5, archive.state().last_lsn),)
    assert not audit(archive, log).problems
