"""What every journal does when it forgets what is no longer needed."""

from __future__ import annotations

import pytest

from brokerha.log import content, log
from brokerha.model.fingerprints import EMPTY, UNKNOWN
from brokerha.model.forgetting import forgetting_id
from brokerha.model.records import BodiesHeld, ClockReserved, PeerJournal, Started, StreamState
from brokerha.ports.journal import Journal
from tests.contracts.journal_contract import Disk, around_restart
from tests.unit.log.turns import Author, body_of, filled, fingerprint_after, result_of


class TrimContract:
    """Forgetting; subclasses give the fixture ``disk``."""

    def test_trimming_forgets_everything_below_an_lsn_but_the_ids(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=6, per_turn=2)
        assert disk.journal.trim(below=9) == 8
        for journal in around_restart(disk):
            assert journal.first_lsn() == 9
            assert not journal.ordered(8, 5)
            assert not journal.results(8, 5)
            assert not journal.stream("m1", 7, 5)
            assert [txid for _, txid, _ in journal.ordered(9, 9)] == ["t9", "t10", "t11", "t12"]
            assert len(journal.results(9, 9)) == 4
            assert journal.stream("m1", 8, 9) == author.streams["m1"][8:]
            assert [journal.body("m1", f"t{n}") is not None for n in range(1, 13)] == [False] * 8 + [True] * 4
            assert [journal.lsn_of(f"t{n}") for n in range(1, 13)] == list(range(1, 13))
            assert len(list(journal.records())) == 8

    def test_the_fingerprint_before_the_first_result_stays_known(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=4, per_turn=3)
        disk.journal.append([author.accept("late"), author.stamp("late"), author.add(1)])
        for below, first in ((2, 1), (7, 7), (13, 13), (14, 13)):
            disk.journal.trim(below)
            for journal in around_restart(disk):
                assert journal.results_from() == first
                found = {lsn: journal.fingerprint_at(lsn) for lsn in range(15)}
                known = {lsn: fingerprint_after(lsn) if lsn else EMPTY for lsn in range(first - 1, 13)}
                assert found == dict.fromkeys(range(15), UNKNOWN) | known

    def test_results_in_one_record_across_the_first_lsn_are_known_from_there_on(self, disk: Disk) -> None:
        author = Author("m1")
        for n in range(1, 5):
            disk.journal.append(author.synchronised(f"t{n}"))
        disk.journal.append([author.execute(4)])
        disk.journal.trim(below=3)
        for journal in around_restart(disk):
            assert journal.results_from() == 3
            assert journal.results(2, 9) == []
            assert journal.results(3, 9) == [result_of(3), result_of(4)]
            assert journal.fingerprint_at(2) == fingerprint_after(2)

    def test_what_was_rejected_stays_rejected_as_long_as_its_id_is_known(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=3, per_turn=4)
        disk.journal.append(author.synchronised("t13", "t14", "t15"))
        expected = {lsn: f"no place for {lsn}" if lsn in {5, 10} else None for lsn in range(17)}
        for below in (1, 9, 13):
            disk.journal.trim(below)
            for journal in around_restart(disk):
                assert {lsn: journal.rejection(lsn) for lsn in range(17)} == expected
        author.forget(disk.journal, 8)
        for journal in around_restart(disk):
            assert [journal.rejection(5), journal.rejection(10)] == [None, "no place for 10"]

    def test_the_time_of_an_lsn_is_known_by_and_by(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        # Given ten transactions, stamped at 10, 20, ... 100
        monkeypatch.setattr(content, "MARK_LSNS", 3)
        author = filled(disk.journal, turns=10)
        for journal in around_restart(disk):
            assert [journal.lsn_before(time) for time in (0, 10, 11, 55, 100, 1_000)] == [0, 0, 1, 5, 9, 10]
        # When they are trimmed in steps
        for below in (2, 4, 5, 9):
            disk.journal.trim(below)
        # Then what is held is known exactly, and at least each third of what is trimmed
        for journal in around_restart(disk):
            found = [journal.lsn_before(time) for time in (10, 30, 31, 80, 81, 90, 91, 1_000)]
            assert found == [0, 0, 3, 3, 8, 8, 9, 10]
        # And what is forgotten stays known to be old
        author.forget(disk.journal, 4)
        for journal in around_restart(disk):
            assert [journal.lsn_before(time) for time in (31, 80, 81, 110, 111)] == [3, 3, 8, 8, 11]
        # Until more is forgotten
        author.forget(disk.journal, 9)
        for journal in around_restart(disk):
            assert [journal.lsn_before(time) for time in (31, 80, 81, 110, 111)] == [0, 0, 8, 8, 11]

    def test_trimming_goes_by_whole_records(self, disk: Disk) -> None:
        filled(disk.journal, turns=3, per_turn=4)
        assert disk.journal.trim(below=8) == 4
        assert disk.journal.first_lsn() == 5
        assert disk.journal.trim(below=8) == 0
        assert disk.journal.trim(below=9) == 4

    def test_what_is_not_synchronised_is_never_trimmed(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=3)
        disk.journal.append([author.accept("parked"), author.hold("m2", "held", "streamed")])
        disk.journal.append([author.append("m2", "streamed")])
        assert disk.journal.trim(below=1_000) == 3
        for journal in around_restart(disk):
            assert journal.first_lsn() == 4
            state = journal.state()
            assert state.parked == ["parked"]
            assert state.streams["m2"] == StreamState(0, author.streams["m2"])
            assert journal.body("m1", "parked") == body_of("parked")
            assert journal.body("m2", "held") == body_of("held", "m2")
            assert len(list(journal.records())) == 3

    def test_a_record_stays_while_one_of_its_bodies_is_needed(self, disk: Disk) -> None:
        # Given a record with an early and a late transaction, and many in between
        author = Author("m1", "m2")
        disk.journal.append([author.hold("m2", "early", "late"), author.append("m2", "early"), author.add(1)])
        filled(disk.journal, turns=3, author=author)
        disk.journal.append([author.execute(1)])
        # When everything so far is trimmed
        assert disk.journal.trim(below=5) == 4
        # Then the late one is still held, until it is trimmed too
        disk.restart().append([author.append("m2", "late"), author.add(1), author.execute(9)])
        assert disk.journal.body("m2", "late") == body_of("late", "m2")
        assert disk.journal.body("m2", "early") is None
        assert disk.journal.trim(below=6) == 1
        assert disk.journal.body("m2", "late") is None
        assert list(disk.restart().records()) == []

    def test_a_duplicate_is_forgotten_with_the_record_that_used_it_up(self, disk: Disk) -> None:
        # Given an older body that still waits, so that a restart reads everything since
        author = Author("m1", "m2")
        disk.journal.append([author.hold("m2", "waits")])
        disk.journal.append([*author.whole("t1"), author.hold("m2", "t1"), author.append("m2", "t1")])
        disk.journal.append([author.accept("t2"), author.stamp("t2"), author.add(2), author.execute(1)])
        disk.restart().trim(below=2)
        assert disk.restart().body("m2", "t1") == body_of("t1", "m2")
        disk.journal.trim(below=3)
        assert disk.journal.body("m2", "t1") is None
        assert [record for _, record in disk.restart().records()] == [author.hold("m2", "waits")]

    def test_small_records_go_with_what_surrounds_them_and_their_meaning_stays(self, disk: Disk) -> None:
        author = Author("m1")
        disk.journal.append([Started(4), ClockReserved(9), PeerJournal("m2", "x")])
        filled(disk.journal, turns=2, author=author)
        disk.journal.append([ClockReserved(10)])
        disk.journal.trim(below=3)
        assert [record for _, record in disk.journal.records()] == [ClockReserved(10)]
        state = disk.restart().state()
        assert (state.incarnation, state.high_water, state.peer_journals) == (4, 10, {"m2": "x"})
        assert (state.lsn, state.executed_lsn, state.last, state.used) == (2, 2, (20, "t2", "m1"), {"m1": 2})

    def test_the_log_goes_on_after_everything_was_trimmed(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=3)
        assert disk.journal.trim(below=4) == 3
        assert disk.journal.first_lsn() == 4
        filled(disk.restart(), turns=2, author=author)
        assert [txid for _, txid, _ in disk.journal.ordered(4, 9)] == ["t4", "t5"]
        assert disk.restart().body("m1", "t5") == body_of("t5")

    def test_results_may_come_after_their_transactions_were_trimmed(self, disk: Disk) -> None:
        author = Author("m1")
        disk.journal.append([author.accept("a", "b"), author.stamp("a", "b"), author.add(1)])
        assert disk.journal.trim(below=2) == 1
        disk.journal.append([author.add(1), author.execute(1)])
        disk.journal.append([author.execute(1)])
        for journal in around_restart(disk):
            assert journal.results(1, 5) == []
            assert journal.fingerprint_at(1) == fingerprint_after(1)
            assert journal.results(2, 5) == [result_of(2)]

    def test_one_call_drops_a_bounded_number(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log, "TRIM_LSNS", 5)
        monkeypatch.setattr(log, "TRIM_RECORDS", 3)
        filled(disk.journal, turns=5, per_turn=2)
        filled(disk.journal, turns=4, author=filled_author(disk.journal, 10))
        assert [disk.journal.trim(below=15) for _ in range(5)] == [4, 4, 4, 2, 0]

    def test_ids_are_forgotten_by_an_entry_of_the_queue(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=6)
        disk.journal.trim(below=5)
        disk.journal.append(author.whole(forgetting_id(4)))
        for journal in around_restart(disk):
            assert [journal.lsn_of(f"t{n}") for n in range(1, 7)] == [None, None, None, 4, 5, 6]
            assert (journal.ids_from(6), journal.ids_from(7)) == (0, 4)
        # When one of them comes again, it has a new LSN
        disk.journal.append(author.whole("t2", "t7"))
        for journal in around_restart(disk):
            assert [journal.lsn_of(f"t{n}") for n in (1, 2, 3, 7)] == [None, 8, None, 9]
            assert list(journal.known(["t2", "t4", "t8"])) == ["t2", "t4"]
        # And what comes later finds it after that entry is trimmed as well
        disk.journal.trim(below=9)
        for journal in around_restart(disk):
            assert [journal.lsn_of(f"t{n}") for n in (2, 3, 4, 7)] == [8, None, 4, 9]

    def test_the_body_of_a_duplicate_is_not_taken_for_another_one_of_its_name(self, disk: Disk) -> None:
        # Given a transaction that came in through two masters, and the body of the second one
        author = Author("m1", "m2")
        disk.journal.append(
            [author.accept("t"), author.stamp("t"), author.hold("m2", "t"), author.append("m2", "t"), author.add(2)]
        )
        for journal in around_restart(disk):
            assert (journal.state().lsn, journal.body("m2", "t")) == (1, body_of("t", "m2"))
        # When its id is forgotten, and comes again through the second master
        disk.journal.append(author.whole(forgetting_id(2)))
        for journal in around_restart(disk):
            assert journal.body("m2", "t") is None
            assert list(journal.duplicates(["t"])) == []
        disk.journal.append([BodiesHeld((("m2", "t", b"another"),)), author.append("m2", "t"), author.add(1)])
        for journal in around_restart(disk):
            assert journal.ordered(3, 1)[0][1:] == ("t", "m2")
            assert journal.body("m2", "t") == b"another"

    def test_bodies_of_two_transactions_with_one_id_are_told_apart_by_origin(self, disk: Disk) -> None:
        # Given one that still holds an entry from before its id was forgotten
        author = Author("m1", "m2")
        disk.journal.append([author.hold("m2", "t"), author.append("m2", "t"), author.add(1), author.execute(1)])
        disk.journal.append(author.whole(forgetting_id(2)))
        disk.journal.append(author.whole("t"))
        for journal in around_restart(disk):
            assert [entry[1:] for entry in journal.ordered(1, 9)] == [("t", "m2"), (forgetting_id(2), "m1"), ("t", "m1")]
            assert (journal.body("m2", "t"), journal.body("m1", "t")) == (body_of("t", "m2"), body_of("t"))

    def test_the_entry_before_what_is_held_is_known(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=4)
        assert disk.journal.entry_at(0) is None
        for below, known in ((1, [1, 2, 3, 4]), (3, [2, 3, 4]), (5, [4])):
            disk.journal.trim(below)
            for journal in around_restart(disk):
                assert [lsn for lsn in range(7) if journal.entry_at(lsn) is not None] == known
        assert disk.journal.entry_at(4) == (40, "t4", "m1")
        disk.journal.append([author.go_back(4)])
        assert disk.restart().state().last == (40, "t4", "m1")

    def test_what_was_forgotten_counts_again_where_the_queue_goes_back(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=6)
        disk.journal.trim(below=5)
        disk.journal.append(author.whole(forgetting_id(4), "t2"))
        assert disk.journal.lsn_of("t2") == 8
        disk.journal.append([author.go_back(6)])
        for journal in around_restart(disk):
            assert journal.ids_from(6) == 0
            assert [journal.lsn_of(f"t{n}") for n in range(1, 7)] == [1, 2, 3, 4, 5, 6]

    def test_keeping_takes_steps_until_nothing_is_left_to_forget(self, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        # Given steps of five LSNs
        monkeypatch.setattr(log, "TRIM_LSNS", 5)
        filled(disk.journal, turns=12, per_turn=2)
        # When it is kept so that LSN 16 is the first
        steps = 0
        while disk.journal.keep(below=16):
            steps += 1
        # Then whole records below are gone, in steps, and all ids are known
        assert steps >= 3
        assert not disk.journal.keep(below=16)
        for journal in around_restart(disk):
            assert journal.first_lsn() == 15
            assert [journal.lsn_of(f"t{n}") for n in range(1, 25)] == [*range(1, 25)]


def filled_author(journal: Journal, lsn: int) -> Author:
    """Return an author who goes on after ``lsn`` transactions of the own node, each with its result."""
    author = Author("m1", "m2")
    author.streams["m1"] = journal.stream("m1", 0, lsn)
    author.used["m1"] = author.lsn = author.executed = lsn
    author.clock = author.streams["m1"][-1][0]
    return author
