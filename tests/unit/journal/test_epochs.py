"""Epochs in the file: a long recovered list is written once, nothing of what it left out leaks, and damage to it is named."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.journal.recovery import STATE
from brokerha.journal.rows import number_key
from brokerha.journal.verification import verify_directory
from brokerha.model.codec import encode_record
from brokerha.model.epochs import Epoch
from brokerha.model.errors import JournalDamaged
from brokerha.model.records import EpochInstalled, EpochPromised, Record
from tests.unit.journal.turns import Author, filled


def opened(directory: Path) -> LmdbJournal:
    return LmdbJournal(directory, "orders", "m1", ids_buffered=2, tail_records=2)


def test_a_long_recovered_list_is_written_once(tmp_path: Path) -> None:
    # Given an epoch as long as they come
    recovered = tuple((10 * n, f"a-transaction-of-a-client-{n:09d}", "m2") for n in range(100_000))
    record = EpochInstalled(Epoch(2, "m2", ("m1", "m2"), recovered=recovered, starts={"m2": 100_000}))
    journal = opened(tmp_path)
    journal.append([record])
    before = journal._written_bytes
    # When more turns are written
    filled(journal, turns=50)
    # Then none of them writes it again
    assert before > len(encode_record(record)) > 4_000_000
    assert journal._written_bytes - before < 20_000
    assert len(journal._database.get(STATE, journal._database.tables.meta) or b"") < 1_000
    assert journal.size()[1] < 1.1 * before
    journal.close()
    # And a restart finds it
    journal = opened(tmp_path)
    assert journal.state().installed == record.epoch
    journal.close()


def test_nothing_of_an_epoch_is_left_when_all_of_it_is_trimmed(tmp_path: Path) -> None:
    # Given entries of two masters: some are recovered, one is left out as a duplicate, the own rest is parked again
    journal, author = opened(tmp_path), Author("m1", "m2")
    journal.append([author.accept("a", "b", "c"), author.stamp("a", "b", "c")])
    for n in range(4):
        journal.append([author.hold("m2", f"x{n}"), author.append("m2", f"x{n}")])
    journal.append([author.hold("m2", "a"), author.append("m2", "a")])
    recovered = [(10, "a", "m1"), *[(40 + 10 * n, f"x{n}", "m2") for n in range(4)]]
    journal.append([author.install(2, recovered, {"m1": 3}), author.bring(recovered)])
    # When all of it is synchronised and trimmed, with restarts in between
    for turn in ([author.stamp("b")], [author.stamp("c")], [author.add(9)], [author.execute(author.lsn)]):
        journal.close()
        journal = opened(tmp_path)
        journal.append(turn)
    while journal.trim(99):
        pass
    # Then only the epoch is left, and what stays as long as ids do
    tables = journal._database.tables
    held = {name: len(journal._database.rows(table, b"", 99)) for name, table in tables._asdict().items()}
    assert [type(found) for _, found in journal.records()] == [EpochInstalled]
    assert {name for name, count in held.items() if count} == {"meta", "log", "ids", "rejected"}
    assert not journal._tail.spilled
    assert not any(journal._tail.places.values())
    assert list(journal.verify()) == []
    journal.close()


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_an_epoch_whose_record_is_missing_is_damage(tmp_path: Path, is_trimmed: bool) -> None:
    journal = opened(tmp_path)
    author = filled(journal, turns=3)
    journal.append([author.install(2, (), {})])
    filled(journal, turns=3, author=author)
    if is_trimmed:
        journal.trim(6)
    number = next(number for number, record in journal.records() if isinstance(record, EpochInstalled))
    journal.close()
    with lmdb.open(str(tmp_path), max_dbs=20) as environment:
        log = environment.open_db(b"log")
        with environment.begin(write=True) as txn:
            txn.delete(number_key(number), db=log)
    assert any(f"the current state says (2, 'm2') of record {number}" in problem for problem in verify_directory(tmp_path))
    journal = opened(tmp_path)
    with pytest.raises(JournalDamaged, match=f"record {number} is missing"):
        journal.state()
    journal.close()


def test_a_follower_gets_promises_and_epochs_as_they_were_written(tmp_path: Path) -> None:
    journal, follower = opened(tmp_path / "m1"), opened(tmp_path / "m1-b")
    author = Author("m1", "m2")
    turn: list[Record] = [author.accept("a", "b"), author.stamp("a"), EpochPromised((2, "m2"))]
    journal.append([*turn, author.install(2, [(10, "b", "m1")], {"m2": 4})])
    found = list(journal.records())
    follower.follow(found)
    state, followed = journal.state(), follower.state()
    followed.journal = state.journal
    assert state == followed
    assert followed.parked == ["a"]
    journal.close()
    follower.close()
