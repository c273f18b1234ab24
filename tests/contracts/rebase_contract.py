"""What every journal does when a trusted copy takes the place of a site's content."""

from __future__ import annotations

import pytest

from brokerha.model.errors import JournalFull
from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.records import Outcomes
from tests.contracts.journal_contract import Disk, around_restart
from tests.unit.log.turns import Author, everything, filled, fingerprint_after, result_of


class RebaseContract:
    """The site's content replaced by a trusted copy; subclasses give the fixture ``disk``."""

    @pytest.mark.parametrize("lsn", [0, 2, 4, 6, 8])
    def test_a_trusted_copy_makes_all_results_void_and_execution_goes_on_after_it(self, disk: Disk, lsn: int) -> None:
        # Given eight transactions, six of them executed
        author = Author("m1")
        for n in (1, 3, 5, 7):
            disk.journal.append(author.synchronised(f"t{n}", f"t{n + 1}"))
        disk.journal.append([author.execute(3)])
        disk.journal.append([author.execute(3)])
        # When a copy of another LSN is put in place
        disk.journal.append([author.rebase(lsn)])
        # Then the state is that of the copy, and no result is left
        for journal in around_restart(disk):
            state = journal.state()
            assert (state.lsn, state.executed_lsn, state.items) == (8, lsn, 1_000 + lsn)
            assert state.fingerprint == journal.fingerprint_at(lsn) == b"copied at %d" % lsn
            assert journal.results_from() == lsn + 1
            assert [journal.results(n, 9) for n in range(1, 9)] == [[]] * 8
            assert [journal.fingerprint_at(n) for n in range(9) if n != lsn] == [UNKNOWN] * 8
            assert not [record for _, record in journal.records() if isinstance(record, Outcomes)]
        # And the next results follow on it
        disk.journal.append([author.execute(9)])
        for journal in around_restart(disk):
            assert journal.results(lsn + 1, 9) == [result_of(n) for n in range(lsn + 1, 9)]
            assert journal.results(lsn, 9) == []
            assert journal.state().executed_lsn == 8

    def test_a_copy_and_results_before_and_behind_it_may_be_in_one_turn(self, disk: Disk) -> None:
        author = Author("m1")
        disk.journal.append([*author.whole("a", "b", "c"), author.rebase(1), author.execute(1)])
        for journal in around_restart(disk):
            assert journal.results(1, 9) == []
            assert journal.results(2, 9) == [result_of(2)]
            assert journal.fingerprint_at(1) == b"copied at 1"
        disk.journal.append([author.execute(1)])
        assert disk.restart().results(2, 9) == [result_of(2), result_of(3)]

    def test_a_copy_that_was_not_written_changes_nothing(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=3)
        before = everything(disk.journal, ["t1"], ["m1"])
        with disk.full(), pytest.raises(JournalFull):
            disk.journal.append([author.rebase(1)])
        assert everything(disk.journal, ["t1"], ["m1"]) == before
        assert everything(disk.restart(), ["t1"], ["m1"]) == before

    @pytest.mark.parametrize("lsn", [1, 2, 3, 5])
    def test_a_copy_below_and_above_what_is_trimmed_is_followed_by_results(self, disk: Disk, lsn: int) -> None:
        author = filled(disk.journal, turns=5)
        disk.journal.trim(below=4)
        disk.journal.append([author.rebase(lsn)])
        for journal in around_restart(disk):
            assert journal.results_from() == lsn + 1
        for _ in range(5 - lsn):
            disk.journal.append([author.execute(1)])
        for journal in around_restart(disk):
            first = max(lsn + 1, 4)
            assert journal.results_from() == first
            assert journal.results(first, 9) == [result_of(n) for n in range(first, 6)]
            assert journal.fingerprint_at(first - 1) == (b"copied at %d" % lsn if first == lsn + 1 else fingerprint_after(3))
        disk.journal.trim(below=6)
        for journal in around_restart(disk):
            assert (journal.first_lsn(), journal.results_from()) == (6, 6)

    def test_what_was_rejected_above_a_copy_is_open_again(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=4, per_turn=3)
        assert [disk.journal.rejection(lsn) for lsn in (5, 10)] == ["no place for 5", "no place for 10"]
        disk.journal.append([author.rebase(7)])
        for journal in around_restart(disk):
            assert [journal.rejection(lsn) for lsn in (5, 10)] == ["no place for 5", None]
        disk.journal.append([author.execute(4), author.rebase(9)])
        assert disk.restart().rejection(10) is None
        disk.journal.append([author.execute(1)])
        assert disk.restart().rejection(10) == "no place for 10"
