"""What every journal does that begins after an LSN, in a cluster that is restored from a backup."""

from __future__ import annotations

from typing import Protocol

import pytest

from brokerha.log.current import Beginning
from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.invariants import InvariantBroken
from tests.contracts.journal_contract import Disk, around_restart
from tests.unit.log.turns import Author, body_of, fingerprint_after, result_of

BEGINNING = Beginning(
    lsn=700,
    last=(5_000, "t700", "m3"),
    fingerprint=b"of the backup",
    items=12,
    ids=(("t700", 700), ("t650", 650), ("t690", 690)),
    rejections=((690, "no place"),),
)


class NewDisk(Protocol):
    """Makes journals."""

    def begun(self, beginning: Beginning) -> Disk:
        """A new journal that begins there."""


def author_after(beginning: Beginning) -> Author:
    author = Author("m1", "m2")
    author.lsn = author.executed = beginning.lsn
    author.clock = beginning.last[0]
    return author


class BeginningContract:
    """Subclasses give the fixture ``new_disk``."""

    def test_a_journal_that_begins_after_an_lsn_knows_what_the_backup_said(self, new_disk: NewDisk) -> None:
        for journal in around_restart(new_disk.begun(BEGINNING)):
            state = journal.state()
            assert (state.lsn, state.executed_lsn, state.last) == (700, 700, (5_000, "t700", "m3"))
            assert (state.fingerprint, state.items, state.high_water) == (b"of the backup", 12, 5_000)
            assert (state.incarnation, state.streams, state.used, state.parked) == (0, {}, {}, [])
            assert (journal.first_lsn(), journal.results_from()) == (701, 701)
            assert [journal.fingerprint_at(lsn) for lsn in (699, 700, 701)] == [UNKNOWN, b"of the backup", UNKNOWN]
            assert [journal.lsn_of(txid) for txid in ("t650", "t690", "t700", "t701")] == [650, 690, 700, None]
            assert [journal.rejection(lsn) for lsn in (650, 690)] == [None, "no place"]
            assert [journal.lsn_before(time) for time in (5_000, 5_001)] == [0, 700]
            assert journal.body("m3", "t700") is None
            assert not journal.ordered(700, 5)
            assert not journal.results(700, 5)
            assert not list(journal.records())

    def test_transactions_go_on_after_it(self, new_disk: NewDisk) -> None:
        disk = new_disk.begun(BEGINNING)
        author = author_after(BEGINNING)
        disk.journal.append(author.whole("a", "b"))
        disk.restart().append([author.hold("m2", "c"), author.append("m2", "c"), author.add(1), author.execute(1)])
        for journal in around_restart(disk):
            assert journal.state().lsn == 703
            assert [txid for _, txid, _ in journal.ordered(701, 5)] == ["a", "b", "c"]
            assert journal.results(701, 5) == [result_of(lsn) for lsn in (701, 702, 703)]
            assert journal.body("m2", "c") == body_of("c", "m2")
        while disk.journal.trim(below=703):
            pass
        author.forget(disk.journal, 691)
        for journal in around_restart(disk):
            assert journal.first_lsn() == 705
            assert journal.fingerprint_at(704) == fingerprint_after(704)
            assert [journal.lsn_of(txid) for txid in ("t650", "t690", "t700", "a", "c")] == [None, None, 700, 701, 703]
            assert journal.rejection(690) is None

    def test_nothing_is_known_of_what_is_behind_the_beginning(self) -> None:
        with pytest.raises(InvariantBroken, match="nothing after the beginning is known"):
            Beginning(7, (1, "a", "m1"), b"", 0, ids=(("b", 8),))
