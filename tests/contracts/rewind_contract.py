"""What every journal does when its synchronised queue goes back behind a split: it ends where it ended, and goes on from there."""

from __future__ import annotations

import pytest

from brokerha.log import split_book
from brokerha.model.errors import JournalFull
from brokerha.model.fingerprints import UNKNOWN
from brokerha.model.given_up import GivenUp, Split
from brokerha.model.ids import Ordered
from brokerha.model.invariants import InvariantBroken
from brokerha.model.records import Outcomes, Rewound, Started
from brokerha.ports.journal import Journal
from brokerha.replication.site.lineages import executed_before
from tests.contracts.follow_contract import TwinDisk, carried
from tests.contracts.journal_contract import Disk, around_restart
from tests.unit.log.turns import Author, body_of, everything, filled, fingerprint_after, result_of

TXIDS = [f"t{n}" for n in range(1, 40)]


def told(journal: Journal) -> dict[str, object]:
    """All answers of a journal, and its split book."""
    splits = journal.splits()
    book = [(split, journal.given_up(split.number, 0, 1_000)) for split in splits]
    return {**everything(journal, TXIDS, ["m1", "m2"]), "book": book}


def parted(disk: Disk) -> Author:
    """Three turns: own t1 t2 and foreign t3, then own t4 t5, then foreign t6 and own t7; all but the last two executed."""
    author, journal = Author("m1", "m2"), disk.journal
    journal.append([author.accept("t1", "t2"), author.stamp("t1", "t2"), author.hold("m2", "t3", "t6")])
    journal.append([author.append("m2", "t3"), author.add(3)])
    journal.append([author.accept("t4", "t5"), author.stamp("t4", "t5"), author.add(2)])
    journal.append([author.append("m2", "t6"), author.add(1), *author.synchronised("t7")])
    disk.journal.append([author.execute(5)])
    return author


