"""Ids are written by key range, bounded per turn, and found wherever they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerha.journal.database import Database
from brokerha.journal.known_ids import KnownIds
from brokerha.journal.rows import PARTITIONS


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "data.mdb", 1 << 24)
    yield database
    database.close()


def entries(first: int, last: int) -> tuple[tuple[int, str, str], ...]:
    return tuple((n, f"id-{n}", "m1") for n in range(first, last + 1))


def write(ids: KnownIds, database: Database, next_lsn: int, most: int = 10_000) -> int:
    """Write what is due; returns how many rows the table has then."""
    with database.env.begin(write=True) as txn:
        ids.write(txn, database.tables.ids, next_lsn, most)
        count = txn.stat(database.tables.ids)["entries"]
    database.refresh()
    return count


def test_few_ids_wait_in_memory(database: Database) -> None:
    ids = KnownIds(100)
    ids.add(1, entries(1, 100))
    assert write(ids, database, 101) == 0
    assert ids.find("id-7", database.get_id) == 7
    assert ids.first_waiting == 1


def test_ids_beyond_the_limit_are_written_and_all_are_found(database: Database) -> None:
    ids = KnownIds(100)
    ids.add(1, entries(1, 1_000))
    assert 900 <= write(ids, database, 1_001) < 1_000
    assert [ids.find(f"id-{n}", database.get_id) for n in range(1_002)] == [None, *range(1, 1_001), None]


def test_one_turn_writes_a_bounded_number(database: Database) -> None:
    ids = KnownIds(0)
    ids.add(1, entries(1, 5_000))
    written = write(ids, database, 5_001, most=50)
    assert 50 <= written < 100


def test_what_a_restart_has_to_read_moves_on_with_what_is_written(database: Database) -> None:
    ids = KnownIds(0)
    for first in range(1, 3_000, 10):
        ids.add(first, entries(first, first + 9))
        write(ids, database, first + 10, most=20)
        # Whatever has a lower LSN than `first_waiting` is found without memory.
        fresh = KnownIds(0)
        fresh.start(ids.first_waiting)
        for lsn in range(max(1, ids.first_waiting - 3), ids.first_waiting):
            assert fresh.find(f"id-{lsn}", database.get_id) == lsn
    assert ids.first_waiting > 1


def test_all_below_an_lsn_are_written_on_demand(database: Database) -> None:
    ids = KnownIds(10_000)
    ids.add(1, entries(1, 300))
    with database.env.begin(write=True) as txn:
        ids.write_below(200, txn, database.tables.ids, 301, 10_000)
        assert txn.stat(database.tables.ids)["entries"] == 300
    assert ids.first_waiting == 301


def test_ids_spread_over_all_partitions() -> None:
    ids = KnownIds(10**6)
    ids.add(1, entries(1, 40 * PARTITIONS))
    sizes = [len(buffer) for buffer in ids._buffers]
    assert min(sizes) > 10
    assert max(sizes) < 100
