"""What every journal does that takes over the state of another master, and what it says of its own."""

from __future__ import annotations

import pytest

from brokerha.model.errors import JournalFull
from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.invariants import InvariantBroken
from brokerha.model.records import IdsTaken, Record, Remembered, StreamState, TxPrepared
from brokerha.ports.journal import Journal
from tests.contracts.journal_contract import Disk, around_restart
from tests.unit.log.turns import Author, body_of, everything, filled, fingerprint_after, result_of

IDS = IdsTaken((("s40", 40), ("s90", 90), ("own-known", 80), ("m2-known", 81)), ((90, "no place"),))
NAMES = ["t1", "t3", "s40", "s90", "own-known", "own-left", "m2-known", "m2-left", "later"]
NODES = ["m1", "m2"]


def left_behind(disk: Disk) -> Author:
    """A master with three transactions, two parked ones and one more in each stream; of two of them the others know an LSN."""
    author = filled(disk.journal, turns=3)
    disk.journal.append([author.accept("own-known", "own-left")])
    disk.journal.append([author.accept("own-stamped"), author.stamp("own-stamped")])
    disk.journal.append([author.hold("m2", "m2-known", "m2-left"), author.append("m2", "m2-known", "m2-left")])
    return author


def pages(journal: Journal, up_to: int, limit: int) -> list[Remembered]:
    """All that it remembers up to an LSN."""
    found = [journal.remembered(b"", up_to, limit)]
    while found[-1].next_cursor:
        found.append(journal.remembered(found[-1].next_cursor, up_to, limit))
    return found


