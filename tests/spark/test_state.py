"""The state at an LSN on Spark: the same as the fold in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from brokerha.model.errors import StoreDamaged, StoreError
from brokerha.model.fingerprints import DIGEST_BYTES, EMPTY
from brokerha.pipeline.archive import Archive
from brokerha.pipeline.rows import SCHEMA, table_of
from brokerha.pipeline.state import Held, state_at
from brokerha.spark import state as on_spark
from tests.unit.pipeline.made_archives import archive_of
from tests.unit.pipeline.random_log import random_entries

ENTRIES = random_entries(7, 600)
LSNS = (0, 101, 333, 600)
COLUMNS = [*on_spark.ITEM, *on_spark.DIGEST, *on_spark.OF_ITEM, "value", "content_type", "lsn", "kind", on_spark.PLACE]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return archive_of(tmp_path_factory.mktemp("an [odd] name"), ENTRIES)


def of_row(row: Any) -> tuple[bytes, Held]:
    """A row as the fold in plain Python has it."""
    assert row["is_repository"] == (row["kind"] == "create")
    item = on_spark.joined(row["item_high"], row["item_low"]).to_bytes(DIGEST_BYTES, "big")
    terms = [row[name] for name in ("subject", "predicate", "object", "graph") if row[name] is not None]
    key = " ".join(terms).encode() if terms else bytes(row["key"] or b"")
    digest = on_spark.joined(row["digest_high"], row["digest_low"])
    held = Held(
        row["store"], row["name"], key, bytes(row["value"] or b""), row["content_type"] or "", row["place"], digest, row["lsn"]
    )  # fmt: skip
    return item, held


@pytest.mark.parametrize("lsn", LSNS)
def test_items_and_counters_at_an_lsn_are_those_of_the_plain_fold(spark: Any, archive: Archive, lsn: int) -> None:
    expected = state_at(ENTRIES, lsn)
    found = on_spark.items_at(spark, archive, archive.state(), lsn, COLUMNS).collect()
    assert len(found) == len(expected.items)
    assert dict(map(of_row, found)) == expected.items
    assert on_spark.counters_of(on_spark.log_to(spark, archive, archive.state(), lsn)) == expected.counts


@pytest.mark.parametrize("lsn", LSNS)
def test_the_fingerprint_from_the_rows_is_that_of_the_entry(spark: Any, archive: Archive, lsn: int) -> None:
    expected = ENTRIES[lsn - 1].fingerprint if lsn else EMPTY
    assert on_spark.fingerprint_at(spark, archive, archive.state(), lsn) == expected


def test_rows_of_a_range_are_those_of_its_entries_with_the_columns_asked_for(spark: Any, archive: Archive) -> None:
    found = on_spark.rows(spark, archive, archive.state(), 95, 212, ["operation", "lsn", "part", "value", "txid"])
    expected = table_of(ENTRIES[94:212]).select(["operation", "lsn", "part", "value", "txid"]).to_pylist()
    assert found.columns == ["operation", "lsn", "part", "value", "txid"]
    order = ("lsn", "operation", "part")
    assert [row.asDict() for row in found.orderBy(*order).collect()] == expected


def test_only_files_with_a_part_of_the_range_are_read(spark: Any, archive: Archive) -> None:
    found = on_spark.rows(spark, archive, archive.state(), 95, 212)
    assert [Path(file).name for file in sorted(found.inputFiles())] == [
        "1-100.parquet",
        "101-200.parquet",
        "201-300.parquet",
    ]


def test_what_an_archive_does_not_hold_is_refused_and_names_what_it_holds(spark: Any, tmp_path: Path) -> None:
    late = archive_of(tmp_path / "late", ENTRIES[100:300])
    with pytest.raises(StoreError, match="holds LSN 101 to 300, and 1 to 300 is asked for"):
        on_spark.rows(spark, late, late.state(), 1, 300)
    with pytest.raises(StoreError, match="begins with LSN 101: no state can be computed"):
        on_spark.fingerprint_at(spark, late, late.state(), 300)
    late.path(late.state().files[1]).unlink()
    with pytest.raises(StoreDamaged, match=r"201-300\.parquet is missing"):
        on_spark.rows(spark, late, late.state(), 150, 300)


def test_the_schema_of_rows_is_the_one_of_the_contract(spark: Any, archive: Archive) -> None:
    assert on_spark.rows(spark, archive, archive.state(), 1, 10).columns == SCHEMA.names
