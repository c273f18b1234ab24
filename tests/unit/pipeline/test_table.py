"""The table of an archive, without Spark: what it takes and refuses, what it says of itself, and that others read it."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from brokerha.model.errors import InvalidRequest, StoreDamaged, StoreError
from brokerha.model.fingerprints import EMPTY, text_of
from brokerha.pipeline import observations, table
from brokerha.pipeline.entries import entry_hash
from brokerha.pipeline.places import place
from brokerha.pipeline.rows import SCHEMA, table_of
from brokerha.pipeline.table import Head, LogTable, block_digest, extended, groups, next_chain
from tests.unit.pipeline.made_archives import archive_of, file_of, held
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(7, 300)


@pytest.fixture
def archive(tmp_path: Path) -> LogTable:
    return archive_of(tmp_path / "an [odd] näme", ENTRIES[:200])


def test_an_archive_says_what_it_holds_and_gives_it_back(archive: LogTable) -> None:
    state = archive.state()
    last = ENTRIES[199]
    assert (state.head.cluster, state.head.first_lsn, state.head.last_lsn) == ("orders", 1, 200)
    assert (state.head.txid, state.head.fingerprint) == (last.txid, text_of(last.fingerprint))
    assert [(file.first_lsn, file.last_lsn) for file in state.files] == [(1, 100), (101, 200)]
    assert state.rows == table_of(ENTRIES[:200]).num_rows
    assert held(archive) == ENTRIES[:200]


def test_a_file_is_named_by_its_bytes_and_the_same_rows_make_the_same_file(archive: LogTable) -> None:
    for file in archive.state().files:
        assert file.path == hashlib.sha256(Path(archive.path(file)).read_bytes()).hexdigest() + ".parquet"
    assert file_of(archive, ENTRIES[:100]).name == archive.state().files[0].path


def test_delta_rs_and_pandas_read_it_without_us(archive: LogTable) -> None:
    frame = DeltaTable(archive.where).to_pandas()
    assert list(frame.columns) == SCHEMA.names
    assert (len(frame), frame["lsn"].max()) == (archive.state().rows, 200)
    assert DeltaTable(archive.where).transaction_version("brokerha") == 200


def test_files_go_on_where_the_archive_ends_all_or_none(archive: LogTable) -> None:
    state = archive.state()
    with pytest.raises(StoreDamaged, match="after LSN 200 the source gave 211 to 300: nothing was archived"):
        archive.append(state, [file_of(archive, ENTRIES[210:])])
    with pytest.raises(StoreDamaged, match="after LSN 250 the source gave 261 to 300"):
        archive.append(state, [file_of(archive, ENTRIES[260:]), file_of(archive, ENTRIES[200:250])])
    assert archive.state() == state
    after = archive.append(state, [file_of(archive, ENTRIES[250:]), file_of(archive, ENTRIES[200:250])])
    assert (after.head.last_lsn, held(archive)) == (300, ENTRIES)


def test_two_jobs_cannot_both_go_on_from_the_same_lsn(archive: LogTable) -> None:
    state = archive.state()
    archive.append(state, [file_of(archive, ENTRIES[200:250])])
    with pytest.raises(StoreError, match="another job is writing into the archive"):
        archive.append(state, [file_of(archive, ENTRIES[200:300])])
    assert held(archive) == ENTRIES[:250]


def test_rows_out_of_order_are_not_written(archive: LogTable) -> None:
    for entries in ([ENTRIES[5], ENTRIES[4]], [ENTRIES[4], ENTRIES[6]]):
        with pytest.raises(StoreDamaged, match="not in the order of their LSNs"):
            file_of(archive, entries)


def test_the_chain_is_the_same_however_entries_were_cut_into_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "BLOCK", 64)
    at_once = archive_of(tmp_path / "a", ENTRIES, 300).state().head
    slowly = archive_of(tmp_path / "b", ENTRIES[:10])
    for begin, end in ((10, 63), (63, 64), (64, 192), (192, 300)):
        slowly.append(slowly.state(), [file_of(slowly, ENTRIES[begin:end])])
    assert slowly.state().head == at_once
    chain = ""
    for begin in range(0, 300, 64):
        chain = next_chain(chain, block_digest(b"".join(map(entry_hash, ENTRIES[begin : begin + 64]))))
    assert at_once.chain == chain
    other = extended(Head(), b"", b"".join(map(entry_hash, [*ENTRIES[:150], ENTRIES[0], *ENTRIES[151:]])))
    assert other.chain != chain


def test_the_fingerprint_the_time_and_the_lsn_of_a_time_are_found(archive: LogTable) -> None:
    state = archive.state()
    assert archive.fingerprint_at(state, 0) == EMPTY
    for lsn in (1, 100, 101, 200):
        entry = ENTRIES[lsn - 1]
        assert archive.fingerprint_at(state, lsn) == entry.fingerprint
        assert archive.timestamp_at(state, lsn) == entry.timestamp
        assert [archive.lsn_at(state, entry.timestamp + more) for more in (-1, 0, 1)] == [lsn - 1, lsn, lsn]
    assert (archive.lsn_at(state, 0), archive.lsn_at(state, 1 << 60)) == (0, 200)
    with pytest.raises(StoreError, match="holds LSN 1 to 200, and 201 to 201 is asked for"):
        archive.fingerprint_at(state, 201)


def test_rows_of_a_range_come_in_their_order_also_when_another_program_put_files_together(archive: LogTable) -> None:
    DeltaTable(archive.where).optimize.compact()
    state = archive.state()
    assert (len(state.files), state.head.last_lsn) == (1, 200)
    assert held(archive) == ENTRIES[:200]
    found = archive.rows(state, 95, 105, ["lsn", "txid"])
    assert found.to_pylist() == table_of(ENTRIES[94:105]).select(["lsn", "txid"]).to_pylist()
    after = archive.append(state, [file_of(archive, ENTRIES[200:])])
    assert (after.head.chain, held(archive)) == (extended(Head(), b"", b"".join(map(entry_hash, ENTRIES))).chain, ENTRIES)


def test_files_that_are_put_together_hold_the_same_and_the_old_ones_go_with_vacuum(archive: LogTable) -> None:
    state = archive.state()
    merged = file_of(archive, ENTRIES[:200])
    with pytest.raises(StoreDamaged, match="do not hold what the table says"):
        archive.replace(state, [(state.files[:1], merged)])
    after = archive.replace(state, [(state.files, merged)])
    assert ([file.path for file in after.files], after.head) == ([merged.name], state.head)
    assert len(list(Path(archive.where).glob("*.parquet"))) == 3
    assert archive.vacuum(0, is_dry_run=True) == archive.vacuum(0) == 2
    assert held(archive) == ENTRIES[:200]


def test_a_group_of_files_is_worth_it_when_it_doubles_its_largest() -> None:
    def files(*rows: int) -> list[table.LogFile]:
        return [table.LogFile(str(at), each, each, at, at, 0, 0) for at, each in enumerate(rows)]

    def sizes(*rows: int) -> list[list[int]]:
        return [[file.rows for file in group] for group in groups(files(*rows), target_rows=1000)]

    assert sizes(10, 10, 10, 900, 20, 20) == [[10, 10, 10], [20, 20]]
    assert sizes(600, 600, 600) == []
    assert sizes(10, 100, 9) == []
    assert sizes(*[10] * 150) == [[10] * 100, [10] * 50]


def test_what_is_no_archive_is_refused_with_one_sentence(archive: LogTable, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no archive in .*nowhere: make one with brokerha pipeline archive"):
        LogTable(str(tmp_path / "nowhere")).state()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text("{}")
    with pytest.raises(StoreError, match=r"is of brokerha 0\.1, which later versions do not read: archive the log again"):
        LogTable(str(tmp_path / "old")).exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("")
    with pytest.raises(StoreError, match=r"is no archive and not empty \(it has letter.txt\)"):
        LogTable(str(tmp_path / "full")).exists()
    (Path(archive.where) / "_delta_log" / f"{1:020}.json").write_bytes(b"{")
    with pytest.raises(StoreDamaged, match="cannot be read"):
        archive.state()


def test_a_table_of_another_format_or_of_another_program_is_refused(tmp_path: Path) -> None:
    later = LogTable(str(tmp_path / "later"))
    with pytest.raises(StoreError, match="has format 9, this program knows 3: use a later brokerha"):
        later.begin(dataclasses.replace(Head(), format=9))
    import pyarrow as pa
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "foreign"), pa.table({"a": [1]}))
    with pytest.raises(StoreDamaged, match="is no archive of brokerha: none of its commits says what it holds"):
        LogTable(str(tmp_path / "foreign")).state()


@pytest.mark.parametrize("text", ["gopher://h/x", "http://h/x", "s3://", "S3 ://b/x"])
def test_a_place_that_nobody_serves_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"no place for data|names no bucket"):
        place(text)


@pytest.mark.parametrize("name", ["of #1", "why?", "a%20b", "a\\b"])
def test_a_folder_in_which_the_table_would_not_be_found_again_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot hold a Delta table, because of the"):
        archive_of(tmp_path / name, ENTRIES[:1])
    with pytest.raises(InvalidRequest, match="choose another folder"):
        LogTable(str(tmp_path / name)).state_or_new()
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["50% [of] {all}", "ü é", "a&b;c:d+e~f'g\"h*"])
def test_a_folder_can_have_any_other_name(tmp_path: Path, name: str) -> None:
    assert held(archive_of(tmp_path / name, ENTRIES[:3])) == ENTRIES[:3]


def test_what_nodes_say_is_kept_beside_the_archive(archive: LogTable) -> None:
    assert observations.read(archive.where) == []
    row: dict[str, Any] = {"id": "m1", "role": "master", "master": None, "state": "in-sync", "lag_s": 0.5, "view": 3}
    for time_us in (5, 3):
        observations.append(archive.where, observations.observed({"epoch": 2, "nodes": [row]}, time_us))
    seen = observations.read(archive.where)
    assert [(each.time_us, each.node, each.lag_s, each.items, each.epoch) for each in seen] == [
        (3, "m1", 0.5, None, 2), (5, "m1", 0.5, None, 2)
    ]  # fmt: skip
    assert archive.state().head.last_lsn == 200
