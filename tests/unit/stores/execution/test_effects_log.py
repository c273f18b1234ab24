"""The effects log by itself: rows of any size hold the same lines, and each place in them can be found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from brokerha.model.errors import StoreDamaged
from brokerha.model.invariants import InvariantBroken
from brokerha.model.operations import APPLIED, Logged
from brokerha.stores.execution.effects_log import ROW_LIMIT_BYTES, ROW_LINES_LIMIT, EffectsLog

NO_LIMIT = 10**12


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Any]:
    with lmdb.Environment(str(tmp_path), map_size=1 << 28, max_dbs=2) as environment:
        yield environment


@pytest.fixture
def table(environment: Any) -> Any:
    return environment.open_db(b"effects")


@pytest.fixture
def log(table: Any) -> EffectsLog:
    return EffectsLog(table)


@pytest.fixture
def writing(environment: Any, table: Any) -> Iterator[Any]:
    with environment.begin(db=table, write=True) as transaction:
        yield transaction


def lines(first: int, count: int, size: int = 10) -> list[Logged]:
    return [
        Logged(f"tx-{lsn}", lsn, APPLIED, "", b"%d" % lsn + bytes(size), b"\x01fingerprint") for lsn in range(first, first + count)
    ]


@pytest.mark.parametrize(
    ("count", "size"), [(1, 10), (ROW_LINES_LIMIT, 0), (ROW_LINES_LIMIT + 1, 0), (2000, 3), (7, 400_000), (2, 3 * ROW_LIMIT_BYTES)]
)
def test_many_or_large_lines_are_found_at_their_lsn(log: EffectsLog, writing: Any, count: int, size: int) -> None:
    given = lines(1, count, size) + lines(count + 1, 3)
    log.append(writing, 1, given[:count])
    log.append(writing, count + 1, given[count:])
    assert log.read(writing, 1, count + 3) == given
    for lsn in {1, 2, count // 2 + 1, count, count + 1, count + 3}:
        assert log.read(writing, lsn, lsn) == [given[lsn - 1]]
        assert log.read(writing, lsn, lsn + 1) == given[lsn - 1 : lsn + 1]
    assert log.read(writing, count + 4, count + 9) == []
    for _, row in log.rows(writing, 1):
        assert len(row) <= ROW_LINES_LIMIT
        assert len(row) == 1 or sum(len(line.effect) for line in row) <= ROW_LIMIT_BYTES


def test_an_empty_log_has_no_lines(log: EffectsLog, writing: Any) -> None:
    assert log.read(writing, 1, 10) == []
    log.trim(writing, below=100, limit_bytes=0)
    assert list(log.rows(writing, 1)) == []


def test_trimming_drops_whole_rows_and_never_the_last(log: EffectsLog, writing: Any) -> None:
    for first in (1, 11, 21):
        log.append(writing, first, lines(first, 10))
    log.trim(writing, below=11, limit_bytes=NO_LIMIT)
    assert log.read(writing, 10, 12) == []
    assert log.read(writing, 11, 12) == lines(11, 2)
    log.trim(writing, below=20, limit_bytes=NO_LIMIT)
    assert log.read(writing, 11, 30) == lines(11, 20)
    log.trim(writing, below=1000, limit_bytes=NO_LIMIT)
    assert log.read(writing, 11, 30) == []
    assert log.read(writing, 21, 30) == lines(21, 10)
    log.trim(writing, below=0, limit_bytes=0)
    assert log.read(writing, 21, 30) == lines(21, 10)


def test_a_log_that_is_too_large_loses_its_oldest_rows(log: EffectsLog, writing: Any) -> None:
    for lsn in range(1, 11):
        log.append(writing, lsn, lines(lsn, 1, 100_000))
    log.trim(writing, below=0, limit_bytes=450_000)
    held = [lsn for lsn in range(1, 11) if log.read(writing, lsn, lsn)]
    assert held == [7, 8, 9, 10]


def test_a_row_never_replaces_another(log: EffectsLog, writing: Any) -> None:
    log.append(writing, 5, lines(5, 1))
    for lsn in (5, 4):
        with pytest.raises((InvariantBroken, lmdb.KeyExistsError)):
            log.append(writing, lsn, lines(lsn, 1))


def test_a_row_that_was_changed_is_an_error(log: EffectsLog, writing: Any) -> None:
    log.append(writing, 1, lines(1, 2))
    log.append(writing, 3, lines(3, 2))
    with writing.cursor() as cursor:
        cursor.last()
        key, row = cursor.item()
        cursor.put(key, row[:-1] + b"!")
        # The right row at the wrong place is damage too.
        cursor.put((9).to_bytes(8, "big"), row)
    assert log.read(writing, 1, 2) == lines(1, 2)
    for lsn in (3, 9):
        with pytest.raises(StoreDamaged, match=f"damaged at LSN {lsn}"):
            log.read(writing, lsn, lsn)


def test_a_row_that_is_missing_between_others_is_an_error(log: EffectsLog, writing: Any) -> None:
    for first in (1, 3, 5):
        log.append(writing, first, lines(first, 2))
    writing.delete((3).to_bytes(8, "big"))
    assert log.read(writing, 1, 2) == lines(1, 2)
    with pytest.raises(StoreDamaged, match="lacks LSN 3 to 4"):
        log.read(writing, 1, 5)