class RewindContract:
    """Subclasses give the fixture ``disk`` with a `twin`."""

    @pytest.mark.parametrize("lsn", range(7))
    def test_the_queue_ends_where_it_ended_and_own_transactions_are_parked_again(self, disk: TwinDisk, lsn: int) -> None:
        author = parted(disk)
        whole = disk.journal.ordered(1, 9)
        disk.journal.append([author.accept("t8"), author.go_back(lsn)])
        own = [txid for _, txid, origin in whole[lsn:] if origin == "m1"]
        for journal in around_restart(disk):
            state = journal.state()
            assert (state.lsn, state.last) == (lsn, whole[lsn - 1] if lsn else None)
            assert state.parked == [*own, "t8"]
            assert state.used == {"m1": 5, "m2": 2}
            assert journal.ordered(1, 9) == whole[:lsn]
            assert [journal.lsn_of(txid) for _, txid, _ in whole] == [*range(1, lsn + 1), *[None] * (7 - lsn)]
            assert [journal.body(origin, txid) for _, txid, origin in whole] == [body_of(t, o) for _, t, o in whole]
            assert state.executed_lsn == min(5, lsn)
            assert state.fingerprint == journal.fingerprint_at(min(5, lsn))
            assert journal.results(1, 9) == [result_of(n) for n in range(1, min(5, lsn) + 1)]
            assert [journal.fingerprint_at(n) for n in range(lsn + 1, 9)] == [UNKNOWN] * (8 - lsn)
            assert journal.rejection(5) == ("no place for 5" if lsn >= 5 else None)
            assert journal.lsn_before(1_000) == lsn

    def test_it_tells_the_epoch_of_each_entry(self, disk: TwinDisk) -> None:
        author, journal = Author("m1", "m2"), disk.journal
        journal.append([*author.synchronised("t1", "t2")])
        journal.append([author.accept("t3", "t4", "t5"), author.stamp("t3", "t4", "t5"), author.add(3, epoch=4)])
        for journal in around_restart(disk):
            assert journal.epochs(1, 9) == [1, 1, 4, 4, 4]
            assert journal.epochs(2, 2) == [1, 4]
            assert journal.epochs(6, 2) == []
        disk.journal.append([author.go_back(3)])
        disk.journal.append([author.hold("m2", "t9"), author.bring([(999, "t9", "m2")], 7)])
        for journal in around_restart(disk):
            assert journal.epochs(1, 9) == [1, 1, 4, 7]
        disk.journal.append([author.execute(4)])
        disk.journal.trim(4)
        for journal in around_restart(disk):
            assert journal.epochs(1, 9) == []
            assert journal.epochs(journal.first_lsn(), 9) == [7][: 5 - journal.first_lsn()]

    @pytest.mark.parametrize("lsn", range(7))
    def test_it_goes_on_from_there_with_other_lsns(self, disk: TwinDisk, lsn: int) -> None:
        author = parted(disk)
        whole = disk.journal.ordered(1, 9)
        disk.journal.append([author.go_back(lsn)])
        again: list[Ordered] = [*reversed(whole[lsn:]), (999, "t9", "m2")]
        disk.journal.append([author.hold("m2", "t9"), author.bring(again[:2], 2)])
        disk.journal.append([author.bring(again[2:], 2)])
        disk.journal.append([author.execute(9)])
        for journal in around_restart(disk):
            assert journal.ordered(1, 20) == [*whole[:lsn], *again]
            assert [journal.lsn_of(txid) for _, txid, _ in [*whole[:lsn], *again]] == list(range(1, 9))
            assert [journal.body(o, t) for _, t, o in again] == [body_of(t, o) for _, t, o in again]
            assert journal.results(1, 20) == [result_of(n) for n in range(1, 9)]
            assert [journal.fingerprint_at(n) for n in range(1, 9)] == [fingerprint_after(n) for n in range(1, 9)]
            assert journal.state().parked == []
        assert disk.journal.trim(99) == 8
        for journal in around_restart(disk):
            assert [journal.body(o, t) for _, t, o in again] == [None] * len(again)
            assert [r for _, r in journal.records()] == []

    def test_back_and_forth_many_times(self, disk: TwinDisk) -> None:
        author = Author("m1", "m2")
        for n in range(12):
            disk.journal.append(author.whole(f"t{3 * n + 1}", f"t{3 * n + 2}", f"t{3 * n + 3}"))
            lsn = (7 * n) % (author.lsn + 1)
            whole = disk.journal.ordered(1, 99)
            disk.journal.append([author.go_back(lsn)])
            disk.restart()
            again = whole[lsn:][:: 1 if n % 2 else -1]
            disk.journal.append([author.bring(again[: 2 * n], n + 2), author.execute(n)])
            disk.restart()
            assert [txid for _, txid, _ in disk.journal.ordered(1, 99)] == [t for _, t, _ in [*whole[:lsn], *again[: 2 * n]]]
        before = told(disk.journal)
        assert told(disk.restart()) == before

    def test_all_of_it_in_one_turn(self, disk: TwinDisk) -> None:
        author = Author("m1", "m2")
        turn = [*author.whole("t1", "t2", "t3", "t4", "t5", "t6"), author.go_back(3), author.go_back(2)]
        disk.journal.append([*turn, author.bring([(5, "t5", "m1")]), author.execute(1), author.go_back(2), Started(1)])
        for journal in around_restart(disk):
            assert [txid for _, txid, _ in journal.ordered(1, 9)] == ["t1", "t2"]
            assert journal.state().parked == ["t3", "t4", "t5", "t6"]
            assert [(s.lsn, s.total) for s in journal.splits()] == [(3, 3), (2, 1), (2, 1)]
            assert [entry.outcome for entry in journal.given_up(journal.splits()[0].number, 0, 9)] == [
                "applied",
                "rejected",
                "applied",
            ]

    def test_going_back_nowhere_changes_nothing_but_the_log(self, disk: TwinDisk) -> None:
        author = filled(disk.journal, turns=2)
        before = told(disk.journal)
        disk.journal.append([author.go_back(2)])
        for journal in around_restart(disk):
            after = told(journal)
            for name in ("lsns", "bodies", "streams", "ordered", "results", "rejections", "fingerprints"):
                assert after[name] == before[name]
            assert [(split.lsn, split.total) for split in journal.splits()] == [(2, 0)]

    def test_a_queue_does_not_go_back_behind_what_is_trimmed_or_ahead_of_its_end(self, disk: TwinDisk) -> None:
        author = filled(disk.journal, turns=4)
        disk.journal.trim(below=3)
        before = told(disk.journal)
        for lsn in (-1, 0, 1, 5):
            with pytest.raises(InvariantBroken, match="goes back to what is held"):
                disk.journal.append([Rewound(lsn, 1, 2)])
        assert told(disk.journal) == before
        disk.journal.append([author.go_back(2)])
        for journal in around_restart(disk):
            state = journal.state()
            assert (state.lsn, state.last, state.executed_lsn, journal.first_lsn()) == (2, (20, "t2", "m1"), 2, 3)
            assert state.fingerprint == fingerprint_after(2)
            assert state.parked == ["t3", "t4"]
        disk.journal.append([author.bring([(7, "t4", "m1")]), author.execute(1)])
        assert disk.restart().ordered(3, 9) == [(7, "t4", "m1")]

    def test_going_back_that_was_not_written_changes_nothing(self, disk: TwinDisk) -> None:
        author = parted(disk)
        before = told(disk.journal)
        with disk.full(), pytest.raises(JournalFull):
            disk.journal.append([author.accept("t8"), Rewound(2, 1, 2)])
        assert told(disk.journal) == before
        assert told(disk.restart()) == before
        disk.journal.append([author.accept("t8"), Rewound(2, 1, 2)])
        assert disk.restart().state().lsn == 2

    def test_behind_a_trusted_copy_the_content_is_unknown_where_no_result_says_it(self, disk: TwinDisk) -> None:
        author = filled(disk.journal, turns=6)
        disk.journal.append([author.rebase(4), author.execute(1), author.go_back(2)])
        for journal in around_restart(disk):
            state = journal.state()
            assert (state.executed_lsn, state.fingerprint, state.items) == (2, UNKNOWN, 0)
            assert (journal.results_from(), journal.fingerprint_at(2)) == (3, UNKNOWN)
            outcomes = [entry.outcome for entry in journal.given_up(journal.splits()[0].number, 0, 9)]
            # What the copy was trusted to hold counts as applied: under `none` it must not be executed a second time.
            assert outcomes == ["applied", "applied", "rejected", "unknown"]
        disk.journal.append([author.bring([(7, "t4", "m1")]), author.execute(1)])
        assert disk.restart().results(3, 9) == [result_of(3)]

    def test_what_was_executed_before_a_split_is_known_when_the_next_one_goes_back_further(self, disk: TwinDisk) -> None:
        # Given a site that kept its content after LSN 4, and so has no results of before any more
        author = filled(disk.journal, turns=6)
        disk.journal.append([author.go_back(4, keeps_content=True), author.rebase(4)])
        disk.journal.append([author.bring([(7, "t5", "m1")]), author.execute(1)])
        # When it keeps its content once more, after LSN 2
        disk.journal.append([author.go_back(2, keeps_content=True)])
        # Then what it has executed by then is named, whichever result said so
        for journal in around_restart(disk):
            given_up = [(entry.lsn, entry.outcome) for entry in journal.given_up(journal.splits()[-1].number, 0, 9)]
            assert given_up == [(3, "applied"), (4, "applied"), (5, "rejected")]
            assert {"t3", "t4"} <= executed_before(journal, 2)

    def test_items_are_known_where_a_record_of_results_ends(self, disk: TwinDisk) -> None:
        author = Author("m1")
        disk.journal.append([*author.synchronised("t1", "t2", "t3", "t4"), author.execute(2), author.execute(2)])
        disk.journal.append([author.go_back(3)])
        assert [journal.state().items for journal in around_restart(disk)] == [0, 0]
        disk.journal.append([author.go_back(2)])
        assert [journal.state().items for journal in around_restart(disk)] == [2, 2]

    def test_a_duplicate_of_what_is_given_up_is_none_any_more(self, disk: TwinDisk) -> None:
        # Given a transaction of two masters, first under the own name, and another one first under the other's
        author = Author("m1", "m2")
        disk.journal.append([*author.whole("t1"), author.accept("a"), author.stamp("a"), author.hold("m2", "a", "b")])
        disk.journal.append([author.append("m2", "a", "b"), author.accept("b"), author.stamp("b"), author.add(9)])
        disk.journal.append([author.go_back(1)])
        for journal in around_restart(disk):
            assert journal.state().parked == ["a", "b"]
            assert journal.body("m2", "a") == body_of("a", "m2")
        # When they come again, each under the other name
        disk.journal.append([author.bring([(5, "a", "m2"), (6, "b", "m1")], 2), author.execute(2)])
        for journal in around_restart(disk):
            assert journal.ordered(2, 9) == [(5, "a", "m2"), (6, "b", "m1")]
            assert (journal.body("m2", "a"), journal.body("m1", "b")) == (body_of("a", "m2"), body_of("b"))
        # Then they are kept as long as what they are the bodies of
        disk.journal.trim(2)
        for journal in around_restart(disk):
            assert (journal.body("m2", "a"), journal.body("m1", "b")) == (body_of("a", "m2"), body_of("b"))

    def test_what_an_epoch_left_out_is_there_when_what_it_recovered_is_given_up(self, disk: TwinDisk) -> None:
        author = Author("m1", "m2")
        disk.journal.append([*author.whole("t1"), author.accept("a"), author.stamp("a"), author.hold("m2", "a")])
        disk.journal.append([author.append("m2", "a"), author.install(2, [(20, "a", "m1")], {})])
        disk.journal.append([author.bring([(20, "a", "m1")], 2), author.go_back(1)])
        disk.journal.append([author.bring([(30, "a", "m2")], 3), author.execute(1)])
        assert disk.journal.trim(2) == 1
        for journal in around_restart(disk):
            assert journal.body("m2", "a") == body_of("a", "m2")

    def test_own_bodies_that_nothing_brings_again_are_kept_and_foreign_ones_go_with_the_trim(self, disk: TwinDisk) -> None:
        author = parted(disk)
        disk.journal.append([author.go_back(3)])
        disk.journal.append([author.hold("m2", "t20"), author.append("m2", "t20"), author.stamp("t5"), author.add(9)])
        for journal in around_restart(disk):
            assert journal.body("m2", "t6") == body_of("t6", "m2")
        disk.journal.append([author.execute(9)])
        assert disk.journal.trim(4) == 3
        for journal in around_restart(disk):
            assert journal.body("m2", "t6") is None
            assert [journal.body("m1", txid) for txid in ("t4", "t5", "t7")] == [body_of(t) for t in ("t4", "t5", "t7")]
            assert journal.state().parked == ["t4", "t7"]
            assert [record for _, record in journal.records() if author.hold("m2", "t6") == record] == []

    @pytest.mark.parametrize("is_recovered", [False, True])
    def test_foreign_bodies_that_are_wanted_stay(self, disk: TwinDisk, is_recovered: bool) -> None:
        author = parted(disk)
        disk.journal.append([author.go_back(3)])
        if is_recovered:
            disk.journal.append([author.install(2, [(77, "t6", "m2")], {})])
        else:
            disk.journal.append([author.install(2, [], {}), author.append("m2", "t6")])
        assert disk.journal.trim(4) == 3
        disk.restart()
        disk.journal.append([author.bring([(77, "t6", "m2")], 2) if is_recovered else author.add(1)])
        for journal in around_restart(disk):
            assert journal.ordered(4, 9)[0][1:] == ("t6", "m2")
            assert journal.body("m2", "t6") == body_of("t6", "m2")

    def test_an_epoch_that_is_given_up_stays_until_the_next_one(self, disk: TwinDisk) -> None:
        author = filled(disk.journal, turns=2)
        given_up = author.install(2, (), {"m1": 3})
        disk.journal.append([given_up, *author.whole("t3")])
        second = author.install(3, (), {})
        disk.journal.append([second, *author.whole("t4"), author.go_back(1)])
        for journal in around_restart(disk):
            assert journal.state().installed == second.epoch
        assert disk.journal.trim(2) == 1
        for journal in around_restart(disk):
            assert journal.state().installed == second.epoch
            assert journal.state().parked == ["t2", "t3", "t4"]
        third = author.install(4, (), {})
        disk.journal.append([third, author.stamp("t2", "t3", "t4"), author.add(3), author.execute(3)])
        assert disk.journal.trim(99) == 3
        assert disk.restart().state().installed == third.epoch

    def test_an_incarnation_may_get_lower_lsns_behind_it(self, disk: TwinDisk) -> None:
        author = filled(disk.journal, turns=3)
        disk.journal.append([Started(1)])
        filled(disk.journal, turns=2, author=author)
        disk.journal.append([Started(2), author.go_back(4)])
        assert [journal.state().starts for journal in around_restart(disk)] == [((1, 3), (2, 4))] * 2

    def test_whoever_follows_record_by_record_comes_to_the_same(self, disk: TwinDisk) -> None:
        source, follower = disk.journal, disk.twin()
        author = filled(source, turns=3, per_turn=3)
        source.append([author.hold("m2", "t10"), author.append("m2", "t10"), author.go_back(4)])
        source.append([author.bring([(500, "t8", "m1")]), author.add(5), author.execute(3)])
        source.append([author.go_back(5)])
        for limit_bytes in (1, 400, 1, 1, 1 << 30):
            follower.journal.follow(carried(source, follower.journal.last_number + 1, limit_bytes))
            follower.restart()
        assert told(follower.journal) == told(source)

    def test_nobody_follows_from_before_results_that_a_copy_made_void_behind_a_split(self, disk: TwinDisk) -> None:
        author = filled(disk.journal, turns=3)
        number = disk.journal.last_number
        disk.journal.append([author.go_back(2), author.rebase(1)])
        for journal in around_restart(disk):
            assert not [record for _, record in journal.records() if isinstance(record, Outcomes)]
            assert journal.numbered_from() == number + 1

    def test_given_up_records_are_trimmed_with_what_was_before(self, disk: TwinDisk) -> None:
        author = filled(disk.journal, turns=5, per_turn=2)
        disk.journal.append([author.go_back(5)])
        number = disk.journal.last_number
        disk.journal.append([author.stamp("t6"), author.add(1), author.execute(1)])
        assert disk.journal.trim(6) == 5
        for journal in around_restart(disk):
            assert journal.numbered_from() == number + 1
            kept = [n for n, record in journal.records() if n < number and not hasattr(record, "items")]
            assert kept == []
            assert journal.state().parked == ["t7", "t8", "t9", "t10"]

    def test_the_split_book_says_what_was_given_up(self, disk: TwinDisk) -> None:
        author = parted(disk)
        whole = disk.journal.ordered(1, 9)
        disk.journal.append([Rewound(3, 4, 6)])
        number = disk.journal.last_number
        expected = [GivenUp(4, "t4", "m1", "applied"), GivenUp(5, "t5", "m1", "rejected")]
        expected += [GivenUp(6, "t6", "m2", "unknown"), GivenUp(7, "t7", "m1", "unknown")]
        author.sink(3)
        for journal in around_restart(disk):
            assert journal.splits() == [Split(number, 4, 6, False, 3, 4, whole[-1][0], 4)]
            assert journal.given_up(number, 0, 99) == expected
            assert journal.given_up(number, 5, 2) == expected[1:3]
            assert journal.given_up(number + 1, 0, 9) == journal.given_up(0, 0, 9) == []
        filled(disk.journal, turns=1, author=author)
        disk.journal.trim(5)
        author.forget(disk.journal, 5)
        for journal in around_restart(disk):
            assert journal.given_up(number, 0, 99) == expected

    def test_the_split_book_is_bounded(self, disk: TwinDisk, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in (("SPLITS_KEPT", 3), ("ENTRIES_KEPT", 5), ("PAGE_ENTRIES", 2)):
            monkeypatch.setattr(split_book, name, value)
        author = Author("m1", "m2")
        for n, count in enumerate((1, 2, 2, 2)):
            disk.journal.append([*author.whole(*[f"x{n}-{i}" for i in range(count)]), author.go_back(0)])
        for journal in around_restart(disk):
            assert [(split.total, split.held) for split in journal.splits()] == [(2, 0), (2, 2), (2, 2)]
            first, second, third = (journal.given_up(split.number, 0, 9) for split in journal.splits())
            assert (first, [entry.txid for entry in second]) == ([], ["x2-0", "x2-1"])
            assert [entry.txid for entry in third] == ["x3-0", "x3-1"]
        disk.journal.append([*author.whole(*[f"y{i}" for i in range(7)]), author.go_back(0)])
        for journal in around_restart(disk):
            assert [(split.total, split.held) for split in journal.splits()] == [(2, 0), (2, 0), (7, 5)]
            assert [e.lsn for e in journal.given_up(journal.splits()[-1].number, 3, 9)] == [3, 4, 5]

    def test_what_the_content_holds_stays_in_the_split_book_while_it_can_be_executed_again(
        self, disk: TwinDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in (("SPLITS_KEPT", 2), ("ENTRIES_KEPT", 2)):
            monkeypatch.setattr(split_book, name, value)
        # Given a site that kept what it had executed of three transactions, which wait for a place again
        author = Author("m1", "m2")
        disk.journal.append([*author.whole("a", "b", "c"), Rewound(0, 1, 2, keeps_content=True)])
        first = disk.journal.last_number
        author.sink(0)
        # When more splits come than the book has room for
        for n in range(4):
            disk.journal.append([*author.whole(f"x{n}"), author.go_back(0, lineage=3 + n)])
        # Then it still says so
        for journal in around_restart(disk):
            assert [split.number for split in journal.splits()][:-2] == [first]
            assert executed_before(journal, journal.state().executed_lsn) == {"a", "b", "c"}
        # When they have places that are trimmed, and only then, the next split takes that one's room
        disk.journal.append([author.stamp("a", "b", "c"), author.add(9), author.execute(9)])
        disk.journal.append([author.go_back(3, lineage=7)])
        assert [split.number for split in disk.journal.splits()][:-2] == [first]
        assert disk.journal.trim(4) == 3
        disk.journal.append([*author.whole("y"), author.go_back(3, lineage=8)])
        for journal in around_restart(disk):
            assert len(journal.splits()) == 2
