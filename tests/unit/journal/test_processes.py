"""What a journal on a disk does for the processes of one master, beyond the contract: sizes on the disk, and damage."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerha.journal import promise, recovery
from brokerha.journal.database import Table
from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.journal.rows import number_key
from brokerha.journal.verification import verify_directory
from brokerha.model.errors import JournalDamaged, JournalError, JournalFull
from brokerha.model.records import Accepted, Started, TxDecided, TxPrepared, ViewStarted
from tests.unit.journal.turns import filled

LARGE = b"x" * (8 << 20)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def journal(directory: Path) -> Iterator[LmdbJournal]:
    journal = LmdbJournal(directory, "orders", "m1")
    yield journal
    journal.close()


def prepared(txid: str, body: bytes = b"body") -> TxPrepared:
    return TxPrepared(txid, "", body, (), 5)


def rolled_back(txid: str) -> TxDecided:
    return TxDecided(txid, is_commit=False, reason="asked for")


def row_of_state(journal: LmdbJournal) -> bytes:
    row = journal._database.get(recovery.STATE, journal._database.tables.meta)
    assert row is not None
    return row


def test_large_prepared_transactions_are_written_once_and_not_with_each_turn(journal: LmdbJournal) -> None:
    journal.append([Started(1)])
    before = len(row_of_state(journal))
    journal.append([prepared("a", LARGE), prepared("b", LARGE)])
    written = journal._written_bytes
    assert 2 * len(LARGE) < written < 2 * len(LARGE) + 10_000
    assert len(row_of_state(journal)) < before + 10
    for n in range(2, 20):
        journal.append([Started(n)])
    assert journal._written_bytes < written + 10_000
    file_bytes, _ = journal.size()
    assert file_bytes < 3 * len(LARGE)


def test_the_space_of_a_prepared_transaction_is_free_after_its_decision(journal: LmdbJournal) -> None:
    author = filled(journal, turns=2)
    journal.append([prepared("a", LARGE)])
    filled(journal, turns=2, author=author)
    journal.trim(below=5)
    assert journal.size()[1] > len(LARGE)
    journal.append([TxDecided("a", is_commit=True, reason=""), Accepted((("a", b"small"),))])
    filled(journal, turns=1, author=author)
    journal.trim(below=6)
    assert journal.size()[1] < len(LARGE)


def test_many_starts_and_views_do_not_make_the_row_of_each_turn_longer(journal: LmdbJournal) -> None:
    journal.append([Started(1), ViewStarted(1, "m1")])
    before = len(row_of_state(journal))
    journal.append([record for n in range(2, 60) for record in (Started(n), ViewStarted(n, "m1"))])
    assert len(row_of_state(journal)) <= before + 4


def test_a_prepared_transaction_survives_compaction(journal: LmdbJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.append([prepared("a", b"long" * 10_000), prepared("b"), rolled_back("b")])
    monkeypatch.setattr("brokerha.journal.compaction.is_due", lambda *_: True)
    assert journal.compact()
    assert journal.state().prepared == {"a": prepared("a", b"long" * 10_000)}
    assert journal.state().decided == {"b": rolled_back("b")}
    assert list(journal.verify()) == []


# ------------------------------------------------------------------------------------------------------------- damage


def test_a_promise_that_is_not_what_was_written_is_damage(directory: Path, journal: LmdbJournal) -> None:
    journal.promise(21)
    journal.close()
    path = directory / promise.PROMISE
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(JournalDamaged, match="the promise of this process is not what was written"):
            LmdbJournal(directory, "orders", "m1")
        assert any("promise" in problem for problem in verify_directory(directory))
    path.write_bytes(whole)
    again = LmdbJournal(directory, "orders", "m1")
    assert again.state().promised_view == 21
    again.close()


@pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, JournalFull), (errno.EIO, JournalError)])
def test_a_promise_that_a_disk_refuses_is_not_given_and_may_be_given_later(
    journal: LmdbJournal, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[JournalError]
) -> None:
    def fsync(_: int) -> None:
        raise OSError(code, "simulated")

    with monkeypatch.context() as patch:
        patch.setattr(promise.os, "fsync", fsync)  # type: ignore[attr-defined]
        with pytest.raises(kind, match="the promise of this process cannot be written"):
            journal.promise(21)
    assert journal.state().promised_view == 0
    journal.promise(21)
    assert journal.state().promised_view == 21


def rewrite(journal: LmdbJournal, table: Table, number: int, change: Callable[[bytes], bytes | None]) -> None:
    """Change or delete one row behind the journal's back."""
    database, key = journal._database, number_key(number)
    row = database.get(key, table)
    assert row is not None
    changed = change(row)
    with database.env.begin(write=True) as txn:
        if changed is None:
            txn.delete(key, db=table)
        else:
            txn.put(key, changed, db=table)
    database.refresh()


@pytest.mark.parametrize("table", ["prepared", "decided"])
def test_a_damaged_row_about_a_transaction_is_refused(directory: Path, journal: LmdbJournal, table: str) -> None:
    journal.append([prepared("a"), prepared("b"), rolled_back("b")])
    number = {"prepared": 1, "decided": 3}[table]
    rewrite(journal, getattr(journal._database.tables, table), number, lambda row: row[:-1] + b"!")
    assert any("the checksum differs" in problem for problem in journal.verify())
    journal.close()
    with pytest.raises(JournalDamaged, match="an index row is not what was written"):
        LmdbJournal(directory, "orders", "m1")


def test_a_record_of_a_prepared_transaction_that_is_missing_is_damage(journal: LmdbJournal) -> None:
    journal.append([prepared("a"), Started(1)])
    rewrite(journal, journal._database.tables.log, 1, lambda _: None)
    journal._recent.clear()
    with pytest.raises(JournalDamaged, match="record 1 is missing"):
        journal.state()
    assert len(list(journal.verify())) == 2


def test_verification_finds_what_is_prepared_and_has_no_row(journal: LmdbJournal) -> None:
    journal.append([prepared("a"), prepared("b")])
    rewrite(journal, journal._database.tables.prepared, 2, lambda _: None)
    assert list(journal.verify()) == [
        "transaction b of record 2 is prepared and not decided, and has no row in prepared"
    ]


def test_a_damaged_record_is_not_given_away(journal: LmdbJournal) -> None:
    journal.append([Started(1), Started(2), Started(3)])
    rewrite(journal, journal._database.tables.log, 2, lambda row: row[:-1] + b"\x07")
    with pytest.raises(JournalDamaged, match="record 2 is not what was written"):
        journal.numbered(1, 3, 1 << 20)
    assert journal.numbered(3, 3, 1 << 20)
