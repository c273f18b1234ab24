"""A journal of format 2 becomes one of format 3 when it is opened; nobody follows from records that it has already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb
import msgpack

from brokerha.journal.lmdb_journal import LmdbJournal
from brokerha.journal.recovery import HISTORY, IDENTITY, STATE
from brokerha.journal.rows import checked, read_checked
from brokerha.journal.verification import verify_directory
from brokerha.model.records import TxPrepared, ViewStarted
from tests.unit.journal.turns import everything, filled

NEW_FIELDS = ("lacking_to",)
NEW_TABLES = (b"prepared", b"decided")


def made_old(directory: Path) -> None:
    """Take out of a journal what format 2 did not have."""
    with lmdb.open(str(directory), max_dbs=20) as environment:
        meta = environment.open_db(b"meta")
        tables = [environment.open_db(name) for name in NEW_TABLES]
        with environment.begin(write=True) as txn:
            identity = msgpack.unpackb(read_checked(txn.get(IDENTITY, b"", db=meta)))
            txn.put(IDENTITY, checked(msgpack.packb({**identity, "format": 2})), db=meta)
            *rest, current = msgpack.unpackb(read_checked(txn.get(STATE, b"", db=meta)))
            fields: dict[str, Any] = msgpack.unpackb(current)
            old = {name: value for name, value in fields.items() if name not in NEW_FIELDS}
            txn.put(STATE, checked(msgpack.packb([*rest, msgpack.packb(old)])), db=meta)
            txn.delete(HISTORY, db=meta)
            for table in tables:
                txn.drop(table)


def test_a_journal_of_format_2_is_upgraded_when_it_is_opened(tmp_path: Path) -> None:
    # Given a journal as version 2 left it
    journal = LmdbJournal(tmp_path, "orders", "m1")
    filled(journal, turns=6, per_turn=2)
    before = {**everything(journal, ["t1", "t12"], ["m1"]), "numbers": (25, 24)}
    journal.close()
    made_old(tmp_path)
    # When it is opened, and opened again
    for _ in range(2):
        journal = LmdbJournal(tmp_path, "orders", "m1")
        # Then everything is there, and nobody may follow from what is there already
        assert everything(journal, ["t1", "t12"], ["m1"]) == before
        assert journal.numbered(24, 24, 1 << 20) is None
        journal.close()
    assert list(verify_directory(tmp_path)) == []


def test_an_upgraded_journal_goes_on_as_one_of_format_3(tmp_path: Path) -> None:
    journal = LmdbJournal(tmp_path, "orders", "m1")
    author = filled(journal, turns=2)
    journal.close()
    made_old(tmp_path)
    journal = LmdbJournal(tmp_path, "orders", "m1")
    prepared = TxPrepared("p", "", b"body", (), 5)
    journal.append([ViewStarted(10, "m1"), prepared])
    filled(journal, turns=2, author=author)
    found = journal.numbered(9, 10, 1 << 20)
    assert found is not None
    assert [number for number, _ in found] == [9, 10]
    journal.close()
    journal = LmdbJournal(tmp_path, "orders", "m1")
    assert journal.state().prepared == {"p": prepared}
    assert list(journal.verify()) == []
    journal.close()
