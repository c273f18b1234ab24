"""The state at an LSN on Spark: the same as a fold in plain Python, entry by entry."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from brokerha.model.errors import InvalidRequest, StoreDamaged, StoreError
from brokerha.model.fingerprints import DIGEST_BYTES, EMPTY
from brokerha.pipeline.rows import table_of
from brokerha.pipeline.table import LogTable
from brokerha.spark import frames
from tests.unit.pipeline.made_archives import Log, archive_of
from tests.unit.pipeline.plain_state import Held, state_at
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(7, 600)
LSNS = (0, 333, 600)
COLUMNS = [*frames.ITEM, *frames.DIGEST, *frames.OF_ITEM, "value", "content_type", "lsn", "kind", frames.PLACE]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> LogTable:
    return archive_of(tmp_path_factory.mktemp("an [odd] name"), ENTRIES)


def of_row(row: Any) -> tuple[bytes, Held]:
    """A row as the fold in plain Python has it."""
    assert row["is_repository"] == (row["kind"] == "create")
    item = frames.joined(row["item_high"], row["item_low"]).to_bytes(DIGEST_BYTES, "big")
    terms = [row[name] for name in ("subject", "predicate", "object", "graph") if row[name] is not None]
    key = " ".join(terms).encode() if terms else bytes(row["key"] or b"")
    digest = frames.joined(row["digest_high"], row["digest_low"])
    held = Held(
        row["store"], row["name"], key, bytes(row["value"] or b""), row["content_type"] or "", row["place"], digest, row["lsn"]
    )  # fmt: skip
    return item, held


@pytest.mark.parametrize("lsn", LSNS)
def test_items_counters_and_fingerprint_at_an_lsn_are_those_of_the_plain_fold(spark: Any, archive: LogTable, lsn: int) -> None:
    expected = state_at(ENTRIES, lsn)
    log = frames.archived(spark, archive, archive.state(), 1, lsn)
    found = frames.state(log, columns=COLUMNS).collect()
    assert len(found) == len(expected.items)
    assert dict(map(of_row, found)) == expected.items
    assert frames.counters(log) == expected.counts
    assert frames.fingerprint(log) == (ENTRIES[lsn - 1].fingerprint if lsn else EMPTY)


def test_any_log_gives_its_state_at_an_lsn_or_a_time(spark: Any, archive: LogTable) -> None:
    log = spark.read.format("brokerha").option("archive", archive.where).load()
    expected = {
        (item.lsn, item.name, item.key, item.value) for item in state_at(ENTRIES, 200).items.values() if item.store == "table"
    }
    when = datetime.fromtimestamp(ENTRIES[199].timestamp / 1e6, UTC)
    for state in (frames.state(log, lsn=200), frames.state(log, time=when)):
        found = state.where("store = 'table'").select("lsn", "name", "key", "value").collect()
        assert {(row.lsn, row.name, bytes(row.key), bytes(row.value)) for row in found} == expected
    with pytest.raises(InvalidRequest, match="give one of them"):
        frames.state(log, lsn=1, time=when)
    with pytest.raises(InvalidRequest, match="has no time zone"):
        frames.state(log, time=when.replace(tzinfo=None))
    # It lacks quads that went after LSN 200 with all of their repository.
    for earlier in ({"lsn": 200}, {"time": when}):
        with pytest.raises(InvalidRequest, match="by LSN or time first, then call unfolded"):
            frames.state(frames.unfolded(log), is_unfolded=True, **earlier)


def test_a_state_lacks_nothing_that_was_written_before_the_rows_begin(spark: Any, tmp_path: Path) -> None:
    log = spark.read.format("brokerha").options(**Log(tmp_path, ENTRIES[100:200]).spec.options()).load()
    for made in (frames.state, frames.counters, frames.fingerprint):
        with pytest.raises(InvalidRequest, match=r"the rows do not begin with LSN 1, .* read the log with startingLsn 1"):
            made(log)
    with pytest.raises(InvalidRequest, match="the rows do not begin with LSN 1"):
        frames.state(log, lsn=50)


def test_rows_of_a_range_are_those_of_its_entries_from_files_that_hold_a_part(spark: Any, archive: LogTable) -> None:
    found = frames.archived(spark, archive, archive.state(), 95, 212, ["operation", "lsn", "part", "value", "txid"])
    expected = table_of(ENTRIES[94:212]).select(["operation", "lsn", "part", "value", "txid"]).to_pylist()
    assert found.columns == ["operation", "lsn", "part", "value", "txid"]
    assert [row.asDict() for row in found.orderBy("lsn", "operation", "part").collect()] == expected
    assert {Path(file).name for file in found.inputFiles()} == {file.path for file in archive.state().files[:3]}


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_file_without_bytes_is_not_taken_for_one_without_rows(spark: Any, tmp_path: Path, is_gone: bool) -> None:
    lacking = archive_of(tmp_path / "lacking", ENTRIES[:300])
    file = Path(lacking.where, lacking.state().files[1].path)
    file.unlink()
    if not is_gone:
        file.touch()
    with pytest.raises(StoreDamaged, match=f"{file.name} is missing or empty: use a copy of this archive"):
        frames.archived(spark, lacking, lacking.state(), 1, 300)
    assert frames.archived(spark, lacking, lacking.state(), 1, 90).select("lsn").distinct().count() == 90


def test_what_an_archive_does_not_hold_is_refused_and_names_what_it_holds(spark: Any, tmp_path: Path) -> None:
    late = archive_of(tmp_path / "late", ENTRIES[100:300])
    with pytest.raises(StoreError, match="holds LSN 101 to 300, and 1 to 300 is asked for"):
        frames.archived(spark, late, late.state(), 1, 300)
    with pytest.raises(StoreError, match="begins with LSN 101: no state can be computed"):
        frames.check_whole(late, late.state())