class StateContract:
    """The state of a master; subclasses give the fixture ``disk``."""

    def test_what_a_state_knows_is_known_and_the_queue_goes_on_after_it(self, disk: Disk) -> None:
        author = left_behind(disk)
        disk.journal.append([IDS])
        disk.journal.append([author.take_state(100)])
        for journal in around_restart(disk):
            state = journal.state()
            assert (state.lsn, state.executed_lsn, state.last) == (100, 100, (author.clock, "s100", "m2"))
            assert (state.fingerprint, state.items) == (b"taken at 100", 1_100)
            assert (journal.first_lsn(), journal.results_from()) == (101, 101)
            assert [journal.fingerprint_at(lsn) for lsn in (3, 99, 100, 101)] == [UNKNOWN, UNKNOWN, b"taken at 100", UNKNOWN]
            assert [journal.lsn_of(txid) for txid in NAMES] == [1, 3, 40, 90, 80, None, 81, None, None]
            assert [journal.rejection(lsn) for lsn in (5, 90, 100)] == [None, "no place", None]
            assert (journal.ordered(1, 9), journal.results(1, 9), journal.body("m1", "t1")) == ([], [], None)
            assert [journal.lsn_before(time) for time in (author.clock, author.clock + 1)] == [0, 100]

    def test_what_is_synchronised_nowhere_waits_as_before(self, disk: Disk) -> None:
        author = left_behind(disk)
        disk.journal.append([IDS])
        disk.journal.append([author.take_state(100)])
        for journal in around_restart(disk):
            state = journal.state()
            assert state.parked == ["own-left"]
            assert state.streams["m1"] == StreamState(3, author.streams["m1"][3:])
            assert state.streams["m2"] == StreamState(0, author.streams["m2"])
            held = {(node, txid) for node in NODES for txid in [*NAMES, "own-stamped"] if journal.body(node, txid)}
            assert held == {("m1", "own-left"), ("m1", "own-stamped"), ("m2", "m2-left")}

    def test_the_next_epoch_parks_what_no_state_knows(self, disk: Disk) -> None:
        author = left_behind(disk)
        disk.journal.append([IDS, author.take_state(100)])
        recovered = [(author.clock + 1, "own-stamped", "m1"), (author.clock + 2, "m2-left", "m2")]
        disk.restart().append([author.install(2, recovered, {"m2": 7})])
        for journal in around_restart(disk):
            assert journal.state().parked == ["own-left"]
            assert journal.body("m1", "own-stamped") == body_of("own-stamped")
        disk.journal.append([author.bring(recovered, 2), author.execute(2)])
        disk.restart().append(author.whole("later"))
        for journal in around_restart(disk):
            assert [txid for _, txid, _ in journal.ordered(101, 9)] == ["own-stamped", "m2-left", "later"]
            assert journal.results(101, 9) == [result_of(lsn) for lsn in (101, 102, 103)]
            assert journal.body("m2", "m2-left") == body_of("m2-left", "m2")
            assert journal.fingerprint_at(103) == fingerprint_after(103)
        while disk.journal.trim(below=103):
            pass
        for journal in around_restart(disk):
            assert journal.first_lsn() == 103
            assert journal.body("m1", "own-stamped") is None
            assert (journal.body("m1", "own-left"), journal.state().parked) == (body_of("own-left"), ["own-left"])

    def test_only_what_is_needed_is_left_of_the_log(self, disk: Disk) -> None:
        author = left_behind(disk)
        prepared = TxPrepared("p", "", b"body", (), 1)
        disk.journal.append([author.install(2, [], {"m2": 1}), prepared, author.hold("m2", "x"), author.accept("y")])
        disk.journal.append([IDS])
        before = disk.journal.last_number
        disk.journal.append([author.take_state(100)])
        for journal in around_restart(disk):
            assert journal.numbered_from() == before + 1
            assert [type(record).__name__ for _, record in journal.records()] == [
                *("Accepted", "Accepted", "EpochInstalled", "TxPrepared", "BodiesHeld", "Accepted", "StateTaken")
            ]
            state = journal.state()
            assert state.prepared == {"p": prepared}
            assert state.installed is not None
            assert state.installed.number == 2

    def test_pages_without_an_end_change_nothing_but_what_is_known(self, disk: Disk) -> None:
        author = left_behind(disk)
        disk.journal.append([IdsTaken((("s90", 90), ("own-known", 4)), ())])
        for journal in around_restart(disk):
            state = journal.state()
            assert (state.lsn, state.executed_lsn, journal.first_lsn()) == (3, 3, 1)
            assert state.parked == ["own-known", "own-left"]
            assert journal.lsn_of("s90") == 90
            assert len(journal.ordered(1, 9)) == 3
        # And the queue may still go on where it was, with the same transactions
        disk.journal.append([author.bring([(author.clock + 1, "own-known", "m1")])])
        assert disk.restart().state().parked == ["own-left"]

    def test_results_that_become_void_take_no_rejection_of_a_page_with_them(self, disk: Disk) -> None:
        author = left_behind(disk)
        disk.journal.append([IDS])
        disk.journal.append([author.rebase(1)])
        disk.journal.append([author.take_state(100)])
        assert disk.restart().rejection(90) == "no place"

    def test_a_turn_may_have_all_of_it_and_what_goes_on_after_it(self, disk: Disk) -> None:
        author = left_behind(disk)
        before: list[Record] = [author.accept("y"), author.add(1), author.hold("m2", "s40"), author.execute(1), IDS]
        behind: list[Record] = [author.take_state(100), author.bring([(10**6, "later", "m2")]), author.execute(1)]
        disk.journal.append([*before, *behind])
        for journal in around_restart(disk):
            assert (journal.state().lsn, journal.state().executed_lsn) == (101, 101)
            assert [journal.lsn_of(txid) for txid in ("own-stamped", "s40", "later")] == [4, 40, 101]
            assert journal.body("m2", "s40") is None
            assert journal.state().parked == ["own-left", "y"]
            assert journal.results(101, 2) == [result_of(101)]

    def test_a_state_that_was_not_written_changes_nothing(self, disk: Disk) -> None:
        author = left_behind(disk)
        before = everything(disk.journal, NAMES, NODES)
        with disk.full(), pytest.raises(JournalFull):
            disk.journal.append([IDS, author.take_state(100)])
        assert everything(disk.journal, NAMES, NODES) == before
        assert everything(disk.restart(), NAMES, NODES) == before

    def test_one_state_may_follow_another(self, disk: Disk) -> None:
        author = left_behind(disk)
        disk.journal.append([IDS, author.take_state(100), author.bring([(10**6, "later", "m2")])])
        disk.journal.append([IdsTaken((("s150", 150),), ()), author.take_state(200)])
        for journal in around_restart(disk):
            assert [journal.lsn_of(txid) for txid in ("t1", "s40", "later", "s150")] == [1, 40, 101, 150]
            assert (journal.first_lsn(), journal.state().parked) == (201, ["own-left"])

    def test_a_state_is_ahead_of_the_queue(self, disk: Disk) -> None:
        author = left_behind(disk)
        with pytest.raises(InvariantBroken, match="ahead of the queue"):
            disk.journal.append([author.take_state(3)])

    @pytest.mark.parametrize("limit", [1, 2, 5, 100])
    def test_what_is_remembered_is_told_page_by_page(self, disk: Disk, limit: int) -> None:
        filled(disk.journal, turns=6, per_turn=2)
        disk.journal.trim(below=9)
        for journal in around_restart(disk):
            found = pages(journal, 10, limit)
            assert all(len(page.ids) <= limit for page in found)
            assert sorted(lsn for page in found for _, lsn in page.ids) == list(range(1, 11))
            assert {txid: lsn for page in found for txid, lsn in page.ids} == {f"t{n}": n for n in range(1, 11)}
            assert sorted(row for page in found for row in page.rejections) == [(5, "no place for 5"), (10, "no place for 10")]

    def test_pages_go_on_while_transactions_are_added_and_forgotten(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=20)
        found = [disk.journal.remembered(b"", 20, 3)]
        while found[-1].next_cursor:
            filled(disk.journal, turns=2, author=author)
            author.forget(disk.journal, 6)
            found.append(disk.restart().remembered(found[-1].next_cursor, 20, 3))
        told = [lsn for page in found for _, lsn in page.ids]
        assert {*range(6, 21)} <= {*told} <= {*range(1, 21)}
        assert len(told) == len({*told})

    def test_how_much_there_was_is_known_at_the_end_of_each_record(self, disk: Disk) -> None:
        filled(disk.journal, turns=3, per_turn=3)
        for journal in around_restart(disk):
            assert [journal.items_at(lsn) for lsn in range(1, 11)] == [0, 0, 3, 0, 0, 6, 0, 0, 9, 0]
