"""What every journal does with epochs: a promise and the epoch that was installed last are never forgotten, nor is an entry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokerha.model.epochs import FIRST, Epoch
from brokerha.model.ids import Ordered
from brokerha.model.invariants import InvariantBroken
from brokerha.model.records import Added, EpochInstalled, EpochPromised, Record, Started, StreamState
from brokerha.ports.journal import Journal
from tests.contracts.journal_contract import Disk
from tests.unit.log.turns import Author, body_of, everything, filled

NODES = ["m1", "m2", "m3"]


def both(disk: Disk) -> Iterator[Journal]:
    """Return the journal as it is, then as it is after a restart."""
    yield disk.journal
    yield disk.restart()


def written(disk: Disk) -> Author:
    """Write a stream of each of two masters with nothing synchronised, one transaction parked, and a duplicate."""
    author = Author("m1", "m2")
    disk.journal.append([author.accept("a", "b", "c", "d"), author.stamp("a", "b", "c")])
    disk.journal.append([author.hold("m2", "x", "a"), author.append("m2", "x", "a")])
    return author


class EpochContract:
    """Subclasses give the fixture ``disk``."""

    def test_a_journal_begins_in_the_first_epoch(self, disk: Disk) -> None:
        assert (disk.journal.state().installed, disk.journal.state().promised_epoch) == (None, FIRST)

    def test_the_highest_promise_is_there_after_a_restart(self, disk: Disk) -> None:
        disk.journal.append([EpochPromised((2, "m2"))])
        disk.journal.append([EpochPromised((2, "m3"))])
        for journal in both(disk):
            assert (journal.state().installed, journal.state().promised_epoch) == (None, (2, "m3"))
            with pytest.raises(InvariantBroken, match="the promise of an epoch grows"):
                journal.append([EpochPromised((2, "m3"))])

    def test_an_epoch_is_there_after_a_restart_and_promised(self, disk: Disk) -> None:
        author = written(disk)
        installed = author.install(2, ((20, "b", "m1"),), {"m1": 2})
        disk.journal.append([EpochPromised((2, "m1")), installed])
        for journal in both(disk):
            assert journal.state().installed == installed.epoch
            assert journal.state().promised_epoch == (2, "m2")
        disk.journal.append([EpochPromised((3, "m1"))])
        assert disk.restart().state().installed == installed.epoch
        disk.journal.append([author.install(3, (), {}, proposer="m1")])
        state = disk.restart().state()
        assert state.installed is not None
        assert state.installed.id == state.promised_epoch == (3, "m1")

    def test_streams_go_on_at_the_starts_with_nothing_unused(self, disk: Disk) -> None:
        author = written(disk)
        disk.journal.append([author.install(2, (), {"m1": 2, "m3": 4})])
        for journal in both(disk):
            state = journal.state()
            assert state.used == {"m1": 5, "m2": 2, "m3": 4}
            assert state.streams == {"m1": StreamState(5, []), "m2": StreamState(2, []), "m3": StreamState(4, [])}
            assert not any(journal.stream(node, start, 9) for node in NODES for start in range(9))
        disk.journal.append([author.hold("m3", "y"), author.append("m3", "y"), author.stamp("a")])
        for journal in both(disk):
            assert journal.stream("m1", 5, 9) == [(70, "a")]
            assert journal.state().streams["m3"] == StreamState(4, [(60, "y")])
        disk.journal.append([author.add(2)])
        for journal in both(disk):
            assert journal.ordered(1, 9) == [(60, "y", "m3"), (70, "a", "m1")]
            assert journal.body("m3", "y") == body_of("y", "m3")

    def test_own_entries_that_are_left_out_are_parked_again_before_all_others(self, disk: Disk) -> None:
        author = written(disk)
        disk.journal.append([author.install(2, ((20, "b", "m1"), (40, "x", "m2")), {})])
        for journal in both(disk):
            assert journal.state().parked == ["a", "c", "d"]
        disk.journal.append([author.stamp("a"), author.accept("e")])
        for journal in both(disk):
            assert journal.state().parked == ["c", "d", "e"]

    def test_what_was_recovered_is_added_before_what_the_streams_bring(self, disk: Disk) -> None:
        author = written(disk)
        recovered = ((20, "b", "m1"), (40, "x", "m2"), (5, "d", "m1"))
        disk.journal.append([author.install(2, recovered, {"m2": 1})])
        disk.journal.append([author.bring(recovered[:1], 2)])
        for journal in both(disk):
            assert (journal.state().parked, journal.lsn_of("b"), journal.state().lsn) == (["a", "c"], 1, 1)
        disk.journal.append([author.bring(recovered[1:], 2), author.stamp("a", "c"), author.add(2, 2)])
        for journal in both(disk):
            assert [txid for _, txid, _ in journal.ordered(1, 9)] == ["b", "x", "d", "a", "c"]
            bodies = [journal.body(origin, txid) for _, txid, origin in journal.ordered(1, 9)]
            assert bodies == [body_of("b"), body_of("x", "m2"), body_of("d"), body_of("a"), body_of("c")]
            assert (journal.state().parked, journal.state().epoch) == ([], 2)

    def test_a_parked_transaction_in_the_recovered_list_is_no_longer_parked(self, disk: Disk) -> None:
        author = written(disk)
        disk.journal.append([author.install(2, ((20, "d", "m1"),), {})])
        for journal in both(disk):
            assert journal.state().parked == ["a", "b", "c"]

    def test_what_one_epoch_recovered_and_the_next_one_did_not_is_parked_again(self, disk: Disk) -> None:
        author = written(disk)
        disk.journal.append([author.install(2, ((10, "a", "m1"), (30, "c", "m1")), {})])
        disk.journal.append([author.bring(((10, "a", "m1"),), 2), author.install(3, (), {})])
        for journal in both(disk):
            assert journal.state().parked == ["b", "c", "d"]

    def test_a_tail_adds_what_is_parked_or_stands_in_a_stream(self, disk: Disk) -> None:
        author = written(disk)
        tail: tuple[Ordered, ...] = ((10, "d", "m1"), (40, "x", "m2"), (20, "b", "m1"), (50, "a", "m2"))
        disk.journal.append([author.bring(tail)])
        for journal in both(disk):
            assert journal.state().parked == []
            assert journal.ordered(1, 9) == list(tail)
            assert journal.body("m2", "a") == body_of("a", "m2")
            assert journal.body("m1", "a") == body_of("a")
        disk.journal.append([author.install(2, (), {})])
        for journal in both(disk):
            # a has an LSN under another origin: as a duplicate it is used up like any other.
            assert journal.state().parked == ["a", "c"]
            assert (journal.state().lsn, journal.state().last) == (4, (50, "a", "m2"))
        disk.journal.append([author.stamp("a", "c"), author.add(2)])
        for journal in both(disk):
            assert journal.ordered(5, 9) == [(70, "c", "m1")]
            assert journal.body("m1", "a") == body_of("a")
        while disk.journal.trim(99):
            pass
        for journal in both(disk):
            assert [journal.body(node, txid) for node in NODES for txid in "abcdx"] == [None] * 15

    def test_entries_of_a_tail_are_used_up_when_their_streams_go_on_all_the_same(self, disk: Disk) -> None:
        author = written(disk)
        disk.journal.append([author.bring(((40, "x", "m2"), (20, "b", "m1")))])
        disk.journal.append([author.add(5)])
        for journal in both(disk):
            assert [txid for _, txid, _ in journal.ordered(1, 9)] == ["x", "b", "a", "c"]
            assert journal.body("m2", "a") == body_of("a", "m2")

    def test_a_foreign_entry_that_is_left_out_is_held_as_a_duplicate_until_it_is_trimmed(self, disk: Disk) -> None:
        author = written(disk)
        disk.journal.append([author.install(2, ((10, "a", "m1"), (40, "x", "m2")), {})])
        disk.journal.append([author.bring(((10, "a", "m1"), (40, "x", "m2")), 2)])
        for journal in both(disk):
            assert journal.body("m2", "a") == body_of("a", "m2")
        while disk.journal.trim(99):
            pass
        for journal in both(disk):
            assert [journal.body(*body) for body in (("m2", "a"), ("m1", "a"), ("m2", "x"))] == [None] * 3
            assert journal.body("m1", "b") == body_of("b")
            assert journal.state().parked == ["b", "c", "d"]

    def test_a_duplicate_that_is_used_up_in_the_record_that_ends_a_recovered_list_goes_as_well(self, disk: Disk) -> None:
        # Given one entry of m2 to recover, and one in its stream that is a duplicate
        author = written(disk)
        disk.journal.append([author.bring(((10, "a", "m1"),)), author.install(2, ((40, "x", "m2"),), {})])
        disk.journal.append([author.hold("m2", "b"), author.append("m2", "b"), author.stamp("b", "c", "d")])
        # When one record adds the first and uses up both
        author.known["b"] = 1
        added = author.add(1)
        disk.journal.append([Added(2, ((40, "x", "m2"),), added.used, 2)])
        # Then nothing waits for them any more
        for journal in both(disk):
            assert journal.body("m2", "b") == body_of("b", "m2")
        while disk.journal.trim(99):
            pass
        for journal in both(disk):
            assert journal.body("m2", "b") is None

    def test_the_last_epoch_stays_when_its_record_would_be_trimmed(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=3)
        first = author.install(2, (), {"m1": 1})
        disk.journal.append([EpochPromised((2, "m2")), first])
        filled(disk.journal, turns=2, author=author)
        assert disk.journal.trim(6) == 5
        for journal in both(disk):
            assert next(type(record) for _, record in journal.records()) is EpochInstalled
            assert (journal.state().installed, journal.state().promised_epoch) == (first.epoch, (2, "m2"))

    def test_an_epoch_goes_with_the_trim_behind_a_later_one(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=3)
        disk.journal.append([author.install(2, (), {})])
        filled(disk.journal, turns=2, author=author)
        assert disk.journal.trim(6) == 5
        second = author.install(3, (), {"m1": 2})
        disk.journal.append([second, *author.whole("t6")])
        assert disk.journal.trim(7) == 1
        for journal in both(disk):
            assert [record for _, record in journal.records() if isinstance(record, EpochInstalled)] == [second]
            assert journal.state().installed == second.epoch

    def test_nobody_follows_from_before_an_epoch_that_was_trimmed(self, disk: Disk) -> None:
        author = filled(disk.journal, turns=3)
        disk.journal.append([author.install(2, (), {})])
        number = disk.journal.last_number
        disk.journal.append(author.whole("t4"))
        assert disk.journal.trim(4) == 3
        for journal in both(disk):
            assert journal.numbered_from() == number + 1

    def test_an_own_duplicate_that_was_used_up_is_not_parked_again(self, disk: Disk) -> None:
        author = Author("m1", "m2")
        disk.journal.append([author.hold("m2", "a"), author.append("m2", "a"), author.accept("a", "b")])
        disk.journal.append([author.stamp("a"), author.add(2), author.install(2, (), {})])
        for journal in both(disk):
            assert journal.state().parked == ["b"]
            assert journal.body("m1", "a") == body_of("a")

    def test_the_ends_of_streams_that_an_epoch_left_behind_are_trimmed(self, disk: Disk) -> None:
        author = written(disk)
        disk.journal.append([author.install(2, (), {}), author.accept("z")])
        disk.journal.append([author.stamp("a", "b", "c", "d", "z"), author.add(5), author.execute(5), Started(1)])
        while disk.journal.trim(99):
            pass
        for journal in both(disk):
            assert [type(record) for _, record in journal.records()] == [EpochInstalled, Started]

    @pytest.mark.parametrize(
        ("wrong", "why"),
        [
            (EpochInstalled(Epoch(2, "m2", ("m1",), 2)), "a later epoch is installed"),
            (EpochInstalled(Epoch(3, "m2", ("m1",), 1)), "an epoch begins where the queue ends"),
            (EpochInstalled(Epoch(3, "m2", ("m1",), 3)), "an epoch begins where the queue ends"),
            (EpochInstalled(Epoch(3, "m2", ("m1",), 2, "t2", (), {"m1": 1})), "an epoch leaves out no number"),
            (EpochPromised((2, "m2")), "the promise of an epoch grows"),
            (EpochPromised((1, "m9")), "the promise of an epoch grows"),
        ],
        ids=repr,
    )
    def test_an_epoch_that_does_not_follow_is_a_fault_and_changes_nothing(self, disk: Disk, wrong: Record, why: str) -> None:
        author = filled(disk.journal, turns=2)
        disk.journal.append([author.install(2, (), {})])
        before = everything(disk.journal, ["t1", "t2"], ["m1"])
        with pytest.raises(InvariantBroken, match=why):
            disk.journal.append([wrong])
        assert everything(disk.journal, ["t1", "t2"], ["m1"]) == before
        assert everything(disk.restart(), ["t1", "t2"], ["m1"]) == before

    def test_a_large_epoch_is_there_after_many_turns(self, disk: Disk) -> None:
        recovered = tuple((10 * n, f"transaction-{n}", "m2") for n in range(1, 20_001))
        author = Author("m1", "m2")
        disk.journal.append([author.install(2, recovered, {"m2": 7})])
        for n in range(50):
            disk.journal.append([author.accept(f"t{n}")])
        for journal in both(disk):
            installed = journal.state().installed
            assert installed is not None
            assert installed.recovered == recovered
